"""Noise on every feature by itself: shares, law, gaps in the data, refusals."""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.learned.direct import STEPS, Direct
from tacit.privacy import events
from tacit.privacy.errors import InvalidData, InvalidParameter

TABLE = TableSchema(
    (
        Continuous("age", 0, 100, outside="clip"),
        Categorical("job", ("a", "b", "c"), unseen="other"),
        Continuous("income", 0, 10, missing="indicate"),
    )
)


def table(count=6):
    income = np.linspace(0, 10, count)
    income[1] = np.nan
    return {
        "age": np.linspace(0, 200, count),
        "job": np.array(["a", "b", "c", "z", "a", "b"])[:count],
        "income": income,
    }


@pytest.fixture
def direct():
    return Direct(epsilon=3, classes=["no", "yes"], label_share=0.2).fit(table(), schema=TABLE)


def test_every_feature_gets_the_same_share(direct):
    """Two numbers, whether one of them is missing, a category: a quarter of 2.4 each."""
    leaves = events.leaves(direct.channel(True).event)
    shares = [
        leaf.l1_sensitivity / leaf.scale if isinstance(leaf, events.Laplace) else leaf.epsilon
        for leaf in leaves
    ]
    assert shares == [Fraction(3, 5)] * 3 + [Fraction(3, 5)]
    assert direct.channel(True).guarantee.epsilon == 3
    assert direct.channel(False).guarantee.epsilon == 3
    assert direct.certificate.guarantee.epsilon == 3


def test_encoding_clips_fills_and_codes(direct):
    encoded = direct.encode(table())
    assert encoded[:, 0].tolist() == [0, 102, 205, 256, 256, 256]
    assert encoded[1, 1] == STEPS // 2
    assert encoded[:, 2].tolist() == [0, 1, 0, 0, 0, 0]
    assert encoded[:, 3].tolist() == [0, 1, 2, 3, 0, 1]


def test_the_worst_pair_is_at_epsilon(direct):
    low = np.array([[0, 0, 0, 0]])
    high = np.array([[STEPS, STEPS, 1, 3]])
    columns = {"numbers": low[:, :2], "codes": low[:, 2:], "label": np.array([0])}
    near = direct.log_prob(columns, low, np.array([0]))
    far = direct.log_prob(columns, high, np.array([1]))
    assert float((near - far)[0]) == pytest.approx(3, abs=1e-6)
    assert float((near - far)[0]) <= 3 + 1e-9


def deviates(direct, released, clean):
    """Mean |noise| against the law; a false alarm in 1e6 runs."""
    scale = float(direct.channel(False).noise.event.scale)
    size = np.abs(released - clean)
    return abs(size.mean() - 1 / math.sinh(1 / scale)) > 4.9 * size.std() / size.size**0.5


def test_release_follows_the_law_and_a_mutant_does_not():
    raw = np.random.default_rng(0).random((5000, 4))
    direct = Direct(epsilon=8).fit(raw, schema=ArraySchema(4, 0, 1))
    released = direct.release(raw).columns["numbers"]
    assert not deviates(direct, released, direct.encode(raw))
    assert deviates(direct.at(8.8), released, direct.encode(raw))


def test_release_of_a_table(direct):
    labels = np.array(["no", "yes"] * 3)
    reports = direct.at(600).release(table(), labels, rng=np.random.default_rng(0))
    # At such an ε nothing is hidden: flips almost never happen, numbers move by few steps.
    assert np.array_equal(reports.columns["codes"], direct.encode(table())[:, 2:])
    assert np.abs(reports.columns["numbers"] - direct.encode(table())[:, :2]).max() < 40
    assert reports.columns["label"].tolist() == [0, 1] * 3
    assert reports.seeded
    features = direct.released_features(reports)
    assert features.shape == direct.clean_features(table()).shape == (6, 2 + 2 + 4)
    assert direct.channel(True).flip.matrix.shape == (2, 2)


def test_parts(direct):
    parameters, arrays = direct.parts()
    assert arrays == {}
    again = Direct.from_parts(parameters, arrays)
    assert again.channel(True).event == direct.channel(True).event
    assert np.array_equal(again.encode(table()), direct.encode(table()))


@pytest.mark.parametrize("epsilon", [0, math.inf, math.nan])
def test_no_epsilon_that_protects_nobody(direct, epsilon):
    with pytest.raises(InvalidParameter, match="Direct: epsilon must be"):
        Direct(epsilon=epsilon)
    with pytest.raises(InvalidParameter, match="Direct: epsilon must be"):
        direct.at(epsilon)


def test_refusals(direct):
    with pytest.raises(InvalidData, match="row 1 is not"):
        direct.release(table(2), ["no", "perhaps"])
    with pytest.raises(InvalidData, match="one per row"):
        direct.release(table(2), ["no"])
    with pytest.raises(InvalidParameter, match="must be fitted first"):
        Direct(epsilon=1).release(table())
    with pytest.raises(InvalidParameter, match="two values or more"):
        Direct(epsilon=1).fit({}, schema=TableSchema((Categorical("x", ("a",)),)))
    good = direct.release(table(), ["no"] * 6).columns
    for name, column in [("codes", good["codes"] + 9), ("label", good["label"] - 9)]:
        with pytest.raises(InvalidData, match="reports"):
            direct.channel(True).check({**good, name: column})
    with pytest.raises(InvalidData, match="reports"):
        direct.channel(True).check({"numbers": good["numbers"]})


@pytest.mark.heavy
def test_it_needs_no_torch():
    code = "import sys, tacit.local.learned.direct; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
