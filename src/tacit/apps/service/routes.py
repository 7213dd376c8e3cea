"""The interface over HTTP: who may ask what. It checks, and hands on."""

from __future__ import annotations

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

from tacit.apps.service import device, openapi, tables
from tacit.apps.service.handling import Service
from tacit.apps.service.metrics import MEDIA_TYPE as METRICS_TYPE
from tacit.apps.service.problems import Problem
from tacit.apps.service.requests import MOST_ITEMS, bearer, body, is_word
from tacit.apps.service.tables import REPORT, VOTE
from tacit.privacy import artifact

STATIC = Path(__file__).parent / "static"
MOST_INVITED = 100_000
_KEPT = {"cache-control": "public, max-age=300"}
_BYTES = "application/octet-stream"
_SHA256 = re.compile("[0-9a-f]{64}")
_BODIES = openapi.bodies(MOST_ITEMS, MOST_INVITED)


CAMPAIGN = "/v1/campaigns/{name}"
Endpoint = Callable[[str, Request], Awaitable[Response]]


class Plain(APIRoute):
    """A route that is documented like any other, and asks for nothing but name and request.

    What the framework does for arguments of other kinds costs more than storing a report.
    """

    def get_route_handler(self) -> Any:
        endpoint: Any = self.endpoint

        async def handle(request: Request) -> Response:
            found: Response = await endpoint(request.path_params["name"], request)
            return found

        return handle


