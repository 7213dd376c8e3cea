"""The demonstration: right numbers, files that verify, and nobody else's files touched."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.segment import Segment
from rich.text import Text

import tacit
from tacit.apps import demo
from tacit.apps.cli.pictures import print_pictures
from tacit.apps.demo import folder
from tacit.apps.demo.collection import DemoData
from tacit.local.reports import Reports

pytestmark = pytest.mark.heavy

FILES = {
    *("mechanism", "reports.parquet", "certificate.json", "model", "picture.png", "demo.json"),
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[demo.Demonstration]:
    """All of it once, but for the time that a VLM takes."""
    fit = tacit.VLM.fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "DRAWS", 2)
        patch.setattr(demo, "EPSILONS", (1.0, 8.0))
        patch.setattr(
            tacit.VLM, "fit", lambda self, rows, **given: fit(self, rows, **given, epochs=1)
        )
        yield demo.run(tmp_path_factory.mktemp("made") / "new" / "folder", 8.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One mechanism at one ε."""
    monkeypatch.setattr(demo, "DRAWS", 2)
    monkeypatch.setattr(demo, "EPSILONS", (8.0,))
    monkeypatch.setattr(demo, "MECHANISMS", ("codebook",))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path


# --- what it finds ------------------------------------------------------------------------------


def test_the_codebook_reads_digits_and_noise_on_every_pixel_does_not(
    outcome: demo.Demonstration,
) -> None:
    assert set(outcome.trials) == {"codebook", "vlm", "direct"}
    assert all(list(row) == [1.0, 8.0] for row in outcome.trials.values())
    assert outcome.mean("codebook", 8.0) > 0.75
    assert outcome.mean("codebook", 8.0) > outcome.mean("codebook", 1.0)
    assert outcome.mean("direct", 8.0) < 0.4
    assert outcome.largest_class < 0.2 < 0.95 < outcome.no_privacy
    assert outcome.missing == ()


def test_a_collection_has_fresh_noise(outcome: demo.Demonstration) -> None:
    setting = DemoData.of_digits()
    mechanism = setting.fitted("codebook", lambda done, total: None)(4.0)
    first, second = (setting.collect(mechanism).reports for _ in range(2))
    assert not np.array_equal(first.columns["symbols"], second.columns["symbols"])
    assert not first.seeded


def test_noise_on_every_pixel_fails_for_want_of_epsilon_and_not_of_a_learner() -> None:
    setting = DemoData.of_digits()
    mechanism = setting.fitted("direct", lambda done, total: None)(100.0)
    assert setting.collect(mechanism).accuracy > 0.6


def test_in_json_results_have_the_form_of_studies(outcome: demo.Demonstration) -> None:
    found = json.loads(json.dumps(outcome.to_dict(), allow_nan=False))
    assert len(found["results"]) == 6
    for one in found["results"]:
        trials = one["clean_accuracy"]["trials"]
        assert one["clean_accuracy"]["mean"] == pytest.approx(np.mean(trials))
        assert one["clean_accuracy"]["std"] == pytest.approx(np.std(trials, ddof=1))
    assert found["data"] == {
        "name": "digits",
        "inhouse": 400,
        "people": 1080,
        "test": 197,
        "draws": 2,
    }
    assert found["guarantee"] == "8-DP (local, any-two-inputs, unit: person)"
    assert all(Path(path).exists() for path in found["written"])


# --- one person ---------------------------------------------------------------------------------


def test_the_person_who_is_shown_is_the_first_in_the_file(outcome: demo.Demonstration) -> None:
    reports = Reports.read(outcome.folder.path / "reports.parquet")
    channel = reports.channel.symbols
    person = outcome.person
    (symbols,) = channel.from_bytes(np.frombuffer(person.sent, np.uint8)[None])
    assert symbols.tolist() == reports.columns["symbols"][0].tolist()
    assert [10 * codeword + digit for codeword, digit in person.symbols] == symbols.tolist()
    setting = DemoData.of_digits()
    rows, digits = setting.rows("people")
    assert person.digit == digits[0]
    np.testing.assert_allclose(person.record, rows[0] / 16, rtol=1e-6)


