"""Regressors of numeric outcomes through the noise of reports."""

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.local.inference import moments
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

BOUNDS = tacit.Numeric(0, 100)
INHOUSE, PEOPLE = 800, 8000


@pytest.fixture(scope="module")
def table():
    """Hours that depend on two columns of a table; a linear model explains three quarters."""
    rng = np.random.default_rng(0)
    size = INHOUSE + PEOPLE + 2000
    age, place = rng.uniform(20, 70, size), rng.choice(["north", "south", "west"], size)
    rows = pd.DataFrame({"age": age, "place": place, "noise": rng.normal(size=size)})
    hours = 20 + (age - 20) + 12.0 * (place == "south") + rng.normal(0, 8, size)
    return rows, hours


def pieces(table):
    rows, hours = table
    people, rest = slice(INHOUSE, INHOUSE + PEOPLE), slice(INHOUSE + PEOPLE, None)
    return rows[:INHOUSE], (rows[people], hours[people]), (rows[rest], hours[rest])


def learned(table, epsilon, seed=0, **settings):
    inhouse, people, _ = pieces(table)
    collection = tacit.Collection(epsilon=epsilon, people=PEOPLE, outcome=BOUNDS, **settings)
    collection.fit(inhouse)
    reports = collection.release(*people, rng=Seeded(seed))
    return collection, reports, collection.learn(reports)


@pytest.mark.parametrize(("epsilon", "least"), [(1, 0.5), (2, 0.6), (4, 0.65)])
def test_a_regression_is_learned(table, epsilon, least):
    _, _, test = pieces(table)
    collection, reports, model = learned(table, epsilon)
    assert model.score(*test) > least
    assert str(model.guarantee_) == f"{epsilon}-DP (local, any-two-inputs, unit: record)"
    assert collection.event == reports.event == collection.certificate.event
    predicted = model.predict(test[0])
    assert predicted.min() >= BOUNDS.lower
    assert predicted.max() <= BOUNDS.upper
    assert not model.inhouse_.proved


def test_without_signal_it_is_the_mean(table):
    inhouse, people, test = pieces(table)
    shuffled = np.random.default_rng(1).permutation(people[1])
    for seed in range(3):
        collection = tacit.Collection(epsilon=0.3, people=PEOPLE, outcome=BOUNDS).fit(inhouse)
        model = collection.learn(collection.release(people[0], shuffled, rng=Seeded(seed)))
        assert model.predict(test[0]).std() < 0.35 * test[1].std()


def test_a_second_round_follows_the_first(table):
    inhouse, (rows, hours), test = pieces(table)
    half = PEOPLE // 2
    first = tacit.Collection(epsilon=2, people=PEOPLE, outcome=BOUNDS, rounds=2).fit(inhouse)
    one = first.release(rows[:half], hours[:half], rng=Seeded(0))
    second = first.adapt(first.learn(one))
    other = second.release(rows[half:], hours[half:], rng=Seeded(1))
    assert second.guarantee == first.guarantee
    assert second.learn([one, other]).score(*test) > 0.55


def test_reports_mechanism_and_model_are_stored(table, tmp_path):
    _, _, test = pieces(table)
    for epsilon in (1, 4):
        collection, reports, model = learned(table, epsilon)
        read = tacit.Reports.read(reports.write(tmp_path / f"{epsilon}.parquet"))
        assert read.channel == reports.channel
        again = tacit.MomentsRegressor(inhouse=pieces(table)[0]).fit(read)
        np.testing.assert_allclose(again.predict(test[0]), model.predict(test[0]))
        loaded = tacit.load(model.save(tmp_path / f"model-{epsilon}"))
        np.testing.assert_array_equal(loaded.predict(test[0]), model.predict(test[0]))
        mechanism = tacit.load(collection.save(tmp_path / f"mechanism-{epsilon}"))
        assert mechanism.outcome == BOUNDS
        assert mechanism.channel() == collection.mechanism_.channel()


