r"""Test whether draws of a mechanism follow the law that it states.

Proofs are about the law in `log_prob`, but what is published are draws of `release`. If the two
differ, the proof says nothing about the draws, so a mismatch refutes the mechanism's claim.

Outputs are grouped into cells, and the draws in each cell are counted. Cells are intervals of about
equal mass, from halves of the mass down to cells in which only a few draws are expected. They are
formed in several orders: of the outputs, of each of their entries, and of their probabilities.
Draws must also be independent. So pairs are counted in a coarser table: consecutive draws, draws at
the distance at which they are most alike, draws of two calls, draws at two inputs, and entries of
one vector. Every count is binomial with a probability that the law gives, so its tail is exact:

.. math:: p = \min\left(1,\; 2N \min_{\text{cells}} \min\{P(B \le b), P(B \ge b)\}\right),
          \qquad B \sim \mathrm{Bin}(n, P(\text{cell}))

for N cells in all (Bonferroni). A correct mechanism has p ≤ α with probability at most α.

Notes
-----
The choice of cells never depends on the draws that are counted in them. A fault that affects fewer
than about one draw in ten thousand, or only inputs that were not tried, is not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from tacit.privacy import errors
from tacit.privacy.mechanisms.base import Channel
from tacit.privacy.randomness import Randomness

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Outputs = Callable[[Any], Any]

_ROUNDING = 1e-12
"""Rounding error of probabilities that sum to one."""
_DEEPEST = 14
_COLUMNS = 8
_COARSE = 8
_ENTRIES = 4
_SINGLES = 500
_SEVERAL = 4


class Check(NamedTuple):
    """How many of `trials` draws fell in each cell, and the probability of each cell."""

    name: str
    counts: Integers
    chances: Reals
    trials: int


@dataclass(frozen=True)
class Agreement:
    """The p value, corrected for the number of cells, and the name of the most extreme check."""

    p_value: float
    finding: str


@dataclass(frozen=True)
class Stated:
    """The law of listed outputs at one input; the last chance is that of all other outputs."""

    outputs: npt.NDArray[Any]
    chances: Reals

    @classmethod
    def of(cls, channel: Channel, outputs: Any, raw: Any) -> Stated:
        """Take the probabilities of these outputs from the channel's `log_prob`."""
        listed = np.asarray(outputs)
        chances = np.exp(log_chances(channel, listed, raw))
        rest = max(1 - float(chances.sum()), 0.0) + _ROUNDING
        return cls(listed, np.append(chances, rest))

    def places(self, draws: Any) -> Integers:
        """Find the index of each draw in the list; any other draw gets its length."""
        return places(self.outputs, draws)

    @cached_property
    def orders(self) -> list[Integers]:
        """Return orders of the outputs: by value, by each further entry, and by probability."""
        size = len(self.outputs)
        columns = self.outputs.reshape(size, -1)[:, :_COLUMNS].T
        by_value = np.lexsort(columns[::-1])
        by_entry = [by_value[np.argsort(c[by_value], kind="stable")] for c in columns[1:]]
        by_chance = np.argsort(self.chances, kind="stable")
        return [*(np.append(order, size) for order in (by_value, *by_entry)), by_chance]

    def groups(self, order: Integers, count: int) -> Integers:
        """Split the outputs into `count` groups of about equal mass; return each one's group."""
        group = np.empty(len(order), np.int64)
        group[order] = _parts(self.chances[order], count)
        return group


