"""Partitions with a central guarantee: what is charged, what may leave, and what is refused."""

import copy
import math
import warnings

import numpy as np
import pytest

import tacit
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.collection import Collection
from tacit.local.inference import mixture, views
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.inhouse import Protection, Target
from tacit.local.learned import private_partitions as pp
from tacit.local.learned.features import QuantileTransform, Raw
from tacit.local.learned.partitions import Partitions
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors, events
from tacit.privacy.guarantees import ApproxDP, NotPrivate
from tacit.privacy.randomness import Seeded

OPTIONS = {"epsilon": 4, "people": 400, "classes": 2}
CENTRAL = {"central_epsilon": 5, "central_delta": 1e-5}
TABLE = TableSchema(
    (
        Continuous("age", 0, 100, outside="clip"),
        Continuous("gain", 0, 1000, missing="indicate", outside="clip"),
        Categorical("job", ("baker", "smith", "nurse"), unseen="other"),
    )
)
NUMBERS = ArraySchema(4, -5.0, 5.0, outside="clip")


def people(count, seed=0):
    """Ages of two groups, gains that are mostly 0 or missing, and jobs that follow the group."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, count)
    gain = np.where(rng.random(count) < 0.7, 0.0, rng.uniform(100, 900, count))
    gain[rng.random(count) < 0.1] = np.nan
    jobs = np.array(["baker", "smith", "nurse", "potter"])
    table = {
        "age": rng.normal(30 + 30 * group, 6),
        "gain": gain,
        "job": jobs[np.where(rng.random(count) < 0.8, group, rng.integers(2, 4, count))],
    }
    return table, group


@pytest.fixture(scope="module", autouse=True)
def _small_models():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "MOST_ROWS", 300)
        patch.setattr(views, "LANDMARKS", 12)
        patch.setattr(mixture, "WIDTHS", (1.0,))
        yield


@pytest.fixture(scope="module")
def mechanism():
    return Partitions(**OPTIONS, **CENTRAL).fit(people(3000)[0], schema=TABLE)


@pytest.fixture(scope="module")
def learned(mechanism):
    table, group = people(400, seed=1)
    reports = mechanism.release(table, group)
    return reports, ProportionsClassifier().fit(reports)


# --- the guarantee -------------------------------------------------------------------------------


@pytest.mark.parametrize("central", [0.5, 1, 5])
@pytest.mark.parametrize("schema", [TABLE, NUMBERS])
def test_all_that_ran_costs_the_budget_and_not_more(central, schema):
    rows = people(900)[0] if schema is TABLE else np.zeros((900, 4))
    target = Target(central, 1e-5)
    made = Partitions(**OPTIONS, central_epsilon=central, central_delta=1e-5)
    made.fit(rows, schema=schema, rng=Seeded(0))
    stated = made.inhouse_.guarantee
    assert isinstance(stated, ApproxDP)
    assert 0.98 * central <= stated.epsilon <= central * (1 + 1e-8)
    spent = pp.cost(made.inhouse_.certificate.event)
    assert spent <= target.noise_multiplier**-2
    # A table without indicators leaves their share of the features' tenth unspent.
    assert spent == pytest.approx(target.noise_multiplier**-2, rel=0.03)
    assert sum(made.split_.values()) == pytest.approx(spent, rel=1e-12)
    assert sum(pp.SHARES.values()) == pytest.approx(1.0)


def test_costs_add_up_the_gaussians_of_an_event():
    scope = {"adjacency": "zero-out", "unit": "record"}
    one = events.Gaussian(l2_sensitivity=1, sigma=2, **scope)
    assert pp.cost(events.Composed((one, events.Repeated(one, 3)))) == 1.0
    declared = events.Declared(tacit.PureDP(epsilon=1.0, **scope))
    with pytest.raises(errors.InvalidParameter, match="of Gaussian noise"):
        pp.cost(declared)


def test_bounds_must_be_declared():
    with pytest.raises(errors.InvalidParameter, match="schema must be given"):
        Partitions(**OPTIONS, **CENTRAL).fit(people(900)[0])
    with pytest.raises(errors.InvalidParameter, match="schema must be given"):
        Collection(**OPTIONS, **CENTRAL).fit(np.zeros((900, 4)))
    pixels = np.random.default_rng(0).integers(0, 256, (900, 4)).astype(np.uint8)
    assert Partitions(**OPTIONS, **CENTRAL).fit(pixels).inhouse_.proved


def test_half_a_budget_is_refused():
    with pytest.raises(errors.InvalidParameter, match="central_delta must be given"):
        Partitions(**OPTIONS, central_epsilon=1)


def test_seeded_noise_stays_inside(tmp_path):
    made = Partitions(**OPTIONS, **CENTRAL).fit(people(900)[0], schema=TABLE, rng=Seeded(0))
    with pytest.raises(errors.InvalidParameter, match="seeded"):
        made.export(tmp_path / "people")


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((900, 4)),
        np.full((900, 4), 5.0),
        np.where(np.arange(900)[:, None] == 7, 1e300, np.zeros((900, 4))),
        np.tile([5.0, -5.0, 5.0, -5.0], (900, 1)),
    ],
)
def test_no_rows_raise_or_warn(rows):
    """An error or a warning would tell what the rows are."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = Partitions(**OPTIONS, **CENTRAL).fit(rows, schema=NUMBERS)
    assert np.isfinite(made.cells_.centres).all()


