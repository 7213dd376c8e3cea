"""Accuracy a batch at a time, and intervals that hold what they promise."""

import json

import numpy as np
import pytest
from scipy.stats import binom

from tacit.local.evaluation import Tally, area, area_interval, mean_interval, wilson
from tacit.privacy.errors import InvalidData, InvalidParameter


def test_wilson_is_where_the_score_test_turns():
    """Its ends are the shares that the observed one is z standard errors away from."""
    for correct, rows in ((0, 10), (3, 10), (10, 10), (870, 1000)):
        for end in wilson(correct, rows, 0.95):
            if 1e-9 < end < 1 - 1e-9:
                deviation = (end * (1 - end) / rows) ** 0.5
                assert abs(correct / rows - end) / deviation == pytest.approx(1.959964, rel=1e-6)
    assert wilson(0, 10)[0] == pytest.approx(0, abs=1e-12)
    assert wilson(10, 10)[1] == pytest.approx(1, abs=1e-12)
    assert 0.6 < wilson(10, 10)[0] < 1


def test_wilson_covers():
    rows, counts = 60, np.arange(61)
    ends = np.array([wilson(int(c), rows, 0.95) for c in counts])
    for share in (0.5, 0.8, 0.95):
        inside = (ends[:, 0] <= share) & (share <= ends[:, 1])
        assert 0.92 < binom.pmf(counts, rows, share)[inside].sum() < 0.98


def test_wilson_of_nothing_and_refusals():
    assert wilson(0, 0) == (0.0, 1.0)
    narrow, wide = wilson(5, 10, 0.5), wilson(5, 10, 0.99)
    assert wide[0] < narrow[0] < 0.5 < narrow[1] < wide[1]
    for confidence in (0, 1, 1.5, float("nan")):
        with pytest.raises(InvalidParameter, match="confidence must be"):
            wilson(1, 2, confidence)


def test_batches_add_up():
    rng = np.random.default_rng(0)
    names = np.array(["a", "b", "c"])
    truth, said = names[rng.integers(0, 3, 100)], names[rng.integers(0, 3, 100)]
    whole, parts = Tally(("a", "b", "c")), Tally(("a", "b", "c"))
    whole.add(truth, said)
    for start in range(0, 100, 7):
        parts.add(truth[start : start + 7], said[start : start + 7])
    result = whole.to_dict()
    assert parts.to_dict() == result
    assert result["rows"] == 100
    assert result["accuracy"] == (truth == said).mean()
    assert result["interval"] == list(wilson(int((truth == said).sum()), 100))
    for part in result["by_class"]:
        mine = truth == part["class"]
        assert part["rows"] == mine.sum()
        assert part["recall"] == pytest.approx((said[mine] == part["class"]).mean())
        assert part["precision"] == pytest.approx(
            (truth[said == part["class"]] == part["class"]).mean()
        )
    assert json.loads(json.dumps(result)) == result


def test_a_class_that_nobody_has():
    tally = Tally((0, 1, 2))
    tally.add(np.array([0, 0]), np.array([0, 2]))
    empty = tally.to_dict()["by_class"][1]
    assert (empty["rows"], empty["recall"], empty["interval"]) == (0, None, [0.0, 1.0])
    assert (empty["answers"], empty["precision"]) == (0, None)
    assert tally.to_dict()["balanced_accuracy"]["value"] == 0.5  # over the classes that occur
    assert Tally((0, 1)).to_dict()["accuracy"] == 0.0


def test_an_unknown_label_is_refused_and_nothing_is_counted():
    tally = Tally(("a", "b"))
    with pytest.raises(InvalidData, match="row 2 is not") as error:
        tally.add(np.array(["a", "b", "secret"]), np.array(["a", "b", "a"]))
    assert "secret" not in str(error.value)
    assert tally.to_dict()["rows"] == 0


# --- classes of different sizes -------------------------------------------------------------------


