"""Jobs: a run as plain values, on which server and nodes agree, and which travel as JSON.

A job names no data and no file. Each party decides where its rows are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tacit.federated.algorithms.registry import Algorithm, algorithm
from tacit.federated.config import Config, Pruning
from tacit.federated.coordinator import Coordinator, PlainMean
from tacit.privacy import errors
from tacit.privacy.guarantees import Adjacency, ApproxDP, Unit

if TYPE_CHECKING:
    import numpy.typing as npt

    from tacit.federated.app.questions import Questions
    from tacit.federated.client_level.noisy_sum import Setting
    from tacit.federated.record_level.privacy import RecordPrivacy
    from tacit.federated.torch_model import TorchModel
    from tacit.privacy.accounting.ledger import Ledger

NETWORKS = ("dense", "cnn")
_OF_RECORDS = ("statistics", "bounds", "pooled", "held_out", "evaluations")
_PRIVACY = {
    "client": (
        *("unit", "epsilon", "delta", "clip_norm", "accountant"),
        *("cohort", "noise_multiplier", "adaptive"),
        *("secure", "corrupt", "lost"),
    ),
    "record": ("unit", "epsilon", "delta", "clip_norm", "accountant", *_OF_RECORDS, "overlapping"),
}
"""Settings of a guarantee, by unit."""
_OF_TRUSTED = {"cohort", "noise_multiplier", "adaptive", "accountant"}
_OF_SECURE = {"corrupt", "lost"}
"""Settings of a guarantee for clients with a server that they trust, and with one they do not."""


@dataclass(frozen=True)
class Job:
    """One run of a federation.

    Parameters
    ----------
    algorithm : str
        Name of the algorithm.
    clients : int
        Number of clients.
    rounds : int
        Largest number of rounds.
    layers : tuple of int
        Sizes of a network of dense layers: inputs first, classes last.
    settings : mapping
        Settings of the algorithm that differ from its defaults.
    participation : float
        Fraction of the clients in a round, if there is no guarantee for clients.
    privacy : mapping, optional
        A guarantee: `epsilon`, `delta`, and `unit`, which is "client" (the default) or "record".
        With "client" also other parameters of `tacit.federated.ClientPrivacy`, or, with `secure`
        true, `corrupt` and `lost` of `tacit.federated.SecureClientPrivacy`. With "record" also
        other parameters of `tacit.federated.RecordPrivacy`, and `overlapping`: whether one person
        may have records in two silos.
    seed : int
        Seed of the initial weights, of the order of rows and, without a guarantee for clients, of
        the choice of clients.
    network : {"dense", "cnn"}
        The network: dense layers, or a small convolutional network on images.
    image : tuple of int
        Height and width of the images ("cnn").
    classes : int, optional
        Number of classes, which is public ("cnn" only; with "dense" it is the size of the last
        layer).

    Examples
    --------
    >>> job = Job("fedavg", clients=2, rounds=3, layers=(64, 32, 10), settings={"epochs": 1})
    >>> Job.from_json(job.to_json()) == job
    True
    """

    algorithm: str
    clients: int
    rounds: int
    layers: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    participation: float = 1.0
    privacy: Mapping[str, Any] | None = None
    seed: int = 0
    network: str = "dense"
    image: tuple[int, ...] = (28, 28)
    classes: int | None = None

    def __post_init__(self) -> None:
        algorithm(self.algorithm)
        errors.whole("federation", "clients", self.clients, least=1)
        errors.whole("federation", "rounds", self.rounds, least=1)
        errors.whole("federation", "seed", self.seed, least=0)
        self._check_network()
        if self.privacy is not None:
            self._check_privacy(self.privacy)
        self.config()
        self.record_privacy()

    def _check_network(self) -> None:
        errors.choice("federation", "network", self.network, NETWORKS)
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "image", tuple(self.image))
        if self.network == "cnn":
            if self.layers:
                errors.refuse("federation", "layers", "left out with cnn", list(self.layers))
            if len(self.image) != 2:
                errors.refuse("federation", "image", "height and width", list(self.image))
            errors.whole("federation", "classes", self.classes, least=2)
        else:
            if len(self.layers) < 2:
                errors.refuse("federation", "layers", "at least two sizes", list(self.layers))
            if self.classes is not None:
                errors.refuse("federation", "classes", "left out with dense", self.classes)
        for name, sizes in (("layers", self.layers), ("image", self.image)):
            for size in sizes:
                errors.whole("federation", name, size, least=1)

    def _check_privacy(self, privacy: Mapping[str, Any]) -> None:
        unit = errors.choice("federation", "unit of privacy", self.unit, list(_PRIVACY))
        for name in privacy:
            errors.choice("federation", "setting of privacy", name, _PRIVACY[unit])
        for name in ("epsilon", "delta"):
            if name not in privacy:
                errors.refuse("federation", f"{name} of privacy", "given", None)
        if unit == "client" and self.participation != 1.0:
            remedy = "Under a guarantee give cohort, the expected number of clients in a round."
            errors.refuse("federation", "participation", "left out", self.participation, remedy)
        for name in ("overlapping", "secure"):
            if not isinstance(privacy.get(name, False), bool):
                errors.refuse("federation", name, "true or false", privacy[name])
        beside = _OF_TRUSTED if privacy.get("secure", False) else _OF_SECURE
        for name in sorted(beside & set(privacy)):
            state = "left out with secure" if name in _OF_TRUSTED else "given with secure alone"
            errors.refuse("federation", name, state, privacy[name])

    @property
    def unit(self) -> Any:
        """The unit of the guarantee, "client" or "record"; None without a guarantee."""
        return None if self.privacy is None else self.privacy.get("unit", "client")

    @property
    def secure(self) -> bool:
        """Whether clients add the noise, and the server learns secure sums alone."""
        return self.privacy is not None and bool(self.privacy.get("secure", False))

    @property
    def chosen(self) -> Algorithm:
        """The algorithm."""
        return algorithm(self.algorithm)

    def config(self) -> Config:
        """Return the settings. Under a guarantee for clients all have equal weight."""
        settings = dict(self.settings)
        if "pruning" in settings:
            settings["pruning"] = _pruning(settings["pruning"])
        usual = {"weighted": False} if self.unit == "client" else {}
        return self.chosen.config(**{**usual, **settings})

    def model(self) -> TorchModel:
        """Build the network, with initial weights from the seed."""
        from tacit.federated.torch_model import TorchModel, mlp

        if self.network == "dense":
            return TorchModel(mlp(*self.layers), seed=self.seed)
        from tacit.federated.networks import small_cnn

        height, width = self.image
        built = small_cnn(image=(height, width), classes=int(self.classes or 0))
        return TorchModel(built, seed=self.seed)

    def coordinator(self, ledger: Ledger | None = None, account: str | None = None) -> Coordinator:
        """Build the coordinator, which chooses clients and combines replies."""
        if self.privacy is None:
            return PlainMean(self.seed, self.participation)
        if self.unit == "record":
            return self._silos(ledger)
        if self.secure:
            from tacit.federated.client_level.distributed import SecureClientPrivacy

            told = {**self._secure_settings(), "ledger": ledger, "account": account}
            return SecureClientPrivacy(self.clients, **told)
        from tacit.federated.client_level.adaptive import Adaptive
        from tacit.federated.client_level.privacy import ClientPrivacy

        settings = {"cohort": self.clients, **self.privacy}
        settings.pop("unit", None)
        if "adaptive" in settings:
            settings["adaptive"] = Adaptive(**_table("adaptive", settings["adaptive"], Adaptive))
        return ClientPrivacy(
            self.clients, rounds=self.rounds, ledger=ledger, account=account, **settings
        )

    def _secure_settings(self) -> dict[str, Any]:
        left_out = ("unit", "secure")
        settings = {k: v for k, v in (self.privacy or {}).items() if k not in left_out}
        agreed = {"rounds": self.rounds, "size": self.model().layout.size}
        return {**settings, **agreed, "about": self.to_json()}

    def setting(self) -> Setting:
        """Return the setting of secure sums, which every client computes from the job itself."""
        from tacit.federated.client_level.noisy_sum import Setting

        return Setting.of(self.chosen, self.config(), self.clients, **self._secure_settings())

    def _silos(self, ledger: Ledger | None) -> Coordinator:
        from tacit.federated.record_level.server import SiloServer

        if ledger is not None:
            remedy = "Each silo charges its own ledger: tacit federate node --ledger."
            errors.refuse(
                "federation", "ledger", "left out where records are protected", "", remedy
            )
        settings = self.privacy or {}
        return SiloServer(
            settings["delta"],
            overlapping=settings.get("overlapping", False),
            epsilon=settings["epsilon"],
            participation=self.participation,
            seed=self.seed,
        )

    def record_privacy(self) -> RecordPrivacy | None:
        """Return the guarantee of every silo for its records; None without one."""
        if self.unit != "record" or self.privacy is None:
            return None
        from tacit.federated.record_level.privacy import RecordPrivacy

        left_out = ("unit", "overlapping")
        settings = {name: value for name, value in self.privacy.items() if name not in left_out}
        if "bounds" in settings:
            settings["bounds"] = tuple(settings["bounds"])
        privacy = RecordPrivacy(rounds=self.rounds, **settings)
        privacy.admit(self.chosen, self.config())
        return privacy

    def check_rows(self, where: str, rows: npt.NDArray[Any]) -> None:
        """Refuse rows that the network cannot take.

        Raises
        ------
        InvalidData
            If they have another number of columns.
        """
        columns = math.prod(rows.shape[1:])
        if self.network == "cnn":
            if columns != math.prod(self.image):
                raise errors.InvalidData(
                    f"{where}: image must have {columns} pixels, the number of columns, "
                    f"got {math.prod(self.image)}."
                )
        elif rows.ndim != 2:
            raise errors.InvalidData(
                f"{where}: rows must be a table, got {rows.ndim} dimensions. Flatten each row."
            )
        elif columns != self.layers[0]:
            raise errors.InvalidData(
                f"{where}: layers must begin with {columns}, the number of columns, "
                f"got {self.layers[0]}."
            )

    def questions(self) -> Questions:
        """Return what silos are asked besides training."""
        from tacit.federated.app.questions import Questions

        classes = self.layers[-1] if self.network == "dense" else int(self.classes or 0)
        return Questions.of(self.record_privacy(), self.rounds, classes)

    def record_budget(self) -> ApproxDP | None:
        """Return the largest cost of this job for the records of one silo."""
        if self.unit != "record" or self.privacy is None:
            return None
        epsilon, delta = self.privacy["epsilon"], self.privacy["delta"]
        return ApproxDP(epsilon, delta, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)

    def to_json(self) -> str:
        """Serialize the job as JSON."""
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
        """Build a job from names and values; unknown names are refused."""
        return cls(**_table("job", plain, cls))


def _pruning(pruning: Any) -> Pruning:
    return (
        pruning if isinstance(pruning, Pruning) else Pruning(**_table("pruning", pruning, Pruning))
    )


def _table(name: str, plain: Any, kind: type[Any]) -> dict[str, Any]:
    """Check that the names in a table are fields of a class, and return its values."""
    if not isinstance(plain, Mapping):
        errors.refuse("federation", name, "a table of names and values", plain)
    known = [one.name for one in fields(kind)]
    for key in plain:
        errors.choice("federation", f"setting of {name}", key, known)
    return dict(plain)
