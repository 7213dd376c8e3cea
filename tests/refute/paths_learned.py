"""What is learned from in-house rows under a central guarantee, and may leave with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

import tacit
from tacit.data import schema as schemas
from tacit.local.inference import mixture, views
from tacit.privacy import events
from tacit.privacy.randomness import Seeded

from .adversary import Columns, at_an_edge, neighbours
from .paths_statistics import undated
from .refuter import Outcome, Pair, Path
from .tape import Coins

CENTRAL = {"central_epsilon": 1.0, "central_delta": 1e-5}
COLUMNS = 4
SCHEMA = schemas.ArraySchema(COLUMNS, 0.0, 1.0, outside="clip")
PICTURES = schemas.ArraySchema(64, 0.0, 1.0, (8, 8), outside="clip")


def base(columns: int = COLUMNS, rows: int = 400) -> Columns:
    return (np.random.default_rng(2).uniform(0, 1, (rows, columns)),)


def left(learned: Any) -> Any:
    """All that is saved of a fitted mechanism or model, certificates undated."""
    parameters, arrays = learned.parts()
    return without_dates(parameters), arrays


def without_dates(found: Any) -> Any:
    """The same, with certificates that do not say when they were issued."""
    if isinstance(found, dict):
        return {key: without_dates(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [without_dates(one) for one in found]
    dated = isinstance(found, str) and found.startswith("{") and '"issued"' in found
    return undated(found) if dated else found


def codebook(name: str, schema: Any, slow: bool = True, **options: Any) -> Path:
    def run(data: Columns, coins: Coins) -> Outcome:
        made = tacit.Codebook(epsilon=4, codewords=6, classes=2, **CENTRAL, **options)
        made.fit(data[0], schema=schema, rng=coins)
        return Outcome(left(made), made.inhouse_.certificate.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        rows = base(len(schema.names))
        yield from neighbours(rows, "add-remove", 0, 1, everything, finite=True)
        if everything:
            drawn = np.random.default_rng(0).random((2, len(schema.names)))
            yield from at_an_edge(made, drawn[0] * 0.8, drawn[0], 2300)

    made = Path(f"Codebook {name}", ADJACENCY, run, pairs, ("Codebook",), slow=slow)
    return made


ADJACENCY = "zero-out"


TABLE = schemas.TableSchema(
    (
        schemas.Continuous("a", 0.0, 1.0, missing="indicate", outside="clip"),
        schemas.Continuous("b", 0.0, 1.0, missing="indicate", outside="clip"),
        schemas.Categorical("c", ("low", "high"), unseen="other"),
    )
)


def as_table(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Two numbers, which may be missing, and a category, which may be another."""
    with np.errstate(all="ignore"):
        third = np.where(rows[:, 2] < 0.4, "low", np.where(rows[:, 2] < 0.8, "high", "strange"))
    finite = np.where(np.isfinite(rows), np.clip(rows, -9, 9), np.nan)
    return {"a": finite[:, 0], "b": finite[:, 1], "c": third}


