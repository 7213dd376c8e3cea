"""What an owner is told: it covers the truth, it is JSON, and it is quick enough to be polled."""

import dataclasses
import json
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

import tacit
from tacit.apps.service import results
from tacit.apps.service.campaign import Campaign
from tacit.local.inference import poisoning
from tacit.local.inference.noise_aware import ShiftWarning
from tacit.local.inference.votes import Ballot, cast
from tacit.local.learned.direct import Direct
from tacit.local.reports import Reports
from tacit.privacy import artifact
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded

IMAGES, DIGITS = shuffle(*load_digits(return_X_y=True), random_state=0)
PEOPLE = 10_000


def campaign_of(mechanism, labelled=True, minimum=1):
    return Campaign(
        id="abcdefghijkl",
        title="Digits",
        purpose="A test",
        mechanism=mechanism,
        labelled=labelled,
        minimum=minimum,
    )


@pytest.fixture(scope="module")
def mechanism():
    made = tacit.Codebook(epsilon=4, codewords=20, classes=10, unit="person")
    return made.fit(IMAGES[:400], image=(8, 8), inhouse_public=True)


@pytest.fixture(scope="module")
def people():
    return np.random.default_rng(0).integers(400, len(IMAGES), PEOPLE)


@pytest.fixture(scope="module")
def reports(mechanism, people):
    # The same draw in every run: intervals that miss at 1 - confidence must not do so now and then.
    return mechanism.release(IMAGES[people], DIGITS[people], rng=Seeded(3))


@pytest.fixture(scope="module")
def model(reports):
    return results.learn(reports)


def covered(entries, truth):
    return [low <= t <= high for (low, high), t in zip(_intervals(entries), truth, strict=True)]


def _intervals(entries):
    return [entry["interval"] for entry in entries]


def test_everything_is_json_and_named_as_agreed(mechanism, reports, model):
    votes = cast(model, IMAGES[:300], DIGITS[:300], Ballot(epsilon=2, unit="person"))
    said = {"sha256": artifact.fingerprint(model), "reports": PEOPLE}
    found = results.summarize(campaign_of(mechanism), reports, votes, said)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert {
        *("reports", "votes", "confidence", "classes", "codewords", "shift", "notes"),
        *("model", "accuracy", "poisoning", "forgery"),
    } == set(found)
    assert (found["reports"], found["votes"], found["confidence"]) == (PEOPLE, 300, 0.95)
    assert [entry["class"] for entry in found["classes"]] == list(range(10))
    assert [entry["codeword"] for entry in found["codewords"]] == list(range(20))
    assert found["model"] == said
    assert found["accuracy"]["voters"] == 300
    low, high = found["accuracy"]["interval"]
    assert low <= found["accuracy"]["accuracy"] <= high


def test_shares_are_near_the_truth_and_intervals_cover_it(mechanism, reports, people):
    found = results.summarize(campaign_of(mechanism), reports, None, None, confidence=0.999)
    classes = np.bincount(DIGITS[people]) / PEOPLE
    codewords = np.bincount(mechanism.encode(IMAGES[people]), minlength=20) / PEOPLE
    for name, truth in (("classes", classes), ("codewords", codewords)):
        shares = np.array([entry["share"] for entry in found[name]])
        assert np.abs(shares - truth).max() < 0.03
        assert all(covered(found[name], truth))
        assert all(covered(found[name], shares))
        widths = np.diff(_intervals(found[name]))
        assert widths.max() < 0.15
    assert (found["model"], found["accuracy"]) == (None, None)


def test_intervals_would_miss_another_truth(mechanism, reports):
    """They are not as wide as everything: shares of a crowd that has no zeros are refuted."""
    found = results.summarize(campaign_of(mechanism), reports, None, None)
    assert not all(covered(found["classes"], [0, *[1 / 9] * 9]))


def test_intervals_cover_as_often_as_stated(mechanism, people):
    """In 30 repeats of 500 people, 300 intervals at 0.9."""
    truth = np.bincount(DIGITS[people[:500]], minlength=10) / 500
    hits = 0
    for seed in range(30):
        drawn = mechanism.release(IMAGES[people[:500]], DIGITS[people[:500]], rng=Seeded(seed))
        found = results.summarize(campaign_of(mechanism), drawn, None, None, confidence=0.9)
        hits += sum(covered(found["classes"], truth))
    assert 250 <= hits < 300


