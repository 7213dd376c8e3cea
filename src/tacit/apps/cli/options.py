"""Options that mean the same in every command, and the panel in which help shows each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PRIVACY, DATA, LEARNING, BUDGET = "Privacy", "Data", "Learning", "Budget"
NETWORK, OUTPUT, SETTINGS = "Network", "Output", "Settings"

_PANELS = {
    PRIVACY: (
        *("epsilon", "delta", "rho", "order", "noise_multiplier", "sampling_probability", "steps"),
        *("central_epsilon", "central_delta", "inhouse_public", "unit", "adjacency", "require"),
        *("vote_epsilon", "by_class", "vote_by_class", "at_most", "accountant"),
        *("person", "most", "one_row_each"),
    ),
    DATA: (
        *(
            "data",
            "label",
            "schema",
            "image",
            "signal",
            "classes",
            "inhouse",
            "people",
            "voters",
            "rows",
        ),
        *("members", "others", "attribute", "values", "group", "groups", "private_group"),
        *("bounds", "keys", "max_rows", "max_groups", "regular", "private", "pattern", "size"),
        *("count", "n", "counts", "prior", "coins", "blank", "assigned"),
    ),
    LEARNING: (
        *("kind", "features", "codewords", "latent_dimension", "radius", "pretraining_epsilon"),
        *("strength", "training", "styles", "dimensions", "layers", "seed", "device"),
    ),
    BUDGET: ("ledger", "account", "key", "price"),
    NETWORK: (
        *("host", "port", "tls_cert", "tls_key", "trusted_proxies", "cors", "rate", "superlink"),
        *("authority", "insecure", "nodes", "patience"),
    ),
    OUTPUT: ("out", "certificate", "entries"),
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Out = Annotated[Path, typer.Option("--out", help="What to write; must not exist yet.")]
Data = Annotated[Path, typer.Argument(help="CSV (with a header) or Parquet.", metavar="DATA")]
Person = Annotated[
    str | None,
    typer.Option(help="Column that names whose row it is: at most --most rows of each."),
]
MostOfPerson = Annotated[int, typer.Option(help="Most reports of a person, with --person.")]
OneRowEach = Annotated[
    bool,
    typer.Option(
        "--one-row-each",
        help="State that each row is another person's; the certificate says that you do.",
    ),
]
InhousePublic = Annotated[
    bool, typer.Option("--inhouse-public", help="State that the in-house rows are public.")
]
Seed = Annotated[int, typer.Option(help="Seed of what is learned in-house; the noise has none.")]
MOST_ROWS = 200_000
"""The default of `--rows`: the largest number of in-house rows that are used."""
CentralDelta = Annotated[
    float | None, typer.Option(help="Goes with --central-epsilon; 1e-5 is a usual choice.")
]
Device = Annotated[
    str, typer.Option(help="Where networks are trained: cpu, cuda, cuda:1, or auto (a GPU if any).")
]
Confidence = Annotated[float, typer.Option(help="Confidence level of every interval.")]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="Ledger to charge before anything is released.")
]
Account = Annotated[
    str | None, typer.Option("--account", help="Account of the ledger; goes with --ledger.")
]
CertificateFile = Annotated[
    Path | None,
    typer.Option("--certificate", help="File for a certificate of the release."),
]
Key = Annotated[
    str | None, typer.Option(help="Key of the charge: the same key is charged only once.")
]


def panel_of(name: str) -> str | None:
    """Find the panel of a parameter; `--json` and `--help` stay under Options."""
    return None if name in ("as_json", "help") else _PANEL_OF.get(name, SETTINGS)
