r"""Intervals for the accuracy within a private part of the voters: a class, a group, or everyone.

Each answer ("right" or "wrong") in each part has its own symbols, and a vote names some symbols. A
vote *leans* towards "right" in a part if it names more of the part's symbols for "right" than for
"wrong". The probability of that is known: u for a voter of the part whose answer is "right", v for
one whose answer is "wrong", w for a voter outside it; likewise for "wrong". A vote *shows* the
part if it names at least `least` of its symbols: with probability s for a voter of the part and t
for a voter outside it. Let π be the share of the population that is in the part, and r the accuracy
in the part. The number S of votes that show the part, and the number K that lean towards "right"
among the M votes that lean either way, have the laws

.. math:: S \sim \mathrm{Bin}(n,\; t + (s - t)\pi), \qquad
          K \mid M \sim \mathrm{Bin}(M, \rho), \quad
          \rho = \frac{w + (v - w)\pi + (u - v)\pi r}{2w + (u + v - 2w)\pi}.

A Clopper-Pearson interval [CP34]_ for the first, at a tenth of the risk, bounds π. One for ρ, at
the remaining risk, bounds r for every π within those bounds [BB94]_:

.. math:: r = \frac{\rho(u + v - 2w) - (v - w)}{u - v} + \frac{w (2\rho - 1)}{(u - v)\pi},

which is monotone in ρ and in π, so that its extremes are at the ends of both intervals.

Notes
-----
The interval misses r only if the interval of π or that of ρ misses: with a probability of at most
the risk, for every number of voters, share, accuracy, ε and confidence. Nothing is approximated.
Voters are assumed to be independent draws from the population whose accuracy is estimated.

References
----------
.. [CP34] Clopper, Pearson. The use of confidence or fiducial limits illustrated in the case of the
   binomial. Biometrika 1934.
.. [BB94] Berger, Boos. P values maximized over a confidence set for the nuisance parameter.
   JASA 1994.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv
from scipy.stats import hypergeom

from tacit.local.inference.votes import Law, Votes

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_FOR_SHARE = 0.1


class Chances(NamedTuple):
    """Probabilities that a vote leans or shows the part: u, v, w, s and t of the module."""

    own: float
    opposite: float
    elsewhere: float
    shown: float
    shown_elsewhere: float
    least: int
    """Number of symbols of the part that a vote must name to show it."""


class Counts(NamedTuple):
    """Votes that lean towards "right", towards "wrong", and that show the part; by part."""

    right: Integers
    wrong: Integers
    shown: Integers


def chances(law: Law, each: int) -> Chances:
    """Return the exact probabilities for a part that has `each` symbols for either answer."""
    if law.size == 1:
        inside, outside = law.own + (each - 1) * law.other, each * law.other
        return Chances(inside, outside, outside, inside + outside, 2 * outside, 1)
    named = np.array([law.own, 1 - law.own])
    lean = [
        float(named @ [_ahead(law, each, side, own) for own in (True, False)])
        for side in (1, -1, 0)
        if side or law.symbols > 2 * each
    ]
    own, opposite, elsewhere = lean if len(lean) == 3 else (*lean, 0.0)
    return Chances(own, opposite, elsewhere, *showing(law, 2 * each))


def showing(law: Law, size: int) -> tuple[float, float, int]:
    """Return how likely a part of `size` symbols is shown from inside and outside, and `least`.

    `least` is the number of named symbols that best separates voters inside from those outside.
    """
    others = law.symbols - 1
    least = np.arange(1, min(law.size, size) + 1)
    own, rest = law.own, 1 - law.own
    inside = own * hypergeom.sf(least - 2, others, size - 1, law.size - 1)
    inside += rest * hypergeom.sf(least - 1, others, size - 1, law.size)
    if law.symbols == size:
        return 1.0, 0.0, 1
    outside = own * hypergeom.sf(least - 1, others, size, law.size - 1)
    outside += rest * hypergeom.sf(least - 1, others, size, law.size)
    middle = (inside + outside) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.nan_to_num((inside - outside) / np.sqrt(middle * (1 - middle)))
    best = int(np.argmax(power))
    return float(inside[best]), float(outside[best]), int(least[best])


def _ahead(law: Law, each: int, side: int, named: bool) -> float:
    """Return the probability that more symbols of one answer are named than of the other.

    `side` says which answer the voter's own symbol belongs to (1 for this one, −1 for the other, 0
    for a symbol of no answer in this part), and `named` whether it is among the named ones. The
    other named symbols are drawn without replacement.
    """
    plus, minus = each - (side == 1), each - (side == -1)
    drawn, others = law.size - named, law.symbols - 1
    inside = np.arange(max(0, drawn - (others - plus - minus)), min(drawn, plus + minus) + 1)
    total = hypergeom.pmf(inside, others, plus + minus, drawn)
    ours = np.arange(plus + 1)
    split = hypergeom.pmf(ours[None], plus + minus, plus, inside[:, None])
    lead = 2 * ours[None] - inside[:, None] + side * named
    return float(total @ np.where(lead > 0, np.nan_to_num(split), 0.0).sum(axis=1))


def count(votes: Votes, axis: int | None, least: int) -> Counts:
    """Count votes by part along an axis (classes or groups), or for all voters as one part."""
    symbols, shape = votes.symbols.reshape(len(votes), -1), votes.ballot.shape
    inside, parts = (0 * symbols, 1) if axis is None else (symbols // 2, shape[axis])
    # Not by numpy's `unravel_index`, which is wrong for long columns in version 2.4.
    part = inside // shape[1] if axis == 0 else inside % shape[1]
    place = np.arange(len(votes))[:, None] * parts + part
    kept, index = np.unique(place, return_inverse=True)
    lead = np.bincount(index.ravel(), (2.0 * (symbols % 2) - 1).ravel())
    size = np.bincount(index.ravel())
    return Counts(
        *(
            np.bincount(kept[chosen] % parts, minlength=parts)
            for chosen in (lead > 0, lead < 0, size >= least)
        )
    )


def interval(
    counts: Counts, voters: int, law: Chances, confidence: float, *, everybody: bool = False
) -> tuple[Reals, Reals]:
    """Return the ends of the interval of each part.

    With `everybody`, all voters are known to be in the part, and its share need not be bounded.
    """
    u, v, w = law[:3]
    risk = 1 - confidence
    right = np.asarray(counts.right)
    leaning = right + counts.wrong
    low = high = np.ones(leaning.shape)
    if not everybody:
        gap = law.shown - law.shown_elsewhere
        ends = clopper_pearson(counts.shown, voters, _FOR_SHARE * risk)
        low, high = (np.clip((end - law.shown_elsewhere) / gap, 0.0, 1.0) for end in ends)
        risk = (1 - _FOR_SHARE) * risk
    # Counts beyond what any accuracy can give are replaced by the nearest possible ones. That only
    # widens the interval, which could otherwise shrink to a point.
    most = (u * high + w * (1 - high)) / ((u + v) * high + 2 * w * (1 - high))
    lower = clopper_pearson(np.minimum(right, np.ceil(leaning * most)), leaning, risk)[0]
    upper = clopper_pearson(np.maximum(right, np.floor(leaning * (1 - most))), leaning, risk)[1]
    least = np.minimum(*(_accuracy(lower, share, law) for share in (low, high)))
    largest = np.maximum(*(_accuracy(upper, share, law) for share in (low, high)))
    nobody = high <= 0
    return (
        np.where(nobody, 0.0, np.clip(least, 0.0, 1.0)),
        np.where(nobody, 1.0, np.clip(largest, 0.0, 1.0)),
    )


def _accuracy(rho: Reals, share: Reals, law: Chances) -> Reals:
    """Return the accuracy at which a share `rho` of the leaning votes leans towards "right"."""
    u, v, w = law[:3]
    slope = w * (2 * rho - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = np.where(slope == 0, 0.0, slope / share)
    return np.asarray((rho * (u + v - 2 * w) - (v - w) + noise) / (u - v))


def clopper_pearson(counts: Any, total: Any, risk: float) -> tuple[Reals, Reals]:
    """Return exact confidence limits of a binomial probability, each at half the risk."""
    counts, total = np.asarray(counts), np.asarray(total)
    rest = total - counts
    lower = betaincinv(np.maximum(counts, 1), rest + 1, risk / 2)
    upper = betaincinv(counts + 1, np.maximum(rest, 1), 1 - risk / 2)
    return np.where(counts <= 0, 0.0, lower), np.where(rest <= 0, 1.0, upper)
