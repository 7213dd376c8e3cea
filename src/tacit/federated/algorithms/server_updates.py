r"""Server updates: how the server updates the model from the replies of one phase.

There are two separate steps. `average` computes the weighted mean of what clients sent; it is the
only place where single replies are read:

.. math:: \bar v = \sum_{k \in S} n_k v_k \Big/ \sum_{k \in S} n_k

Then a pure function ``(config, state, averaged) → (global, state)`` updates the model. Whatever
replaces the mean (a noisy sum over an expected cohort, a secure sum, a median) leaves the second
step as it is: it is post-processing of what was released.

References
----------
See `tacit.federated.algorithms.client_updates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tacit.federated.algorithms.client_updates import Global
from tacit.federated.config import Config
from tacit.federated.payload import Payload, Vector
from tacit.privacy import errors


@dataclass(frozen=True, eq=False)
class ServerState:
    """The global model, other vectors that the server keeps, and the clients' total weight."""

    model: Vector
    population: float
    """Sum of the weights of all clients, available or not; their number if weights are equal."""
    memory: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Averaged:
    """Weighted means of the parts, in float64, and the sum of the weights."""

    parts: Mapping[str, Vector]
    weight: float


Update = Callable[[Config, ServerState, Averaged], tuple[Global, ServerState]]


def average(payloads: Sequence[Payload]) -> Averaged:
    """Compute the weighted mean of each part, summed in float64 in the order given."""
    if not payloads:
        errors.refuse("average", "payloads", "at least one", 0, "Skip the round.")
    weight = float(sum(payload.weight for payload in payloads))
    sums = {
        name: np.zeros(len(vector), dtype=np.float64) for name, vector in payloads[0].parts.items()
    }
    for payload in payloads:
        for name, total in sums.items():
            total += payload.weight * payload.parts[name].astype(np.float64)
    return Averaged({name: total / weight for name, total in sums.items()}, weight)


def descend(config: Config, state: ServerState, averaged: Averaged) -> tuple[Global, ServerState]:
    r"""Step along the mean gradient, :math:`w_{t+1} = w_t - \eta \bar g`: FedSGD."""
    return _with_model(state, state.model - config.learning_rate * averaged.parts["gradient"])


def announce(config: Config, state: ServerState, averaged: Averaged) -> tuple[Global, ServerState]:
    r"""Send :math:`\nabla F(w_t) = \bar g` with the unchanged model: the first phase of FSVRG."""
    gradient = averaged.parts["gradient"].astype(np.float32)
    return {"model": state.model, "gradient": gradient}, state


def follow(config: Config, state: ServerState, averaged: Averaged) -> tuple[Global, ServerState]:
    r"""Add the mean update, :math:`w_{t+1} = w_t + s\, \bar\Delta`: FedAvg, FedProx and FSVRG."""
    return _with_model(state, state.model + config.server_rate * averaged.parts["update"])


def dynamic(config: Config, state: ServerState, averaged: Averaged) -> tuple[Global, ServerState]:
    r"""Add the mean update, corrected by the clients' drift over all rounds: FedDyn.

    .. math:: h \leftarrow h - \alpha \frac{n_S}{n} \bar\Delta, \qquad
              w_{t+1} = w_t + \bar\Delta - h / \alpha

    :math:`n_S / n` is the share of the total weight that belongs to the clients that replied, so h
    is the mean correction over *all* clients. At a fixed point h = 0, and there the weighted sum of
    the clients' gradients is zero: the optimum. Weights other than one give the same theorem for
    :math:`\sum_k n_k F_k`, with the penalty :math:`n_k \alpha` for client k.
    """
    update = averaged.parts["update"]
    drift = state.memory.get("drift", np.zeros_like(update))
    share = min(1.0, averaged.weight / state.population)  # whatever weights clients claim
    drift = drift - config.alpha * share * update
    model = state.model + update - drift / config.alpha
    return _with_model(replace(state, memory={"drift": drift}), model)


def intersect(config: Config, state: ServerState, averaged: Averaged) -> tuple[Global, ServerState]:
    r"""Average every parameter over the clients that kept it: Sub-FedAvg.

    .. math:: w_{t+1} = w_t + \sum_k n_k\, m_k \odot \Delta_k \Big/ \sum_k n_k\, m_k

    Both sums are linear in what clients send. Parameters that no client kept stay as they were.
    """
    kept = averaged.parts["mask"]
    moved = np.divide(averaged.parts["update"], kept, out=np.zeros_like(kept), where=kept > 0)
    return _with_model(state, state.model + config.server_rate * moved)


def _with_model(state: ServerState, model: Vector) -> tuple[Global, ServerState]:
    """Round the model to float32, so that server and clients start from the same numbers."""
    rounded = model.astype(np.float32)
    return {"model": rounded}, replace(state, model=rounded)
