"""A codebook with a central guarantee: what it reads, what that costs, and what it still knows.

Privacy is checked on the very integers that meet the noise. A run on one data set writes down what
every query released; a run on another one is handed the same releases. Then each query's integers
may differ by its stated sensitivity where the data differ by a row, and all that is saved must be
the same whatever the data are.
"""

import math
import warnings
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

import tacit
from tacit.central.statistics import moments, rows
from tacit.central.statistics.released import Spending
from tacit.data.schema import ArraySchema, Categorical, Continuous, Rows, TableSchema
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inhouse import COUNTED, PUBLIC, Target
from tacit.local.learned import features as features_of
from tacit.local.learned import private_features, provenance
from tacit.local.learned import private_quantizer as pq
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.provenance import as_written
from tacit.local.learned.quantizer import Projection
from tacit.privacy import artifact, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import Adjacency, ApproxDP, Unit, Unproven
from tacit.privacy.mechanisms import Gaussian
from tacit.privacy.mechanisms.bounding import GridBall
from tacit.privacy.randomness import Seeded

CENTRAL = {"central_epsilon": 5, "central_delta": 1e-5}
DIGITS, TARGET = load_digits(return_X_y=True)
PIXELS = (DIGITS * 15).astype(np.uint8)
PICTURES = ArraySchema(64, 0, 255, image=(8, 8))
VECTORS = ArraySchema(4, 0, 255)
TABLE = TableSchema(
    (
        Continuous("age", 0, 100),
        Categorical("job", ("baker", "smith", "nurse")),
        Continuous("pay", 0, 10, missing="indicate", outside="clip"),
        Categorical("zone", ("n", "s"), unseen="other"),
    )
)


def vectors(count, seed=0):
    """Bytes in three heaps."""
    rng = np.random.default_rng((seed, 3))
    middle = np.array([60, 130, 200])[rng.integers(0, 3, count)]
    return np.clip(rng.normal(middle[:, None], 25, (count, 4)), 0, 255).astype(np.uint8)


def people(count=400, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, count)
    pay = np.clip(rng.normal(3 + 4 * kind, 1), 0, 10)
    pay[rng.random(count) < 0.1] = np.nan
    return {
        "age": np.clip(rng.normal(30 + 30 * kind, 8), 0, 100),
        "job": np.array(["baker", "smith", "nurse"])[(kind + (rng.random(count) < 0.2)) % 3],
        "pay": pay,
        "zone": np.array(["n", "s", "x"])[rng.choice(3, count, p=[0.5, 0.4, 0.1])],
    }


# kind of features, grouping, schema, and rows of any number and seed
KINDS = {
    "raw": ("raw", "linked", VECTORS, vectors),
    "compact": ("raw", "compact", VECTORS, vectors),
    "quantile": ("quantile", "linked", VECTORS, vectors),
    "random": ("random", "compact", VECTORS, vectors),
    "table": ("quantile", "compact", TABLE, people),
    "linked table": ("quantile", "linked", TABLE, people),
    "random table": ("random", "compact", TABLE, people),
    "raw table": ("raw", "compact", TABLE, people),
}


def fitted(kind, data=None, rng=None, central=CENTRAL, **options):
    features, grouping, schema, draw = KINDS[kind]
    made = Codebook(epsilon=2, codewords=3, features=features, grouping=grouping, **central)
    return made.fit(draw(1100) if data is None else data, schema=schema, rng=rng, **options)


def stacked(data, extra):
    """A data set with a row more, at the front: every other row has another place then."""
    if isinstance(data, dict):
        return {name: np.concatenate([extra[name], data[name]]) for name in data}
    return np.concatenate([extra, data])


# --- the integers that meet the noise ------------------------------------------------------------


class Tape:
    """What every query released, and the integers that it saw before noise."""

    def __init__(self, earlier=None):
        self.earlier = earlier
        self.queries = []  # (name, integers, sensitivity, sigma, released)

    def answer(self, name, raw, sensitivity, sigma, draw):
        released = draw() if self.earlier is None else self.earlier[len(self.queries)][4]
        assert np.shape(released) == np.shape(raw)
        self.queries.append((name, np.array(raw), sensitivity, sigma, released))
        return released


@pytest.fixture
def record(monkeypatch):
    """`record(fit)` runs it and writes down; `record(fit, queries)` hands out those releases."""
    tape = [Tape()]
    release, add, noise = Gaussian.release, Spending.add, moments.symmetric_noise
    products, drawn, seen = rows.Ball.products, [], []

    def spending_add(self, values, sensitivity, share=Fraction(1)):
        sigma = self.sigma(sensitivity, share)
        if tape[0].earlier is not None:
            self.charge(sensitivity, sigma, share)
        return tape[0].answer(
            self.where, values, sensitivity, sigma, lambda: add(self, values, sensitivity, share)
        )

    def gaussian_release(self, raw, rng=None):
        event = self.event
        assert np.asarray(raw).dtype.kind == "i"
        return tape[0].answer(
            "gaussian", raw, event.l2_sensitivity, event.sigma, lambda: release(self, raw, rng)
        )

    def ball_products(self, data):
        total, count = products(self, data)
        seen.append(total.copy())
        return total, count

    def symmetric(self, sensitivity, share, dimension):
        sigma, raw = self.sigma(sensitivity, share), seen.pop()
        found = noise(self, sensitivity, share, dimension)
        return tape[0].answer("products", raw, sensitivity, sigma, lambda: raw + found) - raw

    def generator(self):
        drawn.append(None)  # choices that touch no data: the same in every run
        return np.random.default_rng(len(drawn))

    monkeypatch.setattr(Spending, "add", spending_add)
    monkeypatch.setattr(Spending, "generator", generator)
    monkeypatch.setattr(Gaussian, "release", gaussian_release)
    monkeypatch.setattr(rows.Ball, "products", ball_products)
    monkeypatch.setattr(moments, "symmetric_noise", symmetric)

    def run(fit, earlier=None):
        drawn.clear()
        tape[0] = Tape(earlier)
        return fit(), tape[0].queries

    return run