def test_rows_that_lack_everything_are_no_exception():
    table = {"age": np.full(900, 50.0), "gain": np.full(900, np.nan), "job": ["?"] * 900}
    made = Partitions(**OPTIONS, **CENTRAL).fit(table, schema=TABLE)
    assert made.inhouse_.proved


# --- synthetic rows ------------------------------------------------------------------------------


def test_synthetic_rows_look_like_the_inhouse_rows(mechanism):
    assert isinstance(mechanism.synthetic_.features, QuantileTransform)
    drawn = mechanism.synthetic_.draw(4000, 1)
    own = TABLE.rows(people(4000, seed=5)[0])
    assert drawn.numbers.shape == own.numbers.shape
    missing = np.isnan(drawn.numbers).mean(axis=0)
    assert missing == pytest.approx(np.isnan(own.numbers).mean(axis=0), abs=0.04)
    shares = [np.bincount(rows.codes[:, 0] % 4, minlength=4) / 4000 for rows in (drawn, own)]
    assert shares[0] == pytest.approx(shares[1], abs=0.05)
    levels = [0.1, 0.2, 0.3, 0.7, 0.8, 0.9]  # not between the two groups
    ages = [np.quantile(rows.numbers[:, 0], levels) for rows in (drawn, own)]
    assert ages[0] == pytest.approx(ages[1], abs=0.04)
    # Older people are smiths, in both.
    older = [rows.numbers[rows.codes[:, 0] == 1, 0].mean() for rows in (drawn, own)]
    younger = [rows.numbers[rows.codes[:, 0] == 0, 0].mean() for rows in (drawn, own)]
    assert older[0] - younger[0] > 0.5 * (older[1] - younger[1])


def test_a_value_that_most_rows_have_keeps_its_level(mechanism):
    """Most gains are 0, and the private histogram does not tell where in its cell they are."""
    quantile = mechanism.features_.quantile
    values = np.array([[0.5, 0.0], [0.5, 0.0005], [0.5, 0.5]], np.float32)
    levels = quantile.levels(values)[:, 1]
    assert levels[0] == pytest.approx(0.35, abs=0.05)
    assert levels[1] == levels[0]
    assert levels[2] > 0.75


def test_many_columns_and_few_rows_need_no_quantiles():
    rows = np.random.default_rng(0).normal(size=(400, 40))
    schema = ArraySchema(40, -5.0, 5.0, outside="clip")
    made = Partitions(**OPTIONS, central_epsilon=1, central_delta=1e-5).fit(rows, schema=schema)
    assert isinstance(made.synthetic_.features, Raw)
    assert made.split_["features"] == 0


# --- what is learned on them ---------------------------------------------------------------------


def test_the_model_may_leave_with_the_guarantee_of_the_mechanism(mechanism, learned, tmp_path):
    _, model = learned
    assert model.inhouse_.guarantee == mechanism.inhouse_.guarantee
    assert len(model.inhouse_.parts) == 1
    kept = tacit.load(model.export(tmp_path / "model"))
    table, group = people(500, seed=2)
    assert np.allclose(kept.predict_proba(table), model.predict_proba(table), atol=1e-5)
    assert (model.predict(table) == group).mean() > 0.8


