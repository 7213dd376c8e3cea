"""Requests with retries, and the server's problems as one-line errors.

Every request may be sent twice: the server answers the same report with the same receipt. So a
request that may have been lost is sent again, byte for byte.
"""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import httpx

from tacit.privacy import errors

_AGAIN = frozenset({429, 500, 502, 503, 504})
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 30.0
_LARGEST_ANSWER = 2**28
_LONGEST_TEXT = 300
_BYTES = "application/octet-stream"
_PATH = re.compile(r"(?P<root>.*)/(?:v1/campaigns|c|owner)/(?P<id>[A-Za-z0-9_-]{12})/?")

T = TypeVar("T")


class ServiceError(errors.TacitError):
    """An error for a server that refused a request or could not be reached.

    Parameters
    ----------
    message : str
        One line.
    code : str
        The part after ``tacit:`` in the type of the problem; "" without a problem.
    status : int
        HTTP status of the answer; 0 without an answer.
    extra : dict
        Further fields of the problem.
    """

    def __init__(
        self, message: str, code: str = "", status: int = 0, extra: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.status, self.extra = code, status, extra or {}


@dataclass(frozen=True)
class Address:
    """The address of a campaign: its server's root, its id, and an invitation's token."""

    root: str
    campaign: str
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a campaign's address or page, or an invitation with its token after the #."""
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError):
            _refuse_address(str(url))
        match = _PATH.fullmatch(parsed.path)
        plain = not parsed.query and not parsed.userinfo
        if match is None or parsed.scheme not in ("http", "https") or not parsed.host or not plain:
            _refuse_address(str(url))
        token = httpx.QueryParams(parsed.fragment).get("token")
        root = str(parsed.copy_with(path=match["root"] or "/", fragment=None)).rstrip("/")
        return cls(root, match["id"], token)

    @property
    def api(self) -> str:
        """The campaign's address in the HTTP interface."""
        return f"{self.root}/v1/campaigns/{self.campaign}"

    @property
    def page(self) -> str:
        """The participants' page."""
        return f"{self.root}/c/{self.campaign}"

    @property
    def in_the_clear(self) -> bool:
        """Whether anyone on the network path can read and change what is sent."""
        url = httpx.URL(self.root)
        return url.scheme == "http" and url.host not in ("localhost", "127.0.0.1", "::1")


