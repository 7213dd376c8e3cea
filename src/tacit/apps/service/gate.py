"""The outermost layer, which every request passes: size and rate limits, headers, counters.

It is plain ASGI, so that it adds little time to a request. Bodies are never logged. Each request
gets an id of its own, which its answer and the lines of the log about it have.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from typing import Any

from starlette.requests import ClientDisconnect

from tacit.apps.service.limits import AtOnce, Buckets, sender_of
from tacit.apps.service.logs import request_id
from tacit.apps.service.metrics import Metrics
from tacit.apps.service.problems import MEDIA_TYPE, Problem

LARGEST_BODY, LARGEST_UPLOAD = 1 << 20, 1 << 26
"""In bytes. Only owners upload, with PUT, and their key is checked before the body is read."""
_GONE = 499
_log = logging.getLogger("tacit.apps.service")

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_TLS = (b"strict-transport-security", b"max-age=31536000")


class Gate:
    """The outermost layer of the application."""

    def __init__(
        self,
        app: Any,
        *,
        metrics: Metrics,
        addresses: Buckets,
        at_once: AtOnce,
        largest_body: int = LARGEST_BODY,
        cors: str | None = None,
    ) -> None:
        self.app, self.metrics = app, metrics
        self.addresses, self.at_once = addresses, at_once
        self.largest_body, self.cors = largest_body, cors
        shared = {**_HEADERS}
        if cors is not None:
            shared["cross-origin-resource-policy"] = "cross-origin"
            shared |= {"access-control-allow-origin": cors, "vary": "Origin"}
        self._headers = [(name.encode(), value.encode()) for name, value in shared.items()]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, sender = time.perf_counter(), 0, _sender(scope)
        request_id.set(secrets.token_hex(8))
        headers = self._headers + ([_TLS] if scope["scheme"] == "https" else [])
        headers.append((b"x-request-id", str(request_id.get()).encode()))

        async def answer(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # A response's own headers take precedence, as on files that may be cached.
                own = {name for name, _ in message["headers"]}
                more = [(name, value) for name, value in headers if name not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        entered = False
        try:
            self._admit(scope, sender)
            self.at_once.enter(sender)
            entered = True
            if self.cors is not None and scope["method"] == "OPTIONS":
                await _preflight(answer)
            else:
                await self.app(scope, self._limited(scope, receive), answer)
        except Problem as problem:
            self.metrics.add("tacit_refused_total", reason=problem.code)
            await send_problem(problem, answer)
        except ClientDisconnect:
            status = _GONE  # nobody is left to answer
        except Exception:  # logged without the request, which must not be kept
            _log.exception("a request failed")
            if not status:
                await send_problem(Problem("failed"), answer)
        finally:
            if entered:
                self.at_once.leave(sender)
            self._count(scope, status, time.perf_counter() - began)

    def _admit(self, scope: Any, sender: str) -> None:
        self.addresses.take(sender)
        most = self._largest(scope)
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > most):
                raise _too_large(most)

    def _largest(self, scope: Any) -> int:
        return LARGEST_UPLOAD if scope["method"] == "PUT" else self.largest_body

    def _limited(self, scope: Any, receive: Any) -> Any:
        remaining = most = self._largest(scope)

        async def limited() -> Any:
            nonlocal remaining
            message = await receive()
            remaining -= len(message.get("body", b""))
            if remaining < 0:  # a body without a content-length
                raise _too_large(most)
            return message

        return limited

    def _count(self, scope: Any, status: int, seconds: float) -> None:
        route = scope.get("route")
        path, method = str(getattr(route, "path", "other")), _method(scope)
        self.metrics.add("tacit_requests_total", route=path, method=method, status=str(status))
        self.metrics.took(path, seconds)


def _sender(scope: Any) -> str:
    client = scope.get("client")
    return sender_of(client[0]) if client else ""


def _too_large(most: int) -> Problem:
    return Problem("too-large", f"The body must be at most {most} bytes.")


def _method(scope: Any) -> str:
    known = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")
    return str(scope["method"]) if scope["method"] in known else "other"


async def send_problem(problem: Problem, send: Any) -> None:
    """Send a problem document without the framework."""
    headers = [(b"content-type", MEDIA_TYPE.encode())]
    if "retry_after" in problem.extra:
        headers.append((b"retry-after", str(problem.extra["retry_after"]).encode()))
    body = json.dumps(problem.to_plain(), ensure_ascii=False).encode()
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _preflight(send: Any) -> None:
    headers = [
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", b"authorization, content-type"),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
