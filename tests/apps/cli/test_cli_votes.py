"""Votes and searches on the command line, and every bad input on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import tacit
from tacit.apps.cli import main
from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.local.inference.votes import Votes

SECRET = "Zaphod7531"
SCHEMA = TableSchema((Continuous("age", 0, 100), Categorical("job", ("baker", "smith", "nurse"))))


Run = Callable[..., Any]


def customers(count: int, seed: int) -> pa.Table:
    """Age and job tell loyalty; the region is no feature."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, count)
    return pa.table(
        {
            "age": np.clip(rng.normal(30 + 30 * kind, 6), 0, 100),
            "job": np.array(["baker", "smith", "nurse"])[(kind + (rng.random(count) < 0.1)) % 3],
            "loyal": np.array(["no", "yes"])[kind],
            "region": rng.integers(1, 4, count),
        }
    )


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, voters, and what a search needs: made once, never written to."""
    folder = tmp_path_factory.mktemp("votes")
    plain = [
        customers(count, seed).drop_columns(["region"]) for count, seed in ((400, 0), (900, 1))
    ]
    csv.write_csv(plain[0], folder / "inhouse.csv")
    pq.write_table(plain[1], folder / "people.parquet")
    csv.write_csv(customers(1200, 2), folder / "regions.csv")
    pq.write_table(customers(1200, 2).drop_columns(["region"]), folder / "voters.parquet")
    csv.write_csv(customers(1, 3).drop_columns(["region"]), folder / "me.csv")
    (folder / "schema.json").write_text(json.dumps(SCHEMA.to_plain()))
    (folder / "grid.json").write_text(json.dumps({"codewords": [2, 6], "prior": ["none"]}))
    commands = (
        f"collect fit {folder}/inhouse.csv --kind codebook --epsilon 3 --codewords 6"
        " --classes no,yes --label loyal --unit person"
        f" --schema {folder}/schema.json --out {folder}/mechanism --json",
        f"collect privatize {folder}/mechanism {folder}/people.parquet --label loyal --one-row-each"
        f" --out {folder}/reports.parquet --json",
        f"collect learn {folder}/reports.parquet --out {folder}/model --json",
        f"account ledger open {folder}/ledger voters --epsilon 4 --adjacency any-two-inputs"
        " --unit person",
    )
    for command in commands:
        assert main(command.split()) == 0
    return folder


@pytest.fixture(name="asked")
def _asked(work: Path, tmp_path: Path) -> tuple[object, ...]:
    """A search that works."""
    return (
        *("collect", "search", work / "inhouse.csv", "--people", work / "people.parquet"),
        *("--voters", work / "voters.parquet", "--label", "loyal", "--epsilon", 3),
        *("--classes", "no,yes", "--grid", work / "grid.json", "--schema", work / "schema.json"),
        *("--out", tmp_path / "found", "--json"),
    )


def changed(arguments: tuple[object, ...], option: str, value: object) -> tuple[object, ...]:
    """The same with another value of an option."""
    if option not in arguments:
        return (*arguments, option, value)
    place = arguments.index(option) + 1
    return (*arguments[:place], value, *arguments[place + 1 :])


# --- validate ------------------------------------------------------------------------------------


def test_validate(run: Run, work: Path) -> None:
    arguments = ("collect", "validate", work / "model", work / "voters.parquet", "--label", "loyal")
    found = run(*arguments, "--epsilon", 3, "--json").json
    assert found["voters"] == 1200
    assert found["guarantee"] == "3-DP (local, any-two-inputs, unit: person)"
    assert found["seeded"] is False
    low, high = found["interval"]
    truth = run("collect", "evaluate", work / "model", work / "voters.parquet", "--json").json[
        "accuracy"
    ]
    assert low - 0.03 < truth < high + 0.03
    assert high - low < 0.09
    shown = run(*arguments, "--epsilon", 3)
    assert "95% interval" in shown.out
    assert "Each voter: 3-DP" in shown.out


def test_validate_by_class_and_group(run: Run, work: Path) -> None:
    arguments = ("collect", "validate", work / "model", work / "regions.csv", "--label", "loyal")
    given = (*arguments, "--epsilon", 4, "--by-class", "--group", "region")
    found = run(*given, "--json").json
    assert [one["class"] for one in found["by_class"]] == ["no", "yes"]
    assert [one["group"] for one in found["by_group"]] == ["1", "2", "3"]
    assert sum(one["voters"] for one in found["by_group"]) == 1200
    private = run(*given, "--private-group", "--groups", "1,2,3,4", "--json").json
    assert [one["group"] for one in private["by_group"]] == ["1", "2", "3", "4"]
    assert sum(one["voters"] for one in private["by_group"][:3]) == pytest.approx(1200, rel=0.2)
    shown = run(*given).out
    assert "class no" in shown
    assert "group 3" in shown


def test_a_group_that_is_a_feature(run: Run, work: Path) -> None:
    """Its categories are those of the schema; none is read off the voters' rows."""
    found = run(
        *("collect", "validate", work / "model", work / "voters.parquet", "--label", "loyal"),
        *("--epsilon", 4, "--group", "job", "--private-group", "--json"),
    ).json
    assert [one["group"] for one in found["by_group"]] == ["baker", "smith", "nurse"]


