"""Rows of files as a saved estimator takes them, and losses of models on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.apps.cli.files import read_schema
from tacit.audit import membership
from tacit.data.columns import columns_of, named, numeric, stack
from tacit.data.schema import Continuous, TableSchema
from tacit.data.tables import naming, split_label
from tacit.privacy import artifact, errors

Reals = npt.NDArray[np.float64]
Values = npt.NDArray[Any]


class Records(NamedTuple):
    """Rows and labels as the model takes them, and the place of each column of the file."""

    rows: Reals
    labels: Values
    places: dict[str, list[int]]


@dataclass(frozen=True)
class ModelFileReader:
    """A reader of files: columns by the model's names, by a schema, or all in their order."""

    model: Any
    label: str
    names: tuple[str, ...] | None
    schema: TableSchema | None

    @classmethod
    def of(cls, model: Any, label: str, schema: Path | None) -> ModelFileReader:
        """Make the reader of a loaded estimator, which then takes rows without names."""
        given = None if schema is None else read_schema(schema)
        if given is not None and not isinstance(given, TableSchema):
            errors.refuse("command line", "--schema", "that of a table", "that of an array")
        named_in = vars(model).pop("feature_names_in_", None)
        names = None if named_in is None else tuple(map(str, named_in))
        if label in ((names or ()) if given is None else given.names):
            errors.refuse("command line", "--label", "a column that the model does not take", label)
        return cls(model, label, names, given)

    def read(self, path: Path) -> Records:
        """Read all rows of a file."""
        from tacit.data.datasets.arrow import read_table

        words = None if self._numbers else self.label
        rest, values = split_label(read_table(path, self.schema, words), self.label, path)
        assert values is not None  # there is a label
        rows, places = self._rows(rest, path)
        width = self.model.n_features_in_
        if rows.shape[1] != width:
            raise errors.InvalidData(
                f"{path}: rows must have {width} columns of numbers beside the label, as the model "
                f"was fitted on, got {rows.shape[1]}. Give --schema if text became several columns."
            )
        with naming(path):
            return Records(errors.reals("rows", rows), self._labels(values), places)

    @property
    def _numbers(self) -> bool:
        """Check whether labels are numbers."""
        classes = getattr(self.model, "classes_", None)
        return classes is None or classes.dtype.kind in "biuf"

    def _rows(self, table: Any, path: Path) -> tuple[Values, dict[str, list[int]]]:
        if self.schema is not None:
            return _by_schema(table, self.schema, str(path))
        names = self.names or tuple(table.column_names)
        if missing := [name for name in names if name not in table.column_names]:
            raise errors.InvalidData(f"{path}: it must have a column {missing[0]!r}.")
        columns = columns_of(table.select(list(names)))
        if not columns:
            raise errors.InvalidData(f"{path}: it must have columns beside the label.")
        return stack(columns, str(path)), {name: [at] for at, name in enumerate(names)}

    def _labels(self, values: Values) -> Values:
        name = f"column {self.label!r}"
        read = _number if self._numbers else str
        try:
            labels = [read(value) for value in values]
        except (TypeError, ValueError):
            raise errors.InvalidData(
                f"{name} must be numbers, as the model was fitted on."
            ) from None
        classes = getattr(self.model, "classes_", None)
        if classes is None:
            return errors.reals(name, labels)
        code = {read(value): at for at, value in enumerate(classes.tolist())}
        if not code.keys() >= set(labels):
            raise errors.InvalidData(f"{name} must hold classes of the model, and no other value.")
        return np.asarray(classes[[code[value] for value in labels]])


def loaded(directory: Path) -> Any:
    """Load a saved classifier or regression."""
    from sklearn.base import is_classifier, is_regressor

    model = artifact.load(directory)
    if model.kind != "estimator" or not (is_classifier(model) or is_regressor(model)):
        needed = "a classifier or a regression of tacit.central.estimators, as save writes it"
        errors.refuse("command line", "MODEL", needed, str(directory))
    return model


def confidences(model: Any, rows: Any) -> Reals:
    """Return the probabilities of the classes, or the softmax of the scores."""
    from scipy.special import expit, softmax

    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(rows))
    scores = model.decision_function(rows)
    if scores.ndim == 1:
        return np.stack([expit(-scores), expit(scores)], axis=1)
    return np.asarray(softmax(scores, axis=1))


def losses(model: Any, rows: Any, labels: Any) -> Reals:
    """Compute cross-entropies of a classifier, or squared errors of a regression."""
    if hasattr(model, "classes_"):
        return membership.cross_entropy(confidences(model, rows), labels, model.classes_)
    return membership.squared(model.predict(rows), labels)


def read_losses(path: Path, label: str) -> tuple[Any, Any]:
    """Read who was a member, and losses: as given, or from the probabilities of classes."""
    from tacit.data.datasets.arrow import read_table

    table = read_table(path, words=label)
    has = dict(columns_of(table) or ())
    if "member" not in has:
        raise errors.InvalidData(f"{path}: it must have a column 'member', of 0 and 1.")
    columns = {
        name: numeric(_truth(data), named(name), str(path))
        for name, data in has.items()
        if name != label
    }
    inside = columns.pop("member")
    if not np.isin(inside, (0, 1)).all():
        raise errors.InvalidData(f"{path}: column 'member' must be 0 or 1 in every row.")
    if "loss" in columns:
        return inside == 1, columns["loss"]
    if label not in has or len(columns) < 2:
        raise errors.InvalidData(
            f"{path}: it must have a column 'loss', or the column {label!r} and one column of "
            "probabilities for each class, named as the labels are."
        )
    labels = np.array([_word(value) for value in table[label].to_pylist()])
    if not set(labels) <= set(columns):
        raise errors.InvalidData(f"{path}: each label must be the name of a column.")
    probabilities = np.stack(list(columns.values()), axis=1)
    return inside == 1, membership.cross_entropy(probabilities, labels, np.array(list(columns)))


def _by_schema(table: Any, schema: TableSchema, where: str) -> tuple[Reals, dict[str, list[int]]]:
    """Keep numbers as they are, and make a column of 0 and 1 for each category."""
    from tacit.data.datasets.arrow import select

    chosen = select(table, schema, where)
    blocks: list[Reals] = []
    places: dict[str, list[int]] = {}
    for column in schema.columns:
        data = np.asarray(chosen[column.name])
        if isinstance(column, Continuous):
            block = np.asarray(data, np.float64)[:, None]
        else:
            codes = column.read(data, where)
            block = (codes[:, None] == np.arange(len(column.categories))).astype(np.float64)
        start = sum(one.shape[1] for one in blocks)
        places[column.name] = list(range(start, start + block.shape[1]))
        blocks.append(block)
    return np.concatenate(blocks, axis=1), places


def _truth(data: Values) -> Values:
    """Convert truth values, also those of a text file, to 0 and 1."""
    words = {"true": 1.0, "false": 0.0}
    codes = [words.get(str(value).lower()) for value in data]
    return data if None in codes else np.array(codes, np.float64)


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError
    return float(value)


def _word(value: Any) -> str:
    """Write a label as a header does: whole numbers may arrive as floats."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)
