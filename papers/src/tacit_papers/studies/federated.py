"""Rounds and bytes until federated algorithms reach an accuracy, over clients that differ.

Every algorithm runs on every partition for the same number of rounds. Reported are medians over
trials: the first round whose global model reaches the accuracy on the test images, the bytes of
both directions until then, and the best accuracy of all rounds. A trial has its own split, start
and order of rows. All trials are in one run, since medians are over them.

Nothing here is private: it is a simulation without noise.

Notes
-----
Settings for the digits are the defaults of `tacit.federated`. They were found on splits of the same
images, with test accuracy in view. Those of MNIST (`MNIST`) were chosen in short runs of one seed,
most of them on shards, by the accuracy on 10,000 held-out training images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from tacit.data import datasets
from tacit.data.datasets.base import Dataset, Integers
from tacit.data.schema import ArraySchema
from tacit.federated import personal, rounds
from tacit.federated.algorithms.registry import ALGORITHMS as KNOWN
from tacit.federated.config import Config
from tacit.federated.model import Data, Model
from tacit.federated.rounds import RunOptions
from tacit.privacy import errors
from tacit_papers.engine import checks, declare
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.record import Cell, Record, versions
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured
from tacit_papers.engine.tables import Table, trials
from tacit_papers.parts.convergence import TARGETS, finite, first_at, medians
from tacit_papers.parts.federated_clients import PARTITIONS, ClientSplit, federation
from tacit_papers.parts.federated_clients import SETTINGS as DIFFERENCES

ALGORITHMS = ("fedsgd", "fedavg", "fedprox", "fsvrg", "feddyn", "subfedavg")
"""Those that were measured; the library may have more."""

_LOCAL = {"epochs": 1, "batch_size": 64, "learning_rate": 0.4}
MNIST: dict[str, dict[str, Any]] = {
    "fedsgd": {"learning_rate": 0.5},
    "fedavg": _LOCAL,
    "fedprox": {**_LOCAL, "proximal": 0.01},
    "fsvrg": {"step_size": 0.5, "batch_size": 128},
    "feddyn": {**_LOCAL, "learning_rate": 0.2, "alpha": 0.03},
    "subfedavg": _LOCAL,
}
"""Settings for MNIST, by algorithm; see the module. The batch of FSVRG hardly matters."""

HIDDEN = {"mnist": 64}
LOWER = {"mnist": 0.0}
"""Value of a black pixel; white is 1. With −1, the digits need fewer rounds. MNIST needs more: most
of its pixels are black, and a large common mean makes steps small."""

MORE_TARGETS = {"mnist": (0.95,)}
"""Further targets where 90 % is reached soon."""

_HIDDEN, _LOWER, _TEST_SHARE, _QUICK_ROWS = 32, -1.0, 5, 400


@dataclass(frozen=True)
class FederatedParameters(Parameters):
    """Parameters of the study."""

    data: str = declare.option("digits", "digits or mnist.", kw_only=True)
    algorithms: tuple[str, ...] = declare.option(
        ALGORITHMS, choices=ALGORITHMS, quick=("fedavg", "feddyn")
    )
    partitions: tuple[str, ...] = declare.option(
        PARTITIONS, choices=PARTITIONS, quick=("iid", "shards")
    )
    clients: int = declare.option(
        10, "Number of clients that share the training images.", check=checks.whole(2, 10_000)
    )
    participation: float = declare.option(
        1.0, "Share of the clients in a round.", check=checks.share
    )
    rounds: int = declare.option(60, "Rounds of every run.", check=checks.whole(1, 10_000), quick=3)
    trials: int = declare.trials("Trials, each with its own split.")
    seed: int = declare.seed()
    quick: bool = declare.quick()


class Federated:
    """The experiment; see the module."""

    name = "federated"

    def __init__(self, dataset: Dataset, parameters: FederatedParameters) -> None:
        if not isinstance(dataset.schema, ArraySchema) or dataset.schema.image is None:
            errors.refuse("study", "data", "images: digits or mnist", dataset.name)
        self.dataset, self.parameters = dataset, parameters
        pixels = dataset.schema.rows(dataset.rows).numbers
        low = self._lower = LOWER.get(dataset.name, _LOWER)
        rows = np.asarray(pixels, dtype=np.float32) * (1 - low) + low  # by public bounds
        self._rows = rows.reshape(len(dataset), -1)
        hidden = HIDDEN.get(dataset.name, _HIDDEN)
        self._sizes = (self._rows.shape[1], hidden, len(dataset.classes))
        self.targets = (*TARGETS, *MORE_TARGETS.get(dataset.name, ()))
        self._differences: dict[str, dict[str, float]] = {}

    def record(self) -> Record:
        """Return an empty record."""
        parameters, (training, test) = self.parameters, self._split(0)
        recorded = {
            **parameters.recorded(),
            "data": self.dataset.name,
            "settings": self._settled(),
        }
        data = {
            "rows": len(self.dataset),
            "training": len(training),
            "test": len(test),
            "targets": [f"{goal:g}" for goal in self.targets],
            "sha256": dict(self.dataset.sha256),
        }
        return Record(self.name, recorded, versions("cpu"), data)

    def cells(self) -> Sequence[Cell]:
        """List the cells, partition by partition: every algorithm, all trials at once."""
        parameters, model = self.parameters, "-".join(str(size) for size in self._sizes)
        return [
            {"model": model, "algorithm": name, "partition": split, "trials": parameters.trials}
            for split in parameters.partitions
            for name in parameters.algorithms
        ]

    def measure(self, cell: Cell) -> Measured:
        """Measure all trials of an algorithm on a partition."""
        name, split = cell["algorithm"], cell["partition"]
        runs = [self._run(name, split, trial) for trial in range(self.parameters.trials)]
        histories = [history for history, _ in runs]
        summary = medians(name, histories, self.targets)
        last = [history[-1].accuracy for history in histories]
        own = [right for _, right in runs]
        reached = {
            f"{goal:g}": [first_at(history, goal) for history in histories] for goal in self.targets
        }
        facts = {
            "rounds_to": summary.rounds_to,
            "bytes_to": summary.bytes_to,
            "best_accuracy": summary.best_accuracy,
            "final_accuracy": median(last),
            "own_accuracy": median(own),
            "by_trial": {
                "rounds_to": _listed(reached, 0),
                "bytes_to": _listed(reached, 1),
                "best_accuracy": [max(one.accuracy for one in each) for each in histories],
                "final_accuracy": last,
                "own_accuracy": own,
            },
            "accuracy_by_round": _curve(histories),
            "divergence": self._difference(split),
        }
        # The value is what a progress line shows; the fact of the same name is what is kept.
        return Measured({"best_accuracy": summary.best_accuracy}, facts)

    def _run(self, name: str, split: str, trial: int) -> tuple[tuple[rounds.Round, ...], float]:
        """Return all rounds, and the final accuracy of clients on their own test images."""
        from tacit.federated.torch_model import TorchModel, mlp

        parameters, seed, chosen = self.parameters, self.parameters.seed + trial, KNOWN[name]
        shared, test = self._federation(split, trial)
        model: Model = TorchModel(mlp(*self._sizes), seed=seed)
        outcome = rounds.run(
            chosen,
            model,
            shared.clients,
            parameters.rounds,
            RunOptions(
                config=self._config(name),
                participation=parameters.participation,
                seed=seed,
                test=test,
            ),
        )
        own = personal.accuracy(chosen, model, outcome, shared.own_tests)
        return outcome.history, own

    def _federation(self, split: str, trial: int) -> tuple[ClientSplit, Data]:
        rows, labels = self._rows, self.dataset.labels
        training, test = (Data(rows[part], labels[part]) for part in self._split(trial))
        seed = self.parameters.seed + trial
        return federation(split, training, test, self.parameters.clients, seed), test

    def _difference(self, split: str) -> dict[str, float]:
        """Return how far clients differ, as means over trials; the same for every algorithm."""
        if split not in self._differences:
            parameters = self.parameters
            measured = [
                self._federation(split, trial)[0].divergence(parameters.seed + trial)
                for trial in range(parameters.trials)
            ]
            self._differences[split] = {
                kind: round(float(np.mean([one[kind] for one in measured])), 4)
                for kind in measured[0]
            }
        return self._differences[split]

    def _config(self, name: str) -> Config:
        own = MNIST.get(name, {}) if self.dataset.name == "mnist" else {}
        return KNOWN[name].config(**own)

    def _settled(self) -> dict[str, Any]:
        """Return the settings of all algorithms, so that records of some can be merged."""
        configs = {name: KNOWN[name].settings(self._config(name)) for name in ALGORITHMS}
        pruned = configs["subfedavg"]
        pruned["pruning"] = asdict(pruned["pruning"])
        return {"lower": self._lower, "differences": DIFFERENCES, "algorithms": configs}

    def _split(self, trial: int) -> tuple[Integers, Integers]:
        """Split as the makers did where they did, else draw a fifth for testing."""
        rng = np.random.default_rng(self.parameters.seed + trial)
        if getattr(self.dataset.pools, "training", None) is not None:
            training, test = self.dataset.pools.halves(rng, len(self.dataset))
        else:
            order = rng.permutation(len(self.dataset))
            kept = -(-len(order) // _TEST_SHARE)
            training, test = order[kept:], order[:kept]
        return (training[:_QUICK_ROWS] if self.parameters.quick else training), test


def _listed(reached: Mapping[str, Any], at: int) -> dict[str, list[float | None]]:
    return {goal: [finite(one[at]) for one in each] for goal, each in reached.items()}


def _curve(histories: Sequence[Sequence[rounds.Round]]) -> list[float]:
    """Return the median accuracy after each round."""
    return [round(median(one.accuracy for one in same), 4) for same in zip(*histories, strict=True)]


def table(record: Mapping[str, Any]) -> Table:
    """Return title, header and lines: one line per algorithm, one column per partition.

    A cell holds rounds and megabytes to the highest target, and the best accuracy.
    """
    parameters, data = record["parameters"], record["data"]
    goal = data["targets"][-1]
    results = {(one["algorithm"], one["partition"]): one for one in record["results"]}
    lines = [
        (name, *(_shown(results.get((name, split)), goal) for split in parameters["partitions"]))
        for name in parameters["algorithms"]
    ]
    medians = "" if parameters["trials"] == 1 else "medians of "
    title = (
        f"federated, {parameters['data']}: {parameters['clients']} clients, "
        f"{data['training']:,} training images, {data['test']:,} test images; "
        f"rounds and bytes to {float(goal):.0%} within {parameters['rounds']}, "
        f"and the best accuracy; {medians}{trials(record)}"
    )
    return title, ("", *(one.replace("-", "\n") for one in parameters["partitions"])), lines


def _shown(one: Mapping[str, Any] | None, goal: str) -> str:
    if one is None:
        return ""
    at, size = one["rounds_to"][goal], one["bytes_to"][goal]
    reached = "–\n" if at is None else f"{at:g}\n{size / 1e6:.3g} MB"
    return f"{reached}\n{one['best_accuracy']:.3f}"


STUDY = Study(
    name="federated",
    about="Count rounds and bytes that federated algorithms need where clients differ.",
    question="How many rounds and bytes do federated algorithms need, where clients differ?",
    parameters=FederatedParameters,
    prepare=lambda parameters, progress: Federated(
        datasets.load(parameters.data, progress=progress), parameters
    ),
    measures=("best_accuracy",),
    table=table,
    needs={"torch": "learn"},
    example="--data digits",
    epsilon_optional=True,
    place=11,
)