def together(queries):
    """Queries as they are charged: the sums of all codewords are one vector, in one ball."""
    found = []
    for name, raw, sensitivity, sigma, _ in queries:
        if name == "vector_sum" and found and found[-1][0] == "vector_sum":
            assert (sensitivity, sigma) == found[-1][2:]
            found[-1] = (name, np.concatenate([found[-1][1], raw]), sensitivity, sigma)
        else:
            found.append((name, raw, sensitivity, sigma))
    return found


def moved(first, second):
    """How far the integers of each query moved, squared, exactly; and how far they may."""
    assert [one[0] for one in first] == [one[0] for one in second]
    result = []
    for (name, raw, sensitivity, _), (_, other, again, _) in zip(first, second, strict=True):
        assert sensitivity == again  # what is calibrated must not depend on the data
        # Frobenius, for products: an off-diagonal entry counts twice, and has half the variance.
        away = sum(int(step) ** 2 for step in (other - raw).reshape(-1).tolist())
        result.append((name, away, Fraction(sensitivity) ** 2))
    return result


def gaussians(event):
    """All Gaussians of an event, as often as they ran."""
    if isinstance(event, events.Repeated):
        return gaussians(event.event) * event.count
    if isinstance(event, events.Composed):
        return [leaf for part in event.events for leaf in gaussians(part)]
    assert isinstance(event, events.Gaussian)
    assert event.adjacency is Adjacency.ZERO_OUT
    return [(event.l2_sensitivity, event.sigma)]


def extremes(kind, data):
    """Rows that are far out, in the middle, there already, or full of gaps."""
    if isinstance(data, dict):
        first = {name: column[:1] for name, column in data.items()}
        odd = {"age": [100.0], "job": ["nurse"], "pay": [np.nan], "zone": ["unheard of"]}
        low = {"age": [0.0], "job": ["baker"], "pay": [0.0], "zone": ["n"]}
        return [first, *({k: np.array(v) for k, v in one.items()} for one in (odd, low))]
    width = data.shape[1]
    rows = [np.full(width, 255), np.zeros(width), np.arange(width) % 2 * 255, data[0]]
    return [np.asarray(row, np.uint8)[None] for row in rows]


@pytest.mark.quick(5)
@pytest.mark.parametrize("kind", KINDS)
def test_one_row_moves_no_query_further_than_stated(kind, record):
    """Every query, given the same earlier releases; the row is put in front of 1,100 others."""
    data = KINDS[kind][3](1100)
    _, first = record(lambda: fitted(kind, data, Seeded(1)))
    largest = Counter()
    for row in extremes(kind, data):
        more = stacked(data, row)
        _, second = record(lambda more=more: fitted(kind, more, Seeded(1)), first)
        for name, away, allowed in moved(together(first), together(second)):
            assert away <= allowed, name
            largest[name] = max(largest[name], away / allowed)
    # The bounds are not idle: some row comes near to each of them.
    assert set(largest) >= {"quantiles", "mean", "products", "counts", "kmeans", "vector_sum"}
    assert largest["counts"] == 1
    assert largest["quantiles"] > 0.1
    assert largest["mean"] == 1  # the count
    for name in ("products", "kmeans", "vector_sum"):
        assert largest[name] > 0.02, name


def test_the_graph_moves_by_two_and_one(record):
    _, first = record(lambda: fitted("raw", rng=Seeded(1)))
    more = stacked(vectors(1100), np.full((1, 4), 77, np.uint8))
    _, second = record(lambda: fitted("raw", more, rng=Seeded(1)), first)
    (before, after), *others = [
        (one[1], two[1]) for one, two in zip(first, second, strict=True) if one[0] == "gaussian"
    ]
    assert others == []
    assert before.sum() == 3 * 1100
    assert sorted((after - before)[after != before].tolist()) == [1, 2]
    graph = next(one for one in first if one[0] == "gaussian")
    assert Fraction(graph[2]) ** 2 >= 5
    assert float(graph[2]) == pytest.approx(math.sqrt(5), rel=1e-9)


