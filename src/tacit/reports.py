"""Released rows with the channel that they came through, and nothing else about anybody.

A `Reports` carries its mechanism, so whoever learns from it knows the exact law of the noise. The
Parquet form holds the certificate and the mechanism in the file's metadata: one file is enough.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit import artifact, errors
from tacit.certificate import Certificate
from tacit.events import Event
from tacit.guarantees import Guarantee
from tacit.randomness import Randomness, Seeded
from tacit.schema import Schema

FORMAT = "tacit-reports/1"
Columns = dict[str, npt.NDArray[Any]]
_FORMAT, _CERTIFICATE, _MECHANISM = b"tacit.reports", b"tacit.certificate", b"tacit.mechanism"
_METADATA = (_FORMAT, _CERTIFICATE, _MECHANISM)


REFUSED = (
    "That a row or a label does not fit what was declared: it is refused, and no report is sent."
)

GROUP_ROWS = 1 << 14
"""Rows of a row group in a file, always: groups of another size could depend on raw values."""


class LocalMechanism(artifact.Storable, Protocol):
    """A mechanism that people run on their own device: what `Reports` needs of it."""

    @property
    def schema(self) -> Schema: ...
    @property
    def classes(self) -> tuple[Any, ...] | None: ...
    @property
    def not_protected(self) -> tuple[str, ...]: ...
    def event(self, labelled: bool) -> Event: ...
    def guarantee(self, labelled: bool) -> Guarantee: ...
    def check(self, columns: Columns, labelled: bool) -> Columns: ...
    def release(self, raw: Any, labels: Any = None, rng: Randomness | None = None) -> Reports: ...


def certify(
    mechanism: LocalMechanism,
    labelled: bool,
    rng: Randomness | None = None,
    further: tuple[str, ...] = (),
) -> Certificate:
    """The certificate of one person's report, with `further` things that are not protected."""
    event, guarantee = mechanism.event(labelled), mechanism.guarantee(labelled)
    return _issue(mechanism, event, guarantee, rng, further)


def _issue(
    mechanism: LocalMechanism,
    event: Event,
    guarantee: Guarantee,
    rng: Randomness | None,
    further: tuple[str, ...],
) -> Certificate:
    return Certificate.issue(
        event,
        guarantee=guarantee,
        assumptions=getattr(mechanism, "assumptions", ()),
        not_protected=(*mechanism.not_protected, REFUSED, *further),
        rng=rng,
    )


