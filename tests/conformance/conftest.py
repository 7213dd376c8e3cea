"""One case a mechanism (or more): inputs, outputs, draws, and what its constructor must refuse.

`case` runs a test over every case; `contract` over every mechanism's constructor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tacit.privacy import mechanisms
from tacit.privacy.mechanisms.integer_table import from_log_weights

DRAWS = 60_000
DELTA = 1e-3
DIGITS = 123457
"""The number that stands for somebody's data: it may not show up in an error."""


def broadcast(raw: Any, count: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(raw), (count, *np.shape(raw)))


def plain_law(mechanism: Any, outputs: Any, raw: Any) -> np.ndarray:
    """Log-probability of every output given one raw value; entries of a vector are summed."""
    found = np.asarray(mechanism.log_prob(np.asarray(outputs), broadcast(raw, len(outputs))))
    return found.reshape(len(outputs), -1).sum(axis=1)


def plain_draws(mechanism: Any, raw: Any, count: int, rng: Any) -> np.ndarray:
    return np.asarray(mechanism.release(broadcast(raw, count), rng))


@dataclass(frozen=True)
class Case:
    """One configuration of a mechanism."""

    name: str
    kind: type
    make: Callable[[float], Any]
    """The mechanism at this ε."""
    pairs: list[tuple[Any, Any]] | Callable[[Any], list[tuple[Any, Any]]]
    """Adjacent inputs, or what gives them for a mechanism."""
    outputs: Callable[[Any], Any]
    """Every output of a mechanism, or so many that the rest has no weight."""
    raw: Any
    """What the draws are of."""
    epsilons: tuple[float, ...] = (0.1, 1.0, 3.0)
    tight: float | None = None
    """How near the worst pair comes to ε (or to δ, as a share), if the theorem is tight."""
    law: Callable[[Any, Any, Any], np.ndarray] = plain_law
    draws: Callable[[Any, Any, int, Any], np.ndarray] = plain_draws
    sampled: Callable[[float], Any] | None = None
    """The mechanism to draw from, where it is not `make`'s."""
    count: int = DRAWS
    seen: Callable[[Any], Any] | None = None
    """Outputs for the test of draws, where they are not `outputs`'."""

    def adjacent(self, mechanism: Any) -> list[tuple[Any, Any]]:
        return self.pairs(mechanism) if callable(self.pairs) else self.pairs

    def drawn(self, epsilon: float) -> Any:
        return (self.sampled or self.make)(epsilon)