class Connection:
    """An HTTP connection that retries failed requests.

    Parameters
    ----------
    root : str
        Address that every path is relative to.
    retries : int
        Number of times that a failed request is sent again.
    timeout : float
        Seconds that one attempt may take.
    transport : httpx.BaseTransport, optional
        For tests.
    """

    def __init__(
        self,
        root: str,
        *,
        retries: int = 5,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.root = root
        self._retries = errors.whole("Client", "retries", retries, least=0, most=100)
        # Redirects are not followed: a token goes only to the host that it was meant for.
        self._http = httpx.Client(
            timeout=float(errors.positive("Client", "timeout", timeout)),
            transport=transport,
            follow_redirects=False,
        )

    def disconnect(self) -> None:
        """Close the sockets."""
        self._http.close()

    def get(self, path: str, *, bearer: str | None = None, **query: Any) -> bytes:
        """Fetch the content at a path."""
        return self._request("GET", path, bearer, None, query)

    def post(self, path: str, body: bytes, *, bearer: str | None = None) -> dict[str, Any]:
        """Send a JSON body, and return the server's answer."""
        return read_object(self._request("POST", path, bearer, body, {}))

    def put(self, path: str, body: bytes, *, bearer: str) -> dict[str, Any]:
        """Send a packed mechanism or model, and return the server's answer."""
        return read_object(self._request("PUT", path, bearer, body, {}))

    def _request(
        self, method: str, path: str, bearer: str | None, body: bytes | None, query: dict[str, Any]
    ) -> bytes:
        headers = {} if bearer is None else {"Authorization": f"Bearer {word(bearer)}"}
        if body is not None:
            headers["Content-Type"] = _BYTES if method == "PUT" else "application/json"
        request = self._http.build_request(
            method, self.root + path, headers=headers, content=body, params=query or None
        )
        for tries in range(self._retries + 1):
            last = tries == self._retries
            try:
                status, retry_after, content = self._once(request)
            except httpx.TransportError as error:
                if last:
                    _refuse_silence(self.root, error)
                retry_after = None
            else:
                if 200 <= status < 300:
                    return content
                if status not in _AGAIN or last:
                    raise problem(status, content)
            time.sleep(_wait(tries, retry_after))
        raise AssertionError  # the last attempt has returned or raised

    def _once(self, request: httpx.Request) -> tuple[int, str | None, bytes]:
        answer = self._http.send(request, stream=True)
        try:
            content = bytearray()
            for part in answer.iter_bytes():
                content += part
                if len(content) > _LARGEST_ANSWER:
                    raise ServiceError(f"{self.root}: the answer must be smaller than 256 MiB.")
        finally:
            answer.close()
        return answer.status_code, answer.headers.get("Retry-After"), bytes(content)


def to_json(body: Any) -> bytes:
    """Return the bytes that are sent, and sent again on a retry."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def read_object(content: bytes) -> dict[str, Any]:
    """Read the server's answer as a JSON object."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ServiceError("service: the answer must be a JSON object. Is this a Tacit server?")
    return answer


def field_of(answer: Any, name: str, kind: type[T]) -> T:
    """Return a field of the server's answer, and refuse one of another type."""
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise ServiceError(f"service: the answer must hold {name!r}. Is this a Tacit server?")
    return value


def problem(status: int, content: bytes) -> ServiceError:
    """Turn the server's refusal into an error."""
    try:
        return problem_of(json.loads(content), status)
    except (ValueError, RecursionError):
        return problem_of(None, status)


def problem_of(body: Any, status: int) -> ServiceError:
    """Turn a problem document into an error."""
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        return ServiceError(
            f"service: the server answered {status} without a reason. Is the address right?",
            status=status,
        )
    reason = one_line(body.get("detail") or body.get("title") or "refused")
    known = {"type", "title", "status", "detail"}
    extra = {name: value for name, value in body.items() if name not in known}
    code = one_line(body["type"]).removeprefix("tacit:")
    return ServiceError(f"service: {reason} ({code})", code, status, extra)


def one_line(text: object) -> str:
    """Make a server's text fit for a terminal: printable, on one line, of limited length."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[: _LONGEST_TEXT - 1]}…"


def _wait(tries: int, retry_after: str | None) -> float:
    """Return the seconds to wait: as the server asks, or doubling each time; with jitter."""
    longest = min(_FIRST_WAIT * 2.0**tries, _LONGEST_WAIT)
    jittered = longest * random.uniform(0.5, 1)  # so that many clients do not come back at once
    if retry_after is not None and re.fullmatch(r"\d{1,6}", retry_after.strip()):
        return min(float(retry_after), 10 * _LONGEST_WAIT) + jittered
    return jittered


def word(secret: str) -> str:
    """Return a token or key if a header can hold it; the error does not quote it."""
    if not re.fullmatch(r"[\x21-\x7e]{1,500}", secret):
        raise errors.InvalidParameter("Client: a token or key must be one printable word.")
    return secret


def _refuse_address(url: str) -> NoReturn:
    # The error omits the parts that may hold a token.
    shown = re.split("[#?]", url)[0]
    remedy = "Copy it from the invitation."
    like = "like https://host/c/CAMPAIGN"
    errors.refuse("Client", "url", like, re.sub("//[^/]*@", "//", shown), remedy)


def _refuse_silence(root: str, error: httpx.TransportError) -> NoReturn:
    slow = isinstance(error, httpx.TimeoutException)
    reason = "did not answer in time" if slow else "could not be reached"
    raise ServiceError(
        f"{root}: the server {reason}. Try again later: an answer that was drawn is stored, and "
        "will not be drawn twice."
    ) from None
