"""Regressors of clean rows, learned from reports of numeric outcomes and in-house rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tacit.data.outcomes import Numeric
from tacit.local import shuffling
from tacit.local.channels import PartitionedChannel
from tacit.local.inference import finite, moments
from tacit.local.inference.finite import Evidence
from tacit.local.inference.moments import Moments, Regression
from tacit.local.inference.noise_aware import SIGNIFICANCE, must_be_none
from tacit.local.inference.rounds import must_belong_together, protections
from tacit.local.inference.stored import TaughtOnRows, parts_of, restored
from tacit.local.inhouse import TAUGHT, Protection, together
from tacit.local.outcome_channels import ContrastChannel, OutcomeChannel, RoundedChannel
from tacit.local.persons import joined
from tacit.local.reports import Reports, certify
from tacit.privacy import artifact, codec, errors
from tacit.privacy.randomness import Seeded

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]

CARRIED = f"{TAUGHT}: it carries their likeness."


class MomentsRegressor(RegressorMixin, TaughtOnRows):  # type: ignore[misc]
    """A regressor of clean rows, fitted to the moments of outcomes that reports estimate.

    Parameters
    ----------
    inhouse : rows, optional
        In-house rows without outcomes, preferably those that the mechanism was fitted on. A
        mechanism with a central guarantee has synthetic rows, which are used by default.
    seed : int
        Seed of landmarks, and of the rows that are used if there are many.
    inhouse_public : bool
        State that these in-house rows are public; certificates say so.

    Attributes
    ----------
    regression_ : Regression
        What predicts: see `tacit.inference.moments`.
    outcome_ : Numeric
        The bounds of the outcome; predictions are clipped to them.
    guarantee_ : Guarantee
        Towards those who reported: learning is post-processing.
    inhouse_ : Protection
        Towards the in-house rows: none if the model is taught on them, as this adds no noise; that
        of the mechanism if it is taught on synthetic rows.

    Notes
    -----
    People are assumed to have rows like the in-house ones. Where reports hold cells, their shares
    are estimated from the reports as well.
    """

    kind: ClassVar[str] = "moments"

    def __init__(self, *, inhouse: Any = None, seed: int = 0, inhouse_public: bool = False) -> None:
        self.inhouse = inhouse
        self.seed = seed
        self.inhouse_public = inhouse_public

    def fit(self, reports: Reports | Sequence[Reports], y: None = None) -> Self:
        """Learn from reports with outcomes, of one round or of several of one collection."""
        where = "MomentsRegressor.fit"
        must_be_none(where, y)
        rounds = [reports] if isinstance(reports, Reports) else list(reports)
        must_hold_outcomes(where, rounds)
        if rounds[0].mechanism.kind == "partitions":
            must_belong_together(where, rounds)
        else:
            rounds = [Reports.concatenate(rounds)]
        last = rounds[-1]
        taught = self.inhouse is not None
        if not taught and getattr(last.mechanism, "synthetic_", None) is None:
            errors.refuse(where, "inhouse", "given", None, "Pass the in-house rows.")
        self._forget_fit()
        rounds = [one.as_multiset() for one in rounds]
        vectors = self._vectors(last.mechanism)
        found = [one for each in rounds for one in moments_of(each, vectors)]
        self.regression_ = moments.fit(
            found, vectors, blocks_of(last.mechanism, vectors), self.seed
        )
        self.mechanism_, self.outcome_ = last.mechanism, last.mechanism.outcome
        per_person = joined([one.per_person for one in rounds])
        self.reports_, self.guarantee_ = sum(map(len, rounds)), per_person.guarantee(last.channel)
        own = [Protection.none(self.inhouse_public, TAUGHT)] if taught else []
        self.inhouse_ = together([*protections_of(rounds), *own])
        stream = Seeded(0) if any(each.seeded for each in rounds) else None
        told = last.mechanism.inhouse_.sentence
        earlier = dict.fromkeys(each.mechanism.inhouse_.sentence for each in rounds[:-1])
        said = [sentence for sentence in earlier if sentence not in told]
        carried = (CARRIED,) if taught else ()
        issued = certify(last.mechanism, last.channel, stream, (*said, *carried), per_person)
        self.certificate_ = replace(
            issued, issued=last.certificate.issued, readers=shuffling.readers(rounds)
        )
        return self

    def _vectors(self, mechanism: Any) -> Floats:
        if self.inhouse is None:
            found = mechanism.synthetic_vectors(self.seed)
        else:
            found = mechanism.vectors(self.inhouse)
        chosen = np.random.default_rng(self.seed).permutation(len(found))[: moments.MOST_ROWS]
        return np.asarray(found[chosen])

    def next_round(
        self, inhouse: Any = None, *, inhouse_public: bool = False, seed: int = 0
    ) -> Any:
        """Return the mechanism of a next round, whose cells follow the predictions."""
        check_is_fitted(self, "regression_")
        scores = self.regression_.linear_scores(self.mechanism_.blocks_[-1].stop)
        if not scores:
            raise errors.InvalidParameter(
                "next_round: the model must not be the constant mean. Collect more reports in "
                "this round."
            )
        return self.mechanism_.adapted(
            scores,
            inhouse,
            taught=self.inhouse_,
            inhouse_public=inhouse_public,
            seeded=self.certificate_.seeded,
            seed=seed,
        )

    def predict(self, rows: Any) -> Reals:
        """Predict the outcome of clean rows."""
        check_is_fitted(self, "regression_")
        if isinstance(rows, Reports):
            raise errors.InvalidData(
                "predict: rows must be clean, got reports. For rows that are themselves reported, "
                "use Codebook and NoiseAwareRegressor."
            )
        return unscaled(self.outcome_, self.regression_(self.mechanism_.vectors(rows)))

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and arrays."""
        parameters, arrays = parts_of(self)
        parameters["regression"], own = self.regression_.parts()
        return parameters, {**arrays, **codec.nested(own, "regression")}

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> MomentsRegressor:
        """Rebuild what `parts` took apart."""
        made = restored(cls, parameters, arrays, network=False)
        own = codec.part(arrays, "regression")
        made.regression_ = Regression.from_parts(parameters["regression"], own)
        made.outcome_ = made.mechanism_.outcome
        return made