def test_validate_charges_once_and_first(run: Run, refuse: Callable[..., str], work: Path) -> None:
    arguments = ("collect", "validate", work / "model", work / "voters.parquet", "--label", "loyal")
    charged = (*arguments, "--ledger", work / "ledger", "--account", "voters")
    unknown = (*charged[:4], "--label", "job", *charged[6:])
    assert "classes" in refuse(*unknown, "--epsilon", 1)  # labels that do not fit cost nothing
    assert run(*charged, "--epsilon", 3, "--key", "first", "--json").code == 0
    # A second run would draw anew: a key does not pay for that.
    assert "key must be new" in refuse(*charged, "--epsilon", 3, "--key", "first")
    assert "at most 1" in refuse(*charged, "--epsilon", 3, code=1)
    assert "must exist" in refuse(*charged[:-1], "nobody", "--epsilon", 1)
    assert "together" in refuse(*charged[:-2], "--epsilon", 1)
    spent = run("account", "ledger", "show", work / "ledger", "voters", "--json").json
    assert "3-DP" in json.dumps(spent)


# --- vote and tally ------------------------------------------------------------------------------


def test_devices_vote_and_the_server_counts(run: Run, work: Path, tmp_path: Path) -> None:
    ballot = ("--label", "loyal", "--epsilon", 2, "--by-class")
    device = ("collect", "vote", work / "model", work / "voters.parquet", *ballot)
    many = run(*device, "--out", tmp_path / "a.json", "--json").json
    assert many["votes"] == 1200
    assert many["guarantee"] == "2-DP (local, any-two-inputs, unit: person)"
    one = run(
        "collect", "vote", work / "model", work / "me.csv", *ballot, "--out", tmp_path / "b.json"
    )
    assert one.code == 0
    found = run("collect", "tally", tmp_path / "a.json", tmp_path / "b.json", "--json").json
    assert found["voters"] == 1201
    assert [part["class"] for part in found["by_class"]] == ["no", "yes"]
    assert Votes.read(tmp_path / "a.json").about == Votes.read(tmp_path / "b.json").about != ""
    # Of the same votes: another draw of them may well be narrower.
    surer = run(
        *("collect", "tally", tmp_path / "a.json", tmp_path / "b.json", "--confidence", 0.999),
        "--json",
    )
    assert np.ptp(surer.json["interval"]) > np.ptp(found["interval"])


def test_a_vote_is_all_that_leaves(run: Run, work: Path, tmp_path: Path) -> None:
    """Neither rows nor labels are in the file, and two votes of a row differ by chance."""
    arguments = ("collect", "vote", work / "model", work / "voters.parquet", "--label", "loyal")
    for name in ("a", "b"):
        run(*arguments, "--epsilon", 1, "--out", tmp_path / f"{name}.json")
    first, second = (Votes.read(tmp_path / f"{name}.json") for name in "ab")
    assert not np.array_equal(first.symbols, second.symbols)
    body = json.loads((tmp_path / "a.json").read_text())
    assert sorted(body) == sorted(
        [
            "about",
            "ballot",
            "certificate",
            "digest",
            "format",
            "groups",
            "releases",
            "seeded",
            "votes",
        ]
    )
    assert body["groups"] is None
    assert set(body["votes"]) <= {0, 1}