def test_a_model_of_raw_rows_stays_inside(learned, tmp_path):
    reports, _ = learned
    model = ProportionsClassifier(inhouse=people(3000)[0]).fit(reports)
    assert isinstance(model.inhouse_.guarantee, NotPrivate)
    with pytest.raises(errors.InvalidParameter, match="in-house rows"):
        model.export(tmp_path / "model")
    with pytest.raises(errors.InvalidParameter, match="in-house rows"):
        model.next_round().export(tmp_path / "second")


def test_rounds_cost_the_budget_once(tmp_path):
    collection = Collection(**OPTIONS, rounds=2, **CENTRAL).fit(people(3000)[0], schema=TABLE)
    early = collection.release(*people(200, seed=3))
    second = collection.adapt(collection.learn(early))
    late = second.release(*people(200, seed=4))
    model = second.learn([early, late])
    for found in (second.mechanism_, model):
        assert found.inhouse_.guarantee == collection.mechanism_.inhouse_.guarantee
    second.export(tmp_path / "second")
    # The same from files, which do not share objects.
    early.write(tmp_path / "early.parquet")
    late.write(tmp_path / "late.parquet")
    read = [Reports.read(tmp_path / f"{name}.parquet") for name in ("early", "late")]
    again = ProportionsClassifier().fit(read)
    assert again.inhouse_.guarantee == model.inhouse_.guarantee
    stored = tacit.load(again.save(tmp_path / "model"))
    assert stored.next_round().inhouse_.guarantee == model.inhouse_.guarantee


def test_another_fit_counts_besides():
    """Two releases about the same rows are two, whatever their certificates say."""
    one = Partitions(**OPTIONS, **CENTRAL).fit(people(900)[0], schema=TABLE, rng=Seeded(0))
    two = Partitions(**OPTIONS, **CENTRAL).fit(people(900)[0], schema=TABLE, rng=Seeded(1))
    assert not one.synthetic_.same(two.synthetic_)
    doubled = Protection((*one.inhouse_.parts, copy.copy(one.inhouse_.parts[0])))
    assert len(doubled.sharing(one.inhouse_).beside().parts) == 2


# --- files ---------------------------------------------------------------------------------------


def test_a_packed_mechanism_is_the_same(mechanism):
    other = artifact.rebuild("partitions", *mechanism.parts())
    table = people(50, seed=6)[0]
    assert np.array_equal(other.encode(table), mechanism.encode(table))
    assert other.split_ == mechanism.split_
    assert other.synthetic_.same(mechanism.synthetic_)
    assert np.array_equal(other.synthetic_vectors(), mechanism.synthetic_vectors())


def without_model(parameters, arrays):
    del parameters["synthetic"]


def another_split(parameters, arrays):
    parameters["synthetic"]["split"]["moments"] /= 2


def negative_split(parameters, arrays):
    parameters["synthetic"]["split"] |= {"moments": -1.0, "more": math.inf}


def not_a_number(parameters, arrays):
    arrays["synthetic.centres"] = arrays["synthetic.centres"] * np.nan


def another_width(parameters, arrays):
    arrays["synthetic.within"] = arrays["synthetic.within"][:-1]


def another_kind(parameters, arrays):
    parameters["synthetic"]["features"] = "autoencoder"


def unprotected(parameters, arrays):
    """Of a fit without noise, beside the model of another one with noise."""
    plain = Partitions(**OPTIONS).fit(people(900)[0], schema=TABLE)
    parameters["inhouse"] = plain.inhouse_.to_plain()


@pytest.mark.parametrize(
    "change",
    [
        without_model,
        another_split,
        negative_split,
        not_a_number,
        another_width,
        another_kind,
        unprotected,
    ],
)
def test_tampering_is_refused(mechanism, change):
    parameters, arrays = copy.deepcopy(mechanism.parts())
    change(parameters, arrays)
    with pytest.raises(errors.TacitError):
        artifact.rebuild("partitions", parameters, arrays)