@dataclass(frozen=True)
class Contract:
    """Arguments that are fine, and those that are not."""

    kind: type
    good: dict[str, Any]
    raw: Any
    bad: dict[str, list[Any]]
    whole: tuple[str, ...] = ()
    """Parameters that are integers: a whole float is refused, or as good as the integer."""
    huge: tuple[str, ...] = ()
    """Parameters for which 2^60 voids the proof."""
    bad_data: list[Any] = field(default_factory=list)
    far: list[Any] = field(default_factory=list)
    """Whole numbers that are held to 2^53, and not refused."""
    bad_shape: list[Any] = field(default_factory=list)
    """Fine numbers in a shape that a release refuses; a law may broadcast it."""
    release: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `release`."""

    def __post_init__(self) -> None:
        if (
            "adjacency" in self.kind.__dataclass_fields__
        ):  # a sensitivity is that of some neighbours
            self.good.setdefault("adjacency", "replace-one")


def reach(scale: float, weight: float = 26.0) -> int:
    return math.ceil(weight * scale) + 2


# --- outputs -------------------------------------------------------------------------------------


def around(low: int, high: int, scale: Callable[[Any], float], weight: float = 26.0) -> Any:
    """Integers from so many scales below `low` to as many above `high`."""

    def outputs(mechanism: Any) -> np.ndarray:
        far = reach(scale(mechanism), weight)
        return np.arange(low - far, high + far + 1)

    return outputs


def laplace_scale(mechanism: Any) -> float:
    return float(mechanism.event.scale)


def gaussian_sigma(mechanism: Any) -> float:
    event = mechanism.event
    return math.sqrt(event.variance) if hasattr(event, "variance") else float(event.sigma)


def column(outputs: Callable[[Any], Any], step: float = 1.0) -> Callable[[Any], Any]:
    """The same outputs as vectors of one entry, in units of the grid."""
    return lambda mechanism: np.asarray(outputs(mechanism))[:, None] * step


def square(weight: float) -> Callable[[Any], Any]:
    """Vectors of two entries on the grid of a local mechanism."""

    def outputs(mechanism: Any) -> np.ndarray:
        far = mechanism.ball.radius_steps + reach(laplace_scale(mechanism), weight)
        axis = np.arange(-far, far + 1) * mechanism.ball.step
        return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)

    return outputs


def runs(questions: int, positives: int, values: Callable[[Any], Any] | None = None) -> Any:
    """Everything a sparse vector can say; if numeric, with every value near the answers."""

    def outputs(mechanism: Any) -> np.ndarray:
        said = []
        for pattern in itertools.product((0, 1), repeat=questions):
            asked, above = [], 0
            for outcome in pattern:
                asked.append(outcome)
                above += outcome
                if above == positives:
                    break
            said.append(tuple(asked) + (-1,) * (questions - len(asked)))
        said = sorted(set(said))
        if values is None:
            return np.array(said)
        grid = values(mechanism)
        rows = []
        for run in said:
            at = [i for i, outcome in enumerate(run) if outcome == 1]
            for chosen in itertools.product(grid, repeat=len(at)):
                row = [[outcome, 0] for outcome in run]
                for i, value in zip(at, chosen, strict=True):
                    row[i][1] = int(value)
                rows.append(row)
        return np.array(rows)

    return outputs


def near_answers(low: int, high: int, weight: float) -> Callable[[Any], Any]:
    return lambda mechanism: range(
        low - reach(float(mechanism.scales[2]), weight),
        high + reach(float(mechanism.scales[2]), weight) + 1,
    )


# --- smooth Laplace takes its bound beside the data ----------------------------------------------


def smooth_law(mechanism: Any, outputs: Any, raw: Any) -> np.ndarray:
    value, bound = raw
    return np.asarray(mechanism.log_prob(outputs, np.full(len(outputs), value), bound=bound))


def smooth_draws(mechanism: Any, raw: Any, count: int, rng: Any) -> np.ndarray:
    value, bound = raw
    return np.array([int(mechanism.release(value, rng, bound=bound)) for _ in range(count)])


def smooth_pairs(mechanism: Any) -> list[tuple[Any, Any]]:
    """Bounds that change as fast as they may, values that differ as much as they may."""
    change = math.exp(mechanism.beta)
    found = []
    for bound in (1.0, 5.0):
        for other in (bound, bound * change, bound / change):
            shift = int(min(bound, other))
            found.append(((0, bound), (shift, other)))
    return found


# --- Laplace fixes how many entries are released together ----------------------------------------


def answer_law(mechanism: Any, outputs: Any, raw: Any) -> np.ndarray:
    """The law of one entry: of its integers, after a look at what `log_prob` says of them."""
    steps = np.asarray(outputs)[:, 0] / mechanism.step
    at = int(np.rint(raw[0] / mechanism.step))
    if mechanism.dimension == 1:
        at = int(mechanism._steps(raw)[0])
        for index in (0, len(outputs) // 3, len(outputs) // 2):
            stated = mechanism.log_prob(outputs[index], raw)[0]
            assert stated == mechanism._noise.log_prob(steps[index], at)
    return mechanism._noise.log_prob(steps, np.full(len(steps), at))


def answer_draws(mechanism: Any, raw: Any, count: int, rng: Any) -> np.ndarray:
    if mechanism.dimension == 1:
        return np.array([mechanism.release(raw, rng) for _ in range(count)])
    return mechanism.release(np.zeros(DRAWS), rng)[:count, None]


# --- tables and lattices -------------------------------------------------------------------------


def table_of_counts(epsilon: float) -> Any:
    """Seven inputs, seven outputs, geometric weights that are normalised: each side pays half."""
    x = np.arange(7)
    logs = -(epsilon / 2) * np.abs(x[:, None] - x)
    return from_log_weights(
        logs, [(i, i + 1) for i in range(6)], epsilon=epsilon, adjacency="replace-one"
    )


def lattice(weight: float) -> Callable[[Any], Any]:
    """Vectors of three entries that sum to the total, near the counts."""

    def outputs(mechanism: Any) -> np.ndarray:
        far = mechanism.total + reach(laplace_scale(mechanism) / 2, weight)
        axis = np.arange(-far, far + 1)
        free = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        return np.column_stack([free, mechanism.total - free.sum(axis=1)])

    return outputs


# --- cases ---------------------------------------------------------------------------------------

SCORES = [0.0, 2.0, 4.0, 7.0]


def sparse(name: str, *, epsilons: tuple[float, ...], positives: int, **options: Any) -> Case:
    questions, low, high = 3, -1, 3
    values = None
    seen = None
    if options.get("numeric"):
        questions = 2 if positives == 2 else 3
        values = near_answers(low, high, 22.0)
        seen = runs(questions, positives, near_answers(low, high, 2.5))
    pairs = [([0, 0, 0], [1, 1, 1]), ([2, -1, 1], [3, 0, 1])]
    if not options.get("monotonic"):
        pairs += [([0, 0, 1], [1, 1, 0]), ([3, -1, 0], [2, 0, 1])]
    return Case(
        name=name,
        kind=mechanisms.SparseVector,
        make=lambda epsilon: mechanisms.SparseVector(
            epsilon=epsilon, threshold=1, positives=positives, adjacency="replace-one", **options
        ),
        pairs=[(a[:questions], b[:questions]) for a, b in pairs[-2:]],
        outputs=runs(questions, positives, values),
        seen=seen,
        raw=[-1, 3, 1][:questions],
        epsilons=epsilons,
    )


CASES = [
    Case(
        name="DiscreteLaplace",
        kind=mechanisms.DiscreteLaplace,
        make=lambda epsilon: mechanisms.DiscreteLaplace(
            epsilon=epsilon, sensitivity=3, adjacency="replace-one"
        ),
        pairs=[(0, 3), (5, 2), (0, 1), (7, 9)],
        outputs=around(0, 9, laplace_scale),
        raw=5,
        tight=1e-9,
    ),
    Case(
        name="Geometric",
        kind=mechanisms.Geometric,
        make=lambda epsilon: mechanisms.Geometric(
            epsilon=epsilon, lower=-2, upper=12, sensitivity=2, adjacency="replace-one"
        ),
        pairs=[(x, y) for x in range(-2, 13) for y in range(-2, 13) if 0 < abs(x - y) <= 2],
        outputs=lambda mechanism: np.arange(-2, 13),
        raw=3,
        tight=1e-9,
    ),
    Case(
        name="Laplace",
        kind=mechanisms.Laplace,
        make=lambda epsilon: mechanisms.Laplace(
            epsilon=epsilon, sensitivity=2.5, grid=0.25, adjacency="replace-one"
        ),
        # Ten steps apart, and as far as rounding can drive them: 10.5 steps become 11 or 10.
        pairs=[([0.0], [2.5]), ([0.125], [2.6]), ([0.37], [-2.13]), ([0.1], [2.59])],
        outputs=column(around(-20, 20, laplace_scale), 0.25),
        law=answer_law,
        # All draws of one call are entries of one answer.
        sampled=lambda epsilon: mechanisms.Laplace(
            epsilon=epsilon, sensitivity=1.0, grid=1.0, dimension=DRAWS, adjacency="replace-one"
        ),
        draws=answer_draws,
        seen=column(around(0, 0, laplace_scale, 14.0)),
        raw=[0.0],
    ),
    Case(
        name="LocalLaplace",
        kind=mechanisms.LocalLaplace,
        make=lambda epsilon: mechanisms.LocalLaplace(epsilon=epsilon, radius=1.0, grid=0.125),
        pairs=[([1.0], [-1.0]), ([-9.0], [9.0]), ([0.3], [-0.7]), ([0.0], [1.0])],
        outputs=column(around(-8, 8, laplace_scale), 0.125),
        raw=[9.0],  # outside the ball: clipped first
        tight=1e-9,
    ),
    Case(
        name="LocalLaplace of two entries",
        kind=mechanisms.LocalLaplace,
        make=lambda epsilon: mechanisms.LocalLaplace(epsilon=epsilon, radius=1.0, grid=0.5),
        pairs=[
            ([1.0, 0.0], [-1.0, 0.0]),
            ([0.0, 8.0], [0.0, -8.0]),
            ([0.5, 0.5], [-0.5, -0.5]),
            ([7.0, -3.0], [-2.0, 9.0]),
        ],
        outputs=square(26.0),
        seen=square(10.0),
        raw=[7.0, -3.0],  # outside the ball: clipped first
        epsilons=(1.0, 3.0),
        tight=1e-9,
    ),
    Case(
        name="DiscreteGaussian of one entry",
        kind=mechanisms.DiscreteGaussian,
        make=lambda epsilon: mechanisms.DiscreteGaussian(
            epsilon=epsilon, delta=DELTA, sensitivity=2, dimension=1, adjacency="replace-one"
        ),
        pairs=[([0], [2]), ([5], [3]), ([0], [1])],
        outputs=column(around(0, 5, gaussian_sigma, 12.0)),
        raw=[4],
        tight=1e-6,
    ),
    Case(
        name="DiscreteGaussian",
        kind=mechanisms.DiscreteGaussian,
        make=lambda epsilon: mechanisms.DiscreteGaussian(
            epsilon=epsilon, delta=DELTA, sensitivity=2, adjacency="replace-one"
        ),
        pairs=[(0, 2), (5, 3), (0, 1)],
        outputs=around(0, 5, gaussian_sigma, 12.0),
        raw=4,
    ),
    Case(
        name="Gaussian",
        kind=mechanisms.Gaussian,
        make=lambda epsilon: mechanisms.Gaussian(
            epsilon=epsilon, delta=DELTA, sensitivity=40, adjacency="replace-one"
        ),
        pairs=[(0, 40), (45, 5), (0, 17)],
        outputs=around(0, 45, gaussian_sigma, 12.0),
        raw=7,
        tight=1e-3,
    ),
    Case(
        name="LocalGaussian",
        kind=mechanisms.LocalGaussian,
        make=lambda epsilon: mechanisms.LocalGaussian(
            epsilon=epsilon, delta=DELTA, radius=1.0, grid=0.015625
        ),
        pairs=[([1.0], [-1.0]), ([-40.0], [40.0]), ([0.3], [-0.6])],
        outputs=column(around(-64, 64, gaussian_sigma, 12.0), 0.015625),
        raw=[-40.0],  # outside the ball: clipped first
        tight=1e-3,
    ),
    *(
        Case(
            name=f"RandomizedResponse of {categories}",
            kind=mechanisms.RandomizedResponse,
            make=lambda epsilon, categories=categories: mechanisms.RandomizedResponse(
                categories=categories, epsilon=epsilon
            ),
            pairs=list(itertools.permutations(range(categories), 2)),
            outputs=lambda mechanism, categories=categories: np.arange(categories),
            raw=1,
            tight=1e-9,
        )
        for categories in (2, 5)
    ),
    Case(
        name="LocalMean",
        kind=mechanisms.LocalMean,
        make=lambda epsilon: mechanisms.LocalMean(lower=-2.0, upper=6.0, epsilon=epsilon),
        pairs=list(itertools.permutations([-2.0, -1.9, 0.3, 2.0, 5.01, 6.0, 40.0], 2)),
        outputs=lambda mechanism: np.array(mechanism.outputs()),
        raw=5.3,  # between two points of the grid
        tight=1e-9,
    ),
    *(
        Case(
            name=f"GroupedMean of {groups}",
            kind=mechanisms.GroupedMean,
            make=lambda epsilon, groups=groups: mechanisms.GroupedMean(
                groups=groups, epsilon=epsilon
            ),
            pairs=list(
                itertools.permutations([0, 1, 40, 64, 65 * groups - 65, 65 * groups - 20], 2)
            ),
            outputs=lambda mechanism: np.array(mechanism.outputs()),
            raw=65 * groups - 30,
            tight=1e-9,
        )
        for groups in (2, 3)
    ),
    *(
        Case(
            name=f"LocalVector, {told} of {entries} told, {least} agree",
            kind=mechanisms.LocalVector,
            make=lambda epsilon, cap=(entries, told, least): mechanisms.LocalVector(
                dimension=cap[0],
                told=cap[1],
                agreeing=cap[2],
                epsilon=epsilon,
                lower=-2.0,
                upper=[6.0] * cap[0],
            ),
            pairs=[
                *itertools.permutations(itertools.product((-2.0, 6.0), repeat=entries), 2),
                ([1.1] * entries, [40.0] * entries),
                ([-1.9] * entries, [2.0] * entries),
            ],
            outputs=lambda mechanism: mechanism.outputs(),
            raw=[5.3, -2.0, 0.1, 6.0][:entries],
            tight=1e-9,
            sampled=lambda epsilon, cap=(entries, told, least): mechanisms.LocalVector(
                dimension=cap[0],
                told=cap[1],
                agreeing=cap[2],
                epsilon=3 * epsilon,
                lower=-2.0,
                upper=6.0,
            ),
        )
        for entries, told, least in ((1, 1, 1), (2, 2, 2), (3, 2, 2), (4, 3, 2))
    ),
    *(
        Case(
            name=f"MemoizedResponse of {cells}, {reports} times",
            kind=mechanisms.MemoizedResponse,
            make=lambda epsilon, cells=cells, reports=reports: mechanisms.MemoizedResponse(
                categories=cells, epsilon=epsilon, permanent_epsilon=1.5, reports=reports
            ),
            pairs=list(itertools.permutations(itertools.product(range(cells), repeat=reports), 2)),
            outputs=lambda mechanism: mechanism.outputs(),
            raw=[1] * reports,
            sampled=lambda epsilon, cells=cells, reports=reports: mechanisms.MemoizedResponse(
                categories=cells, epsilon=4 * epsilon, permanent_epsilon=3.0, reports=reports
            ),
        )
        for cells, reports in ((2, 3), (3, 2))
    ),
    *(
        Case(
            name=f"SubsetSelection of {size} in 6",
            kind=mechanisms.SubsetSelection,
            make=lambda epsilon, size=size: mechanisms.SubsetSelection(
                categories=6, size=size, epsilon=epsilon
            ),
            pairs=list(itertools.permutations(range(6), 2)),
            outputs=lambda mechanism, size=size: np.array(
                list(itertools.combinations(range(6), size))
            ),
            raw=4,
            tight=1e-9,
        )
        for size in (1, 2, 4)
    ),
    *(
        Case(
            name=f"ProjectiveGeometryResponse of order {order}",
            kind=mechanisms.ProjectiveGeometryResponse,
            make=lambda epsilon, order=order: mechanisms.ProjectiveGeometryResponse(
                categories=12, order=order, epsilon=epsilon
            ),
            pairs=list(itertools.permutations(range(12), 2)),
            outputs=lambda mechanism: np.array(mechanism.outputs()),
            raw=7,
            tight=1e-9,
        )
        for order in (2, 3, 11)  # of 15, 13 and 12 points, in 4, 3 and 2 dimensions
    ),
    *(
        Case(
            name=kind.__name__,
            kind=kind,
            make=lambda epsilon, kind=kind: kind(
                epsilon=epsilon, sensitivity=1.0, adjacency="replace-one"
            ),
            pairs=[
                (SCORES, [1.0, 1.0, 5.0, 6.0]),
                (SCORES, [s + 1 for s in SCORES]),
                ([40.0, 0.0, 0.0, 0.0], [39.0, 1.0, 1.0, 1.0]),
                ([40.0, 0.0, 0.0, 0.0], [39.0, 1.0, -1.0, -1.0]),
                ([0.0, 0.0, 0.0, 0.0], [1.0, -1.0, -1.0, -1.0]),
            ],
            outputs=lambda mechanism: np.arange(4),
            raw=SCORES,
            count=DRAWS if kind is mechanisms.Exponential else DRAWS // 2,  # one at a time
        )
        for kind in (mechanisms.Exponential, mechanisms.PermuteAndFlip)
    ),
    sparse("SparseVector", positives=1, epsilons=(0.3, 1.0, 3.0)),
    sparse("SparseVector twice", positives=2, epsilons=(0.3, 1.0, 3.0)),
    sparse("SparseVector monotonic", positives=1, monotonic=True, epsilons=(0.3, 1.0, 3.0)),
    sparse("SparseVector monotonic twice", positives=2, monotonic=True, epsilons=(1.0, 3.0)),
    sparse("SparseVector numeric", positives=1, numeric=True, epsilons=(3.0,)),
    sparse("SparseVector numeric twice", positives=2, numeric=True, epsilons=(16.0,)),
    sparse(
        "SparseVector numeric monotonic",
        positives=1,
        numeric=True,
        monotonic=True,
        epsilons=(3.0,),
    ),
    sparse(
        "SparseVector numeric monotonic twice",
        positives=2,
        numeric=True,
        monotonic=True,
        epsilons=(16.0,),
    ),
    Case(
        name="SmoothLaplace",
        kind=mechanisms.SmoothLaplace,
        make=lambda epsilon: mechanisms.SmoothLaplace(
            epsilon=epsilon, delta=DELTA, adjacency="replace-one"
        ),
        pairs=smooth_pairs,
        outputs=around(0, 7, lambda mechanism: 6 / float(mechanism.event.alpha)),
        law=smooth_law,
        draws=smooth_draws,
        count=12_000,  # one a call
        raw=(7, 2.0),
    ),
    Case(
        name="IntegerTable",
        kind=mechanisms.IntegerTable,
        make=table_of_counts,
        pairs=[(x, y) for x in range(7) for y in range(7) if abs(x - y) == 1],
        outputs=lambda mechanism: np.arange(7),
        raw=3,
    ),
    Case(
        name="LatticeGeometric",
        kind=mechanisms.LatticeGeometric,
        make=lambda epsilon: mechanisms.LatticeGeometric(epsilon=epsilon, categories=3, total=6),
        pairs=[([2, 1, 3], [1, 2, 3]), ([6, 0, 0], [5, 0, 1]), ([0, 1, 5], [0, 2, 4])],
        outputs=lattice(30.0),
        seen=lattice(16.0),
        raw=[2, 1, 3],
        epsilons=(0.5, 1.0, 3.0),
        tight=1e-9,
    ),
]

# --- contracts -----------------------------------------------------------------------------------

NOT_NUMBERS = [math.nan, math.inf, -math.inf, None, "x", 1j, [1], {}]
NOT_POSITIVE = [*NOT_NUMBERS, 0, -1, -0.5]
NOT_EPSILON = [*NOT_POSITIVE, 701, 2**60]
NOT_DELTA = [*NOT_NUMBERS, 0, -0.1, 1, 1.5]
NOT_COUNT = [*NOT_POSITIVE, 1.5, True]
NOT_GRID = [math.nan, math.inf, -math.inf, "x", 1j, 0, 0.0, False, -1, 0.3]
NOT_GRID += [2.0**41, 2.0**-41]
WORDS = {"adjacency": ["x", None, 3], "unit": ["x", None, 3]}
SCOPE = {"unit": WORDS["unit"]}

BAD_ANYWHERE = [
    [math.nan, DIGITS],
    [math.inf, DIGITS],
    [-math.inf, DIGITS],
    [],
    np.zeros((0, 3)),
    [[DIGITS, 1], [2]],
    [[1], [2, DIGITS]],
    str(DIGITS),
    [str(DIGITS)],
    [str(DIGITS), "x"],
    np.array([DIGITS, 1], dtype=object),
    [DIGITS, None],
    None,
    {"a": DIGITS},
    [DIGITS * 1j],
    np.array(["2020-01-01"], dtype="datetime64[D]"),
]
FAR = [DIGITS**20, -(DIGITS**20), 2**53 + 1, 2**64 - DIGITS, -(2**60) - DIGITS]
"""Whole numbers beyond 2^53: held there, as a refusal would tell neighbours apart for certain."""
BAD_INTEGERS = [
    *BAD_ANYWHERE,
    DIGITS + 0.5,
    [DIGITS + 0.25, 1.0],
    np.array([DIGITS**20], dtype=object),
]
BAD_CODES = [*BAD_INTEGERS, *FAR, *([one, 1] for one in FAR), [[DIGITS**20, 1]]]
BAD_CODES += [np.array([2**64 - DIGITS], dtype=np.uint64)]

CONTRACTS = [
    Contract(
        mechanisms.DiscreteLaplace,
        {"epsilon": 1.0, "sensitivity": 2},
        [1, 2],
        {"epsilon": NOT_EPSILON, "sensitivity": NOT_COUNT, **WORDS},
        whole=("sensitivity",),
        huge=("sensitivity",),
        bad_data=BAD_INTEGERS,
        far=FAR,
    ),
    Contract(
        mechanisms.Geometric,
        {"epsilon": 1.0, "lower": 0, "upper": 9, "sensitivity": 1},
        [1, 2],
        {
            "epsilon": NOT_EPSILON,
            "sensitivity": NOT_COUNT,
            "lower": [*NOT_NUMBERS, 0.5, -(2**60)],
            "upper": [*NOT_NUMBERS, 0.5, 0, -1],
            **WORDS,
        },
        whole=("sensitivity", "lower", "upper"),
        huge=("sensitivity", "upper"),
        bad_data=BAD_INTEGERS,
        far=FAR,
    ),
    Contract(
        mechanisms.Laplace,
        {"epsilon": 1.0, "sensitivity": 1.5, "dimension": 2, "grid": 0.25},
        [1.0, 2.0],
        {
            "epsilon": NOT_EPSILON,
            "sensitivity": NOT_POSITIVE,
            "dimension": NOT_COUNT,
            "grid": NOT_GRID,
            **WORDS,
        },
        whole=("dimension",),
        huge=("sensitivity", "dimension"),
        bad_data=BAD_ANYWHERE,
        bad_shape=[[DIGITS], [DIGITS, 1, 2], DIGITS],
    ),
    Contract(
        mechanisms.LocalLaplace,
        {"epsilon": 1.0, "radius": 1.0, "grid": 0.25},
        [[1.0, 2.0]],
        {"epsilon": NOT_EPSILON, "radius": NOT_POSITIVE, "grid": NOT_GRID, **SCOPE},
        huge=("radius",),
        bad_data=BAD_ANYWHERE,
    ),
    Contract(
        mechanisms.DiscreteGaussian,
        {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 2, "dimension": 2},
        [1, 2],
        {
            "epsilon": NOT_EPSILON,
            "delta": NOT_DELTA,
            "sensitivity": NOT_COUNT,
            "dimension": [bad for bad in NOT_COUNT if bad is not None],
            "sigma": [2.0],
            **WORDS,
        },
        whole=("sensitivity", "dimension"),
        huge=("sensitivity", "dimension"),
        bad_data=BAD_INTEGERS,
        far=FAR,
        bad_shape=[[DIGITS], [DIGITS, 1, 2], DIGITS, [[DIGITS], [1]]],
    ),
    Contract(
        mechanisms.DiscreteGaussian,
        {"sigma": 2.0, "sensitivity": 2},
        [1, 2],
        {
            "sigma": [bad for bad in NOT_POSITIVE if bad is not None] + [2.0**46],
            "epsilon": [1.0],
            "delta": [1e-5],
        },
        huge=("sigma",),
        bad_data=BAD_INTEGERS,
        far=FAR,
    ),
    Contract(
        mechanisms.Gaussian,
        {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 2.5},
        [1, 2],
        {
            "epsilon": NOT_EPSILON,
            "delta": NOT_DELTA,
            "sensitivity": NOT_POSITIVE,
            "sigma": [2.0],
            **WORDS,
        },
        huge=("sensitivity",),
        bad_data=BAD_INTEGERS,
        far=FAR,
    ),
    Contract(
        mechanisms.Gaussian,
        {"sigma": 2.0, "sensitivity": 2},
        [1, 2],
        {
            "sigma": [bad for bad in NOT_POSITIVE if bad is not None] + [2.0**46],
            "epsilon": [1.0],
            "delta": [1e-5],
        },
        huge=("sigma",),
        bad_data=BAD_INTEGERS,
        far=FAR,
    ),
    Contract(
        mechanisms.LocalGaussian,
        {"epsilon": 1.0, "delta": 1e-5, "radius": 1.0, "grid": 0.25},
        [[1.0, 2.0]],
        {
            "epsilon": NOT_EPSILON,
            "delta": NOT_DELTA,
            "radius": NOT_POSITIVE,
            "grid": NOT_GRID,
            **SCOPE,
        },
        huge=("radius",),
        bad_data=BAD_ANYWHERE,
    ),
    Contract(
        mechanisms.RandomizedResponse,
        {"epsilon": 1.0, "categories": 3},
        [1, 2],
        {"epsilon": NOT_EPSILON, "categories": [*NOT_COUNT, 1], **SCOPE},
        whole=("categories",),
        huge=("categories",),
        bad_data=[*BAD_CODES, [DIGITS], DIGITS, [-DIGITS, 0], [3, 0], [-1]],
    ),
    Contract(
        mechanisms.LocalMean,
        {"epsilon": 1.0, "lower": 0.0, "upper": 8.0},
        [1.0, 2.5],
        {
            "epsilon": NOT_EPSILON,
            "lower": [*NOT_NUMBERS, 8, 9, -(2**60)],
            "upper": [*NOT_NUMBERS, 0, -1, 2**60],
            "base": [*(bad for bad in NOT_NUMBERS if bad is not None), (1, 2)],
            **SCOPE,
        },
        huge=("lower", "upper", "base"),
        bad_data=BAD_ANYWHERE,
        far=FAR,
    ),
    Contract(
        mechanisms.GroupedMean,
        {"epsilon": 1.0, "groups": 2},
        [1, 100],
        {
            "epsilon": NOT_EPSILON,
            "groups": NOT_COUNT,
            "base": [*(bad for bad in NOT_NUMBERS if bad is not None), (1, 2)],
            **SCOPE,
        },
        whole=("groups",),
        huge=("groups", "base"),
        bad_data=[*BAD_CODES, [DIGITS], DIGITS, [-DIGITS, 0], [130, 0], [-1]],
    ),
    Contract(
        mechanisms.LocalVector,
        {
            "epsilon": 1.0,
            "dimension": 3,
            "lower": 0.0,
            "upper": (8.0, 8.0, 9.0),
            "told": 2,
            "agreeing": 1,
        },
        [[1.0, 2.5, 9.0], [0.0, 1.0, 2.0]],
        {
            "epsilon": NOT_EPSILON,
            "dimension": [*NOT_COUNT, 1025],
            "lower": [*NOT_NUMBERS, 8, 9, -(2**60), [0.0, 0.0]],
            "upper": [*NOT_NUMBERS, 0, -1, 2**60],
            "told": [*NOT_COUNT, 4],
            "agreeing": [*(bad for bad in NOT_COUNT if bad is not None), 3],
            **SCOPE,
        },
        whole=("dimension", "told", "agreeing"),
        huge=("dimension", "lower", "upper", "told", "agreeing"),
        bad_data=BAD_ANYWHERE,
        far=FAR,
        bad_shape=[DIGITS, [DIGITS], [1.0, DIGITS], [[1.0, 2.0, 3.0, DIGITS]]],
    ),
    Contract(
        mechanisms.MemoizedResponse,
        {"epsilon": 1.0, "permanent_epsilon": 1.0, "categories": 5, "reports": 2, "cells": 5},
        [1, 2],
        {
            "epsilon": NOT_EPSILON,
            "permanent_epsilon": NOT_EPSILON,
            "categories": [*NOT_COUNT, 1],
            "reports": NOT_COUNT,
            "cells": [*(bad for bad in NOT_COUNT if bad is not None), 1, 6],
            **SCOPE,
        },
        whole=("categories", "reports", "cells"),
        huge=("categories", "reports", "cells"),
        bad_data=[*BAD_CODES, [DIGITS], DIGITS, [-DIGITS, 0], [5, 0], [-1, 0]],
        bad_shape=[[1], [1, 2, 3], 1],
    ),
    Contract(
        mechanisms.SubsetSelection,
        {"epsilon": 1.0, "categories": 5, "size": 2},
        [1, 2],
        {
            "epsilon": NOT_EPSILON,
            "categories": [*NOT_COUNT, 1, 2],
            "size": [*(bad for bad in NOT_COUNT if bad is not None), 5, 6],
            **SCOPE,
        },
        whole=("categories", "size"),
        huge=("categories", "size"),
        bad_data=[*BAD_CODES, [DIGITS], DIGITS, [-DIGITS, 0], [5, 0], [-1]],
    ),
    Contract(
        mechanisms.ProjectiveGeometryResponse,
        {"epsilon": 1.0, "categories": 5, "order": 3},
        [1, 2],
        {
            "epsilon": NOT_EPSILON,
            "categories": [*NOT_COUNT, 1],
            "order": [*(bad for bad in NOT_COUNT if bad is not None), 1, 4, 9, 2**24 + 3],
            **SCOPE,
        },
        whole=("categories", "order"),
        huge=("categories", "order"),
        bad_data=[*BAD_CODES, [DIGITS], DIGITS, [-DIGITS, 0], [5, 0], [-1]],
    ),
    *(
        Contract(
            kind,
            {"epsilon": 1.0, "sensitivity": 0.5},
            [[1.0, 2.0, 3.0]],
            {"epsilon": NOT_EPSILON, "sensitivity": [*NOT_POSITIVE, 1e-320], **WORDS},
            bad_data=[*BAD_ANYWHERE, DIGITS, [DIGITS], [[DIGITS], [1]]],
            # Integers beyond 2^53 are not floats: rounding them would widen the sensitivity.
            far=FAR,
        )
        for kind in (mechanisms.Exponential, mechanisms.PermuteAndFlip)
    ),
    Contract(
        mechanisms.SparseVector,
        {"epsilon": 1.0, "threshold": 3, "sensitivity": 1, "positives": 2},
        [1, 2],
        {
            "epsilon": NOT_EPSILON,
            "threshold": [*NOT_NUMBERS, 0.5, -(2**60)],
            "sensitivity": NOT_COUNT,
            "positives": NOT_COUNT,
            "monotonic": ["no"],
            **WORDS,
        },
        whole=("sensitivity", "positives", "threshold"),
        huge=("sensitivity", "positives", "threshold"),
        bad_data=BAD_INTEGERS,
        far=FAR,
        bad_shape=[DIGITS],
    ),
    Contract(
        mechanisms.SmoothLaplace,
        {"epsilon": 1.0, "delta": 1e-5},
        3,
        {"epsilon": NOT_EPSILON, "delta": NOT_DELTA, **WORDS},
        bad_data=BAD_INTEGERS,
        far=FAR,
        bad_shape=[[DIGITS, 1]],
        release={"bound": 2.0},
    ),
    Contract(
        mechanisms.IntegerTable,
        {"weights": [[2, 1], [1, 2]], "pairs": [(0, 1)], "epsilon": 1.0, "delta": 1e-5},
        [0, 1],
        {
            "weights": [
                *NOT_NUMBERS,
                [[1, 1]],
                [[1, 1], [1]],
                [[1, -1], [1, 1]],
                [[0, 0], [1, 1]],
                [[1.0, 2], [1, 2]],
                [[True, 1], [1, 1]],
            ],
            "pairs": [*NOT_NUMBERS, [], [(0, 0)], [(0, 2)], [(-1, 0)], [(0.0, 1.0)], [(0, 1, 1)]],
            "epsilon": NOT_EPSILON,
            "delta": [bad for bad in NOT_DELTA if bad != 0],
            **WORDS,
        },
        huge=("weights", "pairs"),
        bad_data=[*BAD_CODES, [DIGITS], DIGITS, [-DIGITS, 0], [2, 0], [-1]],
    ),
    Contract(
        mechanisms.LatticeGeometric,
        {"epsilon": 1.0, "categories": 3, "total": 6},
        [2, 1, 3],
        {
            "epsilon": NOT_EPSILON,
            "categories": [*NOT_COUNT, 1, 2**11],
            "total": NOT_COUNT,
            **SCOPE,
        },
        whole=("categories", "total"),
        huge=("categories", "total"),
        bad_data=[
            *BAD_CODES,
            [DIGITS],
            DIGITS,
            [DIGITS, 0, 0],
            [-DIGITS, DIGITS, 6],
            [3, 3],
            [[2, 4]],
        ],
    ),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=CONTRACTS, ids=lambda c: f"{c.kind.__name__}-{'-'.join(c.good)}")
def contract(request: pytest.FixtureRequest) -> Contract:
    return request.param


@pytest.fixture
def all_cases() -> list[Case]:
    return CASES


@pytest.fixture
def all_contracts() -> list[Contract]:
    return CONTRACTS
