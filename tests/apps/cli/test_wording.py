"""Errors of commands speak of their options, whoever raises them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tacit.apps import cli
from tacit.apps.cli.wording import in_options
from tacit.privacy.errors import InvalidData, InvalidParameter

Run = Callable[..., Any]
ROOT: Any = typer.main.get_command(cli.app)


def command(path: str) -> Any:
    found = ROOT
    for name in path.split():
        found = found.commands[name]
    return found


@pytest.mark.parametrize(
    ("path", "raised", "spoken"),
    [
        (
            "release query",
            "query: keys of 'sex' must be declared, got 'none'. Pass keys={'sex': [...]}, from it.",
            "query: --keys of 'sex' must be declared, got 'none'. Pass --keys sex=..., from it.",
        ),
        (
            "release query",
            "query: bounds of 'age' must be declared, got 'none'. Pass bounds={'age': (0, 100)}.",
            "query: --bounds of 'age' must be declared, got 'none'. Pass --bounds age=0:100.",
        ),
        (
            "account compose",
            "f: noise_multiplier must be above 0",
            "f: --noise-multiplier must be above 0",
        ),
        (
            "account calibrate",
            "f: epsilon must be above 0, got 0.0.",
            "f: --epsilon must be above 0, got 0.0.",
        ),
        ("account calibrate", "f: delta must be in (0, 1)", "f: --delta must be in (0, 1)"),
        (
            "release anonymize",
            "r.csv: private must be a column",
            "r.csv: --private must be a column",
        ),
        (
            "release anonymize",
            "r.csv: regular must be a column",
            "r.csv: --regular must be a column",
        ),
        (
            "collect fit",
            "f: central_epsilon and central_delta must be given",
            "f: --central-epsilon and --central-delta must be given",
        ),
        (
            "collect fit",
            "f: it leaks. Fit with inhouse_public=True (--inhouse-public).",
            "f: it leaks. Fit with --inhouse-public.",
        ),
        (
            "collect search",
            "f: it is another. Make it with unit='person'.",
            "f: it is another. Make it with unit='person'.",
        ),
        (
            "collect fit",
            "f: it is another. Make it with unit='person'.",
            "f: it is another. Make it with --unit person.",
        ),
        (
            "collect fit",
            "f: give values. Say classes=['no', 'yes'].",
            "f: give values. Say --classes no,yes.",
        ),
        (
            "federate run",
            "f: ledger and account must be given together",
            "f: --ledger and --account must be given together",
        ),
        (
            "account ledger open",
            "f: account must be new. Use raise_budget to change its budget.",
            "f: account must be new. Use tacit account ledger raise to change its budget.",
        ),
        # Options of another command, which the remedy names.
        (
            "collect export",
            "f: it leaks. Fit the mechanism with central_epsilon and central_delta, or state that "
            "the rows are public.",
            "f: it leaks. Fit the mechanism by tacit collect fit with --central-epsilon and "
            "--central-delta, or state that the rows are public (--inhouse-public).",
        ),
        # What is no option, or no parameter, stays as it is.
        ("collect fit", "f: rows must be a table", "f: rows must be a table"),
        ("collect fit", "f: column 'delta' must be numbers", "f: column 'delta' must be numbers"),
        (
            "collect fit",
            "f: clip_norm must be above 0, got 0.",
            "f: clip_norm must be above 0, got 0.",
        ),
        (
            "collect fit",
            "f: --epsilon must be above 0. Such an epsilon is none.",
            "f: --epsilon must be above 0. Such an epsilon is none.",
        ),
        (
            "collect fit",
            "f: '--label central_epsilon' must be a name",
            "f: '--label central_epsilon' must be a name",
        ),
    ],
)
def test_a_parameter_is_an_option(path: str, raised: str, spoken: str) -> None:
    assert in_options(InvalidParameter(raised), command(path)) == spoken


def test_errors_about_data_keep_the_names_of_columns() -> None:
    raised = "rows.csv: label must be without nulls, and so must delta. Read it with schema='s'."
    spoken = "rows.csv: label must be without nulls, and so must delta. Read it with --schema s."
    assert in_options(InvalidData(raised), command("collect fit")) == spoken


@pytest.fixture(name="people")
def _people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("age,sex,who\n" + "".join(f"{i % 90},FM,p{i % 9}\n" for i in range(90)))
    return path


def test_commands_name_their_options(run: Run, people: Path, tmp_path: Path) -> None:
    asked = ("release", "query", people)
    grouped = "select sex, count(*) from people group by sex"
    keys = run(*asked, grouped, "--epsilon", 1).err
    assert "--keys of 'sex' must be declared" in keys
    assert "Pass --keys sex=..., from public knowledge." in keys
    bounds = run(*asked, "select avg(age) from people", "--epsilon", 1).err
    assert "--bounds of 'age' must be declared" in bounds
    assert "Pass --bounds age=lower:upper, from public knowledge." in bounds
    assert (
        ": --epsilon must be above 0"
        in run(*asked, "select count(*) from people", "--epsilon", 0).err
    )
    given = ("account", "calibrate", "--steps", 10)
    assert ": --epsilon must be above 0" in run(*given, "--epsilon", -1, "--delta", 1e-5).err
    assert ": --delta must be in (0, 1)" in run(*given, "--epsilon", 1, "--delta", 2).err
    hiding = ("release", "anonymize", people, "--out", tmp_path / "e")
    assert "--private must be" in run(*hiding, "--regular", "sex", "--private", "sex").err
    assert "--private must be one of" in run(*hiding, "--regular", "sex", "--private", "home").err
    assert "--regular must be one of" in run(*hiding, "--regular", "home", "--private", "who").err
    for outcome in (
        run(*given, "--epsilon", -1, "--delta", 1e-5),
        run(*asked, grouped, "--epsilon", 1),
    ):
        assert outcome.code == 2
        assert outcome.err.count("\n") == 1
        assert "={" not in outcome.err