def test_votes_that_do_not_belong_together(
    run: Run, refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    for epsilon in (1, 2):
        run(
            *("collect", "vote", work / "model", work / "me.csv", "--label", "loyal"),
            *("--epsilon", epsilon, "--out", tmp_path / f"{epsilon}.json"),
        )
    assert "the same model" in refuse("collect", "tally", tmp_path / "1.json", tmp_path / "2.json")
    assert "counts once" in refuse("collect", "tally", tmp_path / "1.json", tmp_path / "1.json")
    assert "existing file" in refuse("collect", "tally", tmp_path / "none.json")
    assert "unchanged file" in refuse("collect", "tally", work / "schema.json")
    assert "confidence" in refuse("collect", "tally", tmp_path / "1.json", "--confidence", 1)
    again = ("collect", "vote", work / "model", work / "me.csv", "--label", "loyal", "--epsilon", 1)
    assert "new" in refuse(*again, "--out", tmp_path / "1.json")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--epsilon", 0), "epsilon must be"),
        (("--epsilon", 1, "--private-group"), "--group must be given"),
        (("--epsilon", 1, "--group", "region", "--private-group"), "--groups must be given"),
        (("--epsilon", 1, "--group", "region", "--groups", "1,2"), "--groups must be given with"),
        (("--epsilon", 1, "--group", "planet"), "group must be a column"),
        (("--epsilon", 1, "--confidence", 2), "confidence must be"),
        (
            ("--epsilon", 1, "--group", "region", "--private-group", "--groups", "1,2"),
            "declared classes",
        ),
    ],
)
def test_polls_that_are_refused(
    refuse: Callable[..., str], work: Path, more: tuple[object, ...], words: str
) -> None:
    line = refuse(
        "collect", "validate", work / "model", work / "regions.csv", "--label", "loyal", *more
    )
    assert words in line


def test_rows_that_are_refused(refuse: Callable[..., str], work: Path, tmp_path: Path) -> None:
    bad = (
        customers(3, 0)
        .drop_columns(["region"])
        .set_column(2, "loyal", pa.array(["no", SECRET, "no"]))
    )
    csv.write_csv(bad, tmp_path / "bad.csv")
    arguments = ("collect", "validate", work / "model", tmp_path / "bad.csv", "--epsilon", 1)
    assert "row 1 is not" in refuse(*arguments, "--label", "loyal")
    assert "label must be a column" in refuse(*arguments, "--label", "digit")
    assert "a model" in refuse(
        "collect", "validate", work / "mechanism", *arguments[3:], "--label", "loyal"
    )


# --- search --------------------------------------------------------------------------------------


@pytest.mark.parametrize("composition", ["parallel", "sequential"])
def test_search(run: Run, asked: tuple[object, ...], tmp_path: Path, composition: str) -> None:
    outcome = run(*asked, "--composition", composition)
    found = outcome.json
    assert "1,200 voters" in outcome.err.splitlines()[0]
    assert "of them kept for the winner" in outcome.err.splitlines()[0]
    assert found["composition"] == composition
    assert found["guarantee"] == "3-DP (local, any-two-inputs, unit: person)"
    names = [one["name"] for one in found["candidates"]]
    assert names == ["codebook codewords=2 prior=none", "codebook codewords=6 prior=none"]
    assert found["winner"] in names
    out = tmp_path / "found"
    assert {path.name for path in tmp_path.iterdir()} == {"found"}
    stored = json.loads((out / "search.json").read_text())
    assert stored == {name: value for name, value in found.items() if name != "written"}
    model = tacit.load(out / "model")
    assert model.mechanism_.codewords_ == tacit.load(out / "mechanism").codewords_
    assert len(tacit.Reports.read(out / "reports.parquet")) == model.reports_
    assert run("account", "verify", out / "certificate.json", "--json").json["verified"]
    assert (
        "Nobody both reported and voted" in run("account", "explain", out / "certificate.json").out
    )


