"""The student: what it is taught, that it beats its teacher, and what it says of in-house rows."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

import tacit
from tacit.data.schema import ArraySchema
from tacit.local.inference import student
from tacit.local.inference.noise_aware import ShiftWarning
from tacit.local.inference.student import StudentClassifier
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import NotPrivate
from tacit.privacy.randomness import Seeded

NAMES = np.array(["left", "right"])
SCHEMA = ArraySchema(3, -6.0, 6.0, outside="clip")


def people(count, seed):
    """A label that a line decides, across the cells of a codebook."""
    rng = np.random.default_rng((seed, 77))  # not the stream that noise is drawn from
    rows = rng.standard_normal((count, 3)) * [2.0, 1.0, 0.5]
    return rows, NAMES[(rows @ [0.6, 1.0, 0.0] > 0).astype(int)]


INHOUSE = people(1500, 0)[0]


def codebook(grouping="compact", **settings):
    made = Codebook(epsilon=4.0, classes=NAMES, codewords=6, grouping=grouping, **settings)
    return made.fit(INHOUSE, schema=SCHEMA)


@pytest.fixture(scope="module")
def mechanism():
    return codebook()


@pytest.fixture(scope="module")
def reports(mechanism):
    return mechanism.release(*people(5000, 1), rng=Seeded(1))


@pytest.fixture(scope="module")
def fitted(reports):
    return StudentClassifier(inhouse=INHOUSE).fit(reports)


@pytest.fixture(scope="module")
def unseen():
    return people(2000, 2)


def test_scikit_learn(fitted, reports, unseen):
    settings = {"teaching": "table", "hidden": (5,), "penalty": 2.0, "prior": "none", "seed": 3}
    model = StudentClassifier(inhouse=INHOUSE, **settings)
    params = clone(model).get_params()
    assert np.array_equal(params.pop("inhouse").rows, INHOUSE)
    unset = dict.fromkeys(("central_epsilon", "central_delta", "priors", "costs", "threshold"))
    usual = {"inhouse_public": False, "device": "cpu"}
    assert params == {**settings, **unset, **usual}
    for call in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError):
            call(unseen[0])
    with pytest.raises(NotFittedError):
        model.save("nowhere")
    pipeline = Pipeline([("learn", StudentClassifier(inhouse=INHOUSE))]).fit(reports)
    assert np.array_equal(pipeline.predict(unseen[0]), fitted.predict(unseen[0]))
    assert pipeline.score(*unseen) == fitted.score(*unseen)


def test_the_student_beats_the_teacher(fitted, unseen):
    """The line runs through codewords: a table cannot follow it."""
    taught, table = fitted.score(*unseen), fitted.teacher_.score(*unseen)
    assert taught > 0.93
    assert taught > table + 0.04
    proba = fitted.predict_proba(unseen[0])
    assert np.allclose(proba.sum(axis=1), 1)
    assert fitted.classes_.tolist() == NAMES.tolist()


@pytest.mark.parametrize("teaching", ["table", "likelihood"])
def test_both_ways_of_teaching(reports, unseen, teaching):
    model = StudentClassifier(inhouse=INHOUSE, teaching=teaching, hidden=(30,)).fit(reports)
    assert len(model.network_.weights) == (2 if teaching == "table" else 1)
    assert model.score(*unseen) > 0.85


def test_auto_follows_the_grouping(fitted, unseen):
    assert len(fitted.network_.weights) == 1
    linked = codebook("linked")
    assert linked.codewords_ < len(linked.quantizer_.cells)
    reports = linked.release(*people(3000, 1), rng=Seeded(1))
    model = StudentClassifier(inhouse=INHOUSE, hidden=(20,)).fit(reports)
    assert len(model.network_.weights) == 2
    # It was taught the labels of the codewords: it says the same where rows are inside of them.
    agreed = model.predict(INHOUSE) == model.teacher_.predict(INHOUSE)
    assert agreed.mean() > 0.9


def test_released_rows_are_the_teachers(fitted, mechanism, unseen):
    shown = mechanism.release(unseen[0], rng=Seeded(2))
    assert np.array_equal(fitted.predict_proba(shown), fitted.teacher_.predict_proba(shown))
    assert fitted.score(shown, unseen[1]) > 0.6


def test_towards_whom_it_is_private(fitted, reports):
    assert fitted.guarantee_ == reports.guarantee == fitted.certificate.guarantee
    assert isinstance(fitted.inhouse_guarantee_, NotPrivate)
    assert any("in-house rows" in line for line in fitted.certificate.not_protected)


def test_saved_and_loaded(tmp_path, fitted, mechanism, unseen):
    again = tacit.load(fitted.save(tmp_path / "student"))
    assert isinstance(again, StudentClassifier)
    shown = mechanism.release(unseen[0], rng=Seeded(2))
    for rows in (unseen[0], shown):
        assert np.array_equal(again.predict_proba(rows), fitted.predict_proba(rows))
    assert again.guarantee_ == fitted.guarantee_
    assert isinstance(again.inhouse_guarantee_, NotPrivate)
    assert again.inhouse is None  # in-house rows themselves are not stored
    assert again.hidden == (256,)
    assert again.certificate == fitted.certificate
    stored = {p.name for p in (tmp_path / "student").iterdir()}
    assert stored == {"model.json", "weights.safetensors", "encoder.onnx"}


def test_a_taught_network_loads_too(tmp_path, reports, unseen):
    model = StudentClassifier(inhouse=INHOUSE, teaching="table", hidden=(7, 5)).fit(reports)
    again = tacit.load(model.save(tmp_path / "student"))
    assert again.hidden == (7, 5)
    assert np.array_equal(again.predict_proba(unseen[0]), model.predict_proba(unseen[0]))


def test_shift_is_told_through_the_student(mechanism):
    rows, names = people(5000, 1)
    shifted = mechanism.release(rows[rows[:, 0] > 0], names[rows[:, 0] > 0], rng=Seeded(1))
    with pytest.warns(ShiftWarning):
        StudentClassifier(inhouse=INHOUSE).fit(shifted)
    StudentClassifier(inhouse=INHOUSE, prior="none").fit(shifted)


@pytest.mark.quick(2)
@pytest.mark.parametrize("answers", [[4, 0, 2, 3], [1, 3], [3, 1], [2]])
def test_the_last_layer_has_every_class(answers):
    """Whatever few labels the codewords have, the network says what scikit-learn's says."""
    rows = np.random.default_rng(0).standard_normal((4000, 2)).astype(np.float32)
    quadrant = (rows[:, 0] > 0) + 2 * (rows[:, 1] > 0)
    labels = np.array(answers)[quadrant % len(answers)]
    network = student._taught(rows, labels, 5, (8,), 0)
    proba = network.predict_proba(rows)
    assert proba.shape == (4000, 5)
    assert (proba.argmax(axis=1) == labels).mean() > 0.9
    assert proba[:, np.setdiff1d(np.arange(5), labels)].max() < 1e-6