def test_the_codebooks_picture_is_the_posterior_mean(outcome: demo.Demonstration) -> None:
    reports = Reports.read(outcome.folder.path / "reports.parquet")[:1]
    mechanism, total, mass = reports.mechanism, np.zeros(64), 0.0
    for codeword, count in enumerate(mechanism.counts_):
        for digit in range(10):
            law = mechanism.log_prob(reports.columns, np.array([codeword]), np.array([digit]))
            weight = (count + 1) * float(np.exp(law[0]))
            total, mass = total + weight * mechanism.prototypes_[codeword], mass + weight
    np.testing.assert_allclose(outcome.person.seen["codebook"].ravel(), total / mass, atol=1e-6)


def test_every_mechanism_has_its_picture(outcome: demo.Demonstration) -> None:
    assert list(outcome.person.seen) == ["codebook", "vlm", "direct"]
    for picture in outcome.person.seen.values():
        assert picture.shape == (8, 8)
        assert 0 <= picture.min() <= picture.max() <= 1
    before, after = outcome.person.pictures(8.0)
    assert (len(before), len(after)) == (1, 3)


def test_pictures_in_colour_are_half_blocks_of_grey() -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80, record=True
    )
    left_white = np.tile([1.0, 1, 1, 1, 0, 0, 0, 0], (8, 1))
    print_pictures(console, [("title", left_white)])
    title, *lines = Segment.split_lines(console._record_buffer)
    assert "".join(segment.text for segment in title).strip() == "title"
    assert len(lines) == 8
    for line in lines:
        cells = [(s.style, letter) for s in line for letter in s.text if letter == "▀"]
        assert len(cells) == 16
        shades = [
            colour.get_truecolor()[0]
            for style, _ in (cells[0], cells[-1])
            if style is not None
            for colour in (style.color, style.bgcolor)
            if colour is not None
        ]
        assert shades == [255, 255, 0, 0]


@pytest.mark.parametrize("terminal", [False, True], ids=["a pipe", "NO_COLOR"])
def test_pictures_without_colour_are_shades(terminal: bool) -> None:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, no_color=terminal, width=80, _environ={}
    )
    print_pictures(console, [("a", np.array([[0.0, 1.0], [0.5, 0.0]]))] * 2)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines[1:] == ["  ██     ██", "▒▒     ▒▒"]


# --- what it writes -----------------------------------------------------------------------------


