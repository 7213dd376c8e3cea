"""The database of campaigns: what people were asked, and what they answered."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import sqlalchemy as sql

from tacit.apps.service import keeping, tables, tokens
from tacit.apps.service.campaign import CLOSED, Campaign
from tacit.apps.service.keeping import BLOCK, STATUS, Place, Status
from tacit.apps.service.problems import Problem
from tacit.apps.service.tables import REPORT, VOTE
from tacit.apps.service.tokens import Secret
from tacit.apps.service.wire import Form, ReportForm, VoteForm, pack_each
from tacit.local.inference.validation import may_be_handed_out
from tacit.local.inference.votes import Votes
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors

_ID = re.compile(r"[A-Za-z0-9_-]{12}")
Item = tuple[str, Any]
"""A token, and its report or vote as received."""
ReceiptOrProblem = str | Problem
"""A receipt, or the problem if the answer was refused."""


class Store:
    """A database of campaigns.

    Parameters
    ----------
    engine
        SQLAlchemy engine.
    secret : Secret
        Key of the hashes in the database.
    """

    def __init__(self, engine: sql.Engine, secret: Secret) -> None:
        self.engine, self.secret = engine, secret
        self._known: dict[str, Campaign] = {}
        self._forms: dict[tuple[str, str], Form] = {}
        self._lock = Lock()

    # --- opening -------------------------------------------------------------------------------

    @classmethod
    def open(cls, url: str, secret: Path | None = None) -> Store:
        """Connect, create missing tables, and check the version and the secret.

        `secret` is a file; by default the one beside an SQLite database.
        """
        engine = _engine(url)
        path = _secret_file(engine.url, secret)
        try:
            with named_errors():
                tables.metadata.create_all(engine)
                with engine.begin() as connection:
                    return cls(engine, _matching(connection, path))
        except sql.exc.DatabaseError:
            engine.dispose()
            raise errors.InvalidData(
                "database: it must be undamaged, and made by this version of Tacit. Restore a "
                "backup, or use a new database."
            ) from None
        except errors.TacitError:
            engine.dispose()
            raise

    def ping(self) -> None:
        """Raise if the database does not respond."""
        with named_errors(), self.engine.connect() as connection:
            connection.execute(sql.select(sql.literal(1)))

    # --- campaigns -----------------------------------------------------------------------------

    def create(self, mechanism: Any, **settings: Any) -> tuple[Campaign, str]:
        """Create a campaign; return it with the owner's key, which is not stored."""
        made = Campaign(id=secrets.token_urlsafe(9), mechanism=mechanism, **settings)
        key = tokens.new()
        values = {
            "id": made.id,
            "title": made.title,
            "purpose": made.purpose,
            "fingerprint": made.fingerprint,
            "labelled": made.labelled,
            "question": made.question,
            "vote_epsilon": None if made.vote_epsilon is None else repr(made.vote_epsilon),
            "vote_by_class": made.vote_by_class,
            "opens": _text(made.opens),
            "closes": _text(made.closes),
            "minimum": made.minimum,
            "quota": made.quota,
            "owner": self.secret.owner(made.id, key),
        }
        content = {"artifact": artifact.pack(mechanism)}
        if hasattr(mechanism, "onnx") and (graph := mechanism.onnx()) is not None:
            content["encoder"] = graph
        named = [{"campaign": made.id, "name": n, "content": c} for n, c in content.items()]
        with named_errors(), self.engine.begin() as connection:
            connection.execute(tables.campaigns.insert(), values)
            connection.execute(tables.files.insert(), named)
        return made, key

    def campaigns(self) -> list[Campaign]:
        """Return all campaigns."""
        with named_errors(), self.engine.connect() as connection:
            names = connection.execute(sql.select(tables.campaigns.c.id)).scalars().all()
        return [self.campaign(name) for name in sorted(names)]

    def campaign(self, name: str) -> Campaign:
        """Return a campaign by its id; its mechanism is checked byte for byte on first use."""
        with self._lock:
            if name not in self._known:
                self._known[name] = self._load(name)
            return self._known[name]

    def _load(self, name: str) -> Campaign:
        row = self._row(name, *tables.campaigns.c)
        return Campaign(
            id=row.id,
            title=row.title,
            purpose=row.purpose,
            mechanism=artifact.unpack(self.file(name, "artifact"), f"campaign {name}"),
            labelled=row.labelled,
            question=row.question,
            vote_epsilon=None if row.vote_epsilon is None else float(row.vote_epsilon),
            vote_by_class=row.vote_by_class,
            opens=_time(row.opens),
            closes=_time(row.closes),
            minimum=row.minimum,
            quota=row.quota,
        )

    def _row(self, name: str, *columns: Any) -> Any:
        query = sql.select(*columns).where(tables.campaigns.c.id == name)
        row = None
        if _ID.fullmatch(name):
            with named_errors(), self.engine.connect() as connection:
                row = connection.execute(query).first()
        if row is None:
            raise Problem("no-campaign")
        return row

    def status(self, name: str) -> Status:
        """Return the part of a campaign that changes."""
        return Status.of(self._row(name, *STATUS))

    def describe(self, name: str) -> dict[str, Any]:
        """Describe a campaign to participants."""
        now = self.status(name)
        return self.campaign(name).describe(now.closed, now.reports, now.votes, now.model)

    def file(self, name: str, which: str) -> bytes:
        """Return the packed mechanism ("artifact") or "model", or the "encoder"'s ONNX graph."""
        f = tables.files.c
        query = sql.select(f.content).where(f.campaign == name, f.name == which)
        self._row(name, tables.campaigns.c.id)
        with named_errors(), self.engine.connect() as connection:
            content = connection.execute(query).scalar()
        if content is None:
            raise Problem(f"no-{which}")
        return bytes(content)

    def must_own(self, name: str, key: str) -> None:
        """Refuse a key that is not this campaign's."""
        kept = bytes(self._row(name, tables.campaigns.c.owner).owner)
        if not hmac.compare_digest(kept, self.secret.owner(name, key)):
            raise Problem("unknown-key")

    def end(self, name: str) -> None:
        """Close a campaign for good, and rewrite an SQLite file without the order of arrival."""
        self._set(name, closed=True)
        if self.engine.dialect.name == "sqlite":
            with named_errors(), self._alone().connect() as connection:
                connection.exec_driver_sql("VACUUM")
            keeping.truncate_log(self.engine)

    def _alone(self) -> sql.Engine:
        """Return an engine that works outside of any transaction."""
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    def _set(self, name: str, **values: Any) -> None:
        where = tables.campaigns.c.id == name
        with named_errors(), self.engine.begin() as connection:
            connection.execute(tables.campaigns.update().where(where).values(**values))

    # --- people --------------------------------------------------------------------------------

    def invite(self, name: str, count: int) -> list[str]:
        """Make new tokens and return them; only hashes of them are stored."""
        if self.campaign(name).state(self.status(name).closed, 0) == CLOSED:
            raise Problem("not-open", "The campaign has ended, so invitations would be useless.")
        made = [tokens.new() for _ in range(count)]
        rows = sorted(invited for invited, _, _ in self.secret.rows(name, made))
        number = self._row(name, tables.campaigns.c.number).number
        values = [{"row": row, "campaign": number} for row in rows]
        with named_errors(), self.engine.begin() as connection:
            for start in range(0, len(values), BLOCK):
                connection.execute(tables.invitations.insert(), values[start : start + BLOCK])
        return made

    def _places(self, name: str, kind: str, words: Sequence[str]) -> list[Place]:
        at = 1 if kind == REPORT else 2
        return [Place(rows[0], rows[at]) for rows in self.secret.rows(name, words)]

    def used(self, name: str, token: str) -> dict[str, str | None]:
        """Return "none", "stored" or "withdrawn" for report and vote; None without votes."""
        campaign = self.campaign(name)
        kinds = [REPORT] if campaign.ballot is None else [REPORT, VOTE]
        with named_errors():
            places = {kind: self._places(name, kind, [token])[0] for kind in kinds}
            states = keeping.states(self.engine, campaign, places)
        return {REPORT: states[REPORT], VOTE: states.get(VOTE)}

    def submit(
        self, kind: str, name: str, items: Sequence[Item], about: str | None = None
    ) -> list[ReceiptOrProblem]:
        """Store reports or votes, each once; `about` is the model that the votes are about."""
        campaign = self.campaign(name)
        contents = pack_each(self._form(kind, campaign), [answer for _, answer in items])
        places = self._places(name, kind, [token for token, _ in items])
        arguments = (self.engine, campaign, kind, places, contents, about)
        with named_errors():
            try:
                kept = keeping.keep(*arguments)
            except sql.exc.DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                # The connection was lost and may be back. Storing an answer twice is harmless.
                kept = keeping.keep(*arguments)
        receipts = self.secret.receipts(name, kind, [place.row for place in places])
        return [refused or receipt for receipt, refused in zip(receipts, kept, strict=True)]

    def _form(self, kind: str, campaign: Campaign) -> Form:
        key = kind, campaign.id
        if key not in self._forms:
            if kind == REPORT:
                self._forms[key] = ReportForm(campaign.mechanism, campaign.channel)
            elif campaign.ballot is None:
                raise Problem("no-vote")
            else:
                self._forms[key] = VoteForm(campaign.ballot)
        return self._forms[key]

    def withdraw(self, name: str, receipt: str) -> bool:
        """Delete the answer of a receipt; return whether there was one. Its token stays used."""
        self.campaign(name)
        for kind in (REPORT, VOTE):
            row = self.secret.row_of(name, kind, receipt)
            if row is not None:
                with named_errors():
                    return keeping.withdraw(self.engine, name, kind, row)
        raise Problem("unknown-receipt")

    # --- what was learned ----------------------------------------------------------------------

    def reports(self, name: str) -> Reports:
        """Return all reports in the order of their hashes; refuse below the campaign's minimum.

        They are always one release under the campaign's random name, so that an earlier and a
        later file of the same reports are not counted as two releases.
        """
        campaign = self.campaign(name)
        contents = self._contents(name, REPORT)
        campaign.must_be_enough(len(contents))
        form = self._form(REPORT, campaign)
        assert isinstance(form, ReportForm)
        return form.reports(contents, f"campaign {campaign.id}")

    def votes(self, name: str) -> Votes | None:
        """Return all votes on the published model, or None without votes."""
        campaign, contents = self.campaign(name), self._contents(name, VOTE)
        if not contents or campaign.ballot is None:
            return None
        form = self._form(VOTE, campaign)
        assert isinstance(form, VoteForm)
        return form.votes(contents, self.status(name).model_sha256 or "")

    def _contents(self, name: str, kind: str) -> list[bytes]:
        a = tables.answers.c
        here = (a.campaign == tables.number_of(name), a.kind == tables.CODES[kind])
        query = sql.select(a.content).where(*here, a.content.is_not(None)).order_by(a.row)
        with named_errors(), self.engine.connect() as connection:
            return [bytes(content) for content in connection.execute(query).scalars()]

    def publish(self, name: str, model: Any, reports: int) -> dict[str, Any]:
        """Publish a model for voters; once somebody has voted on it, it cannot be replaced."""
        if not may_be_handed_out(model):
            raise errors.InvalidParameter(
                "publish: the model must be one that may leave the organisation. Learn it from "
                "reports."
            )
        fingerprint = artifact.fingerprint(model)
        c = tables.campaigns.c
        values = {
            "model_sha256": fingerprint,
            "model_reports": reports,
            "published": _text(datetime.now(UTC)),
        }
        update = tables.campaigns.update().where(c.id == name, c.votes == 0).values(**values)
        content = {"campaign": name, "name": "model", "content": artifact.pack(model)}
        f = tables.files.c
        before = tables.files.delete().where(f.campaign == name, f.name == "model")
        with named_errors(), self.engine.begin() as connection:
            if connection.execute(update).rowcount != 1:
                raise Problem("votes-exist")
            connection.execute(before)
            connection.execute(tables.files.insert(), content)
        return {"sha256": fingerprint, "reports": reports}


