"""Heads of requests: where they end, how large their body is, and what is refused unread."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple, Protocol

MOST_BYTES, MOST_LINE, MOST_HEADERS = 16384, 4096, 100
_END = b"\r\n\r\n"
_LENGTH, _CODING = b"content-length", b"transfer-encoding"
_MOST_DIGITS = 12


class HeadLimits(Protocol):
    """What is read of the limits of a server."""

    @property
    def head_bytes(self) -> int: ...
    @property
    def line_bytes(self) -> int: ...
    @property
    def headers(self) -> int: ...


class Head(NamedTuple):
    """A complete head: its bytes, and the bytes of the body that follows."""

    size: int
    body: int


class Refusal(Exception):
    """A request that is refused before it is parsed, with the reason that is counted."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        line = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        self.answer = f"{line}content-length: 0\r\nconnection: close\r\n\r\n".encode()


SLOW_HEAD = Refusal(HTTPStatus.REQUEST_TIMEOUT, "slow-head")
SLOW_BODY = Refusal(HTTPStatus.REQUEST_TIMEOUT, "slow-body")
TOO_EAGER = Refusal(HTTPStatus.TOO_MANY_REQUESTS, "pipelined")
_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def read(data: bytearray, limits: HeadLimits) -> Head | None:
    """Return the head that the data begin with; None if it is not complete."""
    end = data.find(_END, 0, limits.head_bytes)
    if end < 0:
        if len(data) >= limits.head_bytes:
            raise Refusal(_LARGE, "large-head")
        return None
    line, *headers = bytes(data[:end]).split(b"\r\n")
    if len(line) > limits.line_bytes:
        raise Refusal(HTTPStatus.REQUEST_URI_TOO_LONG, "long-line")
    if len(headers) > limits.headers:
        raise Refusal(_LARGE, "many-headers")
    if not line or b"\n" in line or any(b"\n" in header for header in headers):
        raise Refusal(HTTPStatus.BAD_REQUEST, "malformed")  # the parser might see two heads here
    return Head(end + len(_END), _body(headers))


def _body(headers: list[bytes]) -> int:
    """Return the stated length of the body; bodies of no stated length are refused."""
    lengths = []
    for header in headers:
        name, _, value = header.partition(b":")
        name = name.strip().lower()
        if name == _CODING:
            raise Refusal(HTTPStatus.LENGTH_REQUIRED, "no-length")
        if name == _LENGTH:
            lengths.append(value.strip())
    if not lengths:
        return 0
    (length, *others) = lengths
    if others or not length.isdigit() or len(length) > _MOST_DIGITS:
        raise Refusal(HTTPStatus.BAD_REQUEST, "malformed")
    return int(length)
