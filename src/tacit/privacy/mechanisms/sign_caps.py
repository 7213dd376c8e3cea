r"""Caps of sign vectors, for `LocalVector`: which one is best, and laws of signs that agree.

A cap is all choices of k signs that agree with given ones in a places or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from tacit.privacy.events import agreeing_signs
from tacit.privacy.rounding import exp_floor

Reals = npt.NDArray[np.float64]


@lru_cache(maxsize=256)
def best_cap(most: int, epsilon: Fraction, told: int | None = None) -> tuple[int, int]:
    """Find how many signs a report has, and how many agree at least, for the smallest variance.

    The second moment of a score is d k over the square of the advantage, so that the latter over k
    is to be large. All pairs are compared in fractions.
    """
    growth = Fraction(exp_floor(epsilon, 128), 2**128)

    def worth(cap: tuple[int, int]) -> Fraction:
        signs, least = cap
        held = agreeing_signs(signs, least)
        apart: Fraction = (growth - 1) / (growth * held + 2**signs - held)
        return (surplus(signs, least) * apart) ** 2 / signs

    counts = range(1, most + 1) if told is None else (told,)
    return max(((signs, least) for signs in counts for least in range(1, signs + 1)), key=worth)


def surplus(signs: int, least: int) -> int:
    """Sum agreeing signs less others over all choices with at least so many that agree."""
    counts = range(least, signs + 1)
    return sum(math.comb(signs, count) * (2 * count - signs) for count in counts)


def count_law(chances: Reals) -> Reals:
    """Return the law of the number of independent events that happen, along the last axis."""
    law = np.zeros((*chances.shape[:-1], chances.shape[-1] + 1))
    law[..., 0] = 1
    for place in range(chances.shape[-1]):
        chance = chances[..., place, None]
        law[..., 1:] = law[..., 1:] * (1 - chance) + law[..., :-1] * chance
        law[..., :1] *= 1 - chance
    return law


def sign_reports(dimension: int, told: int) -> Iterator[list[int]]:
    """List −1, 0 and 1 for each place: all that have so many signs."""
    for places in combinations(range(dimension), told):
        for signs in product((-1, 1), repeat=told):
            report = [0] * dimension
            for place, sign in zip(places, signs, strict=True):
                report[place] = sign
            yield report