@contextmanager
def named_errors() -> Iterator[None]:
    """Turn an unresponsive database into a problem that quotes nothing of it."""
    try:
        yield
    except (sql.exc.OperationalError, sql.exc.InterfaceError, sql.exc.TimeoutError):
        raise Problem("database-away", "The database does not respond. Try again.") from None


def _matching(connection: sql.Connection, path: Path) -> Secret:
    """Return the secret that this database was created with; make one for a new database."""
    version = connection.execute(sql.select(tables.versions)).first()
    if version is not None and version.version != tables.SCHEMA:
        remedy = "Use the version of Tacit that wrote it."
        errors.refuse("database", "schema", str(tables.SCHEMA), version.version, remedy)
    wrong = "database: the secret must be the one that it was created with"
    if version is not None and not path.exists():
        raise errors.InvalidParameter(f"{wrong}; {path} does not exist. Give --secret FILE.")
    secret = Secret.of_file(path)
    if version is None:
        stated = {"version": tables.SCHEMA, "secret_mark": secret.mark()}
        connection.execute(tables.versions.insert(), stated)
    elif not hmac.compare_digest(version.secret_mark, secret.mark()):
        raise errors.InvalidParameter(f"{wrong}. Give --secret FILE.")
    return secret


def _engine(url: str) -> sql.Engine:
    """Connect to SQLite so that commits survive a power failure, or to PostgreSQL."""
    try:
        address = sql.make_url(url)
    except sql.exc.ArgumentError:
        errors.refuse("database", "address", "like sqlite:///campaign.db or postgresql://…", "…")
    if address.get_backend_name() == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
        return sql.create_engine(address, hide_parameters=True, connect_args={"connect_timeout": 5})
    if address.get_backend_name() != "sqlite" or not address.database:
        condition = "an SQLite file or PostgreSQL"
        errors.refuse("database", "address", condition, address.get_backend_name())
    try:  # readable by its owner only; SQLite gives the files beside it the same mode
        os.close(os.open(address.database, os.O_CREAT, 0o600))
    except OSError as error:
        errors.refuse("database", "file", "writable", error.strerror)
    engine = sql.create_engine(address, hide_parameters=True)
    sql.event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",  # an acknowledged answer survives a power failure
        "busy_timeout=10000",
        "secure_delete=ON",  # withdrawn answers are overwritten
        # Rows are in random order, so a commit touches many pages: they are cached, and written
        # back in larger pieces than by default.
        "cache_size=-65536",
        "wal_autocheckpoint=4000",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _secret_file(address: sql.URL, given: Path | None) -> Path:
    if given is not None:
        return given
    if address.get_backend_name() != "sqlite":
        remedy = "The file is made if it does not exist; keep a copy of it."
        errors.refuse("database", "secret", "given for PostgreSQL, as --secret FILE", None, remedy)
    return Path(f"{address.database}.secret")


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
