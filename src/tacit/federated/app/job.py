"""What runs, as plain values that server and nodes agree on: it travels as JSON.

It names no data and no file. Where rows lie is each party's own affair.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tacit import errors
from tacit.federated.algorithms import Algorithm, algorithm
from tacit.federated.config import Config, Pruning
from tacit.federated.gathering import Gathering, Plain

if TYPE_CHECKING:
    from tacit.accounting.ledger import Ledger
    from tacit.federated.model import Model

_PRIVACY = ("cohort", "epsilon", "delta", "clip_norm", "noise_multiplier", "adaptive", "accountant")


@dataclass(frozen=True)
class Job:
    """One run of a federation.

    Parameters
    ----------
    algorithm : str
        By its name.
    clients : int
        How many there are.
    rounds : int
        How many at most.
    layers : tuple of int
        Sizes of a network of dense layers: inputs first, classes last.
    settings : mapping
        Of the algorithm, where they differ from its own.
    participation : float
        Share of the clients in a round, without a guarantee.
    privacy : mapping, optional
        A guarantee for clients: `epsilon`, `delta`, and what else
        `tacit.federated.client_privacy.ClientPrivacy` takes.
    seed : int
        Of the start, of the order of rows and, without a guarantee, of who is asked.

    Examples
    --------
    >>> job = Job("fedavg", clients=2, rounds=3, layers=(64, 32, 10), settings={"epochs": 1})
    >>> Job.from_json(job.to_json()) == job
    True
    """

    algorithm: str
    clients: int
    rounds: int
    layers: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    participation: float = 1.0
    privacy: Mapping[str, Any] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        algorithm(self.algorithm)
        errors.whole("federation", "clients", self.clients, least=1)
        errors.whole("federation", "rounds", self.rounds, least=1)
        errors.whole("federation", "seed", self.seed, least=0)
        object.__setattr__(self, "layers", tuple(self.layers))
        if len(self.layers) < 2:
            errors.refuse("federation", "layers", "at least two sizes", list(self.layers))
        for size in self.layers:
            errors.whole("federation", "layers", size, least=1)
        if self.privacy is not None:
            self._check_privacy(self.privacy)
        self.config()

    def _check_privacy(self, given: Mapping[str, Any]) -> None:
        for name in given:
            errors.choice("federation", "setting of privacy", name, _PRIVACY)
        for name in ("epsilon", "delta"):
            if name not in given:
                errors.refuse("federation", f"{name} of privacy", "given", None)
        if self.participation != 1.0:
            remedy = "Under a guarantee say how many are asked on average: cohort."
            errors.refuse("federation", "participation", "left out", self.participation, remedy)

    @property
    def chosen(self) -> Algorithm:
        """The algorithm."""
        return algorithm(self.algorithm)

    def config(self) -> Config:
        """Its settings. Under a guarantee for clients all of them count alike."""
        given = dict(self.settings)
        if "pruning" in given:
            given["pruning"] = _pruning(given["pruning"])
        usual = {} if self.privacy is None else {"weighted": False}
        return self.chosen.config(**{**usual, **given})

    def model(self) -> Model:
        """The network, with the start that the seed gives."""
        from tacit.federated.torch_model import TorchModel, mlp

        return TorchModel(mlp(*self.layers), seed=self.seed)

    def gathering(self, ledger: Ledger | None = None, account: str | None = None) -> Gathering:
        """Who is asked, and what is made of answers."""
        if self.privacy is None:
            return Plain(self.seed, self.participation)
        from tacit.federated.adaptive import Adaptive
        from tacit.federated.client_privacy import ClientPrivacy

        given = {"cohort": self.clients, **self.privacy}
        if "adaptive" in given:
            given["adaptive"] = Adaptive(**_table("adaptive", given["adaptive"], Adaptive))
        return ClientPrivacy(
            self.clients, rounds=self.rounds, ledger=ledger, account=account, **given
        )

    def to_json(self) -> str:
        """As it travels."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read what `to_json` wrote."""
        try:
            plain = json.loads(text)
        except ValueError:
            raise errors.InvalidData("federation: a job must be JSON.") from None
        return cls.from_plain(plain)

    @classmethod
    def from_plain(cls, plain: Any) -> Job:
        """From names and values; an unknown name is refused."""
        return cls(**_table("job", plain, cls))


def _pruning(given: Any) -> Pruning:
    return given if isinstance(given, Pruning) else Pruning(**_table("pruning", given, Pruning))


def _table(name: str, plain: Any, kind: type[Any]) -> dict[str, Any]:
    """Values of a table, whose names are fields of a class."""
    if not isinstance(plain, Mapping):
        errors.refuse("federation", name, "a table of names and values", plain)
    known = [one.name for one in fields(kind)]
    for key in plain:
        errors.choice("federation", f"setting of {name}", key, known)
    return dict(plain)