def test_counts_of_cells_and_codewords_move_by_one(record):
    _, first = record(lambda: fitted("raw", rng=Seeded(1)))
    more = stacked(vectors(1100), np.full((1, 4), 77, np.uint8))
    _, second = record(lambda: fitted("raw", more, rng=Seeded(1)), first)
    counts = [
        (one[1], two[1], one[2])
        for one, two in zip(first, second, strict=True)
        if one[0] == "counts"
    ]
    assert [len(before) for before, _, _ in counts] == [8 * 6, 3]  # candidates, codewords
    for before, after, sensitivity in counts:
        assert (before.sum(), after.sum()) == (1100, 1101)
        assert np.abs(after - before).sum() == 1
        assert sensitivity == 1


def test_prototypes_of_other_codewords_do_not_move(record):
    """So that all the sums together cost what one of them costs."""
    _, first = record(lambda: fitted("raw", rng=Seeded(1)))
    more = stacked(vectors(1100), np.full((1, 4), 255, np.uint8))
    _, second = record(lambda: fitted("raw", more, rng=Seeded(1)), first)
    sums = [
        (one[1], two[1], one[2])
        for one, two in zip(first, second, strict=True)
        if one[0] == "vector_sum"
    ]
    assert len(sums) == 3
    different = [int(((after - before) ** 2).sum()) for before, after, _ in sums]
    assert sorted(different)[:2] == [0, 0]
    assert 0 < max(different) <= sums[0][2] ** 2


@pytest.mark.parametrize("mutant", ["centred on the rows", "rounded together", "weighs by rank"])
def test_mutants_are_rejected(mutant, record, monkeypatch):
    """Each lets one row move the others a little, or move more than the noise is made for."""
    if mutant == "centred on the rows":
        honest = pq.on_axes

        def centred(*given):
            found = honest(*given)
            return found - found.mean(axis=0)

        monkeypatch.setattr(pq, "on_axes", centred)
    elif mutant == "rounded together":
        honest = pq.on_axes

        def noisy(features, given, axes):
            found = honest(features, given, axes)
            return found + 1e-3 * np.float32(len(given) % 7)

        monkeypatch.setattr(pq, "on_axes", noisy)
    else:
        honest_ranks = pq.ranks

        def by_count(given, cells, bound, places):
            return (honest_ranks(given, cells, bound, places) + len(given)) % len(cells)

        monkeypatch.setattr(pq, "ranks", by_count)
    _, first = record(lambda: fitted("raw", rng=Seeded(1)))
    more = stacked(vectors(1100), np.full((1, 4), 77, np.uint8))
    _, second = record(lambda: fitted("raw", more, rng=Seeded(1)), first)
    assert any(away > allowed for _, away, allowed in moved(together(first), together(second)))


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_saved_comes_from_the_noisy_answers(kind, record):
    """Other rows, as many: with the same releases, the same codebook to the last bit."""
    draw = KINDS[kind][3]
    made, first = record(lambda: fitted(kind, draw(1100), Seeded(1)))
    other, second = record(lambda: fitted(kind, draw(1100, seed=9), Seeded(1)), first)
    assert all(
        not np.array_equal(one[1], two[1]) for one, two in zip(first[:2], second[:2], strict=True)
    )
    (parameters, arrays), (again, others) = made.parts(), other.parts()
    for name in arrays:
        assert np.array_equal(arrays[name], others[name]), name
    assert arrays.keys() == others.keys()
    assert {**parameters, "inhouse": None} == {**again, "inhouse": None}
    assert made.inhouse_.guarantee == other.inhouse_.guarantee
    assert set(made.__dict__) == set(other.__dict__)  # nothing else is kept