def test_in_house_rows_under_a_central_guarantee_may_leave(table, tmp_path):
    from tacit.data.schema import Categorical, Continuous, TableSchema

    schema = TableSchema(
        (
            Continuous("age", 20, 70),
            Categorical("place", ("north", "south", "west")),
            Continuous("noise", -6, 6),
        )
    )
    inhouse, people, test = pieces(table)
    settings = {"central_epsilon": 4.0, "central_delta": 1e-6}
    collection = tacit.Collection(epsilon=2, people=PEOPLE, outcome=BOUNDS, **settings)
    collection.fit(inhouse, schema=schema)
    model = collection.learn(collection.release(*people, rng=Seeded(1)))
    assert model.score(*test) > 0.3
    assert model.inhouse_.proved
    assert tacit.load(model.export(tmp_path / "model")).inhouse_.may_leave


def test_codewords_have_means_shrunk_to_the_overall_mean(table, tmp_path):
    inhouse, people, test = pieces(table)
    codebook = tacit.Codebook(epsilon=4, people=PEOPLE, outcome=BOUNDS).fit(inhouse)
    reports = codebook.release(*people, rng=Seeded(0))
    model = tacit.NoiseAwareRegressor().fit(reports)
    assert model.score(*test) > 0.35
    taught = tacit.MomentsRegressor(inhouse=inhouse).fit(reports)
    assert taught.score(*test) > 0.4
    unlabelled = codebook.release(test[0], rng=Seeded(1))
    assert np.corrcoef(model.predict(unlabelled), test[1])[0, 1] > 0.4
    loaded = tacit.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(test[0]), model.predict(test[0]))
    quiet = tacit.Codebook(epsilon=0.05, people=PEOPLE, outcome=BOUNDS).fit(inhouse)
    found = tacit.NoiseAwareRegressor().fit(quiet.release(*people, rng=Seeded(2)))
    assert found.means_.std() < 0.1 * test[1].std() + model.means_.std() / 3


def test_the_covariance_of_sets_is_that_of_draws():
    law = SubsetSelection(categories=6, epsilon=1.0)
    shares = np.array([0.3, 0.05, 0.1, 0.25, 0.2, 0.1])
    raw = np.random.default_rng(0).choice(6, 60_000, p=shares)
    named = np.zeros((60_000, 6))
    np.put_along_axis(named, law.release(raw, Seeded(1)), 1, axis=1)
    np.testing.assert_allclose(moments.set_covariance(law, shares), np.cov(named.T), atol=5e-3)


def test_labels_and_outcomes_do_not_mix(table):
    inhouse, people, _ = pieces(table)
    with pytest.raises(InvalidParameter, match="classes must be absent with an outcome"):
        tacit.Collection(epsilon=1, people=10, classes=2, outcome=BOUNDS)
    with pytest.raises(InvalidParameter, match="classes must be given"):
        tacit.Collection(epsilon=1, people=10)
    with pytest.raises(InvalidParameter, match=r"outcome must be tacit\.Numeric"):
        tacit.Partitions(epsilon=1, people=10, outcome=(0, 1))
    with pytest.raises(InvalidParameter, match="outcome must be absent for images"):
        tacit.Collection(epsilon=1, people=10, outcome=BOUNDS).fit(np.zeros((40, 8, 8)))
    collection = tacit.Collection(epsilon=1, people=PEOPLE, outcome=BOUNDS).fit(inhouse)
    with pytest.raises(InvalidData, match="outcomes must be one per row"):
        collection.release(people[0], people[1][:-1])
    reports = collection.release(*people, rng=Seeded(0))
    with pytest.raises(InvalidData, match="MomentsRegressor"):
        tacit.ProportionsClassifier(inhouse=inhouse).fit(reports)
    other = tacit.Collection(epsilon=1, people=PEOPLE, classes=2).fit(inhouse)
    told = other.release(people[0], (people[1] > 50).astype(int), rng=Seeded(0))
    with pytest.raises(InvalidData, match="numeric outcomes"):
        tacit.MomentsRegressor(inhouse=inhouse).fit(told)
