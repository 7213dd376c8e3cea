"""The classifier of reports: scikit-learn's manners, clean and released rows, shift, storage."""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

import tacit
from tacit.data.schema import ArraySchema
from tacit.local import ceilings
from tacit.local.inference.decisions import ConstantAnswerWarning
from tacit.local.inference.noise_aware import NoiseAwareClassifier, ShiftWarning
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import ApproxDP, PureDP
from tacit.privacy.randomness import Seeded

torch.set_num_threads(1)
NAMES = np.array(["north", "east", "south"])
SCHEMA = ArraySchema(2, -10.0, 10.0, outside="clip")


def people(count, seed, shares=(1 / 3, 1 / 3, 1 / 3), deviation=1.0):
    """Three groups in the plane, and what each person is called."""
    rng = np.random.default_rng((seed, 77))  # not the stream that noise is drawn from
    group = rng.choice(3, count, p=shares)
    centers = np.array([[0.0, 4.0], [4.0, -3.0], [-4.0, -3.0]])
    return centers[group] + deviation * rng.standard_normal((count, 2)), NAMES[group]


def codebook(epsilon=3.0, **settings):
    given = {"classes": NAMES, "codewords": 9, **settings}
    return Codebook(epsilon=epsilon, **given).fit(people(1500, 0)[0], schema=SCHEMA)


@pytest.fixture(scope="module")
def mechanism():
    return codebook()


@pytest.fixture(scope="module")
def reports(mechanism):
    return mechanism.release(*people(4000, 1), rng=Seeded(1))


@pytest.fixture(scope="module")
def fitted(reports):
    return NoiseAwareClassifier().fit(reports)


@pytest.fixture(scope="module")
def unseen():
    return people(2000, 2)


# --- scikit-learn --------------------------------------------------------------------------------


def test_parameters_and_clones(fitted):
    model = NoiseAwareClassifier(prior="none", level="feature", hidden=(3,), seed=5)
    wanted = {
        "prior": "none",
        "level": "feature",
        "hidden": (3,),
        "output_bias": None,
        "seed": 5,
        "device": "cpu",
        "priors": None,
        "costs": None,
        "threshold": None,
    }
    assert model.get_params() == wanted
    assert clone(model).get_params() == wanted
    assert model.set_params(prior="auto").prior == "auto"
    assert not hasattr(clone(fitted), "table_")


def test_before_fit(unseen):
    model = NoiseAwareClassifier()
    for call in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError):
            call(unseen[0])
    with pytest.raises(NotFittedError):
        model.for_private_points(1.0)
    with pytest.raises(NotFittedError):
        model.class_shares()


def test_in_a_pipeline(fitted, reports, unseen):
    pipeline = Pipeline([("learn", NoiseAwareClassifier())])
    with pytest.raises(NotFittedError):
        clone(pipeline).named_steps["learn"].predict(unseen[0])
    assert pipeline.fit(reports) is pipeline
    assert np.array_equal(pipeline.predict(unseen[0]), fitted.predict(unseen[0]))
    assert pipeline.score(*unseen) == fitted.score(*unseen)


def test_fit_twice_is_fit_once_and_another_fit_forgets(reports, fitted, unseen):
    model = NoiseAwareClassifier(hidden=()).fit(reports)
    assert np.array_equal(model.fit(reports).table_, fitted.table_)
    direct = Direct(epsilon=8, classes=NAMES).fit(unseen[0], schema=SCHEMA)
    model.fit(direct.release(*people(600, 1), rng=Seeded(0)))
    assert model.predict(unseen[0]).shape == (2000,)
    assert not hasattr(model, "table_")
    model.fit(reports)
    assert np.array_equal(model.predict(unseen[0]), fitted.predict(unseen[0]))


# --- predictions ---------------------------------------------------------------------------------


def test_clean_rows(fitted, reports, unseen):
    assert fitted.score(*unseen) > 0.95
    assert fitted.classes_.tolist() == NAMES.tolist()
    assert set(fitted.predict(unseen[0])) <= set(NAMES)
    proba = fitted.predict_proba(unseen[0])
    assert proba.shape == (2000, 3)
    assert np.allclose(proba.sum(axis=1), 1)
    assert fitted.table_.shape == (9, 3)
    assert fitted.table_.sum() == pytest.approx(1)
    assert fitted.reports_ == len(reports) == 4000
    # A classifier that were told wrong labels would be wrong: the bar above means something.
    wrong = fitted.mechanism_.release(people(4000, 1)[0], people(4000, 9)[1], rng=Seeded(1))
    assert NoiseAwareClassifier().fit(wrong).score(*unseen) < 0.6


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 6.0])
def test_probabilities_are_bayes_of_a_report(fitted, mechanism, unseen, epsilon):
    """Through the law of the reports that are shown, which may be at another ε, written out."""
    shown = mechanism.at(epsilon).release(unseen[0][:50], rng=Seeded(3))
    law = np.exp([shown.mechanism.log_prob(shown.columns, np.full(50, k)) for k in range(9)])
    joint = law.T @ fitted.table_
    assert np.allclose(
        fitted.predict_proba(shown), joint / joint.sum(axis=1, keepdims=True), atol=1e-9
    )