def test_few_inhouse_rows_are_enough_to_be_taught():
    rows = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(int)
    network = student._taught(rows, labels, 2, (8,), 0)
    assert (network.predict_proba(rows).argmax(axis=1) == labels).mean() > 0.95


def test_refusals(mechanism, reports):
    for wrong, name in (({"teaching": "hope"}, "teaching"), ({"penalty": 0}, "penalty")):
        with pytest.raises(InvalidParameter, match=f"{name} must be"):
            StudentClassifier(inhouse=INHOUSE, **wrong).fit(reports)
    with pytest.raises(InvalidData, match="with labels"):
        StudentClassifier(inhouse=INHOUSE).fit(mechanism.release(INHOUSE, rng=Seeded(0)))
    direct = Direct(epsilon=4, classes=NAMES).fit(INHOUSE, schema=SCHEMA)
    for foreign in (direct.release(*people(50, 1), rng=Seeded(0)), INHOUSE, None):
        with pytest.raises(InvalidData, match="must come from a codebook"):
            StudentClassifier(inhouse=INHOUSE).fit(foreign)
    with pytest.raises(InvalidParameter, match="y must be None"):
        StudentClassifier(inhouse=INHOUSE).fit(reports, people(5000, 1)[1])
    with pytest.raises(InvalidData, match="rows must be an array"):
        StudentClassifier(inhouse=INHOUSE[:, :2]).fit(reports)
