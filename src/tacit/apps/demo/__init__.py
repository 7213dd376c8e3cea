"""The demonstration: learn to read digits from people who show nobody their digit.

The rows are the handwritten digits that come with scikit-learn. Some are in-house, without labels;
each of the others belongs to a person, who reports once. The noise of every report comes from the
operating system, here as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.apps.demo.collection import DemoCollection, DemoData
from tacit.apps.demo.folder import DemoFolder
from tacit.apps.demo.person import Person
from tacit.privacy import errors
from tacit.privacy.certificate import Certificate

EPSILONS = (1.0, 2.0, 4.0, 8.0)
"""Values of ε in the table."""

MECHANISMS = ("codebook", "direct", "vlm")
"""Mechanisms, the fastest first."""

DRAWS = 5
"""Number of times that everybody reports, each with fresh noise; accuracies are means."""

Progress = Callable[[str, int, int], None]
"""Called with a stage, the number of its parts that are done, and their total."""


@dataclass(frozen=True, eq=False)
class Demonstration:
    """The results of the demonstration, and its files.

    Parameters
    ----------
    epsilon : float
        ε of the report that is shown, and of everything that is saved.
    sizes : dict of str to int
        Numbers of in-house rows, people, test rows and draws.
    trials : dict
        Accuracy on clean test rows, by mechanism and by ε: one per draw.
    no_privacy, largest_class : float
        Accuracy of a classifier that sees all raw rows and labels, and of naming the most frequent
        class.
    person : Person
        One of the people who reported.
    certificate : Certificate
        The certificate of the saved reports.
    folder : DemoFolder
        The folder, with the files that were written.
    missing : tuple of str
        One sentence for each part that was left out because a package is missing.
    """

    epsilon: float
    sizes: dict[str, int]
    trials: dict[str, dict[float, list[float]]]
    no_privacy: float
    largest_class: float
    person: Person
    certificate: Certificate
    folder: DemoFolder
    missing: tuple[str, ...]

    def mean(self, mechanism: str, epsilon: float) -> float:
        """Average the accuracy of a mechanism at one ε over draws."""
        return float(np.mean(self.trials[mechanism][epsilon]))

    def standard_deviation(self, mechanism: str, epsilon: float) -> float:
        """Return the standard deviation of that accuracy over draws."""
        return float(np.std(self.trials[mechanism][epsilon], ddof=1))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; results have the form of the records of studies."""
        return {
            "epsilon": self.epsilon,
            "data": {"name": "digits", **self.sizes},
            "results": [
                {
                    "mechanism": name,
                    "epsilon": epsilon,
                    "clean_accuracy": self._summary(name, epsilon),
                }
                for name, row in self.trials.items()
                for epsilon in row
            ],
            "references": {"no_privacy": self.no_privacy, "largest_class": self.largest_class},
            "report": {"bytes": self.person.sent.hex(), "symbols": self.person.symbols},
            "guarantee": str(self.certificate.guarantee),
            "missing": list(self.missing),
            "written": [str(path) for path in self.folder.paths],
        }

    def _summary(self, mechanism: str, epsilon: float) -> dict[str, Any]:
        return {
            "mean": self.mean(mechanism, epsilon),
            "std": self.standard_deviation(mechanism, epsilon),
            "trials": self.trials[mechanism][epsilon],
        }


def run(out: Path, epsilon: float, progress: Progress | None = None) -> Demonstration:
    """Fit mechanisms, collect reports, learn classifiers, and write the files."""
    if not 0.01 <= epsilon <= 100:
        errors.refuse("demo", "epsilon", "from 0.01 to 100", epsilon)
    setting = DemoData.of_digits()
    folder = DemoFolder.opened(out)
    no_vlm = _no_torch()
    collections = _all_measured(
        setting,
        [name for name in MECHANISMS if name != "vlm" or no_vlm is None],
        sorted({*EPSILONS, epsilon}),
        progress or _silent,
    )
    shown = {name: by_epsilon[epsilon][0] for name, by_epsilon in collections.items()}
    person = Person.of(setting, shown)
    certificate, no_picture = folder.write(shown["codebook"], person.pictures(epsilon))
    return Demonstration(
        epsilon=epsilon,
        sizes={**setting.sizes, "draws": DRAWS},
        trials={
            name: {at: [one.accuracy for one in draws] for at, draws in by_epsilon.items()}
            for name, by_epsilon in collections.items()
        },
        no_privacy=setting.no_privacy(),
        largest_class=setting.largest_class(),
        person=person,
        certificate=certificate,
        folder=folder,
        missing=tuple(reason for reason in (no_vlm, no_picture) if reason is not None),
    )


def _all_measured(
    setting: DemoData, names: list[str], epsilons: list[float], progress: Progress
) -> dict[str, dict[float, list[DemoCollection]]]:
    """Make several collections for each mechanism and ε."""
    from threadpoolctl import threadpool_limits

    # Arrays are small here: several threads would only wait for each other, for minutes on busy
    # cores.
    with threadpool_limits(1):
        return {name: _measured(setting, name, epsilons, progress) for name in names}


def _measured(
    setting: DemoData, name: str, epsilons: list[float], progress: Progress
) -> dict[float, list[DemoCollection]]:
    """Make several collections for each ε."""
    mechanism_at = setting.fitted(name, lambda *parts: progress(f"fit {name}", *parts))
    collections: dict[float, list[DemoCollection]] = {}
    for done, epsilon in enumerate(epsilons, start=1):
        mechanism = mechanism_at(epsilon)
        collections[epsilon] = [setting.collect(mechanism) for _ in range(DRAWS)]
        progress(f"collect and learn: {name}", done, len(epsilons))
    return collections


def _no_torch() -> str | None:
    """Return why there is no VLM; None if there is one."""
    try:
        from tacit import VLM  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


def _silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""
