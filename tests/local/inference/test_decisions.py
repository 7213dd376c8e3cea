"""Priors, costs and thresholds: Bayes' rule, least expected cost, one warning for all models."""

import warnings

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.local.inference.decisions import ConstantAnswerWarning, Rule
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inference.student import StudentClassifier
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded

NAMES = ("no", "yes")


def people(count, seed, rare=0.2):
    """Return two classes of unequal size that overlap, as a table of two columns."""
    rng = np.random.default_rng(seed)
    yes = rng.random(count) < rare
    rows = pd.DataFrame({"a": rng.normal(1.6 * yes), "b": rng.normal(size=count)})
    return rows, np.where(yes, "yes", "no")


@pytest.fixture(scope="module", name="models")
def models_fixture():
    rows, labels = people(4000, 0)
    codebook = tacit.Codebook(epsilon=6, people=4000, classes=NAMES, codewords=8).fit(rows)
    reports = codebook.release(rows, labels, rng=Seeded(1))
    collection = tacit.Collection(epsilon=6, people=600, classes=NAMES).fit(rows[:100])
    direct = tacit.Direct(epsilon=9, classes=NAMES).fit(rows)
    return {
        "table": NoiseAwareClassifier().fit(reports),
        "student": StudentClassifier(inhouse=rows).fit(reports),
        "cells": StudentClassifier().fit(reports),
        "proportions": collection.learn(
            collection.release(rows[:600], labels[:600], rng=Seeded(2))
        ),
        "network": NoiseAwareClassifier(hidden=()).fit(direct.release(rows, labels, rng=Seeded(3))),
    }


KINDS = ("table", "student", "cells", "proportions", "network")


def test_bayes_rule_moves_probabilities_to_other_shares():
    """With Gaussian classes the posterior under other shares is known."""
    x, shares, others = np.linspace(-3, 3, 50), np.array([0.8, 0.2]), np.array([0.3, 0.7])
    densities = np.exp(-((x[:, None] - [0.0, 1.6]) ** 2) / 2)
    before, after = (
        densities * s / (densities * s).sum(1, keepdims=True) for s in (shares, others)
    )
    rule = Rule.of("t", NAMES, others, None, None)
    assert rule.reweighed(before, shares) == pytest.approx(after)
    assert Rule.of("t", NAMES, {"yes": 0.7, "no": 0.3}, None, None).priors == pytest.approx(others)
    assert rule.reweighed(np.array([[1.0, 0.0]]), np.array([1.0, 0.0])).tolist() == [[1.0, 0.0]]


def test_costs_minimise_what_errors_cost():
    proba = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3]])
    costs = np.array([[0, 1, 1], [1, 0, 1], [20, 5, 0]])
    places = Rule.of("t", "abc", None, costs, None).places(proba)
    expected = [[sum(p[i] * costs[i][j] for i in range(3)) for j in range(3)] for p in proba]
    assert places.tolist() == [int(np.argmin(row)) for row in expected] == [2, 2]
    by_pairs = Rule.of("t", ["a", "b", "c"], None, {("c", "a"): 20, ("c", "b"): 5}, None)
    assert np.array_equal(by_pairs.costs, costs)


def test_a_threshold_is_the_costs_of_two_classes():
    proba = np.linspace(0.005, 0.995, 100)[:, None] * [-1, 1] + [1, 0]
    by_threshold = Rule.of("t", NAMES, None, None, 0.2).places(proba)
    by_costs = Rule.of("t", NAMES, None, {("yes", "no"): 4}, None).places(proba)
    assert np.array_equal(by_threshold, by_costs)
    assert by_threshold.sum() == 80


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"priors": [0.5, 0.6]}, "priors must be shares that sum to 1"),
        ({"priors": [0.5]}, "priors must be 2 numbers"),
        ({"priors": [-0.5, 1.5]}, "priors must be finite and not negative"),
        ({"priors": {"no": 1.0}}, "priors must be one for each"),
        ({"priors": {"no": 0.5, "maybe": 0.5}}, "priors must be about the classes"),
        ({"priors": "even"}, "priors must be numbers"),
        ({"costs": [[0, 1]]}, "costs must be 2 by 2 numbers"),
        ({"costs": {("no", "maybe"): 2}}, "costs must be about the classes"),
        ({"costs": {"no": 2}}, "costs must be by pairs"),
        ({"costs": [[0, np.nan], [1, 0]]}, "costs must be finite"),
        ({"threshold": 1.5}, r"threshold must be in \[0, 1\]"),
        ({"threshold": 0.5, "costs": np.eye(2)}, "threshold must be None where costs"),
    ],
)
def test_refusals(models, given, said):
    for kind in KINDS:
        with pytest.raises(InvalidParameter, match=said):
            models[kind].deciding(**given)