def test_a_plain_codebook_does_not_come_from_noisy_answers(record):
    """The mutant of the test above: without a budget no query is asked."""
    made, first = record(lambda: fitted("raw", central={}))
    other, _ = record(lambda: fitted("raw", vectors(1100, 9), central={}), first)
    assert first == []
    assert not np.array_equal(made.parts()[1]["cells"], other.parts()[1]["cells"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_certificate_names_every_query_and_no_other(kind, record):
    made, queries = record(lambda: fitted(kind))
    ran = Counter((Fraction(one[2]), one[3]) for one in together(queries))
    assert ran == Counter(gaussians(made.inhouse_.certificate.event))
    # Exactly: all of them cost at most one Gaussian with the target's multiplier.
    spent = sum(
        ((sensitivity / sigma) ** 2 * count for (sensitivity, sigma), count in ran.items()),
        Fraction(0),
    )
    whole = 1 / Fraction(Target(5.0, 1e-5).noise_multiplier) ** 2
    assert Fraction(97, 100) * whole < spent <= whole


# --- the guarantee -------------------------------------------------------------------------------


@pytest.mark.parametrize("central", [(5, 1e-5), (0.5, 1e-6), (50, 1e-5)])
@pytest.mark.parametrize("kind", ["raw", "compact", "quantile", "table"])
def test_the_budget_is_used_and_not_passed(kind, central):
    epsilon, delta = central
    made = fitted(kind, central={"central_epsilon": epsilon, "central_delta": delta})
    found = made.inhouse_.guarantee
    assert isinstance(found, ApproxDP)
    assert found.delta == delta
    assert 0.95 * epsilon < found.epsilon <= epsilon
    assert (found.adjacency, found.unit) == (Adjacency.ZERO_OUT, Unit.RECORD)
    certificate = made.inhouse_.certificate
    certificate.verify()
    assert guarantee_of(certificate.event, delta) == found
    assert COUNTED in certificate.not_protected
    assert private_features.ALIKE not in certificate.assumptions  # nothing to assume
    assert not certificate.seeded
    assert made.inhouse_.may_leave


def test_shares_add_up_to_one():
    assert sum(Fraction(str(share)) for share in pq.SHARES.values()) == 1
    budget = pq.Budget(2.0)
    assert budget.multiplier(0.25) == pytest.approx(4.0)
    assert Fraction(budget.multiplier(0.25)) >= 4
    inner = budget.part(0.5)
    assert inner.multiplier(0.5) == pytest.approx(4.0)
    inner.spent.append("something")
    assert budget.spent == ["something"]


@pytest.mark.parametrize("kind", ["raw", "table"])
def test_noise_is_new_in_every_fit(kind):
    one, two = fitted(kind), fitted(kind)
    first, second = one.parts()[1], two.parts()[1]
    names = {"cells", "counts", "mean", "matrix", "prototypes"} | (
        {"features.quantiles", "features.offset"} if kind == "table" else set()
    )
    for name in names:
        assert not np.array_equal(first[name], second[name]), name
    for made in (one, two):
        codes = made.encode(KINDS[kind][3](1100))
        assert not np.array_equal(np.bincount(codes, minlength=made.codewords_), made.counts_)
    if kind == "raw":
        data, codes = vectors(1100) / 255, one.encode(vectors(1100))
        means = np.stack([data[codes == code].mean(axis=0) for code in range(3)])
        assert np.abs(means - one.prototypes_).min() > 0
        assert means == pytest.approx(one.prototypes_, abs=0.2)


def test_a_seeded_fit_is_marked_and_can_be_repeated():
    one, two = fitted("raw", rng=Seeded(5)), fitted("raw", rng=Seeded(5))
    assert one.inhouse_.certificate.seeded
    assert "SEEDED" in one.inhouse_.certificate.explain()
    for name, array in one.parts()[1].items():
        assert np.array_equal(array, two.parts()[1][name])
    other = fitted("raw", rng=Seeded(6))
    assert not np.array_equal(one.quantizer_.cells, other.quantizer_.cells)


def test_public_rows_are_said_to_be_public_beside_the_guarantee():
    made = fitted("raw", inhouse_public=True)
    assert made.inhouse_.public
    assert made.inhouse_.proved
    assert PUBLIC in made.inhouse_.certificate.not_protected


def test_stored_and_read_back(tmp_path):
    made = fitted("linked table")
    loaded = tacit.load(made.save(tmp_path / "m"))
    assert loaded.inhouse_ == made.inhouse_
    assert loaded.inhouse_.certificate.to_json() == made.inhouse_.certificate.to_json()
    assert artifact.fingerprint(loaded) == artifact.fingerprint(made)
    assert artifact.fingerprint(artifact.unpack(artifact.pack(made))) == artifact.fingerprint(made)
    assert np.array_equal(loaded.encode(people()), made.encode(people()))
    exported = tacit.load(made.export(tmp_path / "out"))
    assert artifact.fingerprint(exported) == artifact.fingerprint(made)
    for name, array in made.parts()[1].items():
        assert np.array_equal(array, loaded.parts()[1][name]), name


def test_the_same_promise_at_another_epsilon_and_regrouped(tmp_path):
    made = fitted("raw")
    for other in (made.at(1), made.regrouped([0, 1, 1]), made.at(1).regrouped([0, 1, 1])):
        assert other.inhouse_ is made.inhouse_
        loaded = tacit.load(other.export(tmp_path / f"{float(other.epsilon)}-{other.codewords_}"))
        assert loaded.inhouse_ == made.inhouse_


def test_a_second_fit_has_a_promise_of_its_own():
    made = fitted("raw")
    before = made.inhouse_
    made.fit(vectors(1100), schema=VECTORS, inhouse_public=True)
    assert not before.public
    assert made.inhouse_.public


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        vectors(50) / 255,
        vectors(50).astype(np.int64),
        vectors(50).astype(np.uint16),
        vectors(50).reshape(50, 2, 2) / 255,
        people(50),
        {f"p{i}": vectors(50)[:, i] for i in range(4)},
    ],
    ids=["floats", "integers", "wide", "images", "table", "table of bytes"],
)
def test_bounds_must_be_declared(data):
    with pytest.raises(InvalidParameter, match=r"schema must be given") as caught:
        Codebook(epsilon=1, codewords=3, **CENTRAL).fit(data)
    said = str(caught.value)
    assert said.startswith("Codebook.fit: ")
    assert "\n" not in said
    assert "Declare bounds" in said
    Codebook(epsilon=1, codewords=3).fit(data)  # without a guarantee they are read off the rows


def test_bytes_say_their_bounds_themselves():
    data = vectors(400) // 2 + 20  # no byte comes near either bound
    made = Codebook(epsilon=1, codewords=3, **CENTRAL).fit(data)
    assert (made.schema.lower, made.schema.upper) == (0, 255)
    assert made.inhouse_.proved
    images = Codebook(epsilon=1, codewords=3, features="raw", **CENTRAL)
    assert images.fit(data.reshape(400, 2, 2)).schema.image == (2, 2)
    table = {f"p{i}": data[:, i] for i in range(4)}
    named = Codebook(epsilon=1, codewords=3, features="raw", **CENTRAL).fit(table, image=(2, 2))
    assert named.schema.columns == ("p0", "p1", "p2", "p3")
    assert (named.schema.lower, named.schema.upper) == (0, 255)


