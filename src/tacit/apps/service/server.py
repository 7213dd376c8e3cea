"""Serving: one process, one writer, no log of requests."""

from __future__ import annotations

import gc
import socket
from pathlib import Path

from tacit.apps.service.app import Limits, make_app
from tacit.apps.service.store import Store
from tacit.privacy import errors


def must_be_free(host: str, port: int) -> None:
    """Refuse a place where something else listens, before anything is made or shown."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            remedy = "Choose another --port, or end what listens there."
            errors.refuse(
                "serve", "host and port", "free", f"{host}:{port}, {error.strerror}", remedy
            )


def serve(
    store: Store,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    cors: str | None = None,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    trusted_proxies: str | None = None,
) -> None:
    """Answer until stopped.

    Parameters
    ----------
    store : Store
        The campaigns.
    host, port
        Where to listen; loopback unless said otherwise, for a proxy in front.
    limits, cors
        See `make_app`.
    tls_certificate, tls_key : Path, optional
        PEM files, for TLS without a proxy.
    trusted_proxies : str, optional
        Addresses whose word on the sender's address is taken.
    """
    import uvicorn

    if (tls_certificate is None) != (tls_key is None):
        errors.refuse("serve", "TLS certificate and key", "given together", "one of them")
    app = make_app(store, limits=limits, cors=cors)
    # What is loaded now stays, and requests leave no cycles: looking for them at Python's usual
    # pace costs as much as the requests.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    uvicorn.run(
        app,
        host=host,
        port=port,
        # Addresses and times are not ours to keep; failures are still said.
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=trusted_proxies is not None,
        forwarded_allow_ips=trusted_proxies,
        ssl_certfile=None if tls_certificate is None else str(tls_certificate),
        ssl_keyfile=None if tls_key is None else str(tls_key),
        timeout_graceful_shutdown=10,
    )