@dataclass(frozen=True, eq=False)
class Reports:
    """A table of released rows.

    Parameters
    ----------
    mechanism
        The mechanism that released them, at the ε that it was run with.
    columns : dict of str to array
        Released columns of equal length; what is outside the mechanism's support is refused.
    labelled : bool
        Whether the label is part of a report.
    seeded : bool
        Whether a reproducible generator drew the noise: such reports protect nobody.
    """

    mechanism: Any
    columns: Columns
    labelled: bool
    seeded: bool = False
    event: Event = field(init=False)
    """What ran on one person's row."""
    guarantee: Guarantee = field(init=False)
    """Towards each person who reported."""

    def __post_init__(self) -> None:
        columns = self.mechanism.check(self.columns, self.labelled)
        for column in columns.values():
            column.flags.writeable = False
        object.__setattr__(self, "columns", columns)
        # What ran is fixed now, whatever becomes of the mechanism.
        object.__setattr__(self, "event", self.mechanism.event(self.labelled))
        object.__setattr__(self, "guarantee", self.mechanism.guarantee(self.labelled))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, chosen: slice | npt.NDArray[Any]) -> Reports:
        columns = {name: column[chosen] for name, column in self.columns.items()}
        return Reports(self.mechanism, columns, self.labelled, self.seeded)

    @property
    def schema(self) -> Schema:
        """Of the raw rows that nobody sees."""
        schema: Schema = self.mechanism.schema
        return schema

    @cached_property
    def certificate(self) -> Certificate:
        """Guarantee, events and what is not protected."""
        return self.certify()

    def certify(self, *further: str) -> Certificate:
        """The same with further sentences about what is not protected."""
        stream = Seeded(0) if self.seeded else None
        return _issue(self.mechanism, self.event, self.guarantee, stream, further)

    def shared(self, application: str = "join", level: str = "latent") -> Reports:
        """The same reports for a partner, without what must not leave the mechanism's house.

        A file of reports holds their mechanism: where that is not private towards the rows that it
        was fitted on, a partner gets the channel alone. The reports themselves are about codewords
        or latents that were learned from those rows: many of them tell of these rows too.
        """
        mechanism = self.mechanism.shared(application, level)
        return Reports(mechanism, dict(self.columns), self.labelled, self.seeded)

    @staticmethod
    def concatenate(parts: Sequence[Reports]) -> Reports:
        """One table out of several that came through the very same channel."""
        first = parts[0] if parts else None
        if first is None:
            errors.refuse("concatenate", "parts", "at least one", 0)
        mark = artifact.fingerprint(first.mechanism)
        for part in parts[1:]:
            if part.labelled != first.labelled or artifact.fingerprint(part.mechanism) != mark:
                raise errors.InvalidData(
                    "concatenate: reports must come through equal channels: the same mechanism, "
                    "epsilon and labels. Learn from each part on its own."
                )
        columns = {
            name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns
        }
        seeded = any(part.seeded for part in parts)
        return Reports(first.mechanism, columns, first.labelled, seeded)

    def _must_be_unchanged(self) -> None:
        if self.mechanism.event(self.labelled) != self.event:
            raise errors.InvalidData(
                "reports: their mechanism was changed after the release. Fit another object."
            )

    def write(self, path: str | Path) -> Path:
        """Write Parquet with certificate and mechanism in its metadata."""
        with ReportsWriter(path, self.mechanism, self.labelled, self.seeded) as writer:
            writer.add(self)
        return Path(path)

    @staticmethod
    def read(path: str | Path) -> Reports:
        """Read Parquet back; the mechanism in it is checked byte for byte."""
        pq = _parquet()
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                metadata = file.schema_arrow.metadata or {}
                table = file.read()
                visible = file.metadata.metadata or {}
        except FileNotFoundError:
            errors.refuse("reports", "path", "an existing file", str(path), "Check the path.")
        except Exception:  # whatever Arrow says of a damaged file may quote its content
            raise errors.InvalidData(f"{path}: it must be a Parquet file of reports.") from None
        # A Parquet file holds its metadata twice: other programs show the second copy.
        if any(visible.get(name) != metadata.get(name) for name in _METADATA):
            raise errors.InvalidData(f"{path}: a byte of its metadata was changed.")
        return _from_arrow(table, metadata, str(path))