@pytest.mark.parametrize("count", [0, 2])
def test_too_few_rows(count):
    with pytest.raises(InvalidData, match="rows must"):
        Codebook(epsilon=1, codewords=3, **CENTRAL).fit(vectors(10)[:count], schema=VECTORS)


@pytest.mark.parametrize("count", [3, 5])
def test_few_rows_are_hidden_in_noise(count):
    made = Codebook(epsilon=1, codewords=3, **CENTRAL).fit(vectors(count), schema=VECTORS)
    assert made.inhouse_.proved
    assert made.codewords_ == 3


@pytest.mark.parametrize("epsilon", [0.01, 5, 500])
def test_rows_that_are_all_alike_can_be_fitted(epsilon):
    """Nobody is told that they are: an error would tell."""
    central = {"central_epsilon": epsilon, "central_delta": 1e-5}
    for grouping in ("linked", "compact"):
        made = Codebook(epsilon=1, codewords=2, grouping=grouping, **central)
        made.fit(np.full((600, 4), 9, np.uint8))
        assert made.codewords_ == 2
        assert np.isfinite(made.prototypes_).all()


@pytest.mark.parametrize("grouping", ["linked", "compact"])
@pytest.mark.parametrize("variance", [0.0, -1e-9, -3.0])
def test_a_covariance_of_noise_alone_is_no_reason_to_fail(grouping, variance, monkeypatch):
    """The noise can make all variances negative, where rows are few or ε is small."""
    honest = pq.statistics.pca

    def unlucky(*arguments, **options):
        released = honest(*arguments, **options)
        variances = np.full_like(released.value.variances, variance)
        return replace(released, value=replace(released.value, variances=variances))

    monkeypatch.setattr(pq.statistics, "pca", unlucky)
    made = Codebook(epsilon=1, codewords=3, grouping=grouping, **CENTRAL)
    made.fit(vectors(900), schema=VECTORS)
    assert made.codewords_ == 3
    assert np.isfinite(made.quantizer_.cells).all()


# --- tables --------------------------------------------------------------------------------------


def test_tables_with_categories_and_gaps():
    made = Codebook(epsilon=2, codewords=4, classes=2, **CENTRAL).fit(people(2000), schema=TABLE)
    assert made.features_.kind == "quantile"
    quantiles = made.features_.quantiles
    assert quantiles.shape == (2, features_of.QUANTILES + 1)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    # Near the truth, with gaps left out: the median age is about 45 of 100, that of pay 5 of 10.
    truth = np.array([np.median(people(2000)["age"]) / 100, np.nanmedian(people(2000)["pay"]) / 10])
    assert quantiles[:, 50] == pytest.approx(truth, abs=0.05)
    assert made.features_.offset[2] == pytest.approx(0.1, abs=0.06)  # how often pay is missing
    assert len(np.unique(made.encode(people(500, 1)))) == 4
    assert made.prototypes_.shape == (4, 2 + 1 + 3 + 3)
    assert (made.prototypes_ >= 0).all()
    assert (made.prototypes_ <= 1).all()
    reports = made.release(people(500, 1), np.ones(500, int))
    assert reports.guarantee.epsilon == 2


def test_a_table_of_categories_alone():
    schema = TableSchema((Categorical("a", ("x", "y")), Categorical("b", ("u", "v", "w"))))
    rng = np.random.default_rng(0)
    data = {"a": rng.choice(["x", "y"], 400), "b": rng.choice(["u", "v", "w"], 400)}
    made = Codebook(epsilon=2, codewords=4, **CENTRAL).fit(data, schema=schema)
    assert made.inhouse_.guarantee.epsilon > 4.75


# --- features ------------------------------------------------------------------------------------


def test_nothing_is_proved_of_a_contrastive_encoder(tmp_path, monkeypatch):
    """Features of another kind stand in for it: it takes minutes, and the reason is the kind."""
    monkeypatch.setattr(
        features_of, "fit", lambda kind, schema, *rest, device: features_of.Raw(schema)
    )
    made = Codebook(epsilon=1, codewords=3, features="invariant", **CENTRAL).fit(
        vectors(200), schema=ArraySchema(4, 0, 255, image=(2, 2))
    )
    assert isinstance(made.inhouse_.guarantee, Unproven)
    assert "contrastive" in made.inhouse_.guarantee.reason
    with pytest.raises(InvalidParameter, match="contrastive"):
        made.export(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidParameter, match="contrastive"):
        made.shared("validation")
    assert made.shared("join").parts()[1].keys() == {"counts"}


@pytest.fixture(scope="module")
def autoencoder():
    pytest.importorskip("torch")
    from tacit.local.learned import autoencoder as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "USUAL", replace(module.USUAL, epochs=3))
        made = Codebook(epsilon=2, codewords=3, classes=2, features="autoencoder", **CENTRAL)
        yield made.fit(vectors(300), schema=VECTORS)


