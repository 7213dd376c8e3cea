"""Algorithms by name: their phases, what each phase sends, and what clients keep.

An `Algorithm` is a value. An engine that can carry out one phase can run all of them, without a
special case for any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from tacit.federated.algorithms import client_updates as local
from tacit.federated.algorithms import server_updates as aggregation
from tacit.federated.config import Config, Pruning
from tacit.federated.payload import PayloadPart
from tacit.privacy import errors

_LOCAL = ("learning_rate", "epochs", "batch_size", "momentum", "weight_decay", "gradient_norm")


@dataclass(frozen=True)
class Phase:
    """One exchange: clients compute `client`, and the server applies `server` to the mean.

    Parameters
    ----------
    name : str
        Name of the phase.
    client, server : callable
        Pure functions from `client_updates` and `server_updates`.
    parts : tuple of PayloadPart
        Parts of a reply.
    receives : tuple of str
        Names of the vectors that the server sends.
    """

    name: str
    client: local.Update
    server: aggregation.Update
    parts: tuple[PayloadPart, ...]
    receives: tuple[str, ...] = ("model",)


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm: everything that an engine has to know about it.

    Parameters
    ----------
    name : str
        Name in configurations and records.
    phases : tuple of Phase
        The exchanges of a round, in order.
    reads : tuple of str
        The settings of `Config` that it uses.
    state : tuple of str
        Names of the vectors that a client keeps between rounds. They stay with the client. A new
        state counts once the server has accepted the reply that came with it.
    personal : str, optional
        Name of the vector that is the client's own model.
    presets : mapping
        Settings whose defaults differ from those of `Config`.
    on_client, on_server, sent : str
        For people: what a client computes, what the server computes, and what travels in a round.
    """

    name: str
    phases: tuple[Phase, ...]
    reads: tuple[str, ...]
    state: tuple[str, ...] = ()
    personal: str | None = None
    presets: Mapping[str, Any] = field(default_factory=dict)
    on_client: str = ""
    on_server: str = ""
    sent: str = "1"

    def config(self, **settings: Any) -> Config:
        """Build settings, with this algorithm's defaults for those not given.

        Raises
        ------
        InvalidParameter
            For a setting that the algorithm does not read: it would have no effect.
        """
        known = ("weighted", *self.reads)
        for name, value in settings.items():
            if name not in known:
                remedy = f"{self.name} reads {', '.join(known)}."
                errors.refuse("Algorithm.config", name, "left out", value, remedy)
        return Config(**{**self.presets, **settings})

    def settings(self, config: Config) -> dict[str, Any]:
        """Return the settings of a configuration that this algorithm reads."""
        known = ("weighted", *self.reads)
        return {one.name: getattr(config, one.name) for one in fields(config) if one.name in known}


_UPDATE = PayloadPart("update")
_MASK = PayloadPart("mask", clip_unit=None, binary=True)
_KEPT = PayloadPart("update", kept="mask")
_GRADIENT = PayloadPart("gradient", clip_unit="gradient")

_FEDSGD = Algorithm(
    "fedsgd",
    (Phase("gradient", local.full_gradient, aggregation.descend, (_GRADIENT,)),),
    ("learning_rate",),
    presets=MappingProxyType({"learning_rate": 0.5}),
    on_client="g_k = ∇F_k(w), on all its rows",
    on_server="w − η ḡ",
)
_FEDAVG = Algorithm(
    "fedavg",
    (Phase("train", local.averaging, aggregation.follow, (_UPDATE,)),),
    (*_LOCAL, "server_rate"),
    on_client="E epochs of w ← w − η ∇ℓ(w; b); Δ_k",
    on_server="w + Δ̄",
)
_FEDPROX = Algorithm(
    "fedprox",
    (Phase("train", local.proximal, aggregation.follow, (_UPDATE,)),),
    (*_LOCAL, "server_rate", "proximal"),
    on_client="the same on F_k(w) + μ/2 ‖w − w_t‖²",
    on_server="w + Δ̄",
)
_FEDDYN = Algorithm(
    "feddyn",
    (Phase("train", local.dynamic, aggregation.dynamic, (_UPDATE,)),),
    (*_LOCAL, "alpha"),
    state=("correction",),
    on_client=(
        "epochs on F_k(w) − ⟨g_k, w⟩ + α/2 ‖w − w_t‖²; g_k ← g_k − α Δ_k stays with the client"
    ),
    on_server="h ← h − α (n_S/n) Δ̄; w + Δ̄ − h/α",
)
_FSVRG = Algorithm(
    "fsvrg",
    (
        Phase("gradient", local.full_gradient, aggregation.announce, (_GRADIENT,)),
        Phase(
            "svrg",
            local.variance_reduced,
            aggregation.follow,
            (_UPDATE,),
            receives=("model", "gradient"),
        ),
    ),
    ("step_size", "batch_size", "server_rate"),
    presets=MappingProxyType({"batch_size": 8}),  # the paper uses single rows: eight times the work
    on_client=("∇F_k(w_t); then for every row, w ← w − h/n_k (∇f_i(w) − ∇f_i(w_t) + ∇F(w_t))"),
    on_server="∇F = ḡ; then w + Δ̄",
    sent="2 up, 3 down",
)
_SUBFEDAVG = Algorithm(
    "subfedavg",
    (Phase("train", local.pruned, aggregation.intersect, (_MASK, _KEPT)),),
    (*_LOCAL, "server_rate", "pruning"),
    state=("mask", "personal"),
    personal="personal",
    presets=MappingProxyType({"pruning": Pruning()}),
    on_client=(
        "epochs on the parameters that it keeps, m_k ⊙ w; prunes m_k while it still changes "
        "between the first epoch and the last, or before and after a single one"
    ),
    on_server=("the mean of each parameter over the clients that kept it: w + Σ m_k Δ_k / Σ m_k"),
    sent="the kept parameters, and the mask in bits",
)

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {one.name: one for one in (_FEDSGD, _FEDAVG, _FEDPROX, _FSVRG, _FEDDYN, _SUBFEDAVG)}
)
"""All algorithms by name; default settings are those of the digits study."""


def algorithm(name: str) -> Algorithm:
    """Return an algorithm by its name.

    Examples
    --------
    >>> [phase.name for phase in algorithm("fsvrg").phases]
    ['gradient', 'svrg']
    >>> algorithm("feddyn").state
    ('correction',)
    """
    return ALGORITHMS[errors.choice("algorithm", "name", name, list(ALGORITHMS))]
