"""`tacit campaign rotate-key`: another owner's key, by whoever has the old one or the database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from tacit.apps.cli.campaign.participants import OwnerKey, Url, connected
from tacit.apps.cli.campaign.serving import settings_of
from tacit.apps.cli.console import print_values
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson
from tacit.privacy import errors, files

KeyFile = Annotated[
    Path, typer.Option("--out", help="File for the new key, which only you can read.")
]
Database = Annotated[
    str | None,
    typer.Option("--db", help="Database with the campaign, if its key is lost or stolen."),
]
Secret = Annotated[
    Path | None,
    typer.Option(help="File with the key of all hashes.", show_default="next to the SQLite file"),
]


def register(app: typer.Typer, panel: str, url: str) -> None:
    """Add the command."""
    command(app, panel, f"tacit campaign rotate-key {url} --out key.txt", "rotate-key")(rotate_key)


def rotate_key(
    url: Url,
    out: KeyFile,
    key: OwnerKey = None,
    db: Database = None,
    secret: Secret = None,
    as_json: AsJson = False,
) -> None:
    """Replace the owner's key; the old one is refused from then on.

    The new key is written to a file before the server learns of it, so that it cannot get lost.
    """
    from tacit.apps.service import tokens
    from tacit.apps.service.connection import ServiceError

    must_be_new(out)
    made = tokens.new()
    files.create(out, f"{made}\n".encode(), files.OWN)
    try:
        if db is not None:
            _in_the_database(url, db, secret, made)
        else:
            with connected(url, key=key) as client:
                client.rotate_key(made)
    except errors.TacitError as error:
        if isinstance(error, ServiceError) and not 400 <= error.status < 500:
            remedy = f"The new key may be valid already. It is in {out}: keep both, and try them."
            raise ServiceError(f"{error} {remedy}") from None
        files.remove(out)
        raise
    print_values({"replaced": True, "written": str(out)}, as_json, "Owner's key")


def _in_the_database(url: str, db: str, secret: Path | None, made: str) -> None:
    from tacit.apps.service.connection import Address
    from tacit.apps.service.store import Store

    name = url if re.fullmatch(r"[A-Za-z0-9_-]{12}", url) else Address.of(url).campaign
    applied = settings_of(None, None, {"db": db, "secret": secret})
    store = Store.open(applied.database, applied["secret"])
    try:
        store.replace_key(name, made)
    finally:
        store.engine.dispose()
