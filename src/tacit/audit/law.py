r"""Whether draws follow the law that a mechanism states.

A proof is about the law in `log_prob`; people get draws of `release`. Where the two differ, nothing
that was proved holds of the draws, whatever ε they have: a mismatch refutes what is stated.

Outputs are listed, and cells of them counted: intervals of about equal mass, from halves down to a
few draws, in the outputs' own order, in that of each entry, and from the least to the most likely.
Draws must also be independent: pairs of consecutive ones, of those that seem most alike at some
distance, of two calls, of two inputs, of entries of one vector are counted in a coarser table.
Every count is binomial with a chance that the law gives, so that its tail is exact:

.. math:: p = \min\left(1,\; 2N \min_{\text{cells}} \min\{P(B \le b), P(B \ge b)\}\right),
          \qquad B \sim \mathrm{Bin}(n, P(\text{cell}))

for N cells in all (Bonferroni). A sound mechanism has p ≤ α with a chance of at most α.

Notes
-----
Which cells are counted never depends on the draws that are counted in them. A fault that shows in
fewer than about one draw of ten thousand, or only at inputs that were not tried, stays unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from tacit import errors
from tacit.mechanisms.base import Channel
from tacit.randomness import Randomness

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Outputs = Callable[[Any], Any]

_ROUNDING = 1e-12
"""What chances that sum to one may miss."""
_DEEPEST = 14
_COLUMNS = 8
_COARSE = 8
_ENTRIES = 4
_SINGLES = 500
_SEVERAL = 4


class Check(NamedTuple):
    """Counts of cells in so many trials, and the chance of each."""

    name: str
    counts: Integers
    chances: Reals
    trials: int


@dataclass(frozen=True)
class Agreement:
    """The smallest tail of all counts, times their number; and where it was found."""

    p_value: float
    finding: str


@dataclass(frozen=True)
class Stated:
    """The law of listed outputs at one input; the last chance is that of all others together."""

    outputs: npt.NDArray[Any]
    chances: Reals

    @classmethod
    def of(cls, channel: Channel, outputs: Any, raw: Any) -> Stated:
        """What the channel's own law says of these outputs."""
        listed = np.asarray(outputs)
        chances = np.exp(log_chances(channel, listed, raw))
        rest = max(1 - float(chances.sum()), 0.0) + _ROUNDING
        return cls(listed, np.append(chances, rest))

    def places(self, draws: Any) -> Integers:
        """Where each draw stands in the list; behind its end, where it does not."""
        return places(self.outputs, draws)

    @cached_property
    def orders(self) -> list[Integers]:
        """By value (of the first entry, then the next, …), by other entries, by chance."""
        size = len(self.outputs)
        columns = self.outputs.reshape(size, -1)[:, :_COLUMNS].T
        by_value = np.lexsort(columns[::-1])
        found = [by_value, *(by_value[np.argsort(c[by_value], kind="stable")] for c in columns[1:])]
        by_chance = np.argsort(self.chances, kind="stable")
        return [*(np.append(order, size) for order in found), by_chance]

    def groups(self, order: Integers, count: int) -> Integers:
        """A number below `count` for each output, all of about equal mass."""
        found = np.empty(len(order), np.int64)
        found[order] = _parts(self.chances[order], count)
        return found


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
        Inputs; the first two get `samples` draws, each other one an eighth.
    outputs : callable
        `outputs(raw)` lists distinct outputs that hold most of the mass; others count as one.
    entrywise : bool
        Whether inputs of any shape are taken, and each entry has a draw of its own.
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
    """The smallest of all tails, times their number."""
    tails = [_tails(check) for check in checks]
    best = min(range(len(checks)), key=lambda index: tails[index].min(initial=1.0))
    number = sum(tail.size for tail in tails)
    p_value = min(float(tails[best].min(initial=1.0)) * number, 1.0)
    return Agreement(p_value, checks[best].name)


def frequencies(name: str, stated: Stated, seen: Integers) -> list[Check]:
    """How often each cell of outputs came, in every order; and what should never come."""
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
    """Pairs of draws: those in one cell of each, in two groupings; and those that are equal."""
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
    """The index of each draw among these outputs, or their number where it is none of them."""
    listed, drawn = keys(outputs), keys(draws)
    order = np.argsort(listed, kind="stable")
    found = order[np.minimum(np.searchsorted(listed[order], drawn), len(listed) - 1)]
    return np.where(listed[found] == drawn, found, len(listed))


