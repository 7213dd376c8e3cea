"""A central guarantee on the command line: fit, export, explain, learn; and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits

import tacit
from tacit.apps.cli import main
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.inhouse import APPLICATIONS, LEVELS, requirements
from tacit.privacy.guarantees import ApproxDP, NotPrivate

DIGITS, TARGET = load_digits(return_X_y=True)
PIXELS = [f"p{index}" for index in range(64)]
CENTRAL = ("--central-epsilon", 5, "--central-delta", 1e-5)


Run = Callable[..., Any]


def images(start: int, stop: int, dtype: type = np.uint8) -> pa.Table:
    """Digits as a table, the label last."""
    columns = {name: (15 * DIGITS[start:stop, i]).astype(dtype) for i, name in enumerate(PIXELS)}
    return pa.table({**columns, "digit": TARGET[start:stop]})


def customers(count: int = 600, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, count)
    return pa.table(
        {
            "age": np.clip(rng.normal(30 + 30 * kind, 6), 0, 100),
            "job": np.array(["baker", "smith", "nurse"])[(kind + (rng.random(count) < 0.1)) % 3],
            "loyal": np.array(["no", "yes"])[kind],
        }
    )


SCHEMA = TableSchema((Continuous("age", 0, 100), Categorical("job", ("baker", "smith", "nurse"))))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, and mechanisms and models of three kinds: plain, private, public. Made once."""
    folder = tmp_path_factory.mktemp("export")
    pq.write_table(images(0, 700), folder / "pixels.parquet")
    pq.write_table(customers(), folder / "inhouse.parquet")
    pq.write_table(customers(3000, 1), folder / "people.parquet")
    pq.write_table(customers(500, 2), folder / "test.parquet")
    (folder / "schema.json").write_text(json.dumps(SCHEMA.to_plain()))
    fit = (
        f"collect fit {folder}/inhouse.parquet --kind codebook --epsilon 4 --codewords 4"
        f" --classes no,yes --label loyal --schema {folder}/schema.json --out {folder}"
    )
    options = {
        "plain": "",
        "private": " --central-epsilon 5 --central-delta 1e-5",
        "public": " --inhouse-public",
    }
    for name, more in options.items():
        commands = (
            f"{fit}/{name} --json{more}",
            f"collect privatize {folder}/{name} {folder}/people.parquet --label loyal"
            f" --out {folder}/{name}.parquet --json",
            f"collect learn {folder}/{name}.parquet --out {folder}/{name}-model --json",
        )
        for command in commands:
            assert main(command.split()) == 0
    return folder


# --- fit -----------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_a_central_guarantee_for_images(run: Run, work: Path, tmp_path: Path) -> None:
    """Pixels of a byte each: their type says the bounds, and no schema is needed."""
    fitted = run(
        *("collect", "fit", work / "pixels.parquet", "--kind", "codebook"),
        *("--epsilon", 2, "--people", 1000),
        *("--classes", 10),
        *("--image", "8x8", "--label", "digit", "--out", tmp_path / "mechanism", "--json"),
        *CENTRAL,
    ).json
    assert fitted["in_house_rows"] == "(5, 1e-05)-DP (central, zero-out, unit: record)"
    assert fitted["guarantee"].startswith("2-DP (local")
    assert fitted["rows"] == 700
    mechanism = tacit.load(tmp_path / "mechanism")
    assert isinstance(mechanism.inhouse_.guarantee, ApproxDP)
    assert 4.75 < mechanism.inhouse_.guarantee.epsilon <= 5
    assert not mechanism.inhouse_.certificate.seeded
    assert isinstance(mechanism.schema, ArraySchema)
    assert (mechanism.schema.lower, mechanism.schema.upper) == (0, 255)
    people = tmp_path / "people.parquet"
    pq.write_table(images(700, 900), people)
    out = tmp_path / "for-people"
    assert run("collect", "export", tmp_path / "mechanism", "--out", out).code == 0
    reports = ("--label", "digit", "--out", tmp_path / "r.parquet", "--json")
    assert run("collect", "privatize", out, people, *reports).json["reports"] == 200


