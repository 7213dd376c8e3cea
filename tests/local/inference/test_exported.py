"""Models of partitions as ONNX graphs, which answer as the models do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.local.inference import exported, tempering
from tacit.local.inference.decisions import Rule
from tacit.local.inference.field import Field
from tacit.local.inference.mixture import Member, Mixture
from tacit.local.inference.neural import Network
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.inference.views import Inputs
from tacit.local.learned import onnx
from tacit.local.learned.partitions import Partitions

pytest.importorskip("onnxruntime")

ROWS = np.random.default_rng(0).normal(size=(400, 6)).astype(np.float32)
LABELS = np.where(ROWS[:, 0] + ROWS[:, 1] > 0.8, 2, np.where(ROWS[:, 2] > 0, 1, 0))


@pytest.fixture(scope="module", name="first")
def _first() -> Partitions:
    return Partitions(epsilon=4, people=400, classes=3).fit(ROWS, inhouse_public=True)


def _models(first: Partitions) -> dict[str, Any]:
    rng, vectors = np.random.default_rng(1), first.vectors(ROWS)
    whole = slice(0, vectors.shape[1])

    def member(seen: Inputs, share: float) -> Member:
        weights = 10 * rng.normal(size=(4, seen.width, 3))
        weights[:, -1] = 0  # no class is preferred for every row
        return Member(seen, weights.astype(np.float32), share)

    linear = Inputs(whole.start, whole.stop)
    kernels = Inputs.kernels(vectors, whole, 0.7, 0)
    walks = Inputs.diffusion(vectors, whole, 4.0, 0)
    layers = [rng.normal(size=shape).astype(np.float32) for shape in ((whole.stop, 5), (5, 3))]
    biases = [rng.normal(size=size).astype(np.float32) for size in (5, 3)]
    scale = vectors.mean(axis=0), vectors.std(axis=0) + 0.1
    return {
        "linear": Mixture((member(linear, 1.0),)),
        "kernels": Mixture((member(kernels, 1.0),)),
        "diffusion": Mixture((member(walks, 1.0),)),
        "mixture": Mixture((member(linear, 0.5), member(walks, 0.5), member(kernels, 0.0))),
        "field": Field(vectors[:40], rng.dirichlet(np.ones(3), 40).astype(np.float32)),
        "network": Network(*scale, tuple(layers), tuple(biases)),
    }


RULES = {
    "most probable": (None, None),
    "priors": ([0.5, 0.3, 0.2], None),
    "costs": (None, [[0, 1, 3], [2, 0, 1], [1, 3, 0]]),
    "both": ([0.2, 0.2, 0.6], [[0, 1, 3], [2, 0, 1], [1, 3, 0]]),
}


@pytest.mark.parametrize("kind", ["linear", "kernels", "diffusion", "mixture", "field", "network"])
@pytest.mark.parametrize("named", RULES)
def test_graphs_answer_as_models_do(first: Partitions, kind: str, named: str) -> None:
    model, rule = _models(first)[kind], Rule.of("test", range(3), *RULES[named], None)
    learned = model.predict_proba(first.vectors(ROWS))
    assumed = learned.mean(axis=0)
    expected = rule.places(rule.reweighed(learned, assumed))
    assert len(np.unique(expected)) > 1  # else a constant would pass
    graph = exported.answers(first.vectors_graph(), model, rule, assumed)
    found = onnx.run(graph, first.schema.rows(ROWS, "test"))
    # A row with two answers that are equally good up to rounding may get either.
    costs = 1 - np.eye(3) if rule.costs is None else rule.costs
    expense = rule.reweighed(learned, assumed) @ costs
    everyone = np.arange(len(ROWS))
    assert (expense[everyone, found] - expense[everyone, expected]).max() < 1e-3


def test_landmarks_that_are_equally_far_all_count(first: Partitions) -> None:
    """As in the model, which mixes all landmarks up to the distance of the last one."""
    width = first.vectors(ROWS).shape[1]
    marks = np.zeros((4, width), np.float32)
    marks[1:, 0] = 1  # two places among the nearest, three landmarks at the second distance
    walks = Inputs(0, width, marks, np.eye(4, dtype=np.float32), 2.0, 2)
    weights = np.zeros((1, 5, 2), np.float32)
    weights[0, 0, 0], weights[0, 3, 1] = 2, 4  # the last of the three tells
    model, rule = Mixture((Member(walks, weights, 1.0),)), Rule.of("test", range(2), *[None] * 3)
    expected = rule.places(model.predict_proba(first.vectors(ROWS)))
    assert len(np.unique(expected)) == 2
    graph = exported.answers(first.vectors_graph(), model, rule, np.full(2, 0.5))
    found = onnx.run(graph, first.schema.rows(ROWS, "test"))
    assert (found != expected).mean() <= 0.005


def test_sharpness_counts_where_costs_do(first: Partitions) -> None:
    model, rule = _models(first)["field"], Rule.of("test", range(3), *RULES["costs"], None)
    learned, answers = model.predict_proba(first.vectors(ROWS)), {}
    for sharpness in (0.5, 1.0, 2.0):
        expected = rule.places(tempering.raised(learned, sharpness))
        graph = exported.answers(
            first.vectors_graph(), model, rule, learned.mean(axis=0), sharpness
        )
        answers[sharpness] = onnx.run(graph, first.schema.rows(ROWS, "test"))
        assert (answers[sharpness] != expected).mean() <= 0.005
    assert (answers[0.5] != answers[2.0]).any()


@pytest.mark.parametrize("rule", [{}, {"threshold": 0.3}, {"priors": [0.2, 0.8]}])
def test_a_learned_model_is_exported_with_its_rule(rule: dict[str, Any]) -> None:
    labels = (LABELS > 0).astype(int)
    mechanism = Partitions(epsilon=8, people=400, classes=2).fit(ROWS, inhouse_public=True)
    model = ProportionsClassifier(inhouse=ROWS, inhouse_public=True, prior="inhouse", **rule)
    model.fit(mechanism.release(ROWS, labels))
    graph = model.onnx()
    assert graph is not None
    assert graph == model.onnx()  # all servers of a campaign describe the same hash
    found = onnx.run(graph, mechanism.schema.rows(ROWS, "test"))
    assert (model.classes_[found] != model.predict(ROWS)).mean() <= 0.005
