"""Records: summaries, atomic files, and going on where a study was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.privacy import errors
from tacit_papers.engine.record import Cell, Record, infinity, summary
from tacit_papers.engine.running import Measured, generator, run, words


def record(**parameters: Any) -> Record:
    return Record("made-up", {"trials": 2, **parameters}, {"tacit": "0"}, {"sha256": {}})


class MadeUp:
    """A study whose numbers come from the cell's own generator."""

    def __init__(self, stop_after: int | None = None, **parameters: Any) -> None:
        self.stop_after, self.parameters, self.measured = stop_after, parameters, 0

    def record(self) -> Record:
        return record(**self.parameters)

    def cells(self) -> list[Cell]:
        cells: list[Cell] = [{"reference": "chance", "trial": trial} for trial in range(2)]
        return cells + [
            {"mechanism": name, "epsilon": epsilon, "trial": trial}
            for trial in range(2)
            for name in ("codebook", "direct")
            for epsilon in (1.0, 2.0)
        ]

    def measure(self, cell: Cell) -> Measured:
        if self.measured == self.stop_after:
            raise KeyboardInterrupt
        self.measured += 1
        if "reference" in cell:
            return Measured({"accuracy": 0.1 + cell["trial"] / 10})
        drawn = generator(0, cell).words(1)
        return Measured(
            {"clean_accuracy": float(drawn[0] % 1000) / 1000, "by_class": [0.5, 1.0]},
            {"guarantee": "1-DP"},
        )


def timeless(plain: dict[str, Any]) -> dict[str, Any]:
    runs = [{k: v for k, v in one.items() if k != "seconds"} for one in plain["runs"]]
    return {**{k: v for k, v in plain.items() if k != "seconds"}, "runs": runs}


@pytest.mark.parametrize("stop_after", [0, 1, 5, 9])
def test_a_killed_study_ends_with_the_same_record(tmp_path: Path, stop_after: int) -> None:
    whole = run(MadeUp(), tmp_path / "whole.json").to_plain()
    with pytest.raises(KeyboardInterrupt):
        run(MadeUp(stop_after), tmp_path / "killed.json")
    rest = MadeUp()
    again = run(rest, tmp_path / "killed.json").to_plain()
    assert rest.measured == len(rest.cells()) - stop_after
    assert timeless(again) == timeless(whole)
    on_disk = [json.loads((tmp_path / name).read_text()) for name in ("whole.json", "killed.json")]
    assert timeless(on_disk[0]) == timeless(on_disk[1]) == timeless(whole)
    assert not list(tmp_path.glob("*.partial"))


def test_a_finished_study_is_not_run_again(tmp_path: Path) -> None:
    run(MadeUp(), tmp_path / "r.json")
    study = MadeUp(stop_after=0)
    assert len(run(study, tmp_path / "r.json").runs) == len(study.cells())


def test_results_and_references() -> None:
    found = run(MadeUp()).to_plain()
    assert [(r["mechanism"], r["epsilon"]) for r in found["results"]] == [
        ("codebook", 1.0),
        ("codebook", 2.0),
        ("direct", 1.0),
        ("direct", 2.0),
    ]
    first = found["results"][0]
    trials = first["clean_accuracy"]["trials"]
    assert len(trials) == 2
    assert first["clean_accuracy"]["mean"] == pytest.approx(sum(trials) / 2)
    spread = abs(trials[0] - trials[1]) / 2**0.5
    assert first["clean_accuracy"]["std"] == pytest.approx(spread, abs=1e-6)
    assert first["by_class"] == {"mean": [0.5, 1.0], "std": [0, 0], "trials": [[0.5, 1.0]] * 2}
    assert first["guarantee"] == "1-DP"
    assert found["references"] == {"chance": pytest.approx(0.15)}
    # Another cell has another noise.
    assert len({r["clean_accuracy"]["mean"] for r in found["results"]}) == 4


def test_summaries() -> None:
    assert summary([0.5]) == {"mean": 0.5, "std": 0.0, "trials": [0.5]}
    assert summary([{"radius": 5}, {"radius": 7}]) == [{"radius": 5}, {"radius": 7}]
    same = [[{"settings": {"k": 2}, "test": 0.5}], [{"settings": {"k": 2}, "test": 0.7}]]
    assert summary(same) == [{"settings": {"k": 2}, "test": [0.5, 0.7]}]
    assert infinity(float("inf")) == "inf"
    assert infinity(5) == 5.0


@pytest.mark.parametrize("name", ["seed", "data"])
def test_other_parameters_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "r.json"
    run(MadeUp(), path)
    before = path.read_bytes()
    with pytest.raises(errors.InvalidParameter, match=f"{name} must be as in the record"):
        run(MadeUp(**{name: 7}), path)
    assert path.read_bytes() == before


def test_other_versions_are_refused(tmp_path: Path) -> None:
    """Numbers of two machines in one record would be said to be of the last one."""
    path = tmp_path / "r.json"
    run(MadeUp(), path)
    path.write_text(path.read_text().replace('"tacit": "0"', '"tacit": "1"'))
    with pytest.raises(errors.InvalidParameter, match="version of tacit must be as in the record"):
        run(MadeUp(), path)


class Longer(MadeUp):
    def record(self) -> Record:
        return record(trials=3)

    def cells(self) -> list[Cell]:
        more = {"mechanism": "codebook", "epsilon": 1.0, "trial": 2}
        return [*super().cells(), more]


def test_a_record_goes_on_with_more_trials_and_not_with_fewer(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    run(MadeUp(), path)
    longer = run(Longer(), path).to_plain()
    assert longer["parameters"]["trials"] == 3
    assert timeless(longer) == timeless(run(Longer()).to_plain())
    with pytest.raises(errors.InvalidData, match="runs must be those of this study"):
        run(MadeUp(), path)


def damaged(change: str) -> str:
    plain = run(MadeUp()).to_plain()
    first = plain["runs"][2]
    changes: dict[str, Any] = {
        "runs are text": {"runs": "abc"},
        "runs are numbers": {"runs": [1]},
        "a run without values": {"runs": [{"mechanism": "codebook"}]},
        "parameters are a list": {"parameters": []},
        "no data": {"data": None},
        "seconds are text": {"runs": [{**first, "seconds": "x"}]},
        "a run twice": {"runs": [*plain["runs"], first]},
        "not a number": {"runs": [{**first, "values": {"clean_accuracy": float("nan")}}]},
    }
    return json.dumps({**plain, **changes[change]})


DAMAGES = (
    *("runs are text", "runs are numbers", "a run without values", "parameters are a list"),
    *("no data", "seconds are text", "a run twice", "not a number"),
)
TEXTS = ("", "{", "[]", "{}", '{"study": 1}', "\x00", "[" * 100_000)


@pytest.mark.parametrize("text", [*TEXTS, *DAMAGES], ids=lambda text: text[:20])
def test_what_is_no_record(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    text = damaged(text) if text in DAMAGES else text
    path.write_text(text)
    with pytest.raises(errors.InvalidData, match="must be the record of a study"):
        run(MadeUp(), path)
    assert path.read_text() == text


def test_words_of_a_cell() -> None:
    cell = {"mechanism": "vlm", "epsilon": 2.0, "central_epsilon": 5.0, "trial": 0}
    assert words(cell) == "vlm, ε = 2, central ε = 5, trial 1"
    assert words({"reference": "no_privacy", "trial": 1}) == "no privacy, trial 2"
