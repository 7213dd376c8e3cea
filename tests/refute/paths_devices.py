"""What leaves people's devices: surveys, memoised answers, and draws of the service's client."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from functools import cache
from pathlib import Path as File
from typing import Any

import numpy as np

import tacit
from tacit.apps.service.campaign import Campaign
from tacit.apps.service.given import as_json
from tacit.local import respondent
from tacit.privacy.randomness import Seeded
from tacit.privacy.randomness.source import SystemEntropy

from .paths_local import CLASSES, COLUMNS, SCHEMA, inhouse, people
from .refuter import Outcome, Pair, Path
from .tape import Coins

Rows = dict[str, list[Any]]
PEOPLE, ROUNDS = 6, 4
ONE = 2
"""The place of whoever reports alone."""

QUESTIONS = {
    "smoker": tacit.YesNo(),
    "region": tacit.OneOf(("north", "south", "east")),
    "pets": tacit.SeveralOf(("cat", "dog")),
    "income": tacit.Number(0, 1),
    "age": tacit.Number(-1, 99),
    "born": tacit.Date("1950-01-01", "2010-01-01"),
}
SHEETS: list[Any] = ["smoker", "pets", ("region", "income"), ("income:moments", "age:bins"), "born"]
ASSIGNED = ["smoker", "pets", "region+income", "born", "income:moments+age:bins", "pets"]

ACCEPTED: dict[str, tuple[Any, ...]] = {
    "smoker": (False, 1, "yes", np.True_),
    "region": ("south", "east", np.str_("east")),
    "pets": (None, np.nan, [], "", ";;", "dog;cat;dog", {"cat"}, ("dog",)),
    "income": (1e308, -1e308, 5e-324, 10**400, -(10**400), np.nextafter(1, 2), np.float32(0.1)),
    "age": (1e308, -(10**400), 99, np.int8(-128)),
    "born": ("0001-01-01", "9999-12-31", date.max, datetime.min, np.datetime64(10**17, "s")),
}
"""Answers that count, as some option or as a bound: nobody may see which it was."""
REFUSED: tuple[Any, ...] = (
    *(np.inf, -np.inf, "word", "\ud800", "yes;no", b"yes", 1j, object(), [["cat"]], [np.nan]),
    *({"a": 1}, np.datetime64("NaT"), "2020-13-01", "1e5", float, [1, [2]]),
)
"""Answers that no question takes. Both neighbours have one: the refusals must be equal."""


def person(seed: int = 0) -> Rows:
    drawn = np.random.default_rng(seed)
    return {
        "smoker": drawn.choice(["yes", "no"], PEOPLE).tolist(),
        "region": drawn.choice(["north", "south"], PEOPLE).tolist(),
        "pets": ["cat", "dog", "cat;dog", "", ["cat"], None],
        "income": drawn.uniform(0, 1, PEOPLE).tolist(),
        "age": drawn.uniform(0, 99, PEOPLE).tolist(),
        "born": ["1980-02-03"] * PEOPLE,
    }


def answers(everything: bool) -> Iterator[Pair]:
    """Somebody else's answers in one place: all of them, one of them, or one that is refused."""
    rows, other = person(), person(1)
    for place in (0, 3, PEOPLE - 1) if everything else (ONE,):
        yield Pair(f"somebody else at {place}", rows, _put(rows, place, **_row(other, place)))
        for name, values in ACCEPTED.items():
            for value in values if everything else values[:3]:
                pair = rows, _put(rows, place, **{name: value})
                yield Pair(f"{name} {value!r:.30} at {place}", *pair)
    for name in QUESTIONS:
        first = _put(rows, ONE, **{name: REFUSED[0]})
        for value in REFUSED[1:] if everything else REFUSED[1:4]:
            yield Pair(f"{name} refused", first, _put(rows, ONE, **{name: value}), refused=True)