def public(router: APIRouter, service: Service) -> None:
    """What anybody may ask."""
    store = service.store

    @router.get("/v1/health")
    def health() -> dict[str, Any]:
        """Whether the database answers."""
        store.ping()
        return {"status": "ok", "schema": tables.SCHEMA}

    @router.get("/v1/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters, as Prometheus reads them."""
        return Response(service.metrics.text(), media_type=METRICS_TYPE)

    @router.post("/v1/empty", status_code=204)
    async def empty() -> Response:
        """Nothing: to measure the server alone."""
        return Response(status_code=204)

    @router.get(CAMPAIGN)
    def describe(name: str) -> dict[str, Any]:
        """Who asks for what, how, until when, and what it costs: all that people are told."""
        return store.describe(name)

    @router.get(CAMPAIGN + "/certificate", response_class=PlainTextResponse)
    def certificate(name: str) -> Response:
        """The certificate of all that one token can cost, for `tacit account verify`."""
        return Response(store.campaign(name).certificate.to_json(), media_type="application/json")

    @router.get(CAMPAIGN + "/artifact")
    def mechanism(name: str) -> Response:
        """The mechanism, for `tacit.artifact.unpack`."""
        return Response(store.file(name, "artifact"), media_type=_BYTES, headers=_KEPT)

    @router.get(CAMPAIGN + "/encoder")
    def encoder(name: str) -> Response:
        """The encoder, as an ONNX graph."""
        return Response(store.file(name, "encoder"), media_type=_BYTES, headers=_KEPT)

    @router.get(CAMPAIGN + "/device")
    def on_device(name: str) -> JSONResponse:
        """What a page needs beside the encoder: public bounds, the channel's law, prototypes."""
        campaign = store.campaign(name)
        try:
            graph: bytes | None = store.file(name, "encoder")
        except Problem:
            graph = None
        said = device.describe(campaign.mechanism, campaign.channel, graph)
        return JSONResponse(said, headers=_KEPT)

    @router.get(CAMPAIGN + "/model")
    def model(name: str) -> Response:
        """The published model, for `tacit.artifact.unpack`."""
        return Response(store.file(name, "model"), media_type=_BYTES)

    @router.get(CAMPAIGN + "/ballot")
    def ballot(name: str) -> dict[str, Any]:
        """What a page needs to vote on the published model."""
        asked = store.campaign(name).ballot
        if asked is None:
            raise Problem("no-vote")
        return device.ballot(artifact.unpack(store.file(name, "model")), asked)


def participants(router: APIRouter, service: Service) -> None:
    """What holders of a token may do."""
    store = service.store

    def post(path: str, body: str, status: int = 200) -> Callable[[Endpoint], None]:
        """A route on one router: included ones are searched one after the other."""

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

    @post("/reports", "report", 201)
    async def report(name: str, request: Request) -> Response:
        """One report; the same again is answered as before, anything else is refused."""
        token = bearer(request, "unknown-token")
        found = await body(request, "artifact", "report")
        _must_be(found["artifact"], store.campaign(name).fingerprint, "other-artifact")
        return await service.one(REPORT, name, token, found["report"], None)

    @post("/reports/batch", "reports")
    async def reports(name: str, request: Request) -> Response:
        """Reports of several tokens, each with its own outcome."""
        found = await body(request, "artifact", "reports")
        _must_be(found["artifact"], store.campaign(name).fingerprint, "other-artifact")
        return await service.many(REPORT, name, found["reports"], None)

    @post("/votes", "vote", 201)
    async def vote(name: str, request: Request) -> Response:
        """One vote on the published model."""
        token = bearer(request, "unknown-token")
        found = await body(request, "model", "vote")
        about = _model(found["model"], store.campaign(name))
        return await service.one(VOTE, name, token, found["vote"], about)

    @post("/votes/batch", "votes")
    async def votes(name: str, request: Request) -> Response:
        """Votes of several tokens."""
        found = await body(request, "model", "votes")
        about = _model(found["model"], store.campaign(name))
        return await service.many(VOTE, name, found["votes"], about)

    @router.get(CAMPAIGN + "/token")
    def used(name: str, request: Request) -> dict[str, Any]:
        """What this token has sent: asked before anything is drawn, so that nobody draws twice."""
        return service.used(name, bearer(request, "unknown-token"))

    @post("/withdrawals", "withdrawal")
    async def withdraw(name: str, request: Request) -> Response:
        """Delete what a receipt is about. Its token stays spent."""
        found = await body(request, "receipt")
        if not is_word(found["receipt"]):
            raise Problem("unknown-receipt")
        await run(service.withdraw, name, found["receipt"])
        return JSONResponse({"withdrawn": True})


def owners(router: APIRouter, service: Service) -> None:
    """What the owner of a campaign may do."""
    store = service.store

    def own(name: str, request: Request) -> None:
        store.must_own(name, bearer(request, "unknown-key"))

    asking = openapi.body(_BODIES["invitations"])

    @router.post(CAMPAIGN + "/invitations", status_code=201, openapi_extra=asking)
    async def invite(name: str, request: Request) -> Any:
        """New tokens. They are said once, and only hashes of them are kept."""
        await run(own, name, request)
        count = (await body(request, "count"))["count"]
        if type(count) is not int or not 1 <= count <= MOST_INVITED:
            raise Problem("not-json", f"count must be a whole number from 1 to {MOST_INVITED}.")
        return JSONResponse({"tokens": await run(store.invite, name, count)}, 201)

    @router.post(CAMPAIGN + "/close")
    def close(name: str, request: Request) -> dict[str, Any]:
        """Take no further answers, for good."""
        own(name, request)
        store.end(name)
        return store.describe(name)

    @router.get(CAMPAIGN + "/results")
    def summary(name: str, request: Request, confidence: float = 0.95) -> dict[str, Any]:
        """Estimates with their intervals, accuracy by votes, and what fakes could do to them."""
        own(name, request)
        return service.summaries.of(name, confidence)

    @router.post(CAMPAIGN + "/model", status_code=201)
    def learn(name: str, request: Request) -> dict[str, Any]:
        """Learn from the reports so far, and publish: people can vote on it then."""
        own(name, request)
        return service.summaries.learn(name)

    @router.get(CAMPAIGN + "/reports.parquet")
    def download(name: str, request: Request) -> Response:
        """All reports, for `tacit collect learn`."""
        own(name, request)
        with tempfile.TemporaryDirectory() as folder:
            path = store.reports(name).write(Path(folder) / "reports.parquet")
            return Response(path.read_bytes(), media_type=_BYTES)


def pages(router: APIRouter, service: Service) -> None:
    """What people open in a browser."""
    store = service.store

    @router.get("/", include_in_schema=False)
    def front() -> Response:
        """The only campaign, or a list of them."""
        found = store.campaigns()
        if len(found) == 1:
            return RedirectResponse(f"/c/{found[0].id}")
        items = [f'<li><a href="/c/{one.id}">{escape(one.title)}</a></li>' for one in found]
        return HTMLResponse(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Campaigns</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="stylesheet" href="/static/style.css">'
            f"<main><h1>Campaigns</h1><ul>{''.join(items)}</ul></main></html>"
        )

    @router.get("/c/{name}", include_in_schema=False)
    def participate(name: str) -> Response:
        """Draw or fill in, look at what would leave, decide."""
        store.campaign(name)
        return FileResponse(STATIC / "participate.html", media_type="text/html")

    @router.get("/owner/{name}", include_in_schema=False)
    def owner(name: str) -> Response:
        """Counts, estimates, certificate."""
        store.campaign(name)
        return FileResponse(STATIC / "owner.html", media_type="text/html")


def _must_be(given: Any, wanted: str, code: str) -> None:
    if given != wanted:
        raise Problem(code)


def _model(given: Any, campaign: Any) -> str:
    if campaign.ballot is None:
        raise Problem("no-vote")
    if type(given) is not str or not _SHA256.fullmatch(given):
        raise Problem("other-model")
    return given
