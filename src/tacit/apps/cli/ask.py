"""`tacit ask`: answers with intervals, from a file of a survey's reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps import plots
from tacit.apps.cli.console import in_digits, print_json, print_table, print_text
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Confidence
from tacit.privacy import errors


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = 'tacit ask reports.parquet "mean income by region"'
    command(app, "People who trust nobody", example)(ask)


def ask(
    given: Annotated[
        list[str],
        typer.Argument(
            help="Reports of a survey, several files (.parquet) for a trend; then questions like "
            '"mean income by region" or "trend of mean income". None asks about every question.',
            metavar="FILE... [QUESTION]...",
        ),
    ],
    before: Annotated[
        Path | None, typer.Option(help="Reports of an earlier round: answer what has changed.")
    ] = None,
    times: Annotated[
        str | None,
        typer.Option(
            help="When the rounds of a trend were: 2024,2025,2027.", show_default="1, 2, 3, …"
        ),
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
    certificate: Annotated[
        Path | None,
        typer.Option(help="Also write the certificate of the answers, and of the file of --out."),
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of the guarantee towards readers.")] = 1e-6,
    fake: Annotated[
        int, typer.Option(help="How many reports of a sheet may be made up to learn about others.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Answer questions from the reports of a survey, with intervals."""
    from tacit.local.reports import Reports
    from tacit.local.surveys import answers, statements

    for path in filter(None, (out, plot, certificate)):
        must_be_new(path)
    if plot is not None:
        plots.check_target(plot)
    files, questions = _apart(given)
    _must_fit(files, before, times)
    rounds = [_reports(one, Reports) for one in (before, *files) if one is not None]
    survey = rounds[-1].mechanism
    asked = questions or answers.askable(survey, rounds[-1])
    if not asked:
        errors.refuse("ask", "QUESTION", "given: the sheets allow no overview", None)
    options: dict[str, Any] = {"confidence": confidence, "simultaneous": simultaneous}
    options |= {"delta": delta, "fake": fake}
    found = [_answered(survey, rounds, before is not None, one, times, options) for one in asked]
    if out is not None:
        answers.write(found, out)
    if certificate is not None:
        statements.of_answers(found, out).save(certificate)
    if plot is not None:
        plots.save(plots.answers(found, _said(found)), plot)
    if as_json:
        many = {"answers": [{"question": one.question, **one.to_plain()} for one in found]}
        return print_json(found[0].to_plain() if questions and len(found) == 1 else many)
    for one in found:
        _print(one)
    print_text(_said(found))


def _apart(given: list[str]) -> tuple[list[Path], list[str]]:
    """Split files from questions: the first is a file, and so are those that end like one."""
    count = 1
    while count < len(given) and given[count].endswith(".parquet"):
        count += 1
    return list(map(Path, given[:count])), given[count:]


def _must_fit(files: list[Path], before: Path | None, times: str | None) -> None:
    if before is not None and len(files) > 1:
        errors.refuse("ask", "--before", "left out with several files", str(before))
    if times is not None and len(files) < 2:
        errors.refuse("ask", "--times", "given with several files", times)


def _answered(
    survey: Any, rounds: list[Any], changed: bool, question: str, times: str | None, options: Any
) -> Any:
    from tacit.local.surveys import trends

    if changed:
        return survey.change(*rounds, question, **options)
    if len(rounds) == 1:
        return survey.answer(rounds[0], question, **options)
    if not trends.asks(question):
        question = trends.PREFIX + question
    return survey.answer(rounds, question, times=_numbers(times), **options)


def _numbers(times: str | None) -> list[float] | None:
    try:
        return None if times is None else [float(one) for one in times.split(",")]
    except ValueError:
        errors.refuse("ask", "--times", "numbers like 2024,2025,2027", times)


def _print(answer: Any) -> None:
    days = "" if answer.first_date is None else " days"
    rows = [
        (
            one.label,
            answer.said(one.value),
            f"{in_digits(one.standard_error, 2)}{days}",
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
