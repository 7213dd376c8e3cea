"""`tacit campaign backup`, `restore` and `migrate`: what an operator does with a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.campaign.serving import SettingsFile, settings_of
from tacit.apps.cli.console import must_exist, print_json, print_text, print_values
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Out

Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="Database: sqlite:///FILE or postgresql://user@host/name.",
        show_default="sqlite:///campaign.db",
    ),
]
_NO_SECRET = "The secret is not in the backup: keep a copy of it, in another place."
_WITH_SECRET = (
    "Serve it with the secret that the backup's database had. What was withdrawn since the backup "
    "is back: withdraw it again, and close what was closed."
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    panel = "For the operator"
    command(app, panel, "tacit campaign backup --db sqlite:///campaign.db --out monday.db")(backup)
    command(app, panel, "tacit campaign restore monday.db --db postgresql://tacit@host/new")(
        restore
    )
    command(app, panel, "tacit campaign migrate --db sqlite:///campaign.db")(migrate)


def backup(
    out: Out, db: Database = None, settings: SettingsFile = None, as_json: AsJson = False
) -> None:
    """Write a backup of a database into one file, while servers may run.

    The file is an SQLite database, whichever kind the database is, and tells nothing of the order
    in which answers arrived.
    """
    from tacit.apps.service import backups

    must_be_new(out)
    counted = backups.back_up(_address(db, settings), out)
    _print({**counted, "written": str(out)}, "Backup", _NO_SECRET, as_json)


def restore(
    file: Annotated[Path, typer.Argument(help="Backup that tacit campaign backup wrote.")],
    db: Database = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Write a backup into a new database, of either kind."""
    from tacit.apps.service import backups

    must_exist(file)
    counted = backups.restore(file, _address(db, settings))
    _print(counted, "Restored", _WITH_SECRET, as_json)


def migrate(db: Database = None, settings: SettingsFile = None, as_json: AsJson = False) -> None:
    """Bring a database of an earlier version to this one, with all its rows, or leave it as it is.

    Make a backup with the version that wrote it, and stop the servers before.
    """
    from tacit.apps.service.migrations import migrate as upgrade

    done = upgrade(_address(db, settings))
    values = {"before": done.before, "after": done.after, **done.counts}
    if as_json:
        return print_json({**values, "notes": done.notes})
    _print(values, "Schema", "\n".join(done.notes), False)


def _address(db: str | None, settings: Path | None) -> str:
    return settings_of(settings, None, {"db": db}).database


def _print(values: dict[str, Any], title: str, words: str, as_json: bool) -> None:
    print_values(values, as_json, title)
    if not as_json and words:
        print_text(words)
