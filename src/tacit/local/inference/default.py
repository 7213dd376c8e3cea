"""The model that is learned from reports unless somebody chooses another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def model_for(
    mechanism: Any,
    *,
    inhouse: Any = None,
    inhouse_public: bool = False,
    central: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "cpu",
    **rule: Any,
) -> Any:
    """Return the model for reports of a mechanism, not fitted.

    Where rows are at hand, or where partitions can draw synthetic ones, it is taught on rows. A
    codebook alone gets a student of its cells for two classes, which ranks people better than the
    table of labels does; for more classes, and for linked codewords, it does not: see
    docs/collect.md.

    Parameters
    ----------
    mechanism
        What the reports come from.
    inhouse, inhouse_public
        In-house rows without labels, and whether these are public.
    central : mapping, optional
        `central_epsilon` and `central_delta` of a student's in-house rows.
    seed, device
        As in the models, where they have them.
    rule
        `prior`, `priors`, `costs` or `threshold` of a classifier.
    """
    from tacit.local.inference.moments_regressor import MomentsRegressor
    from tacit.local.inference.noise_aware import NoiseAwareClassifier
    from tacit.local.inference.noise_aware_regressor import NoiseAwareRegressor
    from tacit.local.inference.proportions_classifier import ProportionsClassifier
    from tacit.local.inference.student import StudentClassifier

    taught: dict[str, Any] = {"inhouse": inhouse, "inhouse_public": inhouse_public, "seed": seed}
    by_partitions = mechanism.kind == "partitions"
    if getattr(mechanism, "outcome", None) is not None:
        alone = inhouse is None and not by_partitions
        return NoiseAwareRegressor() if alone else MomentsRegressor(**taught)
    if by_partitions:
        return ProportionsClassifier(**taught, **rule)
    if inhouse is not None or _ranks_by_cells(mechanism):
        return StudentClassifier(**taught, **(central or {}), device=device, **rule)
    return NoiseAwareClassifier(seed=seed, device=device, **rule)


def _ranks_by_cells(mechanism: Any) -> bool:
    quantizer = getattr(mechanism, "quantizer_", None)
    compact = quantizer is not None and quantizer.codewords == len(quantizer.cells)
    return compact and len(mechanism.classes or ()) == 2
