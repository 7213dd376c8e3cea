"""`tacit survey release`: reports of people, from a table of their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import print_values
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Out
from tacit.apps.cli.survey.drafts import SurveyFile, read

_WORDS = {"true": "yes", "false": "no", "1": "yes", "0": "no"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = "tacit survey release survey.json people.csv --out reports.parquet"
    command(app, "Reports", example)(release)


def release(
    survey: SurveyFile,
    data: Annotated[
        Path,
        typer.Argument(help="Answers: one row per person, CSV or Parquet.", metavar="DATA"),
    ],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Release one report per row; each row is taken as one person, who reports once."""
    from tacit.data.tables import naming

    must_be_new(out)
    asked = read(survey)
    with naming(data):
        released = asked.release(_answers(asked, data))
    released.write(out)
    values = {
        "reports": len(released),
        "people": "one per row",
        "guarantee": str(released.guarantee),
        "written": str(out),
    }
    print_values(values, as_json, "Released")


def _answers(survey: Any, path: Path) -> dict[str, Any]:
    """Read the columns of all questions; how a line is read depends on that line alone."""
    from tacit.data import tables
    from tacit.data.schema import Categorical, Continuous, TableSchema

    columns: list[Any] = [
        Continuous(name, one.lower, one.upper)
        if one.kind == "number"
        else Categorical(name, getattr(one, "options", (one.kind,)))
        for name, one in survey.questions.items()
    ]
    table = tables.read(path, TableSchema(tuple(columns)))
    read = {name: table.column(name).to_pylist() for name in table.column_names}
    for name, one in survey.questions.items():
        if one.kind == "yes-no":
            read[name] = [
                _WORDS.get(str(v).strip().lower(), str(v).strip().lower()) for v in read[name]
            ]
        elif one.kind == "one-of":
            read[name] = [v if v is None else str(v) for v in read[name]]
    return read