def test_a_threshold_is_for_two_classes():
    with pytest.raises(InvalidParameter, match="threshold must be None for 3 classes"):
        Rule.of("t", "abc", None, None, 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_models_decide_without_a_new_fit(models, kind, tmp_path):
    model, (rows, labels) = models[kind], people(3000, 7)
    eager = model.deciding(threshold=0.05)
    recalls = [(one.predict(rows)[labels == "yes"] == "yes").mean() for one in (model, eager)]
    assert recalls[1] > recalls[0] + 0.05
    assert np.array_equal(eager.predict_proba(rows), model.predict_proba(rows))
    costly = model.deciding(costs={("yes", "no"): 19})
    assert (costly.predict(rows) == eager.predict(rows)).mean() > 0.999
    assert costly.deciding(threshold=0.05).costs is None
    assert model.threshold is None
    kept = tacit.load(costly.save(tmp_path / "model"))
    assert np.array_equal(kept.predict(rows), costly.predict(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_priors_fit_people_with_other_shares(models, kind):
    """Half of these people are of the class that a fifth of those who reported had."""
    model, (rows, labels) = models[kind], people(4000, 8, rare=0.5)
    assert model.assumed_shares_ == pytest.approx([0.8, 0.2], abs=0.05)
    assert model.predict_proba(people(4000, 9)[0]).mean(0) == pytest.approx([0.8, 0.2], abs=0.05)
    told = model.deciding(priors=[0.5, 0.5])
    gain = told.score(rows, labels) - model.score(rows, labels)
    assert gain >= (0 if kind == "table" else 0.03)  # a table has one answer in a whole cell
    assert told.predict_proba(rows).mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.08)


def test_parameters_of_a_fit_are_the_same_as_deciding(models):
    rows, labels = people(4000, 0)
    reports = models["table"].mechanism_.release(rows, labels, rng=Seeded(1))
    for made in (NoiseAwareClassifier(threshold=0.1), StudentClassifier(threshold=0.1)):
        plain = type(made)().fit(reports).deciding(threshold=0.1)
        assert np.array_equal(made.fit(reports).predict(rows), plain.predict(rows))


@pytest.mark.filterwarnings("ignore::tacit.local.inference.noise_aware.ShiftWarning")
def test_one_warning_for_all_models(models):
    """Everybody has the same label: each model says so once."""
    rows = people(800, 0)[0]
    always = np.full(len(rows), "no")
    codebook, partitions = (models[kind].mechanism_ for kind in ("table", "proportions"))
    learners = [
        (NoiseAwareClassifier(), codebook.release(rows, always, rng=Seeded(1))),
        (StudentClassifier(inhouse=rows), codebook.release(rows, always, rng=Seeded(1))),
        (StudentClassifier(), codebook.release(rows, always, rng=Seeded(1))),
        (
            tacit.ProportionsClassifier(inhouse=rows),
            partitions.release(rows, always, rng=Seeded(1)),
        ),
    ]
    for learner, reports in learners:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            learner.fit(reports)
        (one,) = [w for w in caught if w.category is ConstantAnswerWarning]
        assert str(one.message).startswith("Every answer is 'no'")
        assert learner.constant_answer == "no"
    for kind in KINDS:
        assert models[kind].constant_answer is None
        assert models[kind].answer_shares_.sum() == pytest.approx(1)


def test_private_points_follow_the_rule(models):
    rows, _ = people(3000, 10)
    eager = models["table"].deciding(threshold=0.05)
    shown = eager.for_private_points(8.0)
    answers = shown.predict(shown.mechanism_.release(rows, rng=Seeded(4)))
    assert (answers == eager.predict(rows)).mean() > 0.9


def test_a_student_of_cells_reveals_what_the_codebook_does(models):
    student = models["cells"]
    assert student.inhouse_ == student.mechanism_.inhouse_
    assert student.certificate == models["table"].certificate
    rows, labels = people(3000, 11)
    assert student.score(rows, labels) > 0.8
    with pytest.raises(InvalidParameter, match="the codebook must protect its in-house rows"):
        StudentClassifier(central_epsilon=1, central_delta=1e-6).fit(
            student.mechanism_.release(rows, labels, rng=Seeded(0))
        )
