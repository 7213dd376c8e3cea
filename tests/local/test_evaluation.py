"""Accuracy a batch at a time, and intervals that hold what they promise."""

import json

import numpy as np
import pytest
from scipy.stats import binom

from tacit.local.evaluation import Tally, wilson
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
        assert part["accuracy"] == pytest.approx((said[mine] == part["class"]).mean())
    assert json.loads(json.dumps(result)) == result


def test_a_class_that_nobody_has():
    tally = Tally((0, 1, 2))
    tally.add(np.array([0, 0]), np.array([0, 2]))
    empty = tally.to_dict()["by_class"][1]
    assert empty == {"class": 1, "rows": 0, "accuracy": 0.0, "interval": [0.0, 1.0]}
    assert Tally((0, 1)).to_dict()["accuracy"] == 0.0


def test_an_unknown_label_is_refused_and_nothing_is_counted():
    tally = Tally(("a", "b"))
    with pytest.raises(InvalidData, match="row 2 is not") as error:
        tally.add(np.array(["a", "b", "secret"]), np.array(["a", "b", "a"]))
    assert "secret" not in str(error.value)
    assert tally.to_dict()["rows"] == 0
