"""`tacit survey release`: reports of people, from a table of their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import print_values
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, MostOfPerson, OneRowEach, Out, Person
from tacit.apps.cli.survey.drafts import SurveyFile, read
from tacit.privacy import errors

_WORDS = {"true": "yes", "false": "no", "1": "yes", "0": "no"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = "tacit survey release survey.json people.csv --one-row-each --out reports.parquet"
    command(app, "Reports", example)(release)


def release(
    survey: SurveyFile,
    data: Annotated[
        Path,
        typer.Argument(help="Answers: one row per person, CSV or Parquet.", metavar="DATA"),
    ],
    out: Out,
    person: Person = None,
    most: MostOfPerson = 1,
    one_row_each: OneRowEach = False,
    assigned: Annotated[
        str | None,
        typer.Option(
            help="Column with each person's sheet, by its questions: smoker, or region+income. It "
            "must not depend on answers.",
            show_default="drawn at random",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Release one report per row, or at most --most reports of each person.

    With --person, rows of a person are drawn at random, and the guarantee is for all their reports
    together; rows without a name are left out. One of --person and --one-row-each is needed.
    """
    from tacit.data.tables import naming

    must_be_new(out)
    asked = read(survey)
    _must_say_whose(asked, person, most, one_row_each, assigned)
    with naming(data):
        columns = _answers(asked, data, [one for one in (person, assigned) if one is not None])
        released = asked.release(
            columns,
            assigned=None if assigned is None else columns[assigned],
            persons=None if person is None else columns[person],
            most=most,
        )
    released.write(out)
    values = {
        "reports": len(released),
        "people": "one per row, as stated" if person is None else f"at most {most} reports each",
        "guarantee": str(released.guarantee),
        "written": str(out),
    }
    print_values(values, as_json, "Released")


def _must_say_whose(
    survey: Any, person: str | None, most: int, one_row_each: bool, assigned: str | None
) -> None:
    """Refuse unless names or a statement say whose the rows are."""
    for option, column in (("--person", person), ("--assigned", assigned)):
        if column is not None and column in survey.questions:
            errors.refuse("release", option, "no column that is reported", column)
    if person is not None and person == assigned:
        errors.refuse("release", "--assigned", "another column than --person", assigned)
    if person is not None and one_row_each:
        remedy = "Names enforce it."
        errors.refuse("release", "--one-row-each", "left out with --person", True, remedy)
    if person is None and most != 1:
        errors.refuse("release", "--person", "given with --most", None)
    if person is None and not one_row_each:
        remedy = "If each row is another person's, say so with --one-row-each."
        condition = "the column that names people: a report is a person's"
        errors.refuse("release", "--person", condition, None, remedy)


def _answers(survey: Any, path: Path, more: list[str]) -> dict[str, Any]:
    """Read the columns of all questions, and more; how a line is read depends on it alone."""
    from tacit.data import tables
    from tacit.data.schema import Categorical, Continuous, TableSchema

    columns: list[Any] = [
        Continuous(name, one.lower, one.upper)
        if one.kind == "number"
        else Categorical(name, getattr(one, "options", (one.kind,)))
        for name, one in survey.questions.items()
    ]
    columns += [Categorical(name, ("",)) for name in more]
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