class ReportsWriter:
    """Reports to a Parquet file, batch by batch; nothing is left behind unless all went well."""

    def __init__(
        self, path: str | Path, mechanism: Any, labelled: bool, seeded: bool = False
    ) -> None:
        self.path, self.mechanism = Path(path), mechanism
        self.labelled, self.seeded = labelled, seeded
        self.count = 0
        self._writer: Any = None
        self._pending: Any = None
        self._partial: Path | None = None

    def __enter__(self) -> ReportsWriter:
        if not self.path.parent.is_dir():
            errors.refuse("reports", "folder", "an existing one", str(self.path.parent))
        if self.path.exists():
            remedy = "It may be the only draw of these reports: choose another."
            errors.refuse("reports", "path", "new", str(self.path), remedy)
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}-", dir=self.path.parent)
        os.close(handle)
        self._partial = Path(name)
        return self

    def add(self, reports: Reports) -> None:
        """Append a batch that came from the writer's own mechanism."""
        if reports.mechanism is not self.mechanism or reports.labelled != self.labelled:
            raise errors.InvalidData("reports: a batch must come from the writer's mechanism.")
        reports._must_be_unchanged()
        if self._writer is not None and reports.seeded and not self.seeded:
            raise errors.InvalidData("reports: seeded and secure batches must not share a file.")
        self.seeded |= reports.seeded
        table = _to_arrow(reports.columns)
        if self._writer is None:
            metadata = _metadata(self.mechanism, self.labelled, self.seeded)
            self._schema = table.schema.with_metadata(metadata)
            self._writer = _parquet().ParquetWriter(
                self._partial, self._schema, compression="zstd", write_page_checksum=True
            )
        self._flush(table.cast(self._schema))
        self.count += len(reports)

    def _flush(self, table: Any, last: bool = False) -> None:
        """Write whole row groups; the rest waits for the next batch, or goes out last."""
        import pyarrow as pa

        if self._pending is not None:
            table = pa.concat_tables([self._pending, table])
        full = len(table) if last else len(table) - len(table) % GROUP_ROWS
        if full:
            self._writer.write_table(table.slice(0, full).combine_chunks(), GROUP_ROWS)
        self._pending = table.slice(full)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._partial is not None
        try:
            if self._writer is not None:
                if kind is None:
                    self._flush(self._pending.slice(0, 0), last=True)
                self._writer.close()
            if kind is None and self._writer is not None:
                self._partial.chmod(0o644)
                os.replace(self._partial, self.path)
        finally:
            self._partial.unlink(missing_ok=True)
        if kind is None and self._writer is None:
            raise errors.InvalidData("reports: there must be at least one row.")


def _metadata(mechanism: Any, labelled: bool, seeded: bool) -> dict[bytes, bytes]:
    certificate = certify(mechanism, labelled, Seeded(0) if seeded else None)
    head = {"format": FORMAT, "labelled": labelled, "seeded": seeded}
    return {
        _FORMAT: json.dumps(head).encode(),
        _CERTIFICATE: certificate.to_json().encode(),
        _MECHANISM: artifact.pack(mechanism),
    }


def _from_arrow(table: Any, metadata: dict[bytes, bytes], where: str) -> Reports:
    try:
        head = json.loads(metadata[_FORMAT])
        labelled, seeded = bool(head["labelled"]), bool(head["seeded"])
        stated, packed = metadata[_CERTIFICATE], metadata[_MECHANISM]
        if head["format"] != FORMAT:
            raise KeyError
    except (KeyError, ValueError, TypeError):
        raise errors.InvalidData(f"{where}: it must be a Parquet file of {FORMAT}.") from None
    mechanism = artifact.unpack(packed, where)
    try:
        certificate = Certificate.from_json(stated)
        certificate.verify()
    except errors.CertificateError as error:
        raise errors.InvalidData(f"{where}: {error}") from None
    if certificate.event != mechanism.event(labelled) or certificate.seeded != seeded:
        raise errors.InvalidData(f"{where}: its certificate is about another mechanism.")
    try:
        columns = {name: _to_numpy(table.column(name)) for name in table.column_names}
        return Reports(mechanism, columns, labelled, seeded)
    except errors.InvalidData as error:
        raise errors.InvalidData(f"{where}: {error}") from None


def _to_arrow(columns: Columns) -> Any:
    import pyarrow as pa

    arrays = {}
    for name, column in columns.items():
        flat = pa.array(column.reshape(-1))
        arrays[name] = (
            pa.FixedSizeListArray.from_arrays(flat, column.shape[1]) if column.ndim == 2 else flat
        )
    return pa.table(arrays)


def _to_numpy(column: Any) -> npt.NDArray[Any]:
    import pyarrow as pa

    merged = column.combine_chunks()
    merged = pa.concat_arrays(merged.chunks) if isinstance(merged, pa.ChunkedArray) else merged
    if merged.null_count:
        raise errors.InvalidData("reports: a column must be without gaps.")
    if pa.types.is_fixed_size_list(merged.type):
        flat = merged.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat).reshape(len(merged), merged.type.list_size)
    return np.asarray(merged.to_numpy(zero_copy_only=False))


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise errors.TacitError(
            "reports: Parquet needs the pyarrow package. pip install 'tacit[collect]'."
        ) from None
    return pyarrow.parquet
