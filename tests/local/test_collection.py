"""Collections: what users start with, in one round and in several."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import tacit
from tacit.local.collection import Collection
from tacit.local.inference import proportions_classifier
from tacit.local.inference.noise_aware import ShiftWarning
from tacit.local.learned.base import NotFitted
from tacit.privacy import errors
from tacit.privacy.randomness import Seeded

pytestmark = pytest.mark.filterwarnings("ignore::tacit.local.inference.noise_aware.ShiftWarning")
CLASSES, COLUMNS, INHOUSE, PEOPLE = 4, 24, 400, 1200


@pytest.fixture(scope="module")
def sensors():
    """Readings that mix a few sources; the label is a direction of the sources."""
    rng = np.random.default_rng(0)
    sources = rng.normal(size=(3000, 6))
    readings = sources @ rng.normal(size=(6, COLUMNS)) + 0.3 * rng.normal(size=(3000, COLUMNS))
    labels = (sources[:, :CLASSES]).argmax(axis=1)
    return pd.DataFrame(readings, columns=[f"s{i}" for i in range(COLUMNS)]), labels


def pieces(sensors):
    rows, labels = sensors
    people = slice(INHOUSE, INHOUSE + PEOPLE)
    rest = slice(INHOUSE + PEOPLE, None)
    return rows[:INHOUSE], (rows[people], labels[people]), (rows[rest], labels[rest])


@pytest.fixture(scope="module")
def learned(sensors):
    inhouse, people, _ = pieces(sensors)
    collection = Collection(epsilon=4, people=PEOPLE, classes=CLASSES).fit(inhouse)
    reports = collection.release(*people, rng=Seeded(0))
    return collection, reports, collection.learn(reports)


def test_a_table_of_sensors_is_learned(sensors, learned):
    _, _, test = pieces(sensors)
    assert learned[2].score(*test) > 0.74


def test_everything_carries_its_guarantee(learned):
    collection, reports, model = learned
    stated = "4-DP (local, any-two-inputs, unit: record)"
    for thing in (collection.guarantee, reports.guarantee, model.guarantee_):
        assert str(thing) == stated
    assert collection.event == reports.event == collection.certificate.event
    assert not model.inhouse_.proved
    model.certificate.verify()
    assert any("in-house" in line for line in model.certificate.not_protected)


def test_rounds_learn_from_all_reports(sensors):
    inhouse, (rows, labels), test = pieces(sensors)
    first = Collection(epsilon=4, people=PEOPLE, classes=CLASSES, rounds=2).fit(inhouse)
    half = PEOPLE // 2
    reports = [first.release(rows[:half], labels[:half], rng=Seeded(0))]
    second = first.adapt(first.learn(reports))
    assert second.round_ == 2
    assert second.guarantee == first.guarantee
    assert (second.mechanism_.encode(rows) != first.mechanism_.encode(rows)).any()
    reports.append(second.release(rows[half:], labels[half:], rng=Seeded(1)))
    model = second.learn(reports)
    assert model.reports_ == PEOPLE
    assert model.score(*test) > 0.75
    with pytest.raises(errors.InvalidParameter, match="round must be below 2"):
        second.adapt(model)


def test_rounds_of_other_collections_are_refused(sensors, learned):
    inhouse, people, _ = pieces(sensors)
    _, reports, _ = learned
    other = Collection(epsilon=4, people=PEOPLE, classes=CLASSES).fit(inhouse[::-1])
    with pytest.raises(errors.InvalidData, match="rounds of one collection"):
        other.learn([reports, other.release(*people, rng=Seeded(1))])
    another = Collection(epsilon=2, people=PEOPLE, classes=CLASSES).fit(inhouse)
    with pytest.raises(errors.InvalidData, match="rounds of one collection"):
        another.learn([reports, another.release(*people, rng=Seeded(1))])


def test_nobody_counts_twice(learned):
    """The same report twice is refused, as one person would count twice."""
    _, reports, _ = learned
    with pytest.raises(errors.InvalidData, match=r"once|twice"):
        learned[0].learn([reports, reports])


def test_models_are_saved_without_rows(sensors, learned, tmp_path):
    _, _, test = pieces(sensors)
    model = learned[2]
    again = tacit.load(model.save(tmp_path / "model"))
    np.testing.assert_allclose(again.predict_proba(test[0]), model.predict_proba(test[0]))
    assert again.inhouse is None
    assert again.certificate.to_json() == model.certificate.to_json()
    with pytest.raises(errors.TacitError, match="in-house"):
        model.export(tmp_path / "public")
    saved = tacit.load(learned[0].save(tmp_path / "mechanism"))
    assert saved.kind == "partitions"


def test_nothing_shows_rows(learned):
    collection, _, model = learned
    assert repr(model) == "ProportionsClassifier(inhouse=…)"
    assert "round=1 of 1" in repr(collection).replace("'", "")
    assert "mechanism" in repr(collection)


def test_images_get_partitions_and_protected_rows_a_codebook(tmp_path):
    images, digits = load_digits(return_X_y=True)
    made = Collection(epsilon=4, people=1200, classes=10).fit(images[:400].reshape(-1, 8, 8))
    assert made.mechanism_.features_.kind == "scattering"
    reports = made.release(images[400:1600].reshape(-1, 8, 8), digits[400:1600], rng=Seeded(0))
    model = made.learn(reports)
    score = model.score(images[1600:].reshape(-1, 8, 8), digits[1600:])
    assert score > 0.75
    again = tacit.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(images[1600:]), model.predict(images[1600:]))
    with pytest.raises(errors.InvalidParameter, match="one round"):
        model.next_round(images[:400])
    private = Collection(
        epsilon=4, people=1200, classes=10, central_epsilon=3, central_delta=1e-5
    ).fit(images[:400].astype(np.uint8), image=(8, 8), rng=Seeded(0))
    assert private.mechanism_.kind == "codebook"
    assert private.mechanism_.inhouse_.proved
    with pytest.raises(errors.InvalidParameter, match="rounds must be 1"):
        Collection(epsilon=4, people=1200, classes=10, rounds=2).fit(images[:400], image=(8, 8))


def signals(count, rng):
    """Make windows of three channels, whose frequency is the class and whose phase is not."""
    kinds = rng.integers(0, 3, count)
    time = np.arange(64) / 64
    phase, size = rng.uniform(0, 2 * np.pi, (count, 1, 1)), rng.uniform(0.5, 1.5, (count, 1, 3))
    angle = 2 * np.pi * np.array([3, 7, 15])[kinds][:, None, None] * time[:, None]
    return size * np.sin(angle + phase) + 0.5 * rng.normal(size=(count, 64, 3)), kinds


def test_signals_are_told_apart_by_frequency():
    rng = np.random.default_rng(0)
    inhouse, _ = signals(600, rng)
    people, kinds = signals(1000, rng)
    rows, truth = signals(300, rng)
    made = Collection(epsilon=4, people=1000, classes=3).fit(inhouse, signal=(64, 3))
    model = made.learn(made.release(people, kinds, rng=Seeded(0)))
    assert model.score(rows, truth) > 0.9
    np.testing.assert_array_equal(model.predict(rows), model.predict(rows.reshape(300, -1)))
    with pytest.raises(errors.InvalidData, match=r"\(n, 192\) or \(n, 64, 3\)"):
        made.release(people[:, :32], kinds)


def test_images_in_colour_are_told_apart_by_hue():
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 1500)
    images = rng.uniform(0, 90, (1500, 10, 10, 3))
    images[np.arange(1500), :, :, kinds] += rng.uniform(20, 120, (1500, 1, 1))
    images = images.astype(np.uint8)
    made = Collection(epsilon=4, people=800, classes=3).fit(images[:400])
    assert made.mechanism_.features_.kind == "patches"
    model = made.learn(made.release(images[400:1200], kinds[400:1200], rng=Seeded(0)))
    assert model.score(images[1200:], kinds[1200:]) > 0.7


def test_people_unlike_the_inhouse_rows_are_noticed(sensors):
    inhouse, _, (rows, labels) = pieces(sensors)
    collection = Collection(epsilon=8, people=PEOPLE, classes=CLASSES).fit(inhouse)
    reports = collection.release(rows * 0.2 + 2, labels, rng=Seeded(0))
    with pytest.warns(ShiftWarning, match="differ from the in-house ones"):
        collection.learn(reports)
    alike = collection.release(rows, labels, rng=Seeded(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShiftWarning)
        assert collection.learn(alike).shift_.p_value > 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 0}, "rounds must be"),
        ({"epsilon": -1}, "epsilon must be"),
        ({"people": None}, "people must be given"),
        ({"classes": 1}, "classes must be"),
        ({"unit": "household"}, "unit must be"),
    ],
)
def test_parameters_are_checked_at_once(changes, message):
    good = {"epsilon": 1, "people": 500, "classes": 2}
    with pytest.raises(errors.InvalidParameter, match=message):
        Collection(**{**good, **changes})


def test_an_unfitted_collection_says_so():
    with pytest.raises(NotFitted, match="Call fit"):
        Collection(epsilon=1, people=500, classes=2).release(np.zeros((1, 3)))


def test_reports_of_others_are_refused(sensors, learned):
    _, people, test = pieces(sensors)
    collection, reports, model = learned
    with pytest.raises(errors.InvalidData, match="must have labels"):
        collection.learn(collection.release(people[0], rng=Seeded(0)))
    with pytest.raises(errors.InvalidData, match="clean"):
        model.predict(reports)
    with pytest.raises(errors.InvalidData, match=r"Collection\.learn"):
        tacit.NoiseAwareClassifier().fit(reports)
    with pytest.raises(errors.InvalidData, match=r"must come from a codebook"):
        tacit.StudentClassifier(inhouse=test[0]).fit(reports)


# --- people like protected in-house rows ---------------------------------------------------------


def drawn(seed, shift=0.0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(shift, 1, size=(6000, 3)) @ rng.normal(size=(3, 8))
    rows = (rows + 0.5 * rng.normal(size=rows.shape)).clip(-6, 6)
    return pd.DataFrame(rows, columns=[f"c{i}" for i in range(8)]), (rows[:, 0] > 0).astype(int)


BOUNDS = tacit.TableSchema(tuple(tacit.Continuous(f"c{i}", -6, 6) for i in range(8)))


@pytest.mark.parametrize("central_epsilon", [1, 5])
def test_the_noise_of_a_central_guarantee_is_no_shift(central_epsilon, tmp_path):
    for seed in range(5):
        rows, labels = drawn(seed)
        made = tacit.Codebook(
            epsilon=4, people=3000, classes=2, central_epsilon=central_epsilon, central_delta=1e-5
        )
        made.fit(rows[:3000], schema=BOUNDS, seed=seed, rng=Seeded(seed))
        saved = tacit.load(made.save(tmp_path / str(seed)))
        assert (saved.count_variance_ == made.count_variance_).all()
        reports = saved.release(rows[3000:], labels[3000:], rng=Seeded(100 + seed))
        with warnings.catch_warnings():
            warnings.simplefilter("error", ShiftWarning)
            tacit.NoiseAwareClassifier().fit(reports)


def test_a_shift_is_noticed_beside_exact_counts():
    rows, labels = drawn(0)
    others, _ = drawn(0, shift=1.0)
    made = tacit.Codebook(epsilon=4, people=3000, classes=2).fit(rows[:3000], schema=BOUNDS)
    reports = made.release(others[3000:], labels[3000:], rng=Seeded(1))
    with pytest.warns(ShiftWarning):
        tacit.NoiseAwareClassifier().fit(reports)


def test_errors_name_the_collection(sensors, learned):
    inhouse, (rows, _), _ = pieces(sensors)
    with pytest.raises(errors.InvalidParameter, match=r"^Collection: epsilon must be"):
        Collection(epsilon=-1, people=PEOPLE, classes=CLASSES)
    with pytest.raises(errors.InvalidData, match=r"^Collection.fit: in-house rows must be at leas"):
        Collection(epsilon=1, people=PEOPLE, classes=CLASSES).fit(inhouse[:9])
    with pytest.raises(errors.InvalidData, match=r"^Collection.release: labels must be"):
        learned[0].release(rows[:2], [0, 99])
    with pytest.raises(errors.InvalidData, match=r"^Collection.learn: reports must have labels"):
        learned[0].learn(learned[0].release(rows))
    made = Collection(epsilon=4, people=900, classes=2, central_epsilon=5, central_delta=1e-5)
    with pytest.raises(errors.TacitError, match=r"^Collection.fit: "):
        made.fit(inhouse)  # bounds must be declared


# --- shares of labels ----------------------------------------------------------------------------


def test_shares_of_labels_have_intervals(sensors, learned, tmp_path):
    _, (_, labels), _ = pieces(sensors)
    model = learned[2]
    shares, intervals = model.class_shares()
    truth = np.bincount(labels, minlength=CLASSES) / PEOPLE
    assert shares.sum() == pytest.approx(1)
    assert np.abs(shares - truth).max() < 0.1
    assert ((intervals[:, 0] <= shares) & (shares <= intervals[:, 1])).all()
    with pytest.raises(errors.InvalidParameter, match="must hold its reports"):
        tacit.load(model.save(tmp_path / "model")).class_shares()


class Uniform:
    """A model of three classes that is fitted in no time."""

    def predict_proba(self, vectors):
        return np.eye(3)[np.arange(len(vectors)) % 3]


def test_intervals_of_shares_cover(sensors, monkeypatch):
    """A population with shares of .6, .3 and .1, at ε = 2."""
    monkeypatch.setattr(proportions_classifier.mixture, "fit", lambda *_, **__: Uniform())
    monkeypatch.setattr(proportions_classifier.tempering, "power", lambda *_: 1.0)
    rows, truth = sensors[0], np.array([0.6, 0.3, 0.1])
    made = Collection(epsilon=2, people=1000, classes=3).fit(rows[:INHOUSE])
    rng, missed, away = np.random.default_rng(0), 0, []
    for seed in range(100):
        chosen = rng.integers(INHOUSE, len(rows), 1000)
        reports = made.release(rows.iloc[chosen], rng.choice(3, 1000, p=truth), rng=Seeded(seed))
        shares, ends = made.learn(reports).class_shares(0.9)
        missed += int(((truth < ends[:, 0]) | (truth > ends[:, 1])).sum())
        away.append(shares - truth)
    # At most a tenth of 300 is missed; the labels of one population depend on each other.
    assert missed <= 45
    assert np.abs(np.mean(away, axis=0)).max() < 0.03
    assert ends[0, 1] - ends[0, 0] < 0.35