def test_search_shows_a_table(run: Run, asked: tuple[object, ...]) -> None:
    shown = run(*asked[:-1], "--confirm", "simultaneous").out
    assert "codebook codewords=6" in shown
    assert "simultaneous intervals" in shown
    assert "Winner: " in shown
    assert "Each person: 3-DP" in shown


def test_search_charges_once_and_first(
    run: Run, refuse: Callable[..., str], asked: tuple[object, ...], tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    scope = ("--adjacency", "any-two-inputs", "--unit", "person")
    run("account", "ledger", "open", ledger, "all", "--epsilon", 3, *scope)
    charged = (*asked, "--ledger", ledger, "--account", "all", "--composition", "sequential")
    assert run(*charged).json["written"]
    again = changed(charged, "--out", tmp_path / "again")
    before = run("account", "ledger", "show", ledger, "all", "--json").json
    assert "Nothing was charged" in refuse(*again, code=1)
    assert run("account", "ledger", "show", ledger, "all", "--json").json == before


GRIDS: list[tuple[Any, int, int]] = [
    ([{"codewords": 3}, {"codewords": 5, "name": "mine"}], 2, 2),
    ({"codewords": [3, 5], "grouping": ["linked", "compact"]}, 4, 4),
    ({"codewords": [3], "prior": ["none", "inhouse"]}, 2, 1),
    ([{"kind": "direct", "label_share": 0.3, "hidden": [4]}, {}], 2, 2),
]


@pytest.mark.parametrize(("grid", "count", "mechanisms"), GRIDS)
def test_grids(tmp_path: Path, grid: Any, count: int, mechanisms: int) -> None:
    """Candidates that learn otherwise from the same reports share their mechanism."""
    from tacit.apps.cli.collect.search import _candidates, _grid

    path = tmp_path / "grid.json"
    path.write_text(json.dumps(grid))
    common = {"epsilon": 2, "classes": ["no", "yes"], "unit": "person"}
    made = _candidates(_grid(path), common, None, 1000, "parallel", 0)
    assert len(made) == count
    assert len({id(one.mechanism) for one in made}) == mechanisms
    assert len({one.name for one in made}) == count
    people = {one.mechanism.people for one in made if hasattr(one.mechanism, "people")}
    assert people == {1000 // mechanisms}  # the rule of codewords knows how many will report


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("[", "must be JSON"),
        ("[]", "list of settings"),
        ("3", "list of settings"),
        ("[3]", "dictionary of settings"),
        ('[{"kind": "magic"}]', "kind must be one of"),
        ('[{"codeword": 3}]', "setting of codebook must be one of"),
        ('[{"kind": "direct", "codewords": 3}]', "setting of direct must be one of"),
        ('[{"codewords": 3}, {"codewords": 3}]', "distinct names"),
        ('[{"codewords": 1}]', "codewords must be"),
        ('{"codewords": []}', "list of settings"),
    ],
)
def test_grids_that_are_refused(
    refuse: Callable[..., str],
    asked: tuple[object, ...],
    tmp_path: Path,
    grid: str,
    words: str,
) -> None:
    path = tmp_path / "grid.json"
    path.write_text(grid)
    assert words in refuse(*changed(asked, "--grid", path))


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--epsilon", 0, "epsilon must be"),
        ("--composition", "both", "composition must be one of"),
        ("--confirm", "never", "confirm must be one of"),
        ("--confirm-share", 1, "--confirm-share must be"),
        ("--confidence", 0, "confidence must be"),
        ("--within", 0.001, "voters must be at least"),
        ("--label", "digit", "label must be a column"),
        ("--classes", "maybe,never", "declared classes"),
        ("--account", "all", "given together"),
        ("--grid", "none.json", "existing file"),
    ],
)
def test_searches_that_are_refused(
    refuse: Callable[..., str], asked: tuple[object, ...], option: str, value: object, words: str
) -> None:
    assert words in refuse(*changed(asked, option, value))
