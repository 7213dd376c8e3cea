"""Masks get thinner by the stated step, down to the target, where weights are small."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.federated.algorithms import pruning
from tacit.federated.config import Pruning
from tacit.federated.payload import Layout
from tacit.privacy import errors

LAYOUT = Layout((("0.weight", (10, 8)), ("0.bias", (10,)), ("2.weight", (3, 10)), ("2.bias", (3,))))
WEIGHTS = np.random.default_rng(0).normal(size=LAYOUT.size)
FULL = np.ones(LAYOUT.size)


def test_the_smallest_weights_of_each_tensor_go() -> None:
    mask = pruning.thinner(WEIGHTS, FULL, LAYOUT, Pruning(target=0.5, step=0.1))
    named, weights = LAYOUT.unflatten(mask), LAYOUT.unflatten(np.abs(WEIGHTS))
    for name, count in [("0.weight", 8), ("2.weight", 3)]:
        gone = named[name] == 0
        assert gone.sum() == count
        assert weights[name][gone].max() < weights[name][~gone].min()
    assert named["0.bias"].all()
    assert named["2.bias"].all()


def test_whole_units_go_with_their_bias_and_classes_stay() -> None:
    mask = pruning.thinner(WEIGHTS, FULL, LAYOUT, Pruning("structured", target=0.5, step=0.2))
    named, weights = LAYOUT.unflatten(mask), LAYOUT.unflatten(WEIGHTS)
    gone = np.flatnonzero(named["0.bias"] == 0)
    assert set(gone) == set(np.argsort(np.linalg.norm(weights["0.weight"], axis=1))[:2])
    assert not named["0.weight"][gone].any()
    assert named["0.weight"].sum() == 8 * 8
    assert named["2.weight"].all()


@pytest.mark.parametrize("kind", ["unstructured", "structured"])
@pytest.mark.parametrize("target", [0.0, 0.3, 0.7, 0.95])
def test_masks_end_at_the_target(kind: str, target: float) -> None:
    mask, rule = FULL, Pruning(kind, target=target)
    for _ in range(60):
        thinner = pruning.thinner(WEIGHTS * mask, mask, LAYOUT, rule)
        assert np.all(thinner <= mask)
        mask = thinner
    assert target - 0.11 < pruning.pruned_share(mask, LAYOUT, kind) <= target + 1e-9


def test_distance_is_the_share_that_differs() -> None:
    other = FULL.copy()
    other[:4] = 0
    assert pruning.distance(FULL, other) == pytest.approx(4 / LAYOUT.size)


@pytest.mark.parametrize("given", [{"kind": "random"}, {"target": 1}, {"step": 0}, {"accuracy": 2}])
def test_impossible_rules_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(errors.InvalidParameter, match=r"^Pruning: \w+ must be"):
        Pruning(**given)  # type: ignore[arg-type]