def partitions(name: str, schema: Any, columns: int, rows: int, slow: bool = True) -> Path:
    """Cells of synthetic rows; `rows` decides whether quantiles are used."""
    table = isinstance(schema, schemas.TableSchema)

    def run(data: Columns, coins: Coins) -> Outcome:
        made = tacit.Partitions(epsilon=4, people=200, codewords=6, classes=2, **CENTRAL)
        made.fit(as_table(data[0]) if table else data[0], schema=schema, rng=coins)
        return Outcome(left(made), made.inhouse_.certificate.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        base_rows = base(columns, rows)
        yield from neighbours(base_rows, "add-remove", 0, 1, everything, finite=not table)

    return Path(f"Partitions {name}", ADJACENCY, run, pairs, ("Partitions",), slow=slow)


def second_round() -> Path:
    """What leaves of a collection in two rounds: model, and mechanism of the second round."""
    people = np.random.default_rng(3).uniform(0, 1, (300, COLUMNS))

    def run(data: Columns, coins: Coins) -> Outcome:
        options = {"epsilon": 4, "people": 600, "classes": 2, "rounds": 2, **CENTRAL}
        first = tacit.Collection(**options).fit(data[0], schema=SCHEMA, rng=coins)
        reports = first.release(people, (people[:, 0] > 0.5).astype(int), rng=Seeded(1))
        with (  # for speed
            patch.multiple(mixture, MOST_ROWS=200, WIDTHS=(1.0,), WALKS=(4.0,)),
            patch.multiple(views, LANDMARKS=8, DIFFUSION_LANDMARKS=8),
        ):
            model = first.learn(reports)
        second = first.adapt(model).mechanism_
        return Outcome((left(model), left(second)), second.inhouse_.certificate.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        yield from neighbours(base(), "add-remove", 0, 1, everything, finite=True)

    return Path("Collection, central", ADJACENCY, run, pairs, ("Collection",), slow=True)


def bigger() -> Path:
    """One row more where sizes are set from the number of rows: n is public, or noisy."""

    def run(data: Columns, coins: Coins) -> Outcome:
        made = tacit.Codebook(epsilon=4, codewords=6, classes=2, **CENTRAL)
        made.fit(data[0], schema=SCHEMA, rng=coins)
        return Outcome((made.codewords, len(made.counts_)), made.inhouse_.certificate.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        rows = base(rows=1750)[0]
        # Towards zero-out neighbours the last row is another; towards add-remove it is gone.
        other = np.vstack([rows[:-1], rows[:1]]) if ADJACENCY == "zero-out" else rows[:-1]
        yield Pair("at the edge of a size", (rows,), (other,))

    return Path("Codebook of 1,750 rows", ADJACENCY, run, pairs, ("Codebook",), steps=2)


def student() -> Path:
    """Taught with DP-Adam on the in-house rows of a private codebook."""
    people = np.random.default_rng(3).uniform(0, 1, (300, COLUMNS))

    def run(data: Columns, coins: Coins) -> Outcome:
        made = tacit.Codebook(epsilon=4, codewords=6, classes=2, **CENTRAL)
        made.fit(data[0], schema=SCHEMA, rng=coins)
        reports = made.release(people, (people[:, 0] > 0.5).astype(int), rng=Seeded(1))
        settings = {"inhouse": data[0], "prior": "none", "hidden": (8,), **CENTRAL}
        taught = tacit.StudentClassifier(**settings).fit(reports, rng=coins)
        stated = tuple(one.event for one in taught.inhouse_.certificates)
        return Outcome(left(taught), events.Composed(stated))

    def pairs(everything: bool) -> Iterator[Pair]:
        yield from neighbours(base(), "add-remove", 0, 1, everything, finite=True)

    return Path("StudentClassifier", ADJACENCY, run, pairs, ("StudentClassifier",), slow=True)


def variational() -> Path:
    """An encoder trained with DP-Adam, handed out."""

    def run(data: Columns, coins: Coins) -> Outcome:
        made = tacit.VLM(epsilon=2, classes=2, latent_dimension=2, **CENTRAL)
        made.fit(data[0], schema=SCHEMA, epochs=1, rng=coins)
        return Outcome(left(made), made.inhouse_.certificate.event)

    def pairs(everything: bool) -> Iterator[Pair]:
        yield from neighbours(base(rows=60), "replace-one", 0, 1, everything, finite=True)

    return Path("VLM", ADJACENCY, run, pairs, ("VLM",), slow=True, steps=2)


def paths() -> list[Path]:
    return [
        codebook("raw", SCHEMA, slow=False),
        codebook("wide", schemas.ArraySchema(300, 0.0, 1.0, outside="clip")),
        codebook("scattering", PICTURES),
        codebook("random", SCHEMA, features="random"),
        partitions("raw", SCHEMA, COLUMNS, 400, slow=False),
        partitions("quantile", TABLE, 3, 3000, slow=False),
        partitions("wide", schemas.ArraySchema(300, 0.0, 1.0, outside="clip"), 300, 400),
        second_round(),
        bigger(),
        student(),
        variational(),
    ]
