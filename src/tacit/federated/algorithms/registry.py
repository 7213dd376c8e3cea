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
    """

    name: str
    phases: tuple[Phase, ...]
    reads: tuple[str, ...]
    state: tuple[str, ...] = ()
    personal: str | None = None
    presets: Mapping[str, Any] = field(default_factory=dict)

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
)
_FEDAVG = Algorithm(
    "fedavg",
    (Phase("train", local.averaging, aggregation.follow, (_UPDATE,)),),
    (*_LOCAL, "server_rate"),
)
_FEDPROX = Algorithm(
    "fedprox",
    (Phase("train", local.proximal, aggregation.follow, (_UPDATE,)),),
    (*_LOCAL, "server_rate", "proximal"),
)
_FEDDYN = Algorithm(
    "feddyn",
    (Phase("train", local.dynamic, aggregation.dynamic, (_UPDATE,)),),
    (*_LOCAL, "alpha"),
    state=("correction",),
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
)
_SUBFEDAVG = Algorithm(
    "subfedavg",
    (Phase("train", local.pruned, aggregation.intersect, (_MASK, _KEPT)),),
    (*_LOCAL, "server_rate", "pruning"),
    state=("mask", "personal"),
    personal="personal",
    presets=MappingProxyType({"pruning": Pruning()}),
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
