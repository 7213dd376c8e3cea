"""Requests that are tried again, and problems as one-line errors.

Every request may be sent twice: the server answers the same report with the same receipt. So
whatever might have been lost on the way is sent again, byte for byte.
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
_PATH = re.compile(r"(?P<root>.*)/(?:v1/campaigns|c|owner)/(?P<id>[A-Za-z0-9_-]{12})/?")

T = TypeVar("T")


class ServiceError(errors.TacitError):
    """A server refused, or could not be reached.

    Parameters
    ----------
    message : str
        One line.
    code : str
        What comes after ``tacit:`` in the type of the problem, "" where there was none.
    status : int
        Of the answer, 0 where there was none.
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
    """Where a campaign is: the root of its server, its id, and the token of an invitation."""

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
        found = _PATH.fullmatch(parsed.path)
        plain = not parsed.query and not parsed.userinfo
        if found is None or parsed.scheme not in ("http", "https") or not parsed.host or not plain:
            _refuse_address(str(url))
        token = httpx.QueryParams(parsed.fragment).get("token")
        root = str(parsed.copy_with(path=found["root"] or "/", fragment=None)).rstrip("/")
        return cls(root, found["id"], token)

    @property
    def api(self) -> str:
        """The campaign's resource."""
        return f"{self.root}/v1/campaigns/{self.campaign}"

    @property
    def page(self) -> str:
        """The participants' page."""
        return f"{self.root}/c/{self.campaign}"

    @property
    def in_the_clear(self) -> bool:
        """Whether whoever is on the way can read and change what is sent."""
        url = httpx.URL(self.root)
        return url.scheme == "http" and url.host not in ("localhost", "127.0.0.1", "::1")


class Connection:
    """HTTP with patience.

    Parameters
    ----------
    root : str
        What every path is under.
    retries : int
        How often a request that failed on the way is sent again.
    timeout : float
        Seconds that one try may take.
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
        # No redirect is followed: a token goes to the host that it was meant for, or nowhere.
        self._http = httpx.Client(
            timeout=float(errors.positive("Client", "timeout", timeout)),
            transport=transport,
            follow_redirects=False,
        )

    def disconnect(self) -> None:
        """Let go of the sockets."""
        self._http.close()

    def get(self, path: str, *, bearer: str | None = None, **query: Any) -> bytes:
        """The content behind a path."""
        return self._ask("GET", path, bearer, None, query)

    def post(self, path: str, body: bytes, *, bearer: str | None = None) -> dict[str, Any]:
        """What the server says to a body of JSON."""
        return read_object(self._ask("POST", path, bearer, body, {}))

    def _ask(
        self, method: str, path: str, bearer: str | None, body: bytes | None, query: dict[str, Any]
    ) -> bytes:
        headers = {} if bearer is None else {"Authorization": f"Bearer {word(bearer)}"}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        request = self._http.build_request(
            method, self.root + path, headers=headers, content=body, params=query or None
        )
        for tries in range(self._retries + 1):
            last = tries == self._retries
            try:
                status, asked, content = self._once(request)
            except httpx.TransportError as error:
                if last:
                    _refuse_silence(self.root, error)
                asked = None
            else:
                if 200 <= status < 300:
                    return content
                if status not in _AGAIN or last:
                    raise problem(status, content)
            time.sleep(_wait(tries, asked))
        raise AssertionError  # the last try has returned or raised

    def _once(self, request: httpx.Request) -> tuple[int, str | None, bytes]:
        answer = self._http.send(request, stream=True)
        try:
            content = bytearray()
            for part in answer.iter_bytes():
                content += part
                if len(content) > _LARGEST_ANSWER:
                    raise ServiceError(f"{self.root}: an answer must be smaller than 256 MiB.")
        finally:
            answer.close()
        return answer.status_code, answer.headers.get("Retry-After"), bytes(content)


def to_json(body: Any) -> bytes:
    """The bytes that are sent, and sent again."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def read_object(content: bytes) -> dict[str, Any]:
    """A JSON object of the server's."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ServiceError("service: the answer must be a JSON object. Is this a Tacit server?")
    return found


def field_of(answer: Any, name: str, kind: type[T]) -> T:
    """A field of what a server said, of the type that it should have."""
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, kind):
        raise ServiceError(f"service: the answer must hold {name!r}. Is this a Tacit server?")
    return found


def problem(status: int, content: bytes) -> ServiceError:
    """The server's reason as an error."""
    try:
        return problem_of(json.loads(content), status)
    except (ValueError, RecursionError):
        return problem_of(None, status)


def problem_of(body: Any, status: int) -> ServiceError:
    """A problem document as an error."""
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        return ServiceError(
            f"service: the server answered {status} without a reason. Is the address right?",
            status=status,
        )
    said = one_line(body.get("detail") or body.get("title") or "refused")
    known = {"type", "title", "status", "detail"}
    extra = {name: value for name, value in body.items() if name not in known}
    code = one_line(body["type"]).removeprefix("tacit:")
    return ServiceError(f"service: {said} ({code})", code, status, extra)


def one_line(text: object) -> str:
    """What a server says, fit for a terminal: printable, on one line, not endless."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[: _LONGEST_TEXT - 1]}…"


def _wait(tries: int, asked: str | None) -> float:
    """Seconds: what the server asks for, else twice as long each time, with jitter."""
    longest = min(_FIRST_WAIT * 2.0**tries, _LONGEST_WAIT)
    drawn = longest * random.uniform(0.5, 1)  # so that many clients do not come back at once
    if asked is not None and re.fullmatch(r"\d{1,6}", asked.strip()):
        return min(float(asked), 10 * _LONGEST_WAIT) + drawn
    return drawn


def word(secret: str) -> str:
    """A token or key as a header can hold it; it is not echoed."""
    if not re.fullmatch(r"[\x21-\x7e]{1,500}", secret):
        raise errors.InvalidParameter("Client: a token or key must be one printable word.")
    return secret


def _refuse_address(url: str) -> NoReturn:
    # Without what may be a token.
    shown = re.split("[#?]", url)[0]
    remedy = "Copy it from the invitation."
    like = "like https://host/c/CAMPAIGN"
    errors.refuse("Client", "url", like, re.sub("//[^/]*@", "//", shown), remedy)


def _refuse_silence(root: str, error: httpx.TransportError) -> NoReturn:
    slow = isinstance(error, httpx.TimeoutException)
    reason = "it did not answer in time" if slow else "it could not be reached"
    raise ServiceError(
        f"{root}: {reason}. Try again later: what was drawn is kept, and not drawn twice."
    ) from None