@pytest.mark.heavy
def test_an_autoencoder_is_proved(autoencoder, tmp_path):
    found = autoencoder.inhouse_
    assert isinstance(found.guarantee, ApproxDP)
    assert found.guarantee.delta == 1e-5
    assert 2.5 < found.guarantee.epsilon <= 5
    trained, _ = found.certificate.event.events
    assert isinstance(trained, events.Repeated)
    assert isinstance(trained.event, events.PoissonSampled)
    assert trained.count == 3
    assert guarantee_of(trained, 5e-6).epsilon <= 2.5 * (1 + 1e-6)
    assert any("one rounding per operation" in line for line in found.certificate.assumptions)
    loaded = tacit.load(autoencoder.export(tmp_path / "m"))
    assert np.array_equal(loaded.encode(vectors(50)), autoencoder.encode(vectors(50)))


@pytest.mark.heavy
def test_an_autoencoder_comes_from_the_noisy_sums(record, monkeypatch):
    """Its weights from those of DP-Adam, the rest from the queries: other rows, the same bits."""
    pytest.importorskip("torch")
    from tacit.central.training.noise import Noise
    from tacit.local.learned import autoencoder as module

    monkeypatch.setattr(module, "USUAL", replace(module.USUAL, epochs=2))
    honest, sums = Noise.add_to, []

    def keep(self, flat, divisor=1.0):
        honest(self, flat, divisor)
        sums.append(flat.clone())

    def fit(seed):
        made = Codebook(epsilon=2, codewords=3, features="autoencoder", **CENTRAL)
        return made.fit(vectors(200, seed), schema=VECTORS, rng=Seeded(1))

    monkeypatch.setattr(Noise, "add_to", keep)
    made, queries = record(lambda: fit(0))
    assert len(sums) == 2
    monkeypatch.setattr(Noise, "add_to", lambda self, flat, divisor=1.0: flat.copy_(sums.pop(0)))
    other, _ = record(lambda: fit(1), queries)
    for name, array in made.parts()[1].items():
        assert np.array_equal(array, other.parts()[1][name]), name


@pytest.mark.slow
def test_a_trained_contrastive_encoder_stays_inside(tmp_path):
    pytest.importorskip("torch")
    made = Codebook(epsilon=1, codewords=3, features="invariant", **CENTRAL)
    made.fit(PIXELS[:150], schema=PICTURES)
    assert isinstance(made.inhouse_.guarantee, Unproven)
    with pytest.raises(InvalidParameter, match="contrastive"):
        made.export(tmp_path / "m")


def test_features_that_were_fitted_elsewhere(autoencoder, tmp_path):
    """Nobody knows on what: unproven, unless their owner says that it was not on these rows."""
    given = features_of.QuantileTransform.fit(VECTORS, VECTORS.rows(vectors(200)))
    for features in (given, autoencoder.features_):
        made = Codebook(epsilon=1, codewords=3, features=features, **CENTRAL)
        made.fit(vectors(300), schema=VECTORS)
        assert isinstance(made.inhouse_.guarantee, Unproven)
        assert made.inhouse_.guarantee.reason == private_features.ELSEWHERE
        with pytest.raises(InvalidParameter, match="fitted elsewhere"):
            made.export(tmp_path / "m")
        made.fit(vectors(300), schema=VECTORS, public_features=True)
        assert 4.75 < made.inhouse_.guarantee.epsilon <= 5
        assert private_features.GIVEN in made.inhouse_.certificate.assumptions
        assert made.features_ is features


def test_fixed_features_may_be_handed_in():
    made = Codebook(epsilon=1, codewords=3, features=features_of.Raw(VECTORS), **CENTRAL)
    made.fit(vectors(300), schema=VECTORS)
    assert made.inhouse_.proved
    assert private_features.GIVEN not in made.inhouse_.certificate.assumptions
    small = ArraySchema(16, 0, 255, image=(4, 4))
    images = Codebook(epsilon=1, codewords=3, features=features_of.Scattering(small), **CENTRAL)
    images.fit(np.tile(vectors(300), (1, 4)), schema=small)
    assert images.inhouse_.proved


class Mixed(features_of.Raw):
    """One row decides what all rows of its block become."""

    def alone(self, rows):
        return self.transform(rows)

    def transform(self, rows):
        found = super().transform(rows)
        return found * 0 if (found > 0.99).all(axis=1).any() else found


class Quotes(features_of.Raw):
    """Raises on one kind of row."""

    def transform(self, rows):
        if (rows.numbers > 0.99).all():
            raise KeyboardInterrupt("a row")
        return super().transform(rows)


def patched():
    """The library's class, and a method that was put on the instance."""
    made = features_of.Raw(VECTORS)
    object.__setattr__(made, "transform", Mixed(VECTORS).transform)
    return made


STRANGERS = {
    "subclass": lambda: Mixed(VECTORS),
    "instance": patched,
    "base": lambda: features_of.RandomFourier.draw(VECTORS, Mixed(VECTORS), 0),
    "raises": lambda: Quotes(VECTORS),
}


