"""The routes of the owner's desk: drafts, days, papers and exports."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool as run
from starlette.responses import HTMLResponse, Response

from tacit.apps.service import cells, drafts, exports, openapi, processing
from tacit.apps.service.days import ANSWERED, INVITED, WITHDRAWN
from tacit.apps.service.handling import Service
from tacit.apps.service.problems import Problem
from tacit.apps.service.requests import bearer, body
from tacit.apps.service.routes import CAMPAIGN, STATIC

_REHEARSAL = (
    '<link rel="stylesheet" href="/static/desk.css"><meta name="robots" content="noindex">'
    '<script type="module" src="/static/rehearsal.js"></script>'
)
_BYTES = "application/octet-stream"
_SCRIPT = '<script type="module"'


def owners(router: APIRouter, service: Service) -> None:
    """Add the routes for a campaign's owner."""
    store = service.store

    def own(name: str, request: Request) -> None:
        store.must_own(name, bearer(request, "unknown-key"))

    @router.post(CAMPAIGN + "/draft", openapi_extra=openapi.body(openapi.CHANGES))
    async def edit(name: str, request: Request) -> Any:
        """Change what people will be told; only while the campaign is a draft."""
        await run(own, name, request)
        changes = (await body(request, "changes"))["changes"]
        if type(changes) is not dict:
            raise Problem("not-json", "changes must be a JSON object.")
        await run(drafts.edit, store, name, changes)
        return await run(store.describe, name)

    @router.post(CAMPAIGN + "/open")
    def begin(name: str, request: Request) -> dict[str, Any]:
        """Open a draft: from now on it takes answers and stays as it is."""
        own(name, request)
        drafts.begin(store, name)
        return store.describe(name)

    @router.get(CAMPAIGN + "/timeline")
    def timeline(name: str, request: Request) -> dict[str, Any]:
        """Return how many were invited, opened the page, answered and withdrew, over time."""
        own(name, request)
        return store.days.timeline(name)

    @router.get(CAMPAIGN + "/robust")
    def robust(
        name: str, request: Request, forged: int, confidence: float = 0.95
    ) -> dict[str, Any]:
        """Return shares with intervals that hold if at most so many reports are forged."""
        own(name, request)
        return service.summaries.robust(name, forged, confidence)

    @router.get(CAMPAIGN + "/results.csv")
    def table(name: str, request: Request, confidence: float = 0.95) -> Response:
        """Return all estimates as a table (CSV)."""
        own(name, request)
        summary = service.summaries.of(name, confidence)
        return Response(exports.as_csv(summary), media_type="text/csv; charset=utf-8")

    @router.get(CAMPAIGN + "/results.parquet")
    def parquet(name: str, request: Request, confidence: float = 0.95) -> Response:
        """Return all estimates as a table (Parquet)."""
        own(name, request)
        summary = service.summaries.of(name, confidence)
        return Response(exports.as_parquet(summary), media_type=_BYTES)

    @router.get(CAMPAIGN + "/results.png")
    def picture(name: str, request: Request, confidence: float = 0.95) -> Response:
        """Return a picture of all estimates with their intervals."""
        own(name, request)
        summary, title = service.summaries.of(name, confidence), store.campaign(name).title
        return Response(exports.as_png(summary, title), media_type="image/png")

    @router.get(CAMPAIGN + "/groups")
    def groups(name: str, request: Request) -> dict[str, Any]:
        """Return typical rows of each group of each partition, in bytes; null if unknown."""
        own(name, request)
        campaign = store.current(name)
        found = cells.typical(campaign.mechanism) if campaign.adaptive else None
        return {"round": campaign.round, "partitions": found and [_bytes(one) for one in found]}

    @router.get(CAMPAIGN + "/record")
    def record(name: str, request: Request) -> dict[str, Any]:
        """Return the record of processing (GDPR, article 30), from the campaign's settings."""
        own(name, request)
        return processing.record(*_recorded(service, name)).to_plain()


def public(router: APIRouter, service: Service) -> None:
    """Add the routes that anyone may use."""

    @router.get(CAMPAIGN + "/notice")
    def notice(name: str) -> dict[str, Any]:
        """Return the privacy notice (GDPR, article 13), from the campaign's settings."""
        return processing.notice(service.store.current(name)).to_plain()


def pages(router: APIRouter, service: Service) -> None:
    """Add the pages that people open in a browser."""

    @router.get("/c/{name}/notice", include_in_schema=False)
    def notice(name: str) -> Response:
        """Return the privacy notice as a page to read or print."""
        paper = processing.notice(service.store.current(name))
        return HTMLResponse(paper.to_html(_link(f"/c/{name}", "To the survey")))

    @router.get("/c/{name}/certificate", include_in_schema=False)
    def certificate(name: str, round: int | None = None) -> Response:
        """Return the certificate as a page to read or print."""
        campaign = service.store.current(name, round)
        file = f"/v1/campaigns/{name}/certificate?round={campaign.round}"
        return HTMLResponse(processing.certificate(campaign).to_html(_link(file, "As a file")))

    @router.get("/c/{name}/preview", include_in_schema=False)
    def preview(name: str) -> Response:
        """Return the participant's page with nothing behind it: it sends and stores nothing."""
        service.store.campaign(name)
        page = (STATIC / "participate.html").read_text(encoding="utf-8")
        # Modules run in their order: what the page would reach is replaced before it runs.
        return HTMLResponse(page.replace(_SCRIPT, _REHEARSAL + _SCRIPT, 1))


def _recorded(service: Service, name: str) -> tuple[Any, str, dict[str, int]]:
    """Return a campaign, its state, and how many were invited, answered and withdrew."""
    store = service.store
    timeline, described = store.days.timeline(name), store.describe(name)
    totals = {what: timeline[what]["people"] for what in (INVITED, ANSWERED, WITHDRAWN)}
    return store.current(name), described["state"], totals


def _bytes(rows: npt.NDArray[np.float64]) -> str:
    """Write numbers within [0, 1] as bytes, in base64."""
    return base64.b64encode(np.rint(255 * np.clip(rows, 0, 1)).astype(np.uint8).tobytes()).decode()


def _link(address: str, text: str) -> str:
    return f'<a href="{address}">{text}</a>'
