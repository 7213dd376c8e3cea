"""The database of campaigns: what people were asked, and what they answered."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import sqlalchemy as sql

from tacit.apps.service import database, keeping, rows, tables, tokens
from tacit.apps.service.campaign import CLOSED, MOST_ROUNDS, Campaign
from tacit.apps.service.database import named_errors
from tacit.apps.service.days import Days, count_invited, votes_withdrawn
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
        self.answers = keeping.Answers(engine)
        self._known: dict[tuple[str, int], Campaign] = {}
        self._rounds: dict[tuple[str, str], int] = {}
        self._forms: dict[tuple[str, str, int], Form] = {}
        self._lock = Lock()
        self.days = Days(engine)

    # --- opening -------------------------------------------------------------------------------

    @classmethod
    def open(cls, url: str, secret: Path | None = None) -> Store:
        """Connect, create missing tables, and check the version and the secret.

        `secret` is a file; by default the one beside an SQLite database.
        """
        engine = database.connect(url)
        path = database.secret_file(engine.url, secret)
        try:
            with named_errors():
                database.must_be_current(engine)
                tables.metadata.create_all(engine)
                with engine.begin() as connection:
                    store = cls(engine, database.matching_secret(connection, path))
                store.answers.merge()  # what a server that was killed had not merged
                return store
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

    def try_writing(self) -> None:
        """Raise if the database does not store anything now: write a row, and remove it again.

        The row is an invitation that no campaign has. Both are one transaction, on disk at its end.
        """
        row = secrets.token_bytes(tokens.ROW_BYTES)
        invitations = tables.invitations
        with named_errors(), self.engine.begin() as connection:
            connection.execute(invitations.insert(), {"row": row, "campaign": 0})
            connection.execute(invitations.delete().where(invitations.c.row == row))

    # --- campaigns -----------------------------------------------------------------------------

    def create(self, mechanism: Any, **settings: Any) -> tuple[Campaign, str]:
        """Create a campaign; return it with the owner's key, which is not stored.

        With `listed=True`, the server's front page shows it.
        """
        listed = settings.pop("listed", False)
        settings.setdefault("labelled", mechanism.classes is not None)
        made = Campaign(id=secrets.token_urlsafe(9), mechanism=mechanism, **settings)
        key = tokens.new()
        owner = {"owner": self.secret.owner(made.id, key), "listed": listed}
        with named_errors(), self.engine.begin() as connection:
            connection.execute(tables.campaigns.insert(), rows.of_campaign(made) | owner)
            connection.execute(tables.rounds.insert(), rows.of_round(made))
        return made, key

    def campaigns(self) -> list[Campaign]:
        """Return all campaigns, with the mechanisms of their first rounds.

        Those with a mechanism of an earlier version, which cannot be read any more, are left out.
        """
        with named_errors(), self.engine.connect() as connection:
            names = connection.execute(sql.select(tables.campaigns.c.id)).scalars().all()
        found = []
        for name in sorted(names):
            with suppress(artifact.ArtifactError):
                found.append(self.campaign(name))
        return found

    def listed(self) -> list[tuple[str, str]]:
        """Return id and title of the campaigns that the front page shows."""
        c = tables.campaigns.c
        query = sql.select(c.id, c.title).where(c.listed, sql.not_(c.draft)).order_by(c.number)
        with named_errors(), self.engine.connect() as connection:
            return [(name, title) for name, title in connection.execute(query)]

    def show(self, name: str, listed: bool) -> None:
        """Show a campaign on the front page, or no longer."""
        self._row(name, tables.campaigns.c.id)
        self._set(name, listed=listed)

    def campaign(self, name: str, number: int = 1) -> Campaign:
        """Return a campaign by its id, with the mechanism of a round, which is checked once."""
        with self._lock:
            known = self._known.get((name, number))
            if known is None or known.draft:  # another process may have changed or opened a draft
                known = self._known[name, number] = self._load(name, number, known)
            return known

    def current(self, name: str, number: int | None = None) -> Campaign:
        """Return a campaign with the mechanism of its latest round, or of the given one."""
        return self.campaign(name, self.status(name).round if number is None else number)

    def round_of(self, name: str, fingerprint: str) -> int:
        """Return the round of this mechanism; refuse a mechanism that was never the campaign's."""
        if (found := self._rounds.get((name, fingerprint))) is not None:
            return found
        self._row(name, tables.campaigns.c.id)
        r = tables.rounds.c
        query = sql.select(r.number).where(r.campaign == name, r.fingerprint == fingerprint)
        with named_errors(), self.engine.connect() as connection:
            number = connection.execute(query).scalar()
        if number is None:
            raise Problem("other-artifact")
        # Rounds never change, so this stays true whatever another process does.
        return self._rounds.setdefault((name, fingerprint), int(number))

    def knows_round(self, name: str, fingerprint: str) -> bool:
        """Whether `round_of` answers without asking the database."""
        return (name, fingerprint) in self._rounds

    def open_round(self, name: str, number: int, mechanism: Any) -> Campaign:
        """Open the next round of a campaign, once; the same request again changes nothing.

        Those who have not reported get this mechanism from now on. Reports that were drawn in an
        earlier round are still taken, each as a report of its round.
        """
        now = self.status(name)
        campaign = self.campaign(name, now.round)
        if number == now.round and artifact.fingerprint(mechanism) == campaign.fingerprint:
            return campaign
        if number != now.round + 1:
            raise Problem("other-round", f"The campaign is in round {now.round}.")
        made = campaign.next(mechanism)
        self._must_have_reports(campaign)
        c = tables.campaigns.c
        still = (c.id == name, c.round == now.round, sql.not_(c.closed))
        with named_errors(), self.engine.begin() as connection:
            update = tables.campaigns.update().where(*still).values(round=number)
            if connection.execute(update).rowcount != 1:
                closed = self.status(name).closed
                raise Problem("not-open" if closed else "other-round")
            connection.execute(tables.rounds.insert(), rows.of_round(made))
        return made

    def _must_have_reports(self, campaign: Campaign) -> None:
        """Refuse to adapt cells to a round with too few reports."""
        a = tables.answers.c
        here = (a.campaign == tables.number_of(campaign.id), a.kind == tables.CODES[REPORT])
        query = sql.select(sql.func.count()).where(
            *here, a.round == campaign.round, a.content.is_not(None)
        )
        with named_errors():
            self.answers.merge()
            with self.engine.connect() as connection:
                found = int(connection.execute(query).scalar_one())
        campaign.must_be_enough(found, f"the round after round {campaign.round} needs")

    def _load(self, name: str, number: int, known: Campaign | None) -> Campaign:
        row = self._row(name, *tables.campaigns.c)
        if known is None:
            mechanism = artifact.unpack(self.part(name, number, "artifact"), f"campaign {name}")
        else:
            mechanism = known.mechanism
        return rows.campaign_of(row, mechanism, number)

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
        campaign = self.campaign(name, now.round)
        return campaign.describe(now.closed, now.reports, now.votes, now.model)

    def part(self, name: str, number: int, which: str) -> bytes:
        """Return the packed mechanism ("artifact") of a round, or its "encoder"'s ONNX graph."""
        if not 1 <= number <= MOST_ROUNDS:
            raise Problem("no-round")
        r = tables.rounds.c
        query = sql.select(r[which]).where(r.campaign == name, r.number == number)
        return self._content(name, query, "no-encoder" if which == "encoder" else "no-round")

    def model(self, name: str) -> bytes:
        """Return the packed model that was published."""
        m = tables.models.c
        return self._content(name, sql.select(m.content).where(m.campaign == name), "no-model")

    def _content(self, name: str, query: sql.Select[Any], missing: str) -> bytes:
        self._row(name, tables.campaigns.c.id)
        with named_errors(), self.engine.connect() as connection:
            content = connection.execute(query).scalar()
        if content is None:
            raise Problem(missing)
        return bytes(content)

    def must_own(self, name: str, key: str) -> None:
        """Refuse a key that is not this campaign's."""
        kept = bytes(self._row(name, tables.campaigns.c.owner).owner)
        if not hmac.compare_digest(kept, self.secret.owner(name, key)):
            raise Problem("unknown-key")

    def replace_key(self, name: str, key: str, before: str | None = None) -> None:
        """Give a campaign this owner's key; the one before is refused from then on.

        Whoever asks over the network states the key `before`; of two who do so at once, one is
        refused. Without it, this is for whoever has the database.
        """
        if not tokens.KEY.fullmatch(key):
            errors.refuse("rotate-key", "key", "one that rotate-key made", "another")
        c, kept = tables.campaigns.c, self.secret.owner(name, key)
        self._row(name, c.id)
        where = [c.id == name]
        if before is not None:
            self.must_own(name, before)
            where.append(c.owner == self.secret.owner(name, before))
        update = tables.campaigns.update().where(*where).values(owner=kept)
        with named_errors(), self.engine.begin() as connection:
            if connection.execute(update).rowcount != 1:
                raise Problem("unknown-key")

    def end(self, name: str) -> None:
        """Close a campaign for good, and rewrite an SQLite file without the order of arrival."""
        self._set(name, closed=True)
        if self.engine.dialect.name == "sqlite":
            with named_errors():
                self.answers.merge()
                with self._alone().connect() as connection:
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
        made = self.secret.invite(name, count)
        invited = sorted(row for row, _, _ in self.secret.rows(name, made))
        number = self._row(name, tables.campaigns.c.number).number
        self.days.turn()
        values = [{"row": row, "campaign": number} for row in invited]
        with named_errors(), self.engine.begin() as connection:
            for start in range(0, len(values), BLOCK):
                connection.execute(tables.invitations.insert(), values[start : start + BLOCK])
            count_invited(connection, number, count)
        self.answers.invited.add(name, invited)
        return made

    def _places(self, name: str, kind: str, words: Sequence[str]) -> list[Place]:
        at = 1 if kind == REPORT else 2
        return [Place(three[0], three[at]) for three in self.secret.rows(name, words)]

    def used(self, name: str, token: str) -> dict[str, str | None]:
        """Return "none", "stored" or "withdrawn" for report and vote; None without votes."""
        campaign = self.campaign(name)
        kinds = [REPORT] if campaign.ballot is None else [REPORT, VOTE]
        with named_errors():
            places = {kind: self._places(name, kind, [token])[0] for kind in kinds}
            states = self.answers.states(campaign, places)
        return {REPORT: states[REPORT], VOTE: states.get(VOTE)}

    def submit(
        self, kind: str, name: str, items: Sequence[Item], about: str | None = None
    ) -> list[ReceiptOrProblem]:
        """Store reports or votes, each once.

        `about` is the hash of the mechanism that reports were drawn from, by default that of the
        first round, or of the model that votes are about.
        """
        drawn = kind == REPORT and about is not None
        campaign = self.campaign(name, self.round_of(name, str(about)) if drawn else 1)
        contents = pack_each(self._form(kind, campaign), [answer for _, answer in items])
        places = self._places(name, kind, [token for token, _ in items])
        arguments = (campaign, kind, places, contents, about)
        self.days.turn()
        with named_errors():
            try:
                kept = self.answers.keep(*arguments)
            except sql.exc.DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                # The connection was lost and may be back. Storing an answer twice is harmless.
                kept = self.answers.keep(*arguments)
        receipts = self.secret.receipts(name, kind, [place.row for place in places])
        return [refused or receipt for receipt, refused in zip(receipts, kept, strict=True)]

    def _form(self, kind: str, campaign: Campaign) -> Form:
        key = kind, campaign.id, campaign.round
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
        self._row(name, tables.campaigns.c.id)
        self.days.turn()
        for kind in (REPORT, VOTE):
            row = self.secret.row_of(name, kind, receipt)
            if row is not None:
                with named_errors():
                    return self.answers.withdraw(name, kind, row)
        raise Problem("unknown-receipt")

    # --- what was learned ----------------------------------------------------------------------

    def reports(self, name: str) -> list[Reports]:
        """Return the reports of each round that has any; refuse below the campaign's minimum.

        They are in the order of their hashes. Those of a round are always one release, named after
        the campaign and the round, so that an earlier and a later file of the same reports are not
        counted as two releases.
        """
        contents = self._contents(name, REPORT)
        self.campaign(name).must_be_enough(sum(map(len, contents.values())))
        found = []
        for number in sorted(contents):
            form = self._form(REPORT, self.campaign(name, number))
            assert isinstance(form, ReportForm)
            release = f"campaign {name}" + (f" round {number}" if number > 1 else "")
            found.append(form.reports(contents[number], release))
        return found

    def reports_of(self, name: str, number: int | None) -> Reports:
        """Return the reports of one round, which must be named if there are several."""
        rounds = self.status(name).round
        if number is None and rounds > 1:
            raise Problem(
                "bad-request", f"The campaign has {rounds} rounds: name one of them (--round 1)."
            )
        mark = self.campaign(name, 1 if number is None else number).fingerprint
        for reports in self.reports(name):
            if artifact.fingerprint(reports.mechanism) == mark:
                return reports
        raise Problem("too-few", f"Round {number} has no reports yet.", round=number)

    def votes(self, name: str) -> Votes | None:
        """Return all votes on the published model, or None without votes."""
        campaign, contents = self.campaign(name), self._contents(name, VOTE).get(0)
        if contents is None or campaign.ballot is None:
            return None
        form = self._form(VOTE, campaign)
        assert isinstance(form, VoteForm)
        return form.votes(contents, self.status(name).model_sha256 or "")

    def _contents(self, name: str, kind: str) -> dict[int, list[bytes]]:
        """Return what is stored, by round."""
        a = tables.answers.c
        here = (a.campaign == tables.number_of(name), a.kind == tables.CODES[kind])
        query = sql.select(a.round, a.content).where(*here, a.content.is_not(None)).order_by(a.row)
        found: dict[int, list[bytes]] = {}
        with named_errors():
            self.answers.merge()
            with self.engine.connect() as connection:
                for number, content in connection.execute(query):
                    found.setdefault(number, []).append(bytes(content))
        return found

    def withdrawn(self, name: str) -> tuple[int, int]:
        """Return how many reports and how many votes were withdrawn."""
        row = self._row(name, tables.campaigns.c.number, tables.campaigns.c.withdrawn)
        with named_errors(), self.engine.connect() as connection:
            return row.withdrawn, votes_withdrawn(connection, row.number)

    def publish(
        self, name: str, model: Any, reports: int, *, final: bool = False
    ) -> dict[str, Any]:
        """Publish a model for voters, or, as `final`, the first and only one of a closed campaign.

        A model that somebody has voted on, or that a closed campaign has, cannot be replaced.
        """
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
            "published": rows.text_of(datetime.now(UTC)),
        }
        first = c.model_sha256.is_(None)
        allowed = sql.and_(c.closed, first) if final else sql.or_(sql.not_(c.closed), first)
        here = tables.campaigns.update().where(c.id == name, c.votes == 0, allowed)
        update = here.values(**values)
        content = {"campaign": name, "content": artifact.pack(model)}
        before = tables.models.delete().where(tables.models.c.campaign == name)
        with named_errors(), self.engine.begin() as connection:
            if connection.execute(update).rowcount != 1:
                raise Problem("votes-exist" if self.status(name).votes else "published")
            connection.execute(before)
            connection.execute(tables.models.insert(), content)
        return {"sha256": fingerprint, "reports": reports}
