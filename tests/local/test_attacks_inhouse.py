"""Attacks of the hostile review on in-house rows: each broke a stated promise, or tried to.

Tests above the line "already held" failed when they were written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tacit
from tacit.data import tables
from tacit.data.schema import ArraySchema, Rows
from tacit.data.schema_inference import infer
from tacit.local.inference.search import Candidate, search
from tacit.local.inference.validation import validate
from tacit.local.inhouse import Protection, together
from tacit.local.learned import codebook as codebooks
from tacit.local.learned import features, private_quantizer
from tacit.local.learned.features import Scattering
from tacit.privacy import artifact, events
from tacit.privacy.randomness import Seeded

UNIT = ArraySchema(2, 0.0, 1.0)
RNG = np.random.default_rng(0)
ROWS, OTHERS, PEOPLE = (RNG.random((300, 2)).astype(np.float32) for _ in range(3))
BYTES = RNG.integers(0, 256, (300, 3)).astype(np.uint8)
CLASSES = (PEOPLE[:, 0] > 0.5).astype(int)
CENTRAL: dict[str, float] = {"central_epsilon": 1.0, "central_delta": 1e-5}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def book(central: bool = False, **more: Any) -> tacit.Codebook:
    given: dict[str, Any] = {**(CENTRAL if central else {}), **more}
    return tacit.Codebook(epsilon=4, codewords=6, classes=2, features="raw", **given)


# --- what leaves the house -------------------------------------------------------------------


def test_a_sample_of_a_file_does_not_swap_rows(tmp_path: Path) -> None:
    """F5: one row less in the file changed 1,386 of 1,000 rows that were learned from."""
    from tacit.apps.cli import main

    pandas = pytest.importorskip("pandas")
    names = [f"p{i}" for i in range(3)]
    pandas.DataFrame(BYTES, columns=names).to_parquet(tmp_path / "rows.parquet")
    schema = {**ArraySchema(3, 0.0, 255.0, columns=tuple(names)).to_plain()}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    command = [
        *("collect", "fit", str(tmp_path / "rows.parquet"), "--kind", "codebook"),
        *("--epsilon", "1", "--codewords", "4"),
    ]
    command += ["--central-epsilon", "1", "--central-delta", "1e-5", "--rows", "100"]
    command += ["--schema", str(tmp_path / "schema.json"), "--out", str(tmp_path / "out")]
    assert tables.sample(tmp_path / "rows.parquet", 100, 0)[1] == 300
    assert main(command) != 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("model", ["student", "novel"])
def test_public_rows_of_the_mechanism_do_not_make_others_public(model: str, tmp_path: Path) -> None:
    """F6: a student taught on private rows went out as public."""
    if model == "student":
        made = book().fit(ROWS, schema=UNIT, inhouse_public=True)
        taught: Any = tacit.StudentClassifier(inhouse=OTHERS).fit(made.release(PEOPLE, CLASSES))
    else:
        plain = tacit.Codebook(epsilon=4, codewords=6, features="raw")
        made = plain.fit(ROWS, schema=UNIT, inhouse_public=True)
        taught = tacit.NovelClassClassifier(inhouse=OTHERS).fit(made.release(PEOPLE))
    with pytest.raises(tacit.privacy.errors.InvalidParameter):
        taught.export(tmp_path / "model")


@pytest.mark.filterwarnings("ignore")
def test_a_search_counts_what_students_cost() -> None:
    """F7: a student without noise was handed to voters under "(1, 1e-05)-DP"."""
    made = book(central=True, unit="person")
    learner = tacit.StudentClassifier(inhouse=ROWS)
    found = search(
        [Candidate("table", made), Candidate("student", made, learner)],
        people=(PEOPLE, CLASSES),
        voters=(PEOPLE, CLASSES),
        epsilon=4,
        inhouse=ROWS,
        fitting={"schema": UNIT},
    )
    assert not found.inhouse_.proved


def test_a_public_part_does_not_hide_one_that_is_not() -> None:
    """F9."""
    assert not together([Protection.none(public=True), Protection.none()]).may_leave
    assert not together([Protection.none(), Protection.none(public=True)]).may_leave


def test_a_schema_read_off_the_rows_is_not_taken_for_declared() -> None:
    """F12: the largest value of one row went out under a certificate that assumed nothing."""
    rows = 1000 * ROWS.astype(np.float64)
    try:
        made = book(central=True).fit(rows, schema=infer(rows))
    except tacit.privacy.errors.TacitError:
        return
    assumed = " ".join(made.inhouse_.certificate.assumptions)
    assert "declared" in assumed


def test_a_codebook_cannot_say_that_no_row_was_looked_at() -> None:
    """F13."""
    parameters, arrays = book().fit(ROWS, schema=UNIT).parts()
    parameters["inhouse"] = Protection.untouched().to_plain()
    with pytest.raises(tacit.privacy.errors.TacitError):
        artifact.rebuild("codebook", parameters, arrays)


def test_nor_that_a_part_of_what_ran_was_declared() -> None:
    """F13, nested: a declared guarantee inside a composition."""
    scope: dict[str, Any] = {"adjacency": "add-remove", "unit": "record"}
    declared = events.Declared(tacit.PureDP(epsilon=0.0, **scope))
    event = events.Composed((declared, events.Declared(tacit.PureDP(epsilon=0.1, **scope))))
    parameters, arrays = book().fit(ROWS, schema=UNIT).parts()
    parameters["inhouse"] = Protection.of(event, 1e-5).to_plain()
    with pytest.raises(tacit.privacy.errors.TacitError):
        artifact.rebuild("codebook", parameters, arrays)


def test_a_seeded_fit_does_not_leave(tmp_path: Path) -> None:
    """F17: whoever knows the seed subtracts the noise."""
    made = book(central=True).fit(BYTES, rng=Seeded(1))
    if made.inhouse_.may_leave:
        assert "seed" in made.inhouse_.sentence


def test_an_interrupted_fit_promises_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    """F18: cells of a fit without noise, under the certificate of an earlier one."""
    book(central=True).fit(BYTES).export(tmp_path / "first")
    again = artifact.load(tmp_path / "first")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(codebooks.quantizers, "means", stop)
    with pytest.raises(KeyboardInterrupt):
        again.fit(BYTES, schema=again.schema)
    assert not again.inhouse_.may_leave


# --- rows alike, refusals, the ledger --------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize("side", [8, 12, 20, 28])
def test_features_of_a_row_do_not_depend_on_the_others(side: int) -> None:
    """F10: 42 of 1,199 images of 20 x 20 had other digits after one other image had left."""
    count = 1100 if side < 28 else 200
    schema = ArraySchema(side * side, 0.0, 1.0, (side, side))
    images = RNG.random((count, side * side)).astype(np.float32)
    rows, kind = Rows(images, np.empty((count, 0), np.int64)), Scattering(schema)

    def of(some: Rows) -> Any:
        return features.alone(kind, some)

    assert np.array_equal(of(rows)[1:], of(rows[np.arange(1, count)]))


def test_a_list_is_not_refused_for_one_value() -> None:
    """F14."""
    for value in (2, 2**70):
        found = tacit.central.statistics.mean([[1], [value]], 1.0, noise_multiplier=1.0)
        assert found.value.count >= 1


@pytest.mark.filterwarnings("ignore")
def test_a_key_pays_for_one_draw(tmp_path: Path) -> None:
    """F8: twenty polls of the same people for the price of one."""
    made = book(unit="person").fit(ROWS, schema=UNIT)
    model = tacit.NoiseAwareClassifier().fit(made.release(PEOPLE, CLASSES))
    with tacit.Ledger(tmp_path / "ledger") as ledger:
        ledger.open("people", tacit.PureDP(2, adjacency="any-two-inputs", unit="person"))
        poll: dict[str, Any] = {"ledger": ledger, "account": "people", "key": "poll"}
        validate(model, PEOPLE, CLASSES, epsilon=2, **poll)
        with pytest.raises(tacit.privacy.errors.TacitError):
            validate(model, PEOPLE, CLASSES, epsilon=2, **poll)


@pytest.mark.filterwarnings("ignore")
def test_voters_who_get_a_model_that_may_not_leave_are_told() -> None:
    """F24: the certificate of `search` says so, that of `validate` did not."""
    made = book(unit="person").fit(ROWS, schema=UNIT)
    student = tacit.StudentClassifier(inhouse=ROWS).fit(made.release(PEOPLE, CLASSES))
    found = validate(student, PEOPLE, CLASSES, epsilon=2)
    assert any("in-house" in line for line in found.certificate.not_protected)


# --- already held ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [np.zeros((200, 3), np.uint8), np.full((200, 3), 255, np.uint8), BYTES[:6]],
    ids=["black", "white", "few"],
)
def test_degenerate_rows_raise_nothing(rows: Any) -> None:
    assert book(central=True).fit(rows).inhouse_.proved


def test_ranks_are_of_each_row_alone() -> None:
    cells = RNG.standard_normal((64, 32)).astype(np.float32)
    vectors = RNG.standard_normal((1025, 32)).astype(np.float32)
    full = private_quantizer.ranks(vectors, cells, 3.0, 3)
    assert np.array_equal(full[1:], private_quantizer.ranks(vectors[1:], cells, 3.0, 3))


def test_a_name_does_not_make_features_public() -> None:
    """Features that call themselves scattering may have read every row."""

    class Named:
        kind, dimension = "scattering", 2

        def transform(self, rows: Any) -> Any:
            return rows.numbers

        def parts(self) -> Any:
            return {}, {}

    def protected(**stated: bool) -> Protection:
        made = tacit.Codebook(
            epsilon=1, codewords=3, features=Named(), central_epsilon=1, central_delta=1e-5
        )
        return made.fit(ROWS, schema=UNIT, **stated).inhouse_

    assert not protected().proved
    assert not protected().may_leave
    assert protected(public_features=True).proved