def test_shares_are_the_unbiased_ones(mechanism, reports):
    found = results.summarize(campaign_of(mechanism), reports, None, None)
    assert found["notes"] == []
    counts = mechanism.channel(True).symbols.estimate_counts(reports.columns["symbols"]).counts
    shares = counts.reshape(20, 10).sum(axis=0) / PEOPLE
    np.testing.assert_allclose([e["share"] for e in found["classes"]], np.clip(shares, 0, 1))


def test_one_fake_moves_a_shown_share_by_no_more_than_is_said(mechanism, reports):
    """Also the one that tips the test of fit: it decides nothing of what is shown."""
    few = reports[:300]
    stated = results.summarize(campaign_of(mechanism), few, None, None)["poisoning"][0]
    before = results.summarize(campaign_of(mechanism), few, None, None)
    for symbols in ([0, 1, 2], [10, 20, 30], [197, 198, 199]):
        columns = few.columns["symbols"].copy()
        columns[7] = symbols
        faked = Reports(mechanism, {"symbols": columns}, mechanism.channel(True), True)
        after = results.summarize(campaign_of(mechanism), faked, None, None)
        for name, worst in (("classes", "class_share"), ("codewords", "codeword_share")):
            for one, other in zip(before[name], after[name], strict=True):
                assert abs(one["share"] - other["share"]) <= 2 * stated[worst]


def test_a_shift_is_noted_and_learned_around(mechanism):
    """People who are all one digit: what "auto" would warn of, without a warning."""
    ones = np.flatnonzero(DIGITS[400:] == 1) + 400
    chosen = np.resize(ones, 1500)
    reports = mechanism.release(IMAGES[chosen], DIGITS[chosen], rng=Seeded(0))
    found = results.summarize(campaign_of(mechanism), reports, None, None)
    assert found["shift"] < results.SHIFTED
    assert found["notes"] == [results.OTHERS]
    assert found["classes"][1]["share"] > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        auto = tacit.NoiseAwareClassifier().fit(reports)
    np.testing.assert_array_equal(results.learn(reports).table_, auto.table_)


def test_learning_is_as_by_default_where_people_are_alike(reports, model):
    auto = tacit.NoiseAwareClassifier().fit(reports)
    assert auto.shift_.p_value >= results.SHIFTED
    np.testing.assert_array_equal(model.table_, auto.table_)


def test_poisoning_is_the_modules_and_leaves_out_what_cannot_be(mechanism, reports):
    votes = Ballot(epsilon=2, unit="person").release(np.ones(50, bool))
    found = results.summarize(campaign_of(mechanism), reports[:60], votes, None)["poisoning"]
    assert [entry["fakes"] for entry in found] == [1, 10]
    channel = mechanism.channel(True).symbols
    assert found[0] == {
        "fakes": 1,
        "lying": 1 / 60,
        "class_share": poisoning.class_shift(channel, 10, 60, 1).worst,
        "codeword_share": poisoning.codeword_shift(channel, 10, 60, 1).worst,
        "accuracy": poisoning.accuracy_shift(votes.ballot, 50, 1).worst,
    }
    assert found[0]["class_share"] > found[0]["lying"]
    few = results.summarize(campaign_of(mechanism), reports[:60], votes[:5], None)["poisoning"]
    assert few[1]["accuracy"] is None  # ten fakes cannot be among five votes
    assert max(entry["class_share"] for entry in found) <= 1


def test_too_few_votes_show_nothing_but_their_number(mechanism, reports):
    votes = Ballot(epsilon=2, unit="person").release(np.ones(19, bool))
    found = results.summarize(campaign_of(mechanism, minimum=20), reports[:60], votes, None)
    assert (found["votes"], found["accuracy"]) == (19, None)
    assert found["poisoning"][0]["accuracy"] is None


def test_without_labels_there_are_codewords_alone(mechanism, people):
    reports = mechanism.release(IMAGES[people[:2000]], rng=Seeded(1))
    found = results.summarize(campaign_of(mechanism, labelled=False), reports, None, None)
    assert found["classes"] == []
    truth = np.bincount(mechanism.encode(IMAGES[people[:2000]]), minlength=20) / 2000
    shares = [entry["share"] for entry in found["codewords"]]
    assert np.abs(np.array(shares) - truth).max() < 0.04
    assert found["poisoning"][0]["class_share"] is None