def test_released_rows_at_several_epsilon(fitted, mechanism, unseen):
    scores = []
    for epsilon in (0.5, 3.0, 8.0):
        shown = mechanism.at(epsilon).release(unseen[0], rng=Seeded(4))
        scores.append(fitted.score(shown, unseen[1]))
    assert scores[0] < scores[1] < scores[2]
    assert scores[2] > 0.9
    for epsilon, score in zip((0.5, 3.0, 8.0), scores, strict=True):
        assert score < ceilings.universal(3, epsilon) + 4 * 0.5 / 2000**0.5


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_private_points_reach_the_universal_ceiling(fitted, mechanism, epsilon):
    rows, names = people(20_000, 7)
    private = fitted.for_private_points(epsilon)
    channel = private.mechanism_.channel(False).symbols
    assert channel.categories == 3
    assert channel.event.size == private.mechanism_.subset_size == 1
    assert private.mechanism_.channel(False).guarantee.epsilon == epsilon
    purity = (fitted.predict(rows) == names).mean()
    found = private.score(private.mechanism_.release(rows, rng=Seeded(5)), names)
    ceiling = ceilings.universal(3, epsilon)
    error = 4 * (found * (1 - found) / 20_000) ** 0.5
    # Those who are misread may be right by chance: that much, too, is on top.
    assert purity * ceiling - error < found < ceiling + error
    if epsilon <= 2:  # reports of all nine codewords leave less
        plain = fitted.score(mechanism.at(epsilon).release(rows, rng=Seeded(5)), names)
        assert found > plain


def test_the_guarantee_of_learning_is_not_that_of_asking(fitted, reports):
    private = fitted.for_private_points(0.5)
    assert private.guarantee_ == reports.guarantee
    assert private.certificate.guarantee == reports.guarantee
    assert private.certificate.event == reports.event


# --- refusals ------------------------------------------------------------------------------------


def test_what_it_learns_from(mechanism, unseen):
    unlabelled = mechanism.release(unseen[0][:50], rng=Seeded(0))
    for wrong in (unlabelled, unseen[0], None):
        with pytest.raises(InvalidData, match="must get reports with labels"):
            NoiseAwareClassifier().fit(wrong)
    labelled = mechanism.release(*people(50, 3), rng=Seeded(0))
    with pytest.raises(InvalidParameter, match="y must be None"):
        NoiseAwareClassifier().fit(labelled, people(50, 3)[1])
    with pytest.raises(InvalidParameter, match="prior must be one of"):
        NoiseAwareClassifier(prior="hope").fit(labelled)


def test_foreign_and_labelled_reports_are_refused(fitted, mechanism, unseen):
    rows, names = unseen[0][:100], unseen[1][:100]
    foreign = [
        codebook(codewords=8).release(rows, rng=Seeded(0)),
        Codebook(epsilon=3.0, classes=NAMES, codewords=9)
        .fit(people(1500, 5)[0], schema=SCHEMA)
        .release(rows, rng=Seeded(0)),
        mechanism.release(rows, names, rng=Seeded(0)),
        fitted.for_private_points(3.0).mechanism_.release(rows, rng=Seeded(0)),
        Direct(epsilon=3).fit(rows, schema=SCHEMA).release(rows, rng=Seeded(0)),
    ]
    for reports in foreign:
        with pytest.raises(InvalidData, match="of the classifier's own mechanism"):
            fitted.predict(reports)
    assert len(fitted.predict(mechanism.release(rows, rng=Seeded(0)))) == 100


def test_private_points_need_two_answers(mechanism):
    rows, _ = people(4000, 1)
    reports = mechanism.at(8.0).release(rows, np.full(4000, "east"), rng=Seeded(0))
    with pytest.warns(ConstantAnswerWarning, match="Every answer is 'east'"):
        all_one = NoiseAwareClassifier().fit(reports)
    with pytest.raises(InvalidParameter, match="at least two"):
        all_one.for_private_points(1.0)


# --- shift ---------------------------------------------------------------------------------------

