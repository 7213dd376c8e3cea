"""Private posteriors on the command line, and every bad input on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.apps.cli import main
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Adjacency, PureDP, Unit

SECRET = "7531"
Run = Callable[..., Any]
KEYS = {"guarantee", "exact_epsilon", "mean", "interval", "noise_aware", "seconds_to_certify"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Nothing is needed."""
    return tmp_path


@pytest.mark.parametrize("mechanism", ["geometric", "laplace", "hellinger"])
@pytest.mark.parametrize("delta", [None, 1e-6])
def test_a_share(run: Run, mechanism: str, delta: float | None) -> None:
    more = () if delta is None else ("--delta", delta)
    found = run(
        *("release", "posterior", "--count", 37, "--n", 100, "--prior", "1,1"),
        *("--mechanism", mechanism),
        *("--epsilon", 1, *more, "--json"),
    ).json
    assert set(found) >= KEYS
    used = delta if delta and mechanism == "hellinger" else 0
    assert found["guarantee"] == {"epsilon": 1.0, "delta": used}
    assert 0.999 < found["exact_epsilon"] <= 1
    low, high = found["interval"]
    assert 0 <= low < found["mean"] < high <= 1
    assert found["noise_aware"] is True
    assert found["seconds_to_certify"] >= 0


def test_several_shares(run: Run) -> None:
    found = run(
        *("release", "posterior", "--counts", "20,30,50", "--prior", "1,1,1", "--epsilon", 1),
        "--json",
    ).json
    assert len(found["mean"]) == len(found["interval"]) == 3
    assert sum(found["mean"]) == pytest.approx(1)
    assert sum(found["released"]) == 100


def test_the_papers_claim_is_replaced_by_what_holds(run: Run) -> None:
    found = run(
        *("release", "posterior", "--count", 50, "--n", 100, "--mechanism", "hellinger"),
        *("--epsilon", 1),
        *("--delta", 1e-6, "--calibration", "paper", "--json"),
    ).json
    assert 0.5 < found["guarantee"]["epsilon"] < 0.6


def test_a_table_to_read(run: Run) -> None:
    outcome = run(
        *("release", "posterior", "--count", 9, "--n", 20, "--epsilon", 2, "--naive", "--remap"),
        *("--level", 0.5),
    )
    assert outcome.code == 0
    assert "50% interval" in outcome.out
    assert "2-DP (central, replace-one, unit: record)" in outcome.out
    assert "too narrow" in outcome.out


def test_ledger_and_certificate(run: Run, tmp_path: Path) -> None:
    book, paper = tmp_path / "ledger.sqlite", tmp_path / "c.json"
    budget = PureDP(epsilon=1.5, adjacency=Adjacency.REPLACE_ONE, unit=Unit.PERSON)
    with Ledger(book) as ledger:
        ledger.open("survey", budget)
    asked = (
        *("release", "posterior", "--count", 9, "--n", 20, "--epsilon", 1, "--unit", "person"),
        *("--ledger", book, "--account", "survey"),
    )
    assert run(*asked, "--certificate", paper).code == 0
    certificate = Certificate.load(paper)
    certificate.verify()
    assert not certificate.seeded
    refused = run(*asked)
    assert refused.code == 1
    assert refused.out == ""


def test_how_many_records(run: Run) -> None:
    found = run("release", "needed", "--error", 0.1, "--epsilon", 1, "--share", 0.5, "--json").json
    assert found["records"] == 34
    assert found["error"] <= 0.1 < found["error_before"]
    assert "34" in run("release", "needed", "--error", 0.1, "--epsilon", 1, "--share", 0.5).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--n", 100), "given as --count and --n, or as --counts"),
        (("--count", 7531), "given as --count and --n, or as --counts"),
        (("--count", 1, "--n", 2, "--counts", "1,2"), "or as --counts"),
        (("--count", 7531, "--n", 100), "counts must be at least 0 and at most n"),
        (("--count", -7531, "--n", 100), "counts must be at least 0"),
        (("--count", "7531.5", "--n", 9999), "counts must be whole numbers"),
        (("--counts", "7531,x"), "counts must be whole numbers"),
        (("--counts=-7531,2",), "counts must be at least 0"),
        (("--counts", "0,0"), "total must be"),
        (("--counts", "1,2,3"), "prior must be 3 numbers"),
        (("--count", 1, "--n", 0), "n must be"),
        (("--count", 1, "--n", 9, "--prior", "1,x"), "prior must be numbers"),
        (("--count", 1, "--n", 9, "--prior", "1,-1"), "prior must be above 0"),
        (("--count", 1, "--n", 9, "--epsilon", 0), "epsilon must be above 0"),
        (("--count", 1, "--n", 9, "--level", 1), "level must be in (0, 1)"),
        (("--count", 1, "--n", 9, "--mechanism", "x"), "mechanism must be one of"),
        (("--count", 1, "--n", 9, "--certificate", "no/where.json"), "existing folder"),
        (("--count", 1, "--n", 9, "--ledger", "none.sqlite"), "given together"),
        (
            ("--count", 1, "--n", 9, "--mechanism", "hellinger", "--calibration", "epsilon/S"),
            "is not (epsilon, delta)-private",
        ),
    ],
)
def test_refusals(refuse: Any, arguments: tuple[Any, ...], message: str) -> None:
    epsilon = () if "--epsilon" in arguments else ("--epsilon", 1)
    assert message in refuse("release", "posterior", *epsilon, *arguments)


def test_an_error_that_cannot_be(refuse: Any) -> None:
    assert "error must be in (0, 1)" in refuse("release", "needed", "--error", 2, "--epsilon", 1)


def test_json_has_plain_numbers(run: Run) -> None:
    out = run("release", "posterior", "--count", 0, "--n", 1, "--epsilon", 0.1, "--json").out
    assert json.loads(out)["counts"] in ([0, 1], [1, 0])


def test_a_certificate_is_about_what_was_written(tmp_path):
    out, certificate = tmp_path / "posterior.json", tmp_path / "certificate.json"
    asked = ["release", "posterior", "--count", "37", "--n", "100", "--epsilon", "1"]
    written = ["--out", str(out), "--certificate", str(certificate)]
    assert main([*asked, *written]) == 0
    assert main(["account", "verify", str(certificate), "--artifact", str(out)]) == 0
    out.write_text(out.read_text().replace("0", "1", 1))
    assert main(["account", "verify", str(certificate), "--artifact", str(out)]) == 1
    assert main([*asked, *written]) == 2
