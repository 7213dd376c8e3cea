"""`tacit survey plan`: what a survey will give, before anybody is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import in_digits, print_json, print_table, print_text
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Confidence
from tacit.apps.cli.survey.drafts import SurveyFile, read
from tacit.privacy import errors, files


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = 'tacit survey plan survey.json --people 5000 --goal "mean income by region"'
    command(app, "Questions", example)(plan)


def plan(
    survey: SurveyFile,
    people: Annotated[int, typer.Option(help="How many people are expected to answer.")],
    goal: Annotated[
        list[str], typer.Option(help='A question to answer: "share of smoker". Repeat for more.')
    ],
    expect: Annotated[
        list[str] | None,
        typer.Option(
            help="Answers that you expect: smoker=.2 (share of yes), region=.3,.7 (shares), "
            "income=3,1 (mean and standard deviation).",
            show_default="options equally likely, numbers evenly spread",
        ),
    ] = None,
    confidence: Confidence = 0.95,
    out: Annotated[
        Path | None, typer.Option(help="Also write the survey with the best sheets, as a schema.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare designs by the standard errors that they will give, and with a trusted curator."""
    if out is not None:
        must_be_new(out)
    asked = read(survey)
    made = asked.plan(people, goal, expected=_expected(expect or []), confidence=confidence)
    if out is not None:
        text = json.dumps(made.best.survey.to_plain(), indent=2, ensure_ascii=False) + "\n"
        files.replace(out, text.encode())
    if as_json:
        return print_json(made.to_plain())
    _print(made)


def _expected(given: list[str]) -> dict[str, Any]:
    expected: dict[str, Any] = {}
    for one in given:
        name, equals, values = one.partition("=")
        try:
            numbers = [float(value) for value in values.split(",")]
        except ValueError:
            equals = ""
        if not equals:
            errors.refuse("plan", "--expect", "like smoker=.2 or income=3,1", one)
        expected[name] = numbers[0] if len(numbers) == 1 else numbers
    return expected


def _print(made: Any) -> None:
    best = made.best
    rows = [
        (
            one.question,
            in_digits(one.standard_error),
            f"± {in_digits(one.width / 2)}",
            in_digits(central.standard_error),
            in_digits(shown.standard_error),
        )
        for one, central, shown in zip(
            best.goals, made.curator, made.curator_of_readers, strict=True
        )
    ]
    columns = ("goal", "standard error", "interval", "curator", "curator for readers")
    print_table(f"Best for {made.people:,} people: {best.name}", columns, rows)
    print_text(f"Sheets: {_sheets(best)}.")
    print_text(f"Towards each person: {best.survey.guarantee}. Towards readers: {best.readers}")
    others = [
        (one.name, ", ".join(in_digits(goal.standard_error) for goal in one.goals), _sheets(one))
        for one in made.designs[1:]
    ]
    if others:
        print_table("Other designs", ("", "standard errors", "sheets"), others)
    print_text(
        f"{made.to_plain()['assumes']} The last column is a curator who promises what readers have "
        "by shuffling. Of several numbers, the one with the largest error is shown. Errors of "
        "dates are in days."
    )


def _sheets(design: Any) -> str:
    sheets = "; ".join(" with ".join(one) for one in design.survey.sheets)
    return f"{sheets} (ε divided)" if design.survey.divided else sheets
