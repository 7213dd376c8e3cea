"""Settings of an algorithm, on which client and server must agree before a round."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.privacy import errors

PRUNINGS = ("unstructured", "structured")


@dataclass(frozen=True)
class Pruning:
    """The rule by which a client of Sub-FedAvg prunes parameters.

    Parameters
    ----------
    kind : {"unstructured", "structured"}
        Prune single weights, or whole units: neurons and channels with their bias.
    target : float
        Largest fraction of the prunable parameters that is pruned. With 0 every mask stays full.
    step : float
        Fraction of the remaining parameters that is pruned at once.
    distance : float
        Prune only if the masks after the first and the last epoch differ in at least this fraction
        of the parameters, so while the mask still changes. With one epoch, the masks before and
        after it are compared.
    accuracy : float
        Prune only once the client's own model reaches this accuracy on its rows.
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
    r"""All settings; an algorithm reads those that it names and refuses others.

    Parameters
    ----------
    learning_rate : float
        :math:`\eta`, the learning rate of local steps, and of the server's step in FedSGD.
    epochs : int
        E, the number of passes over a client's rows in a round.
    batch_size : int, optional
        B, the number of rows in a step. None uses all rows.
    momentum, weight_decay : float
        Momentum and weight decay of local steps.
    gradient_norm : float, optional
        Norm to which the gradient of a local step is clipped, for stability only: it brings no
        guarantee.
    weighted : bool
        Weight clients by their number of rows; otherwise equally.
    server_rate : float
        Step size of the server along the mean update; 1 takes the mean itself.
    proximal : float
        :math:`\mu`, the proximal coefficient of FedProx.
    alpha : float
        :math:`\alpha`, the regularization coefficient of FedDyn.
    step_size : float
        h of FSVRG: a client with :math:`n_k` rows uses the step size :math:`h / n_k` for each row.
    pruning : Pruning
        Pruning rule of Sub-FedAvg.
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
