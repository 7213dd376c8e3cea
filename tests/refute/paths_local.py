"""Reports of people who trust nobody: each depends on its own row, and on nothing but a channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

import tacit
from tacit.anonymize.encoder import AnonymizingEncoder
from tacit.anonymize.training import AdversarialSchedule
from tacit.data import schema as schemas
from tacit.local.inference.votes import Ballot, cast
from tacit.privacy.randomness import Seeded

from .adversary import Columns, hostile_rows
from .refuter import Outcome, Pair, Path
from .tape import Coins

COLUMNS, CLASSES, PEOPLE = 4, 3, 12
SCHEDULE = AdversarialSchedule(pretraining=1, adversary=1, rounds=1)
SCHEMA = schemas.ArraySchema(COLUMNS, 0.0, 1.0, outside="clip")


def inhouse() -> np.ndarray:
    return np.random.default_rng(9).uniform(0, 1, (300, COLUMNS))


def people(everything: bool) -> Iterator[Pair]:
    """Somebody else's row, or label, in one place."""
    drawn = np.random.default_rng(8)
    rows, labels = drawn.uniform(0, 1, (PEOPLE, COLUMNS)), drawn.integers(0, CLASSES, PEOPLE)
    finite = {k: v for k, v in hostile_rows(COLUMNS, 0, 1).items() if np.isfinite(v).all()}
    for name in finite if everything else ("corner", "beyond"):
        for place in (0, 5, PEOPLE - 1) if everything else (0,):
            other, told = rows.copy(), labels.copy()
            other[place], told[place] = finite[name], (labels[place] + 1) % CLASSES
            yield Pair(f"{name} at {place}", (rows, labels), (other, told))


def mechanism(name: str, make: Callable[[], Any], labelled: bool = True) -> Path:
    kept: list[Any] = []

    def run(data: Columns, coins: Coins) -> Outcome:
        if not kept:
            kept.append(make())
        reports = kept[0].release(data[0], data[1] if labelled else None, rng=coins)
        return Outcome(dict(reports.columns), reports.certificate.event)

    told = name.partition(" ")[0]
    return Path(f"{name}.release", "any-two-inputs", run, people, (f"{told}.release",))


MOST = 2
NAMES = ["Ada", "Ada", "Grace", "Ada", None, "Ada", "Grace", "Ada", "Alan", "Ada", "Alan", "Joan"]


def everything_of_a_person(everything: bool) -> Iterator[Pair]:
    """Somebody else's data in all rows of one person, of whom more rows are there than reports."""
    drawn = np.random.default_rng(8)
    rows, labels = drawn.uniform(0, 1, (PEOPLE, COLUMNS)), drawn.integers(0, CLASSES, PEOPLE)
    finite = {k: v for k, v in hostile_rows(COLUMNS, 0, 1).items() if np.isfinite(v).all()}
    for value in finite if everything else ("corner", "beyond"):
        for name in ("Ada", "Grace", "Joan") if everything else ("Ada",):
            own = [place for place, one in enumerate(NAMES) if one == name]
            other, told = rows.copy(), labels.copy()
            other[own], told[own] = finite[value], (labels[own] + 1) % CLASSES
            yield Pair(f"{value} of {name}", (rows, labels), (other, told))


def of_persons() -> Path:
    """Reports by names: the stated event says how many reports of a person change."""

    def run(data: Columns, coins: Coins) -> Outcome:
        reports = made().release(data[0], data[1], rng=coins, persons=NAMES, most=MOST)
        assert reports.event.count == MOST
        return Outcome(dict(reports.columns), reports.certificate.event)

    made = cache(lambda: codebook().for_persons())
    several = {"claim": lambda query: float(MOST)}
    pairs = everything_of_a_person
    return Path("Codebook by names", "any-two-inputs", run, pairs, ("Codebook.release",), **several)


def codebook() -> Any:
    made = tacit.Codebook(epsilon=2, codewords=6, classes=CLASSES)
    return made.fit(inhouse(), schema=SCHEMA, rng=Seeded(0))


def partitions() -> Any:
    return tacit.Partitions(epsilon=2, people=500, codewords=6, classes=CLASSES).fit(
        inhouse(), schema=SCHEMA
    )


OUTCOME = tacit.Numeric(0, CLASSES - 1)


def halves() -> Any:
    """Outcomes with the sign of a half."""
    return tacit.Partitions(epsilon=2, people=500, outcome=OUTCOME).fit(inhouse(), schema=SCHEMA)


def cells_with_outcomes() -> Any:
    made = tacit.Partitions(epsilon=2, people=500, codewords=6, outcome=OUTCOME)
    return made.fit(inhouse(), schema=SCHEMA)


def codewords_with_outcomes() -> Any:
    made = tacit.Codebook(epsilon=2, codewords=6, outcome=OUTCOME)
    return made.fit(inhouse(), schema=SCHEMA, rng=Seeded(0))


def of_images() -> Any:
    """Partitions that join the same small cells, found in features of images."""
    seen = replace(SCHEMA, image=(1, COLUMNS))
    return tacit.Partitions(epsilon=2, people=500, codewords=6, classes=CLASSES).fit(
        inhouse(), schema=seen
    )


def of_signals() -> Any:
    """Partitions in features of signals."""
    seen = replace(SCHEMA, signal=(COLUMNS, 1))
    return tacit.Partitions(epsilon=2, people=500, codewords=6, classes=CLASSES).fit(
        inhouse(), schema=seen
    )