def unscaled(outcome: Numeric, scaled: Reals) -> Reals:
    """Return predictions in the unit of the outcome, within its bounds."""
    return np.clip(outcome.middle + outcome.half * scaled, outcome.lower, outcome.upper)


def must_hold_outcomes(where: str, rounds: Sequence[Any]) -> None:
    """Refuse anything but reports with numeric outcomes."""
    if not rounds:
        errors.refuse(where, "reports", "at least one table", 0)
    for each in rounds:
        if not isinstance(each, Reports) or not isinstance(each.channel, OutcomeChannel):
            raise errors.InvalidData(
                f"{where}: reports must hold numeric outcomes. Declare outcome=tacit.Numeric(…) "
                "and release with outcomes."
            )


def blocks_of(mechanism: Any, vectors: Floats) -> Sequence[slice]:
    """Return the blocks of a mechanism's vectors: one, unless it states several."""
    return getattr(mechanism, "blocks_", None) or (slice(0, vectors.shape[1]),)


def protections_of(rounds: Sequence[Reports]) -> list[Protection]:
    """Return what protects the in-house rows of the mechanisms."""
    if rounds[-1].mechanism.kind != "partitions":
        return [rounds[-1].mechanism.inhouse_]
    return protections(rounds)


def moments_of(reports: Reports, vectors: Floats) -> list[Moments]:
    """Return the moments that each partition's reports estimate."""
    channel, mechanism = reports.channel, reports.mechanism
    if isinstance(channel, ContrastChannel):
        return _of_halves(reports, channel, mechanism.cells_(vectors))
    assert isinstance(channel, RoundedChannel)
    if isinstance(channel.inner, PartitionedChannel):
        cells, assigned = mechanism.cells_(vectors), reports.columns["partition"]
        parts = [
            (cells[:, index], reports.columns["symbols"][assigned == index])
            for index in range(channel.inner.partitions)
        ]
    else:
        parts = [(mechanism.quantizer_.of_vectors(vectors), reports.columns["symbols"])]
    return [
        of_cells(Evidence(sets, channel.inner.law, channel.levels), own)
        for own, sets in parts
        if len(sets)
    ]


def _of_halves(
    reports: Reports, channel: ContrastChannel, cells: npt.NDArray[np.int64]
) -> list[Moments]:
    scores = channel.law.values[reports.columns["symbol"]]
    assigned = reports.columns["partition"]
    least = float(channel.law.variance(channel.law.points).min())
    variance = max(float(scores.var()), least)
    return [
        moments.of_signs(2 * cells[:, index] - 1, scores[assigned == index], variance)
        for index in range(channel.partitions)
        if bool((assigned == index).any())
    ]


def of_cells(evidence: Evidence, cells: npt.NDArray[np.int64]) -> Moments:
    """Return the moments of one set of cells; their shares follow in-house rows and reports."""
    counts = np.bincount(cells, minlength=evidence.codewords)
    trusted = finite.shift_test(evidence, counts).p_value >= SIGNIFICANCE
    prior = counts.astype(np.float64) * trusted
    shares = finite.maximum_likelihood(evidence, prior, tolerance=1e-4, steps=200)
    grid = np.linspace(-1.0, 1.0, evidence.classes)
    return moments.of_cells(cells, evidence.sets, evidence.channel, grid, shares)
