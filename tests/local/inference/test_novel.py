"""A class that in-house data never held: found from reports of its people alone."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline

import tacit
from tacit.data.schema import ArraySchema
from tacit.local.inference.novel import NovelClassClassifier
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import NotPrivate
from tacit.privacy.randomness import Seeded

SCHEMA = ArraySchema(2, -8.0, 8.0, outside="clip")
SHIFT = np.array([1.5, 0.0])


def inhouse(count, seed):
    return np.random.default_rng((seed, 77)).standard_normal((count, 2))


def new(count, seed):
    """The new class: the same spread, elsewhere; Bayes' rule is a line half-way."""
    return inhouse(count, seed) + SHIFT


ROWS = inhouse(4000, 0)


@pytest.fixture(scope="module")
def mechanism():
    return Codebook(epsilon=3.0, codewords=20).fit(ROWS, schema=SCHEMA)


@pytest.fixture(scope="module")
def reports(mechanism):
    return mechanism.release(new(4000, 1), rng=Seeded(1))


@pytest.fixture(scope="module")
def fitted(reports):
    return NovelClassClassifier(inhouse=ROWS, penalty=1.0).fit(reports)


@pytest.fixture(scope="module")
def unseen():
    return np.vstack([inhouse(3000, 2), new(3000, 3)]), np.repeat([0, 1], 3000)


def test_it_tells_the_new_class(fitted, mechanism, unseen):
    best = norm.cdf(SHIFT[0] / 2)
    assert fitted.score(*unseen) > best - 0.03
    auc = roc_auc_score(unseen[1], fitted.predict_proba(unseen[0])[:, 1])
    assert auc > norm.cdf(SHIFT[0] / 2**0.5) - 0.02
    # From people who are not new at all nothing is learned.
    nobody = mechanism.release(inhouse(4000, 5), rng=Seeded(1))
    idle = NovelClassClassifier(inhouse=ROWS, penalty=1.0).fit(nobody)
    assert np.abs(idle.predict_proba(unseen[0])[:, 1] - 0.5).mean() < 0.15


def test_probabilities_are_those_of_the_share(reports, fitted, unseen):
    rare = NovelClassClassifier(inhouse=ROWS, penalty=1.0, share=0.1).fit(reports)
    proba, even = rare.predict_proba(unseen[0]), fitted.predict_proba(unseen[0])
    assert np.allclose(proba.sum(axis=1), 1)
    odds, even_odds = (p[:, 1] / p[:, 0] for p in (proba, even))
    assert np.allclose(odds, even_odds / 9, rtol=1e-6)
    # Log odds against the two normal densities.
    wanted = unseen[0] @ SHIFT - SHIFT @ SHIFT / 2
    assert np.abs(np.log(even_odds) - wanted).mean() < 0.25


def test_released_rows(fitted, mechanism, unseen):
    scores = []
    for epsilon in (1.0, 8.0):
        shown = mechanism.at(epsilon).release(unseen[0], rng=Seeded(4))
        proba = fitted.predict_proba(shown)
        assert np.allclose(proba.sum(axis=1), 1)
        scores.append(fitted.score(shown, unseen[1]))
    assert 0.53 < scores[0] < scores[1]
    assert scores[1] > 0.7
    assert scores[0] < tacit.ceilings.universal(2, 1.0)


def test_foreign_reports_are_refused(fitted, unseen):
    other = Codebook(epsilon=3.0, codewords=20).fit(inhouse(4000, 9), schema=SCHEMA)
    with pytest.raises(InvalidData, match="own mechanism"):
        fitted.predict(other.release(unseen[0][:50], rng=Seeded(0)))


def test_scikit_learn(fitted, reports, unseen):
    model = NovelClassClassifier(inhouse=ROWS, share=0.2, penalty=3.0)
    params = clone(model).get_params()
    assert (params["share"], params["penalty"]) == (0.2, 3.0)
    for call in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError):
            call(unseen[0])
    with pytest.raises(NotFittedError):
        model.save("nowhere")
    pipeline = Pipeline([("learn", NovelClassClassifier(inhouse=ROWS, penalty=1.0))]).fit(reports)
    assert pipeline.score(*unseen) == fitted.score(*unseen)
    assert fitted.classes_.tolist() == [0, 1]


def test_what_is_said_of_privacy(fitted, reports):
    assert fitted.guarantee_ == reports.guarantee == fitted.certificate.guarantee
    assert fitted.certificate.event == reports.event
    assert isinstance(fitted.inhouse_guarantee_, NotPrivate)
    said = " ".join(fitted.certificate.not_protected)
    assert "all who were invited have it" in said
    assert "in-house rows" in said


def test_saved_and_loaded(tmp_path, fitted, mechanism, unseen):
    again = tacit.load(fitted.save(tmp_path / "novel"))
    shown = mechanism.release(unseen[0], rng=Seeded(4))
    for rows in (unseen[0], shown):
        assert np.array_equal(again.predict_proba(rows), fitted.predict_proba(rows))
    assert again.guarantee_ == fitted.guarantee_
    assert again.certificate == fitted.certificate
    assert isinstance(again.inhouse_guarantee_, NotPrivate)
    assert (again.share, again.penalty, again.inhouse) == (0.5, 1.0, None)


def test_declared_classes_do_not_change_what_was_reported(tmp_path):
    """People who report no label have the guarantee of a report without one."""
    mechanism = Codebook(epsilon=2.0, codewords=8, classes=4).fit(ROWS, schema=SCHEMA)
    reports = mechanism.release(new(500, 1), rng=Seeded(1))
    fitted = NovelClassClassifier(inhouse=ROWS).fit(reports)
    again = tacit.load(fitted.save(tmp_path / "novel"))
    assert again.certificate.event == fitted.certificate.event == mechanism.channel(False).event


def test_refusals(mechanism, reports):
    with pytest.raises(InvalidParameter, match="inhouse must be given"):
        NovelClassClassifier().fit(reports)
    for share in (0, 1, 2, np.nan, "half"):
        with pytest.raises(InvalidParameter, match="share must be"):
            NovelClassClassifier(inhouse=ROWS, share=share).fit(reports)
    labelled = Codebook(epsilon=3.0, codewords=5, classes=2).fit(ROWS, schema=SCHEMA)
    for wrong in (labelled.release(ROWS[:20], [0, 1] * 10, rng=Seeded(0)), ROWS, None):
        with pytest.raises(InvalidData, match="reports without labels"):
            NovelClassClassifier(inhouse=ROWS).fit(wrong)
    direct = Direct(epsilon=3).fit(ROWS, schema=SCHEMA).release(ROWS[:20], rng=Seeded(0))
    with pytest.raises(InvalidData, match="must come from a codebook"):
        NovelClassClassifier(inhouse=ROWS).fit(direct)
    with pytest.raises(InvalidParameter, match="y must be None"):
        NovelClassClassifier(inhouse=ROWS).fit(reports, np.ones(4000))
    with pytest.raises(InvalidParameter, match="penalty must be"):
        NovelClassClassifier(inhouse=ROWS, penalty=-1).fit(reports)
