r"""Expected distance of a private posterior from the one without privacy, before any release.

This module computes the exact expectation of the Hellinger error, its tail with the bounds of
section 4 of the paper, and the number of records that a given error needs. Nothing here reads data:
counts are hypothetical.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tacit.central.posteriors import hellinger
from tacit.central.posteriors.count_channels import MECHANISMS, checked_prior
from tacit.central.posteriors.count_law import CountLaw, drawn, every_row, noisy
from tacit.privacy import errors

_MOST_RECORDS = 2**20


def planned(
    prior: Any,
    total: int,
    *,
    epsilon: float | Fraction,
    delta: float = 0.0,
    mechanism: str = "geometric",
    sensitivity: str = "smooth",
    calibration: str = "theorem",
    remap: bool = False,
) -> CountLaw:
    """Return the law of the released count of a planned release: see `BetaBinomial.release`."""
    where = "accuracy"
    pair = checked_prior(where, prior, most=2)
    total = errors.whole(where, "total", total, least=1, most=_MOST_RECORDS)
    errors.choice(where, "mechanism", mechanism, MECHANISMS)
    if mechanism == "hellinger":
        budget: Any = {"epsilon": epsilon, "delta": delta}
        scores = hellinger.score(pair, total, sensitivity=sensitivity, **budget)
        law = drawn(pair, scores, hellinger.exponent(scores, calibration=calibration, **budget))
    else:
        if remap and mechanism == "laplace":
            # A release remaps both noisy counts, which is not a law of one count.
            errors.refuse(where, "remap", "False with laplace", remap, "Use geometric noise.")
        law = noisy(pair, total, epsilon, mechanism)
    return law.remapped() if remap else law


def expected_error(prior: Any, total: int, *, count: int | None = None, **options: Any) -> float:
    """Compute the expected Hellinger error of a planned release, at a count or over the prior.

    Parameters
    ----------
    prior, total
        Prior of the share, and number of records.
    count : int, optional
        The true count; if not given, the error is averaged over the prior.
    options
        As in `planned`.

    Examples
    --------
    >>> round(expected_error((1, 1), 100, count=50, epsilon=1), 3)
    0.059
    """
    law = planned(prior, total, **options)
    return law.average() if count is None else float(law.errors([count])[0])


class TailBounds(NamedTuple):
    r"""P(error ≥ c) at a true count: exactly, and by three bounds of increasing looseness.

    With weights :math:`e^{-\kappa H}`, κ the exponent over S(x), and N_x their sum at x, the bounds
    are :math:`|R| e^{-\kappa c}` divided by N_x; by the smallest N_x of all x, which depends only
    on the number of records (the N(n) of the paper); and by 1, which is at most any N_x.
    """

    exact: float
    normalised: float
    by_size: float
    loose: float


def tail_bounds(
    prior: Any,
    total: int,
    *,
    count: int,
    distance: float,
    epsilon: float | Fraction,
    delta: float = 0.0,
    sensitivity: str = "smooth",
    calibration: str = "theorem",
) -> TailBounds:
    """Bound the tail of the error as in section 4 of the paper, for the exponent that is in use.

    The exponent of the paper's section 4 is twice that of its mechanism.

    Parameters
    ----------
    prior, total, count
        Prior of the share; number of records; number of them that have the property.
    distance : float
        Hellinger error c.
    epsilon, delta, sensitivity, calibration
        Parameters of the Hellinger mechanism: see `tacit.posteriors.hellinger.build`.
    """
    pair = checked_prior("tail_bounds", prior, most=2)
    count = errors.whole("tail_bounds", "count", count, least=0, most=total)
    budget: Any = {"epsilon": epsilon, "delta": delta}
    scores = hellinger.score(pair, total, sensitivity=sensitivity, **budget)
    exponent = hellinger.exponent(scores, calibration=calibration, **budget)
    sums = every_row(scores, np.exp(-exponent * scores.scaled())).sum(axis=1)
    most = (total + 1) * math.exp(-exponent * distance / scores.sensitivity[count])
    exact = drawn(pair, scores, exponent).tail(count, distance)
    bounds = (min(float(most / size), 1.0) for size in (sums[count], sums.min(), 1.0))
    return TailBounds(exact, *bounds)


class Needed(NamedTuple):
    """A number of records, and the expected errors with it and with one record fewer."""

    records: int
    error: float
    error_before: float


def needed(prior: Any, *, error: float, share: float | None = None, **options: Any) -> Needed:
    """Find the number of records at which the expected error is at most `error`.

    Parameters
    ----------
    prior
        Prior of the share.
    error : float
        Hellinger distance, in (0, 1).
    share : float, optional
        Share of the records that have the property; if not given, the error is averaged over the
        prior.
    options
        As in `planned`.

    Notes
    -----
    The error is at most the bound with the returned number, and exceeds it with one record fewer.
    It decreases with n except for ripples where a share of n is rounded to a count.

    Examples
    --------
    >>> needed((1, 1), error=0.1, share=0.5, epsilon=1).records
    34
    """
    error = errors.probability("needed", "error", error, zero=False)
    if share is not None:
        errors.within("needed", "share", share, "[0, 1]")

    def reached(total: int) -> float:
        count = None if share is None else round(share * total)
        return expected_error(prior, total, count=count, **options)

    least, most, before, now = 0, 1, 1.0, reached(1)
    while now > error:
        least, most, before = most, 2 * most, now
        if most > _MOST_RECORDS:
            remedy = "Allow a larger error or a larger epsilon."
            within = f"reached with {_MOST_RECORDS} records"
            errors.refuse("needed", "error", within, error, remedy)
        now = reached(most)
    while most - least > 1:
        middle = _between(least, most, before, now, error)
        middle_error = reached(middle)
        if middle_error <= error:
            most, now = middle, middle_error
        else:
            least, before = middle, middle_error
    return Needed(most, now, before)


def _between(least: int, most: int, before: float, now: float, error: float) -> int:
    """Return where the power law through both ends meets the error, or else the middle."""
    if least == 0 or not before > now:
        return (least + most) // 2
    step = math.log(before / error) / math.log(before / now)
    return min(max(math.ceil(least * math.pow(most / least, step)), least + 1), most - 1)