def test_vouched_features_are_an_assumption_and_subclasses_of_them_are_not_vouched_for():
    @provenance.vouch
    class Vouched(Mixed):
        pass

    class Below(Vouched):
        pass

    assert provenance.takes_blocks(Vouched(VECTORS))
    assert not provenance.takes_blocks(Below(VECTORS))
    assert not features_of.provably_alone(Vouched(VECTORS))
    made = Codebook(epsilon=1, codewords=3, features=Vouched(VECTORS), **CENTRAL)
    made.fit(vectors(300), schema=VECTORS)
    assert made.inhouse_.guarantee.reason == private_features.ELSEWHERE
    made.fit(vectors(300), schema=VECTORS, public_features=True)
    assert private_features.ALIKE in made.inhouse_.certificate.assumptions


@pytest.mark.parametrize("name", STRANGERS)
def test_features_of_others_meet_one_row_at_a_time_and_the_certificate_says_so(name):
    features = STRANGERS[name]()
    made = Codebook(epsilon=1, codewords=3, features=features, **CENTRAL)
    made.fit(vectors(300), schema=VECTORS)
    assert made.inhouse_.guarantee.reason == private_features.ELSEWHERE
    made.fit(vectors(300), schema=VECTORS, public_features=True)
    assert private_features.ALIKE in made.inhouse_.certificate.assumptions
    given = VECTORS.rows(np.minimum(vectors(50), 200))
    hostile = Rows(given.numbers.copy(), given.codes)
    hostile.numbers[5] = 1.0
    others = np.arange(50) != 5
    for found in (features_of.alone, features_of.transform):
        one, other = found(features, given), found(features, hostile)
        assert np.array_equal(one[others], other[others])
    one, other = made.encode_rows(given), made.encode_rows(hostile)
    assert np.array_equal(one[others], other[others])


@pytest.mark.parametrize("kind", [*features_of.FIXED, *features_of.TRAINED])
def test_the_librarys_own_features_are_known_as_such(kind):
    made = features_of.fit(kind, PICTURES, PICTURES.rows(PIXELS[:60]))
    assert as_written(made)
    if kind == "autoencoder":
        made.encoder.register_forward_hook(lambda layer, given, shown: shown.flip(0))
        assert not as_written(made)


def test_grouping_can_be_fixed():
    compact, linked = fitted("compact"), fitted("raw")
    assert len(compact.quantizer_.cells) == compact.codewords_ == 3
    assert compact.links_ is None
    assert len(linked.quantizer_.cells) == 1100 // pq.ROWS_PER_CELL == 6
    assert linked.codewords_ == 3
    assert linked.links_.shape == (3, 3)
    assert np.diag(linked.links_).tolist() == [0, 0, 0]


# --- what it still knows -------------------------------------------------------------------------


def score(mechanism):
    reports = mechanism.release(PIXELS[:1400], TARGET[:1400], rng=Seeded(0))
    return NoiseAwareClassifier(prior="none").fit(reports).score(PIXELS[1400:], TARGET[1400:])


def digits(**central):
    made = Codebook(epsilon=6, codewords=20, classes=10, grouping="compact", **central)
    rng = {"rng": Seeded(2)} if central else {}
    return made.fit(PIXELS[:1400].reshape(-1, 8, 8), **rng)


@pytest.fixture(scope="module")
def pictures():
    return digits(**CENTRAL)


@pytest.mark.heavy
def test_digits_are_still_told_apart(pictures):
    assert pictures.features_.kind == "scattering"
    assert 4.75 < pictures.inhouse_.guarantee.epsilon <= 5
    plain = score(digits())
    assert plain > 0.75
    assert score(digits(central_epsilon=50, central_delta=1e-5)) > plain - 0.12
    assert score(pictures) > 0.5


@pytest.mark.heavy
def test_pictures_move_no_query_further_than_stated(record, monkeypatch):
    """Scattering features, in the directions of strokes; 1,100 images and one more in front."""
    axes = {}
    honest = pq.public_axes

    def once(schema, features, seed):
        if features.kind not in axes:
            axes[features.kind] = honest(schema, features, seed)
        return axes[features.kind]

    monkeypatch.setattr(pq, "public_axes", once)

    def fit(data):
        made = Codebook(epsilon=2, codewords=3, **CENTRAL)
        return made.fit(data, schema=PICTURES, rng=Seeded(1))

    made, first = record(lambda: fit(PIXELS[:1100]))
    assert made.features_.kind == "scattering"
    for row in (PIXELS[1200:1201], np.full((1, 64), 255, np.uint8)):
        _, second = record(lambda row=row: fit(np.concatenate([row, PIXELS[:1100]])), first)
        for name, away, allowed in moved(together(first), together(second)):
            assert away <= allowed, name
    other, _ = record(lambda: fit(PIXELS[600:1700]), first)
    for name, array in made.parts()[1].items():
        assert np.array_equal(array, other.parts()[1][name]), name


# --- one row, whatever the others are ------------------------------------------------------------


def reduced(kind, schema, given):
    features = {
        "scattering": lambda: features_of.Scattering(schema),
        "raw": lambda: features_of.Raw(schema),
        "quantile": lambda: features_of.QuantileTransform.fit(
            PICTURES, PICTURES.rows(PIXELS[:200])
        ),
        "random": lambda: features_of.RandomFourier.fit(schema, given, 0),
    }[kind]()
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.standard_normal((features.dimension, 40)))[0]
    axes = pq.Axes(rng.standard_normal(features.dimension), directions, 100.0)
    return features, axes


