"""`tacit survey draft`, `show`: the schema of a survey, and what it asks of people."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import must_exist, print_json, print_table, print_text
from tacit.apps.cli.files import declared_parts, must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Out
from tacit.privacy import errors, files

SurveyFile = Annotated[Path, typer.Argument(help="Schema of a survey.", metavar="SURVEY")]
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LIKE = ("age=18:99", "region=north,south")
_YES_NO = {"yes", "no", "true", "false"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    panel = "Questions"
    command(app, panel, "tacit survey draft example.csv --epsilon 1 --out survey.json")(draft)
    command(app, panel, "tacit survey show survey.json")(show)


def draft(
    table: Annotated[
        Path, typer.Argument(help="Example rows: CSV (with a header) or Parquet.", metavar="TABLE")
    ],
    epsilon: Annotated[float, typer.Option(help="Local ε of a person's whole report.")],
    out: Out,
    declare: Annotated[
        list[str] | None,
        typer.Option(help="Bounds or options of a column: age=18:99, region=north,south."),
    ] = None,
    public: Annotated[
        bool,
        typer.Option("--public", help="State that the rows are public: read bounds and options."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Draft the schema of a survey from the columns of a table, to be completed by hand.

    The kind of each question is guessed from its column. Bounds and options are those that are
    declared; others are left open, unless the rows are stated to be public.
    """
    from tacit.data import tables
    from tacit.local.surveys.questions import must_be_named

    must_be_new(out)
    errors.epsilon_in_range("draft", epsilon)
    rows, _ = tables.sample(table, 200_000, 0)
    for name in rows.column_names:
        must_be_named(name)
    declared = declared_parts("draft", declare or [], rows.column_names, *_LIKE)
    questions = {
        name: _drafted(name, rows.column(name), declared.get(name), public)
        for name in rows.column_names
    }
    plain = {"format": "tacit-survey/1", "epsilon": f"{epsilon:g}", "questions": questions}
    text = json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    files.replace(out, text.encode())
    left_open = [name for name, one in questions.items() if None in one.values()]
    read = [name for name in questions if public and name not in declared]
    values = {"written": str(out), "questions": len(questions), "left_open": left_open}
    values |= {"read_off_rows": read}
    if as_json:
        return print_json(values)
    print_text(f"{out}: {len(questions)} questions. Their kinds were guessed from the columns.")
    if left_open:
        print_text(f"Fill in what is null for: {', '.join(left_open)}. Do not copy it from rows.")
    if read:
        print_text(f"Read off the rows, which you state to be public: {', '.join(read)}.")


def _drafted(name: str, column: Any, declared: str | None, public: bool) -> dict[str, Any]:
    """Draft a question from its column; what is neither declared nor public stays open."""
    kind, known = _kind(column), {"text": name if name.endswith(("?", ".")) else f"{name}?"}
    if kind == "yes-no":
        return {"kind": kind, **known}
    if kind in ("one-of", "several-of"):
        options = None
        if declared is not None:
            options = [one.strip() for one in declared.split(",")]
        elif public:
            options = sorted(_options(column, kind))
        return {"kind": kind, "options": options, **known}
    ends: Any = (None, None)
    if declared is not None:
        ends = _ends(name, declared, kind)
    elif public:
        present = [one for one in column.to_pylist() if one is not None]
        ends = (min(present), max(present))
    names = ("first", "last") if kind == "date" else ("lower", "upper")
    bounds = [str(one) if kind == "date" and one is not None else one for one in ends]
    return {"kind": kind, **dict(zip(names, bounds, strict=True)), **known}


def _options(column: Any, kind: str) -> set[str]:
    """Return the options that occur in a column of texts."""
    texts = [str(one) for one in column.unique().to_pylist() if one is not None]
    if kind == "one-of":
        return set(texts)
    return {one.strip() for text in texts for one in text.split(";") if one.strip()}


def _kind(column: Any) -> str:
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        return "yes-no"
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        return "date"
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return "number"
    words = {str(one).lower() for one in column.unique().to_pylist() if one is not None}
    if words and all(map(_DATE.fullmatch, words)):
        return "date"
    if any(";" in one for one in words):
        return "several-of"
    return "yes-no" if words and words <= _YES_NO else "one-of"


def _ends(name: str, declared: str, kind: str) -> tuple[Any, Any]:
    lower, colon, upper = declared.partition(":")
    try:
        if not colon:
            raise ValueError
        return (lower, upper) if kind == "date" else (float(lower), float(upper))
    except ValueError:
        errors.refuse("draft", "--declare", f"two bounds, like {name}=18:99", declared)


def read(path: Path) -> Any:
    """Read a survey; name the questions that a draft has left open."""
    from tacit.local.surveys.survey import Survey

    must_exist(path)
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        asked = plain["questions"].items()
        left_open = [name for name, one in asked if isinstance(one, dict) and None in one.values()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return Survey.read(path)  # which says what is wrong
    if left_open:
        wanted = "complete: options and bounds must not be null"
        errors.refuse(str(path), "questions", wanted, ", ".join(left_open), "Declare them.")
    return Survey.from_plain(plain)


def show(survey: SurveyFile, as_json: AsJson = False) -> None:
    """Check a schema, and show what people will be asked and what protects their answers."""
    found = read(survey)
    sheets = [
        " and ".join(
            "; ".join(_measured(found, one) for one in part.measures) + f" (ε = {_short(part)})"
            for part in parts
        )
        for parts in found.channel().sheets
    ]
    if as_json:
        return print_json(
            {
                **found.to_plain(),
                "sheets_in_words": sheets,
                "guarantee": str(found.guarantee),
                "certificate": json.loads(found.certificate.to_json()),
            }
        )
    rows = [
        (name, one.text or name, " ".join(filter(None, [one.answers, one.unit])), one.help)
        for name, one in found.questions.items()
    ]
    columns = ("name", "text", "answer", "help")
    shown = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
    print_table("Questions", columns[:shown], [row[:shown] for row in rows])
    print_text(_asked(len(sheets)))
    for number, one in enumerate(sheets, start=1):
        print_text(f"  {number}. {one}")
    if unasked := _unasked(found):
        print_text(f"On no sheet, so nobody is asked: {', '.join(unasked)}.")
    print_text(f"\n{found.certificate.explain()}")


def _asked(sheets: int) -> str:
    if sheets == 1:
        return "Everybody is asked, in one report:"
    return f"Each person gets one of these {sheets} sheets, drawn at random, and sends one report:"


def _unasked(survey: Any) -> list[str]:
    """Return the questions that are on no sheet."""
    asked = {m.variable for parts in survey.channel().sheets for p in parts for m in p.measures}
    return [
        name
        for name, one in survey.questions.items()
        if not asked & {name, *(f"{name}={option}" for option in getattr(one, "options", ()))}
    ]


def _measured(survey: Any, measure: Any) -> str:
    """Say what leaves the device about one question, before it is noised."""
    name, levels = measure.variable, measure.levels
    if measure.kind == "option":
        return f"{name}, one of {levels} answers"
    if measure.kind == "bins":
        return f"{name}, in {levels} bins"
    twice = "twice " if measure.kind == "moments" else ""
    return f"{name}, rounded {twice}at random to {measure.size} values"


def _short(part: Any) -> str:
    return f"{float(part.epsilon):g}"