@cache
def adapted() -> Any:
    """The second round, whose cells follow what reports of other people taught."""
    drawn = np.random.default_rng(7)
    first = tacit.Collection(epsilon=2, people=500, classes=CLASSES, rounds=2)
    first.fit(inhouse(), schema=SCHEMA)
    people = drawn.uniform(0, 1, (500, COLUMNS))
    told = (CLASSES * people[:, 0]).astype(np.int64)  # else the model names one class, and warns
    reports = first.release(people, told, rng=Seeded(1))
    return first.adapt(first.learn(reports))


def direct() -> Any:
    return tacit.Direct(epsilon=2, classes=CLASSES).fit(inhouse(), schema=SCHEMA)


def variational() -> Any:
    made = tacit.VLM(epsilon=2, classes=CLASSES, latent_dimension=2)
    return made.fit(inhouse(), schema=SCHEMA, epochs=1)


class Remembering(nn.Module):
    """A module of the user's that adds what it saw before."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(COLUMNS, 3)
        self.before: Any = 0.0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found = self.inner(rows + self.before)
        self.before = rows.detach().sum(0)
        return found


def encoder(name: str, make: Callable[[], Any]) -> Path:
    """Representations with a local ε, by a network of the user's."""
    kept: list[Any] = []

    def run(data: Columns, coins: Coins) -> Outcome:
        if not kept:
            torch.manual_seed(0)
            rows = inhouse()
            told, private = (rows[:, 0] > 0.5).astype(int), (rows[:, 1] > 0.5).astype(int)
            settings = {"training": "toggled", "epsilon": 2.0, "device": "cpu"}
            made = AnonymizingEncoder(encoder=make(), schedule=SCHEDULE, **settings)
            kept.append(made.fit(rows, told, private=private))
        return Outcome(kept[0].release(data[0], rng=coins), kept[0].certificate.event)

    return Path(
        f"AnonymizingEncoder {name}", "any-two-inputs", run, people, ("AnonymizingEncoder.release",)
    )


def votes(name: str, **asked: Any) -> Path:
    def run(data: Columns, coins: Coins) -> Outcome:
        ballot = Ballot(epsilon=2.0, **asked)
        given = {"classes": data[1]} if asked else {}
        found = ballot.release(data[0][:, 0] > 0.5, **given, rng=coins)
        return Outcome(np.asarray(found.symbols), found.event)

    return Path(f"Ballot {name}", "any-two-inputs", run, people, ("Ballot",))


def with_outcomes(everything: bool) -> Iterator[Pair]:
    """Somebody else's row and outcome, which may be no number at all."""
    strange = (1e308, np.nan, -np.inf, None, "word") if everything else (np.nan, None)
    for pair in people(False):
        changed = np.flatnonzero((pair.one[0] != pair.other[0]).any(axis=1))
        for value in strange:
            told = pair.other[1].astype(object)
            told[changed] = value
            yield Pair(f"{pair.name}, {value}", pair.one, (pair.other[0], told))


@cache
def regressor() -> Any:
    """Learned from reports of other people."""
    drawn = np.random.default_rng(7)
    rows, told = drawn.uniform(0, 1, (300, COLUMNS)), drawn.integers(0, CLASSES, 300)
    made = tacit.Partitions(epsilon=8, people=300, outcome=OUTCOME).fit(inhouse(), schema=SCHEMA)
    return tacit.MomentsRegressor(inhouse=inhouse()).fit(made.release(rows, told, rng=Seeded(1)))


def votes_on_errors() -> Path:
    """The absolute error of a regressor, rounded at random, on voters' devices."""
    regressor()  # before draws are recorded: it needs reports of its own

    def run(data: Columns, coins: Coins) -> Outcome:
        found = cast(regressor(), data[0], data[1], Ballot(epsilon=2.0, limit=2.0), rng=coins)
        return Outcome(np.asarray(found.symbols), found.event)

    return Path("Ballot on errors", "any-two-inputs", run, with_outcomes, ("Ballot",))


def open_text() -> Path:
    """Short texts of any alphabet and length, in prefixes of random levels."""

    def run(data: Columns, coins: Coins) -> Outcome:
        made = tacit.HeavyHitters(alphabet="0123456789.", length=12, epsilon=2)
        texts = [str(row[0]) + "é" * told for row, told in zip(*data, strict=True)]
        return Outcome(made.release(texts, rng=coins), made.certificate.event)

    return Path("HeavyHitters", "any-two-inputs", run, people, ("HeavyHitters.release",))


def paths() -> list[Path]:
    second = adapted()  # before draws are recorded: it needs reports of its own
    return [
        mechanism("Codebook", codebook),
        mechanism("Codebook without labels", codebook, labelled=False),
        mechanism("Partitions", partitions),
        mechanism("Partitions without labels", partitions, labelled=False),
        mechanism("Partitions with outcomes and halves", halves),
        mechanism("Partitions with outcomes and cells", cells_with_outcomes),
        mechanism("Codebook with outcomes", codewords_with_outcomes),
        mechanism("Partitions of images", of_images),
        mechanism("Partitions of signals", of_signals),
        mechanism("Collection in its second round", lambda: second),
        of_persons(),
        mechanism("Direct", direct),
        mechanism("VLM", variational),
        open_text(),
        encoder("plain", lambda: nn.Sequential(nn.Linear(COLUMNS, 3), nn.Tanh())),
        encoder("remembering", Remembering),
        votes("right or wrong"),
        votes("by class", classes=CLASSES),
        votes_on_errors(),
    ]