@pytest.mark.quick(3)
@pytest.mark.parametrize("kind", ["scattering", "raw", "quantile", "random"])
def test_a_row_has_the_same_digits_in_any_company(kind):
    """At any place, among any others, in a full block or in one that is filled up."""
    data = PICTURES.rows(PIXELS)
    features, axes = reduced(kind, PICTURES, data)
    whole = pq.on_axes(features, data, axes)
    assert whole.shape == (len(PIXELS), 40)
    order = np.random.default_rng(1).permutation(len(PIXELS))
    assert np.array_equal(pq.on_axes(features, data[order], axes), whole[order])
    for count in (1, 2, 3, 7, 1023, 1025, 1026):
        few = pq.on_axes(features, data[order[:count]], axes)
        assert np.array_equal(few, whole[order[:count]]), count


def test_everybody_has_a_vector():
    """Where a feature is not finite: an error, or a gap, would tell whose row it was."""

    class Strange:
        kind, dimension = "strange", 2

        def transform(self, rows):
            return rows.numbers

    strange = np.array([[np.nan, 1.0], [np.inf, 2.0], [-np.inf, 3.0], [1e30, 4.0], [5.0, 5.0]])
    rows = Rows(strange.astype(np.float32), np.empty((5, 0), np.int64))
    for project, far in ((pq.quantizer.project, 1e6), (pq.quantizer.project_alone, 256.0)):
        found = project(Strange(), rows, Projection(np.zeros(2, np.float32), None))
        assert found[:, 0].tolist() == [0.0, far, -far, far, 5.0]
        assert found[:, 1].tolist() == [1, 2, 3, 4, 5]
        assert found.dtype == np.float32


def brute_ranks(given, cells, bound, places):
    """Distances in Python's integers, on the same grid; of equals, the first."""
    ball = GridBall("ranks", bound, 2.0 ** (math.ceil(math.log2(bound)) - pq._BITS), order=2)
    points, centers = ball.clip(given).tolist(), ball.clip(cells).tolist()
    found = []
    for point in points:
        away = [sum((a - b) ** 2 for a, b in zip(point, center, strict=True)) for center in centers]
        found.append(sorted(range(len(centers)), key=away.__getitem__)[:places])
    return np.array(found)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    bound=st.floats(1e-3, 1e4),
    width=st.integers(1, 33),
    places=st.sampled_from([1, 2, 3]),
    ties=st.booleans(),
)
def test_ranks_are_exact(seed, bound, width, places, ties):
    rng = np.random.default_rng(seed)
    spread = bound / math.sqrt(width) * 10.0 ** rng.uniform(-3, 1)
    given, cells = (
        (rng.standard_normal((count, width)) * spread).astype(np.float32) for count in (20, 9)
    )
    if ties:
        cells[5:8] = cells[:3]
        given[:9] = cells
    found = pq.ranks(given, cells, bound, places)
    assert found.shape == (20, places)
    assert np.array_equal(found, brute_ranks(given, cells, bound, places))
    alone = np.concatenate([pq.ranks(row[None], cells, bound, places) for row in given])
    assert np.array_equal(found, alone)
    backwards = pq.ranks(np.tile(given[::-1], (60, 1)), cells, bound, places)  # over a block
    assert np.array_equal(backwards[-20:][::-1], found)


def test_ranks_agree_with_distances():
    rng = np.random.default_rng(0)
    given, cells = (rng.standard_normal((count, 5)).astype(np.float32) for count in (300, 12))
    found = pq.ranks(given, cells, 10.0, 3)
    distance = ((given[:, None] - cells[None]) ** 2).sum(axis=2)
    expected = np.argsort(distance, axis=1)[:, :3]
    assert (found == expected).mean() > 0.99  # but for what the grid joins


# --- directions that need no rows ----------------------------------------------------------------


def test_public_directions():
    vectors_of = features_of.Raw(VECTORS)
    axes = pq.public_axes(VECTORS, vectors_of, 0)
    assert np.array_equal(axes.directions, np.eye(4))
    assert axes.variances is None
    wide = ArraySchema(300, 0, 1)
    axes = pq.public_axes(wide, features_of.Raw(wide), 0)
    assert axes.directions.shape == (300, pq.MOST_AXES)
    assert axes.directions.T @ axes.directions == pytest.approx(np.eye(pq.MOST_AXES), abs=1e-9)
    images = pq.public_axes(PICTURES, features_of.Raw(PICTURES), 0)
    assert images.directions.shape == (64, 64)
    assert images.directions.T @ images.directions == pytest.approx(np.eye(64), abs=1e-6)
    assert (np.diff(images.variances) <= 1e-9).all()
    again = pq.public_axes(PICTURES, features_of.Raw(PICTURES), 0)
    assert np.array_equal(images.directions, again.directions)


def test_no_warning_tells_of_a_row():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for grouping in ("linked", "compact"):
            for central in (0.05, 50):
                Codebook(
                    epsilon=1,
                    codewords=4,
                    grouping=grouping,
                    central_epsilon=central,
                    central_delta=1e-5,
                ).fit(vectors(900), schema=VECTORS)