def _row(rows: Rows, place: int) -> dict[str, Any]:
    return {name: column[place] for name, column in rows.items()}


def _put(rows: Rows, place: int, **values: Any) -> Rows:
    return {
        name: [*column[:place], values.get(name, column[place]), *column[place + 1 :]]
        for name, column in rows.items()
    }


def survey(name: str, divided: bool = False, **given: Any) -> Path:
    """Answers of every kind; sheets are drawn, or declared."""
    made = tacit.Survey(QUESTIONS, epsilon=2, sheets=SHEETS, divided=divided)

    def run(data: Rows, coins: Coins) -> Outcome:
        reports = made.release(data, rng=coins, **given)
        return Outcome(dict(reports.columns), reports.certificate.event)

    return Path(f"Survey {name}", "any-two-inputs", run, answers, ("Survey.release",))


NAMES = ["Ada", "Grace", "Ada", None, "Ada", "Joan"]
MOST = 2


def all_of_a_person(everything: bool) -> Iterator[Pair]:
    """Somebody else's answers in all rows of one person."""
    rows, other = person(), person(1)
    for name in ("Ada", "Grace", None):
        changed = rows
        for place in [at for at, one in enumerate(NAMES) if one == name]:
            changed = _put(changed, place, **_row(other, place))
        yield Pair(f"all of {name}", rows, changed)


def survey_by_names() -> Path:
    made = tacit.Survey(QUESTIONS, epsilon=2, sheets=SHEETS)

    def run(data: Rows, coins: Coins) -> Outcome:
        reports = made.release(data, rng=coins, persons=NAMES, most=MOST)
        assert reports.event.count == MOST
        return Outcome(dict(reports.columns), reports.certificate.event)

    several = {"claim": lambda query: float(MOST)}
    covers = ("Survey.release",)
    return Path("Survey by names", "any-two-inputs", run, all_of_a_person, covers, **several)


@contextmanager
def entropy_of(coins: Coins) -> Iterator[None]:
    """Replay the draws of code that takes no generator; all of it asks the operating system."""
    drawn = SystemEntropy.words
    SystemEntropy.words = lambda self, count: coins.words(count)  # type: ignore[method-assign]
    try:
        yield
    finally:
        SystemEntropy.words = drawn  # type: ignore[method-assign]


def client_draws(name: str, offered: str) -> Path:
    """A device of the service: what it would send, for all rows or for a token's one row."""
    made = tacit.Survey(QUESTIONS, epsilon=2, sheets=SHEETS)
    about = {"id": "abcdefghijkl", "title": "A", "purpose": "P", "labelled": False}
    terms = Campaign(mechanism=made, **about)

    def run(data: Rows, coins: Coins) -> Outcome:
        with tempfile.TemporaryDirectory() as folder, entropy_of(coins):
            client = tacit.service.Client(f"http://localhost/c/{terms.id}", state=folder)
            client._terms = terms
            if offered == "draw":
                return Outcome(as_json(client.draw(data)), terms.certificate.event)
            sent: list[bytes] = []
            client._connection = Sent(sent)  # type: ignore[assignment]
            client._must_be_open = client.must_be_unused = nothing  # type: ignore[method-assign]
            client.report("token", _row(data, ONE))
            return Outcome(sent, terms.certificate.event)

    return Path(f"Client {name}", "any-two-inputs", run, answers, (f"Client.{offered}",))


class Sent:
    """A connection that keeps what is sent, whatever token comes with it."""

    def __init__(self, sent: list[bytes]) -> None:
        self.sent = sent

    def post(self, path: str, body: bytes, bearer: str | None = None) -> dict[str, Any]:
        self.sent.append(body)
        return {"receipt": "r"}


def nothing(*given: Any) -> None:
    """Check nothing: the server has opened the campaign, and knows no draw of the token."""


