r"""Statistics from noisy sums, with intervals that contain the exact value in ≥ 95 % of draws.

The intervals cover the noise: the exact value is that of the clipped column of this table. What is
known about it (a count is not negative, a mean lies between the bounds) may narrow an interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.central.queries import model
from tacit.central.queries.grid import Grid
from tacit.central.queries.noise import Noise, reach_of
from tacit.central.queries.releases import Release

LEVEL = 0.95
_POINTS, _PARTS, _ROUNDS = 65, 16, 10

Reals = npt.NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class NoisyValue:
    """A noisy value and its 95 % interval; a choice among keys has no interval."""

    value: Any
    interval: Interval | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "interval": None if self.interval is None else list(self.interval),
        }


def estimates(
    query: model.Query,
    release: Release,
    noisy: list[list[int]],
    noise: Noise,
    rows: int | None = None,
) -> list[NoisyValue]:
    """Estimate the statistic of a query from the release that contains it, once per group.

    `rows` is the number of rows if it is public and the query is about all of them, else None.
    """
    if isinstance(query, model.Mean):
        return _means(release, noisy, noise, rows)
    return [_estimate(query, release, entries, noise) for entries in noisy]


def _estimate(query: model.Query, release: Release, noisy: list[int], noise: Noise) -> NoisyValue:
    match query, release.kind:
        case model.Count(), "rows" | "present":
            return _count(noisy[0], noise)
        case model.Count(), _:
            return _shared_count(query, release, noisy, noise)
        case model.Sum(), "total":
            return _linear(noisy, noise, (_grid(release).unit,))
        case model.Sum(), _:
            return _sum(release, noisy, noise)
        case model.Variance(), "triple":
            return _variance(release, noisy, noise)
    raise AssertionError(f"no {query.label} in a {release.kind}")


def _count(noisy: int, noise: Noise) -> NoisyValue:
    reach = noise.reach(LEVEL)
    return NoisyValue(noisy, (max(noisy - reach, 0), max(noisy + reach, 0)))


def _shared_count(
    query: model.Count, release: Release, noisy: list[int], noise: Noise
) -> NoisyValue:
    """Count rows by the sum of all entries: those of a row sum to a known number."""
    all_rows = query.column is None
    ones = [1.0] * len(noisy)
    if release.rotated:
        ones = [0.0, 1.0]
    elif release.nulls and not all_rows:
        ones[-1] = 0.0
    total = _linear(noisy, noise, tuple(one / release.whole for one in ones))
    assert total.interval is not None
    low, high = total.interval
    return NoisyValue(total.value, (max(low, 0.0), max(high, 0.0)))


def _sum_coefficients(release: Release) -> tuple[float, ...]:
    """Return the weights of the entries in a sum of values: L, U, and their mean in between."""
    grid = _grid(release)
    low, high = grid.lower / release.whole, grid.upper / release.whole
    if release.rotated:
        return (high - low) / 2, (high + low) / 2
    weights = (high, low) if release.kind == "pair" else (low, (low + high) / 2, high)
    return weights + (0.0,) * release.nulls


def _sum(release: Release, noisy: list[int], noise: Noise) -> NoisyValue:
    """Estimate a sum; rounded values widen its interval by half a step for each possible row."""
    total = _linear(noisy, noise, _sum_coefficients(release))
    if _grid(release).whole:
        return total
    rows = _shared_count(model.Count("any"), release, noisy, noise)
    assert total.interval is not None
    assert rows.interval is not None
    slack = rows.interval[1] * _grid(release).step / 2
    return NoisyValue(total.value, (total.interval[0] - slack, total.interval[1] + slack))


def _linear(noisy: list[int], noise: Noise, coefficients: tuple[float, ...]) -> NoisyValue:
    value = math.fsum(a * y for a, y in zip(coefficients, noisy, strict=True))
    reach = reach_of(noise, coefficients, LEVEL)
    return NoisyValue(value, (value - reach, value + reach))


def _means(
    release: Release, noisy: list[list[int]], noise: Noise, rows: int | None
) -> list[NoisyValue]:
    r"""Estimate means as positions p between the bounds, and intervals by inverting a test.

    At the exact p, the sum :math:`W(p) = (1 - p)S^+ - pS^-` is zero without noise; with noise,
    :math:`\tilde W(p)` is a combination of noise terms alone, with known coefficients. The interval
    is the hull of all p at which a \|W̃(p)\| this large or larger has probability 5 % or more,
    extended by half a step on each side if values were rounded to steps. If the number of rows is
    public and the noisy number of values is close to it, then most likely no value is missing, and
    the mean is taken over all rows.
    """
    grid, y = _grid(release), np.array(noisy, dtype=np.float64)
    entries = 3 if release.kind == "triple" else 2
    y = y[:, :entries]

    def inside(p: Reals) -> npt.NDArray[np.bool_]:
        coefficients = _mean_coefficients(release, p)
        distance = np.abs(np.einsum("ge,egp->gp", y, coefficients))
        slack = np.abs(coefficients).sum(axis=0)
        return np.asarray(noise.tail(coefficients, distance - slack) >= 1 - LEVEL)

    # W is linear in p; its values at 0 and 1 differ by the noisy count times T.
    ends = _mean_coefficients(release, np.array([[0.0, 1.0]]))
    first, last = np.einsum("ge,ep->pg", _pinned(release, y, noise, rows), ends[:, 0, :])
    size = first - last
    place = np.where(size > 0, np.clip(first / np.where(size > 0, size, 1.0), 0.0, 1.0), 0.5)
    low, high = _hull(inside, place)
    low, high = np.minimum(low, place), np.maximum(high, place)
    half = 0.0 if grid.whole else grid.step / 2
    return [
        NoisyValue(
            grid.value(float(p)),
            (
                max(grid.value(float(a)) - half, grid.lower),
                min(grid.value(float(b)) + half, grid.upper),
            ),
        )
        for p, a, b in zip(place, low, high, strict=True)
    ]


def _pinned(release: Release, y: Reals, noise: Noise, rows: int | None) -> Reals:
    """Replace the noisy number of values by the public number of rows if its interval has it."""
    if rows is None or not release.rotated:
        return y
    every = float(rows * release.whole)
    near = np.abs(y[:, 1] - every) <= noise.reach(LEVEL)
    return np.stack([y[:, 0], np.where(near, every, y[:, 1])], axis=1)


def _mean_coefficients(release: Release, p: Reals) -> Reals:
    """Return the coefficients of W(p) for the entries, along the first axis."""
    if release.rotated:
        return np.stack([np.full_like(p, 0.5), 0.5 - p])
    return np.stack([1 - p, -p] if release.kind == "pair" else [-p, 0.5 - p, 1 - p])


def _hull(inside: Any, place: Reals) -> tuple[Reals, Reals]:
    """Find the outermost positions that are inside, for each group; 0 and 1 if none is.

    The search grid includes the position of the value, because the positions inside may lie closer
    together than any grid.
    """
    base = np.linspace(0, 1, _POINTS)
    places = np.sort(np.hstack([np.tile(base, (len(place), 1)), place[:, None]]), axis=1)
    holds = inside(places)
    nothing = ~holds.any(axis=1)
    first = np.argmax(holds, axis=1)
    last = places.shape[1] - 1 - np.argmax(holds[:, ::-1], axis=1)
    low = _edge(inside, places, first, -1)
    high = _edge(inside, places, last, 1)
    return np.where(nothing, 0.0, low), np.where(nothing, 1.0, high)


def _edge(inside: Any, places: Reals, index: npt.NDArray[np.intp], way: int) -> Reals:
    """Find where the inside ends beyond these points, by sixteenths; return the outer side."""
    rows = np.arange(len(places))
    within = places[rows, index]
    beyond = places[rows, np.clip(index + way, 0, places.shape[1] - 1)]
    parts = np.arange(_PARTS + 1) / _PARTS
    for _ in range(_ROUNDS):
        between = within[:, None] + (beyond - within)[:, None] * parts
        between[:, -1] = beyond
        holds = inside(between[:, :-1])
        last = _PARTS - 1 - np.argmax(holds[:, ::-1], axis=1)
        last = np.where(holds.any(axis=1), last, 0)
        within, beyond = between[rows, last], between[rows, last + 1]
    return np.asarray(beyond)


def _variance(release: Release, noisy: list[int], noise: Noise) -> NoisyValue:
    r"""Estimate σ² from Bernstein sums: :math:`(B_0B_2 - B_1^2/4)/(B_0 + B_1 + B_2)^2`.

    σ² is in units of (U − L)², and never above ¼. For the interval, all three sums lie within their
    reach at once with probability 95 % (each misses with a third of the 5 %), and the interval
    spans the extremes of the formula over that box. The formula decreases in B₁; with s = B₀ + B₂
    and d = B₀ − B₂ it grows with s and falls with \|d\|. So its maximum lies on a face B₀ = max or
    B₂ = max, at the peak :math:`B_0 = B_1 + B_2 + B_1^2/(2B_2)` of that face, and its minimum at a
    corner. Rounding to steps moves σ by at most half a step: σ is a norm, and no row moves further.
    """
    grid = _grid(release)
    reach = noise.reach(1 - (1 - LEVEL) / 3)
    square = (grid.upper - grid.lower) ** 2
    low = [max(float(y - reach), 0.0) for y in noisy[:3]]
    high = [max(float(y + reach), 0.0) for y in noisy[:3]]
    corners = [(a, high[1], c) for a in (low[0], high[0]) for c in (low[2], high[2])]
    peaks = [
        (_peak(low[1], high[2], low[0], high[0]), low[1], high[2]),
        (high[0], low[1], _peak(low[1], high[0], low[2], high[2])),
    ]
    value = _spread(*(max(float(y), 0.0) for y in noisy[:3]))
    least = 0.0 if not sum(low) > 0 else min(_spread(*corner) for corner in corners)
    most = 0.25 if not sum(low) > 0 else max(_spread(*peak) for peak in peaks)
    half = 0.0 if grid.whole else grid.step / 2
    low_end = max(math.sqrt(least * square) - half, 0.0) ** 2
    high_end = min((math.sqrt(most * square) + half) ** 2, square / 4)
    return NoisyValue(value * square, (low_end, high_end))


def _peak(middle: float, fixed: float, low: float, high: float) -> float:
    if not fixed > 0:
        return low
    return min(max(middle + fixed + middle**2 / (2 * fixed), low), high)


def _spread(first: float, middle: float, last: float) -> float:
    size = first + middle + last
    if not size > 0:
        return 0.0
    a, b, c = first / size, middle / size, last / size
    return min(max(a * c - b * b / 4, 0.0), 0.25)


def _grid(release: Release) -> Grid:
    assert release.grid is not None
    return release.grid
