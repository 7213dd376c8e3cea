"""Attacks on federated averaging against defences: accuracy, and how often a backdoor works.

Twelve clients hold the training images, two of them attack; FedAvg with every client in every
round. A defence is told that there are two. Sybil clones are one attacker under six names beside
the ten honest clients, which is more than the defence was told: that is what Sybils are for.

Two measures, on test images: the accuracy, and the share of images of other classes that are taken
for the attacker's target once they bear its trigger. The latter is measured under every attack: a
clean model's is the level to compare with.

Splits are by chance (`iid`), or by labels with Dirichlet shares (`dirichlet`), where honest clients
differ and a rule that looks for the odd one out finds them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.datasets.base import Dataset, Integers
from tacit.data.schema import ArraySchema
from tacit.federated import partition
from tacit.federated.attacks import defences, threats
from tacit.federated.coordinator import Coordinator, Plain
from tacit.federated.model import Data
from tacit.federated.rounds import run
from tacit.privacy import errors
from tacit_papers.studies.record import Cell, Record, versions
from tacit_papers.studies.running import Measured, need
from tacit_papers.studies.tables import Table

BACKDOORS = ("backdoor", "model-replacement", "sybil")
"""Attacks that plant one."""

ATTACKS = ("none", "label-flip", "noise", "sign-flip", *BACKDOORS)

DEFENCES = ("mean", "norm-bounding", *defences.RULES)
PARTITIONS = ("iid", "dirichlet")
CLIENTS, ATTACKERS, CLONES = 12, 2, 6
HIDDEN = 32
SETTINGS: dict[str, Any] = {
    "clients": CLIENTS,
    "attackers": ATTACKERS,
    "clones": CLONES,
    "hidden_units": HIDDEN,
    "sign_flip_scale": 10.0,
    "noise_sigma": 1.0,
    "replacement_boost": CLIENTS / ATTACKERS,
    "backdoor_share": 0.5,
    "backdoor_target": 0,
    "concentration": 0.5,
    "least_rows": 32,
}
"""What is the same in every run; part of what a record must share to go on."""

_QUICK_ROWS = 480


@dataclass(frozen=True)
class Asked:
    """What the study was asked for."""

    attacks: tuple[str, ...] = ATTACKS
    defences: tuple[str, ...] = DEFENCES
    partitions: tuple[str, ...] = PARTITIONS
    rounds: int = 8
    bound: float = 0.5
    trials: int = 3
    seed: int = 0
    quick: bool = False

    def __post_init__(self) -> None:
        where = "study"
        need("torch", "learn")
        need("flwr", "federated")
        known = {"attacks": ATTACKS, "defences": DEFENCES, "partitions": PARTITIONS}
        for name, allowed in known.items():
            for one in getattr(self, name):
                errors.choice(where, name, one, allowed)
        errors.whole(where, "rounds", self.rounds, least=1, most=1000)
        errors.positive(where, "bound", self.bound)
        errors.whole(where, "trials", self.trials, least=1, most=1000)
        errors.whole(where, "seed", self.seed, least=0)


QUICK: dict[str, Any] = {
    "attacks": ("none", "model-replacement"),
    "partitions": ("iid",),
    "rounds": 2,
    "trials": 1,
    "quick": True,
}


class Threats:
    """The study; see the module."""

    name = "threats"

    def __init__(self, dataset: Dataset, asked: Asked) -> None:
        if not isinstance(dataset.schema, ArraySchema) or dataset.schema.image is None:
            errors.refuse("study", "data", "images: digits or mnist", dataset.name)
        self.dataset, self.asked = dataset, asked
        pixels = dataset.schema.rows(dataset.rows).numbers
        self._rows = (2 * np.asarray(pixels, dtype=np.float32) - 1).reshape(len(dataset), -1)
        self._trigger = corner(dataset.schema.image)

    def record(self) -> Record:
        """Empty."""
        given, (training, test) = self.asked, self._split(0)
        parameters = {
            "data": self.dataset.name,
            "attacks": list(given.attacks),
            "defences": list(given.defences),
            "partitions": list(given.partitions),
            "rounds": given.rounds,
            "bound": given.bound,
            "trials": given.trials,
            "seed": given.seed,
            "quick": given.quick,
            "settings": SETTINGS,
        }
        data = {
            "rows": len(self.dataset),
            "training": len(training),
            "test": len(test),
            "sha256": dict(self.dataset.sha256),
        }
        return Record(self.name, parameters, versions("cpu"), data)

    def cells(self) -> Sequence[Cell]:
        """Trial by trial: every attack against every defence."""
        given = self.asked
        return [
            {"partition": split, "attack": attack, "defence": defence, "trial": trial}
            for trial in range(given.trials)
            for split in given.partitions
            for attack in given.attacks
            for defence in given.defences
        ]

    def measure(self, cell: Cell) -> Measured:
        """One run of all rounds."""
        from tacit.federated.torch_model import TorchModel, mlp

        given, seed = self.asked, self.asked.seed + cell["trial"]
        training, test_rows = self._split(cell["trial"])
        test = Data(self._rows[test_rows], self.dataset.labels[test_rows])
        clients = self._clients(cell["partition"], training, seed)
        attackers: threats.Attackers | None = None
        if cell["attack"] != "none":
            clients, attackers = self._attacked(cell["attack"], clients, seed)
        sizes = (self._rows.shape[1], HIDDEN, len(self.dataset.classes))
        model = TorchModel(mlp(*sizes), seed=seed)
        outcome = run(
            "fedavg",
            model,
            clients,
            given.rounds,
            seed=seed,
            coordinator=_coordinator(cell["defence"], given.bound),
            intercept=None if attackers is None else attackers.intercept,
        )
        target = SETTINGS["backdoor_target"]
        accuracy = model.evaluate(outcome.model, test.rows, test.labels).accuracy
        worked = threats.success(model, outcome.model, test, self._trigger, target)
        return Measured({"accuracy": accuracy, "backdoor_success": worked})

    def _split(self, trial: int) -> tuple[Integers, Integers]:
        rng = np.random.default_rng(self.asked.seed + trial)
        training, test = self.dataset.pools.halves(rng, len(self.dataset))
        return (training[:_QUICK_ROWS] if self.asked.quick else training), test

    def _clients(self, kind: str, training: Integers, seed: int) -> list[Data]:
        labels = self.dataset.labels[training]
        if kind == "iid":
            parts = partition.iid(len(training), CLIENTS, seed=seed)
        else:
            least = min(SETTINGS["least_rows"], len(training) // (2 * CLIENTS))
            shares = SETTINGS["concentration"]
            parts = partition.dirichlet(
                labels, CLIENTS, concentration=shares, least=least, seed=seed
            )
        return [Data(self._rows[training[part]], labels[part]) for part in parts]

    def _attacked(
        self, name: str, clients: list[Data], seed: int
    ) -> tuple[list[Data], threats.Attackers]:
        """Clients with the rows that they use, and those among them that attack."""
        attack, who = self._attack(name), range(ATTACKERS)
        if attack.clones:  # one attacker under many names, in the place of all attackers
            clients = clients[:1] * CLONES + clients[ATTACKERS:]
            who = range(CLONES)
        attackers = threats.Attackers(attack, who, engine="local", seed=seed)
        return attackers.poisoned(clients), attackers

    def _attack(self, name: str) -> threats.Attack:
        backdoor = threats.backdoor(
            self._trigger, SETTINGS["backdoor_target"], SETTINGS["backdoor_share"]
        )
        made = (
            threats.label_flip(len(self.dataset.classes)),
            threats.noise(SETTINGS["noise_sigma"]),
            threats.sign_flip(SETTINGS["sign_flip_scale"]),
            backdoor,
            threats.replacement(backdoor, SETTINGS["replacement_boost"]),
            threats.sybil(backdoor),
        )
        return {attack.name: attack for attack in made}[name]


def corner(image: tuple[int, int]) -> threats.Trigger:
    """Four bright pixels in the lower right corner."""
    height, width = image
    last = height * width - 1
    return threats.Trigger((last - width - 1, last - width, last - 1, last), 1.0)


def _coordinator(name: str, bound: float) -> Coordinator:
    if name == "mean":
        return Plain()
    if name == "norm-bounding":
        return defences.NormBounding(bound)
    return defences.Robust(name, ATTACKERS)


def table(record: Mapping[str, Any]) -> Table:
    """Title, header and lines: a line an attack and split, a column a defence.

    A second line of an attack that plants a backdoor says how often that works.
    """
    given, images = record["parameters"], record["data"]
    found = {(r["partition"], r["attack"], r["defence"]): r for r in record["results"]}
    lines = []
    for split in given["partitions"]:
        for attack in given["attacks"]:
            of = [found.get((split, attack, one)) for one in given["defences"]]
            name = f"{attack.replace('-', ' ')}\n  {split}"
            lines.append((name, *(_shown(one, "accuracy") for one in of)))
            if attack in BACKDOORS:
                worked = (_shown(one, "backdoor_success") for one in of)
                lines.append((f"{name}, backdoor", *worked))
    many = "1 trial" if given["trials"] == 1 else f"{given['trials']} trials"
    title = (
        f"threats, {given['data']}: {CLIENTS} clients, {ATTACKERS} of them attackers; "
        f"{given['rounds']} rounds; {images['training']:,} training images, "
        f"{images['test']:,} test images; {many}"
    )
    names = (one.replace("-", "-\n") for one in given["defences"])  # narrow columns
    return title, ("accuracy", *names), lines


def _shown(one: Mapping[str, Any] | None, measure: str) -> str:
    return "–" if one is None else f"{one[measure]['mean']:.2f}"
