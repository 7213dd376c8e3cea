r"""Client updates: the computation of one client in one phase of a round.

Each is a pure function ``(config, model, received, state, data, rng) → (payload, state)``. Parts of
a payload are *differences* from the received model, or gradients: near zero where the client has
little to contribute, so that a norm bounds them. `rng` draws only the order of rows.

Notes
-----
No function here adds noise or claims privacy. A guarantee comes from what surrounds them: private
training inside the client (`record_level`), or clipping and noise on the parts that a phase
declares (`client_level`).

References
----------
.. [MMR17] McMahan et al. Communication-efficient learning of deep networks from decentralized data.
   AISTATS 2017.
.. [LSZ20] Li et al. Federated optimization in heterogeneous networks. MLSys 2020.
.. [KMR16] Konečný, McMahan, Ramage, Richtárik. Federated optimization: distributed machine learning
   for on-device intelligence. 2016.
.. [AZN21] Acar et al. Federated learning based on dynamic regularization. ICLR 2021.
.. [VML21] Vahidian, Morafah, Lin. Personalized federated learning by structured and unstructured
   pruning under data heterogeneity. ICDCS Workshops 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tacit.federated.algorithms import pruning
from tacit.federated.config import Config
from tacit.federated.model import Data, Model
from tacit.federated.payload import Payload, Vector

Global = Mapping[str, Vector]
"""What the server sends: "model", and whatever else a phase needs."""

State = Mapping[str, Vector]
"""What a client keeps between rounds; empty before the first round."""

Update = Callable[[Config, Model, Global, State, Data, np.random.Generator], tuple[Payload, State]]
Pull = Callable[[Vector], Vector]
"""A term that is added to the gradient at a point."""


def full_gradient(
    config: Config,
    model: Model,
    received: Global,
    state: State,
    data: Data,
    rng: np.random.Generator,
) -> tuple[Payload, State]:
    r"""Compute :math:`g_k = \nabla F_k(w_t)` on all rows: FedSGD, and the first phase of FSVRG."""
    at = received["model"].astype(model.dtype)
    gradient = model.gradient(at, data.rows, data.labels).copy()
    return Payload({"gradient": gradient}, _weight(config, data)), state


def averaging(
    config: Config,
    model: Model,
    received: Global,
    state: State,
    data: Data,
    rng: np.random.Generator,
) -> tuple[Payload, State]:
    r"""Run E epochs of :math:`w \leftarrow w - \eta \nabla \ell(w; b)`: FedAvg [MMR17]_.

    Rows are split into batches of size B once per round, as in the paper.
    """
    return _moved(config, model, received, data, rng), state


def proximal(
    config: Config,
    model: Model,
    received: Global,
    state: State,
    data: Data,
    rng: np.random.Generator,
) -> tuple[Payload, State]:
    r"""Run the same steps on :math:`F_k(w) + \frac{\mu}{2} \|w - w_t\|^2`: FedProx [LSZ20]_."""
    start, strength = received["model"], config.proximal
    return _moved(config, model, received, data, rng, lambda w: strength * (w - start)), state


def dynamic(
    config: Config,
    model: Model,
    received: Global,
    state: State,
    data: Data,
    rng: np.random.Generator,
) -> tuple[Payload, State]:
    r"""Run local steps on a loss that is regularized towards the global optimum: FedDyn [AZN21]_.

    .. math:: F_k(w) - \langle g_k, w \rangle + \tfrac{\alpha}{2} \|w - w_t\|^2, \qquad
              g_k \leftarrow g_k - \alpha (w_k - w_t)

    At the minimum :math:`g_k = \nabla F_k(w_k)`. The correction :math:`g_k` stays with the client.
    """
    start, alpha = received["model"].astype(model.dtype), config.alpha
    correction = state.get("correction", np.zeros_like(start))
    pull = alpha * start + correction
    payload = _moved(config, model, received, data, rng, lambda w: alpha * w - pull)
    return payload, {"correction": correction - alpha * payload.parts["update"]}


def variance_reduced(
    config: Config,
    model: Model,
    received: Global,
    state: State,
    data: Data,
    rng: np.random.Generator,
) -> tuple[Payload, State]:
    r"""Make one pass over the rows in random order: the second phase of FSVRG [KMR16]_.

    .. math:: w \leftarrow w - h_k \big(\nabla f_i(w) - \nabla f_i(w_t) + \nabla F(w_t)\big),
              \qquad h_k = h / n_k

    With batches of size B a step is B times as long. At the optimum every step is zero whatever the
    client's rows are, so there is no drift.
    """
    start = received["model"].astype(model.dtype)
    full = received["gradient"]
    now, rate = start.copy(), config.step_size / len(data)
    for rows, labels in _batches(data, config.batch_size, rng):
        step = full + model.gradient(now, rows, labels)
        step -= model.gradient(start, rows, labels)
        now -= (rate * len(rows)) * step
    return Payload({"update": now - start}, _weight(config, data)), state


def pruned(
    config: Config,
    model: Model,
    received: Global,
    state: State,
    data: Data,
    rng: np.random.Generator,
) -> tuple[Payload, State]:
    r"""Train the sub-network that a client keeps, and prune it: Sub-FedAvg [VML21]_.

    .. math:: w \leftarrow m_k \odot w_t, \quad w \leftarrow w - \eta\, m_k \odot \nabla \ell(w; b)

    After the first and the last epoch a sparser mask is derived. The last one is adopted as long as
    the target is not reached, the two masks differ enough, and the client's model is accurate
    enough. With one epoch both would be equal, and nothing would ever be pruned; the first mask is
    then derived from the received weights. "personal" in the state is the client's own model.

    Notes
    -----
    Masks are derived from the weights, so from the data: no clipping and no noise makes them
    private. Under a guarantee for clients a mask must be public; inside a silo that trains
    privately it is post-processing.
    """
    start, layout, rule = received["model"].astype(model.dtype), model.layout, config.pruning
    mask = state.get("mask", np.ones_like(start))
    now = earlier = start * mask
    for epoch, now in enumerate(_epochs(config, model, start * mask, data, rng, mask=mask)):
        if epoch == 0 and config.epochs > 1:
            earlier = now.copy()  # the steps of the next epoch are taken in place
    if pruning.pruned_share(mask, layout, rule.kind) < rule.target:
        first, last = (pruning.thinner(one, mask, layout, rule) for one in (earlier, now))
        moving = pruning.distance(first, last) >= rule.distance
        if moving and model.evaluate(now, data.rows, data.labels).accuracy >= rule.accuracy:
            mask, now = last, now * last
    parts = {"update": (now - start) * mask, "mask": mask}
    return Payload(parts, _weight(config, data)), {"mask": mask, "personal": now}


def _weight(config: Config, data: Data) -> float:
    return float(len(data)) if config.weighted else 1.0


def _moved(
    config: Config,
    model: Model,
    received: Global,
    data: Data,
    rng: np.random.Generator,
    pull: Pull | None = None,
) -> Payload:
    """Compute the update of the model by local epochs."""
    start = received["model"].astype(model.dtype)
    now = start
    for now in _epochs(config, model, start, data, rng, pull):  # noqa: B007
        pass
    # Rounded already here, so that the client remembers the update that the server receives.
    return Payload({"update": (now - start).astype(np.float32)}, _weight(config, data))


def _epochs(
    config: Config,
    model: Model,
    start: Vector,
    data: Data,
    rng: np.random.Generator,
    pull: Pull | None = None,
    mask: Vector | None = None,
) -> Iterator[Vector]:
    """Yield the parameters after each epoch of SGD; `mask` marks those that may change."""
    now, velocity = start.copy(), np.zeros_like(start)
    rate, momentum, decay = config.learning_rate, config.momentum, config.weight_decay
    batches = _batches(data, config.batch_size, rng)
    for _ in range(config.epochs):
        for rows, labels in batches:
            step = model.gradient(now, rows, labels)
            if decay:
                step += decay * now
            if pull is not None:
                step += pull(now)
            if mask is not None:
                step *= mask
            if config.gradient_norm is not None:
                step *= min(1.0, config.gradient_norm / max(float(np.linalg.norm(step)), 1e-30))
            if momentum:
                velocity *= momentum
                velocity += step
                step = velocity
            now -= rate * step
        yield now


def _batches(data: Data, size: int | None, rng: np.random.Generator) -> list[tuple[Vector, Vector]]:
    """Split the rows into batches in random order; one batch of all rows keeps their order."""
    if size is None or size >= len(data):
        return [(data.rows, data.labels)]
    order = rng.permutation(len(data))
    rows, labels = data.rows[order], data.labels[order]
    return [(rows[at : at + size], labels[at : at + size]) for at in range(0, len(data), size)]
