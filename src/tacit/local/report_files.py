r"""Parquet files of released rows, each bound to what is said about them.

A file holds, beside the rows, a head, the mechanism and the certificate. The certificate names the
SHA-256 of all the others:

.. math:: H(\text{head}, \text{mechanism}, \text{name}_1, \text{type}_1, H(\text{column}_1), \dots)

so that rows under another file's metadata, rows left out or added, and another order are refused.
The head has the numbers of the releases that the rows are from: drawn at random, once, when they
were released. Reading the same release twice is refused by them. Who rewrites rows and digest alike
is not stopped by a hash: sign the certificate (`tacit account sign`) to be sure whose word it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors
from tacit.privacy.certificate import Artifact

FORMAT = "tacit-reports/2"
Columns = dict[str, npt.NDArray[Any]]
HEAD, CERTIFICATE, MECHANISM = b"tacit.reports", b"tacit.certificate", b"tacit.mechanism"
MOST_BYTES = 1 << 30
"""Of the rows of a file, decoded, unless the reader allows more: a small file can hold many."""
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Head:
    """What is said of the rows beside their mechanism."""

    labelled: bool
    seeded: bool
    releases: tuple[str, ...]

    def to_bytes(self) -> bytes:
        body = {"format": FORMAT, "labelled": self.labelled, "seeded": self.seeded}
        return json.dumps({**body, "releases": list(self.releases)}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Head:
        """Read it back; any other form is refused."""
        try:
            body = json.loads(content)
            kind = body["format"]
            made = cls(body["labelled"], body["seeded"], tuple(body.get("releases", ())))
            texts = all(isinstance(one, str) for one in made.releases)
            fits = made.releases and texts and made.to_bytes() == content
        except (KeyError, ValueError, TypeError, AttributeError):
            kind, fits = None, False
        if kind == "tacit-reports/1":
            raise errors.InvalidData(
                f"{where}: nothing binds its rows to its certificate, as {FORMAT} does. "
                "Write it again where the reports were drawn."
            )
        if not fits:
            raise errors.InvalidData(f"{where}: it must be a Parquet file of {FORMAT}.")
        return made


class Binding:
    """The digest of head, mechanism and rows, however the rows come in batches."""

    def __init__(self, mechanism: bytes) -> None:
        self._mechanism = hashlib.sha256(mechanism).hexdigest()
        self._columns: dict[str, tuple[str, tuple[int, ...], Any]] = {}
        self._bytes = self._rows = 0

    def add(self, columns: Columns) -> None:
        """Take the next rows in."""
        for name, column in columns.items():
            column = np.ascontiguousarray(column, column.dtype.newbyteorder("<"))
            form = (column.dtype.str, column.shape[1:])
            kept = self._columns.setdefault(name, (*form, hashlib.sha256()))
            if kept[:2] != form:
                raise errors.InvalidData("reports: batches must have columns of one type.")
            kept[2].update(column.data if column.size else b"")
            self._bytes += column.nbytes
        self._rows += len(next(iter(columns.values())))

    def artifact(self, head: Head) -> Artifact:
        """What the certificate of the rows names."""
        columns = [
            [name, kind, list(shape), digest.hexdigest()]
            for name, (kind, shape, digest) in sorted(self._columns.items())
        ]
        body = [head.to_bytes().decode(), self._mechanism, self._rows, columns]
        digest = hashlib.sha256(json.dumps(body).encode()).hexdigest()
        return Artifact("reports", self._bytes, digest)


@dataclass(frozen=True)
class Content:
    """A file that was read: its metadata, its rows, and what they come to."""

    head: Head
    mechanism: bytes
    certificate: bytes
    columns: Columns
    artifact: Artifact


def read(path: Any, most_bytes: int) -> Content:
    """Metadata first, then as many rows as the reader allows, a batch at a time."""
    where = str(path)
    try:
        with parquet().ParquetFile(path, page_checksum_verification=True) as file:
            head, mechanism, certificate = _metadata(file, where)
            columns = _room(file, most_bytes, where)
            binding, filled = Binding(mechanism), 0
            for part in _parts(file):
                size = len(next(iter(part.values())))
                for name, column in part.items():
                    columns[name][filled : filled + size] = column
                binding.add(part)
                filled += size
            if filled != file.metadata.num_rows:
                raise ValueError
    except (errors.InvalidData, errors.InvalidParameter):
        raise
    except FileNotFoundError:
        errors.refuse("reports", "path", "an existing file", where, "Check the path.")
    except Exception:  # whatever Arrow says of a damaged file may quote its content
        raise errors.InvalidData(f"{where}: it must be a Parquet file of reports.") from None
    return Content(head, mechanism, certificate, columns, binding.artifact(head))


def _metadata(file: Any, where: str) -> tuple[Head, bytes, bytes]:
    shown, inner = file.metadata.metadata or {}, file.schema_arrow.metadata or {}
    # A Parquet file holds its metadata twice: other programs show either copy.
    names = (HEAD, MECHANISM, CERTIFICATE)
    if any(inner.get(name, shown.get(name)) != shown.get(name) for name in names):
        raise errors.InvalidData(f"{where}: a byte of its metadata was changed.")
    head = Head.from_bytes(shown.get(HEAD, b""), where)
    if MECHANISM not in shown or CERTIFICATE not in shown:
        raise errors.InvalidData(f"{where}: it must be a Parquet file of {FORMAT}.")
    return head, shown[MECHANISM], shown[CERTIFICATE]


def _room(file: Any, most_bytes: int, where: str) -> Columns:
    """Empty columns for all the rows that the file says it has; refused where they are too many."""
    rows, forms = file.metadata.num_rows, {}
    for field in file.schema_arrow:
        kind = field.type
        shape: tuple[int, ...] = (rows,)
        if hasattr(kind, "list_size"):
            kind, shape = kind.value_type, (rows, kind.list_size)
        forms[field.name] = (np.dtype(kind.to_pandas_dtype()), shape)
    if len(forms) < len(file.schema_arrow):
        raise errors.InvalidData(f"{where}: columns of reports must have names of their own.")
    if any(kind.kind not in "iuf" for kind, _ in forms.values()):
        raise errors.InvalidData(f"{where}: reports must be numbers.")
    size = sum(kind.itemsize * int(np.prod(shape)) for kind, shape in forms.values())
    if size > most_bytes:
        remedy = "Pass most_bytes to read more, if you know who wrote it."
        wanted = f"of at most {most_bytes:,} bytes when decoded"
        errors.refuse(where, "reports", wanted, f"{size:,} in {rows:,} rows", remedy)
    return {name: np.empty(shape, kind) for name, (kind, shape) in forms.items()}


def _parts(file: Any) -> Iterator[Columns]:
    for batch in file.iter_batches(batch_size=_BATCH_ROWS):
        yield {
            name: _to_numpy(column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }


def to_arrow(columns: Columns) -> Any:
    """An Arrow table."""
    import pyarrow as pa

    arrays = {}
    for name, column in columns.items():
        flat = pa.array(column.reshape(-1))
        arrays[name] = (
            pa.FixedSizeListArray.from_arrays(flat, column.shape[1]) if column.ndim == 2 else flat
        )
    return pa.table(arrays)


def _to_numpy(column: Any) -> npt.NDArray[Any]:
    if column.null_count:
        raise errors.InvalidData("reports: a column must be without missing values.")
    if not hasattr(column.type, "list_size"):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    flat = column.flatten()
    if flat.null_count:
        raise errors.InvalidData("reports: a column must be without missing values.")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(-1, column.type.list_size)


def parquet() -> Any:
    """The package, or one line that says how to get it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise errors.TacitError(
            "reports: Parquet needs the pyarrow package. pip install 'tacit[collect]'."
        ) from None
    return pyarrow.parquet
