"""What `tacit campaign serve` takes from the command line, the environment and a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.apps.cli.console import print_json, print_table
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.apps.service.settings import Settings
    from tacit.apps.service.store import Store

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        help="TOML file with settings; the environment and options take precedence.",
        envvar="TACIT_SETTINGS",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any setting, as in limits.rate=100; may be repeated."),
]
PrintSettings = Annotated[
    bool,
    typer.Option("--print-settings", help="Show what applies and where it is stated; start none."),
]
Listed = Annotated[
    bool | None,
    typer.Option(
        "--listed/--unlisted",
        help="Show the campaign on the server's front page, or no longer.",
        show_default="unlisted",
    ),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[int | None, typer.Option(help="Port to listen on.", show_default="8000")]
Certificate = Annotated[Path | None, typer.Option(help="PEM certificate, with --tls-key.")]
PrivateKey = Annotated[Path | None, typer.Option(help="PEM key, with --tls-cert.")]
Proxies = Annotated[
    str | None,
    typer.Option(help="Proxies that may state the client's address: 127.0.0.1."),
]
Cors = Annotated[str | None, typer.Option(help="One other origin whose pages may send requests.")]
Rate = Annotated[
    float | None,
    typer.Option(help="Requests per second from one address.", show_default="50"),
]


def settings_of(
    file: Path | None, overrides: list[str] | None, options: Mapping[str, Any]
) -> Settings:
    """Return the settings that apply; options are named after their settings."""
    from tacit.apps.service.settings import Settings, of_command_line

    return Settings.gather(of_command_line(options, overrides or ()), file=file)


def print_settings(settings: Settings, as_json: bool) -> None:
    """Show every setting with the place that states it."""
    shown = settings.shown()
    if as_json:
        return print_json({"settings": shown})
    cells = [
        tuple("–" if one[part] is None else str(one[part]) for part in ("setting", "value", "from"))
        for one in shown
    ]
    print_table("Settings", ("setting", "value", "from"), cells)


def must_fit(artifact: Path | None, title: str | None, campaign: Mapping[str, Any]) -> None:
    """Refuse half of a campaign: a mechanism without a title, or a title without a mechanism."""
    if artifact is not None and title is None:
        errors.refuse("serve", "title", "given with ARTIFACT", None)
    given = [name for name, value in {"title": title, **campaign}.items() if value is not None]
    if artifact is None and given:
        remedy = "Name the mechanism or survey that the campaign asks with."
        option = "unlabelled" if given[0] == "labelled" else given[0].replace("_", "-")
        errors.refuse("serve", "ARTIFACT", f"given with --{option}", None, remedy)


def print_served(store: Store, root: str, as_json: bool) -> None:
    """Say where campaigns that the database has are served."""
    pages = {one.id: f"{root}/c/{one.id}" for one in store.campaigns()}
    if as_json:
        print_json({"address": root, "pages": pages})
        sys.stdout.flush()  # a program may read this through a pipe while the server runs
    else:
        print("\n".join([f"Listening on {root}", *pages.values()]), flush=True)