def test_what_it_writes_is_what_the_other_commands_take(
    outcome: demo.Demonstration, run: Callable[..., Any]
) -> None:
    made = outcome.folder.path
    assert {path.name for path in made.iterdir()} == FILES
    verified = run("account", "verify", made / "certificate.json", "--json").json
    assert (verified["verified"], verified["seeded"]) == (True, False)
    for name in ("certificate.json", "reports.parquet", "mechanism", "model"):
        assert "8-DP" in run("account", "explain", made / name, "--json").json["guarantee"]
    setting = DemoData.of_digits()
    rows, digits = setting.rows("test")
    found = float(np.mean(tacit.load(made / "model").predict(rows) == digits))
    assert found == outcome.trials["codebook"][8.0][0]
    assert (made / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_no_file_holds_the_label_that_was_hidden(outcome: demo.Demonstration) -> None:
    table = Reports.read(outcome.folder.path / "reports.parquet").columns
    assert set(table) == {"symbols"}


@pytest.mark.usefixtures("quick")
def test_a_changed_report_is_found_out(run: Callable[..., Any], tmp_path: Path) -> None:
    run("demo", "--out", tmp_path / "d")
    reports = tmp_path / "d" / "reports.parquet"
    content = bytearray(reports.read_bytes())
    content[len(content) // 2] ^= 1
    reports.write_bytes(bytes(content))
    assert run("account", "verify", tmp_path / "d" / "certificate.json").code == 1


@pytest.mark.usefixtures("quick")
def test_it_may_be_run_again_and_draws_again(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    sent = []
    for _ in range(2):
        outcome = run("demo", "--out", tmp_path, "--json")
        sent.append(outcome.json["report"]["bytes"])
        assert run("account", "verify", tmp_path / "certificate.json").code == 0
        content = Reports.read(tmp_path / "reports.parquet").columns["symbols"].tobytes()
        sent.append(content.hex())
    assert sent[1] != sent[3]
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "notes.txt"}
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.usefixtures("quick")
def test_without_matplotlib_an_old_picture_does_not_stay(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("demo", "--out", tmp_path)
    assert (tmp_path / "picture.png").exists()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    again = run("demo", "--out", tmp_path, "--json").json
    assert any("matplotlib" in sentence for sentence in again["missing"])
    assert not (tmp_path / "picture.png").exists()


def write(path: Path, text: str = "mine") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a file of the same name": lambda made: write(made / "reports.parquet"),
    "a folder of the same name": lambda made: (
        (made / "picture.png").unlink() or write(made / "picture.png" / "mine")
    ),
    "a file beside ours": lambda made: write(made / "model" / "notes.txt"),
    "a changed file": lambda made: write(made / "certificate.json"),
    "a folder in ours": lambda made: (made / "mechanism" / "mine").mkdir(),
    "a list of something else": lambda made: write(made / "demo.json", '{"made_by": "me"}'),
    "no list at all": lambda made: (made / "demo.json").unlink(),
    "a list that is none": lambda made: write(made / "demo.json", "[1"),
    "a link": lambda made: (
        (made / "model").rename(made / "m") and (made / "model").symlink_to(made / "m")
    ),
    "a link to nowhere": lambda made: (
        (made / "picture.png").unlink() or (made / "picture.png").symlink_to("nowhere")
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the demonstration leaves it, without what takes its time."""
    path = tmp_path_factory.mktemp("like") / "demo"
    for name in ("mechanism/a", "model/b", *sorted(FILES - {"mechanism", "model", "demo.json"})):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    folder._list(path)
    return path


def test_a_folder_of_a_demo_is_known_again(made: Path) -> None:
    assert folder.DemoFolder.opened(made).path == made


@pytest.mark.parametrize("change", FOREIGN)
def test_it_never_destroys_what_it_did_not_write(
    change: str, made: Path, refuse: Callable[..., str], tmp_path: Path
) -> None:
    copy = shutil.copytree(made, tmp_path / "copy")
    FOREIGN[change](copy)
    line = refuse("demo", "--out", copy)
    assert line.startswith("tacit: demo: --out must be a folder whose ")
    assert line.endswith("Choose another.")


# --- in a terminal ------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_it_reads_well_at_eighty_columns(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    outcome = run("demo", "--epsilon", "2")
    assert outcome.code == 0, outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    said = " ".join(outcome.out.split())
    for part in ("1,080 people", "no privacy", "Who is protected", "bytes left the device"):
        assert part in said
    ends = said.partition("Next")[2]
    for name in ("verify demo-output/certificate.json", "explain demo-output/model"):
        command = f"account {name}"
        assert f"tacit {command}" in ends
        assert run(*command.split()).code == 0
    assert "tacit collect plan --help" in ends
    assert [line.split()[1] for line in outcome.out.splitlines() if " ± 0" in line] == ["2", "8"]


def test_all_columns_fit_into_eighty(outcome: demo.Demonstration) -> None:
    from tacit.apps.cli import demo as command

    console = Console(file=io.StringIO(), width=80, highlight=False)
    command._print_table(console, outcome)
    command._print_person(console, outcome)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(len(Text(line)) for line in text.splitlines()) <= 80
    assert text.count(" ± 0") == 6
    assert "…" not in text


# As if they were not installed: neither an import nor a look for them finds anything.
WITHOUT = """
import sys
from importlib.machinery import PathFinder
hidden, find = {"torch", "onnx", "onnxruntime", "cryptography", "pandas"}, PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find(name, path, target)
PathFinder.find_spec = find_spec
from tacit.apps import demo
demo.DRAWS = 2
from tacit.apps.cli import main
sys.exit(main(["demo", "--out", sys.argv[1], "--json"]))
"""


def test_it_runs_from_the_light_install(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert {one["mechanism"] for one in found["results"]} == {"codebook", "direct"}
    assert found["missing"] == ["tacit.VLM needs torch. pip install 'tacit[learn]'."]
    assert {path.name for path in (tmp_path / "d").iterdir()} == FILES


# --- bad input ----------------------------------------------------------------------------------

EPSILONS = ("nan", "inf", "-inf", "0", "-1", "text", "", "1e400", "1e-17", "0.001", "101", "701")


@pytest.mark.parametrize("value", EPSILONS)
def test_an_epsilon_that_shows_nothing_is_refused(value: str, refuse: Callable[..., str]) -> None:
    assert "epsilon" in refuse("demo", "--out", "made", "--epsilon", value)


@pytest.mark.parametrize("out", ["c.json", "c.json/under", "c.json/two\nlines"])
def test_a_place_that_is_no_folder_is_refused(
    out: str, refuse: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text("{}")
    assert "c.json" in refuse("demo", "--out", out)


def test_without_scikit_learn_it_says_what_to_install(
    refuse: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert "pip install" in refuse("demo", "--out", "made")
