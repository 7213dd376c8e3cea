"""Classifiers of clean rows as ONNX graphs, from a row's vector to the index of its answer.

The mechanism starts the graph (`vectors_graph`), the model goes on from there, so that a device
without Python answers as `predict` does. Sums are taken in another order than by numpy: the last
digits differ, and a row with two equally good answers can get the other one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.local.inference.decisions import Rule
from tacit.local.inference.field import NEAREST, Field
from tacit.local.inference.mixture import Member, Mixture
from tacit.local.inference.neural import Network
from tacit.local.inference.views import Inputs

Reals = npt.NDArray[np.float64]

_FAR = np.float32(1e30)
"""Added to what was found to be nearest, to find the next one."""


def answers(
    vectors: Any,
    model: Mixture | Field | Network,
    rule: Rule,
    assumed: Reals,
    sharpness: float = 1.0,
) -> bytes:
    """Export `answer`, int64 (n,): the index of each row's answer among the classes.

    Parameters
    ----------
    vectors : Value
        The vectors of rows, in a graph that the mechanism has started.
    model : Mixture, Field or Network
        What gives probabilities.
    rule, assumed
        How probabilities become answers, and the class shares that they assume.
    sharpness : float
        The power that probabilities are raised to.
    """
    probable = _probabilities(vectors, model)
    if sharpness != 1.0:
        probable = vectors.graph.node("Pow", probable, np.float32(sharpness))
        probable = probable / probable.sum(1).reshape(-1, 1)
    place = _place(probable, rule, assumed)
    return bytes(vectors.graph.finish("answer", place, whole=True))


def _probabilities(vectors: Any, model: Mixture | Field | Network) -> Any:
    match model:
        case Network():
            return _network(vectors, model)
        case Field():
            return _field(vectors, model)
    parts = [_member(vectors, member) for member in model.members if member.share]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _network(vectors: Any, network: Network) -> Any:
    value = (vectors - _single(network.center)) / _single(network.spread)
    layers = list(zip(network.weights, network.biases, strict=True))
    for weight, bias in layers[:-1]:
        value = vectors.graph.node("Relu", value @ _single(weight) + _single(bias))
    last, bias = layers[-1]
    return _softmax(value @ _single(last) + _single(bias), 1)


def _member(vectors: Any, member: Member) -> Any:
    """Add the mean of the folds' probabilities, times the member's share."""
    folds, width, classes = member.weights.shape
    side_by_side = member.weights.transpose(1, 0, 2).reshape(width, folds * classes)
    seen = _inputs(vectors, member.inputs)
    logits = seen @ _single(side_by_side[:-1]) + _single(side_by_side[-1])
    odds = _softmax(logits.reshape(-1, folds, classes), 2)
    return odds.sum(1) * np.float32(member.share / folds)


def _inputs(vectors: Any, inputs: Inputs) -> Any:
    """Add what a member sees, without the constant."""
    own = vectors[:, inputs.start : inputs.stop]
    if inputs.landmarks is None or inputs.mixing is None:
        return own
    graph, marks = vectors.graph, inputs.landmarks.astype(np.float64)
    squares = (own * own).sum(1).reshape(-1, 1)
    away = squares + own @ _single(-2 * marks.T) + _single((marks**2).sum(axis=1))
    away = graph.node("Relu", away)
    if not inputs.nearest:
        return graph.node("Exp", away * np.float32(-inputs.gamma)) @ inputs.mixing
    hots = _nearest(away, len(marks), inputs.nearest)
    least, last = ((hot * away).sum(1).reshape(-1, 1) for hot in (hots[0], hots[-1]))
    # All that are as near as the last one, as in `Inputs`: landmarks may be equally far.
    chosen = graph.node("Cast", graph.node("GreaterOrEqual", last, away), to=_FLOAT)
    weights = chosen * graph.node("Exp", (away - least) * np.float32(-inputs.gamma))
    return weights / weights.sum(1).reshape(-1, 1) @ inputs.mixing


def _field(vectors: Any, field: Field) -> Any:
    centres = field.centres.astype(np.float64)
    scores = vectors @ _single(-centres.T) + _single((centres**2).sum(axis=1) / 2)
    weights = np.array(NEAREST[: len(centres)])
    hots = _nearest(scores, len(centres), len(weights))
    chosen = hots[0] * np.float32(weights[0])
    for hot, weight in zip(hots[1:], weights[1:], strict=True):
        chosen = chosen + hot * np.float32(weight)
    total = chosen @ _single(field.values)
    return total / total.sum(1).reshape(-1, 1)


def _nearest(distances: Any, count: int, places: int) -> list[Any]:
    """Mark the nearest, the second nearest and so on, each as a row of zeros with a single 1."""
    graph, hots = distances.graph, []
    depth, values = np.array([count], np.int64), np.array([0, 1], np.float32)
    for _ in range(places):
        first = graph.node("ArgMin", distances, axis=1, keepdims=0)
        hots.append(graph.node("OneHot", first, depth, values, axis=-1))
        distances = distances + hots[-1] * _FAR
    return hots


def _place(probabilities: Any, rule: Rule, assumed: Reals) -> Any:
    """Add what `Rule.reweighed` and `Rule.places` compute."""
    graph = probabilities.graph
    if rule.priors is not None:
        odds = probabilities * _single(rule.weights(assumed))
        total = odds.sum(1).reshape(-1, 1)
        some = graph.node("Greater", total, np.float32(0))
        probabilities = graph.node("Where", some, odds / total, _single(rule.priors))
    if rule.threshold is not None:
        reached = graph.node("GreaterOrEqual", probabilities[:, 1:2], np.float32(rule.threshold))
        return graph.node("Cast", reached, to=_INT64).reshape(-1)
    costs = -np.eye(len(assumed)) if rule.costs is None else rule.costs
    return graph.node("ArgMin", probabilities @ _single(costs), axis=1, keepdims=0)


def _softmax(logits: Any, axis: int) -> Any:
    return logits.graph.node("Softmax", logits, axis=axis)


def _single(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(array, np.float32)


_FLOAT, _INT64 = 1, 7  # ONNX's numbers
