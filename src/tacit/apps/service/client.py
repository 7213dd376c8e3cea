"""The Python client, for people who take part and for owners.

A report is drawn once, on this machine, after the client has checked the mechanism and the server
has said that the token is unused. The client stores the report before it sends it, and sends the
same bytes until the server has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import httpx

from tacit.apps.service.campaign import FULL, OPEN, Campaign
from tacit.apps.service.connection import (
    Address,
    Connection,
    ServiceError,
    field_of,
    one_line,
    read_object,
    to_json,
    word,
)
from tacit.apps.service.given import as_json, labels_of, only_one, together
from tacit.apps.service.kept import Kept, StoredDraw
from tacit.apps.service.owning import Desk
from tacit.apps.service.papers import Paper
from tacit.apps.service.sending import body_of, send, send_many
from tacit.apps.service.terms import checked
from tacit.local.inference.default import model_for
from tacit.local.inference.votes import Ballot, cast
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors
from tacit.privacy.accounting.device_ledger import DeviceLedger
from tacit.privacy.guarantees import Guarantee

MOST_TOKENS = 100_000
_USED = {"report": "already-reported", "vote": "already-voted"}


class Client:
    """A connection to one campaign, for a participant or for its owner.

    Parameters
    ----------
    url : str
        Address of the campaign, of its page, or an invitation.
    key : str, optional
        The owner's key.
    state : path, optional
        Folder that keeps what was drawn; by default a folder in the user's state directory.
    ledger : DeviceLedger, optional
        The person's budget over all campaigns: reports and votes are charged to it before they
        are drawn, and refused beyond it.
    retries : int
        Number of times that a failed request is sent again, with growing pauses.
    timeout : float
        Seconds that one attempt may take.
    transport : httpx.BaseTransport, optional
        For tests.

    Notes
    -----
    A ledger is charged the ε of the mechanism, whatever the row is; sending a stored draw again
    costs nothing.

    There is no parameter for a random generator: noise comes from the operating system's entropy. A
    report costs its ε once, however often it is sent. Another token is another draw, and costs ε
    again. So does the same token with another `state` folder; the client therefore asks the server
    before it draws, and draws nothing if the server says that the token was used.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        state: str | Path | None = None,
        ledger: DeviceLedger | None = None,
        retries: int = 5,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = Address.of(url)
        self.kept = Kept(state)
        self.ledger = ledger
        self._key = key
        self._terms: Campaign | None = None
        self._models: dict[str, Any] = {}
        self._connection = Connection(
            self.address.api, retries=retries, timeout=timeout, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.disconnect()

    # --- the campaign --------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Fetch the server's current description of the campaign."""
        return read_object(self._connection.get(""))

    def terms(self) -> Campaign:
        """Return the terms of taking part, derived from the mechanism itself; fetched once."""
        if self._terms is None:
            described = self.describe()
            number = field_of(described, "round", int)
            self._terms = checked(described, self._connection.get("/artifact", round=number))
        return self._terms

    def mechanism(self) -> Any:
        """Return the mechanism that runs on a participant's device, checked."""
        return self.terms().mechanism

    def notice(self) -> Paper:
        """Fetch the campaign's privacy notice, made from its settings."""
        return Paper.from_plain(read_object(self._connection.get("/notice")))

    def model(self) -> Any:
        """Return the published model, checked against the hash in the description."""
        described = self.describe().get("model")
        if not isinstance(described, dict):
            raise ServiceError("service: no model has been published yet (no-model)", "no-model")
        stated = str(described.get("sha256"))
        if stated not in self._models:
            model = artifact.unpack(self._connection.get("/model"), "model")
            if artifact.fingerprint(model) != stated:
                raise errors.CertificateError(
                    "campaign: the model must be the described one, but its SHA-256 is another."
                )
            self._models[stated] = model
        return self._models[stated]

    # --- taking part ---------------------------------------------------------------------------

    def report(self, token: str, row: Any, label: Any = None) -> str:
        """Draw and send a report of one row; return the receipt.

        With the same token again, it sends what was drawn before, whatever the row is now.
        """
        if (draw := self._drawn(token, "report")) is None:
            draw = self._charged(token, "report", self._report_mark())
        if draw is None:
            content = only_one(as_json(self._release(row, label)))
            draw = self._keep(token, "report", self._report_mark(), content)
        return self._send_kept(token, "report", draw)

    def draw(self, rows: Any, labels: Any = None) -> Reports:
        """Draw one report per row, without sending or storing it: send each report unchanged.

        A single row may be passed by itself, as an array or as a mapping of column names to values.
        The columns of a survey are its questions.
        """
        self._must_be_many("draw")
        return self._release(rows, labels)

    def _release(self, rows: Any, labels: Any) -> Reports:
        terms = self.terms()
        if (labels is not None) != terms.labelled:
            condition = (
                "given: the campaign asks for labels"
                if terms.labelled
                else "omitted: the campaign asks for no labels"
            )
            errors.refuse("Client", "label", condition, type(labels).__name__)
        table, one = together(rows, terms.mechanism.schema)
        given = () if labels is None else (labels_of(labels, one),)
        reports: Reports = terms.mechanism.release(table, *given)
        return reports

    def send(self, token: str, report: Mapping[str, Any]) -> str:
        """Send one report that was drawn before, as JSON-ready columns; return the receipt."""
        body = body_of("report", self._report_mark(), dict(report))
        return send(self._connection, token, "report", body)

    def send_batch(
        self, items: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[str | ServiceError]:
        """Send reports that were drawn before; return a receipt or an error for each, in order."""
        given = [{"token": token, "report": dict(report)} for token, report in items]
        return send_many(self._connection, "report", self._report_mark(), given)

    def vote(self, token: str, row: Any, label: Any) -> str:
        """Try the published model on one row and vote on whether it was right; return the receipt.

        With the same token again, it sends what was drawn before.
        """
        if (draw := self._drawn(token, "vote")) is None:
            draw = self._charged(token, "vote", artifact.fingerprint(self.model()))
        if draw is None:
            model, symbols = self._cast(row, label)
            draw = self._keep(token, "vote", artifact.fingerprint(model), only_one(symbols))
        return self._send_kept(token, "vote", draw)

    def cast(self, rows: Any, labels: Any) -> tuple[Any, list[Any]]:
        """Return the model and one vote on it per row, neither sent nor stored."""
        self._must_be_many("cast")
        return self._cast(rows, labels)

    def _cast(self, rows: Any, labels: Any) -> tuple[Any, list[Any]]:
        ballot, model = self._ballot(), self.model()
        table, one = together(rows, self.mechanism().schema)
        return model, cast(model, table, labels_of(labels, one), ballot).symbols.tolist()

    def send_vote(self, model: Any, token: str, vote: Any) -> str:
        """Send one vote that was cast before; return the receipt."""
        body = body_of("vote", artifact.fingerprint(model), vote)
        return send(self._connection, token, "vote", body)

    def send_votes(self, model: Any, items: Sequence[tuple[str, Any]]) -> list[str | ServiceError]:
        """Send many votes on a model; return a receipt or an error for each, in order."""
        given = [{"token": token, "vote": vote} for token, vote in items]
        return send_many(self._connection, "vote", artifact.fingerprint(model), given)

    def price(self, kind: str) -> Guarantee:
        """Return the guarantee of a report or a vote: what it costs, whatever the row is."""
        chosen = self._ballot() if kind == "vote" else self.terms().channel
        return chosen.guarantee

    def must_be_unused(self, token: str, kind: str) -> None:
        """Refuse to draw a report or a vote if the server has already had one for this token.

        It may have been sent from elsewhere, or the stored draw may be lost; either way a new draw
        would be a second one. A server that lies can hide this.
        """
        if kind == "vote":
            self._ballot()
        answer = read_object(self._connection.get("/token", bearer=token))
        state = one_line(field_of(answer, kind, str))
        if state != "none":
            raise ServiceError(
                f"service: the {kind} of this token is already {state}, and {self.kept.folder} "
                "keeps no copy of it. Nothing was drawn: a second draw would cost ε again.",
                state if state == "withdrawn" else _USED[kind],
            )

    def withdraw(self, receipt: str) -> None:
        """Ask the server to delete the report or vote of this receipt; its token stays used."""
        self._connection.post("/withdrawals", to_json({"receipt": receipt}))

    # --- owners --------------------------------------------------------------------------------

    def invite(self, count: int) -> list[str]:
        """Make this number of new tokens."""
        count = errors.whole("invite", "count", count, least=1)
        tokens: list[str] = []
        for start in range(0, count, MOST_TOKENS):
            body = to_json({"count": min(count - start, MOST_TOKENS)})
            answer = self._connection.post("/invitations", body, bearer=self._owner())
            tokens += map(str, field_of(answer, "tokens", list))
        return tokens

    def link(self, token: str) -> str:
        """Return the page's address with the token after the #, which browsers do not send."""
        return f"{self.address.page}#token={token}"

    def results(self, confidence: float = 0.95) -> dict[str, Any]:
        """Fetch estimates from the reports and votes so far."""
        content = self._connection.get("/results", bearer=self._owner(), confidence=confidence)
        return read_object(content)

    def answer(self, question: str, **options: Any) -> dict[str, Any]:
        """Ask a question about a survey, like "mean income by region"; see `Survey.answer`.

        `confidence` and `simultaneous` are as there. Returns what `tacit ask --json` prints.
        """
        content = self._connection.get(
            "/answer", bearer=self._owner(), question=question, **options
        )
        return read_object(content)

    def download_reports(self, path: str | Path, round: int | None = None) -> Path:
        """Write the reports of a round to a new file, for `Reports.read` and `tacit collect learn`.

        The round must be named if there are several: each has a mechanism of its own.
        """
        path, query = Path(path), {} if round is None else {"round": round}
        content = self._connection.get("/reports.parquet", bearer=self._owner(), **query)
        with path.open("xb") as file:
            file.write(content)
        return path

    def reports(self) -> list[Reports]:
        """Fetch the reports of each round that has any."""
        found = []
        with TemporaryDirectory() as folder:
            for number in range(1, field_of(self.describe(), "round", int) + 1):
                path = Path(folder) / f"{number}.parquet"
                with _unless_empty():
                    found.append(Reports.read(self.download_reports(path, number)))
        return found

    def learn(
        self, inhouse: Any = None, *, inhouse_public: bool = False, seed: int = 0, **rule: Any
    ) -> dict[str, Any]:
        """Learn a model from the reports of all rounds so far, and publish it.

        With in-house rows the model is taught on them, here: the rows are not sent. People get the
        model, so these rows must be public (`inhouse_public`). Models of partitions need them,
        unless the partitions have a central guarantee. `priors`, `costs` or `threshold` decide what
        the model answers, as in `NoiseAwareClassifier`. Without rows and rule, the server learns
        the model of other mechanisms from the reports.
        """
        if not self.terms().adaptive and inhouse is None and not rule:
            return self._connection.post("/model", b"{}", bearer=self._owner())
        described = self.describe()  # first: a batch that is closed now stays so
        model = self._taught("learn", inhouse, inhouse_public, seed, **rule)
        if not _is_final(described):
            model.certificate_ = replace(model.certificate_, readers=None)
        return self._connection.put("/model", artifact.pack(model), bearer=self._owner())

    def next_round(
        self, inhouse: Any = None, *, inhouse_public: bool = False, seed: int = 0
    ) -> dict[str, Any]:
        """Open the next round: its cells follow what the reports so far have taught.

        Those who have not reported get the new mechanism; whoever has cannot report again. Cells
        are computed from the in-house rows, here, and people get the cells: so these rows must be
        public (`inhouse_public`). Partitions with a central guarantee need no in-house rows.
        Returns the campaign's description.
        """
        terms = self.terms()
        if not terms.adaptive:
            remedy = "Only campaigns with partitions have rounds."
            errors.refuse("next", "mechanism", "partitions", terms.mechanism.kind, remedy)
        model = self._taught("next", inhouse, inhouse_public, seed)
        adapted = model.next_round(inhouse, inhouse_public=inhouse_public, seed=seed)
        packed = artifact.pack(adapted.shared("collection"))
        path = f"/rounds/{self._learned_round(model) + 1}"
        described = self._connection.put(path, packed, bearer=self._owner())
        self._terms = None  # people who are asked from now on get the new mechanism
        return described

    def _taught(self, where: str, inhouse: Any, public: bool, seed: int, **rule: Any) -> Any:
        """Learn from the reports of all rounds and in-house rows, which must be public."""
        mechanism, adaptive = self.mechanism(), self.terms().adaptive
        if inhouse is None and adaptive and mechanism.synthetic_ is None:
            remedy = "Pass the rows that the mechanism was fitted on."
            errors.refuse(where, "inhouse", "given: a model of partitions needs rows", None, remedy)
        if inhouse is not None and not public:
            remedy = "If they are not, download the reports, and learn and keep the model in-house."
            condition = "True: what is learned from these rows is handed to people"
            errors.refuse(where, "inhouse_public", condition, public, remedy)
        reports = self.reports()
        taught = {} if inhouse is None else {"inhouse": inhouse, "inhouse_public": True}
        model = model_for(reports[-1].mechanism, **taught, seed=seed, **rule)
        return model.fit(reports if adaptive else reports[0])

    def rotate_key(self, key: str) -> None:
        """Make this the owner's key, in place of the one that the client has, which ends at once.

        Make it with `tokens.new`, and store it before: it cannot be asked for later.
        """
        body = to_json({"key": key})
        try:
            self._connection.post("/key", body, bearer=self._owner())
        except ServiceError as error:
            if error.code != "unknown-key":
                raise
            # If the answer to an earlier attempt was lost, the new key is the owner's already.
            self._connection.post("/key", body, bearer=key)
        self._key = key

    @property
    def desk(self) -> Desk:
        """Drafts, days, papers and exports, for the owner."""
        return Desk(self._connection, self._owner())

    def close_campaign(self) -> dict[str, Any]:
        """Close the campaign for good; return its description."""
        return self._connection.post("/close", b"{}", bearer=self._owner())

    # --- inside --------------------------------------------------------------------------------

    def _owner(self) -> str:
        if not self._key:
            remedy = "It was shown when the campaign was created."
            errors.refuse("Client", "key", "the owner's", None, remedy)
        return self._key

    def _drawn(self, token: str, kind: str) -> StoredDraw | None:
        """Return what was drawn before; if nothing was, check that a new draw can be sent."""
        stored = self.kept.find(self.address.campaign, word(token), kind)
        if stored is None:
            self._must_be_open(kind)
            self.terms()  # first: little time may pass between this question and the sending
            self.must_be_unused(token, kind)
        return stored

    def _charged(self, token: str, kind: str, mark: str) -> StoredDraw | None:
        """Charge the ledger for a draw that is about to be made; return one made meanwhile."""
        if self.ledger is None:
            return None
        campaign = self.address.campaign
        name = self.kept.name(campaign, token, kind)
        # Asked again: another process may have drawn before this one made a name.
        if (stored := self.kept.find(campaign, token, kind)) is None:
            key = f"{kind} {self.address.root} campaign {campaign} sha256 {mark} draw {name}"
            self.ledger.charge(self.price(kind), key=key)
        return stored

    def _must_be_many(self, where: str) -> None:
        """Refuse to draw for several people on one person's budget."""
        if self.ledger is not None:
            remedy = "Use report or vote, which charge it, or a client without a ledger."
            errors.refuse(where, "ledger", "None", "a ledger", remedy)

    def _ballot(self) -> Ballot:
        ballot = self.terms().ballot
        if ballot is None:
            raise ServiceError("service: this campaign takes no votes (no-vote)", "no-vote")
        return ballot

    def _must_be_open(self, kind: str) -> None:
        state = one_line(self.describe().get("state"))
        if state != OPEN and (kind, state) != ("vote", FULL):
            raise ServiceError(
                f"service: the campaign takes no answers now: it is {state}. Nothing was drawn.",
                "full" if state == FULL else "not-open",
            )

    def _report_mark(self) -> str:
        return self.terms().fingerprint

    def _learned_round(self, model: Any) -> int:
        """Return the latest round, which must be the last one that the model has reports of."""
        described = self.describe()
        number = field_of(described, "round", int)
        stated = field_of(field_of(described, "artifact", dict), "sha256", str)
        if artifact.fingerprint(model.mechanism_) != stated:
            raise ServiceError(
                f"service: round {number} has no reports yet. Open the next round when it has some."
            )
        return number

    def _keep(self, token: str, kind: str, mark: str, content: Any) -> StoredDraw:
        draw = StoredDraw(mark, body_of(kind, mark, content))
        return self.kept.keep(self.address.campaign, token, kind, draw)

    def _send_kept(self, token: str, kind: str, draw: StoredDraw) -> str:
        self.kept.made(self.address.campaign, token, kind)
        receipt = send(self._connection, token, kind, draw.body)
        self.kept.answered(self.address.campaign, token, kind, receipt)
        return receipt


def _is_final(described: dict[str, Any]) -> bool:
    """Whether a model that is learned now is the first result of one closed batch."""
    closed, model = described.get("closed"), described.get("model")
    return closed is True and model is None and described.get("round") == 1


@contextmanager
def _unless_empty() -> Iterator[None]:
    """Leave out a round without reports."""
    try:
        yield
    except ServiceError as error:
        if error.code != "too-few" or error.extra.get("round") is None:
            raise