def test_labels_that_are_flipped_by_themselves(people):
    direct = Direct(epsilon=4, classes=10, label_share=0.5, unit="person")
    direct.fit(IMAGES[:50], inhouse_public=True)
    chosen = people[:4000]
    reports = direct.release(IMAGES[chosen], DIGITS[chosen], rng=Seeded(2))
    found = results.summarize(campaign_of(direct), reports, None, None, confidence=0.999)
    assert all(covered(found["classes"], np.bincount(DIGITS[chosen]) / 4000))
    assert (found["codewords"], found["shift"]) == ([], None)
    flip = direct.channel(True).flip
    assert found["poisoning"][0]["class_share"] == poisoning.label_shift(flip, 4000, 1).worst
    rows = direct.release(IMAGES[chosen[:50]], rng=Seeded(2))
    alone = results.summarize(campaign_of(direct, labelled=False), rows, None, None)
    assert (alone["classes"], alone["poisoning"][0]["class_share"]) == ([], None)


@pytest.mark.parametrize("confidence", [0, 1, -1, float("nan"), "much"])
def test_confidence_is_checked(mechanism, reports, confidence):
    with pytest.raises(InvalidParameter, match="confidence must be"):
        results.summarize(campaign_of(mechanism), reports, None, None, confidence=confidence)


def test_no_reports_are_refused(mechanism, reports):
    with pytest.raises(InvalidParameter, match="reports must be at least one"):
        results.summarize(campaign_of(mechanism), reports[:0], None, None)


@pytest.mark.slow
def test_a_million_reports_fit(mechanism, reports):
    """Beside the reports themselves: a few tens of megabytes."""
    many = Reports(
        mechanism,
        {"symbols": np.tile(reports.columns["symbols"], (100, 1))},
        mechanism.channel(True),
    )
    tracemalloc.start()
    found = results.summarize(campaign_of(mechanism), many, None, None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["reports"] == 1_000_000
    assert peak < 200e6


def test_a_model_with_one_answer_is_named(mechanism, reports, model):
    assert results.notes(model) == []
    alike = results.learn(mechanism.release(IMAGES[:800], np.full(800, 7), rng=Seeded(5)))
    (said,) = results.notes(alike)
    assert said.startswith("The published model answers “7” for everyone")
    votes = cast(alike, IMAGES[:300], DIGITS[:300], Ballot(epsilon=4, classes=10, unit="person"))
    found = results.summarize(campaign_of(mechanism), reports, votes, None)["accuracy"]
    low, high = found["balanced_accuracy"]["interval"]
    assert low <= 0.1 <= high


def test_forged_reports_raise_an_alarm_with_its_bound(mechanism, reports):
    """Sets of one label, as often as it fits, among honest reports; and where nothing is seen."""
    honest = reports[:1000]
    calm = results.summarize(campaign_of(mechanism), honest, None, None)["forgery"]
    assert (calm["testable"], calm["alarm"], calm["pattern"]) == (True, False, None)
    assert calm["words"].startswith("No alarm: ")
    assert "never noticed" in calm["words"]
    sets = honest.columns["symbols"].copy()
    size = sets.shape[1]
    rng = np.random.default_rng(0)
    sets[:50] = [np.sort(rng.permutation(20)[:size]) * 10 + 9 for _ in range(50)]
    forged = dataclasses.replace(honest, columns={"symbols": sets})
    found = results.summarize(campaign_of(mechanism), forged, None, None)["forgery"]
    assert (found["alarm"], found["pattern"]) == (True, "label")
    assert found["excess"] == pytest.approx(50, abs=10)
    assert "“9”" in found["words"]
    assert "at most 1 %" in found["words"]


def test_where_every_report_could_be_honest_the_results_say_so():
    direct = Direct(epsilon=4, classes=10, label_share=0.5, unit="person")
    direct.fit(IMAGES[:50], inhouse_public=True)
    few = direct.release(IMAGES[:200], DIGITS[:200])
    found = results.summarize(campaign_of(direct), few, None, None)["forgery"]
    assert (found["testable"], found["alarm"]) == (False, False)
    assert "cannot be told from honest ones" in found["words"]
