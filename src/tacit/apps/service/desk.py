"""The routes of the owner's desk: drafts, days, papers and exports."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool as run
from starlette.responses import HTMLResponse, Response

from tacit.apps.service import drafts, openapi
from tacit.apps.service.handling import Service
from tacit.apps.service.problems import Problem
from tacit.apps.service.requests import bearer, body
from tacit.apps.service.routes import CAMPAIGN, STATIC

_REHEARSAL = (
    '<link rel="stylesheet" href="/static/desk.css"><meta name="robots" content="noindex">'
    '<script type="module" src="/static/rehearsal.js"></script>'
)
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


def pages(router: APIRouter, service: Service) -> None:
    """Add the pages that people open in a browser."""

    @router.get("/c/{name}/preview", include_in_schema=False)
    def preview(name: str) -> Response:
        """Return the participant's page with nothing behind it: it sends and stores nothing."""
        service.store.campaign(name)
        page = (STATIC / "participate.html").read_text(encoding="utf-8")
        # Modules run in their order: what the page would reach is replaced before it runs.
        return HTMLResponse(page.replace(_SCRIPT, _REHEARSAL + _SCRIPT, 1))