def test_fit_says_what_protects_the_in_house_rows(run: Run, work: Path, tmp_path: Path) -> None:
    fit = (
        *("collect", "fit", work / "inhouse.parquet", "--kind", "codebook"),
        *("--epsilon", 1, "--codewords", 3),
        *("--label", "loyal"),
    )
    fit = (*fit, "--schema", work / "schema.json", "--json")
    said = {
        "plain": run(*fit, "--out", tmp_path / "a").json,
        "public": run(*fit, "--inhouse-public", "--out", tmp_path / "b").json,
        "private": run(*fit, *CENTRAL, "--out", tmp_path / "c").json,
    }
    assert said["plain"]["in_house_rows"].startswith("not protected")
    assert "keep it inside" in said["plain"]["in_house_rows"]
    assert said["public"]["in_house_rows"] == "public, as their owner states"
    assert said["private"]["in_house_rows"].startswith("(5, 1e-05)-DP (central")
    shown = run(*fit[:-1], *CENTRAL, "--out", tmp_path / "d").out
    assert "(5, 1e-05)-DP (central" in shown


def test_two_fits_have_other_noise(work: Path, run: Run, tmp_path: Path) -> None:
    """Under the same --seed: the noise has none."""
    for name in "ab":
        run(
            *("collect", "fit", work / "inhouse.parquet", "--kind", "codebook"),
            *("--epsilon", 1, "--codewords", 3),
            "--label",
            *("loyal", "--schema", work / "schema.json", "--seed", 1, *CENTRAL),
            *("--out", tmp_path / name),
        )
    first, second = (tacit.load(tmp_path / name) for name in "ab")
    assert not np.array_equal(first.quantizer_.cells, second.quantizer_.cells)


def test_direct_has_nothing_to_protect(run: Run, work: Path, tmp_path: Path) -> None:
    fitted = run(
        *("collect", "fit", work / "inhouse.parquet", "--kind", "direct", "--epsilon", 2),
        *("--label", "loyal"),
        *("--schema", work / "schema.json", "--out", tmp_path / "m", "--json", *CENTRAL),
    ).json
    assert fitted["in_house_rows"].startswith("0-DP (central")
    assert run("collect", "export", tmp_path / "m", "--out", tmp_path / "out").code == 0


@pytest.mark.slow
def test_a_variational_mechanism(run: Run, work: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    fitted = run(
        *("collect", "fit", work / "inhouse.parquet", "--kind", "vlm", "--epsilon", 2),
        *("--label", "loyal"),
        *("--schema", work / "schema.json", "--out", tmp_path / "m", "--json", *CENTRAL),
    ).json
    assert fitted["in_house_rows"].startswith("(5, 1e-05)-DP (central")
    assert run("collect", "export", tmp_path / "m", "--out", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (("--central-epsilon", 5), "--central-delta must be given"),
        (("--central-delta", 1e-5), "--central-epsilon must be given"),
        (("--central-epsilon", 0, "--central-delta", 1e-5), "epsilon must be"),
        (("--central-epsilon", "nan", "--central-delta", 1e-5), "epsilon must be"),
        (("--central-epsilon", 5, "--central-delta", 1), "--central-delta must be"),
        (("--central-epsilon", 5, "--central-delta", 0), "--central-delta must be"),
    ],
)
@pytest.mark.parametrize("kind", ["codebook", "direct"])
def test_half_a_budget_is_refused_in_one_line(
    refuse: Callable[..., str],
    work: Path,
    tmp_path: Path,
    kind: str,
    options: tuple[Any, ...],
    missing: str,
) -> None:
    fit = (
        *("collect", "fit", work / "inhouse.parquet", "--epsilon", 1, "--kind", kind),
        *("--label", "loyal"),
    )
    line = refuse(*fit, "--schema", work / "schema.json", *options, "--out", tmp_path / "m")
    assert missing in line


