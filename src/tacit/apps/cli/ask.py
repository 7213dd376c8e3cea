"""`tacit ask`: an answer with its interval, from a file of a survey's reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import print_json, print_table, print_text
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Confidence
from tacit.privacy import errors


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = 'tacit ask reports.parquet "mean income by region"'
    command(app, "People who trust nobody", example)(ask)


def ask(
    file: Annotated[Path, typer.Argument(help="Reports of a survey.", metavar="FILE")],
    question: Annotated[
        str, typer.Argument(help='Like "mean income by region".', metavar="QUESTION")
    ],
    before: Annotated[
        Path | None, typer.Option(help="Reports of an earlier round: answer what has changed.")
    ] = None,
    confidence: Confidence = 0.95,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Make all intervals hold together.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write the answer as a table, .csv or .parquet.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question from the reports of a survey, with intervals."""
    from tacit.local.reports import Reports

    if out is not None:
        must_be_new(out)
    asked = [_reports(one, Reports) for one in (before, file) if one is not None]
    survey, options = asked[-1].mechanism, {"confidence": confidence, "simultaneous": simultaneous}
    found = (survey.answer if before is None else survey.change)(*asked, question, **options)
    if out is not None:
        found.write(out)
    if as_json:
        return print_json(found.to_plain())
    rows = [
        (
            one.label,
            f"{one.value:.4g}",
            f"{one.standard_error:.2g}",
            "{:.4g} to {:.4g}".format(*one.interval),
        )
        for one in found.estimates
    ]
    print_table(found.question, ("", "value", "standard error", "interval"), rows)
    print_text(f"{found.covers} Towards each person: {found.guarantee}. {found.readers}")


def _reports(path: Path, kind: Any) -> Any:
    reports = kind.read(path)
    if reports.mechanism.kind != "survey":
        errors.refuse("ask", "FILE", "reports of a survey", reports.mechanism.kind)
    return reports
