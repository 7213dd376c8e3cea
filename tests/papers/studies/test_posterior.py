"""The study of private posteriors: its numbers, its record, its table and its figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tacit.privacy import errors
from tacit_papers import figures as plots
from tacit_papers.engine.running import run as run_study
from tacit_papers.studies.posterior import (
    MECHANISMS,
    OFFERED,
    PosteriorParameters,
    Posteriors,
    table,
)

Run = Callable[..., Any]
FEW = PosteriorParameters(epsilons=(0.5, 1.0), records=(20,), priors=("1:1", "1:10"), draws=4000)


@pytest.fixture(scope="module", name="found")
def _found() -> dict[str, Any]:
    return run_study(Posteriors(FEW)).to_plain()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Nothing is needed."""
    return tmp_path


def value(found: dict[str, Any], mechanism: str, name: str, **more: Any) -> float:
    wanted = {"mechanism": mechanism, "prior": "1:1", "epsilon": 0.5, **more}
    (result,) = [r for r in found["results"] if all(r[k] == v for k, v in wanted.items())]
    return float(result[name]["mean"])


def test_a_quick_study(run: Run, tmp_path: Path) -> None:
    json_file, plot = tmp_path / "r.json", tmp_path / "r.png"
    asked = ("--records", 20, "--priors", "1:1", "--draws", 500)
    outcome = run("study", "posterior", "--quick", *asked, "--json", json_file, "--plot", plot)
    assert outcome.code == 0, outcome.err
    record = json.loads(json_file.read_text())
    assert record["study"] == "posterior"
    assert record["parameters"]["quick"] is True
    assert len(record["runs"]) == 2 * len(MECHANISMS) == len(outcome.err.splitlines())
    assert "mean nothing" not in outcome.out  # they are exact, and mean something
    with Image.open(plot) as picture:
        assert len(set(picture.convert("L").resize((80, 40)).get_flattened_data())) > 5
    again = run("study", "posterior", "--quick", *asked, "--json", json_file)
    assert again.code == 0
    assert again.err == ""  # all runs were there


def test_known_numbers(found: dict[str, Any]) -> None:
    assert value(found, "geometric", "naive_coverage") == pytest.approx(0.786, abs=5e-4)
    for name, error in (("error_half", 0.127), ("error_tenth", 0.183), ("error_none", 0.121)):
        assert value(found, "geometric", name, epsilon=1.0) == pytest.approx(error, abs=5e-4)
    stated = ("error_half", 0.447), ("error_tenth", 0.590), ("error_none", 0.718)
    for name, error in stated:
        assert value(found, "hellinger-stated", name, epsilon=1.0) == pytest.approx(error, abs=5e-4)


def test_claims(found: dict[str, Any]) -> None:
    """Calibrated tables spend what they claim, the stated one less, ε/S more."""
    for prior in FEW.priors:
        for epsilon in FEW.epsilons:
            ratio = {
                name: value(found, name, "exact_over_claimed", prior=prior, epsilon=epsilon)
                for name in MECHANISMS
            }
            assert ratio["hellinger-accuracy"] > 1.05
            assert ratio["hellinger-stated"] < 0.75
            for name in ("smooth", "local", "global"):
                assert 0.9999 < ratio[f"hellinger-{name}"] <= 1 + 1e-9
            best = value(found, "geometric-remap", "error", prior=prior, epsilon=epsilon)
            assert all(
                best <= value(found, name, "error", prior=prior, epsilon=epsilon)
                for name in MECHANISMS
            )


def test_noise_aware_intervals_cover(found: dict[str, Any]) -> None:
    """Simulated with 4,000 real releases each: four standard errors are 1.4 %."""
    for mechanism in OFFERED:
        for epsilon in FEW.epsilons:
            covered = value(found, mechanism, "aware_coverage", epsilon=epsilon)
            assert covered == pytest.approx(0.95, abs=0.014)
            assert value(found, mechanism, "naive_coverage", epsilon=epsilon) < 0.92


def test_profiles_fall_with_delta(found: dict[str, Any]) -> None:
    (result,) = [
        r
        for r in found["results"]
        if (r["mechanism"], r["prior"], r["epsilon"]) == ("hellinger-smooth", "1:1", 0.5)
    ]
    profile = list(result["profile"].values())
    assert profile == sorted(profile, reverse=True)
    assert result["profile"]["1e-06"] == pytest.approx(result["exact_epsilon"]["mean"], abs=1e-6)


def test_the_same_seed_gives_the_same_numbers() -> None:
    study = Posteriors(
        PosteriorParameters(epsilons=(1.0,), records=(20,), priors=("1:1",), draws=200)
    )
    cell = study.cells()[0]
    assert study.measure(cell) == study.measure(cell)
    other = Posteriors(
        PosteriorParameters(epsilons=(1.0,), records=(20,), priors=("1:1",), draws=200, seed=1)
    )
    assert study.measure(cell) != other.measure(cell)


def test_a_line_for_each_mechanism(found: dict[str, Any]) -> None:
    title, header, lines = table(found)
    assert "4 settings" in title
    assert [line[0] for line in lines] == list(MECHANISMS)
    assert all(len(line) == len(header) for line in lines)
    assert dict(zip(header, lines[-1], strict=True))["aware"] == "–"  # never released


def test_the_figure_needs_its_numbers(found: dict[str, Any], tmp_path: Path) -> None:
    figure = plots.draw([found])
    plots.save(figure, tmp_path / "f.svg")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[3] == "Privacy: exact over claimed ε"
    ratios = [y for line in figure.axes[3].lines for y in line.get_ydata()]
    assert max(ratios) > 1.05  # what ε/S really costs is shown
    broken = json.loads(json.dumps(found))
    del broken["results"][0]["records"]
    with pytest.raises(errors.InvalidData, match="posterior study must have"):
        plots.draw([broken])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mechanisms", "magic"), "mechanisms must be one of"),
        (("--epsilons", "0"), "epsilon must be above 0"),
        (("--epsilons", "x"), "epsilons must be numbers"),
        (("--records", "1.5"), "records must be an integer"),
        (("--records", "99999"), "records must be an integer from 1 to 2000"),
        (("--priors", "1"), "prior must be two numbers"),
        (("--priors", "1:x"), "priors must be like 1:1"),
        (("--delta", "0"), "delta must be in (0, 1)"),
        (("--draws", "5"), "draws must be"),
        (("--json", "no/folder.json"), "existing folder"),
    ],
)
def test_refusals(refuse: Any, arguments: tuple[str, ...], message: str) -> None:
    assert message in refuse("study", "posterior", "--quick", *arguments)