def test_bounds_must_be_declared(refuse: Callable[..., str], work: Path, tmp_path: Path) -> None:
    fit = (
        *("collect", "fit", work / "inhouse.parquet", "--kind", "codebook"),
        *("--epsilon", 1, "--codewords", 3),
        *("--label", "loyal"),
    )
    line = refuse(*fit, *CENTRAL, "--out", tmp_path / "m")
    assert "schema must be given" in line
    wide = tmp_path / "wide.parquet"
    pq.write_table(images(0, 100, np.int64), wide)
    fit = (
        *("collect", "fit", wide, "--kind", "codebook"),
        *("--epsilon", 1, "--codewords", 3, "--label", "digit"),
        *("--image", "8x8"),
    )
    assert "schema must be given" in refuse(*fit, *CENTRAL, "--out", tmp_path / "m")


def test_a_sample_of_the_rows_must_not_cost_more(
    run: Run, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest keys of all: one row more would push another one out, and cost twice."""
    fit = (
        *("collect", "fit", work / "inhouse.parquet", "--kind", "codebook"),
        *("--epsilon", 1, "--codewords", 3),
        *("--label", "loyal"),
    )
    fit = (*fit, "--schema", work / "schema.json", "--rows", 300, "--json", *CENTRAL)
    outcomes = [run(*fit, "--out", tmp_path / str(index)) for index in range(4)]
    if all(outcome.code == 2 for outcome in outcomes):
        assert all("rows" in outcome.err for outcome in outcomes)
        assert list(tmp_path.iterdir()) == []
        return
    sizes = {outcome.json["rows"] for outcome in outcomes}
    assert len(sizes) > 1  # each row for itself, by chance that nobody knows


# --- export --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("application", APPLICATIONS)
def test_what_leaves_for_each_application(
    run: Run,
    refuse: Callable[..., str],
    work: Path,
    tmp_path: Path,
    application: str,
    level: str,
) -> None:
    options = ("--application", application, "--level", level)
    for name in ("private", "public"):
        out = tmp_path / name
        done = run("collect", "export", work / name, "--out", out, *options, "--json").json
        assert done["written"] == str(out)
        exported, inside = tacit.load(out), tacit.load(work / name)
        assert exported.inhouse_ == inside.inhouse_
        for key, array in inside.parts()[1].items():
            assert np.array_equal(exported.parts()[1][key], array)
    out, needed = tmp_path / "plain", requirements(application, level)
    if needed:
        line = refuse("collect", "export", work / "plain", "--out", out, *options)
        assert "export: this would reveal the in-house rows to everyone who gets it" in line
        assert f"; {' and '.join(needed)} ({application}, {level} level) must carry" in line
        assert not out.exists()
        return
    done = run("collect", "export", work / "plain", "--out", out, *options, "--json").json
    assert "channel" in json.dumps(done)
    assert "keep it inside" not in json.dumps(done)
    assert {path.name for path in out.iterdir()} == {"mechanism.json", "weights.safetensors"}
    document = (out / "mechanism.json").read_text()
    assert '"job"' in (work / "plain" / "mechanism.json").read_text()
    assert "baker" in (work / "plain" / "mechanism.json").read_text()
    assert '"job"' not in document
    assert "baker" not in document
    assert tacit.load(out).parts()[1].keys() == {"counts"}


def test_collection_is_the_default(
    run: Run, refuse: Callable[..., str], work: Path, tmp_path: Path
):
    assert "(collection, latent level)" in refuse(
        "collect", "export", work / "plain", "--out", tmp_path / "x"
    )
    shown = run("collect", "export", work / "private", "--out", tmp_path / "y")
    assert shown.code == 0
    assert "Exported" in shown.out
    assert "(5, 1e-05)-DP (central" in shown.out


def test_the_channel_alone_encodes_nobody(
    run: Run, refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    out = tmp_path / "partner"
    assert run("collect", "export", work / "plain", "--application", "join", "--out", out).code == 0
    line = refuse(
        "collect", "privatize", out, work / "people.parquet", "--out", tmp_path / "r.parquet"
    )
    assert "must hold its encoder" in line
    assert "Not protected" in run("account", "explain", out).out
    assert "encoder" in refuse("collect", "export", out, "--out", tmp_path / "again")


def test_models_leave_where_their_mechanism_may(
    run: Run, refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    for name in ("private", "public"):
        out = tmp_path / name
        done = run("collect", "export", work / f"{name}-model", "--out", out, "--json").json
        assert done["written"] == str(out)
        model = tacit.load(out)
        assert model.inhouse_ == tacit.load(work / f"{name}-model").inhouse_
        assert (
            run("collect", "evaluate", out, work / "test.parquet", "--json").json["accuracy"] > 0.8
        )
    line = refuse("collect", "export", work / "plain-model", "--out", tmp_path / "plain")
    assert "a model that is handed out must carry a central guarantee" in line


@pytest.mark.parametrize("thing", ["private", "private-model"])
@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--application", "anything"), "application must be one of"),
        (("--level", "anything"), "level must be one of"),
        (("--no-such-option",), "No such option"),
    ],
)
def test_wrong_words_are_refused(
    refuse: Callable[..., str],
    work: Path,
    tmp_path: Path,
    thing: str,
    options: tuple[str, ...],
    named: str,
) -> None:
    assert named in refuse("collect", "export", work / thing, "--out", tmp_path / "x", *options)


def test_nothing_is_overwritten(refuse: Callable[..., str], work: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    assert "--out must be new" in refuse(
        "collect", "export", work / "private", "--out", tmp_path / "mine"
    )
    assert "existing folder" in refuse(
        "collect", "export", work / "private", "--out", tmp_path / "no" / "such" / "folder"
    )


def test_what_is_no_mechanism_is_refused(
    refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    for wrong in (work, work / "inhouse.parquet", work / "nowhere"):
        assert "must be a directory with" in refuse(
            "collect", "export", wrong, "--out", tmp_path / "x"
        )


def test_help_has_an_example(run: Run) -> None:
    outcome = run("collect", "export", "--help")
    assert outcome.code == 0
    assert "tacit collect export" in outcome.out
    assert "--json" in outcome.out


TOWARDS = "Towards the in-house rows that the mechanism was fitted on:"


# --- explain -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "-model"])
def test_explain_shows_both_certificates(run: Run, work: Path, suffix: str) -> None:
    shown = run("account", "explain", work / f"private{suffix}").out
    people, inside = shown.split(TOWARDS)
    assert "epsilon = 4, delta = 0" in people
    assert "epsilon = 5, delta = 1e-05" in inside
    assert "one row" in inside or "record" in inside
    assert "How many in-house rows there are" in inside
    assert shown.count("Who is protected") == 2
    found = run("account", "explain", work / f"private{suffix}", "--json").json
    assert found["guarantee"].startswith("4-DP (local")
    assert found["inhouse_guarantee"].startswith("(5, 1e-05)-DP (central")
    # Of two runs only the times of issue differ.
    undated = [re.sub(r"issued\s+\S+", "", text).split() for text in (found["explanation"], shown)]
    assert undated[0] == undated[1]
    assert max(map(len, shown.splitlines())) <= 80


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def test_explain_says_where_there_is_nothing(run: Run, work: Path) -> None:
    plain = run("account", "explain", work / "plain").out
    assert "Not at all" in plain.split(TOWARDS)[1]
    assert (
        run("account", "explain", work / "plain", "--json")
        .json["inhouse_guarantee"]
        .startswith("not private")
    )
    public = run("account", "explain", work / "public").out
    assert "their owner states that they are public" in unwrapped(public)
    reports = run("account", "explain", work / "private.parquet").out
    assert "(5, 1e-05)-DP (central" in unwrapped(reports)  # among what reports do not protect


# --- learn ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def student(work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("student") / "model"
    command = (
        f"collect learn {work}/private.parquet --inhouse {work}/inhouse.parquet --label loyal"
        f" --central-epsilon 3 --central-delta 1e-6 --out {out} --json"
    )
    assert main(command.split()) == 0
    return out


def test_a_private_student_may_leave(run: Run, work: Path, student: Path, tmp_path: Path) -> None:
    model = tacit.load(student)
    assert model.inhouse_.guarantee.delta == 1.1e-5
    assert 5 < model.inhouse_.guarantee.epsilon <= 8
    out = tmp_path / "out"
    done = run("collect", "export", student, "--out", out, "--json").json
    stated = [str(part.guarantee) for part in model.inhouse_.parts]
    assert len(stated) == 2
    whole = f"for a person in all of them: {model.inhouse_.guarantee}"
    assert done["in_house_rows"] == "; ".join([*stated, whole])
    assert run("collect", "evaluate", out, work / "test.parquet", "--json").json["accuracy"] > 0.7
    said = unwrapped(run("account", "explain", out).out)
    assert all(part.sentence in said for part in model.inhouse_.parts)
    assert said.count("Towards the in-house rows that") == 2


def test_a_plain_student_may_not(
    run: Run, refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    learned = run(
        *("collect", "learn", work / "private.parquet", "--inhouse", work / "inhouse.parquet"),
        *("--label", "loyal", "--out", tmp_path / "student", "--json"),
    ).json
    assert "keep it inside" in learned["in_house_rows"]
    assert isinstance(tacit.load(tmp_path / "student").inhouse_.guarantee, NotPrivate)
    assert "must carry" in refuse(
        "collect", "export", tmp_path / "student", "--out", tmp_path / "out"
    )


def test_a_student_of_public_rows_may_leave(
    run: Run, refuse: Callable[..., str], work: Path, tmp_path: Path
) -> None:
    """Where the mechanism's rows are said to be public, and its own too."""
    learn = (
        *("collect", "learn", work / "public.parquet", "--inhouse", work / "inhouse.parquet"),
        "--json",
    )
    learn = (*learn, "--label", "loyal", "--out")
    assert "keep it inside" in run(*learn, tmp_path / "a").json["in_house_rows"]
    assert "must carry" in refuse("collect", "export", tmp_path / "a", "--out", tmp_path / "out")
    said = run(*learn, tmp_path / "b", "--inhouse-public").json["in_house_rows"]
    assert said == "public, as their owner states"
    assert run("collect", "export", tmp_path / "b", "--out", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (CENTRAL, "--inhouse must be given"),
        (CENTRAL[2:], "--inhouse must be given"),
        (("--inhouse", "inhouse.parquet", *CENTRAL[:2]), "--central-delta must be given"),
        (("--inhouse", "inhouse.parquet", *CENTRAL[2:]), "--central-epsilon must be given"),
    ],
)
def test_half_a_price_is_refused(
    refuse: Callable[..., str], work: Path, tmp_path: Path, options: tuple[Any, ...], named: str
) -> None:
    given = [work / part if part == "inhouse.parquet" else part for part in options]
    learn = ("collect", "learn", work / "private.parquet", "--label", "loyal", *given)
    assert named in refuse(*learn, "--out", tmp_path / "m")


@pytest.mark.parametrize("name", ["plain", "public"])
def test_the_codebook_must_be_private_too(
    refuse: Callable[..., str], work: Path, tmp_path: Path, name: str
) -> None:
    learn = ("collect", "learn", work / f"{name}.parquet", "--inhouse", work / "inhouse.parquet")
    line = refuse(*learn, "--label", "loyal", *CENTRAL, "--out", tmp_path / "m")
    assert "codebook must protect its in-house rows" in line
