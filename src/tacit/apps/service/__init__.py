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
    # Loaded on first use: the server does not need httpx.
    from tacit.apps.service.client import Client as Client

lazy.attach(__name__, public="tacit.service")
