"""The HTTP interface: each route checks who may send the request, and passes it on."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Awaitable, Callable
from html import escape
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool as run
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)

from tacit.apps.service import device, openapi, tables, tokens
from tacit.apps.service.handling import Service
from tacit.apps.service.metrics import MEDIA_TYPE as METRICS_TYPE
from tacit.apps.service.problems import Problem
from tacit.apps.service.requests import MOST_ITEMS, bearer, body, is_word, sender
from tacit.apps.service.tables import REPORT, VOTE
from tacit.privacy import artifact

STATIC = Path(__file__).parent / "static"
MOST_INVITED = 100_000
_BYTES = "application/octet-stream"
_SHA256 = re.compile("[0-9a-f]{64}")
_BODIES = openapi.bodies(MOST_ITEMS, MOST_INVITED)


CAMPAIGN = "/v1/campaigns/{name}"
_UNLISTED = "This server lists no campaign. If you were invited, open the link in your invitation."
Endpoint = Callable[[str, Request], Awaitable[Response]]


class Plain(APIRoute):
    """A route whose endpoint takes only the campaign's name and the request.

    It is documented like any other route. The framework's handling of other arguments would cost
    more time than storing a report.
    """

    def get_route_handler(self) -> Any:
        endpoint: Any = self.endpoint

        async def handle(request: Request) -> Response:
            response: Response = await endpoint(request.path_params["name"], request)
            return response

        return handle


def public(router: APIRouter, service: Service) -> None:
    """Add the routes that anyone may use."""
    store = service.store

    @router.get("/v1/live")
    async def live() -> dict[str, Any]:
        """Return 200 while the process answers, whatever the database does."""
        return {"status": "ok"}

    @router.get("/v1/ready")
    @router.get("/v1/health", include_in_schema=False)
    def ready() -> dict[str, Any]:
        """Return 200 while the database stores what is written: tries it."""
        service.readiness.check()
        return {"status": "ok", "schema": tables.SCHEMA}

    @router.get("/v1/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return counters and gauges of this process in Prometheus' text format."""
        ready = await service.readiness.soon()
        return Response(service.metrics.text(ready), media_type=METRICS_TYPE)

    @router.post("/v1/empty", status_code=204)
    async def empty() -> Response:
        """Do nothing: for measuring the server's own overhead."""
        return Response(status_code=204)

    @router.get(CAMPAIGN)
    def describe(name: str) -> dict[str, Any]:
        """Describe the campaign: title, purpose, dates, counts, privacy cost and certificate."""
        return store.describe(name)

    @router.get(CAMPAIGN + "/certificate", response_class=PlainTextResponse)
    def certificate(name: str, round: int | None = None) -> Response:
        """Return the certificate of everything one token can send, for `tacit account verify`."""
        issued = store.current(name, round).certificate
        return Response(issued.to_json(), media_type="application/json")

    @router.get(CAMPAIGN + "/artifact")
    def mechanism(name: str, round: int | None = None) -> Response:
        """Return the mechanism of the latest round, or of this one, for `tacit.artifact.unpack`."""
        content = store.part(name, store.current(name, round).round, "artifact")
        return Response(content, media_type=_BYTES, headers=_kept(round))

    @router.get(CAMPAIGN + "/encoder")
    def encoder(name: str, round: int | None = None) -> Response:
        """Return the encoder as an ONNX graph."""
        content = store.part(name, store.current(name, round).round, "encoder")
        return Response(content, media_type=_BYTES, headers=_kept(round))

    @router.get(CAMPAIGN + "/device")
    def on_device(name: str, round: int | None = None) -> JSONResponse:
        """Return what a page needs besides the encoder: bounds, the channel's law, prototypes."""
        campaign = store.current(name, round)
        try:
            graph: bytes | None = store.part(name, campaign.round, "encoder")
        except Problem:
            graph = None
        description = device.describe(campaign.mechanism, campaign.channel, graph)
        return JSONResponse(description, headers=_kept(round))

    @router.get(CAMPAIGN + "/model")
    def model(name: str) -> Response:
        """Return the published model, for `tacit.artifact.unpack`."""
        return Response(store.model(name), media_type=_BYTES)

    @router.get(CAMPAIGN + "/ballot")
    def ballot(name: str) -> dict[str, Any]:
        """Return what a page needs for a vote on the published model."""
        return service.ballots.describe(name)

    @router.get(CAMPAIGN + "/model.onnx")
    def graph(name: str) -> Response:
        """Return the published model as an ONNX graph, from rows to the index of the answer."""
        return Response(service.ballots.graph(name), media_type=_BYTES)


