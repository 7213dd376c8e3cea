"""`tacit campaign learn`, `next`: what the reports have taught, and the next round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.apps.cli.answers import Costs, Priors, Threshold, decision
from tacit.apps.cli.campaign.participants import OwnerKey, Url, connected
from tacit.apps.cli.console import must_exist, print_values
from tacit.apps.cli.files import warnings_on_stderr
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import MOST_ROWS, AsJson, InhousePublic, Seed
from tacit.data.tables import naming

if TYPE_CHECKING:
    from tacit.apps.service.client import Client

InhouseLabel = Annotated[
    str | None, typer.Option("--label", help="Column of --inhouse to leave out: the label.")
]
InhouseRows = Annotated[
    int, typer.Option("--rows", help="Largest number of rows of --inhouse to use.")
]


def register(app: typer.Typer, panel: str, url: str) -> None:
    """Add the commands."""
    command(app, panel, f"tacit campaign learn {url}")(learn)
    example = f"tacit campaign next {url} --inhouse rows.csv --label grade --inhouse-public"
    command(app, panel, example, "next")(next_round)


def learn(
    url: Url,
    key: OwnerKey = None,
    inhouse: Annotated[
        Path | None,
        typer.Option(
            help="In-house rows, unless the partitions protect theirs; they are not sent."
        ),
    ] = None,
    label: InhouseLabel = None,
    rows: InhouseRows = MOST_ROWS,
    inhouse_public: InhousePublic = False,
    priors: Priors = None,
    costs: Costs = None,
    threshold: Threshold = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Learn a model from the reports so far, and publish it for people to vote on.

    With --inhouse, or with --priors, --costs or --threshold, which decide what it answers, it is
    learned here; otherwise on the server, unless the campaign has partitions.
    """
    with connected(url, key=key) as client, _named("learn", inhouse):
        settings: dict[str, Any] = {"inhouse_public": inhouse_public, "seed": seed}
        if (priors, costs, threshold) != (None, None, None):
            classes = client.mechanism().classes or ()
            settings |= decision("learn", classes, priors, costs, threshold)
        taught = _inhouse(client, inhouse, label, rows, seed)
        print_values(client.learn(taught, **settings), as_json, "Model learned and published")


def next_round(
    url: Url,
    key: OwnerKey = None,
    inhouse: Annotated[
        Path | None,
        typer.Option(
            help="In-house rows, unless the partitions protect theirs; they are not sent."
        ),
    ] = None,
    label: InhouseLabel = None,
    rows: InhouseRows = MOST_ROWS,
    inhouse_public: InhousePublic = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Open the next round of a campaign with partitions: its cells follow the reports so far.

    Those who have not reported get the new mechanism. Nobody reports twice.
    """
    with connected(url, key=key) as client, _named("next", inhouse):
        taught = _inhouse(client, inhouse, label, rows, seed)
        described = client.next_round(taught, inhouse_public=inhouse_public, seed=seed)
    values = {name: described.get(name) for name in ("round", "reports")}
    values["mechanism"] = described.get("artifact", {}).get("sha256")
    print_values(values, as_json, "Next round")


def _inhouse(client: Client, path: Path | None, label: str | None, rows: int, seed: int) -> Any:
    """Read in-house rows as the campaign's mechanism takes them."""
    from tacit.data import tables

    if path is None:
        return None
    must_exist(path)
    table, _ = tables.sample(path, rows, seed, client.mechanism().schema)
    return tables.without_label(table, label, path)


@contextmanager
def _named(command: str, path: Path | None) -> Iterator[None]:
    """Name options and the file in errors, and show warnings in one line."""
    with naming(path or command), warnings_on_stderr():
        yield
