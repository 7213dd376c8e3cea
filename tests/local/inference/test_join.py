"""Clean columns beside released ones: more than either alone, labels from either side."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import tacit
from tacit.data.schema import ArraySchema
from tacit.local.inference.join import JoinClassifier
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.randomness import Seeded

torch.set_num_threads(1)
NAMES = np.array(["no", "yes"])
SCHEMA = ArraySchema(2, -8.0, 8.0, outside="clip")


def people(count, seed):
    """One clean column and two of another party; the label needs both."""
    rng = np.random.default_rng((seed, 77))  # not the stream that noise is drawn from
    clean, theirs = rng.standard_normal((count, 1)), rng.standard_normal((count, 2)) * [2, 1]
    return clean, theirs, NAMES[(2 * clean[:, 0] + theirs[:, 0] > 0).astype(int)]


@pytest.fixture(scope="module")
def codebook():
    return Codebook(epsilon=6.0, codewords=6).fit(people(800, 0)[1], schema=SCHEMA)


@pytest.fixture(scope="module")
def direct():
    given = people(800, 0)[1]
    return Direct(epsilon=40, classes=NAMES, label_share=0.05).fit(given, schema=SCHEMA)


@pytest.fixture(scope="module")
def fitted(codebook):
    clean, theirs, names = people(2000, 1)
    reports = codebook.release(theirs, rng=Seeded(1))
    return JoinClassifier(hidden=()).fit(reports, names, clean=clean)


@pytest.fixture(scope="module")
def unseen():
    return people(2000, 2)


def test_together_is_more_than_either(fitted, codebook, unseen):
    clean, theirs, names = unseen
    shown = codebook.release(theirs, rng=Seeded(2))
    joined = fitted.score(shown, names, clean=clean)
    nothing = np.zeros_like(clean)
    _, train_theirs, train_names = people(2000, 1)
    reports = codebook.release(train_theirs, rng=Seeded(1))
    alone = JoinClassifier(hidden=()).fit(reports, train_names, clean=np.zeros((2000, 1)))
    by_clean = ((clean[:, 0] > 0) == (names == "yes")).mean()
    by_reports = alone.score(shown, names, clean=nothing)
    assert joined > by_clean + 0.04
    assert joined > by_reports + 0.04
    # Rows of people who are not the same ones are no help.
    order = np.random.default_rng(0).permutation(len(names))
    assert fitted.score(shown, names, clean=clean[order]) < joined - 0.05


def test_clean_rows_of_the_other_party(fitted, codebook, unseen):
    clean, theirs, names = unseen
    proba = fitted.predict_proba(theirs, clean=clean)
    assert np.allclose(proba.sum(axis=1), 1)
    assert fitted.score(theirs, names, clean=clean) > 0.85
    assert set(fitted.predict(theirs, clean=clean)) <= set(NAMES)
    at_more = codebook.at(12.0).release(theirs, rng=Seeded(2))
    assert fitted.score(at_more, names, clean=clean) > 0.85


@pytest.mark.parametrize("level", ["latent", "feature"])
def test_levels(codebook, unseen, level):
    clean, theirs, names = people(2000, 1)
    reports = codebook.release(theirs, rng=Seeded(1))
    model = JoinClassifier(hidden=(), level=level).fit(reports, names, clean=clean)
    assert model.network_.center.shape == (1 + (6 if level == "latent" else 2),)
    assert model.score(unseen[1], unseen[2], clean=unseen[0]) > 0.8


def test_labels_that_come_with_the_reports_are_unflipped(direct, unseen):
    clean, theirs, names = people(3000, 1)
    reports = direct.at(20).release(theirs, names, rng=Seeded(1))  # the label gets ε = 1
    assert (NAMES[reports.columns["label"]] == names).mean() < 0.8
    model = JoinClassifier(hidden=()).fit(reports, clean=clean)
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.score(unseen[1], unseen[2], clean=unseen[0]) > 0.85
    confident = model.predict_proba(unseen[1], clean=unseen[0]).max(axis=1)
    assert confident.mean() > 0.75


def test_scikit_learn(unseen):
    model = JoinClassifier(hidden=(3,), level="feature", seed=4)
    wanted = {"hidden": (3,), "level": "feature", "seed": 4, "device": "cpu"}
    assert clone(model).get_params() == wanted
    for call in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError):
            call(unseen[1], clean=unseen[0])
    with pytest.raises(NotFittedError):
        model.save("nowhere")


def test_guarantee_and_storage(tmp_path, fitted, codebook, unseen):
    clean, theirs, _ = unseen
    again = tacit.load(fitted.save(tmp_path / "join"))
    shown = codebook.release(theirs, rng=Seeded(2))
    for rows in (theirs, shown):
        expected = fitted.predict_proba(rows, clean=clean)
        assert np.array_equal(again.predict_proba(rows, clean=clean), expected)
    assert again.classes_.tolist() == NAMES.tolist()
    assert again.hidden == ()
    assert again.guarantee_ == fitted.guarantee_ == shown.guarantee
    assert again.certificate == fitted.certificate
    assert again.certificate.event == codebook.channel(False).event


def test_reports_without_labels_are_certified_as_such(tmp_path, direct):
    clean, theirs, names = people(200, 1)
    reports = direct.release(theirs, rng=Seeded(1))
    model = JoinClassifier(hidden=()).fit(reports, names, clean=clean)
    again = tacit.load(model.save(tmp_path / "join"))
    assert again.certificate.event == model.certificate.event == direct.channel(False).event
    assert direct.channel(False).event != direct.channel(True).event


def test_refusals(codebook, direct, fitted, unseen):
    clean, theirs, names = people(60, 1)
    plain = codebook.release(theirs, rng=Seeded(0))
    labelled = direct.release(theirs, names, rng=Seeded(0))
    with pytest.raises(InvalidData, match="and not both"):
        JoinClassifier().fit(plain, clean=clean)
    with pytest.raises(InvalidData, match="and not both"):
        JoinClassifier().fit(labelled, names, clean=clean)
    with pytest.raises(InvalidData, match="and not both"):
        JoinClassifier().fit(theirs, names, clean=clean)
    with pytest.raises(InvalidParameter, match="clean must be given"):
        JoinClassifier().fit(plain, names)
    for wrong in (clean[:-1], clean[:, 0], np.full_like(clean, np.nan)):
        with pytest.raises(InvalidData, match=r"clean|finite"):
            JoinClassifier().fit(plain, names, clean=wrong)
    with pytest.raises(InvalidData, match="one per report"):
        JoinClassifier().fit(plain, names[:-1], clean=clean)
    joint = Codebook(epsilon=6.0, codewords=4, classes=NAMES).fit(unseen[1], schema=SCHEMA)
    with pytest.raises(InvalidData, match="part of its symbol"):
        JoinClassifier().fit(joint.release(theirs, names, rng=Seeded(0)), clean=clean)
    with pytest.raises(InvalidParameter, match="level must be one of"):
        JoinClassifier(level="pixel").fit(plain, names, clean=clean)
    with pytest.raises(InvalidParameter, match="clean must be given"):
        fitted.predict(plain)
    foreign = Codebook(epsilon=6.0, codewords=6).fit(people(800, 9)[1], schema=SCHEMA)
    with pytest.raises(InvalidData, match="mechanism"):
        fitted.predict(foreign.release(theirs, rng=Seeded(0)), clean=clean)


def test_reports_that_say_nothing_do_no_harm(tmp_path):
    """Clean columns that tell the label, few rows, and reports that are noise: left alone."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 700)
    clean = (labels[:, None] + rng.normal(0, 0.6, (700, 2))).astype(np.float32)
    noise = rng.random((700, 60))
    schema = ArraySchema(60, 0, 1)
    for epsilon, told in ((0.1, noise), (650.0, labels[:, None] * 0.8 + 0.1 * noise)):
        mechanism = Direct(epsilon=epsilon).fit(told, schema=schema)
        reports = mechanism.release(told, rng=np.random.default_rng(1))
        model = JoinClassifier(seed=0).fit(reports[:200], labels[:200], clean=clean[:200])
        used = np.abs(model.network_.weights[0][2:]).max() > 0
        assert used == (epsilon > 1)
        score = model.score(reports[200:], labels[200:], clean=clean[200:])
        assert score > (0.98 if used else 0.82)
        again = tacit.load(model.save(tmp_path / str(epsilon)))
        assert again.score(reports[200:], labels[200:], clean=clean[200:]) == score