SHIFTED = (0.7, 0.2, 0.1)


def test_shifted_people_are_noticed(mechanism):
    reports = mechanism.release(*people(4000, 1, SHIFTED), rng=Seeded(1))
    with pytest.warns(ShiftWarning, match="differ from the in-house ones"):
        auto = NoiseAwareClassifier().fit(reports)
    assert auto.shift_.p_value < 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = NoiseAwareClassifier(prior="none").fit(reports)
        trusting = NoiseAwareClassifier(prior="inhouse").fit(reports)
    assert np.array_equal(auto.table_, alone.table_)
    away = [np.abs(m.table_.sum(axis=0) - SHIFTED).sum() for m in (auto, trusting)]
    assert away[0] < 0.1
    assert away[1] > away[0] + 0.1


def test_people_like_the_inhouse_rows_are_not(fitted, reports):
    assert fitted.shift_.p_value > 0.01
    trusting = NoiseAwareClassifier(prior="inhouse").fit(reports)
    assert np.array_equal(fitted.table_, trusting.table_)
    assert not np.array_equal(fitted.table_, NoiseAwareClassifier(prior="none").fit(reports).table_)


def test_estimates_have_intervals(fitted):
    shares, ends = fitted.class_shares(confidence=0.95, repeats=40)
    assert shares.sum() == pytest.approx(1)
    assert ends.shape == (3, 2)
    assert np.all((ends[:, 0] < shares) & (shares < ends[:, 1]))
    # The truth of this draw, with a little room: three intervals at 95 %.
    assert np.all((ends[:, 0] - 0.02 < 1 / 3) & (ends[:, 1] + 0.02 > 1 / 3))
    assert np.all(ends[:, 1] - ends[:, 0] < 0.15)
    shares, ends = fitted.codeword_shares(repeats=20)
    assert shares.shape == (9,)
    assert ends.shape == (9, 2)


def test_codewords_nobody_has_are_given_the_labels_shares(fitted):
    model = clone(fitted)
    model.table_ = np.array([[0.3, 0.1, 0.0], [0.0, 0.0, 0.0], [0.2, 0.2, 0.2]])
    assert np.allclose(model.given_codeword()[1], [0.5, 0.3, 0.2])
    assert np.allclose(model.given_codeword()[0], [0.75, 0.25, 0.0])


# --- other mechanisms ----------------------------------------------------------------------------


def wide(rows):
    """Every column twelve times: a latent then pays for itself."""
    return np.tile(rows, (1, 12))


WIDE = ArraySchema(24, -6.0, 6.0, outside="clip")


@pytest.fixture(scope="module")
def vlm():
    from tacit.local.learned.vlm import VLM

    made = VLM(epsilon=16, latent_dimension=2, classes=NAMES, label_share=0.25)
    return made.fit(wide(people(600, 0)[0]), schema=WIDE, epochs=15, batch_size=50)


@pytest.mark.quick(1)
@pytest.mark.parametrize("level", ["latent", "feature"])
@pytest.mark.parametrize("kind", ["vlm", "direct"])
def test_networks_learn_from_released_rows(request, unseen, level, kind):
    rows, names = wide(unseen[0]), unseen[1]
    if kind == "vlm":
        made = request.getfixturevalue("vlm")
    else:
        made = Direct(epsilon=100, classes=NAMES).fit(rows, schema=WIDE)
    learning = people(2000, 1)
    reports = made.release(wide(learning[0]), learning[1], rng=Seeded(1))
    model = NoiseAwareClassifier(level=level, hidden=(10,)).fit(reports)
    assert model.score(rows, names) > 0.85
    shown = made.release(rows, rng=Seeded(2))
    assert model.score(shown, names) > 0.7
    assert model.guarantee_ == reports.guarantee
    width = 2 if (kind, level) == ("vlm", "latent") else 24
    assert model.network_.center.shape == (width,)
    with pytest.raises(InvalidData, match="own mechanism"):
        model.predict(reports)


def test_the_flip_of_labels_is_undone(unseen):
    """Labels at ε = 0.5 are wrong more often than not, and probabilities still mean something."""
    made = Direct(epsilon=100, classes=NAMES, label_share=0.01).fit(unseen[0], schema=SCHEMA)
    reports = made.release(*people(6000, 1), rng=Seeded(1))
    assert (NAMES[reports.columns["label"]] == people(6000, 1)[1]).mean() < 0.6
    model = NoiseAwareClassifier(hidden=()).fit(reports)
    assert model.score(*unseen) > 0.9
    proba = model.predict_proba(unseen[0])
    assert proba.max(axis=1).mean() > 0.75


