"""The collection service: devices add the noise, and the server never receives a raw value.

`campaign` states what people are asked and what it costs them. `wire` is the form of a report in
transit and in storage; `tables`, `store` and `inbox` keep each report exactly once; `app` and
`server` answer requests. People use `client` and the pages in `static`; `results` computes what
the owner learns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy import lazy

if TYPE_CHECKING:
    from tacit.apps.service.client import Client as Client

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {"client": ["Client"]},  # loaded on first use: the server does not need httpx
    public="tacit.service",
)
