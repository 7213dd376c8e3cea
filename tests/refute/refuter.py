"""Try to refute the guarantee of a release path: replay it on neighbours that an enemy chooses.

A path takes data and coins, and gives what leaves the house with the event behind it. On D it is
recorded, on each neighbour D′ replayed with the same answers and coins. Then

- each query may have moved by its claim at most, which the *stated event* says: noise of this
  scale is there for numbers that one record moves by so much;
- everything else that leaves must be equal: values, sizes, number and order of queries, errors.

Where noise is added whose scale the event does not name, the path is refuted too.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.privacy import events

from .tape import NORMS, Coins, Diverged, Query, Tape, recording

ROUNDING = 1e-9
"""By which a ratio in floats may be off."""


@dataclass(frozen=True)
class Outcome:
    """What left the house, and what is said to have run."""

    released: Any
    event: events.Event | None


@dataclass(frozen=True)
class Pair:
    """Two neighbours."""

    name: str
    one: Any
    other: Any
    refused: bool = False
    """Whether both must be refused, and in the same words."""


@dataclass(frozen=True)
class Path:
    """A way for numbers about people to leave the house, with the guarantee that it states."""

    name: str
    adjacency: str
    run: Callable[[Any, Coins], Outcome]
    pairs: Callable[[bool], Iterator[Pair]]
    """Neighbours: a few, or (True) all that are known to have hurt somebody."""
    covers: tuple[str, ...] = ()
    """Public names that this path is the test of."""
    claim: Callable[[Query], float] | None = None
    """What a query may move by, where it is not in the units of the event."""
    slow: bool = False
    refused: bool = False
    """Whether it is refused before a row is looked at, whatever the rows are."""
    steps: int = 1
    """How many neighbours apart the pairs are, where a blank record cannot be given."""
    available: Callable[[], bool] = lambda: True


@dataclass
class Verdict:
    """What was tried, and the worst that was seen."""

    path: str
    neighbours: int = 0
    queries: int = 0
    worst: float = 0.0
    where: str = ""
    faults: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """Where both runs raised the same error and should not have: nothing was tried there."""
    seen: set[str] = field(default_factory=set)

    @property
    def refuted(self) -> bool:
        return bool(self.faults)


def refute(path: Path, everything: bool = False) -> Verdict:
    """Replay the path on all its neighbours."""
    verdict = Verdict(path.name)
    for pair in path.pairs(everything):
        _compare(path, pair, verdict)
        verdict.neighbours += 1
        if everything:
            turned = Pair(f"{pair.name}, turned", pair.other, pair.one, pair.refused)
            _compare(path, turned, verdict)
            verdict.neighbours += 1
    return verdict


def _compare(path: Path, pair: Pair, verdict: Verdict) -> None:
    name, first = pair.name, Tape()
    known = _ran(path, pair.one, first)
    second = first.rewound()
    try:
        found = _ran(path, pair.other, second)
        if not isinstance(found.released, BaseException):
            second.finished()
    except Diverged as diverged:
        verdict.faults.append(f"{name}: {diverged}")
        return
    verdict.seen |= first.seen
    verdict.queries += len(second.queries)
    if known.event is not None:
        stated = str(events.scope_of(known.event)["adjacency"])
        if stated != path.adjacency:
            verdict.faults.append(f"{name}: {stated} is stated, {path.adjacency} is tried")
    if str(known.event) != str(found.event):
        verdict.faults.append(f"{name}: another event is stated")
    if (left := difference(known.released, found.released)) is not None:
        verdict.faults.append(f"{name}: what leaves differs, {left}")
    if isinstance(known.released, BaseException) and not pair.refused:
        verdict.refusals.append(f"{name}: {known.released}")
    if pair.refused and not isinstance(known.released, BaseException):
        verdict.faults.append(f"{name}: nothing is refused")
    _judge(path, second.queries, Claims(known.event), name, verdict)


def _judge(path: Path, asked: list[Query], claims: Claims, name: str, verdict: Verdict) -> None:
    """Each query against its own claim, and all of one law and scale against theirs together.

    Together, because one draw may serve several queries that the event counts one by one.
    """
    together: dict[tuple[str, Any], list[Query]] = {}
    for query in asked:
        if query.claim is not None or path.claim is not None:
            claim = query.claim if path.claim is None else path.claim(query)
            assert claim is not None
            _held(query.movement() / claim / path.steps, query, name, verdict)
        if path.claim is None and query.law in NORMS:
            together.setdefault((query.law, query.scale), []).append(query)
    for said in {query.scale for query in asked if query.law in ("channel", "table")}:
        # Reports of other people, that a central path learns from, are theirs to state.
        if said not in claims.stated and path.adjacency == "any-two-inputs":
            verdict.faults.append(f"{name}: a channel runs that the event does not name")
    for key, queries in together.items():
        times, sensitivity = claims.of(*key)
        if not times:
            faults = f"{name}: {queries[0].place} draws noise that the event does not name"
            verdict.faults.append(faults)
            continue
        order = NORMS[key[0]]
        moved = float(np.linalg.norm([query.movement() for query in queries], ord=order))
        stated = path.steps * times ** (1 / order) * sensitivity
        _held(moved / stated, queries[0], name, verdict)


def _held(ratio: float, query: Query, name: str, verdict: Verdict) -> None:
    if not ratio <= verdict.worst:
        verdict.worst, verdict.where = ratio, f"{query.place} ({name})"
    if not ratio <= 1 + ROUNDING:
        verdict.faults.append(f"{name}: {query.place} moves by {ratio:.4g} of its claim")


def asked_of(path: Path, data: Any) -> list[bytes]:
    """The exact numbers behind the queries of one run, before any noise."""
    tape = Tape()
    _ran(path, data, tape)
    return [part.tobytes() for query in tape.queries for part in query.values]


def _ran(path: Path, data: Any, tape: Tape) -> Outcome:
    """What it gives; a refusal is an outcome too, and may not depend on one record."""
    with recording(tape), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for the holder: what is stored of them is compared
        try:
            return path.run(data, Coins(tape))
        except Diverged:
            raise
        except Exception as error:
            return Outcome(error, None)


@dataclass
class Claims:
    """Sensitivities by the law and the scale of the noise, as the stated event has them."""

    event: events.Event | None

    def __post_init__(self) -> None:
        self.stated = {str(one) for one in events.leaves(self.event)} if self.event else set()
        self._known: dict[tuple[str, Fraction], tuple[int, float]] = {}
        for leaf, times in _counted(self.event) if self.event is not None else []:
            for law, scale, sensitivity in set(_noise_of(leaf)):
                before, largest = self._known.get((law, scale), (0, 0.0))
                self._known[law, scale] = (before + times, max(largest, sensitivity))

    def of(self, law: str, scale: Any) -> tuple[int, float]:
        """How often such noise is stated, and for what sensitivity; never, and 0."""
        return self._known.get((law, scale), (0, 0.0))


def _counted(event: events.Event) -> Iterator[tuple[events.Event, int]]:
    """The leaves, each with its number; of parts that share no record the most."""
    match event:
        case events.Repeated():
            for leaf, times in _counted(event.event):
                yield leaf, times * event.count
        case events.PoissonSampled():
            yield from _counted(event.event)
        case events.Composed() | events.Parallel():
            for part in event.events:
                yield from _counted(part)
        case _:
            yield event, 1


def _noise_of(leaf: events.Event) -> Iterator[tuple[str, Fraction, float]]:
    match leaf:
        case events.Gaussian():
            yield "gaussian", leaf.sigma, float(leaf.l2_sensitivity)
            # Gradients get it in floats.
            yield "gaussian", Fraction(float(leaf.sigma)), float(leaf.l2_sensitivity)
        case events.DiscreteGaussian() | events.SummedDiscreteGaussian():
            yield "discrete gaussian", leaf.variance, math.sqrt(leaf.squared_sensitivity)
        case events.Laplace():
            yield "laplace", leaf.scale, float(leaf.l1_sensitivity)


def difference(one: Any, other: Any, at: str = "it") -> str | None:
    """Where two released things differ, bit by bit; None where they do not."""
    if type(one) is not type(other):
        return f"{at}: {type(one).__name__} beside {type(other).__name__}"
    if isinstance(one, BaseException):
        return None if str(one) == str(other) else f"{at}: other errors"
    if isinstance(one, np.ndarray):
        same = one.shape == other.shape and one.dtype == other.dtype
        return None if same and one.tobytes() == other.tobytes() else f"{at}: other numbers"
    if isinstance(one, dict):
        if list(one) != list(other):
            return f"{at}: other names"
        return _first(difference(one[key], other[key], f"{at}.{key}") for key in one)
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return f"{at}: another length"
        pairs = enumerate(zip(one, other, strict=True))
        return _first(difference(a, b, f"{at}[{i}]") for i, (a, b) in pairs)
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        names = [item.name for item in dataclasses.fields(one)]
        return _first(difference(getattr(one, n), getattr(other, n), f"{at}.{n}") for n in names)
    if isinstance(one, float):
        return None if one == other or (one != one and other != other) else f"{at}: another number"
    return None if one == other else f"{at}: another {type(one).__name__}"


def _first(found: Iterator[str | None]) -> str | None:
    return next((one for one in found if one is not None), None)
