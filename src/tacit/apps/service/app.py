"""The application: the routes, the errors' handlers, and the gate in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles

from tacit import __version__
from tacit.apps.service import desk, openapi, routes
from tacit.apps.service.gate import Gate
from tacit.apps.service.handling import Limits, Service
from tacit.apps.service.limits import AtOnce, Buckets
from tacit.apps.service.problems import MEDIA_TYPE, Problem
from tacit.apps.service.store import Store
from tacit.privacy import errors

__all__ = ["Limits", "make_app"]


def make_app(store: Store, *, limits: Limits | None = None, cors: str | None = None) -> FastAPI:
    """Make the application; `cors` names one other origin whose pages may send requests."""
    service = Service(store, limits or Limits())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.inbox.stop()
        with suppress(Problem):  # a count that is approximate anyway
            store.days.flush()
        store.engine.dispose()  # closing the last connection removes SQLite's log

    app = FastAPI(
        title="Tacit collection service",
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # that page would load scripts from a third party
        redoc_url=None,
        redirect_slashes=False,  # a token goes only to the address that it was sent to
        lifespan=lifespan,
        responses=openapi.problems(),
    )
    app.state.service = service
    for kind in (Problem, errors.TacitError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refused)
    for part in (routes.participants, routes.public, routes.owners, routes.pages):
        part(app.router, service)
    for part in (desk.owners, desk.public, desk.pages):
        part(app.router, service)
    app.mount("/static", StaticFiles(directory=routes.STATIC), name="static")
    buckets = Buckets(service.limits.rate, service.limits.burst)
    app.add_middleware(
        Gate,
        metrics=service.metrics,
        addresses=buckets,
        at_once=AtOnce(service.limits.at_once),
        largest_body=service.limits.largest_body,
        cors=cors,
    )
    return app


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Answer an exception with a problem document, which never quotes what was sent."""
    problem = _problem(error)
    request.app.state.service.metrics.add("tacit_refused_total", reason=problem.code)
    headers = {}
    if "retry_after" in problem.extra:
        headers["retry-after"] = str(problem.extra["retry_after"])
    return JSONResponse(problem.to_plain(), problem.status, headers, media_type=MEDIA_TYPE)


def _problem(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.TacitError):
        return Problem("bad-request", str(error))
    if isinstance(error, RequestValidationError):
        return Problem("bad-request")
    if isinstance(error, HTTPException):
        code = {405: "not-allowed", 400: "not-json"}.get(error.status_code, "not-found")
        return Problem(code)
    return Problem("failed")
