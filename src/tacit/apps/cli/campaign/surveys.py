"""Surveys on the command line of campaigns: files of answers, and answers to questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tacit.apps.cli.console import must_exist, print_table, print_text
from tacit.privacy import errors, files


def read_answers(path: Path, survey: Any) -> dict[str, list[Any]]:
    """Read answers from a file whose columns are the questions: CSV, Parquet or JSON (one person).

    How a line is read depends on that line alone.
    """
    must_exist(path)
    columns = _columns(path)
    for name in survey.questions:
        if name not in columns:
            # The file's columns are not listed: without a header they are a person's answers.
            raise errors.InvalidParameter(f"{path.name}: column {name!r} must be present.")
    return {name: _read(name, one, columns[name]) for name, one in survey.questions.items()}


def print_answers(summary: dict[str, Any]) -> None:
    """Print an answer about each question, and who learns what."""
    rows = [row for one in summary["answers"] for row in _rows(one)]
    columns = ("question", "value", f"{summary['confidence']:.0%} interval")
    print_table(f"{summary['reports']:,} reports", columns, rows)
    fakes = [
        (str(one["fakes"]), f"± {one['lying']:.4f}", f"± {one['share']:.4f}")
        for one in summary["poisoning"]
    ]
    if fakes:
        columns = ("fakes", "share, if they lie", "share, if they forge")
        print_table("Largest shift that fake participants could cause", columns, fakes)
    print_text(f"To you, who see the reports: {summary['guarantee']}, for each person.")
    print_text(f"To readers of answers: {summary['readers']}")


def write_certificates(summary: dict[str, Any], folder: Path) -> None:
    """Write one certificate per answer: "2-income.json" for the second question."""
    stated = {
        one["name"]: one["certificate"]
        for one in summary.get("answers", ())
        if "certificate" in one
    }
    if not stated:
        wanted = "left out: only answers of a closed survey have certificates"
        errors.refuse("results", "--certificates", wanted, str(folder), "Close the campaign.")
    folder.mkdir()
    for number, (name, text) in enumerate(stated.items(), start=1):
        plain = "".join(one if one.isalnum() else "-" for one in name)[:60]
        files.create(folder / f"{number}-{plain}.json", str(text).encode())


def _columns(path: Path) -> dict[str, list[Any]]:
    from tacit.data import lines, tables

    if path.suffix == ".json":
        return _of_object(path)
    text = path.suffix != ".parquet"
    found: dict[str, list[Any]] = {}
    for batch in lines.batches(path) if text else tables.batches(path):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            found.setdefault(name, []).extend(column.to_pylist())
    if not found:
        raise errors.InvalidData(f"{path}: it must have at least one row.")
    return found


def _of_object(path: Path) -> dict[str, list[Any]]:
    try:
        given = json.loads(path.read_bytes())
        return {str(name): [value] for name, value in given.items()}
    except (ValueError, AttributeError, RecursionError):
        # `from None`: the original message may quote an answer.
        condition = "the file must hold a JSON object with an answer per question"
        raise errors.InvalidData(f"{path}: {condition}.") from None


def _read(name: str, question: Any, values: list[Any]) -> list[Any]:
    if question.kind == "number":
        try:
            return [float(value) for value in values]
        except (TypeError, ValueError):
            raise errors.InvalidData(f"survey: {name}: answers must be numbers.") from None
    return values


def _rows(one: dict[str, Any]) -> list[tuple[str, str, str]]:
    if "problem" in one:
        return [(one["question"], "–", one["problem"])]
    first = one.get("days_after")
    if "groups" not in one:
        return [(one["question"], _number(one["value"], first), _interval(one["interval"], first))]
    return [
        (
            f"{one['question']}: {label}",
            _number(value, first),
            _interval(one["interval"][label], first),
        )
        for label, value in one["groups"].items()
    ]


def _number(value: float | None, first: str | None) -> str:
    """Write a number, or the date that is so many days after the first."""
    from tacit.local.surveys.answers import said

    return "–" if value is None else said(value, first)


def _interval(ends: list[float | None], first: str | None) -> str:
    low, high = ends
    lowest = "−∞" if low is None else _number(low, first)
    return f"{lowest} to {'∞' if high is None else _number(high, first)}"
