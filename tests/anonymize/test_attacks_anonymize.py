"""Attacks on what an encoder promises: by its parameters, its files, its errors and its bounds."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import random
import shutil
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor, nn
from typer.testing import CliRunner

import tacit
from tacit import AnonymizingEncoder, Seeded
from tacit.anonymize import bounds
from tacit.anonymize import encoder as encoders
from tacit.anonymize.probes import probe
from tacit.anonymize.training import AdversarialSchedule, represent_alone
from tacit.apps.cli import app
from tacit.local import ceilings, inhouse
from tacit.privacy import artifact, errors, events
from tacit.privacy.artifact import ArtifactError
from tacit.privacy.guarantees import Adjacency, Unit

NAMES = ("ann smith", "bob jones", "cy doe")
SMALL: dict[str, Any] = {
    "encoder": (4,),
    "branches": (4,),
    "schedule": AdversarialSchedule(pretraining=1, adversary=1, rounds=1),
    "device": "cpu",
}


def _rows(count: int = 60) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    task, who = np.arange(count) % 2, np.arange(count) // 2 % 3
    table = np.c_[task, who] + rng.normal(0, 0.1, (count, 2))
    return pd.DataFrame(table, columns=["a", "b"]), task, np.array(NAMES)[who]


def _fitted(public: bool = False, **more: Any) -> AnonymizingEncoder:
    rows, task, who = _rows()
    chosen = {**SMALL, "training": "robust", "styles": 1, **more}
    given = {"private": {"who": who}, "inhouse_public": public}
    return AnonymizingEncoder(**chosen).fit(rows, task, **given)


@pytest.fixture(scope="module", name="noisy")
def _noisy() -> AnonymizingEncoder:
    return _fitted(epsilon=2.0)


@pytest.fixture(scope="module", name="saved")
def _saved(noisy: AnonymizingEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return noisy.save(tmp_path_factory.mktemp("attacks") / "encoder")


def _tampered(saved: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The same artifact with other parameters, and a digest that fits."""
    shutil.copytree(saved, folder)
    title = folder / "mechanism.json"
    body = json.loads(title.read_text())
    del body["digest"]
    change(body["parameters"])
    digest = hashlib.sha256(artifact._canonical(body)).hexdigest()
    title.write_bytes(artifact._canonical({**body, "digest": digest}))
    return folder


# --- ε: each row through the channel once, and nothing beside it ---------------------------------


class _Mixing(nn.Module):
    """Every row's representation is that of the first."""

    def forward(self, rows: Tensor) -> Tensor:
        return rows[:1].expand_as(rows)


@pytest.mark.parametrize(
    "module", [_Mixing(), nn.BatchNorm1d(2, affine=False, track_running_stats=False)]
)
def test_no_row_goes_out_in_the_release_of_another(module: nn.Module) -> None:
    """Else a row of n pays n ε, and the certificate says ε: refuse, or encode each row alone."""
    try:
        own = nn.Sequential(nn.Linear(2, 2), module)
        made = _fitted(epsilon=1.0, training="toggled", encoder=own)
        rows = np.tile(_rows()[0].mean().to_numpy(), (8, 1))
        shown = []
        for value in (-1.0, 2.0):
            rows[0] = value
            shown.append(made.represent(pd.DataFrame(rows, columns=["a", "b"]))[1:])
    except errors.TacitError:
        return
    assert np.array_equal(*shown)


