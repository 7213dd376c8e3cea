"""The server: one process, one writer, no log of requests."""

from __future__ import annotations

import gc
import socket
from dataclasses import dataclass
from pathlib import Path

from tacit.apps.service.app import Limits, make_app
from tacit.apps.service.store import Store
from tacit.privacy import errors


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
    """
    import uvicorn

    listener = listener or Listener()
    app = make_app(store, limits=limits, cors=cors)
    # What is loaded now stays loaded, and requests leave no reference cycles: collecting garbage
    # at Python's usual pace would cost as much time as the requests.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    certificate, key = listener.tls_cert, listener.tls_key
    uvicorn.run(
        app,
        host=listener.host,
        port=listener.port,
        # Addresses and times of requests must not be kept; failures are still logged.
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=listener.trusted_proxies is not None,
        forwarded_allow_ips=listener.trusted_proxies,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
        timeout_graceful_shutdown=10,
    )
