r"""Attribute inference: guessing one attribute of an otherwise known record from a model.

The attacker of Yeom et al. [YGFJ18]_ knows all of a record but one attribute, tries every possible
value, and picks the one whose loss is likeliest for a member:

.. math:: \arg\max_v\; \ln \pi(v) - \ell(v) / s

with the prior π. This is Bayes' rule if members' losses have an exponential law of mean s
(cross-entropies), or if their errors are normal and s is twice the mean squared error. "nearest"
picks the loss nearest to the members' mean instead, as Jayaraman and Evans do [JE19]_.

Someone who knows the population can also guess attributes of non-members. So the advantage is the
share of right guesses on members minus that on others. "The guess is right" is an event of what was
released, so (ε, δ)-DP bounds this advantage like that of membership (`tacit.audit.membership`).

Notes
-----
The results describe one model and refute nothing. Intervals say how accurately its shares are
known.

References
----------
.. [YGFJ18] Yeom, Giacomelli, Fredrikson, Jha. Privacy risk in machine learning: analyzing the
   connection to overfitting. CSF 2018 (Section 5).
.. [JE19] Jayaraman, Evans. Evaluating differentially private machine learning in practice. USENIX
   Security 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.audit import intervals
from tacit.audit.intervals import Interval
from tacit.audit.membership import allowed_advantage
from tacit.privacy import errors
from tacit.privacy.decimals import above
from tacit.privacy.guarantees import Guarantee

Reals = npt.NDArray[np.float64]

RULES, KINDS = ("likelihood", "nearest"), ("cross-entropy", "squared")
_SMALLEST = 1e-12


@dataclass(frozen=True)
class AttributeReport:
    """How well an attribute is guessed, for members and for others."""

    members: int
    others: int
    values: int
    confidence: float
    on_members: Interval
    on_others: Interval
    advantage: Interval
    baseline: float
    """Accuracy, on the others, of always guessing the likeliest value of the prior."""
    ceiling: float | None
    """The advantage that the claim allows; None without a claim."""

    @property
    def words(self) -> str:
        """Return a one-line summary."""
        allowed = "" if self.ceiling is None else f"; the claim allows {above(self.ceiling, 3)}"
        return (
            f"guessed right: {self.on_members.value:.1%} of members, {self.on_others.value:.1%} of "
            f"others; advantage {self.advantage}{allowed}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "words": self.words}


def attribute_inference(
    losses: Callable[[Any, Any], Any],
    members: tuple[Any, Any],
    others: tuple[Any, Any],
    columns: int | list[int],
    values: Any,
    *,
    prior: Any = None,
    rule: str = "likelihood",
    kind: str = "cross-entropy",
    scale: float | None = None,
    claim: Guarantee | None = None,
    confidence: float = 0.95,
) -> AttributeReport:
    """Guess an attribute of members and of others from the model's losses.

    Parameters
    ----------
    losses : callable
        `losses(rows, labels)` gives the loss of the model under attack on each.
    members, others : (rows, labels)
        Records that the model was trained on, and others from the same population.
    columns : int or list of int
        The column of the attribute, or several columns that are set together (one-hot).
    values : array of shape (k,) or (k, columns)
        Its possible values; public. A record is taken to have the nearest of them.
    prior : array of shape (k,), optional
        Probability of each value; equal by default. It is not estimated from `others`, which are
        used for evaluation.
    rule : {"likelihood", "nearest"}
    kind : {"cross-entropy", "squared"}
        Kind of the losses, which decides the law assumed for those of members.
    scale : float, optional
        Mean of members' losses; by default the mean over `members`.
    claim : Guarantee, optional
        The model's guarantee, for the ceiling.
    """
    where = "attribute_inference"
    errors.choice(where, "rule", rule, RULES)
    factor = 2.0 if errors.choice(where, "kind", kind, KINDS) == "squared" else 1.0
    confidence = errors.probability(where, "confidence", confidence, zero=False)
    places = [columns] if isinstance(columns, int | np.integer) else list(columns)
    options = errors.reals(where, values).reshape(len(values), -1)
    chances = _prior(where, prior, len(options))
    sides = [(np.asarray(rows), np.asarray(labels)) for rows, labels in (members, others)]
    if options.shape[1] != len(places) or len(options) < 2:
        errors.refuse(where, "values", f"2 or more of {len(places)} columns", options.shape)
    mean = float(np.mean(losses(*sides[0]))) if scale is None else float(scale)

    def preference(tried: Reals) -> Reals:
        if rule == "nearest":
            return -np.abs(tried - mean)
        return np.asarray(np.log(chances) - tried / (factor * max(mean, _SMALLEST)))

    truths = [_nearest(rows[:, places], options) for rows, _ in sides]
    hits = [
        preference(_tried(losses, *side, places, options)).argmax(axis=1) == truth
        for side, truth in zip(sides, truths, strict=True)
    ]
    baseline = float(np.mean(truths[1] == int(np.argmax(chances))))
    return _report(hits, baseline, len(options), confidence, claim)


def _report(
    hits: list[Any], baseline: float, values: int, confidence: float, claim: Guarantee | None
) -> AttributeReport:
    return AttributeReport(
        members=len(hits[0]),
        others=len(hits[1]),
        values=values,
        confidence=confidence,
        on_members=intervals.share(hits[0], confidence),
        on_others=intervals.share(hits[1], confidence),
        advantage=intervals.difference(hits[0], hits[1], confidence),
        baseline=baseline,
        ceiling=None if claim is None else allowed_advantage(claim),
    )


def _tried(
    losses: Callable[[Any, Any], Any], rows: Any, labels: Any, places: list[int], options: Reals
) -> Reals:
    """Compute losses with every value tried, one column per value."""
    tried_losses = []
    for option in options:
        changed = np.array(rows)
        changed[:, places] = option.astype(changed.dtype)
        tried_losses.append(np.asarray(losses(changed, labels), dtype=np.float64))
    return np.stack(tried_losses, axis=1)


def _nearest(given: Any, options: Reals) -> npt.NDArray[np.int64]:
    """Return which of the values each record has."""
    gaps = [np.abs(np.asarray(given, np.float64) - option).sum(axis=1) for option in options]
    return np.asarray(np.argmin(gaps, axis=0))


def _prior(where: str, prior: Any, count: int) -> Reals:
    chances = np.full(count, 1.0) if prior is None else errors.reals(where, prior)
    if chances.shape != (count,) or bool((chances < 0).any()) or not chances.sum() > 0:
        wanted = f"{count} numbers, none below 0"
        errors.refuse(where, "prior", wanted, chances.shape)
    return np.asarray(np.maximum(chances / chances.sum(), _SMALLEST))