class _Hostile(nn.Module):
    """Once fitted, does with a row whose first number is above 5 what `deed` says."""

    def __init__(self, deed: str) -> None:
        super().__init__()
        self.layer, self.deed, self.armed = nn.Linear(2, 2), deed, False
        self.register_buffer("seen", torch.zeros(2))
        self.kept: list[Tensor] = []

    def forward(self, rows: Tensor) -> Tensor:
        shown = self.layer(rows)
        if not self.armed:
            return shown
        if self.deed == "buffer":
            self.seen += rows[0]
            return shown + self.seen
        if self.deed == "attribute":
            self.kept.append(rows)
            return shown + self.kept[0][0]
        if self.deed == "weights":
            self.layer.weight.add_(float(rows[0, 0]))
            return shown
        if not bool(rows[0, 0] > 5):
            return shown + torch.rand(1) if self.deed == "draws" else shown
        if self.deed == "raises":
            raise ValueError(f"secret {rows}")
        deeds = {
            "two rows": lambda: shown.repeat(2, 1),
            "no row": lambda: shown[:0],
            "wide": lambda: shown.repeat(1, 2),
            "flat": lambda: shown[0],
            "none": lambda: None,
            "nan": lambda: shown * math.nan,
            "writes": lambda: self._write(rows, shown),
            "draws": lambda: shown + torch.rand(1000)[-1],
            "warns": lambda: (warnings.warn("secret", stacklevel=1), shown)[1],
        }
        made: Tensor = deeds[self.deed]()
        return made

    def _write(self, rows: Tensor, shown: Tensor) -> Tensor:
        whole = rows.untyped_storage()  # of the rows after it, too, where they are one array
        torch.as_strided(rows, (whole.nbytes() // 4,), (1,), 0).fill_(9.0)
        return shown


@pytest.mark.quick(10)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("training", ["toggled", "robust"])
@pytest.mark.parametrize(
    "deed",
    [
        *("buffer", "attribute", "weights", "two rows", "no row", "wide", "flat", "none", "nan"),
        *("writes", "draws", "raises", "warns"),
    ],
)
def test_one_row_in_one_row_out_from_the_same_state(deed: str, training: str) -> None:
    """Whatever a module does with a row: others' are the same, and so is their number."""
    own = _Hostile(deed)
    made = _fitted(epsilon=1.0, training=training, encoder=own)
    for module in made.networks_.encoder.modules():
        if isinstance(module, _Hostile):
            module.armed = True
    rows = np.tile(_rows()[0].mean().to_numpy(), (6, 1))
    shown = []
    for value in (-1.0, 9.0):
        rows[2] = value
        table = pd.DataFrame(rows, columns=["a", "b"])
        shown.append(made.represent(table))
        assert shown[-1].shape == (6, made.representation_size_)
        assert made.release(table, Seeded(1)).shape == shown[-1].shape
        assert len(made.transform(table)) == 6
    others = [0, 1, 3, 4, 5]
    assert np.array_equal(shown[0][others], shown[1][others])
    assert np.array_equal(shown[0][0], shown[0][5])
    backwards = made.represent(pd.DataFrame(rows[::-1], columns=["a", "b"]))
    assert np.array_equal(backwards[::-1], shown[1], equal_nan=True)
    assert encoders.FORGETFUL in made.certificate.assumptions


def test_a_release_in_pandas_does_not_carry_the_index() -> None:
    """The index is a column, too: of names, it undoes everything."""
    rows, _, who = _rows()
    made = _fitted(epsilon=1.0, training="toggled").set_output(transform="pandas")
    shown = made.transform(rows.set_index(who))
    assert not set(map(str, getattr(shown, "index", ()))) & set(NAMES)
    assert len(made.predict(rows)) == len(rows)  # a warning is an error here


def test_parameters_changed_after_the_fit_change_nothing(noisy: AnonymizingEncoder) -> None:
    rows, _, _ = _rows()
    copy = pickle.loads(pickle.dumps(noisy))
    for change in (
        {"epsilon": None},
        {"epsilon": 9.0},
        {"unit": "person"},
        {"training": "toggled"},
    ):
        copy.set_params(**change)
        assert copy.guarantee_ == noisy.guarantee_
        assert np.array_equal(copy.release(rows, Seeded(1)), noisy.release(rows, Seeded(1)))
    shown = np.mean([copy.transform(rows) != noisy.represent(rows) for _ in range(20)])
    assert shown > 0.05


@pytest.mark.parametrize("change", [{"epsilon": None}, {"epsilon": 9.0}, {"unit": "person"}])
def test_a_file_never_states_another_epsilon(
    noisy: AnonymizingEncoder, saved: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(ArtifactError, match="is about another one"):
        tacit.load(_tampered(saved, tmp_path / "forged", lambda body: body.update(change)))
    copy = pickle.loads(pickle.dumps(noisy)).set_params(**change)
    try:
        again = tacit.load(copy.save(tmp_path / "again"))
    except errors.TacitError:
        return
    assert again.guarantee_ == noisy.guarantee_


def test_a_file_cannot_promise_anything_to_in_house_rows(saved: Path, tmp_path: Path) -> None:
    """An encoder is learned without noise, always: no event on its rows can be its own."""
    scope = {"adjacency": Adjacency.ADD_REMOVE, "unit": Unit.RECORD}
    event = events.Gaussian(Fraction(1), Fraction(50), **scope)
    promised = inhouse.Protection.of(event, 1e-6).to_plain()
    forged = _tampered(saved, tmp_path / "forged", lambda body: body.update(inhouse=promised))
    with pytest.raises(ArtifactError):
        tacit.load(forged)


def test_every_epsilon_that_can_be_fitted_can_be_kept(tmp_path: Path) -> None:
    made = _fitted(epsilon=Fraction(1, 3), training="toggled")
    assert tacit.load(made.save(tmp_path / "third")).local_.epsilon == Fraction(1, 3)


def test_the_certificate_leaves_out_the_rows_that_it_was_fitted_on(
    noisy: AnonymizingEncoder,
) -> None:
    """One of them moves all representations, through what was learned: ε is not theirs."""
    said = " ".join(noisy.certificate.not_protected)
    assert "in-house rows that the mechanism was fitted on are not protected" in said


def test_a_certificate_for_people_is_not_written_where_they_have_many_rows(tmp_path: Path) -> None:
    """The column that names people is in the file, and each is there twenty times."""
    rows, _, who = _rows()
    rows.assign(who=who).to_parquet(tmp_path / "rows.parquet")
    _fitted(epsilon=2.0, unit="person").save(tmp_path / "encoder")
    out = tmp_path / "out.parquet"
    given = ["release", "represent", tmp_path / "encoder", tmp_path / "rows.parquet", "--out", out]
    found = CliRunner().invoke(app, list(map(str, given)))
    written = tmp_path / "out.certificate.json"
    assert found.exit_code != 0 or tacit.Certificate.load(written).guarantee.unit != Unit.PERSON


# --- what goes along -----------------------------------------------------------------------------


def test_released_images_are_not_in_the_order_of_people(tmp_path: Path) -> None:
    """Paths begin with the person: in their order, a representation's place names its person."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for who in NAMES:
        (tmp_path / "faces" / who).mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(0, 100, (4, 4), dtype=np.uint8) + 150 * np.uint8(number % 2)
            image.fromarray(pixels).save(tmp_path / "faces" / who / f"{number % 2}-{number}.png")
    pattern = r"(?P<private>[^/]+)/(?P<regular>\d)-"
    found = tacit.data.datasets.load_twice(tmp_path / "faces", pattern=pattern)
    made = AnonymizingEncoder(0.0, **SMALL).fit(found.rows, found.regular, private=found.private)
    made.save(tmp_path / "encoder")
    out = tmp_path / "out.parquet"
    given = ["release", "represent", tmp_path / "encoder", tmp_path / "faces", "--pattern", pattern]
    assert CliRunner().invoke(app, list(map(str, [*given, "--out", out]))).exit_code == 0
    shown = pd.read_parquet(out).drop(columns="predicted").to_numpy()
    assert not np.allclose(shown, made.transform(found.rows))


def test_what_people_run_names_nobody(tmp_path: Path) -> None:
    """Their device needs the encoder: not who was in the house, and no network that finds them."""
    made = _fitted(public=True)
    out = made.export(tmp_path / "out")
    assert not any(name in (out / "mechanism.json").read_text() for name in NAMES)
    assert b"networks.private" not in (out / artifact.WEIGHTS).read_bytes()
    assert np.array_equal(tacit.load(out).transform(_rows()[0]), made.transform(_rows()[0]))


def test_a_second_fit_forgets_the_first() -> None:
    made = _fitted()
    assert hasattr(made, "prototypes_")  # means of rows
    rows, task, who = _rows()
    made.set_params(training="toggled").fit(rows, task, private=who)
    assert not hasattr(made, "prototypes_")


def test_a_fitted_encoder_keeps_no_rows(noisy: AnonymizingEncoder) -> None:
    kept = pickle.dumps(noisy)
    for column in _rows()[0].to_numpy().T:
        assert column[:2].tobytes() not in kept
        assert column[:2].astype(np.float32).tobytes() not in kept


@pytest.mark.parametrize("which", ["y", "private"])
def test_too_many_labels_are_not_quoted(which: str) -> None:
    count = 2**16 + 1
    names = np.array([f"ann {number}" for number in range(count)])
    given = {"y": np.arange(count) % 2, "private": np.arange(count) % 2, which: names}
    rows = np.arange(count, dtype=float)[:, None]
    with pytest.raises(errors.TacitError) as caught:
        AnonymizingEncoder(**SMALL).fit(rows, **given)
    assert "ann" not in str(caught.value)


@pytest.mark.parametrize(
    "private",
    [
        pd.Series(["ann", "bob", pd.NA] * 20, dtype="string"),
        np.array([2**70, 1] * 30, object),
        np.array([1e300, 2e300] * 30),
    ],
)
def test_labels_that_cannot_be_are_refused_in_one_line(private: Any) -> None:
    rows, task, _ = _rows()
    with pytest.raises(errors.TacitError, match=r"no missing values|whole numbers|Recode"):
        AnonymizingEncoder(**SMALL).fit(rows, task, private=private)


# --- for every attacker --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "codes",
    [
        np.where(np.arange(400) % 2, 0.0, -0.0),
        np.c_[np.where(np.arange(400) % 2, 0.0, -0.0), np.ones(400)],
    ],
    ids=["one", "in rows"],
)
def test_codes_that_can_be_told_apart_are_counted_apart(codes: Any) -> None:
    """Whoever has the bytes names everybody: a ceiling below 1 is false."""
    try:
        found = bounds.code_ceiling(codes, np.arange(400) % 2)
    except errors.TacitError:
        return
    assert found.accuracy == 1


def test_an_entropy_that_cannot_be_gives_no_bound() -> None:
    """In bits, say: of 30 people nobody has more than log 30 nats."""
    with pytest.raises(errors.TacitError):
        bounds.error_bound(math.log2(30), 30)


def test_a_ceiling_from_a_counted_one_keeps_its_confidence() -> None:
    counted = bounds.code_ceiling(np.arange(400) % 4, np.arange(400) // 4 % 2, confidence=0.9)
    assert "confidence 0.9" in counted.holds
    assert "every attacker" in bounds.counting_ceiling(0.1, 3).holds


def test_ceilings_of_shares_are_those_of_the_linear_programme() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        count, epsilon = int(rng.integers(2, 5)), float(rng.choice([0.1, 1.0, 3.0]))
        shares = rng.dirichlet(np.full(count, 0.5))
        gain = -np.diag(shares).ravel()
        limits = []
        for answer in range(count):
            for one in range(count):
                for other in set(range(count)) - {one}:
                    row = np.zeros((count, count))
                    row[one, answer], row[other, answer] = 1, -math.exp(epsilon)
                    limits.append(row.ravel())
        sums = np.kron(np.eye(count), np.ones(count))
        best = linprog(gain, np.array(limits), np.zeros(len(limits)), sums, np.ones(count))
        assert math.isclose(-best.fun, ceilings.of_shares(shares, epsilon), abs_tol=1e-8)


def test_the_ceiling_of_a_study_is_that_of_its_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nine rows in ten one person's, naming that one is right in nine of ten, at any ε."""
    from tacit.data.datasets.twice import labelled
    from tacit_papers.parts.anonymize_judging import Judge, Representations
    from tacit_papers.studies import anonymize as study

    monkeypatch.setattr(Judge, "attacked", lambda *_: {"strongest_accuracy": 0.0, "probes": {}})
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (400, 2, 2)).astype(np.uint8)
    given = labelled("faces", images, np.arange(400) % 2, (np.arange(400) % 10 == 0).astype(int))
    asked = study.AnonymizeParameters((0.0,), ("robust",), (0.1,), trials=1, quick=True)
    made = study.Anonymize(given, asked)
    cell = next(one for one in made.cells() if one.get("epsilon"))
    made._trial = cell["trial"]
    encoder = made._fitted(cell)
    shown = encoder.represent(given.take(made._judge.split.test))
    values = made._judged(encoder, Representations(shown, shown), {}).values
    assert values["ceiling"] >= made._judge.chance - 1e-9


# --- probes --------------------------------------------------------------------------------------


def test_one_far_row_does_not_blind_the_probes() -> None:
    """A column that says the person, and one row so far out that all others are alike beside it."""
    person = np.random.default_rng(0).permutation(np.arange(300) % 3)
    column = person[:, None].astype(np.float64)
    column[0] = 1e12
    found = probe(column, person, attackers=["trees"])
    assert found.strongest.accuracy > 0.9


class DrawsAtWill(nn.Module):
    """Draws from everybody's generators, as often as its row says."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        drawn = [random.random() + float(np.random.rand()) for _ in range(1 + int(rows[0, 0] > 0))]  # noqa: NPY002
        return self.inner(rows) + sum(drawn)


def test_draws_of_one_row_do_not_move_another() -> None:
    module, rows = DrawsAtWill(), torch.zeros(3, 3)
    changed = rows.clone()
    changed[0] = 1
    one, other = (represent_alone(module, given, 2) for given in (rows, changed))
    np.testing.assert_array_equal(one[1:], other[1:])
    assert (one[0] != other[0]).any()


class _Kept:
    """A plain attribute that hands itself out for a copy."""

    last: Any = 0.0

    def __deepcopy__(self, memo: object) -> _Kept:
        return self


class _Same(nn.Module):
    """Shows the row before, by an attribute that no copy has to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = _Kept()

    def forward(self, rows: Tensor) -> Tensor:
        before, self.kept.last = self.kept.last, rows.clone()
        return rows * 0 + before


class _Whole(_Same):
    def __deepcopy__(self, memo: object) -> _Whole:
        return self


class _Late(nn.Module):
    """Copies itself as it should, once."""

    copies, last = 0, 0.0

    def __deepcopy__(self, memo: object) -> _Late:
        self.copies += 1
        return _Late() if self.copies < 2 else self

    def forward(self, rows: Tensor) -> Tensor:
        before, self.last = self.last, rows.clone()  # type: ignore[assignment]
        return rows * 0 + before


@pytest.mark.parametrize("module", [_Same, _Whole, _Late])
def test_a_module_that_is_not_copied_whole_shows_no_row_to_the_next(
    module: Callable[[], nn.Module],
) -> None:
    with pytest.raises(errors.InvalidParameter, match="encoder must be one that is copied whole"):
        represent_alone(module(), torch.arange(6.0).reshape(3, 2), 2)


@pytest.mark.parametrize("kind", [type("Panic", (BaseException,), {}), SystemExit])
def test_no_error_of_any_kind_ends_a_release(kind: type[BaseException]) -> None:
    class Raises(nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            if bool((rows > 100).any()):
                raise kind
            return rows

    rows = torch.arange(6.0).reshape(3, 2)
    rows[0] = 999
    shown = represent_alone(Raises(), rows, 2)
    assert shown.tolist() == [[0, 0], [2, 3], [4, 5]]


def test_a_module_that_is_not_copied_whole_is_refused_when_it_is_fitted() -> None:
    own = nn.Sequential(nn.Linear(2, 2), _Same())
    with pytest.raises(errors.InvalidParameter, match="encoder must be one that is copied whole"):
        _fitted(epsilon=1.0, training="toggled", encoder=own)
