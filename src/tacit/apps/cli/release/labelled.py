"""Rows with a label to keep and labels to hide, read for the commands about representations."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.apps.cli.files import image_size, rows_progress
from tacit.data import tables
from tacit.data.tables import naming
from tacit.privacy import errors
from tacit.privacy.guarantees import Unit

Values = npt.NDArray[Any]

ONE_ROW_EACH = "Every row of this file belongs to a different person."
_MOST_NAMES = 10  # an error lists no more columns than this


class LabelledRows(NamedTuple):
    """Rows with the label to keep and the labels to hide."""

    rows: Any
    regular: Values
    private: dict[str, Values]


class Folder(NamedTuple):
    """Options for images of a folder, as text."""

    pattern: str | None
    size: str | None

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of `load_twice`."""
        return {"pattern": self.pattern, "size": image_size(self.size)}


def read(
    data: str, regular: str, private: list[str], schema: Path | None, folder: Folder
) -> tuple[Any, dict[str, Values]]:
    """Read rows, labelled with `regular` and the first private label, and all private labels."""
    from tacit.data import datasets

    if Path(data).is_file():
        _must_have(data, {"--regular": [regular], "--private": private})
    table = datasets.load_twice(data, regular, private[0], schema, **folder.options)
    hidden = {private[0]: values(table.private_classes, table.private)}
    for name in private[1:]:
        if name == regular:
            errors.refuse(data, "--private", "another column than --regular", name)
        if schema is not None and name in table.schema.names:
            errors.refuse(data, "--schema", "without the labels", name)
        hidden[name] = _column(data, name)
    further = [name for name in private[1:] if name in getattr(table.rows, "column_names", ())]
    return replace(table, rows=table.rows.drop_columns(further)) if further else table, hidden


def parts(
    table: Any, private: dict[str, Values], seed: int
) -> tuple[LabelledRows, LabelledRows, LabelledRows]:
    """Split rows for training, validation and test; everybody has rows in the first part."""
    regular, split = values(table.regular_classes, table.regular), table.split(seed)
    training, validation, test = (
        LabelledRows(
            table.take(at), regular[at], {name: all_of[at] for name, all_of in private.items()}
        )
        for at in (split.training, split.validation, split.test)
    )
    for name, known in training.private.items():
        if not np.isin([*validation.private[name], *test.private[name]], known).all():
            raise errors.InvalidData(
                f"{table.name}: every value of label {name!r} must be among the rows to fit on. "
                "Leave rare values out, merge them, or choose another seed."
            )
    return training, validation, test


def represented(encoder: Any, data: str, folder: Folder) -> tuple[Any, list[str]]:
    """Return the representation of each row, and the names of columns that are left out."""
    if not Path(data).is_file():
        images = _images(data, folder)
        with naming(data):
            return encoder.transform(images.rows), [images.regular_name, images.private_name]
    from tacit.data.datasets.arrow import arrow, select
    from tacit.data.schema import TableSchema

    schema = encoder.reader_.schema
    if not isinstance(schema, TableSchema):
        errors.refuse("command line", "DATA", "images, as the encoder was fitted on", data)
    shown, behind = [], []
    with rows_progress(tables.count(data)) as advance:
        for batch in tables.batches(data, schema):
            table = arrow().Table.from_batches([batch])
            shown.append(encoder.transform(select(table, schema, data)))
            behind = [name for name in table.column_names if name not in schema.names]
            advance(batch.num_rows)
    return np.concatenate(shown), behind


def shuffled(rows: Values) -> Values:
    """Shuffle rows with operating-system entropy."""
    order = secrets.SystemRandom().sample(range(len(rows)), len(rows))
    return np.asarray(rows[order])


