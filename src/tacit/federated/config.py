"""Settings of an algorithm: what client and server must agree on before a round."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.privacy import errors

PRUNINGS = ("unstructured", "structured")


@dataclass(frozen=True)
class Pruning:
    """When and how a client of Sub-FedAvg drops parameters.

    Parameters
    ----------
    kind : {"unstructured", "structured"}
        Single weights, or whole units: neurons and channels with their bias.
    target : float
        Share of what can be pruned that goes at most. With 0 every mask stays full.
    step : float
        Share of what is left that goes at once.
    distance : float
        Prune only where the masks after the first and the last epoch differ in at least this share
        of the parameters: a mask that still moves. With one epoch, those before and after it.
    accuracy : float
        Prune only once the client's own model is this good on its rows.
    """

    kind: str = "unstructured"
    target: float = 0.5
    step: float = 0.1
    distance: float = 1e-4
    accuracy: float = 0.5

    def __post_init__(self) -> None:
        errors.choice("Pruning", "kind", self.kind, PRUNINGS)
        errors.probability("Pruning", "target", self.target)
        errors.probability("Pruning", "step", self.step, zero=False)
        errors.probability("Pruning", "distance", self.distance)
        errors.probability("Pruning", "accuracy", self.accuracy)


@dataclass(frozen=True)
class Config:
    r"""All settings; an algorithm reads those that it names, and takes no others.

    Parameters
    ----------
    learning_rate : float
        :math:`\eta` of local steps; of the server's step in FedSGD.
    epochs : int
        E, passes over a client's rows in a round.
    batch_size : int, optional
        B, rows of a step. None: all of them.
    momentum, weight_decay : float
        Of local steps.
    gradient_norm : float, optional
        Longest gradient of a local step; for stability, without any guarantee.
    weighted : bool
        Clients count by their number of rows; else all alike.
    server_rate : float
        How far the server follows the mean update: 1 is the mean itself.
    proximal : float
        :math:`\mu` of FedProx.
    alpha : float
        :math:`\alpha` of FedDyn.
    step_size : float
        h of FSVRG: a client with :math:`n_k` rows steps by :math:`h / n_k` for each.
    pruning : Pruning
        Of Sub-FedAvg.
    """

    learning_rate: float = 0.05
    epochs: int = 5
    batch_size: int | None = 32
    momentum: float = 0.0
    weight_decay: float = 0.0
    gradient_norm: float | None = None
    weighted: bool = True
    server_rate: float = 1.0
    proximal: float = 0.1
    alpha: float = 0.1
    step_size: float = 1.0
    pruning: Pruning = Pruning()

    def __post_init__(self) -> None:
        where = "Config"
        for name in ("learning_rate", "server_rate", "alpha", "step_size"):
            errors.positive(where, name, getattr(self, name))
        for name in ("proximal", "weight_decay"):
            if errors.rational(where, name, getattr(self, name)) < 0:
                errors.refuse(where, name, "at least 0", getattr(self, name))
        errors.probability(where, "momentum", self.momentum)
        errors.whole(where, "epochs", self.epochs, least=1)
        if self.batch_size is not None:
            errors.whole(where, "batch_size", self.batch_size, least=1)
        if self.gradient_norm is not None:
            errors.positive(where, "gradient_norm", self.gradient_norm)
