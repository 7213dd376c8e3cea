"""Anonymized representations on the command line, and every bad input on the way."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from pyarrow import parquet as pq

import tacit
from tacit.apps.cli import main
from tacit.apps.cli.release.labelled import ONE_ROW_EACH
from tacit.local import ceilings
from tacit.privacy.certificate import Certificate

SECRET = "zoe"
Run = Callable[..., Any]
PEOPLE = ("ann", "bob", "cem", "dot", "eva", SECRET)
FEW = ("--attackers", "logistic,trees", "--layers", "24,24", "--device", "cpu")
NOTHING = "No differential privacy"


def movements(rows: int, seed: int = 0) -> pa.Table:
    """What somebody does is in two columns; who it is, and which hand, is plain in the others."""
    rng = np.random.default_rng(seed)
    what, who, hand = (rng.integers(most, size=rows) for most in (3, 6, 2))
    given = np.c_[what == 0, what == 1, who / 6, who % 3 / 3, hand]
    given = given + rng.normal(0, 0.1, given.shape)
    return pa.table(
        {f"x{index}": column for index, column in enumerate(given.T)}
        | {"what": np.array(["run", "sit", "walk"])[what], "who": np.array(PEOPLE)[who]}
        | {"hand": np.array(["left", "right"])[hand]}
    )


def attack(work: Path, out: Path, *more: object) -> tuple[object, ...]:
    rows = work / "rows.parquet"
    return (
        *("release", "anonymize", rows, "--regular", "what", "--private", "who", "--out", out),
        *(*FEW, *more),
    )


@pytest.fixture(scope="module", name="work")
def _work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, and two encoders: codes that hide two labels, and noise on top."""
    work = tmp_path_factory.mktemp("work")
    pq.write_table(movements(450), work / "rows.parquet")
    csv.write_csv(movements(300, 1), work / "others.csv")
    schema = tacit.TableSchema(tuple(tacit.Continuous(f"x{i}", -1.0, 2.0) for i in range(4)))
    (work / "schema.json").write_text(json.dumps(schema.to_plain()))
    fits: dict[str, tuple[object, ...]] = {
        "codes": ("--private", "who,hand", "--strength", 20, "--styles", 2),
        "noise": (
            *("--private", "who", "--training", "toggled", "--strength", 0, "--epsilon", 3),
            *("--schema", work / "schema.json", "--inhouse-public"),
        ),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tacit.anonymize.codes.STEPS", 80)  # enough here
        for name, options in fits.items():
            asked = (*attack(work, work / name), *options)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                assert main([str(word) for word in asked]) == 0
            (work / f"{name}.txt").write_text(out.getvalue())
    return work


@pytest.fixture(scope="module", name="plain")
def _plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A codebook: another kind of artifact."""
    folder = tmp_path_factory.mktemp("plain")
    pq.write_table(movements(60), folder / "rows.parquet")
    given = [str(folder / "rows.parquet"), "--epsilon", "1", "--codewords", "3", "--label", "who"]
    kind = ("--kind", "codebook")
    assert main(["collect", "fit", *given, *kind, "--out", str(folder / "codebook")]) == 0
    return folder


# --- anonymize ---------------------------------------------------------------------------------


@pytest.mark.heavy
def test_fresh_attackers_find_what_was_not_hidden(run: Run, work: Path, tmp_path: Path) -> None:
    shown = run(*attack(work, tmp_path / "e", "--strength", 0, "--training", "toggled", "--json"))
    (who,) = shown.json["private"]
    assert who["strongest_probe"]["interval"][0] > 2 * who["chance"]
    assert who["linkage"]["intervals"][0][0] > 2 * who["chance"]
    assert shown.json["rows"] == {"training": 328, "validation": 61, "test": 61}
    assert shown.json["regular"]["accuracy"] > 0.9
    assert shown.json["differential_privacy"] is False
    assert shown.json["styles"] is None
    assert [one["name"] for one in who["probes"]] == ["logistic", "trees"]
    assert who["bound"]["holds"] == "if the adversary is the best there is"


def test_what_is_not_hidden_is_said_last(run: Run, work: Path, tmp_path: Path) -> None:
    plain = ("--strength", 0, "--training", "toggled", "--together", 2)
    said = " ".join(run(*attack(work, tmp_path / "e", *plain)).out.split())
    assert "linkage of 2 rows together, first five (chance 83.3%, " in said
    last = said[said.index("This does not hide the who: ") :]
    assert last.endswith(". Try --training robust or a larger --strength.")


def test_codes_hide_several_labels(run: Run, work: Path) -> None:
    asked = ("release", "probe", work / "codes", work / "others.csv", "--private", "who,hand")
    found = run(*asked, "--regular", "what", "--attackers", "logistic,trees", "--json").json
    assert found["regular"]["accuracy"] > 0.9
    assert [one["name"] for one in found["private"]] == ["who", "hand"]
    for one in found["private"]:
        assert one["strongest_probe"]["interval"][0] <= one["chance"]
        assert one["strongest_probe"]["accuracy"] <= one["bound"]["accuracy"]
        assert "for every attacker on one code" in one["bound"]["holds"]
        assert one["adversary"]["accuracy"] < one["chance"] + 0.2
    encoder = tacit.load(work / "codes")
    assert list(encoder.classes_.private) == ["who", "hand"]
    assert encoder.reader_.schema.names == tuple(f"x{index}" for index in range(5))


def test_with_noise_what_is_measured_is_what_is_released(run: Run, work: Path) -> None:
    asked = (
        *("release", "probe", work / "noise", work / "others.csv", "--private", "who"),
        *("--regular", "what"),
    )
    found = run(*asked, "--attackers", "logistic", "--json").json
    assert found["guarantee"] == "3-DP (local, any-two-inputs, unit: record)"
    assert found["differential_privacy"] is True
    encoder, others = tacit.load(work / "noise"), movements(300, 1)
    clean = encoder.predict_from(encoder.represent(others.select([f"x{i}" for i in range(4)])))
    assert np.mean(clean == others["what"].to_numpy()) > found["regular"]["accuracy"] + 0.2
    # At most what any channel of this ε leaves; here, of people in nearly equal shares.
    bound = found["private"][0]["bound"]
    assert bound["holds"] == "for every attacker on one representation"
    assert 0 <= bound["accuracy"] - ceilings.universal(6, 3) < 0.05


def test_a_table_to_read(run: Run, work: Path) -> None:
    out = (work / "codes.txt").read_text()
    for words in ("what: read off", "who: the adversary", "hand: trees", "who: strongest: "):
        assert words in out
    assert "who: linkage, first five" in out
    assert "hand: linkage, first five" not in out  # there are two
    assert "who: linkage (chance 16.7%)" in out
    assert "keep the encoder inside" in out
    assert out.splitlines()[-2].startswith(NOTHING)
    assert "does not hide" not in out
    noise = (work / "noise.txt").read_text()
    assert "Differential privacy: 3-DP" in noise
    assert "Training toggled hides people from its own adversary" in noise
    asked = (
        *("release", "probe", work / "noise", work / "others.csv", "--private", "hand"),
        *("--together", 5),
    )
    shown = run(*asked, "--attackers", "logistic").out
    assert "Differential privacy: 3-DP" in shown
    assert "linkage of 5 rows together (chance 50.0%, " in shown
    assert " groups)" in shown
    assert "the adversary of" not in shown  # it was not trained on hands
    assert "was not fitted on" in shown


def test_images_in_a_folder(run: Run, work: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for index in range(90):
        person, face = PEOPLE[index % 3], ("sad", "glad")[index // 3 % 2]
        pixels = rng.integers(0, 99, (6, 5)) + 150 * (np.arange(5) == (face == "sad"))
        folder = tmp_path / "faces" / person / f"{person}_{face}"
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels.astype(np.uint8)).save(folder / f"{index}.png")
    faces, out = tmp_path / "faces", tmp_path / "e"
    how = ("--pattern", "ferg", "--size", "6x5")
    asked = (
        *("release", "anonymize", faces, "--regular", "face", "--private", "person"),
        *("--styles", 1, *how),
    )
    found = run(*asked, *FEW, "--out", out, "--json").json
    assert (found["regular"]["name"], found["private"][0]["name"]) == ("face", "person")
    released = run(
        "release", "represent", out, faces, *how, "--out", tmp_path / "r.parquet", "--json"
    ).json
    assert released["rows"] == 90
    assert released["order"] == "drawn at random"
    probed = run("release", "probe", out, faces, *how, "--private", "person", "--regular", "face",
                 "--attackers", "logistic", "--json").json  # fmt: skip
    assert probed["regular"]["accuracy"] > 0.8
    wrong = run("release", "represent", out, work / "others.csv", "--out", tmp_path / "s.parquet")
    assert "DATA must be images, as the encoder was fitted on" in wrong.err
    wrong = run(
        "release", "represent", work / "codes", faces, *how, "--out", tmp_path / "s.parquet"
    )
    assert wrong.code == 2
    assert "must be a table with named columns" in wrong.err
    wrong = run("release", "probe", out, faces, *how, "--private", "person,age")
    assert "--private must be one of regular, person, got 'age'" in wrong.err


# --- represent ---------------------------------------------------------------------------------


def test_what_is_handed_out(run: Run, work: Path, tmp_path: Path) -> None:
    out = tmp_path / "released.parquet"
    found = run(
        "release", "represent", work / "codes", work / "others.csv", "--out", out, "--json"
    ).json
    assert found["columns"] == pq.read_table(out).column_names == ["code", "predicted"]
    assert found["left_out"] == ["what", "who", "hand"]
    assert found["order"] == "as in DATA"
    assert "price" not in found
    assert found["guarantee"].startswith("not private")
    table = pq.read_table(out)
    encoder = tacit.load(work / "codes")
    rows = movements(300, 1).select([f"x{i}" for i in range(5)])
    np.testing.assert_array_equal(table["code"], encoder.transform(rows).argmax(axis=1))
    np.testing.assert_array_equal(table["predicted"], encoder.predict(rows))
    content = out.read_bytes()
    assert not any(person.encode() in content for person in PEOPLE)

    paper = tmp_path / "released.parquet.certificate.json"
    assert any(NOTHING in sentence for sentence in Certificate.load(paper).not_protected)
    assert run("account", "verify", paper).code == 0
    assert NOTHING in run("account", "explain", work / "codes").out
    out.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert run("account", "verify", paper).code == 1


def test_every_release_is_drawn_anew(run: Run, work: Path, tmp_path: Path) -> None:
    for name in "ab":
        out = tmp_path / f"{name}.parquet"
        found = run(
            "release", "represent", work / "noise", work / "others.csv", "--out", out, "--json"
        ).json
    assert found["left_out"] == ["x4", "what", "who", "hand"]
    assert found["in_house_rows"] == "public, as their owner states"
    first, second = (pq.read_table(tmp_path / f"{name}.parquet") for name in "ab")
    assert first.column_names == [*(f"representation{i}" for i in range(8)), "predicted"]
    assert not first["representation0"].equals(second["representation0"])
    assert found["price"] == "each draw costs ε again"
    certificate = Certificate.load(tmp_path / "a.parquet.certificate.json")
    assert float(certificate.guarantee.epsilon) == 3
    assert not certificate.seeded


def test_a_promise_to_people_is_for_one_row_of_each(
    run: Run, refuse: Any, work: Path, tmp_path: Path
) -> None:
    """Somebody with two rows would pay twice."""
    person = ("--epsilon", 3, "--unit", "person", "--json")
    assert run(*attack(work, tmp_path / "e", *person)).json["styles"] == 1
    rows, given = movements(300, 1).drop_columns(["who"]), tmp_path / "r.csv"
    columns = {"twice": [f"{i // 2}" for i in range(300)], "once": [f"0{i}" for i in range(300)]}
    for name, values in {**columns, "unknown": None}.items():
        csv.write_csv(rows if values is None else rows.append_column("who", [values]), given)
        out = tmp_path / f"{name}.parquet"
        asked = ("release", "represent", tmp_path / "e", given, "--out", out)
        if name == "twice":
            assert "who must differ in every row" in refuse(*asked)
            continue
        assert run(*asked).code == 0
        certificate = Certificate.load(tmp_path / f"{name}.parquet.certificate.json")
        assert str(certificate.guarantee) == "3-DP (local, any-two-inputs, unit: person)"
        assert (ONE_ROW_EACH in certificate.assumptions) == (name == "unknown")
        assert run("account", "verify", f"{out}.certificate.json").code == 0
    assert "the label to hide must differ" in refuse(
        *("release", "represent", tmp_path / "e", "pendigits", "--out", tmp_path / "p.parquet")
    )


def test_labels_that_look_like_numbers(run: Run, tmp_path: Path) -> None:
    """In a CSV file 07 and 7 are two people, with or without an encoder."""
    rng = np.random.default_rng(0)
    lines = [f"{i % 2 + rng.normal(0, 0.1)},{'07' if i % 3 else '7'},{i % 2}" for i in range(120)]
    (tmp_path / "r.csv").write_text("\n".join(["x,who,what", *lines]) + "\n")
    asked = (
        *("release", "anonymize", tmp_path / "r.csv", "--regular", "what", "--private", "who"),
        *FEW,
    )
    run(*asked, "--out", tmp_path / "e", "--styles", 1)
    assert tacit.load(tmp_path / "e").classes_.private["who"] == ("07", "7")
    probing = ("--private", "who", "--attackers", "logistic", "--json")
    found = run(
        "release", "probe", tmp_path / "e", tmp_path / "r.csv", "--regular", "what", *probing
    ).json
    assert found["private"][0]["people"] == 2
    assert found["private"][0]["adversary"] is not None


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--strength", -1), "strength must be a finite number, 0 or more, got -1.0"),
        (("--strength", "nan"), "strength must be"),
        (("--training", "x"), "training must be one of toggled, simultaneous, robust"),
        (("--styles", 0), "styles must be"),
        (("--epsilon", 0), "epsilon must be above 0"),
        (("--unit", "label"), "unit must be one of"),
        (("--layers", "a,b"), "--layers must be whole numbers"),
        (("--layers", "0"), "a layer of encoder must be"),
        (("--dimensions", 0), "dimensions must be"),
        (("--attackers", "wizard"), "--attackers must be one of logistic"),
        (("--unit", "person"), "--epsilon must be given with --unit person"),
        (("--private", "nobody"), "got 'nobody'. It has x0, x1, x2, x3, x4, what, who, hand."),
        (("--private", "who,nobody"), "--private must be one of its columns"),
        (("--private", "who,who"), "--private must be distinct names"),
        (("--private", "who,"), "--private must be distinct names"),
        (("--private", "who,what"), "--private must be another column than"),
        (("--private", "what"), "--private must be another column than"),
        (("--regular", "nothing"), "--regular must be one of its columns"),
        (("--pattern", "ferg"), "pattern must be left out"),
        (("--schema", "nowhere.json"), "schema must be a readable file"),
        (("--device", "abacus"), "device must be"),
        (("--seed", -1), "seed must be"),
    ],
)
def test_settings_that_cannot_be(
    refuse: Any, work: Path, tmp_path: Path, options: tuple[Any, ...], message: str
) -> None:
    assert message in refuse(*attack(work, tmp_path / "new", *options))


def changed(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def test_labels_that_cannot_be(refuse: Any, tmp_path: Path) -> None:
    rows, path = movements(120), tmp_path / "bad.parquet"
    who = rows["who"].to_pylist()
    bad: list[tuple[str, Any, str]] = [
        ("who", [None, *who[1:]], "label 'who' must be without missing values"),
        ("who", [SECRET] * 120, "label 'who' must have at least 2 values, got 1"),
        ("who", [f"{SECRET}{i}" for i in range(120)], "every who must have at least 3 rows"),
        ("what", ["run"] * 120, "label 'what' must have at least 2 values, got 1"),
        (
            "hand",
            [None, *rows["hand"].to_pylist()[1:]],
            "label 'hand' must be without missing values",
        ),
        ("hand", ["left"] * 120, "hand label must take at least two values, got one"),
        ("hand", [f"h{i}" for i in range(120)], "column 'hand' must be of 1 to 60 categories"),
    ]
    for name, values, message in bad:
        pq.write_table(changed(rows, name, values), path)
        asked = ("release", "anonymize", path, "--regular", "what", "--private", "who,hand", *FEW)
        assert message in refuse(*asked, "--out", tmp_path / "new")


def test_data_that_do_not_fit(refuse: Any, work: Path, tmp_path: Path) -> None:
    rows, path, codes = movements(40), tmp_path / "bad.parquet", work / "codes"
    pq.write_table(rows.drop_columns(["x3"]), path)
    out = ("--out", tmp_path / "r.parquet")
    assert "it must have a column 'x3'" in refuse("release", "represent", codes, path, *out)
    pq.write_table(changed(rows, "what", [SECRET] * 40), path)
    probing = ("release", "probe", codes, path, "--attackers", "logistic", "--private")
    assert "among the 3 values it was fitted on" in refuse(*probing, "who", "--regular", "what")
    assert "--private must be one of its columns" in refuse(*probing, "age")
    pq.write_table(changed(rows, "who", [f"{SECRET}{i}" for i in range(40)]), path)
    assert "every person must have at least two rows" in refuse(*probing, "who")
    assert "together must be at most" in refuse(
        *("release", "probe", codes, work / "others.csv", "--attackers", "logistic"),
        *("--private", "hand"),
        *("--together", 200),
    )
    assert "data must be pendigits, a CSV" in refuse(
        "release", "represent", codes, tmp_path / "none", *out
    )


def test_paths_that_cannot_be(refuse: Any, work: Path, plain: Path, tmp_path: Path) -> None:
    others = work / "others.csv"
    assert "--out must be new" in refuse(*attack(work, work / "codes"))
    assert "--out must be new" in refuse(
        "release", "represent", work / "codes", others, "--out", others
    )
    wanted = "--out must be a .parquet file"
    assert wanted in refuse(
        "release", "represent", work / "codes", others, "--out", tmp_path / "r.csv"
    )
    (tmp_path / "r.parquet.certificate.json").touch()
    out = ("--out", tmp_path / "r.parquet")
    wanted = "the certificate of --out must be new"
    assert wanted in refuse("release", "represent", work / "codes", others, *out)
    other = ("--out", tmp_path / "s.parquet")
    wrong = "directory must be an encoder that tacit release anonymize wrote"
    assert wrong in refuse("release", "represent", plain / "codebook", others, *other)
    assert wrong in refuse("release", "probe", plain / "codebook", others, "--private", "who")
    assert "must be a directory with" in refuse("release", "represent", tmp_path, others, *other)
