"""Released rows with the channel that they came through, and nothing else about anybody.

A `Reports` carries its mechanism, so whoever learns from it knows the exact law of the noise. The
Parquet form holds the certificate and the mechanism in the file's metadata: one file is enough, and
its certificate names the digest of its rows (`tacit.local.report_files`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit.data.schema import Schema
from tacit.local import origins, report_files
from tacit.local.report_files import MOST_BYTES, Binding, Columns, Head
from tacit.privacy import artifact, errors, files
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Randomness, Seeded

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
    releases : tuple of str
        Which rows of which releases they are (`tacit.local.origins`); all of a new one unless
        given.
    """

    mechanism: Any
    columns: Columns
    labelled: bool
    seeded: bool = False
    releases: tuple[str, ...] = field(default_factory=origins.fresh)
    event: Event = field(init=False)
    """What ran on one person's row."""
    guarantee: Guarantee = field(init=False)
    """Towards each person who reported."""

    def __post_init__(self) -> None:
        columns = self.mechanism.check(self.columns, self.labelled)
        for column in columns.values():
            column.flags.writeable = False
        object.__setattr__(self, "columns", columns)
        releases = origins.settled("reports", self.releases, len(self))
        object.__setattr__(self, "releases", releases)
        # What ran is fixed now, whatever becomes of the mechanism.
        object.__setattr__(self, "event", self.mechanism.event(self.labelled))
        object.__setattr__(self, "guarantee", self.mechanism.guarantee(self.labelled))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, chosen: slice | npt.NDArray[Any]) -> Reports:
        """Chosen rows, each at most once; they stay rows of their release."""
        columns = {name: column[chosen] for name, column in self.columns.items()}
        releases = origins.chosen("reports", self.releases, chosen)
        return Reports(self.mechanism, columns, self.labelled, self.seeded, releases)

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
        return Reports(mechanism, dict(self.columns), self.labelled, self.seeded, self.releases)

    @staticmethod
    def concatenate(parts: Sequence[Reports]) -> Reports:
        """One table out of several that came through the very same channel.

        The same row of a release among them twice is refused: that person would count twice.
        """
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
        releases = tuple(one for part in parts for one in part.releases)
        origins.must_be_once("concatenate", releases)
        columns = {
            name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns
        }
        seeded = any(part.seeded for part in parts)
        return Reports(first.mechanism, columns, first.labelled, seeded, releases)

    def _must_be_unchanged(self) -> None:
        if self.mechanism.event(self.labelled) != self.event:
            raise errors.InvalidData(
                "reports: their mechanism was changed after the release. Fit another object."
            )

    def write(self, path: str | Path) -> Path:
        """Write Parquet with mechanism and certificate in its metadata, bound to the rows."""
        with ReportsWriter(path, self.mechanism, self.labelled, self.seeded) as writer:
            writer.add(self)
        return Path(path)

    @staticmethod
    def read(path: str | Path, *, most_bytes: int = MOST_BYTES) -> Reports:
        """Read Parquet back: rows, mechanism and certificate must be those that were written.

        A file whose rows would take more than `most_bytes` of memory is refused before they are
        read.
        """
        found, where = report_files.read(path, most_bytes), str(path)
        mechanism, head = artifact.unpack(found.mechanism, where), found.head
        try:
            certificate = Certificate.from_json(found.certificate)
            certificate.verify(found.artifact)
        except errors.CertificateError as error:
            raise errors.InvalidData(f"{where}: {error}") from None
        about = certificate.event == mechanism.event(head.labelled)
        if not about or certificate.seeded != head.seeded:
            raise errors.InvalidData(f"{where}: its certificate is about another mechanism.")
        try:
            return Reports(mechanism, found.columns, head.labelled, head.seeded, head.releases)
        except errors.InvalidData as error:
            raise errors.InvalidData(f"{where}: {error}") from None


class ReportsWriter:
    """Reports to a Parquet file, batch by batch, in a file without a name until all went well.

    A process that is killed leaves nothing that could be read beside a second draw.
    """

    def __init__(
        self,
        path: str | Path,
        mechanism: Any,
        labelled: bool,
        seeded: bool = False,
    ) -> None:
        self.path, self.mechanism = Path(path), mechanism
        self.labelled, self.seeded = labelled, seeded
        self._releases: list[str] = []
        self.count = 0
        self._writer: Any = None
        self._pending: Any = None

    def __enter__(self) -> ReportsWriter:
        files.must_be_free("reports", self.path)
        self._draft = files.Draft(self.path)
        return self

    def add(self, reports: Reports) -> None:
        """Append a batch that came from the writer's own mechanism."""
        if reports.mechanism is not self.mechanism or reports.labelled != self.labelled:
            raise errors.InvalidData("reports: a batch must come from the writer's mechanism.")
        reports._must_be_unchanged()
        if self._writer is not None and reports.seeded and not self.seeded:
            raise errors.InvalidData("reports: seeded and secure batches must not share a file.")
        self.seeded |= reports.seeded
        table = report_files.to_arrow(reports.columns)
        if self._writer is None:
            self._begin(table.schema)
        self._flush(table.cast(self._schema))
        self._binding.add(reports.columns)
        self._releases += reports.releases
        self.count += len(reports)

    def _begin(self, schema: Any) -> None:
        packed = artifact.pack(self.mechanism)
        self._binding = Binding(packed)
        self._schema = schema.with_metadata({report_files.MECHANISM: packed})
        self._writer = report_files.parquet().ParquetWriter(
            self._draft.file, self._schema, compression="zstd", write_page_checksum=True
        )

    def _flush(self, table: Any, last: bool = False) -> None:
        """Write whole row groups; the rest waits for the next batch, or goes out last."""
        import pyarrow as pa

        if self._pending is not None:
            table = pa.concat_tables([self._pending, table])
        full = len(table) if last else len(table) - len(table) % GROUP_ROWS
        if full:
            self._writer.write_table(table.slice(0, full).combine_chunks(), GROUP_ROWS)
        self._pending = table.slice(full)

    def _end(self) -> None:
        """Head and certificate come last: they name all releases, and the digest of all rows."""
        origins.must_be_once("reports", self._releases)
        self._flush(self._pending.slice(0, 0), last=True)
        issued = certify(self.mechanism, self.labelled, Seeded(0) if self.seeded else None)
        head = Head(self.labelled, self.seeded, tuple(self._releases))
        bound = replace(issued, artifact=self._binding.artifact(head))
        said = {report_files.HEAD: head.to_bytes(), report_files.CERTIFICATE: bound.to_json()}
        self._writer.add_key_value_metadata(said)
        self._writer.close()
        self._draft.place()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._writer is not None and kind is None:
                self._end()
        finally:
            if self._writer is not None:
                self._writer.close()
            self._draft.close()
        if kind is None and self._writer is None:
            raise errors.InvalidData("reports: there must be at least one row.")
