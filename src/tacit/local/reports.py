"""Released rows with the channel that they came through, and nothing else about people.

`Reports` hold their mechanism and channel, so that learners know the exact law of the noise. A
Parquet file of reports holds certificate and mechanism in its metadata, and the certificate names
the digest of the rows (`tacit.local.report_files`).
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
from tacit.local import origins, persons, report_files, shuffling
from tacit.local.channels import ReportChannel
from tacit.local.persons import ASSUMED_ONE, PerPerson
from tacit.local.report_files import MOST_BYTES, Binding, Columns, Head
from tacit.privacy import artifact, errors, files, shown
from tacit.privacy.accounting.readers import DELTA, Readers
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Randomness, Seeded

REFUSED = (
    "That a row or a label does not fit what was declared: it is refused, and no report is sent."
)

GROUP_ROWS = 1 << 14
"""Rows per row group in a file: a fixed number, so that it cannot depend on raw values."""


class LocalMechanism(artifact.Storable, Protocol):
    """What `Reports` need of a mechanism that people run on their own device."""

    @property
    def schema(self) -> Schema: ...
    @property
    def classes(self) -> tuple[Any, ...] | None: ...
    @property
    def not_protected(self) -> tuple[str, ...]: ...
    def channel(self, labelled: bool | None = None) -> ReportChannel: ...
    def release(self, raw: Any, labels: Any = None, rng: Randomness | None = None) -> Reports: ...


def certify(
    mechanism: Any,
    channel: ReportChannel,
    rng: Randomness | None = None,
    further: tuple[str, ...] = (),
    per_person: PerPerson = ASSUMED_ONE,
) -> Certificate:
    """Issue the certificate of a person's reports: one, unless `per_person` says that it is more.

    `further` sentences name more that is not protected. A mechanism may say what people are asked
    (`about`).
    """
    return Certificate.issue(
        per_person.event(channel),
        guarantee=per_person.guarantee(channel),
        assumptions=(*channel.assumptions, *per_person.assumptions(channel)),
        not_protected=(
            *mechanism.not_protected,
            getattr(mechanism, "refused", REFUSED),
            *per_person.not_protected,
            *further,
        ),
        rng=rng,
        about=getattr(mechanism, "about", ()),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Reports:
    """A table of released rows.

    Parameters
    ----------
    mechanism
        The mechanism that released them, at the ε that it was run with.
    columns : dict of str to array
        Released columns of equal length; what is outside the mechanism's support is refused.
    channel : ReportChannel
        The channel that they came through, one of the mechanism's own: with or without a label.
    seeded : bool
        Whether a reproducible generator drew the noise: such reports protect nobody.
    releases : tuple of str
        Which rows of which releases they are (`tacit.local.origins`); all of a new one unless
        given.
    per_person : PerPerson
        How many of them are of one person, at most, and whether that was enforced.
    """

    mechanism: Any
    columns: Columns
    channel: ReportChannel
    seeded: bool = False
    releases: tuple[str, ...] = field(default_factory=origins.fresh)
    per_person: PerPerson = ASSUMED_ONE

    def __post_init__(self) -> None:
        self._must_be_unchanged()
        columns = self.channel.check(self.columns)
        for column in columns.values():
            column.flags.writeable = False
        object.__setattr__(self, "columns", columns)
        releases = origins.settled("reports", self.releases, len(self))
        object.__setattr__(self, "releases", releases)

    @property
    def labelled(self) -> bool:
        """Whether a report holds a label."""
        return self.channel.labelled

    @property
    def event(self) -> Event:
        """The event that ran on one person's rows."""
        return self.per_person.event(self.channel)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee towards each person who reported."""
        return self.per_person.guarantee(self.channel)

    def __repr__(self) -> str:
        """Show their number and guarantee in one line, and no report."""
        return shown.line("Reports", self._about(), self.guarantee)

    def _repr_html_(self) -> str:
        return shown.table("Reports", {**self._about(), "guarantee": self.guarantee})

    def _about(self) -> dict[str, Any]:
        about = {"reports": len(self), "mechanism": str(self.mechanism.kind)}
        return {**about, "labelled": self.labelled, "seeded": self.seeded}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, chosen: slice | npt.NDArray[Any]) -> Reports:
        """Choose rows, each at most once; they stay rows of their release."""
        columns = {name: column[chosen] for name, column in self.columns.items()}
        releases = origins.chosen("reports", self.releases, chosen)
        return replace(self, columns=columns, releases=releases)

    @property
    def schema(self) -> Schema:
        """The schema of the raw rows, which are not in here."""
        schema: Schema = self.mechanism.schema
        return schema

    @cached_property
    def certificate(self) -> Certificate:
        """The certificate: guarantee, events and what is not protected."""
        stream = Seeded(0) if self.seeded else None
        return certify(self.mechanism, self.channel, stream, per_person=self.per_person)

    def certify(self, *further: str, readers: Readers | None = None) -> Certificate:
        """Issue the certificate with further sentences about what is not protected.

        `readers` is what readers of a result learn, if it is a function of the multiset of reports.
        """
        own = self.certificate
        said = tuple(dict.fromkeys((*own.not_protected, *further)))
        return replace(own, not_protected=said, readers=readers)

    def readers(self, delta: float = DELTA, fake: int = 0) -> Readers:
        """Return what readers learn from results of these reports, if they never see a report.

        The guarantee is that of `tacit.shuffled`, for the reports of the smallest kind (partition
        or sheet); `fake` of them may be made up.
        """
        return shuffling.readers(self, delta, fake)

    def as_multiset(self) -> Reports:
        """Return the same reports in an order that depends on their multiset alone.

        Learners begin with it, so that the place of a report in a file, which may tell who sent it
        and when, cannot reach a result. Sorted reports are permuted, always in the same way:
        neighbours are not alike, so that each n-th report is as good as a random one.
        """
        count = len(self)
        if not count:
            return self
        bits = [np.ascontiguousarray(self.columns[name]) for name in sorted(self.columns)]
        rows = np.hstack([one.reshape(count, -1).view(np.uint8) for one in bits])
        keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))[:, 0]
        order = np.argsort(keys, kind="stable")[np.random.default_rng(0).permutation(count)]
        columns = {name: column[order] for name, column in self.columns.items()}
        known = (self.mechanism, columns, self.channel, self.seeded)
        made = Reports(*known, per_person=self.per_person)
        made.__dict__["certificate"] = self.certificate  # with its date
        return made

    def shared(self, application: str = "join", level: str = "latent") -> Reports:
        """Return the same reports for a partner, without the parts that must stay in-house.

        A file of reports holds their mechanism: if that is not private towards the rows that it was
        fitted on, a partner gets the channel alone. The reports themselves are about codewords or
        latents that were learned from those rows: many reports together reveal something of them.
        """
        mechanism = self.mechanism.shared(application, level)
        return replace(self, mechanism=mechanism, columns=dict(self.columns))

    @staticmethod
    def concatenate(parts: Sequence[Reports]) -> Reports:
        """Join several tables that came through the same channel.

        The same row of a release among them twice is refused: that person would count twice.
        """
        first = parts[0] if parts else None
        if first is None:
            errors.refuse("concatenate", "parts", "at least one", 0)
        mark = artifact.fingerprint(first.mechanism)
        for part in parts[1:]:
            if part.channel != first.channel or artifact.fingerprint(part.mechanism) != mark:
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
        per_person = persons.joined([part.per_person for part in parts])
        return Reports(first.mechanism, columns, first.channel, seeded, releases, per_person)

    def _must_be_unchanged(self) -> None:
        if self.mechanism.channel(self.labelled) != self.channel:
            raise errors.InvalidData(
                "reports: channel must be their mechanism's own. If the mechanism was changed "
                "after the release, fit another object."
            )

    def write(self, path: str | Path) -> Path:
        """Write Parquet with mechanism and certificate in its metadata, bound to the rows."""
        given = (self.mechanism, self.channel, self.seeded, self.per_person)
        with ReportsWriter(path, *given) as writer:
            writer.add(self)
        return Path(path)

    @staticmethod
    def read(path: str | Path, *, most_bytes: int = MOST_BYTES) -> Reports:
        """Read a Parquet file; rows, mechanism and certificate must be as they were written.

        A file whose rows would take more than `most_bytes` of memory is refused before they are
        read.
        """
        content, where = report_files.read(path, most_bytes), str(path)
        mechanism, head = artifact.unpack(content.mechanism, where), content.head
        try:
            certificate = Certificate.from_json(content.certificate)
            certificate.verify(content.artifact)
        except errors.CertificateError as error:
            raise errors.InvalidData(f"{where}: {error}") from None
        channel, per_person = mechanism.channel(head.labelled), head.per_person
        if certificate.event != per_person.event(channel) or certificate.seeded != head.seeded:
            raise errors.InvalidData(f"{where}: its certificate is about another mechanism.")
        try:
            known = (head.seeded, head.releases, per_person)
            return Reports(mechanism, content.columns, channel, *known)
        except errors.InvalidData as error:
            raise errors.InvalidData(f"{where}: {error}") from None


class ReportsWriter:
    """A writer of reports to Parquet, in batches; the file has no name until all is written.

    A process that is killed leaves no reports that could be read beside a second draw.
    """

    def __init__(
        self,
        path: str | Path,
        mechanism: Any,
        channel: ReportChannel,
        seeded: bool = False,
        per_person: PerPerson = ASSUMED_ONE,
    ) -> None:
        self.path, self.mechanism = Path(path), mechanism
        self.channel, self.seeded, self.per_person = channel, seeded, per_person
        self._releases: list[str] = []
        self.count = 0
        self._writer: Any = None
        self._pending: Any = None

    def __enter__(self) -> ReportsWriter:
        files.must_be_free("reports", self.path)
        self._draft = files.Draft(self.path)
        return self

    def add(self, reports: Reports) -> None:
        """Append a batch that came through the writer's channel."""
        if reports.mechanism is not self.mechanism or reports.channel != self.channel:
            raise errors.InvalidData("reports: a batch must come through the writer's channel.")
        if reports.per_person != self.per_person:
            raise errors.InvalidData("reports: a batch must have as many rows of a person.")
        if self.per_person.enforced and reports.per_person is not self.per_person:
            raise errors.InvalidData(
                "reports: the rows of each person must be drawn once for the whole file. Join "
                "releases with Reports.concatenate, which does not certify the names."
            )
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
        """Write whole row groups; keep the rest for the next batch unless this is the last."""
        import pyarrow as pa

        if self._pending is not None:
            table = pa.concat_tables([self._pending, table])
        full = len(table) if last else len(table) - len(table) % GROUP_ROWS
        if full:
            self._writer.write_table(table.slice(0, full).combine_chunks(), GROUP_ROWS)
        self._pending = table.slice(full)

    def _end(self) -> None:
        """Write head and certificate last: they name all releases and the digest of all rows."""
        origins.must_be_once("reports", self._releases)
        self._flush(self._pending.slice(0, 0), last=True)
        stream = Seeded(0) if self.seeded else None
        issued = certify(self.mechanism, self.channel, stream, per_person=self.per_person)
        releases = tuple(self._releases)
        head = Head(self.channel.labelled, self.seeded, releases, self.per_person)
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