def keys(rows: Any) -> npt.NDArray[Any]:
    """One thing to compare for each row: its number where it has one, else its bytes."""
    array = np.asarray(rows)
    if array.dtype.kind not in "biuf":
        array = np.array([repr(row) for row in array])
        return array
    flat = array.reshape(len(array), -1).astype(np.float64) + 0.0  # no negative zeros
    if flat.shape[1] == 1:
        return flat[:, 0]
    return np.ascontiguousarray(flat).view(np.dtype((np.void, 8 * flat.shape[1])))[:, 0]


def repeated(raw: Any, count: int) -> npt.NDArray[Any]:
    """The same input so many times."""
    return np.broadcast_to(np.asarray(raw), (count, *np.shape(raw)))


def log_chances(channel: Channel, released: Any, raw: Any) -> Reals:
    """One logarithm for each released row, all of them from one input."""
    found = np.asarray(channel.log_prob(released, repeated(raw, len(released))), dtype=np.float64)
    if len(found) != len(released):
        errors.refuse("audit", "log_prob", "one number or row for each output", found.shape)
    return np.asarray(found.reshape(len(found), -1).sum(axis=1))


# --- pairs ------------------------------------------------------------------------------------


def _lagged(at: str, stated: Stated, seen: Integers) -> list[Check]:
    """Neighbours; and at the distance at which the first half seems most alike, in the second."""
    checks = []
    for start in (0, 1):
        checks += _apart(f"consecutive draws {at}", stated, seen[start:], 1)
    half = seen.size // 2
    distance = _likeliest_distance(stated.groups(stated.orders[0], _COARSE)[seen[:half]])
    return checks + _apart(f"draws some way apart {at}", stated, seen[half:], distance)


def _apart(name: str, stated: Stated, seen: Integers, distance: int) -> list[Check]:
    """Disjoint pairs of draws at this distance."""
    starts = np.arange(seen.size - distance)
    starts = starts[starts // distance % 2 == 0]
    return independent(name, (stated, seen[starts]), (stated, seen[starts + distance]))


def _likeliest_distance(numbers: Integers) -> int:
    """Of at least two, at most three quarters: where numbers agree most."""
    size = numbers.size
    wave = np.fft.rfft(numbers - numbers.mean(), 2 * size)
    alike = np.fft.irfft(np.abs(wave) ** 2)[:size]
    distances = np.arange(2, max(3 * size // 4, 3))
    # By standard deviations: few pairs agree by luck.
    return int(distances[np.argmax(np.abs(alike[distances]) / np.sqrt(size - distances))])


def _entries(
    channel: Channel, raw: Any, stated: Stated, at: str, count: int, rng: Randomness | None
) -> list[Check]:
    """Entries of vectors: each by itself, and in pairs."""
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
    """Single calls, which may take another path."""
    drawn = np.concatenate([channel.release(repeated(raw, 1), rng) for _ in range(_SINGLES)])
    seen = stated.places(drawn)
    name = f"single calls {at}"
    return [*frequencies(name, stated, seen), *_apart(name, stated, seen, 1)]


# --- cells ------------------------------------------------------------------------------------


def _parts(chances: Reals, count: int) -> Integers:
    """Consecutive outputs in parts of about equal mass, by the middle of each one's chance."""
    ends = np.cumsum(chances)
    return np.clip((ends - chances / 2) * count, 0, count - 1).astype(np.int64)


def _cells(chances: Reals, trials: int) -> tuple[Integers, Integers]:
    """Starts and ends of distinct cells, in two parts, in four, … while some draws fall in each."""
    found = []
    deepest = min(int(np.log2(max(trials / 16, 2))), _DEEPEST)
    for level in range(1, deepest + 1):
        starts = np.flatnonzero(np.diff(_parts(chances, 2**level), prepend=-1))
        found.append(np.stack([starts, np.append(starts[1:], chances.size)], axis=1))
    starts, ends = np.unique(np.concatenate(found), axis=0).T
    return starts, ends


def _tails(check: Check) -> Reals:
    """Two-sided binomial tails, each side doubled."""
    counts, chances, trials = check.counts, check.chances, check.trials
    below = betainc(np.maximum(trials - counts, 1), counts + 1, 1 - chances)
    above = betainc(np.maximum(counts, 1), trials - counts + 1, chances)
    below, above = np.where(counts >= trials, 1.0, below), np.where(counts == 0, 1.0, above)
    return np.asarray(np.minimum(2 * np.minimum(below, above), 1.0))
