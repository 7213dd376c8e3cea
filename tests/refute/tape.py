"""Record every noisy query of a release, and replay them on neighbouring data.

A release is run once on D. Each time noise meets a number, the number, the law of the noise and the
answer are written down. Replayed on D′, the same questions get the same answers, whatever D′ says;
what is compared is how far the numbers behind them have moved. If everything that is released is a
function of the answers, it is then equal, and the movements are all that one record changes.

The seams are where noise is drawn: `tacit.randomness`, the noise on gradients, and choices by
score. They are patched by their names in every module that has imported them, so that a new user of
a sampler is recorded without being asked.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

SAMPLERS = {
    "rounded_gaussian": "gaussian",
    "discrete_gaussian": "discrete gaussian",
    "discrete_laplace": "laplace",
}
NORMS = {"gaussian": 2, "discrete gaussian": 2, "laplace": 1}
CHANNELS = {
    "tacit.privacy.mechanisms.randomized_response": "RandomizedResponse",
    "tacit.privacy.mechanisms.subset_selection": "SubsetSelection",
    "tacit.privacy.mechanisms.projective_response": "ProjectiveGeometryResponse",
    "tacit.privacy.mechanisms.laplace": "LocalLaplace",
    "tacit.privacy.mechanisms.gaussian": "LocalGaussian",
    "tacit.privacy.mechanisms.local_mean": "LocalMean",
    "tacit.privacy.mechanisms.grouped_mean": "GroupedMean",
    "tacit.privacy.mechanisms.local_vector": "LocalVector",
    "tacit.privacy.mechanisms.memoized_response": "MemoizedResponse",
}
"""Local channels: of any two inputs their own law takes care. What one person may move is the
input of one report."""


class Diverged(AssertionError):
    """The second run asked for something else than the first: that alone tells them apart."""


@dataclass
class Query:
    """One draw of noise, and the numbers that it was added to."""

    place: str
    law: str
    scale: Any
    claim: float | None = None
    """What one record may move the numbers by; None where only the event says it."""
    values: list[np.ndarray] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    moved: list[np.ndarray] = field(default_factory=list)

    def movement(self) -> float:
        """How far the numbers of the replay are from those recorded, in the norm of the law."""
        if not self.moved:
            return 0.0
        if self.law == "channel":  # how many rows have another input
            return float(
                sum((one != 0).reshape(len(one), -1).any(axis=1).sum() for one in self.moved)
            )
        if self.law == "table":
            return float(np.max(self.moved))
        if self.law == "choice":  # nodes share no record: of each, the largest; then their sum
            return float(sum(np.abs(one).max(axis=-1).sum() for one in self.moved))
        flat = np.concatenate([one.ravel() for one in self.moved]).astype(np.float64)
        return float(np.linalg.norm(flat, ord=NORMS[self.law]))


@dataclass
class Tape:
    """The queries of one release, in order."""

    queries: list[Query] = field(default_factory=list)
    replaying: bool = False
    at: int = 0
    seen: set[str] = field(default_factory=set)
    """The functions that noise was drawn for."""
    ticks: int = 0
    """Draws and answers so far: the clock of the coins."""
    hint: float | None = None
    """The sensitivity that the code itself gives for its next draw."""
    within: int = 0
    """How many channels draw now, one within another: only the outermost is a query."""

    def opened(self, place: str, law: str, scale: Any, claim: float | None = None) -> int:
        """A draw: its number. In a replay it must be the draw of the first run."""
        self.seen.add(place)
        self.ticks += 1
        claim, self.hint = self.hint if claim is None else claim, None
        asked = (place, law, scale, claim)
        if not self.replaying:
            self.queries.append(Query(*asked))
            return len(self.queries) - 1
        if self.at == len(self.queries):
            raise Diverged(f"one query more, in {place}")
        known = self.queries[self.at]
        if (known.place, known.law, known.scale, known.claim) != asked:
            raise Diverged(f"{place} asks for {asked[1:]}, {known.place} had {known.law}")
        known.answers, known.moved = list(known.answers), []
        self.at += 1
        return self.at - 1

    def answered(self, number: int, values: Any, answer: Callable[[], Any]) -> Any:
        """The answer to a part of a draw: fresh, or the one of the first run."""
        query, values = self.queries[number], np.array(values)
        if not self.replaying:
            query.values.append(values)
            query.answers.append(answer())
            self.ticks += 1
            return _copied(query.answers[-1])
        self.ticks += 1
        place = len(query.moved)
        if place == len(query.values) or query.values[place].shape != values.shape:
            raise Diverged(f"{query.place} asks about another number of values")
        query.moved.append(_difference(values, query.values[place]))
        return _copied(query.answers[place])

    def rewound(self) -> Tape:
        """The same queries, to be replayed."""
        return Tape(
            [Query(q.place, q.law, q.scale, q.claim, q.values, q.answers) for q in self.queries],
            replaying=True,
        )

    def finished(self) -> None:
        """Every draw and every part of it was asked for again."""
        if self.at < len(self.queries):
            raise Diverged(f"{len(self.queries) - self.at} queries fewer than before")
        for query in self.queries:
            if len(query.moved) != len(query.values):
                raise Diverged(f"{query.place} asks about fewer values")


class Drawn(np.ndarray):
    """Noise that notices what it is added to."""

    tape: Tape | None = None
    number: int = -1

    def __array_finalize__(self, parent: Any) -> None:
        self.tape = getattr(parent, "tape", None)
        self.number = getattr(parent, "number", -1)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        plain = [np.asarray(one) if isinstance(one, Drawn) else one for one in inputs]
        targets = {} if out is None else {"out": out}
        others = [one for one in inputs if not isinstance(one, Drawn)]
        if ufunc is np.add and method == "__call__" and len(others) == 1 and self.tape is not None:
            values = np.broadcast_to(np.asarray(others[0]), np.shape(plain[0] + plain[1]))
            found = self.tape.answered(self.number, values, lambda: np.add(*plain, **options))
            if out is None:
                return found
            out[0][...] = found
            return out[0]
        return getattr(ufunc, method)(*plain, **targets, **options)


class DrawnInteger(int):
    """The same for whole numbers that are added one by one."""

    tape: Tape
    number: int

    def __radd__(self, other: Any) -> Any:
        return self.tape.answered(self.number, other, lambda: other + int(self))

    __add__ = __radd__


class Coins:
    """Words by the number of draws and answers so far, and of calls since.

    Who asks for fewer words gets the first of the same: so a record less, at the end, leaves the
    coins of the others as they were. And what a draw of noise uses up, which may depend on what it
    is added to, does not change the coins that come after.
    """

    secure = False

    def __init__(self, tape: Tape, seed: int = 0) -> None:
        self._tape, self._seed, self._place, self._calls = tape, seed, 0, 0

    def words(self, count: int) -> Any:
        self._calls = self._calls + 1 if self._tape.ticks == self._place else 0
        self._place = self._tape.ticks
        drawn = np.random.default_rng([self._seed, self._place, self._calls])
        return drawn.integers(0, 2**64, size=count, dtype=np.uint64)


@contextmanager
def recording(tape: Tape) -> Iterator[Tape]:
    """All draws of the library go by way of this tape."""
    undo: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, made: Any) -> None:
        undo.append((owner, name, vars(owner).get(name)))  # None where a class inherits it
        setattr(owner, name, made)

    try:
        for module in _modules():
            for name, law in SAMPLERS.items():
                if name in vars(module):
                    put(module, name, _sampler(tape, law, vars(module)[name]))
            if "symmetric_noise" in vars(module):
                put(module, "symmetric_noise", _symmetric(tape, module.symmetric_noise))
        _patch_classes(tape, put)
        yield tape
    finally:
        for owner, name, original in reversed(undo):
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def _sampler(tape: Tape, law: str, draw: Any) -> Any:
    def drawn(scale: Any, size: int, rng: Any) -> Any:
        noise = np.asarray(draw(scale, size, rng)).view(Drawn)
        noise.tape, noise.number = tape, tape.opened(_caller(), law, Fraction(scale))
        return noise

    drawn.__wrapped__ = draw  # type: ignore[attr-defined]
    return drawn


def _symmetric(tape: Tape, draw: Any) -> Any:
    """Noise on a symmetric matrix: its sensitivity is one of the Frobenius norm."""

    def drawn(spending: Any, sensitivity: int, share: Any, dimension: int) -> Any:
        with _plain("tacit.central.statistics.released"):  # the draws within are parts of one
            noise = np.asarray(draw(spending, sensitivity, share, dimension)).view(Drawn)
        scale = Fraction(spending.sigma(sensitivity, share))
        noise.tape, noise.number = tape, tape.opened(_caller(), "gaussian", scale, sensitivity)
        return noise

    return drawn


@contextmanager
def _plain(name: str) -> Iterator[None]:
    """Draws of one module as they are, while what is made of them is recorded as one."""
    module, current = importlib.import_module(name), {}
    for sampler in SAMPLERS.keys() & vars(module).keys():
        current[sampler] = vars(module)[sampler]
        setattr(module, sampler, current[sampler].__wrapped__)
    try:
        yield
    finally:
        for sampler, draw in current.items():
            setattr(module, sampler, draw)


def _patch_classes(tape: Tape, put: Any) -> None:
    spending = importlib.import_module("tacit.central.statistics.released").Spending
    put(spending, "add", _hinting(tape, spending.add))
    exponential = importlib.import_module("tacit.privacy.mechanisms.exponential")
    for kind in (exponential.Exponential, exponential.PermuteAndFlip):
        put(kind, "release", _choosing(tape, kind.release))
    sparse = importlib.import_module("tacit.privacy.mechanisms.sparse_vector").SparseVector
    put(sparse, "ask", _comparing(tape, sparse.ask))
    noise = importlib.import_module("tacit.central.queries.noise")
    for law in (noise.LaplaceNoise, noise.GaussianNoise):
        put(law, "draw", _one_by_one(tape, law.draw))
    for name, kind in CHANNELS.items():
        channel = getattr(importlib.import_module(name), kind)
        put(channel, "release", _reporting(tape, name, channel.release))
    memoized = importlib.import_module("tacit.privacy.mechanisms.memoized_response")
    one = memoized.MemoizedResponse
    put(one, "draw_reports", _one_round(tape, memoized.__name__, one.draw_reports))
    put(one, "draw_permanent", _one_round(tape, memoized.__name__, one.draw_permanent))
    lattice = importlib.import_module("tacit.privacy.mechanisms.lattice").LatticeGeometric
    put(lattice, "release", _on_lattice(tape, lattice.release))
    table = importlib.import_module("tacit.privacy.mechanisms.integer_table").IntegerTable
    put(table, "release", _tabled(tape, table.release))
    adaptive = importlib.import_module("tacit.federated.client_level.adaptive").Adaptive
    put(adaptive, "moved", _counting(tape, adaptive.moved))
    gradients = importlib.import_module("tacit.central.training.noise").Noise
    put(gradients, "add_to", _noising(tape, gradients.add_to))


def _hinting(tape: Tape, add: Any) -> Any:
    def added(self: Any, values: Any, sensitivity: int, *share: Any) -> Any:
        tape.hint = float(sensitivity)
        return add(self, values, sensitivity, *share)

    return added


def _choosing(tape: Tape, release: Any) -> Any:
    def released(self: Any, raw: Any, rng: Any = None) -> Any:
        claim = float(self.sensitivity)
        number = tape.opened(_caller(), "choice", str(self.epsilon), claim)
        return tape.answered(number, np.asarray(raw, float), lambda: release(self, raw, rng))

    return released


def _comparing(tape: Tape, ask: Any) -> Any:
    """A stream of comparisons: every answer is one number of known sensitivity."""

    def asked(self: Any, answers: Iterator[int], rng: Any = None) -> Iterator[Any]:
        pending: list[int] = []
        outcomes = ask(self, iter(pending.pop, None), rng)
        for answer in answers:
            claim = float(self.sensitivity)
            number = tape.opened("SparseVector.ask", "choice", str(self.epsilon), claim)
            pending.append(answer)
            with _plain("tacit.privacy.mechanisms.sparse_vector"):
                found = next(outcomes)
            yield tape.answered(number, np.array([float(answer)]), lambda found=found: found)

    return asked


def _reporting(tape: Tape, module: str, release: Any) -> Any:
    """One report a row: one person may change the input of one."""

    def released(self: Any, raw: Any, rng: Any = None) -> Any:
        with _plain(module), _inside(tape):
            found = release(self, raw, rng)
        if tape.within:
            return found
        number = tape.opened(_caller(), "channel", str(self.event), 1.0)
        return tape.answered(number, np.atleast_1d(np.asarray(raw)), lambda: found)

    return released


def _one_round(tape: Tape, module: str, draw: Any) -> Any:
    """One report of permanent answers that a device keeps: a part of its whole sequence."""

    def drawn(self: Any, permanent: Any, rng: Any) -> Any:
        with _plain(module), _inside(tape):
            found = draw(self, permanent, rng)
        if tape.within:
            return found
        number = tape.opened(_caller(), "channel", str(self.event), 1.0)
        return tape.answered(number, np.atleast_1d(np.asarray(permanent)), lambda: found)

    return drawn


@contextmanager
def _inside(tape: Tape) -> Iterator[None]:
    """Draws of channels that a channel is made of are parts of one."""
    tape.within += 1
    try:
        yield
    finally:
        tape.within -= 1


def _on_lattice(tape: Tape, release: Any) -> Any:
    def released(self: Any, raw: Any, rng: Any = None) -> Any:
        with _plain("tacit.privacy.mechanisms.lattice"):
            found = release(self, raw, rng)
        number = tape.opened(_caller(), "laplace", self.event.scale)
        return tape.answered(number, np.asarray(raw), lambda: found)

    return released


def _tabled(tape: Tape, release: Any) -> Any:
    """A certified table: its rows of both inputs are compared, at the δ that it states."""

    def released(self: Any, raw: Any, rng: Any = None) -> Any:
        found = release(self, raw, rng)
        number = tape.opened(_caller(), "table", str(self.event), float(self.event.epsilon))
        answer = tape.answered(number, np.asarray(raw), lambda: found)
        query = tape.queries[number]
        if tape.replaying:
            pairs = set(zip(np.ravel(query.values[-1]), np.ravel(raw), strict=True))
            apart = [_apart(self, int(one), int(other)) for one, other in pairs if one != other]
            query.moved[-1] = np.array(max(apart, default=0.0))
        return answer

    return released


def _apart(table: Any, one: int, other: int) -> float:
    exact = importlib.import_module("tacit.audit.exact")
    outputs = np.array(table.outputs())
    rows = [table.log_prob(outputs, np.full(outputs.shape, row)) for row in (one, other)]
    pairs = exact.Table(np.array(rows), ((0, 1), (1, 0)))
    return float(exact.smallest_epsilon(pairs, float(table.event.delta)))


def _one_by_one(tape: Tape, draw: Any) -> Any:
    def drawn(self: Any, size: int, rng: Any) -> Any:
        noise = draw(self, size, rng)
        number = len(tape.queries) - 1 if not tape.replaying else tape.at - 1
        made = []
        for one in noise:
            integer = DrawnInteger(one)
            integer.tape, integer.number = tape, number
            made.append(integer)
        return made

    return drawn


def _counting(tape: Tape, moved: Any) -> Any:
    def counted(self: Any, norm: float, signs: int, cohort: float, rng: Any) -> Any:
        number = tape.opened(_caller(), "gaussian", self.deviation(cohort), 1.0)
        with _plain("tacit.federated.client_level.adaptive"):
            found = moved(self, norm, signs, cohort, rng)
        return tape.answered(number, np.array([signs]), lambda: found)

    return counted


def _noising(tape: Tape, add_to: Any) -> Any:
    def added(self: Any, sums: Any, divisor: float = 1.0) -> None:
        number = tape.opened(_caller(), "gaussian", Fraction(self.sigma))
        values = sums.detach().cpu().double().numpy().copy()

        def noisy() -> Any:
            add_to(self, sums, divisor)
            return sums.clone()

        sums.copy_(tape.answered(number, values, noisy))

    return added


def _modules() -> list[Any]:
    """Every module of the library that is loaded, but those that draw."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("tacit.") and not name.startswith("tacit.privacy.randomness")
    ]


def load_all() -> None:
    """Import the whole library, so that no user of a sampler comes later."""
    import tacit

    for found in pkgutil.walk_packages(tacit.__path__, "tacit."):
        if not found.name.endswith(".migrations.env"):  # it runs within a migration only
            importlib.import_module(found.name)


def _caller() -> str:
    """The function of the library that draws."""
    frame = sys._getframe(2)
    while not frame.f_globals.get("__name__", "").startswith("tacit."):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"


def _difference(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Exact for whole numbers; NaN beside NaN is no movement."""
    if values.dtype.kind in "iu":
        return np.asarray(values.astype(object) - known.astype(object), dtype=np.float64)
    same = (values == known) | (np.isnan(values) & np.isnan(known))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(same, 0.0, np.nan_to_num(values - known, nan=np.inf))


def _copied(answer: Any) -> Any:
    return answer.copy() if isinstance(answer, np.ndarray) else answer
