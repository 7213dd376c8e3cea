"""Mechanisms that can be audited by name, each with a worst-case pair of inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from tacit.audit import exact, law, statistical
from tacit.audit.law import Outputs
from tacit.privacy import errors
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PureDP
from tacit.privacy.mechanisms import (
    Channel,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FiniteChannel,
    Gaussian,
    Geometric,
    GroupedMean,
    Laplace,
    LatticeGeometric,
    LocalGaussian,
    LocalLaplace,
    LocalMean,
    LocalVector,
    MemoizedResponse,
    PermuteAndFlip,
    ProjectiveGeometryResponse,
    RandomizedResponse,
    SmoothLaplace,
    SparseVector,
    SubsetSelection,
)
from tacit.privacy.mechanisms.integer_table import from_log_weights
from tacit.privacy.randomness import Randomness

SAMPLES = 200_000
_SHARE_OF_LAW = 0.01
"""Share of the false-alarm probability that is spent on comparing draws with the stated law."""
_MOST_OUTPUTS = 2**16
_TOGETHER = 100
_GRID = 2.0**-10


@dataclass(frozen=True)
class _Reshaped:
    """Base of wrappers whose inputs arrive as rows of another shape than the mechanism takes."""

    inner: Any

    @property
    def guarantee(self) -> Guarantee:
        guarantee: Guarantee = self.inner.guarantee
        return guarantee

    @property
    def event(self) -> Event:
        event: Event = self.inner.event
        return event


class _Answers(_Reshaped):
    """Wrapper with one entry per row, for a Laplace mechanism that releases a hundred at a time."""

    def release(self, raw: Any, rng: Randomness | None = None) -> Any:
        blocks = [self.inner.release(block, rng) for block in _blocks(raw)]
        return np.concatenate(blocks)[: len(raw)]

    def log_prob(self, released: Any, raw: Any) -> Any:
        pairs = zip(_blocks(released), _blocks(raw), strict=True)
        blocks = [self.inner.log_prob(answers, block) for answers, block in pairs]
        return np.concatenate(blocks)[: len(raw)]


def _blocks(rows: Any) -> Any:
    """Split into blocks of a hundred rows, the last one padded with zeros."""
    return np.pad(np.asarray(rows, np.float64), (0, -len(rows) % _TOGETHER)).reshape(-1, _TOGETHER)


class _Bounded(_Reshaped):
    """Wrapper with a value and its smooth bound in each row, for `SmoothLaplace`."""

    def release(self, raw: Any, rng: Randomness | None = None) -> Any:
        return np.array([self.inner.release(v, rng, bound=b) for v, b in np.asarray(raw).tolist()])

    def log_prob(self, released: Any, raw: Any) -> Any:
        value, bound = np.asarray(raw)[0]  # all rows are equal
        return self.inner.log_prob(released, np.full(len(released), value), bound=bound)


@dataclass(frozen=True)
class Subject:
    """A mechanism, a worst-case pair, and the table of its law if the range is finite."""

    channel: Channel
    first: Any
    second: Any
    table: exact.Table | None
    outputs: Outputs | None = None
    """Outputs with nearly all of the mass, given an input: draws are compared on these."""
    others: tuple[Any, ...] = ()
    """Further inputs at which draws are compared with their law."""
    entrywise: bool = False
    samples: int = SAMPLES
    """Number of draws of each input, by default."""


def _finite(channel: FiniteChannel, first: int, second: int, *, entrywise: bool = True) -> Subject:
    others = tuple(raw for raw in channel.inputs() if raw not in (first, second))
    listed = np.asarray(list(channel.outputs()))
    table = exact.tabulate(channel)
    return Subject(channel, first, second, table, lambda raw: listed, others, entrywise)


def _chosen(channel: Channel, pair: Any, others: Any, outputs: Any) -> Subject:
    """Build a subject with few outputs and infinitely many inputs: the table covers the pair."""
    table = exact.tabulate_over(channel, pair, outputs, lambda a, b: True)
    return Subject(channel, pair[0], pair[1], table, lambda raw: np.asarray(outputs), others)


def _around(spread: float) -> Outputs:
    """List the integers around a number, out to where almost no mass is left."""
    reach = _reach(spread, _MOST_OUTPUTS)
    return lambda raw: np.rint(raw).astype(np.int64) + np.arange(-reach, reach + 1)


def _square(spread: float, step: float, centre: float = 0.0) -> Outputs:
    """List the vectors of two entries on a grid, around the origin."""
    reach = _reach(spread, math.isqrt(_MOST_OUTPUTS)) + math.ceil(centre / step)
    axis = np.arange(-reach, reach + 1) * step
    listed = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    return lambda raw: listed


def _reach(spread: float, most: int) -> int:
    return math.ceil(min(26 * spread + 2, most // 2))


# --- subjects ---------------------------------------------------------------------------------

_NEIGHBOURS: dict[str, Any] = {"adjacency": Adjacency.REPLACE_ONE}
_NUMBERS = (2, -7, 12_345, -(2**40) - 1)


def _discrete_laplace(epsilon: float, delta: float) -> Subject:
    channel = DiscreteLaplace(epsilon=epsilon, sensitivity=1, **_NEIGHBOURS)
    return Subject(channel, 0, 1, None, _around(1 / epsilon), _NUMBERS, True)


def _laplace(epsilon: float, delta: float) -> Subject:
    answers = Laplace(
        epsilon=epsilon, sensitivity=1.0, dimension=_TOGETHER, grid=_GRID, **_NEIGHBOURS
    )
    around = _around((1 / _GRID + _TOGETHER) / epsilon)
    others = (0.6, -7.25, 2.0**20 + 1)
    return Subject(
        _Answers(answers), 0.0, 1.0, None, lambda raw: around(raw / _GRID) * _GRID, others
    )


def _local_laplace(epsilon: float, delta: float) -> Subject:
    channel = LocalLaplace(epsilon=epsilon, radius=1.0, grid=0.5)
    others = ([7.0, -3.0], [0.4, 0.3], [0.0, -1.0])
    outputs = _square(4 / epsilon, 0.5, 1.0)
    return Subject(channel, [1.0, 0.0], [-1.0, 0.0], None, outputs, others)


def _discrete_gaussian(epsilon: float, delta: float) -> Subject:
    given: dict[str, Any] = {"epsilon": epsilon, "delta": delta or 1e-5, "sensitivity": 1}
    channel = DiscreteGaussian(**given, dimension=1, **_NEIGHBOURS)
    around = _around(math.sqrt(channel.event.variance))
    others = tuple([n] for n in _NUMBERS)
    return Subject(channel, [0], [1], None, lambda raw: around(raw)[:, None], others, True)


def _gaussian(epsilon: float, delta: float) -> Subject:
    channel = Gaussian(epsilon=epsilon, delta=delta or 1e-5, sensitivity=40, **_NEIGHBOURS)
    return Subject(channel, 0, 40, None, _around(float(channel.event.sigma)), _NUMBERS, True)


def _local_gaussian(epsilon: float, delta: float) -> Subject:
    channel = LocalGaussian(epsilon=epsilon, delta=delta or 1e-5, radius=1.0, grid=0.25)
    others = ([7.0, -3.0], [0.4, 0.3], [0.0, -1.0])
    outputs = _square(float(channel.event.sigma), 0.25, 1.0)
    return Subject(channel, [1.0, 0.0], [-1.0, 0.0], None, outputs, others)


def _randomized_response(epsilon: float, delta: float) -> Subject:
    return _finite(RandomizedResponse(categories=10, epsilon=epsilon), 0, 1)


def _local_mean(epsilon: float, delta: float) -> Subject:
    # Numbers between two points are mixtures of their rows: the points are the worst of all.
    channel = LocalMean(lower=-1.0, upper=1.0, epsilon=epsilon)
    points, listed = channel.points.tolist(), np.asarray(channel.outputs())
    table = exact.tabulate_over(channel, points, channel.outputs(), lambda a, b: True)
    others = (0.0, 0.71, -0.2, 7.0)
    return Subject(channel, 1.0, -1.0, table, lambda raw: listed, others, True)


def _grouped_mean(epsilon: float, delta: float) -> Subject:
    return _finite(GroupedMean(groups=2, epsilon=epsilon), 64, 65)


def _local_vector(epsilon: float, delta: float) -> Subject:
    # Other vectors are mixtures of the corners: these are the worst of all.
    channel = LocalVector(dimension=3, lower=-1.0, upper=1.0, epsilon=epsilon, told=2, agreeing=2)
    corners, listed = list(product((-1.0, 1.0), repeat=3)), channel.outputs()
    table = exact.tabulate_over(channel, corners, list(listed), lambda a, b: True)
    others = ([0.0, 0.71, -0.2], [1.0, -1.0, 7.0])
    return Subject(channel, corners[0], corners[-1], table, lambda raw: listed, others)


def _subset_selection(epsilon: float, delta: float) -> Subject:
    return _finite(SubsetSelection(categories=10, epsilon=epsilon), 0, 1, entrywise=False)


def _projective_geometry_response(epsilon: float, delta: float) -> Subject:
    return _finite(ProjectiveGeometryResponse(categories=10, epsilon=epsilon), 0, 1)


def _memoized_response(epsilon: float, delta: float) -> Subject:
    # Two answers each of its own cell, against one that never changed: the change costs most.
    channel = MemoizedResponse(categories=2, epsilon=epsilon, permanent_epsilon=2, reports=4)
    others = ((0, 1, 0, 1), (1, 1, 1, 1))
    listed, table = channel.outputs(), exact.tabulate(channel)
    return Subject(channel, (0, 0, 1, 1), (0, 0, 0, 0), table, lambda raw: listed, others)


def _geometric(epsilon: float, delta: float) -> Subject:
    return _finite(Geometric(epsilon=epsilon, lower=0, upper=20, **_NEIGHBOURS), 10, 11)


def _integer_table(epsilon: float, delta: float) -> Subject:
    # Geometric weights, with each row normalised: both sides pay half.
    numbers = np.arange(7)
    weights = -(epsilon / 2) * np.abs(numbers[:, None] - numbers)
    pairs = [(i, i + 1) for i in range(6)]
    return _finite(from_log_weights(weights, pairs, epsilon=epsilon, **_NEIGHBOURS), 3, 4)


def _lattice_geometric(epsilon: float, delta: float) -> Subject:
    channel = LatticeGeometric(epsilon=epsilon, categories=3, total=6)
    free = _square(1 / epsilon, 1.0, 6.0)(None)
    listed = np.column_stack([free, 6 - free.sum(axis=1)]).astype(np.int64)
    others = ([6, 0, 0], [0, 1, 5])
    return Subject(channel, [2, 1, 3], [1, 2, 3], None, lambda raw: listed, others)


def _exponential(epsilon: float, delta: float) -> Subject:
    return _selection(Exponential(epsilon=epsilon, sensitivity=1, **_NEIGHBOURS), epsilon)


def _permute_and_flip(epsilon: float, delta: float) -> Subject:
    return _selection(PermuteAndFlip(epsilon=epsilon, sensitivity=1, **_NEIGHBOURS), epsilon)


def _selection(channel: Exponential | PermuteAndFlip, epsilon: float) -> Subject:
    # The further behind a candidate is, the closer its odds come to e^ε.
    behind = 8 / epsilon
    inputs = [[-behind, 0.0], [1 - behind, -1.0]]
    return _chosen(channel, inputs, ([0.0, 0.0], [1 / epsilon, 0.0]), range(2))


def _sparse_vector(epsilon: float, delta: float) -> Subject:
    # The answers before the one above fall while it rises: threshold and comparison both pay.
    channel = SparseVector(epsilon=epsilon, threshold=0, **_NEIGHBOURS)
    questions = 6
    inputs = [[1] * (questions - 1) + [0], [0] * (questions - 1) + [1]]
    outputs = [
        run for run in product((1, 0, -1), repeat=questions) if _is_run(list(run), positives=1)
    ]
    return _chosen(channel, inputs, ([0] * questions, [-3, 2, -1, 0, 1, 4]), outputs)


def _is_run(outcomes: list[int], positives: int) -> bool:
    """Check whether a sparse vector mechanism can have this sequence of outcomes."""
    answers = [outcome for outcome in outcomes if outcome != -1]
    if outcomes[: len(answers)] != answers or answers.count(1) > positives:
        return False
    stopped = answers.count(1) == positives
    return (stopped and answers[-1] == 1) or (not stopped and len(answers) == len(outcomes))


def _smooth_laplace(epsilon: float, delta: float) -> Subject:
    channel = _Bounded(SmoothLaplace(epsilon=epsilon, delta=delta or 1e-5, **_NEIGHBOURS))
    # Values as far apart as the smaller bound, bounds as far apart as they may be.
    inputs = [0.0, 1.0], [1.0, math.exp(channel.inner.beta)]
    around = _around(5 / float(channel.inner.event.alpha))
    others = ([7.0, 5.0],)
    return Subject(
        channel, *inputs, None, lambda raw: around(raw[0]), others, samples=SAMPLES // 10
    )


SUBJECTS: dict[str, Callable[[float, float], Subject]] = {
    "discrete-laplace": _discrete_laplace,
    "discrete-gaussian": _discrete_gaussian,
    "geometric": _geometric,
    "randomized-response": _randomized_response,
    "subset-selection": _subset_selection,
    "projective-geometry-response": _projective_geometry_response,
    "local-mean": _local_mean,
    "grouped-mean": _grouped_mean,
    "local-vector": _local_vector,
    "memoized-response": _memoized_response,
    "exponential": _exponential,
    "sparse-vector": _sparse_vector,
    "laplace": _laplace,
    "gaussian": _gaussian,
    "local-laplace": _local_laplace,
    "local-gaussian": _local_gaussian,
    "permute-and-flip": _permute_and_flip,
    "integer-table": _integer_table,
    "lattice-geometric": _lattice_geometric,
    "smooth-laplace": _smooth_laplace,
}


# --- audit --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MechanismAudit:
    """The outcome of one audit."""

    mechanism: str
    claimed_epsilon: float
    claimed_delta: float
    exact_epsilon: float | None
    lower_bound: float
    confidence: float
    samples: int
    law_p_value: float | None = None
    """P value of the test that the draws follow the stated law."""
    law_finding: str | None = None
    """Where the draws deviate most from the stated law."""

    @property
    def follows_law(self) -> bool:
        """Return whether the draws are consistent with the stated law."""
        risk = _SHARE_OF_LAW * (1 - self.confidence)
        return self.law_p_value is None or self.law_p_value >= risk

    @property
    def exceeds_claim(self) -> bool:
        """Return whether ε is larger than claimed: by the exact law, or by the draws."""
        known = self.exact_epsilon or 0.0
        return known > self.claimed_epsilon + 1e-9 or self.lower_bound > self.claimed_epsilon

    @property
    def refuted(self) -> bool:
        """Return whether a statement is false: ε, or the law that it was proved for."""
        return self.exceeds_claim or not self.follows_law

    @property
    def words(self) -> str:
        """Return the verdict in words."""
        reasons = []
        if self.exceeds_claim:
            reasons.append("ε is larger than claimed")
        if not self.follows_law:
            reasons.append(f"draws do not follow the stated law ({self.law_finding})")
        return "REFUTED: " + "; ".join(reasons) if reasons else "not refuted"

    def to_dict(self) -> dict[str, Any]:
        """Return fields by name; `law_finding` is None if the draws follow the stated law."""
        return asdict(self) | ({"law_finding": None} if self.follows_law else {})


def audit(
    name: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    samples: int | None = None,
    confidence: float = 0.99,
) -> MechanismAudit:
    """Try to refute a mechanism's claim, by its exact law if that is finite, and by sampling."""
    errors.choice("audit", "mechanism", name, list(SUBJECTS))
    epsilon = float(errors.epsilon_in_range("audit", epsilon))
    delta = errors.probability("audit", "delta", delta)
    confidence = errors.probability("audit", "confidence", confidence, zero=False)
    if samples is not None:
        samples = errors.whole("audit", "samples", samples, least=1000, most=10**8)
    subject = SUBJECTS[name](epsilon, delta)
    samples = samples or subject.samples
    claim = subject.channel.guarantee
    assert isinstance(claim, PureDP | ApproxDP)
    bound = statistical.lower_bound(
        subject.channel,
        np.asarray(subject.first),
        np.asarray(subject.second),
        samples=samples,
        delta=claim.delta,
        confidence=1 - (1 - _SHARE_OF_LAW) * (1 - confidence),
    )
    agreement = _agreement(subject, samples)
    return MechanismAudit(
        mechanism=name,
        claimed_epsilon=claim.epsilon,
        claimed_delta=claim.delta,
        exact_epsilon=_known(subject, claim.delta),
        lower_bound=bound.epsilon,
        confidence=confidence,
        samples=samples,
        law_p_value=agreement.p_value if agreement else None,
        law_finding=agreement.finding if agreement else None,
    )


def _known(subject: Subject, delta: float) -> float | None:
    # Twelve digits: beyond them the logarithms themselves are rounded.
    if subject.table is None:
        return None
    return round(exact.smallest_epsilon(subject.table, delta), 12)


def _agreement(subject: Subject, samples: int) -> law.Agreement | None:
    if subject.outputs is None:
        return None
    return law.follows(
        subject.channel,
        (subject.first, subject.second, *subject.others),
        subject.outputs,
        samples=samples,
        entrywise=subject.entrywise,
    )
