"""A database of campaigns: what was asked of people, and what they answered."""

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
"""A token, and its report or vote as it came."""
Outcome = str | Problem
"""A receipt, or why there is none."""


class Store:
    """A database of campaigns.

    Parameters
    ----------
    engine
        Of SQLAlchemy.
    secret : Secret
        The key of its hashes.
    """

    def __init__(self, engine: sql.Engine, secret: Secret) -> None:
        self.engine, self.secret = engine, secret
        self._known: dict[str, Campaign] = {}
        self._forms: dict[tuple[str, str], Form] = {}
        self._lock = Lock()

    # --- opening -------------------------------------------------------------------------------

    @classmethod
    def open(cls, url: str, secret: Path | None = None) -> Store:
        """Connect, make the tables where there are none, and check what is there.

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
                "database: it must be one that this version of Tacit made, and undamaged. Restore "
                "a backup, or begin with a new one."
            ) from None
        except errors.TacitError:
            engine.dispose()
            raise

    def ping(self) -> None:
        """Refused where the database does not answer."""
        with named_errors(), self.engine.connect() as connection:
            connection.execute(sql.select(sql.literal(1)))

    # --- campaigns -----------------------------------------------------------------------------

    def create(self, mechanism: Any, **settings: Any) -> tuple[Campaign, str]:
        """A new campaign, and the key of its owner, which is kept nowhere."""
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
        """All of them."""
        with named_errors(), self.engine.connect() as connection:
            found = connection.execute(sql.select(tables.campaigns.c.id)).scalars().all()
        return [self.campaign(name) for name in sorted(found)]

    def campaign(self, name: str) -> Campaign:
        """By its id; the mechanism is checked byte for byte when it is first asked for."""
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
        """What has changed since it was made."""
        return Status.of(self._row(name, *STATUS))

    def describe(self, name: str) -> dict[str, Any]:
        """All that participants are told."""
        now = self.status(name)
        return self.campaign(name).describe(now.closed, now.reports, now.votes, now.model)

    def file(self, name: str, which: str) -> bytes:
        """The mechanism ("artifact") or the published "model", packed; the "encoder" as a graph."""
        f = tables.files.c
        query = sql.select(f.content).where(f.campaign == name, f.name == which)
        self._row(name, tables.campaigns.c.id)
        with named_errors(), self.engine.connect() as connection:
            found = connection.execute(query).scalar()
        if found is None:
            raise Problem(f"no-{which}")
        return bytes(found)

    def must_own(self, name: str, key: str) -> None:
        """Refuse whoever has not this campaign's key."""
        kept = bytes(self._row(name, tables.campaigns.c.owner).owner)
        if not hmac.compare_digest(kept, self.secret.owner(name, key)):
            raise Problem("unknown-key")

    def end(self, name: str) -> None:
        """Take no further answers, for good; an SQLite file then tells no order of arrival."""
        self._set(name, closed=True)
        if self.engine.dialect.name == "sqlite":
            with named_errors(), self._alone().connect() as connection:
                connection.exec_driver_sql("VACUUM")
            keeping.forget_the_log(self.engine)

    def _alone(self) -> sql.Engine:
        """Outside of any transaction."""
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    def _set(self, name: str, **values: Any) -> None:
        where = tables.campaigns.c.id == name
        with named_errors(), self.engine.begin() as connection:
            connection.execute(tables.campaigns.update().where(where).values(**values))

    # --- people --------------------------------------------------------------------------------

    def invite(self, name: str, count: int) -> list[str]:
        """New tokens. They are handed out now, and only hashes of them are kept."""
        if self.campaign(name).state(self.status(name).closed, 0) == CLOSED:
            raise Problem("not-open", "The campaign has ended: nobody could use an invitation.")
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
        """What a token has sent: "none", "stored" or "withdrawn"; None where there are no votes."""
        campaign = self.campaign(name)
        kinds = [REPORT] if campaign.ballot is None else [REPORT, VOTE]
        with named_errors():
            places = {kind: self._places(name, kind, [token])[0] for kind in kinds}
            found = keeping.states(self.engine, campaign, places)
        return {REPORT: found[REPORT], VOTE: found.get(VOTE)}

    def submit(
        self, kind: str, name: str, items: Sequence[Item], about: str | None = None
    ) -> list[Outcome]:
        """Keep reports or votes of tokens, each once; `about` is the model that was voted on."""
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
                # The database was away and may be back. Whatever was stored is found stored.
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
        """Delete what a receipt is about; its token stays spent. Whether anything was there."""
        self.campaign(name)
        for kind in (REPORT, VOTE):
            row = self.secret.row_of(name, kind, receipt)
            if row is not None:
                with named_errors():
                    return keeping.withdraw(self.engine, name, kind, row)
        raise Problem("unknown-receipt")

    # --- what was learned ----------------------------------------------------------------------

    def reports(self, name: str) -> Reports:
        """All reports, in the order of their hashes; refused below the campaign's minimum.

        Whenever they are asked for they are one release, by the campaign's own random name: an
        earlier file of them and a later one do not count together.
        """
        campaign = self.campaign(name)
        contents = self._contents(name, REPORT)
        campaign.must_be_enough(len(contents))
        form = self._form(REPORT, campaign)
        assert isinstance(form, ReportForm)
        return form.reports(contents, f"campaign {campaign.id}")

    def votes(self, name: str) -> Votes | None:
        """All votes on the published model; None where there are none."""
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
        """Hand a model to voters; once they have voted, no other one."""
        if not may_be_handed_out(model):
            raise errors.InvalidParameter(
                "publish: the model must be allowed to leave the house. Learn it from reports."
            )
        found = artifact.fingerprint(model)
        c = tables.campaigns.c
        values = {
            "model_sha256": found,
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
        return {"sha256": found, "reports": reports}


@contextmanager
def named_errors() -> Iterator[None]:
    """A database that does not answer is a problem with a name; nothing of it is quoted."""
    try:
        yield
    except (sql.exc.OperationalError, sql.exc.InterfaceError, sql.exc.TimeoutError):
        raise Problem("database-away", "The database does not answer. Try again.") from None


def _matching(connection: sql.Connection, path: Path) -> Secret:
    """The secret that this database began with; of a new one, a new secret."""
    found = connection.execute(sql.select(tables.versions)).first()
    if found is not None and found.version != tables.SCHEMA:
        remedy = "Use the version of Tacit that wrote it."
        errors.refuse("database", "schema", str(tables.SCHEMA), found.version, remedy)
    wrong = "database: the secret must be the one that it began with"
    if found is not None and not path.exists():
        raise errors.InvalidParameter(f"{wrong}; {path} is not there. Say --secret FILE.")
    secret = Secret.of_file(path)
    if found is None:
        stated = {"version": tables.SCHEMA, "secret_mark": secret.mark()}
        connection.execute(tables.versions.insert(), stated)
    elif not hmac.compare_digest(found.secret_mark, secret.mark()):
        raise errors.InvalidParameter(f"{wrong}. Say --secret FILE.")
    return secret


def _engine(url: str) -> sql.Engine:
    """SQLite that survives a loss of power, or PostgreSQL that was away for a while."""
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
    try:  # for its owner alone; the files beside it take after it
        os.close(os.open(address.database, os.O_CREAT, 0o600))
    except OSError as error:
        errors.refuse("database", "file", "one that can be written", error.strerror)
    engine = sql.create_engine(address, hide_parameters=True)
    sql.event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",  # an answer that was acknowledged survives a loss of power
        "busy_timeout=10000",
        "secure_delete=ON",  # what was withdrawn is overwritten
        # Rows come in no order, so a commit touches many pages: they are kept, and written back
        # in larger pieces than SQLite's own.
        "cache_size=-65536",
        "wal_autocheckpoint=4000",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _secret_file(address: sql.URL, given: Path | None) -> Path:
    if given is not None:
        return given
    if address.get_backend_name() != "sqlite":
        remedy = "It is made where it does not exist; keep a copy of it."
        errors.refuse("database", "secret", "given for PostgreSQL, as --secret FILE", None, remedy)
    return Path(f"{address.database}.secret")


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
