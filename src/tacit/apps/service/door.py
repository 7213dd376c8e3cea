"""The door: limits on connections, and on what comes before a request is complete.

The server's parser takes headers without end and waits for them for ever. So each connection is
watched here: a head goes to the parser only when it is complete and small, one request at a time,
and connections that are slow, idle or too many are closed. Nothing about them is stored.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any, Literal

from tacit.apps.service import heads
from tacit.apps.service.heads import Refusal
from tacit.apps.service.limits import sender_of
from tacit.apps.service.logs import Rarely
from tacit.apps.service.metrics import Metrics
from tacit.privacy import errors

_SPARE_DESCRIPTORS = 128
_MOST_DISCARDED, _GOODBYE = 1 << 22, 2.0
"""Bytes and seconds for which a refused sender may go on sending, to receive the refusal."""
_MOST_CONNECTIONS, _LEAST_CONNECTIONS = 4096, 16


@dataclass(frozen=True, kw_only=True)
class DoorLimits:
    """Limits on connections and on incomplete requests.

    Parameters
    ----------
    head_bytes, line_bytes, headers : int
        Largest size of a request's line and headers together, of its line, and number of headers.
    seconds : float
        Time to a complete head; for a body and for the reading of an answer, the time that
        `slowest` is added to. Also the time for a TLS handshake.
    slowest : float
        Bytes per second that a body must arrive with, and an answer must be read with.
    per_address : int
        Connections of one address that is not a trusted proxy; an IPv6 network of 64 bits is one.
    connections : int, optional
        Connections in all; by default as many as descriptors allow, at most 4,096.
    """

    head_bytes: int = heads.MOST_BYTES
    line_bytes: int = heads.MOST_LINE
    headers: int = heads.MOST_HEADERS
    seconds: float = 10.0
    slowest: float = 4096.0
    per_address: int = 100
    connections: int | None = None

    @property
    def in_all(self) -> int:
        """The number of connections in all."""
        return _by_descriptors() if self.connections is None else self.connections


class Door:
    """All connections of a server.

    Parameters
    ----------
    limits : DoorLimits
        The limits.
    metrics : Metrics
        Counts refusals.
    proxies : iterable of str
        Addresses and networks of proxies, whose connections are many people's.
    tls : ssl.SSLContext, optional
        For TLS without a proxy; handshakes are limited like heads.
    """

    def __init__(
        self,
        limits: DoorLimits,
        metrics: Metrics,
        *,
        proxies: Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.limits, self.metrics, self.tls = limits, metrics, tls
        self.most = limits.in_all
        self._proxies = [ip_network(one) for one in proxies]
        self._links: dict[Link, None] = {}
        self._by_address: dict[str, dict[Link, None]] = {}
        self._sweeping = False
        self._log = Rarely()
        metrics.gauge("tacit_connections", lambda: len(self._links))
        metrics.gauge("tacit_connections_limit", lambda: self.most)

    @property
    def loop(self) -> Literal["asyncio", "auto"]:
        """The event loop to use: uvloop reads before encryption can begin."""
        return "auto" if self.tls is None else "asyncio"

    def link(self, **server: Any) -> Link:
        """Make the protocol of a connection: `http=` of the server's configuration."""
        return Link(self, server)

    def around(self, app: Any) -> Any:
        """Wrap an application, so that the door knows when a request has been answered."""

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            link = scope.get("state", {}).pop("link", None)
            if link is not None:
                link.being_answered()
            try:
                await app(scope, receive, send)
            finally:
                if link is not None:
                    link.answered()

        return watched

    def enter(self, link: Link, address: str) -> bool:
        """Admit a connection; the longest waiting one makes room for it, if any is waiting."""
        full = self._links if len(self._links) >= self.most else None
        sender = None if self._is_proxy(address) else sender_of(address)
        if sender is not None and len(self._by_address.get(sender, ())) >= self.limits.per_address:
            full = self._by_address[sender]
        if full is not None:
            waiting = next((one for one in full if one.waiting), None)
            waiting = waiting or next((one for one in full if one.incomplete), None)
            self.refused("crowded")
            if waiting is None:
                return False
            waiting.drop()  # which forgets its address, if it had no other connection
        self._links[link] = None
        if sender is not None:
            self._by_address.setdefault(sender, {})[link] = None
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(1.0, self._sweep)
        return True

    def leave(self, link: Link, address: str) -> None:
        """Forget a connection."""
        self._links.pop(link, None)
        sender = sender_of(address)
        own = self._by_address.get(sender, {})
        own.pop(link, None)
        if not own:
            self._by_address.pop(sender, None)

    def refused(self, reason: str) -> None:
        """Count a refusal, and log it rarely."""
        self.metrics.add("tacit_door_refused_total", reason=reason)
        self._log.warning("refused at the door", reason=reason)

    def _is_proxy(self, address: str) -> bool:
        try:
            own = ip_address(address)
        except ValueError:
            return False
        return any(own in network for network in self._proxies)

    def _sweep(self) -> None:
        """Close every connection that has taken too long, once a second while there are any."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for link in list(self._links):
            link.check(now)
        self._sweeping = bool(self._links)
        if self._sweeping:
            loop.call_later(1.0, self._sweep)


class Link(asyncio.Protocol):
    """One connection: watches what arrives, and passes it on to the server's own protocol."""

    def __init__(self, door: Door, server: dict[str, Any]) -> None:
        self.door, self._server = door, server
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._head, self._remaining, self._received = bytearray(), 0, 0
        self._busy = self._begun = self._closed = False
        self._unread, self._read, self._unread_since = 0, 0, 0.0
        self._inner: Any = None
        self._address = ""
        self._handshake: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether no request is being answered or received."""
        return not self._busy and not self._remaining

    @property
    def incomplete(self) -> bool:
        """Whether a request is being received."""
        return self._remaining > 0

    # --- what the event loop calls -------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self.door.enter(self, self._address):
            self._closed = True
            transport.abort()
        elif self.door.tls is None:
            self._begin(transport)
        else:
            transport.pause_reading()
            self._handshake = self._loop.create_task(self._encrypt(transport, self.door.tls))

    def data_received(self, data: bytes) -> None:
        if self._closed:
            self._discard(data)
        elif self._remaining and len(data) <= self._remaining:
            self._take_body(data)
        else:
            rest = data[self._remaining :]
            if self._remaining:
                self._take_body(data[: self._remaining])
            self._head += rest
            self._take_head()

    def eof_received(self) -> bool | None:
        return None if self._closed or self._inner is None else self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._closed = True
        self._head.clear()
        self.door.leave(self, self._address)
        if self._inner is not None:
            self._inner.connection_lost(error)
            # A timer, or a cycle of references, would keep the body for some time.
            self._inner.cycle = self._inner = None

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    # --- a request -----------------------------------------------------------------------------

    def being_answered(self) -> None:
        """Take note that the parser took the head for a request."""
        self._begun = True

    def answered(self) -> None:
        """Take the next request: the last one has been answered."""
        self._busy, self._since = False, self._loop.time()
        if self._closed:
            return
        if self._remaining:  # refused before its body was read, which nobody needs any more
            self._say_goodbye()
        elif self._head:
            self._take_head()

    def check(self, now: float) -> None:
        """Close the connection if it has taken too long."""
        limits, spent = self.door.limits, now - self._since
        if self._closed:
            if spent > _GOODBYE:
                self.drop()
        elif self._is_unread(now):
            self.door.refused("slow-reader")
            self.drop()
        elif self._unread:  # somebody is reading an answer
            self._since = now
        elif self._remaining and spent > limits.seconds + self._received / limits.slowest:
            self._refuse(heads.SLOW_BODY)
        elif (self.waiting or not self._begun) and spent > limits.seconds:
            if self._head:
                self._refuse(heads.SLOW_HEAD)
            else:
                self.drop()

    def drop(self) -> None:
        """Close the connection at once."""
        self._closed = True
        if self._handshake is not None:
            self._handshake.cancel()
        self._transport.abort()
        self.door.leave(self, self._address)

    def _begin(self, transport: Any) -> None:
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

        self._transport = transport
        state = {**self._server.pop("app_state"), "link": self}
        self._inner = AutoHTTPProtocol(**self._server, app_state=state)  # type: ignore[call-arg]
        self._inner.connection_made(transport)
        if self._head:  # came with the end of the handshake
            self._take_head()

    async def _encrypt(self, transport: Any, tls: ssl.SSLContext) -> None:
        seconds = self.door.limits.seconds
        try:
            encrypted = await self._loop.start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=seconds
            )
        except OSError:
            self.door.refused("no-handshake")
            self._handshake = None
            self.drop()
        else:
            self._since, self._handshake = self._loop.time(), None
            self._begin(encrypted)

    def _take_head(self) -> None:
        if self._busy or self._inner is None:  # the last request is not answered yet
            if len(self._head) > self.door.limits.head_bytes:
                self._refuse(heads.TOO_EAGER)
            return
        try:
            found = heads.read(self._head, self.door.limits)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        if found is None:
            return
        rest = bytes(self._head[found.size :])
        head = bytes(self._head[: found.size])
        self._head.clear()
        self._busy, self._remaining, self._received = True, found.body, 0
        self._begun, self._since = False, self._loop.time()
        self._inner.data_received(head)
        if rest:
            self.data_received(rest)

    def _take_body(self, data: bytes) -> None:
        self._remaining -= len(data)
        self._received += len(data)
        self._inner.data_received(data)
        if not self._remaining:
            self._since = self._loop.time()

    def _is_unread(self, now: float) -> bool:
        """Whether the peer reads its answer too slowly."""
        size = 0 if self._inner is None else self._transport.get_write_buffer_size()
        if size == 0 or not self._unread:
            self._unread_since, self._read = now, 0
        self._read += max(0, self._unread - size)
        self._unread = size
        limits = self.door.limits
        return size > 0 and now - self._unread_since > limits.seconds + self._read / limits.slowest

    def _refuse(self, refusal: Refusal) -> None:
        """Answer in one line and close."""
        self.door.refused(refusal.reason)
        self._transport.write(refusal.answer)
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Close the connection, after a moment in which the peer can read its answer."""
        self._closed, self._since = True, self._loop.time()
        self._head.clear()
        self._remaining = self._received = 0
        if self._transport.can_write_eof():
            self._transport.write_eof()  # closing now, with data unread, would discard the answer
        else:
            self._transport.close()

    def _discard(self, data: bytes) -> None:
        """Let what still arrives after a refusal go; close if it does not end."""
        self._received += len(data)
        if self._received > _MOST_DISCARDED:
            self.drop()


def _by_descriptors() -> int:
    """Return how many connections leave descriptors for the database and files."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(_MOST_CONNECTIONS, soft - _SPARE_DESCRIPTORS))


def networks(text: str) -> list[str]:
    """Read a list of proxies' addresses and networks; refuse anything else, as `*` for all."""
    found = [part.strip() for part in text.split(",")]
    for part in found:
        try:
            ip_network(part)
        except ValueError:
            remedy = "Name the proxies' addresses or networks, with commas between them."
            errors.refuse("serve", "trusted_proxies", "IP addresses", part, remedy)
    return found
