"""Attacks on federated averaging against defences: accuracy, and success of backdoors.

Twelve clients hold the training images, and two of them attack; FedAvg runs with every client in
every round. A defence is told that there are two attackers. Sybil clones are one attacker under six
names beside the ten honest clients, which is more than the defence was told.

Two measures are taken on test images: the accuracy, and the share of images of other classes that
are classified as the attacker's target once they bear its trigger. The latter is measured under
every attack: that of a clean model is the level to compare with.

Splits are at random (`iid`), or by labels with Dirichlet shares (`dirichlet`), where honest clients
differ and a rule that rejects outliers rejects them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data import datasets
from tacit.data.datasets.base import Dataset, Integers
from tacit.data.schema import ArraySchema
from tacit.federated import partition
from tacit.federated.attacks import defences, threats
from tacit.federated.coordinator import Coordinator, PlainMean
from tacit.federated.model import Data
from tacit.federated.rounds import RunOptions, run
from tacit.privacy import errors
from tacit_papers.engine import checks, declare
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.record import Cell, Record, versions
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured
from tacit_papers.engine.tables import Table, trials

BACKDOORS = ("backdoor", "model-replacement", "sybil")
"""Attacks that plant a backdoor."""

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
"""Settings that are the same in every run; part of the parameters in a record."""

_QUICK_ROWS = 480


@dataclass(frozen=True)
class ThreatsParameters(Parameters):
    """Parameters of the study."""

    data: str = declare.option("digits", "digits or mnist.", kw_only=True)
    attacks: tuple[str, ...] = declare.option(
        ATTACKS, choices=ATTACKS, quick=("none", "model-replacement")
    )
    defences: tuple[str, ...] = declare.option(DEFENCES, choices=DEFENCES)
    partitions: tuple[str, ...] = declare.option(PARTITIONS, choices=PARTITIONS, quick=("iid",))
    rounds: int = declare.option(8, "Rounds of a run.", check=checks.whole(1, 1000), quick=2)
    bound: float = declare.option(
        0.5, "Largest norm of a reply under norm bounding.", check=checks.positive
    )
    trials: int = declare.trials("Trials, each with its own split.")
    seed: int = declare.seed()
    quick: bool = declare.quick()


class Threats:
    """The experiment; see the module."""

    name = "threats"

    def __init__(self, dataset: Dataset, parameters: ThreatsParameters) -> None:
        if not isinstance(dataset.schema, ArraySchema) or dataset.schema.image is None:
            errors.refuse("study", "data", "images: digits or mnist", dataset.name)
        self.dataset, self.parameters = dataset, parameters
        pixels = dataset.schema.rows(dataset.rows).numbers
        self._rows = (2 * np.asarray(pixels, dtype=np.float32) - 1).reshape(len(dataset), -1)
        self._trigger = corner(dataset.schema.image)

    def record(self) -> Record:
        """Return an empty record."""
        parameters, (training, test) = self.parameters, self._split(0)
        recorded = {
            **parameters.recorded(),
            "data": self.dataset.name,
            "settings": SETTINGS,
        }
        data = {
            "rows": len(self.dataset),
            "training": len(training),
            "test": len(test),
            "sha256": dict(self.dataset.sha256),
        }
        return Record(self.name, recorded, versions("cpu"), data)

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial: every attack against every defence."""
        parameters = self.parameters
        return [
            {"partition": split, "attack": attack, "defence": defence, "trial": trial}
            for trial in range(parameters.trials)
            for split in parameters.partitions
            for attack in parameters.attacks
            for defence in parameters.defences
        ]

    def measure(self, cell: Cell) -> Measured:
        """Measure one run of all rounds."""
        from tacit.federated.torch_model import TorchModel, mlp

        parameters, seed = self.parameters, self.parameters.seed + cell["trial"]
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
            parameters.rounds,
            RunOptions(
                seed=seed,
                coordinator=_coordinator(cell["defence"], parameters.bound),
                intercept=None if attackers is None else attackers.intercept,
            ),
        )
        target = SETTINGS["backdoor_target"]
        accuracy = model.evaluate(outcome.model, test.rows, test.labels).accuracy
        worked = threats.success(model, outcome.model, test, self._trigger, target)
        return Measured({"accuracy": accuracy, "backdoor_success": worked})

    def _split(self, trial: int) -> tuple[Integers, Integers]:
        rng = np.random.default_rng(self.parameters.seed + trial)
        training, test = self.dataset.pools.halves(rng, len(self.dataset))
        return (training[:_QUICK_ROWS] if self.parameters.quick else training), test

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
        """Return the clients with the rows that they use, and the attackers among them."""
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
        attacks = (
            threats.label_flip(len(self.dataset.classes)),
            threats.noise(SETTINGS["noise_sigma"]),
            threats.sign_flip(SETTINGS["sign_flip_scale"]),
            backdoor,
            threats.replacement(backdoor, SETTINGS["replacement_boost"]),
            threats.sybil(backdoor),
        )
        return {attack.name: attack for attack in attacks}[name]


def corner(image: tuple[int, int]) -> threats.Trigger:
    """Make the trigger: four bright pixels in the lower right corner."""
    height, width = image
    last = height * width - 1
    return threats.Trigger((last - width - 1, last - width, last - 1, last), 1.0)


def _coordinator(name: str, bound: float) -> Coordinator:
    if name == "mean":
        return PlainMean()
    if name == "norm-bounding":
        return defences.NormBounding(bound)
    return defences.Robust(name, ATTACKERS)


def table(record: Mapping[str, Any]) -> Table:
    """Return title, header and lines: one line per attack and split, one column per defence.

    Attacks that plant a backdoor have a second line with its success.
    """
    parameters, images = record["parameters"], record["data"]
    results = {(r["partition"], r["attack"], r["defence"]): r for r in record["results"]}
    lines = []
    for split in parameters["partitions"]:
        for attack in parameters["attacks"]:
            of = [results.get((split, attack, one)) for one in parameters["defences"]]
            name = f"{attack.replace('-', ' ')}\n  {split}"
            lines.append((name, *(_shown(one, "accuracy") for one in of)))
            if attack in BACKDOORS:
                worked = (_shown(one, "backdoor_success") for one in of)
                lines.append((f"{name}, backdoor", *worked))
    title = (
        f"threats, {parameters['data']}: {CLIENTS} clients, {ATTACKERS} of them attackers; "
        f"{parameters['rounds']} rounds; {images['training']:,} training images, "
        f"{images['test']:,} test images; {trials(record)}"
    )
    names = (one.replace("-", "-\n") for one in parameters["defences"])  # narrow columns
    return title, ("accuracy", *names), lines


def _shown(one: Mapping[str, Any] | None, measure: str) -> str:
    return "–" if one is None else f"{one[measure]['mean']:.2f}"


STUDY = Study(
    name="threats",
    about="Let clients attack federated averaging, against defences, in a simulation.",
    question="What can lying clients do to a federated model, and which defence helps?",
    parameters=ThreatsParameters,
    prepare=lambda parameters, progress: Threats(
        datasets.load(parameters.data, progress=progress), parameters
    ),
    measures=("accuracy",),
    table=table,
    needs={"torch": "learn", "flwr": "federated"},
    example="--data digits",
    epsilon_optional=True,
    place=13,
)