@cache
def public_codebook() -> Any:
    made = tacit.Codebook(epsilon=2, codewords=6, classes=CLASSES)
    return made.fit(inhouse(), schema=SCHEMA, rng=Seeded(0), inhouse_public=True)


@cache
def classifier() -> Any:
    """Learned from reports of other people."""
    drawn = np.random.default_rng(7)
    rows, told = drawn.uniform(0, 1, (300, COLUMNS)), drawn.integers(0, CLASSES, 300)
    reports = public_codebook().release(rows, told, rng=Seeded(1))
    return tacit.NoiseAwareClassifier().fit(reports)


def client_votes(name: str, offered: str) -> Path:
    """A device of the service that votes on a model."""
    classifier()  # before draws are recorded: it needs reports of its own
    about = {"id": "abcdefghijkl", "title": "A", "purpose": "P", "labelled": True}
    terms = Campaign(mechanism=public_codebook(), vote_epsilon=2.0, vote_by_class=True, **about)

    def run(data: Any, coins: Coins) -> Outcome:
        ballot = terms.ballot
        assert ballot is not None
        with tempfile.TemporaryDirectory() as folder, entropy_of(coins):
            client = tacit.service.Client(f"http://localhost/c/{terms.id}", state=folder)
            client._terms, client.model = terms, classifier  # type: ignore[method-assign]
            if offered == "cast":
                return Outcome(client.cast(*data)[1], ballot.event)
            sent: list[bytes] = []
            client._connection = Sent(sent)  # type: ignore[assignment]
            client._must_be_open = client.must_be_unused = nothing  # type: ignore[method-assign]
            client.vote("token", data[0][0], data[1][0])
            return Outcome(sent, ballot.event)

    return Path(f"Client {name}", "any-two-inputs", run, people, (f"Client.{offered}",))


def histories(everything: bool) -> Iterator[Pair]:
    """Any two histories of one person, and values that are no category."""
    calm = [0] * ROUNDS
    changed: list[list[Any]] = [[1] * ROUNDS, [0, 1, 0, 1], [4, 3, 2, 1], [np.int8(4), True, 2, 0]]
    for other in changed if everything else changed[:2]:
        yield Pair(f"{other}", calm, other)
    refused: list[Any] = [5, -1, 1.5, "word", "\ud800", None, np.nan, 10**400]
    for value in refused[1:] if everything else refused[1:4]:
        yield Pair("refused", [0, refused[0], 0, 0], [0, value, 0, 0])


def repeated_answers(name: str, **given: Any) -> Path:
    """A device that keeps its permanent answers: reports, and everything that it stores."""
    settings = {"categories": 5, "epsilon": 20.0, "permanent_epsilon": 6.0, "reports": ROUNDS}
    made = tacit.MemoizedResponse(**{**settings, **given})

    def run(data: list[Any], coins: Coins) -> Outcome:
        original = respondent.secrets.token_hex
        respondent.secrets.token_hex = lambda size: "00" * size
        try:
            with tempfile.TemporaryDirectory() as folder, entropy_of(coins):
                device, sent = tacit.Respondent(made, File(folder) / "a"), []
                for place, one in enumerate(data):
                    try:
                        sent.append(device.report(one, number=place))
                    except tacit.errors.InvalidData as refusal:
                        sent.append(str(refusal))
                return Outcome(sent, made.event)
        finally:
            respondent.secrets.token_hex = original

    return Path(f"Respondent {name}", "any-two-inputs", run, histories, ("Respondent.report",))


def paths() -> list[Path]:
    return [
        survey("with drawn sheets"),
        survey("with divided epsilon", divided=True),
        survey("with declared sheets", assigned=ASSIGNED),
        survey_by_names(),
        client_draws("of a table", "draw"),
        client_draws("of a token", "report"),
        client_votes("voting for a table", "cast"),
        client_votes("voting with a token", "vote"),
        repeated_answers("of categories"),
        repeated_answers("of hashed categories", cells=2),
    ]
