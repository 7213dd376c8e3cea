"""The server: one process, one writer, a door in front of it, no log of requests."""

from __future__ import annotations

import gc
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tacit.apps.service import door, logs
from tacit.apps.service.app import Limits, make_app
from tacit.apps.service.door import DoorLimits
from tacit.apps.service.store import Store
from tacit.privacy import errors

GRACE = 10
"""Seconds in which requests that are being answered when the server is stopped may end."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """The address that the server listens on, with TLS files and trusted proxies.

    Parameters
    ----------
    host, port
        Address to listen on; by default the loopback address, for a proxy in front.
    tls_cert, tls_key : Path, optional
        PEM files, for TLS without a proxy.
    trusted_proxies : str, optional
        Addresses of proxies that may state the sender's address.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: str | None = None

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            errors.refuse("serve", "tls_cert and tls_key", "given together", "one of them")
        assert self.proxies is not None  # refuses what is no address

    @property
    def proxies(self) -> list[str]:
        """Addresses and networks of the trusted proxies."""
        return [] if self.trusted_proxies is None else door.networks(self.trusted_proxies)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The server's side of TLS, where there is no proxy."""
        if self.tls_cert is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.tls_cert, self.tls_key)
        return context

    @property
    def in_the_clear(self) -> bool:
        """Whether other machines can connect without TLS."""
        loopback = self.host in ("127.0.0.1", "::1", "localhost")
        return not loopback and self.tls_cert is None

    @property
    def url(self) -> str:
        """An address that a browser on this machine can open."""
        scheme = "http" if self.tls_cert is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{'localhost' if self.host in ('0.0.0.0', '::') else host}:{self.port}"

    def must_be_free(self) -> None:
        """Refuse an address in use, before anything is created or shown."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((self.host, self.port))
            except OSError as error:
                used = f"{self.host}:{self.port}, {error.strerror}"
                remedy = "Choose another --port, or stop the program that listens there."
                errors.refuse("serve", "host and port", "free", used, remedy)


def serve(
    store: Store,
    listener: Listener | None = None,
    *,
    limits: Limits | None = None,
    cors: str | None = None,
    at_door: DoorLimits | None = None,
    shutdown_seconds: int = GRACE,
) -> None:
    """Answer requests until stopped.

    Parameters
    ----------
    store : Store
        The campaigns.
    listener : Listener, optional
        Where to listen; by default port 8000 of the loopback address.
    limits, cors
        See `make_app`.
    at_door : DoorLimits, optional
        Limits on connections and incomplete requests.
    shutdown_seconds : int
        Seconds in which requests may end when the server is stopped.
    """
    import uvicorn

    listener = listener or Listener()
    app = make_app(store, limits=limits, cors=cors)
    # What is loaded now stays loaded, and requests leave no reference cycles: collecting garbage
    # at Python's usual pace would cost as much time as the requests.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    logs.configure()
    metrics = app.state.service.metrics
    entrance = door.Door(
        at_door or DoorLimits(), metrics, proxies=listener.proxies, tls=listener.tls
    )
    uvicorn.run(
        entrance.around(app),
        http=cast(Any, entrance.link),  # takes anything that makes a protocol
        loop=entrance.loop,
        host=listener.host,
        port=listener.port,
        ws="none",  # would take a connection over from the door
        # Addresses and times of requests must not be kept; failures are still logged.
        access_log=False,
        log_config=None,
        log_level="error",  # warnings are about single requests: they are counted at the door
        server_header=False,
        proxy_headers=listener.trusted_proxies is not None,
        forwarded_allow_ips=listener.proxies,
        timeout_graceful_shutdown=shutdown_seconds,
    )
