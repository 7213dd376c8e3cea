"""Mechanisms by name, each with the pair of inputs on which it has most to hide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from tacit import errors
from tacit.audit import exact, statistical
from tacit.guarantees import Adjacency, ApproxDP, PureDP
from tacit.mechanisms import (
    Channel,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Geometric,
    RandomizedResponse,
    SparseVector,
    SubsetSelection,
)


@dataclass(frozen=True)
class Subject:
    """A mechanism, a worst-case pair, and the table of its law where the range is finite."""

    channel: Channel
    first: Any
    second: Any
    table: exact.Table | None


@dataclass(frozen=True)
class Report:
    """The outcome of one audit."""

    mechanism: str
    claimed_epsilon: float
    claimed_delta: float
    exact_epsilon: float | None
    lower_bound: float
    confidence: float
    samples: int

    @property
    def refuted(self) -> bool:
        """Whether the claim is false: by the exact law, or by the draws."""
        exact_epsilon = self.exact_epsilon or 0.0
        return exact_epsilon > self.claimed_epsilon + 1e-9 or (
            self.lower_bound > self.claimed_epsilon
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _discrete_laplace(epsilon: float, delta: float) -> Subject:
    return Subject(
        DiscreteLaplace(epsilon=epsilon, sensitivity=1, adjacency=Adjacency.REPLACE_ONE), 0, 1, None
    )


def _discrete_gaussian(epsilon: float, delta: float) -> Subject:
    channel = DiscreteGaussian(
        epsilon=epsilon,
        delta=delta or 1e-5,
        sensitivity=1,
        dimension=1,
        adjacency=Adjacency.REPLACE_ONE,
    )
    return Subject(channel, [0], [1], None)


def _randomized_response(epsilon: float, delta: float) -> Subject:
    channel = RandomizedResponse(categories=10, epsilon=epsilon)
    return Subject(channel, 0, 1, exact.tabulate(channel))


def _subset_selection(epsilon: float, delta: float) -> Subject:
    channel = SubsetSelection(categories=10, epsilon=epsilon)
    return Subject(channel, 0, 1, exact.tabulate(channel))


def _geometric(epsilon: float, delta: float) -> Subject:
    channel = Geometric(epsilon=epsilon, lower=0, upper=20, adjacency=Adjacency.REPLACE_ONE)
    return Subject(channel, 10, 11, exact.tabulate(channel))


def _exponential(epsilon: float, delta: float) -> Subject:
    # The further behind a candidate is, the nearer its odds come to e^ε.
    channel = Exponential(epsilon=epsilon, sensitivity=1, adjacency=Adjacency.REPLACE_ONE)
    behind = 8 / epsilon
    inputs = [[-behind, 0.0], [1 - behind, -1.0]]
    table = exact.tabulate_over(channel, inputs, range(2), lambda a, b: True)
    return Subject(channel, inputs[0], inputs[1], table)


def _sparse_vector(epsilon: float, delta: float) -> Subject:
    # The answers before the one above fall while it rises: threshold and comparison both pay.
    channel = SparseVector(epsilon=epsilon, threshold=0, adjacency=Adjacency.REPLACE_ONE)
    questions = 6
    inputs = [[1] * (questions - 1) + [0], [0] * (questions - 1) + [1]]
    outputs = [
        run for run in product((1, 0, -1), repeat=questions) if _is_run(list(run), positives=1)
    ]
    table = exact.tabulate_over(channel, inputs, outputs, lambda a, b: True)
    return Subject(channel, inputs[0], inputs[1], table)


def _is_run(outcomes: list[int], positives: int) -> bool:
    """Whether a sparse vector could have said this."""
    asked = [outcome for outcome in outcomes if outcome != -1]
    if outcomes[: len(asked)] != asked or asked.count(1) > positives:
        return False
    stopped = asked.count(1) == positives
    return (stopped and asked[-1] == 1) or (not stopped and len(asked) == len(outcomes))


SUBJECTS: dict[str, Callable[[float, float], Subject]] = {
    "discrete-laplace": _discrete_laplace,
    "discrete-gaussian": _discrete_gaussian,
    "geometric": _geometric,
    "randomized-response": _randomized_response,
    "subset-selection": _subset_selection,
    "exponential": _exponential,
    "sparse-vector": _sparse_vector,
}


def audit(
    name: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    samples: int = 200_000,
    confidence: float = 0.99,
) -> Report:
    """Try to refute a mechanism's claim: by its exact law where finite, and by draws."""
    errors.choice("audit", "mechanism", name, list(SUBJECTS))
    epsilon = float(errors.epsilon_in_range("audit", epsilon))
    delta = errors.probability("audit", "delta", delta)
    samples = errors.whole("audit", "samples", samples, least=1000, most=10**8)
    subject = SUBJECTS[name](epsilon, delta)
    claim = subject.channel.guarantee
    assert isinstance(claim, PureDP | ApproxDP)
    bound = statistical.lower_bound(
        subject.channel,
        np.asarray(subject.first),
        np.asarray(subject.second),
        samples=samples,
        delta=claim.delta,
        confidence=confidence,
    )
    known = None
    if subject.table is not None:
        # Twelve digits: beyond them the logarithms themselves are rounded.
        known = round(exact.smallest_epsilon(subject.table, claim.delta), 12)
    return Report(
        mechanism=name,
        claimed_epsilon=claim.epsilon,
        claimed_delta=claim.delta,
        exact_epsilon=known,
        lower_bound=bound.epsilon,
        confidence=confidence,
        samples=samples,
    )