def one_row_each(encoder: Any, data: str) -> tuple[str, ...]:
    """Return the assumptions of a guarantee for people; refuse data with several rows per person.

    For a file, this can be checked if it has the columns to hide. In folders and named data sets,
    everybody has several rows.
    """
    if encoder.guarantee_.unit != Unit.PERSON:
        return ()
    if Path(data).is_file():
        names = [name for name in encoder.classes_.private if name in tables.names(data)]
        if not names:
            return (ONE_ROW_EACH,)
        if not _repeats(data, names, encoder.reader_.schema):
            return ()
        remedy = (
            "Keep one row of each person, leave out columns that identify nobody, or fit with unit "
            "record"
        )
        where = " and ".join(names)
    else:
        where, remedy = "the label to hide", "Fit with unit record"
    raise errors.InvalidData(
        f"{data}: {where} must differ in every row, because epsilon covers one released row per "
        f"person. {remedy}."
    )


def labels(
    encoder: Any, data: str, private: list[str], regular: str | None, folder: Folder
) -> dict[str, Values]:
    """Read the labels of all rows by name, as text if the encoder was fitted on text."""
    fitted = {
        **encoder.classes_.private,
        **({regular: encoder.classes_.regular} if regular else {}),
    }
    wanted = [*private, *([regular] if regular else [])]
    read_labels = _labels(data, private, regular, folder, wanted)
    words = [name for name in wanted if isinstance(fitted.get(name, (0,))[0], str)]
    return {**read_labels, **{name: read_labels[name].astype(str) for name in words}}


def _labels(
    data: str, private: list[str], regular: str | None, folder: Folder, wanted: list[str]
) -> dict[str, Values]:
    options = {"--private": private, "--regular": [regular] if regular else []}
    if Path(data).is_file():
        _must_have(data, options)
        return {name: _column(data, name) for name in wanted}
    images = _images(data, folder, regular, private[0])
    known = {
        images.regular_name: values(images.regular_classes, images.regular),
        images.private_name: values(images.private_classes, images.private),
    }
    for option, names in options.items():
        for name in names:
            errors.choice(data, option, name, tuple(known))
    return known


def _images(
    data: str, folder: Folder, regular: str | None = None, private: str | None = None
) -> Any:
    from tacit.data import datasets

    if data in datasets.TWICE_NAMES:  # these have their own label names
        return datasets.load_twice(data, **folder.options)
    return datasets.load_twice(data, regular, private, **folder.options)


def _column(data: str, name: str) -> Values:
    """Read a column as text or integers; in a CSV file, "07" and "7" are two values."""
    from tacit.data.datasets.arrow import read_table
    from tacit.data.datasets.twice import coded

    if not Path(data).is_file():
        errors.refuse(data, "--private", "one label", name, "Only tables can have several.")
    codes, classes = coded(read_table(Path(data), words=name)[name], name, data)
    return values(classes, codes)


def _must_have(data: str, options: dict[str, list[str]]) -> None:
    """Refuse a name that is not a column.

    The columns of a CSV file are not listed: without a header, its first line is a person's row.
    """
    has = tables.names(data)
    more = ", …" if len(has) > _MOST_NAMES else ""
    known = data.lower().endswith((".parquet", ".pq"))
    remedy = (
        f"It has {', '.join(has[:_MOST_NAMES])}{more}." if known else "Check that it has a header."
    )
    for option, names in options.items():
        for name in names:
            if name not in has:
                errors.refuse(data, option, "one of its columns", name, remedy)


def _repeats(data: str, names: list[str], schema: Any) -> bool:
    """Check whether two rows have the same values in these columns; all nulls are equal."""
    seen: set[tuple[str, ...]] = set()
    rows = 0
    for batch in tables.batches(data, schema, words=names[0]):
        columns = (map(str, batch.column(name).to_pylist()) for name in names)
        seen.update(zip(*columns, strict=True))
        rows += batch.num_rows
        if len(seen) < rows:
            return True
    return False


def values(classes: tuple[Any, ...], codes: Any) -> Values:
    """Map codes back to labels."""
    return np.asarray(np.array(classes)[codes])
