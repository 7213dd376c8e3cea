r"""Parquet files of released rows, bound to their certificate.

Besides the rows, a file holds a head, the mechanism and the certificate. The certificate names the
SHA-256 of all the others:

.. math:: H(\text{head}, \text{mechanism}, \text{name}_1, \text{type}_1, H(\text{column}_1), \dots)

so that rows with the metadata of another file, missing or additional rows, and another order are
refused. The head lists the identifiers of the releases that the rows are from, drawn at random when
they were released: the same release is refused when it is read twice. A hash does not stop somebody
who rewrites both rows and digest: sign the certificate (`tacit account sign`) to prove its origin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.local.persons import ASSUMED_ONE, PerPerson
from tacit.privacy import canonical, errors
from tacit.privacy.certificate import Artifact

FORMAT = "tacit-reports/2"
Columns = dict[str, npt.NDArray[Any]]
HEAD, CERTIFICATE, MECHANISM = b"tacit.reports", b"tacit.certificate", b"tacit.mechanism"
MOST_BYTES = 1 << 30
"""Limit of a file's decoded rows, unless the reader allows more: small files can hold many."""
_BATCH_ROWS = 1 << 16
_ENCODED, _PAGES = 8, 1 << 20
"""A byte may be four in a page, and four more for its place in a dictionary; pages have headers."""


@dataclass(frozen=True)
class Head:
    """Metadata of the rows besides their mechanism."""

    labelled: bool
    seeded: bool
    releases: tuple[str, ...]
    per_person: PerPerson = ASSUMED_ONE

    def to_bytes(self) -> bytes:
        body = {"format": FORMAT, "labelled": self.labelled, "seeded": self.seeded}
        several = {} if self.per_person == ASSUMED_ONE else {"per_person": asdict(self.per_person)}
        return canonical.text({**body, **several, "releases": list(self.releases)}).encode()

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Head:
        """Read a head; refuse any other form."""
        try:
            body = json.loads(content)
            kind = body["format"]
            per_person = PerPerson(**body.get("per_person", {}))
            releases = tuple(body.get("releases", ()))
            made = cls(body["labelled"], body["seeded"], releases, per_person)
            texts = all(isinstance(one, str) for one in made.releases)
            fits = made.releases and texts and made.to_bytes() == content
        except (KeyError, ValueError, TypeError, AttributeError):
            kind, fits = None, False
        if kind == "tacit-reports/1":
            raise errors.InvalidData(
                f"{where}: its rows must be bound to its certificate, as in {FORMAT}. "
                "Write it again where the reports were drawn."
            )
        if not fits:
            raise errors.InvalidData(f"{where}: it must be a Parquet file of {FORMAT}.")
        return made


class Binding:
    """The digest of head, mechanism and rows; it does not depend on the batches."""

    def __init__(self, mechanism: bytes) -> None:
        self._mechanism = canonical.sha256(mechanism)
        self._columns: dict[str, tuple[str, tuple[int, ...], Any]] = {}
        self._bytes = self._rows = 0

    def add(self, columns: Columns) -> None:
        """Add the next rows."""
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
        """Return the artifact that the certificate of the rows names."""
        columns = [
            [name, kind, list(shape), digest.hexdigest()]
            for name, (kind, shape, digest) in sorted(self._columns.items())
        ]
        body = [head.to_bytes().decode(), self._mechanism, self._rows, columns]
        return Artifact("reports", self._bytes, canonical.sha256(canonical.text(body)))


@dataclass(frozen=True, repr=False)
class Content:
    """The content of a file: its metadata, its rows, and their digest."""

    head: Head
    mechanism: bytes
    certificate: bytes
    columns: Columns
    artifact: Artifact


def read(path: Any, most_bytes: int) -> Content:
    """Read the metadata, then the rows in batches, up to the limit that the reader allows."""
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
    except Exception:  # Arrow's message about a damaged file may quote its content
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
    """Allocate columns for the rows that the file declares; refuse if they are too many."""
    if _encoded(file.metadata) > _ENCODED * most_bytes + _PAGES:
        raise errors.InvalidData(f"{where}: its pages must not be far larger than its rows.")
    rows, forms = file.metadata.num_rows, {}
    for field in file.schema_arrow:
        kind = field.type
        shape: tuple[int, ...] = (rows,)
        if hasattr(kind, "list_size"):
            kind, shape = kind.value_type, (rows, kind.list_size)
        forms[field.name] = (np.dtype(kind.to_pandas_dtype()), shape)
    if len(forms) < len(file.schema_arrow):
        raise errors.InvalidData(f"{where}: columns of reports must have distinct names.")
    if any(kind.kind not in "iuf" for kind, _ in forms.values()):
        raise errors.InvalidData(f"{where}: reports must be numbers.")
    size = sum(kind.itemsize * int(np.prod(shape)) for kind, shape in forms.values())
    if size > most_bytes:
        remedy = "Pass most_bytes to read more, if you know who wrote it."
        wanted = f"of at most {most_bytes:,} bytes when decoded"
        errors.refuse(where, "reports", wanted, f"{size:,} in {rows:,} rows", remedy)
    return {name: np.empty(shape, kind) for name, (kind, shape) in forms.items()}


def _encoded(metadata: Any) -> int:
    """Return the decompressed size of all pages, as the file states it; decoded it may be more."""
    groups = (metadata.row_group(at) for at in range(metadata.num_row_groups))
    return sum(
        group.column(at).total_uncompressed_size
        for group in groups
        for at in range(group.num_columns)
    )


def _parts(file: Any) -> Iterator[Columns]:
    for batch in file.iter_batches(batch_size=_BATCH_ROWS):
        yield {
            name: _to_numpy(column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }


def to_arrow(columns: Columns) -> Any:
    """Convert columns to an Arrow table."""
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
        raise errors.InvalidData("reports: columns must not have nulls.")
    if not hasattr(column.type, "list_size"):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    flat = column.flatten()
    if flat.null_count:
        raise errors.InvalidData("reports: columns must not have nulls.")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(-1, column.type.list_size)


def parquet() -> Any:
    """Import pyarrow.parquet, or raise an error that says how to install it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise errors.TacitError(
            "reports: Parquet needs the pyarrow package. pip install 'tacit[collect]'."
        ) from None
    return pyarrow.parquet