def participants(router: APIRouter, service: Service) -> None:
    """Add the routes for holders of a token."""
    store = service.store

    def post(path: str, body: str, status: int = 200) -> Callable[[Endpoint], None]:
        """Add a route to the one router: included routers would be searched one after another."""

        def add(endpoint: Endpoint) -> None:
            router.add_api_route(
                CAMPAIGN + path,
                endpoint,
                methods=["POST"],
                status_code=status,
                openapi_extra=openapi.body(_BODIES[body]),
                route_class_override=Plain,
            )

        return add

    async def drawn_from(name: str, given: Any) -> str:
        """Return the hash of the mechanism that reports name; it must be one of the rounds'."""
        if type(given) is not str:
            raise Problem("other-artifact")
        if not store.knows_round(name, given):
            await run(store.round_of, name, given)
        return given

    @post("/reports", "report", 201)
    async def report(name: str, request: Request) -> Response:
        """Store one report. The same report again gets the same receipt; another is refused."""
        token = bearer(request, "unknown-token")
        service.strangers.must_be_ours(name, token, sender(request))
        sent = await body(request, "artifact", "report")
        about = await drawn_from(name, sent["artifact"])
        return await service.one(REPORT, name, token, sent["report"], about, sender(request))

    @post("/reports/batch", "reports")
    async def reports(name: str, request: Request) -> Response:
        """Store reports of several tokens; each gets its own receipt or problem."""
        service.strangers.must_be_few(sender(request))
        sent = await body(request, "artifact", "reports")
        about = await drawn_from(name, sent["artifact"])
        return await service.many(REPORT, name, sent["reports"], about, sender(request))

    @post("/votes", "vote", 201)
    async def vote(name: str, request: Request) -> Response:
        """Store one vote on the published model."""
        token = bearer(request, "unknown-token")
        service.strangers.must_be_ours(name, token, sender(request))
        sent = await body(request, "model", "vote")
        about = _model(sent["model"], store.campaign(name))
        return await service.one(VOTE, name, token, sent["vote"], about, sender(request))

    @post("/votes/batch", "votes")
    async def votes(name: str, request: Request) -> Response:
        """Store votes of several tokens; each gets its own receipt or problem."""
        service.strangers.must_be_few(sender(request))
        sent = await body(request, "model", "votes")
        about = _model(sent["model"], store.campaign(name))
        return await service.many(VOTE, name, sent["votes"], about, sender(request))

    @router.get(CAMPAIGN + "/token")
    def used(name: str, request: Request) -> dict[str, Any]:
        """Return what this token has sent; devices ask this first, so as not to draw twice."""
        return service.used(name, bearer(request, "unknown-token"), sender(request))

    @post("/withdrawals", "withdrawal")
    async def withdraw(name: str, request: Request) -> Response:
        """Delete the answer of a receipt. Its token stays used."""
        sent = await body(request, "receipt")
        if not is_word(sent["receipt"]):
            raise Problem("unknown-receipt")
        await run(service.withdraw, name, sent["receipt"])
        return JSONResponse({"withdrawn": True})


