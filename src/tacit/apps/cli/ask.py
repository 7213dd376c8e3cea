"""`tacit ask`: answers with intervals, from a file of a survey's reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps import plots
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
    questions: Annotated[
        list[str] | None,
        typer.Argument(
            help='Like "mean income by region"; none asks about every question.',
            metavar="[QUESTION]...",
        ),
    ] = None,
    before: Annotated[
        Path | None, typer.Option(help="Reports of an earlier round: answer what has changed.")
    ] = None,
    confidence: Confidence = 0.95,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Make all intervals of an answer hold together.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write the answers as a table, .csv or .parquet.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the answers, .png, .svg or .pdf.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer questions from the reports of a survey, with intervals."""
    from tacit.local.reports import Reports
    from tacit.local.surveys import answers

    for path in filter(None, (out, plot)):
        must_be_new(path)
    if plot is not None:
        plots.check_target(plot)
    rounds = [_reports(one, Reports) for one in (before, file) if one is not None]
    survey, options = rounds[-1].mechanism, {"confidence": confidence, "simultaneous": simultaneous}
    answer = survey.answer if before is None else survey.change
    asked = questions or answers.askable(survey, rounds[-1])
    if not asked:
        errors.refuse("ask", "QUESTION", "given: the sheets allow no overview", None)
    found = [answer(*rounds, one, **options) for one in asked]
    if out is not None:
        answers.write(found, out)
    if plot is not None:
        plots.save(plots.answers(found, _said(found)), plot)
    if as_json:
        many = {"answers": [{"question": one.question, **one.to_plain()} for one in found]}
        return print_json(found[0].to_plain() if questions and len(found) == 1 else many)
    for one in found:
        _print(one)
    print_text(_said(found))


def _print(answer: Any) -> None:
    days = "" if answer.first_date is None else " days"
    rows = [
        (
            one.label,
            answer.said(one.value),
            f"{one.standard_error:.2g}{days}",
            " to ".join(map(answer.said, one.interval)),
        )
        for one in answer.estimates
    ]
    print_table(answer.question, ("", "value", "standard error", "interval"), rows)


def _said(found: list[Any]) -> str:
    """Say once what holds of all answers: what they cover, and the guarantees."""
    sentences = [one.covers.rstrip(".").split(". ") for one in found]
    shared = [one for one in sentences[0] if all(one in own for own in sentences)]
    told = [f"{one}." for one in shared]
    apart: dict[str, list[str]] = {}
    for answer, own in zip(found, sentences, strict=True):
        if rest := [one for one in own if one not in shared]:
            apart.setdefault(". ".join(rest), []).append(f"“{answer.question}”")
    told += [f"{', '.join(questions)}: {said}." for said, questions in apart.items()]
    readers = " ".join(dict.fromkeys(one.readers for one in found))
    told += [f"Towards each person: {found[0].guarantee}.", f"Towards readers: {readers}"]
    return " ".join(told)


def _reports(path: Path, kind: Any) -> Any:
    reports = kind.read(path)
    if reports.mechanism.kind != "survey":
        errors.refuse("ask", "FILE", "reports of a survey", reports.mechanism.kind)
    return reports
