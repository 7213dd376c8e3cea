"""The Python client: for people who take part, and for owners.

A report is drawn once, on this machine, after its mechanism was checked, and after the server said
that the token is unused. It is kept before it is sent, and sent again as it is until the server has
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np

from tacit.apps.service.campaign import FULL, OPEN, Campaign
from tacit.apps.service.connection import (
    Address,
    Connection,
    ServiceError,
    field_of,
    one_line,
    problem_of,
    read_object,
    to_json,
    word,
)
from tacit.apps.service.kept import Draw, Kept
from tacit.apps.service.terms import checked
from tacit.data.columns import columns_of
from tacit.local.inference.votes import Ballot, cast
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors

LARGEST_BATCH = 1000
MOST_TOKENS = 100_000
_ABOUT = {"report": "artifact", "vote": "model"}
_USED = {"report": "already-reported", "vote": "already-voted"}


class Client:
    """One campaign, as a participant or as its owner sees it.

    Parameters
    ----------
    url : str
        Of the campaign, its page, or an invitation.
    key : str, optional
        The owner's.
    state : path, optional
        Folder where what was drawn is kept; the user's folder for state if left out.
    retries : int
        How often a request that failed on the way is sent again, with growing pauses.
    timeout : float
        Seconds that one try may take.
    transport : httpx.BaseTransport, optional
        For tests.

    Notes
    -----
    There is no parameter for a generator: noise comes from the operating system's entropy. A report
    costs its ε once, however often it is sent; another token is another draw, and costs again. So
    is the same token with another `state`, unless the server says that it was used: it is asked.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        state: str | Path | None = None,
        retries: int = 5,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = Address.of(url)
        self.kept = Kept(state)
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

    # --- what is asked -------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What the server says of the campaign, now."""
        return read_object(self._connection.get(""))

    def terms(self) -> Campaign:
        """What taking part means, derived from the mechanism itself; fetched once."""
        if self._terms is None:
            self._terms = checked(self.describe(), self._connection.get("/artifact"))
        return self._terms

    def mechanism(self) -> Any:
        """What runs on a participant's device, checked."""
        return self.terms().mechanism

    def model(self) -> Any:
        """The published model, checked against its described hash."""
        described = self.describe().get("model")
        if not isinstance(described, dict):
            raise ServiceError("service: no model has been published yet (no-model)", "no-model")
        stated = str(described.get("sha256"))
        if stated not in self._models:
            model = artifact.unpack(self._connection.get("/model"), "model")
            if artifact.fingerprint(model) != stated:
                raise errors.CertificateError("campaign: the model must be the described one.")
            self._models[stated] = model
        return self._models[stated]

    # --- taking part ---------------------------------------------------------------------------

    def report(self, token: str, row: Any, label: Any = None) -> str:
        """Report one row, drawn once; the receipt.

        Asked again with the same token, it sends what was drawn, whatever the row is now.
        """
        if (draw := self._drawn(token, "report")) is None:
            content = _only(as_json(self.draw(row, label)))
            draw = self._keep(token, "report", self._report_mark(), content)
        return self._send_kept(token, "report", draw)

    def draw(self, rows: Any, labels: Any = None) -> Reports:
        """One report of each row, not sent and not kept: whoever calls this must send it as it is.

        A single row may come alone: as an array, or as a mapping of column names to values.
        """
        terms = self.terms()
        if (labels is not None) != terms.labelled:
            condition = "given: the campaign asks for it" if terms.labelled else "left out"
            errors.refuse("Client", "label", condition, type(labels).__name__)
        table, one = together(rows, terms.mechanism.schema)
        reports: Reports = terms.mechanism.release(table, _labels(labels, one))
        return reports

    def send(self, token: str, report: Mapping[str, Any]) -> str:
        """Send one report that was drawn before, as JSON-ready columns; the receipt."""
        return self._send(token, "report", self._body("report", self._report_mark(), dict(report)))

    def send_batch(
        self, items: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[str | ServiceError]:
        """Send many reports that were drawn before: a receipt or the reason for each, in order."""
        given = [{"token": token, "report": dict(report)} for token, report in items]
        return self._send_many("report", self._report_mark(), given)

    def vote(self, token: str, row: Any, label: Any) -> str:
        """Try the published model on one row, and vote whether it was right; the receipt."""
        if (draw := self._drawn(token, "vote")) is None:
            model, symbols = self.cast(row, label)
            draw = self._keep(token, "vote", artifact.fingerprint(model), _only(symbols))
        return self._send_kept(token, "vote", draw)

    def cast(self, rows: Any, labels: Any) -> tuple[Any, list[Any]]:
        """The model, and a vote on it of each row, neither sent nor kept."""
        ballot, model = self._ballot(), self.model()
        table, one = together(rows, self.mechanism().schema)
        return model, cast(model, table, _labels(labels, one), ballot).symbols.tolist()

    def send_vote(self, model: Any, token: str, vote: Any) -> str:
        """Send one vote that was cast before; the receipt."""
        return self._send(token, "vote", self._body("vote", artifact.fingerprint(model), vote))

    def send_votes(self, model: Any, items: Sequence[tuple[str, Any]]) -> list[str | ServiceError]:
        """Send many votes on a model: a receipt or the reason for each, in order."""
        given = [{"token": token, "vote": vote} for token, vote in items]
        return self._send_many("vote", artifact.fingerprint(model), given)

    def must_be_unused(self, token: str, kind: str) -> None:
        """Refuse to draw a report, or a vote, where the server has had one of this token.

        Whoever sent it from elsewhere, or has lost what was kept, would draw a second time. A
        server that lies can hide it.
        """
        if kind == "vote":
            self._ballot()
        answer = read_object(self._connection.get("/token", bearer=token))
        found = one_line(field_of(answer, kind, str))
        if found != "none":
            raise ServiceError(
                f"service: a {kind} of this token is {found} already, and no draw of it is kept in "
                f"{self.kept.folder}. Nothing was drawn: another one would cost ε again.",
                found if found == "withdrawn" else _USED[kind],
            )

    def withdraw(self, receipt: str) -> None:
        """Have the report or vote of this receipt deleted; its token stays spent."""
        self._connection.post("/withdrawals", to_json({"receipt": receipt}))

    # --- owners --------------------------------------------------------------------------------

    def invite(self, count: int) -> list[str]:
        """So many new tokens."""
        count = errors.whole("invite", "count", count, least=1)
        tokens: list[str] = []
        for start in range(0, count, MOST_TOKENS):
            body = to_json({"count": min(count - start, MOST_TOKENS)})
            answer = self._connection.post("/invitations", body, bearer=self._owner())
            tokens += map(str, field_of(answer, "tokens", list))
        return tokens

    def link(self, token: str) -> str:
        """The page with this token behind the #, which browsers do not send."""
        return f"{self.address.page}#token={token}"

    def results(self, confidence: float = 0.95) -> dict[str, Any]:
        """What the reports and votes say so far."""
        content = self._connection.get("/results", bearer=self._owner(), confidence=confidence)
        return read_object(content)

    def download_reports(self, path: str | Path) -> Path:
        """All reports as a file for `Reports.read` and `tacit collect learn`; it must be new."""
        path = Path(path)
        content = self._connection.get("/reports.parquet", bearer=self._owner())
        with path.open("xb") as file:
            file.write(content)
        return path

    def learn(self) -> dict[str, Any]:
        """Learn a model from the reports so far, and publish it."""
        return self._connection.post("/model", b"{}", bearer=self._owner())

    def close_campaign(self) -> dict[str, Any]:
        """Take no more answers; the description."""
        return self._connection.post("/close", b"{}", bearer=self._owner())

    # --- inside --------------------------------------------------------------------------------

    def _owner(self) -> str:
        if not self._key:
            errors.refuse("Client", "key", "the owner's", None, "It was shown at the start.")
        return self._key

    def _drawn(self, token: str, kind: str) -> Draw | None:
        """What was drawn before; nothing is drawn for a campaign that would not take it."""
        found = self.kept.find(self.address.campaign, word(token), kind)
        if found is None:
            self._must_be_open(kind)
            self.terms()  # first, as nothing should take long between asking and sending
            self.must_be_unused(token, kind)
        return found

    def _ballot(self) -> Ballot:
        ballot = self.terms().ballot
        if ballot is None:
            raise ServiceError("service: this campaign asks for no votes (no-vote)", "no-vote")
        return ballot

    def _must_be_open(self, kind: str) -> None:
        state = one_line(self.describe().get("state"))
        if state != OPEN and (kind, state) != ("vote", FULL):
            raise ServiceError(
                f"service: the campaign takes no answers now, it is {state}. Nothing was drawn.",
                "full" if state == FULL else "not-open",
            )

    def _report_mark(self) -> str:
        return self.terms().fingerprint

    @staticmethod
    def _body(kind: str, mark: str, content: Any) -> str:
        return to_json({_ABOUT[kind]: mark, kind: content}).decode()

    def _keep(self, token: str, kind: str, mark: str, content: Any) -> Draw:
        draw = Draw(mark, self._body(kind, mark, content))
        return self.kept.keep(self.address.campaign, token, kind, draw)

    def _send_kept(self, token: str, kind: str, draw: Draw) -> str:
        receipt = self._send(token, kind, draw.body)
        self.kept.answered(self.address.campaign, token, kind, receipt)
        return receipt

    def _send(self, token: str, kind: str, body: str) -> str:
        answer = self._connection.post(f"/{kind}s", body.encode(), bearer=token)
        return field_of(answer, "receipt", str)

    def _send_many(
        self, kind: str, mark: str, given: list[dict[str, Any]]
    ) -> list[str | ServiceError]:
        found: list[str | ServiceError] = []
        for start in range(0, len(given), LARGEST_BATCH):
            some = given[start : start + LARGEST_BATCH]
            body = to_json({_ABOUT[kind]: mark, f"{kind}s": some})
            answer = self._connection.post(f"/{kind}s/batch", body)
            results = field_of(answer, "results", list)
            found += [_outcome(one) for one, _ in zip(results, some, strict=True)]
        return found


def as_json(reports: Reports) -> list[dict[str, Any]]:
    """Each report as JSON-ready columns."""
    columns = {name: column.tolist() for name, column in reports.columns.items()}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def together(rows: Any, schema: Any) -> tuple[Any, bool]:
    """Rows as a mechanism takes them, and whether it was a single one that came alone."""
    if isinstance(rows, Mapping):
        alone = not any(np.ndim(value) for value in rows.values())
        return ({name: [value] for name, value in rows.items()} if alone else rows), alone
    if columns_of(rows) is not None:
        return rows, False
    array = np.asarray(rows)
    shapes = {(getattr(schema, "width", None),), getattr(schema, "image", None)}
    alone = array.shape in shapes
    return (array[None] if alone else array), alone


def _labels(labels: Any, one: bool) -> Any:
    return labels if labels is None or not one or np.ndim(labels) else [labels]


def _only(drawn: list[Any]) -> Any:
    """The one draw; of more, nothing is sent."""
    if len(drawn) != 1:
        errors.refuse("Client", "rows", "a single one for each token", len(drawn))
    return drawn[0]


def _outcome(result: Any) -> str | ServiceError:
    if isinstance(result, dict) and "receipt" in result:
        return str(result["receipt"])
    refused = field_of(result, "problem", dict)
    return problem_of(refused, field_of(refused, "status", int))
