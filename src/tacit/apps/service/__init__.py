"""The collection service: people privatize on their own device, the server never sees a raw value.

`campaign` is what is asked of people; `wire` the form of a report on its way and in storage;
`tables`, `store` and `inbox` keep it, exactly once; `app` and `server` answer requests; `client`
and the pages in `static` are what people use; `results` is what an owner learns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy import lazy

if TYPE_CHECKING:
    # Not before it is used: the server does without httpx.
    from tacit.apps.service.client import Client as Client

lazy.attach(__name__, public="tacit.service")