def follows(
    channel: Channel,
    raws: Sequence[Any],
    outputs: Outputs,
    *,
    samples: int,
    entrywise: bool = False,
    rng: Randomness | None = None,
) -> Agreement:
    """Compare draws of `release` at each of these inputs with `log_prob`.

    Parameters
    ----------
    raws : sequence
        Inputs. The first two get `samples` draws each, the others an eighth of that.
    outputs : callable
        `outputs(raw)` lists distinct outputs that hold most of the mass; all others form one cell.
    entrywise : bool
        Whether the channel takes inputs of any shape and draws for each entry separately.
    """
    samples = errors.whole("follows", "samples", samples, least=100, most=10**9)
    checks: list[Check] = []
    whole: list[tuple[Stated, Integers]] = []
    for index, raw in enumerate(raws):
        stated, at = Stated.of(channel, outputs(raw), raw), f"at input {index + 1} of {len(raws)}"
        count = samples if index < 2 else samples // 8
        seen = stated.places(channel.release(repeated(raw, count), rng))
        checks += [*frequencies(f"outcomes {at}", stated, seen), *_lagged(at, stated, seen)]
        if index < _SEVERAL:
            checks += _one_at_a_time(channel, raw, stated, at, rng)
        if index < 2:
            whole.append((stated, seen))
            again = stated.places(channel.release(repeated(raw, count // 4), rng))
            checks += independent(f"two calls {at}", (stated, seen), (stated, again))
            checks += _entries(channel, raw, stated, at, count // 16, rng) if entrywise else []
    if len(whole) == 2:
        checks += independent("draws at two inputs", *whole)
    return verdict(checks)


def verdict(checks: Sequence[Check]) -> Agreement:
    """Combine checks: the smallest tail times the number of tails (Bonferroni)."""
    tails = [_tails(check) for check in checks]
    best = min(range(len(checks)), key=lambda index: tails[index].min(initial=1.0))
    number = sum(tail.size for tail in tails)
    p_value = min(float(tails[best].min(initial=1.0)) * number, 1.0)
    return Agreement(p_value, checks[best].name)


def frequencies(name: str, stated: Stated, seen: Integers) -> list[Check]:
    """Count draws by cell, in every order, and draws of outputs that have no probability."""
    counts = np.bincount(seen, minlength=len(stated.chances))
    never = stated.chances <= _ROUNDING
    sums = np.array([counts[never].sum(), counts[-1]])
    rare = np.array([stated.chances[never].sum(), stated.chances[-1]])
    checks = [Check(name, sums, rare, seen.size)]
    for order in stated.orders:
        starts, ends = _cells(stated.chances[order], seen.size)
        mass, total = (np.append(0, np.cumsum(one[order])) for one in (stated.chances, counts))
        chances = np.clip(mass[ends] - mass[starts], 0.0, 1.0)
        checks.append(Check(name, total[ends] - total[starts], chances, seen.size))
    return checks


def independent(
    name: str, first: tuple[Stated, Integers], second: tuple[Stated, Integers]
) -> list[Check]:
    """Count pairs of draws by their two cells, in two groupings, and pairs that are equal."""
    (one, seen), (two, other) = first, second
    size = min(seen.size, other.size)
    seen, other = seen[:size], other[:size]
    checks = []
    if np.array_equal(one.outputs, two.outputs):
        equal = np.count_nonzero((seen == other) & (seen < len(one.outputs)))
        chance = float(one.chances[:-1] @ two.chances[:-1])
        checks.append(Check(name, np.array([equal]), np.array([chance]), size))
    for mine, theirs in ((one.orders[0], two.orders[0]), (one.orders[-1], two.orders[-1])):
        rows, columns = one.groups(mine, _COARSE), two.groups(theirs, _COARSE)
        counts = np.bincount(_COARSE * rows[seen] + columns[other], minlength=_COARSE**2)
        first_share = np.bincount(rows, one.chances, _COARSE)
        second_share = np.bincount(columns, two.chances, _COARSE)
        chances = (first_share[:, None] * second_share).ravel().astype(np.float64)
        checks.append(Check(name, counts, chances, size))
    return checks


def places(outputs: Any, draws: Any) -> Integers:
    """Find the index of each draw among these outputs; any other draw gets their number."""
    listed, drawn = keys(outputs), keys(draws)
    order = np.argsort(listed, kind="stable")
    nearest = order[np.minimum(np.searchsorted(listed[order], drawn), len(listed) - 1)]
    return np.where(listed[nearest] == drawn, nearest, len(listed))


def keys(rows: Any) -> npt.NDArray[Any]:
    """Return one comparable value per row: its number if it has one entry, else its bytes."""
    array = np.asarray(rows)
    if array.dtype.kind not in "biuf":
        array = np.array([repr(row) for row in array])
        return array
    flat = array.reshape(len(array), -1).astype(np.float64) + 0.0  # no negative zeros
    if flat.shape[1] == 1:
        return flat[:, 0]
    return np.ascontiguousarray(flat).view(np.dtype((np.void, 8 * flat.shape[1])))[:, 0]


def repeated(raw: Any, count: int) -> npt.NDArray[Any]:
    """Repeat an input `count` times."""
    return np.broadcast_to(np.asarray(raw), (count, *np.shape(raw)))


def log_chances(channel: Channel, released: Any, raw: Any) -> Reals:
    """Compute the log-probability of each released row given one input."""
    logs = np.asarray(channel.log_prob(released, repeated(raw, len(released))), dtype=np.float64)
    if len(logs) != len(released):
        errors.refuse("audit", "log_prob", "one number or row for each output", logs.shape)
    return np.asarray(logs.reshape(len(logs), -1).sum(axis=1))


# --- pairs ------------------------------------------------------------------------------------


def _lagged(at: str, stated: Stated, seen: Integers) -> list[Check]:
    """Pair consecutive draws, and draws of the second half at a distance found on the first.

    The distance is that at which draws of the first half are most alike.
    """
    checks = []
    for start in (0, 1):
        checks += _apart(f"consecutive draws {at}", stated, seen[start:], 1)
    half = seen.size // 2
    distance = _likeliest_distance(stated.groups(stated.orders[0], _COARSE)[seen[:half]])
    return checks + _apart(f"draws some way apart {at}", stated, seen[half:], distance)


def _apart(name: str, stated: Stated, seen: Integers, distance: int) -> list[Check]:
    """Count disjoint pairs of draws at this distance."""
    starts = np.arange(seen.size - distance)
    starts = starts[starts // distance % 2 == 0]
    return independent(name, (stated, seen[starts]), (stated, seen[starts + distance]))


def _likeliest_distance(numbers: Integers) -> int:
    """Find the distance, from 2 to 3/4 of the length, at which numbers are most alike."""
    size = numbers.size
    wave = np.fft.rfft(numbers - numbers.mean(), 2 * size)
    alike = np.fft.irfft(np.abs(wave) ** 2)[:size]
    distances = np.arange(2, max(3 * size // 4, 3))
    # In standard deviations, because a few pairs can agree by luck.
    return int(distances[np.argmax(np.abs(alike[distances]) / np.sqrt(size - distances))])


def _entries(
    channel: Channel, raw: Any, stated: Stated, at: str, count: int, rng: Randomness | None
) -> list[Check]:
    """Check the entries of released vectors, each by itself and in pairs."""
    shape = (count, _ENTRIES, *np.shape(raw))
    drawn = np.asarray(channel.release(np.broadcast_to(np.asarray(raw), shape), rng))
    seen = [stated.places(drawn[:, entry]) for entry in range(_ENTRIES)]
    checks = [check for one in seen for check in frequencies(f"entries {at}", stated, one)]
    for i in range(_ENTRIES):
        for j in range(i):
            checks += independent(f"two entries {at}", (stated, seen[i]), (stated, seen[j]))
    return checks


def _one_at_a_time(
    channel: Channel, raw: Any, stated: Stated, at: str, rng: Randomness | None
) -> list[Check]:
    """Check calls with one input each, which may take another path in the code."""
    drawn = np.concatenate([channel.release(repeated(raw, 1), rng) for _ in range(_SINGLES)])
    seen = stated.places(drawn)
    name = f"single calls {at}"
    return [*frequencies(name, stated, seen), *_apart(name, stated, seen, 1)]


# --- cells ------------------------------------------------------------------------------------


def _parts(chances: Reals, count: int) -> Integers:
    """Split consecutive outputs into parts of about equal mass."""
    ends = np.cumsum(chances)
    return np.clip((ends - chances / 2) * count, 0, count - 1).astype(np.int64)


def _cells(chances: Reals, trials: int) -> tuple[Integers, Integers]:
    """Return starts and ends of the distinct cells of all levels: 2 parts, 4 parts, 8 parts, …

    At the finest level, a few draws are still expected in each cell.
    """
    cells = []
    deepest = min(int(np.log2(max(trials / 16, 2))), _DEEPEST)
    for level in range(1, deepest + 1):
        starts = np.flatnonzero(np.diff(_parts(chances, 2**level), prepend=-1))
        cells.append(np.stack([starts, np.append(starts[1:], chances.size)], axis=1))
    starts, ends = np.unique(np.concatenate(cells), axis=0).T
    return starts, ends


def _tails(check: Check) -> Reals:
    """Compute the two-sided binomial tail of each count: twice the smaller of both sides."""
    counts, chances, trials = check.counts, check.chances, check.trials
    below = betainc(np.maximum(trials - counts, 1), counts + 1, 1 - chances)
    above = betainc(np.maximum(counts, 1), trials - counts + 1, chances)
    below, above = np.where(counts >= trials, 1.0, below), np.where(counts == 0, 1.0, above)
    return np.asarray(np.minimum(2 * np.minimum(below, above), 1.0))
