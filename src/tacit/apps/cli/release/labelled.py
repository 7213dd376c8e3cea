"""Rows with a label to keep and labels to hide, as commands read them."""

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

ONE_ROW_EACH = "Every row of this file is another person's."
_MOST_NAMES = 10  # an error lists no more columns than this


class Part(NamedTuple):
    """Rows, and their labels as values."""

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
    """Read a `TwiceLabelled` and all private labels by name, of which the first is its own."""
    from tacit.data import datasets

    if Path(data).is_file():
        _must_have(data, {"--regular": [regular], "--private": private})
    found = datasets.load_twice(data, regular, private[0], schema, **folder.options)
    hidden = {private[0]: values(found.private_classes, found.private)}
    for name in private[1:]:
        if name == regular:
            errors.refuse(data, "--private", "another column than --regular", name)
        if schema is not None and name in found.schema.names:
            errors.refuse(data, "--schema", "without the labels", name)
        hidden[name] = _column(data, name)
    further = [name for name in private[1:] if name in getattr(found.rows, "column_names", ())]
    return replace(found, rows=found.rows.drop_columns(further)) if further else found, hidden


def parts(found: Any, private: dict[str, Values], seed: int) -> tuple[Part, Part, Part]:
    """Split rows for training, validation and test; everybody has rows in the first part."""
    regular, divided = values(found.regular_classes, found.regular), found.split(seed)
    fitted, held, tried = (
        Part(found.take(at), regular[at], {name: all_of[at] for name, all_of in private.items()})
        for at in (divided.training, divided.validation, divided.test)
    )
    for name, known in fitted.private.items():
        if not np.isin([*held.private[name], *tried.private[name]], known).all():
            raise errors.InvalidData(
                f"{found.name}: every value of label {name!r} must be among the rows to fit on. "
                "Leave rare values out, merge them, or choose another seed."
            )
    return fitted, held, tried


def represented(encoder: Any, data: str, folder: Folder) -> tuple[Any, list[str]]:
    """Return the representation of each row, and the names of columns that are left out."""
    if not Path(data).is_file():
        found = _images(data, folder)
        with naming(data):
            return encoder.transform(found.rows), [found.regular_name, found.private_name]
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
    """Return what a guarantee for people assumes; refuse data in which someone has several rows.

    A file shows this if it has the columns that were to be hidden. In folders and in data sets by
    name everybody has several rows.
    """
    if encoder.guarantee_.unit != Unit.PERSON:
        return ()
    if Path(data).is_file():
        names = [name for name in encoder.classes_.private if name in tables.names(data)]
        if not names:
            return (ONE_ROW_EACH,)
        if not _repeats(data, names, encoder.reader_.schema):
            return ()
        remedy = "Keep one row of each, leave out columns that name nobody, or fit with unit record"
        where = " and ".join(names)
    else:
        where, remedy = "the label to hide", "Fit with unit record"
    raise errors.InvalidData(
        f"{data}: {where} must differ in every row, as epsilon is for a person who releases one "
        f"row. {remedy}."
    )


def labels(
    encoder: Any, data: str, private: list[str], regular: str | None, folder: Folder
) -> dict[str, Values]:
    """Read the labels of all rows, by name; as text if the encoder was fitted on text."""
    fitted = {
        **encoder.classes_.private,
        **({regular: encoder.classes_.regular} if regular else {}),
    }
    wanted = [*private, *([regular] if regular else [])]
    found = _found(data, private, regular, folder, wanted)
    words = [name for name in wanted if isinstance(fitted.get(name, (0,))[0], str)]
    return {**found, **{name: found[name].astype(str) for name in words}}


def _found(
    data: str, private: list[str], regular: str | None, folder: Folder, wanted: list[str]
) -> dict[str, Values]:
    options = {"--private": private, "--regular": [regular] if regular else []}
    if Path(data).is_file():
        _must_have(data, options)
        return {name: _column(data, name) for name in wanted}
    found = _images(data, folder, regular, private[0])
    known = {
        found.regular_name: values(found.regular_classes, found.regular),
        found.private_name: values(found.private_classes, found.private),
    }
    for option, names in options.items():
        for name in names:
            errors.choice(data, option, name, tuple(known))
    return known


def _images(
    data: str, folder: Folder, regular: str | None = None, private: str | None = None
) -> Any:
    from tacit.data import datasets

    if data in datasets.TWICE_NAMES:  # their labels have names of their own
        return datasets.load_twice(data, **folder.options)
    return datasets.load_twice(data, regular, private, **folder.options)


def _column(data: str, name: str) -> Values:
    """Read a column as text or whole numbers; in a CSV file "07" and "7" are two values."""
    from tacit.data.datasets.arrow import read_table
    from tacit.data.datasets.twice import coded

    if not Path(data).is_file():
        errors.refuse(data, "--private", "one label", name, "Only files may have several.")
    codes, classes = coded(read_table(Path(data), words=name)[name], name, data)
    return values(classes, codes)


def _must_have(data: str, options: dict[str, list[str]]) -> None:
    """Refuse a name that no column has.

    The columns of a CSV file are not listed: without a header its first line is somebody's row.
    """
    has = tables.names(data)
    more = ", …" if len(has) > _MOST_NAMES else ""
    known = data.lower().endswith((".parquet", ".pq"))
    remedy = f"It has {', '.join(has[:_MOST_NAMES])}{more}." if known else "Has it a header?"
    for option, names in options.items():
        for name in names:
            if name not in has:
                errors.refuse(data, option, "one of its columns", name, remedy)


def _repeats(data: str, names: list[str], schema: Any) -> bool:
    """Check whether two rows have the same values there; all nulls are equal."""
    seen: set[tuple[str, ...]] = set()
    rows = 0
    for batch in tables.batches(data, schema, words=names[0]):
        found = (map(str, batch.column(name).to_pylist()) for name in names)
        seen.update(zip(*found, strict=True))
        rows += batch.num_rows
        if len(seen) < rows:
            return True
    return False


def values(classes: tuple[Any, ...], codes: Any) -> Values:
    """Map codes back to labels."""
    return np.asarray(np.array(classes)[codes])
