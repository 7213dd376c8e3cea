"""`tacit release query`: answers, prices, budgets, and every bad input on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tacit.apps.cli import main

SECRET = "Zaphod7531"
Run = Callable[..., Any]
BY_SEX = "select sex, avg(age) from data where state = 'CA' group by sex"
DECLARED = ("--bounds", "age=0:100", "--keys", "sex=F,M")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows a person; half of the rows are of California."""
    folder = tmp_path_factory.mktemp("query")
    number = np.arange(2_000)
    table = pd.DataFrame(
        {
            "person_id": number // 2,
            "sex": np.where(number // 4 % 2, "F", "M"),
            "state": np.where(number // 2 % 2, "CA", "NY"),
            "age": 20.0 + number % 61,
            "zip": [f"{n % 3:05}" for n in number],
            "ward": number % 2,
            "smoker": number % 5 == 0,
            "name": SECRET,
        }
    )
    table.to_parquet(folder / "data.parquet")
    table.to_csv(folder / "people.csv", index=False)
    opened = f"account ledger open {folder}/ledger patients --epsilon 1 --adjacency add-remove"
    assert main(opened.split()) == 0
    return folder


@pytest.fixture(name="ask")
def _ask(work: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Ask of the table; the JSON that comes back."""

    def ask(sql: str, *options: object, file: str = "data.parquet") -> Any:
        capsys.readouterr()
        arguments = ["release", "query", str(work / file), sql, *map(str, options), "--json"]
        assert main(arguments) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture(name="refused")
def _refused(work: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Ask of the table; the line that refuses."""

    def refused(sql: str, *options: object, file: str = "data.parquet", code: int = 2) -> str:
        capsys.readouterr()
        assert (
            main(["release", "query", str(work / file), sql, *map(str, options), "--json"]) == code
        )
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert SECRET not in said.err
        return said.err

    return refused


def test_the_question_of_the_readme(ask: Run) -> None:
    found = ask(BY_SEX, "--epsilon", 0.5, *DECLARED)
    assert set(found) == {"groups", "interval", "guarantee", "remaining"}
    assert set(found["groups"]) == {"F", "M"}
    for key, group in found["groups"].items():
        low, high = group["interval"]
        assert low <= group["value"] <= high
        assert found["interval"][key] == [low, high]
        assert abs(group["value"] - 50) < 10  # twelve deviations of the noise
    assert found["guarantee"]["epsilon"] == 0.5
    assert found["guarantee"]["adjacency"] == "add-remove"
    assert found["guarantee"]["unit"] == "record"
    assert found["remaining"] == {"epsilon": 0.0, "delta": 0.0}


def test_one_value_and_several(ask: Run) -> None:
    found = ask("select count(*) from data", "--epsilon", 5)
    assert set(found) == {"value", "interval", "guarantee", "remaining"}
    assert abs(found["value"] - 2000) < 20
    several = ask("select count(*) n, avg(age) from data", "--epsilon", 5, *DECLARED)
    assert set(several["value"]) == set(several["interval"]) == {"n", "avg(age)"}
    grouped = ask(
        "select sex, state, count(*) n, median(age) m from data group by sex, state",
        *("--epsilon", 5, *DECLARED, "--keys", "state=CA,NY"),
    )
    assert set(grouped["groups"]) == {"F,CA", "F,NY", "M,CA", "M,NY"}
    assert set(grouped["groups"]["F,CA"]["value"]) == {"n", "m"}


def test_counts_beside_means_are_printed_as_whole_numbers(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "select count(*) n, avg(age) m from data"
    capsys.readouterr()
    assert main(["release", "query", str(work / "data.parquet"), sql, "--epsilon", "5",
                 *map(str, DECLARED)]) == 0  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    (count,), (mean,) = ([one for one in lines if f" {name} " in one] for name in "nm")
    assert "." not in count
    assert "." in mean


def test_a_unit_protects_people(ask: Run) -> None:
    one = ask("select count(*) from data", "--epsilon", 5, "--unit", "person_id")
    assert one["guarantee"]["unit"] == "person"
    assert abs(one["value"] - 1000) < 20  # of each person one row counts
    two = ask("select count(*) from data", "--epsilon", 5, "--unit", "person_id", "--max-rows", 2)
    assert abs(two["value"] - 2000) < 40
    options = ("--unit", "person_id", "--keys", "ward=0,1")
    sql = "select ward, count(*) from data group by ward"
    first = ask(sql, "--epsilon", 5, *options)["groups"]
    assert abs(first["0"]["value"] + first["1"]["value"] - 1000) < 40  # each in one ward
    both = ask(sql, "--epsilon", 5, *options, "--max-groups", 2)["groups"]
    assert abs(both["0"]["value"] + both["1"]["value"] - 2000) < 80


def test_gaussian_noise_by_delta_or_rho(ask: Run) -> None:
    by_delta = ask("select count(*) from data", "--epsilon", 1, "--delta", 1e-6)
    assert by_delta["guarantee"]["kind"] == "ApproxDP"
    assert by_delta["guarantee"]["epsilon"] == pytest.approx(1, abs=1e-6)
    assert by_delta["guarantee"]["epsilon"] <= 1
    assert by_delta["guarantee"]["delta"] == 1e-6
    by_rho = ask("select count(*) from data", "--rho", 0.5, "--adjacency", "replace-one")
    assert by_rho["guarantee"]["rho"] == 0.5
    assert by_rho["guarantee"]["adjacency"] == "replace-one"
    assert by_rho["remaining"] == {"rho": 0.0}


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ("zip=00000,00001", {"00000", "00001"}),
        ("ward=0,1", {"0", "1"}),
        ("smoker=true,false", {"True", "False"}),
        ("sex='F','M'", {"F", "M"}),
    ],
)
def test_keys_are_read_as_what_they_look_like(ask: Run, keys: str, names: set[str]) -> None:
    column = keys.partition("=")[0]
    sql = f"select {column}, count(*) from data group by {column}"
    found = ask(sql, "--epsilon", 5, "--keys", keys)["groups"]
    assert set(found) == names
    assert all(group["value"] > 300 for group in found.values())


def test_a_cost_in_another_notion_than_the_account_names_the_options(
    refused: Run, work: Path
) -> None:
    charged = ("--ledger", work / "ledger", "--account", "patients")
    sql = "select count(*) from data"
    for given, said in (
        (("--epsilon", 0.1, "--delta", 1e-6), "got '--rho, or --epsilon with --delta'"),
        (("--rho", 0.1), "got '--rho, or --epsilon with --delta'"),
    ):
        line = refused(sql, *given, *charged)
        assert "cost must be given as --epsilon alone, as the account is 1-DP" in line
        assert said in line


def test_count_of_a_csv_column_says_what_it_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers where the column has bounds, else all that is not empty; by the question alone."""
    path = tmp_path / "sensors.csv"
    path.write_text("temp\n" + "20.5\n" * 600 + "NA\n" * 300 + '""\n' * 100)

    def told(*options: str, sql: str = "select count(temp) as n from data") -> str:
        assert main(["release", "query", str(path), sql, "--epsilon", "50", *options]) == 0
        return capsys.readouterr().out

    plain, bounded = told(), told("--bounds", "temp=0:40")
    assert "900" in plain
    assert "With --bounds temp=LOWER:UPPER, it counts only numbers." in " ".join(plain.split())
    assert "600" in bounded
    assert "--bounds" not in bounded
    assert "--bounds" not in told(sql="select count(*) from data")
    path.write_text("temp\n1\n2\n3\n")  # without any such word it says the same
    assert "With --bounds temp=LOWER:UPPER, it counts only numbers." in " ".join(told().split())


def test_a_csv_file_is_called_by_its_name_or_data(ask: Run, refused: Run) -> None:
    for table in ("people", "data"):
        sql = f"select ward, avg(age) from {table} where ward < 2 group by ward"
        options = ("--epsilon", 5, "--bounds", "age=0:100", "--keys", "ward=0,1")
        found = ask(sql, *options, file="people.csv")
        assert abs(found["groups"]["0"]["value"] - 50) < 5
    said = refused("select count(*) from other", "--epsilon", 1, file="people.csv")
    assert "people" in said


def test_a_price_reads_nothing_and_charges_nothing(ask: Run, work: Path) -> None:
    from tacit import Ledger

    options = ("--epsilon", 0.25, "--ledger", work / "ledger", "--account", "patients")
    found = ask("select count(*) from data", *options, "--price")
    assert set(found) == {"guarantee", "remaining"}
    assert found["guarantee"]["epsilon"] == 0.25
    assert found["remaining"]["epsilon"] == 0.75
    with Ledger(work / "ledger") as ledger:
        assert not ledger.show("patients").charges


def test_an_account_is_charged_and_refuses(ask: Run, refused: Run, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert main(f"account ledger open {path} a --epsilon 1 --adjacency add-remove".split()) == 0
    account = ("--ledger", path, "--account", "a")
    sql = "select count(*) from data"
    assert ask(sql, "--epsilon", 0.6, *account)["remaining"]["epsilon"] == 0.4
    said = refused(sql, "--epsilon", 0.6, *account, code=1)
    assert "at most 0.4" in said
    assert "Nothing was charged" in said
    assert ask(sql, "--epsilon", 0.4, *account)["remaining"]["epsilon"] == 0.0
    # The account is about rows: a question about people is another promise.
    assert "unit" in refused(sql, "--epsilon", 0.1, *account, "--unit", "person_id")


def test_a_table_for_people(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(work / "data.parquet")
    assert main(["release", "query", path, BY_SEX, "--epsilon", "1", *DECLARED]) == 0
    out = capsys.readouterr().out
    assert "95 % interval" in out
    assert "1-DP (central, add-remove, unit: record)." in out
    assert "No ledger" in out
    bounded = ("--unit", "person_id", "--max-rows", "2")
    assert main(["release", "query", path, BY_SEX, "--epsilon", "1", *DECLARED, *bounded]) == 0
    assert "at most 2 rows per person and group, in at most 1 group." in capsys.readouterr().out
    assert main(["release", "query", path, BY_SEX, "--epsilon", "1", *DECLARED, "--price"]) == 0
    assert "remaining after" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sql", "options", "why"),
    [
        (BY_SEX, (), "exactly one of --epsilon, --rho"),
        (BY_SEX, ("--epsilon", 1, "--rho", 1), "exactly one of --epsilon, --rho"),
        (BY_SEX, ("--rho", 1, "--delta", 0.1), "--delta must be given with --epsilon"),
        (BY_SEX, ("--epsilon", 0, *DECLARED), "epsilon must be above 0"),
        (BY_SEX, ("--epsilon", "nan", *DECLARED), "epsilon must be"),
        (BY_SEX, ("--epsilon", 1, "--delta", 2), "delta must be"),
        (BY_SEX, ("--epsilon", 1, "--keys", "sex=F,M"), "bounds of 'age' must be declared"),
        (BY_SEX, ("--epsilon", 1, "--bounds", "age=0:100"), "keys of 'sex' must be declared"),
        (BY_SEX, ("--epsilon", 1, "--bounds", "age=100:0", "--keys", "sex=F"), "lower below upper"),
        (BY_SEX, ("--epsilon", 1, "--bounds", "age=0"), "--bounds must be like age=0:100"),
        (BY_SEX, ("--epsilon", 1, "--bounds", "age=a:b"), "--bounds must be like age=0:100"),
        (BY_SEX, ("--epsilon", 1, "--bounds", "0:100"), "--bounds must be like age=0:100"),
        (BY_SEX, ("--epsilon", 1, "--keys", "sex="), "--keys must be like sex=F,M"),
        (
            BY_SEX,
            ("--epsilon", 1, "--keys", "sex=F", "--keys", "sex=M"),
            "--keys must be given once",
        ),
        (BY_SEX, ("--epsilon", 1, "--keys", "sex=F,F", "--bounds", "age=0:1"), "different"),
        (BY_SEX, ("--epsilon", 1, "--keys", "sex=1,2", "--bounds", "age=0:1"), "of its kind"),
        (BY_SEX, ("--epsilon", 1, "--bounds", "sex=0:1"), "numbers"),
        (BY_SEX, ("--epsilon", 1, "--adjacency", "any-two-inputs"), "adjacency"),
        (BY_SEX, ("--epsilon", 1, "--unit", "nobody"), "column must be in the table"),
        (BY_SEX, ("--epsilon", 1, "--max-rows", 3), "1 without a unit"),
        (BY_SEX, ("--epsilon", 1, "--ledger", "x"), "given together"),
        (
            BY_SEX,
            ("--epsilon", 1, "--ledger", "x", "--account", "a"),
            "--ledger must be an existing file, got 'x'. Open an account first: "
            "tacit account ledger open x a",
        ),
        (BY_SEX, ("--epsilon", 1, "--memory", "lots"), "memory must be"),
        ("select avg(salary) from data", ("--epsilon", 1), "column must be in the table"),
        ("select sum(name) from data", ("--epsilon", 1), "numbers"),
        ("select count(*) from data where age = 'x'", ("--epsilon", 1), "of its kind"),
        ("select count(*) from data where name > 3", ("--epsilon", 1), "of its kind"),
        ("select * from data", ("--epsilon", 1), "aggregates"),
        ("select name from data", ("--epsilon", 1), "GROUP BY"),
        ("select count(*) from data; select 1", ("--epsilon", 1), "one statement"),
        ("select count(*) from 'data.parquet'", ("--epsilon", 1), "table must be data"),
        ("", ("--epsilon", 1), "text with SQL"),
    ],
)
def test_what_is_wrong_is_said_on_one_line(
    refused: Run, sql: str, options: tuple[object, ...], why: str
) -> None:
    assert why in refused(sql, *options)


def test_sources_that_are_none(refused: Run, work: Path) -> None:
    assert "exists" in refused("select count(*) from no", "--epsilon", 1, file="no.parquet")
    (work / "text.txt").write_text(SECRET)
    assert "Parquet" in refused("select count(*) from text", "--epsilon", 1, file="text.txt")
    (work / "broken.parquet").write_text(SECRET * 100)
    said = refused("select count(*) from broken", "--epsilon", 1, file="broken.parquet")
    assert "source" in said


def test_an_answer_is_written_with_its_certificate(ask: Run, refused: Run, tmp_path: Path) -> None:
    out, certificate = tmp_path / "answer.json", tmp_path / "answer.certificate.json"
    options = ("--epsilon", 0.5, *DECLARED, "--out", out, "--certificate", certificate)
    printed = ask(BY_SEX, *options)
    assert json.loads(out.read_text()) == printed
    assert main(["account", "verify", str(certificate)]) == 0
    out.write_text(out.read_text().replace("0.5", "0.4"))
    assert main(["account", "verify", str(certificate)]) != 0
    assert "--out must be new" in refused(BY_SEX, *options)


def test_outputs_are_checked_before_the_charge(
    ask: Run, refused: Run, work: Path, tmp_path: Path
) -> None:
    count = "select count(*) from data"
    account = ("--ledger", work / "ledger", "--account", "patients")
    before = ask(count, "--epsilon", 0.01, "--price", *account)["remaining"]
    nowhere = tmp_path / "missing" / "answer.json"
    for option in ("--out", "--certificate"):
        said = refused(count, "--epsilon", 0.01, *account, option, nowhere)
        assert f"{option} must be in an existing folder" in said
        said = refused(count, "--epsilon", 0.01, "--price", option, tmp_path / "answer.json")
        assert f"--price must be given without {option}" in said
    same = ("--out", tmp_path / "one.json", "--certificate", tmp_path / "one.json")
    said = refused(count, "--epsilon", 0.01, *account, *same)
    assert "--certificate must be another file" in said
    assert ask(count, "--epsilon", 0.01, "--price", *account)["remaining"] == before


def test_the_certificate_of_the_account_covers_every_query(
    ask: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, out = tmp_path / "ledger", tmp_path / "people.certificate.json"
    opened = f"account ledger open {ledger} people --epsilon 1 --adjacency add-remove"
    assert main(opened.split()) == 0
    for _ in range(2):
        ask(
            "select count(*) from data",
            "--epsilon",
            0.25,
            "--ledger",
            ledger,
            "--account",
            "people",
        )
    certify = ["account", "ledger", "certificate", str(ledger), "people", "--out", str(out)]
    assert main([*certify, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["guarantee"].startswith("0.5-DP")
    assert main(["account", "verify", str(out)]) == 0
    assert main(certify) == 2  # the file exists


def test_a_forgotten_unit_is_named(refused: Run, tmp_path: Path) -> None:
    opened = f"account ledger open {tmp_path}/ledger a --epsilon 1 --adjacency zero-out"
    assert main([*opened.split(), "--unit", "person"]) == 0
    account = ("--ledger", tmp_path / "ledger", "--account", "a")
    said = refused("select count(*) from data", "--epsilon", 0.1, *account)
    assert "pass --unit COLUMN" in said


def test_ledgers_and_models_given_to_other_commands(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("explain", "verify"):
        assert main(["account", command, str(work / "ledger")]) == 2
        assert "use tacit account ledger show" in capsys.readouterr().err
    assert main(["account", "audit", str(tmp_path)]) == 2
    assert "use tacit train audit" in capsys.readouterr().err


def test_the_note_on_intervals_names_clipping(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = ["release", "query", str(work / "data.parquet"), "select avg(age) from data"]
    assert main([*query, "--epsilon", "1", "--bounds", "age=0:100"]) == 0
    assert "cover the noise, not values clipped to --bounds." in capsys.readouterr().out
    assert main([*query, "--epsilon", "1", "--bounds", "age=0:100", "--unit", "person_id"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "not the rows left out, nor values clipped to --bounds." in printed
