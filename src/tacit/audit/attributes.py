r"""Attribute inference: what a model tells about one attribute of a record that is otherwise known.

The attacker of Yeom et al. [YGFJ18]_ knows all of a record but one attribute, puts in every value
that it can have, and picks the one whose loss is likeliest for a member:

.. math:: \arg\max_v\; \ln \pi(v) - \ell(v) / s

with the prior π. That is Bayes' rule where members' losses have an exponential law of mean s
(cross-entropies), or where their errors are normal and s is twice the mean squared error. "nearest"
picks the loss nearest to the members' mean in its place, as Jayaraman and Evans do [JE19]_.

Whoever knows the population guesses attributes of strangers too: so the advantage is the share of
right guesses on members less that on others. "The guess is right" is an event of what was released,
so (ε, δ)-DP bounds this advantage as it does that of membership (`tacit.audit.membership`).

Notes
-----
The numbers are about one model and refute nothing. Intervals say how well its shares are known.

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
    """How well an attribute is guessed, of members and of others."""

    members: int
    others: int
    values: int
    confidence: float
    on_members: Interval
    on_others: Interval
    advantage: Interval
    baseline: float
    """What always guessing the likeliest value of the prior gets right, on the others."""
    ceiling: float | None
    """The advantage that the claim allows; None without a claim."""

    @property
    def words(self) -> str:
        """One line."""
        allowed = "" if self.ceiling is None else f"; the claim allows {above(self.ceiling, 3)}"
        return (
            f"guessed right: {self.on_members.value:.1%} of members, {self.on_others.value:.1%} of "
            f"others; advantage {self.advantage}{allowed}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
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
        Records that the model was trained on, and others from where those came.
    columns : int or list of int
        Where the attribute stands: one column, or several that are set together (one-hot).
    values : array of shape (k,) or (k, columns)
        What it can be; public. What a record has is the nearest of them.
    prior : array of shape (k,), optional
        How likely each is; equal without. Not read off `others`, on whom it is judged.
    rule : {"likelihood", "nearest"}
    kind : {"cross-entropy", "squared"}
        Of the losses: what law those of members are taken to have.
    scale : float, optional
        Of members' losses: their mean, without it the mean over `members`.
    claim : Guarantee, optional
        What the model promises, for the ceiling.
    """
    where = "attribute_inference"
    errors.choice(where, "rule", rule, RULES)
    usual = 2.0 if errors.choice(where, "kind", kind, KINDS) == "squared" else 1.0
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
        return np.asarray(np.log(chances) - tried / (usual * max(mean, _SMALLEST)))

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
    """Losses with every value put in, one column a value."""
    tried_losses = []
    for option in options:
        changed = np.array(rows)
        changed[:, places] = option.astype(changed.dtype)
        tried_losses.append(np.asarray(losses(changed, labels), dtype=np.float64))
    return np.stack(tried_losses, axis=1)


def _nearest(given: Any, options: Reals) -> npt.NDArray[np.int64]:
    """Which of the values each record has."""
    gaps = [np.abs(np.asarray(given, np.float64) - option).sum(axis=1) for option in options]
    return np.asarray(np.argmin(gaps, axis=0))


def _prior(where: str, prior: Any, count: int) -> Reals:
    chances = np.full(count, 1.0) if prior is None else errors.reals(where, prior)
    if chances.shape != (count,) or bool((chances < 0).any()) or not chances.sum() > 0:
        wanted = f"{count} numbers, none below 0"
        errors.refuse(where, "prior", wanted, chances.shape)
    return np.asarray(np.maximum(chances / chances.sum(), _SMALLEST))