# --- storage -------------------------------------------------------------------------------------


def same(first, second, rows, shown):
    return np.array_equal(first.predict_proba(rows), second.predict_proba(rows)) and np.array_equal(
        first.predict_proba(shown), second.predict_proba(shown)
    )


def test_saved_and_loaded_tables_say_the_same(tmp_path, fitted, mechanism, reports, unseen):
    again = tacit.load(fitted.save(tmp_path / "model"))
    shown = mechanism.release(unseen[0], rng=Seeded(2))
    assert isinstance(again, NoiseAwareClassifier)
    assert same(fitted, again, unseen[0], shown)
    assert again.get_params() == fitted.get_params()
    assert again.classes_.tolist() == NAMES.tolist()
    assert (
        again.guarantee_
        == reports.guarantee
        == PureDP(epsilon=3.0, adjacency="any-two-inputs", unit="record")
    )
    assert again.certificate == fitted.certificate
    assert again.shift_ == fitted.shift_
    with pytest.raises(InvalidParameter, match="must hold its reports"):
        again.class_shares()


def test_saved_private_points_keep_the_guarantee_of_the_reports(tmp_path, fitted, unseen):
    private = fitted.for_private_points(0.5)
    again = tacit.load(private.save(tmp_path / "private"))
    shown = private.mechanism_.release(unseen[0], rng=Seeded(2))
    assert same(private, again, unseen[0], shown)
    assert again.guarantee_.epsilon == again.certificate.guarantee.epsilon == 3.0


def test_saved_and_loaded_networks_say_the_same(tmp_path, vlm, unseen):
    rows, names = people(500, 1)
    reports = vlm.release(wide(rows), names, rng=Seeded(1))
    fitted = NoiseAwareClassifier(hidden=(4,), level="feature", seed=np.int64(3)).fit(reports)
    again = tacit.load(fitted.save(tmp_path / "model"))
    assert again.hidden == (4,)
    shown = vlm.release(wide(unseen[0]), rng=Seeded(2))
    assert same(fitted, again, wide(unseen[0]), shown)


def test_a_gaussian_guarantee_survives(tmp_path, unseen):
    from tacit.local.learned.vlm import VLM

    made = VLM(epsilon=2, latent_dimension=2, classes=NAMES, noise="gaussian", delta=1e-4)
    made.fit(people(200, 0)[0], schema=SCHEMA, epochs=1)
    reports = made.release(*people(300, 1), rng=Seeded(1))
    fitted = NoiseAwareClassifier(hidden=()).fit(reports)
    again = tacit.load(fitted.save(tmp_path / "model"))
    assert isinstance(again.guarantee_, ApproxDP)
    assert again.guarantee_ == fitted.guarantee_ == reports.guarantee
    assert again.guarantee_.epsilon <= 2


def test_seeded_noise_is_still_said_to_protect_nobody(tmp_path, fitted, mechanism):
    again = tacit.load(fitted.save(tmp_path / "seeded"))
    secure = NoiseAwareClassifier().fit(mechanism.release(*people(500, 1)))
    texts = [str(m.certificate.to_json()) for m in (fitted, again, secure)]
    assert texts[0] == texts[1]
    assert "seed" in texts[0].lower()
    assert texts[2] != texts[0]


def test_the_groups_are_what_the_bars_assume():
    """Bayes' accuracy of the made-up people: nearest centre, gaps of about 8 deviations."""
    assert norm.cdf(4.0) > 0.999
    rows, names = people(5000, 11)
    centers = np.array([[0.0, 4.0], [4.0, -3.0], [-4.0, -3.0]])
    nearest = ((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    assert (NAMES[nearest] == names).mean() > 0.995


def test_a_private_answer_that_no_report_can_change_is_warned_of():
    """One label in ten: at ε = 0.5 a report cannot outweigh the shares."""
    rows, names = people(4000, seed=9, shares=(0.9, 0.05, 0.05))
    mechanism = Codebook(epsilon=6, codewords=3, classes=tuple(NAMES.tolist()))
    model = NoiseAwareClassifier().fit(mechanism.fit(rows, schema=SCHEMA).release(rows, names))
    with pytest.warns(ConstantAnswerWarning, match="north"):
        model.for_private_points(0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.for_private_points(8.0)


def test_no_representation_shows_in_house_rows():
    from tacit.local.inference.novel import NovelClassClassifier
    from tacit.local.inference.student import StudentClassifier

    for kind in (StudentClassifier, NovelClassClassifier):
        assert "123.25" not in repr(kind(inhouse=np.full((3, 2), 123.25)))