def owners(router: APIRouter, service: Service) -> None:
    """Add the routes for a campaign's owner."""
    store = service.store

    def own(name: str, request: Request) -> None:
        store.must_own(name, bearer(request, "unknown-key"))

    asking = openapi.body(_BODIES["invitations"])

    @router.post(CAMPAIGN + "/invitations", status_code=201, openapi_extra=asking)
    async def invite(name: str, request: Request) -> Any:
        """Make new tokens. They are returned once; the server stores only hashes of them."""
        await run(own, name, request)
        count = (await body(request, "count"))["count"]
        if type(count) is not int or not 1 <= count <= MOST_INVITED:
            raise Problem("not-json", f"count must be a whole number from 1 to {MOST_INVITED}.")
        return JSONResponse({"tokens": await run(store.invite, name, count)}, 201)

    new_key = openapi.body(_BODIES["key"])

    @router.post(CAMPAIGN + "/key", openapi_extra=new_key)
    async def replace_key(name: str, request: Request) -> Any:
        """Replace the owner's key; the one that was sent with this request ends at once."""
        before = bearer(request, "unknown-key")
        await run(own, name, request)
        key = (await body(request, "key"))["key"]
        if type(key) is not str or not tokens.KEY.fullmatch(key):
            raise Problem("not-json", "key must have the form of the keys that servers make.")
        await run(store.replace_key, name, key, before)
        return JSONResponse({"replaced": True})

    @router.post(CAMPAIGN + "/close")
    def close(name: str, request: Request) -> dict[str, Any]:
        """Close the campaign for good: it takes no further answers."""
        own(name, request)
        store.end(name)
        service.summaries.close(name)
        return store.describe(name)

    @router.get(CAMPAIGN + "/results")
    def summary(name: str, request: Request, confidence: float = 0.95) -> dict[str, Any]:
        """Return estimates with intervals, accuracy by votes, and the possible effect of fakes."""
        own(name, request)
        return service.summaries.of(name, confidence)

    @router.get(CAMPAIGN + "/answer")
    def answer(
        name: str,
        request: Request,
        question: str,
        confidence: float = 0.95,
        simultaneous: bool = False,
    ) -> dict[str, Any]:
        """Answer a question about a survey from its reports, as `tacit ask --json` does."""
        own(name, request)
        options = {"confidence": confidence, "simultaneous": simultaneous}
        return service.summaries.answer(name, question, **options)

    @router.post(CAMPAIGN + "/model", status_code=201)
    def learn(name: str, request: Request) -> dict[str, Any]:
        """Learn a model from the reports so far, and publish it for people to vote on."""
        own(name, request)
        return service.summaries.learn(name)

    @router.put(CAMPAIGN + "/model", status_code=201, openapi_extra=openapi.UPLOAD)
    async def publish(name: str, request: Request) -> Any:
        """Publish a model that was learned from the reports and in-house rows elsewhere."""
        await run(own, name, request)  # before the body is read, which may be large
        return await run(service.summaries.publish, name, await request.body())

    @router.put(CAMPAIGN + "/rounds/{number}", status_code=201, openapi_extra=openapi.UPLOAD)
    async def next_round(name: str, number: int, request: Request) -> Any:
        """Open the next round with this mechanism, as `tacit.artifact.pack` writes it."""
        await run(own, name, request)
        mechanism = await run(artifact.unpack, await request.body(), "mechanism")
        await run(store.open_round, name, number, mechanism)
        return await run(store.describe, name)

    @router.get(CAMPAIGN + "/reports.parquet")
    def download(name: str, request: Request, round: int | None = None) -> Response:
        """Return all reports of a round as a Parquet file, for `tacit collect learn`."""
        own(name, request)
        with tempfile.TemporaryDirectory() as folder:
            path = store.reports_of(name, round).write(Path(folder) / "reports.parquet")
            return Response(path.read_bytes(), media_type=_BYTES)


def pages(router: APIRouter, service: Service) -> None:
    """Add the pages that people open in a browser."""
    store = service.store

    @router.get("/", include_in_schema=False)
    def front() -> Response:
        """Redirect to the only listed campaign, or list these; no other is named."""
        listed = store.listed()
        if len(listed) == 1:
            return RedirectResponse(f"/c/{listed[0][0]}")
        items = [f'<li><a href="/c/{name}">{escape(title)}</a></li>' for name, title in listed]
        shown = f"<ul>{''.join(items)}</ul>" if items else f"<p>{_UNLISTED}</p>"
        return HTMLResponse(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Campaigns</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="icon" href="data:,">'
            '<link rel="stylesheet" href="/static/style.css">'
            f"<header><h1>Campaigns</h1></header><main>{shown}</main></html>"
        )

    worker = (STATIC / "worker.js").read_text(encoding="utf-8").replace("VERSION", _version())

    @router.get("/c/worker.js", include_in_schema=False)
    async def offline() -> Response:
        """Return the script that opens the page without a connection; its folder is its scope."""
        return Response(worker, media_type="text/javascript")

    @router.get("/c/{name}", include_in_schema=False)
    def participate(name: str) -> Response:
        """Return the participant's page."""
        store.campaign(name)
        return FileResponse(STATIC / "participate.html", media_type="text/html")

    @router.get("/owner/{name}", include_in_schema=False)
    def owner(name: str) -> Response:
        """Return the owner's page."""
        store.campaign(name)
        return FileResponse(STATIC / "owner.html", media_type="text/html")


def _version() -> str:
    """Return a mark of the page's files: browsers copy them again when one has changed."""
    files = sorted(path for path in STATIC.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _kept(number: int | None) -> dict[str, str]:
    """Let browsers keep the parts of a round: they never change, but the latest round may."""
    return {} if number is None else {"cache-control": "public, max-age=300"}


def _model(given: Any, campaign: Any) -> str:
    if campaign.ballot is None:
        raise Problem("no-vote")
    if type(given) is not str or not _SHA256.fullmatch(given):
        raise Problem("other-model")
    return given