def scored(rows, classes, seed=0):
    """Labels with unequal shares, and probabilities that know something about them."""
    rng = np.random.default_rng(seed)
    truth = np.minimum(rng.geometric(0.5, rows) - 1, classes - 1)
    logits = 1.5 * np.eye(classes)[truth] + rng.gumbel(size=(rows, classes)).round(1)
    odds = np.exp(logits)
    return truth, odds / odds.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 4])
def test_measures_are_those_of_scikit_learn(classes):
    from sklearn import metrics

    truth, scores = scored(700, classes)
    said = scores.argmax(axis=1)
    tally = Tally(tuple(range(classes)))
    for start in range(0, 700, 60):
        part = slice(start, start + 60)
        tally.add(truth[part], said[part], scores[part])
    found = tally.to_dict()
    wanted = metrics.balanced_accuracy_score(truth, said)
    assert found["balanced_accuracy"]["value"] == pytest.approx(wanted)
    assert found["confusion"] == metrics.confusion_matrix(truth, said).tolist()
    kept = scores.astype(np.float32).astype(np.float64)
    area = (
        metrics.roc_auc_score(truth, kept[:, 1])
        if classes == 2
        else np.mean([metrics.roc_auc_score(truth == c, kept[:, c]) for c in range(classes)])
    )
    assert found["auc"]["value"] == pytest.approx(area)
    assert found["calibration"]["log_loss"] == pytest.approx(metrics.log_loss(truth, scores))
    squares = ((scores - np.eye(classes)[truth]) ** 2).sum(axis=1).mean()
    assert found["calibration"]["brier"] == pytest.approx(squares)
    shares = np.tile(np.bincount(truth) / 700, (700, 1))
    assert found["calibration"]["log_loss_of_shares"] == pytest.approx(
        metrics.log_loss(truth, shares)
    )
    for one in (found["auc"], found["balanced_accuracy"]):
        assert one["interval"][0] < one["value"] < one["interval"][1]
    assert json.loads(json.dumps(found)) == found


def test_intervals_of_areas_and_means_cover():
    """Binormal scores of 30 and 90 rows; recalls of .9 and .4."""
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    missed_area = missed_mean = 0
    true = norm.cdf(1.2 / 2**0.5)
    positive = np.arange(120) < 30
    for _ in range(400):
        value = area(rng.normal(1.2 * positive), positive)
        low, high = area_interval(value, 30, 90)
        missed_area += not low <= true <= high
        counts = [(int(rng.binomial(200, 0.9)), 200), (int(rng.binomial(20, 0.4)), 20)]
        low, high = mean_interval([c / n for c, n in counts], [wilson(*one) for one in counts])
        missed_mean += not low <= 0.65 <= high
    assert missed_area <= 36
    assert 6 <= missed_mean <= 36


def test_areas_at_the_ends_have_a_width():
    positive = np.arange(40) < 20
    assert area(positive.astype(float), positive) == 1.0
    low, high = area_interval(1.0, 20, 20)
    assert (low < 0.95, high) == (True, 1.0)
    assert area_interval(0.0, 20, 20)[0] == 0.0
    assert area(np.zeros(40), positive) == 0.5
    assert area_interval(float("nan"), 0, 20) == (0.0, 1.0)


def test_all_answers_of_one_class():
    tally = Tally(("no", "yes"))
    tally.add(np.array(["no"] * 9 + ["yes"]), np.full(10, "no"), np.full((10, 2), 0.5))
    found = tally.to_dict()
    assert tally.constant == "no"
    assert (found["accuracy"], found["largest"]) == (0.9, 0.9)
    assert found["balanced_accuracy"]["value"] == found["auc"]["value"] == 0.5
    assert found["by_class"][1]["precision"] is None
    assert Tally(("no", "yes")).constant is None
    with pytest.raises(InvalidData, match="answers must be among"):
        tally.add(np.array(["no"]), np.array(["maybe"]))
    assert tally.to_dict()["rows"] == 10


def test_rows_of_one_class_have_no_area():
    tally = Tally((0, 1))
    tally.add(np.zeros(5, int), np.zeros(5, int), np.full((5, 2), 0.5))
    assert tally.to_dict()["auc"] == {"value": None, "interval": [0.0, 1.0]}
