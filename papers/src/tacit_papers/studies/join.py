"""Joining our clean columns with reports of another party's: Figure 3 of "Learning to Noise".

The other party fits the mechanism on its own columns of all training rows, and reports every row,
test rows too, with the whole ε; our classifier sees clean columns, reports, and the law of their
noise. References are our columns alone and all columns clean, with the same network.

As in the paper, the rows that report are rows that the mechanism was fitted on: every report is
ε-DP given the mechanism, but all of them together also depend on what it learned. For these rows
nothing is proved about the whole (`inhouse_guarantee`); the test rows have ε alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.datasets.base import ColumnSubset, Dataset
from tacit.local.inference.join import JoinClassifier
from tacit.local.inference.neural import Settings, fit_network
from tacit.local.learned.direct import Direct
from tacit.local.learned.features import Raw
from tacit_papers.engine import declare
from tacit_papers.engine.record import Cell, Record
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured, generator
from tacit_papers.parts import paper, references
from tacit_papers.parts.collecting import (
    QUICK_ROWS,
    Collecting,
    mechanisms,
    one_level,
    unprotected,
)
from tacit_papers.parts.contenders import Contenders
from tacit_papers.parts.trials import accuracy

MECHANISMS = ("codebook", "vlm", "direct")
REFERENCES = ("chance", "clean_only", "all_clean")
HIDDEN = (50,)
CODEWORDS = 3
"""Codewords per unit of ε: a report is read on its own here, and few codewords survive the noise.

Chosen while looking at the split "signal" of Lending Club, seeds 10 and 11.
"""


@dataclass(frozen=True)
class JoinParameters(Collecting):
    """Parameters of the study."""

    columns: str | None = declare.option(
        None,
        "A column split of the data: paper or signal for lending_club.",
        record="join",
        otherwise="the first of the data",
        kw_only=True,
    )
    mechanisms: tuple[str, ...] = mechanisms(*MECHANISMS)
    level: tuple[str, ...] = one_level()
    central: tuple[float, ...] = unprotected()


class Join:
    """The experiment; see the module."""

    name = "join"

    def __init__(
        self, dataset: Dataset, parameters: Collecting, columns: str | None = None
    ) -> None:
        self.dataset, self.parameters = dataset, parameters
        self.columns = columns or (dataset.joins() or (None,))[0]
        self.ours, self.theirs = dataset.join(columns)
        self._last: tuple[int, Contenders] | None = None

    def record(self) -> Record:
        """Return an empty record."""
        train, test = self._rows(0)
        sizes = {"people": len(train), "test": len(test)}
        return self.parameters.record(self.name, self.dataset, sizes, join=self.columns)

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial."""
        return self.parameters.cells(self.theirs.schema, REFERENCES)

    def measure(self, cell: Cell) -> Measured:
        """Measure one mechanism at one ε, or one reference."""
        train, test = self._rows(cell["trial"])
        labels, truth = self.dataset.labels[train], self.dataset.labels[test]
        ours = [_clean(self.ours, part) for part in (train, test)]
        if "reference" in cell:
            return Measured({"accuracy": self._reference(cell, ours, train, test)})
        contenders = self._contenders(cell["trial"], train)
        mechanism = self._mechanism(cell, contenders)
        rng = generator(contenders.seed, cell)
        released = [mechanism.release(_take(self.theirs, part), rng=rng) for part in (train, test)]
        # At latent level we get reports and the law of their noise, but not the mechanism.
        reports = (
            released if isinstance(mechanism, Direct) else [r.shared("join") for r in released]
        )
        model = JoinClassifier(hidden=HIDDEN, seed=contenders.seed, device=self.parameters.device)
        model.fit(reports[0], labels, clean=ours[0])
        answers = model.predict(reports[1], clean=ours[1])
        facts = {
            "guarantee": str(mechanism.channel(False).guarantee),
            "inhouse_guarantee": str(mechanism.inhouse_.guarantee),
        }
        return Measured({"semi_private_accuracy": accuracy(answers, truth)}, facts)

    def _reference(self, cell: Cell, ours: list[Any], train: Any, test: Any) -> float:
        labels, truth = self.dataset.labels[train], self.dataset.labels[test]
        if cell["reference"] == "chance":
            return references.largest(truth)
        seen = ours
        if cell["reference"] == "all_clean":
            theirs = [_clean(self.theirs, part) for part in (train, test)]
            seen = [np.hstack(both) for both in zip(ours, theirs, strict=True)]
        network = fit_network(
            seen[0],
            labels,
            np.eye(len(self.dataset.classes)),
            Settings(hidden=HIDDEN),
            seed=self.parameters.seed + cell["trial"],
            device=self.parameters.device,
        )
        return accuracy(network.predict_proba(seen[1]).argmax(axis=1), truth)

    def _mechanism(self, cell: Cell, contenders: Contenders) -> Any:
        epsilon = cell["epsilon"]
        if cell["mechanism"] == "codebook":
            return contenders.codebook(epsilon, np.inf, max(round(CODEWORDS * epsilon), 4))
        if cell["mechanism"] == "direct":
            return contenders.direct(epsilon)
        return contenders.vlm(epsilon, paper.nearest(paper.TABLE_3, epsilon), np.inf)

    def _contenders(self, trial: int, train: Any) -> Contenders:
        if self._last is None or self._last[0] != trial:
            seed = self.parameters.seed + trial
            inhouse = _take(self.theirs, train)
            contenders = Contenders(
                inhouse, self.theirs.schema, len(train), None, self.parameters, seed
            )
            self._last = trial, contenders
        return self._last[1]

    def _rows(self, trial: int) -> tuple[Any, Any]:
        """Return training rows, all of which both parties hold, and test rows."""
        split = self.dataset.collection(self.parameters.seed + trial)
        train, test = np.concatenate([split.inhouse, split.people]), split.test
        return (train[:QUICK_ROWS], test[:QUICK_ROWS]) if self.parameters.quick else (train, test)


def _take(part: ColumnSubset, indices: Any) -> Any:
    return part.rows[indices] if isinstance(part.rows, np.ndarray) else part.rows.take(indices)


def _clean(part: ColumnSubset, indices: Any) -> Any:
    """Encode clean columns as numbers in [0, 1] and one-hot codes."""
    return Raw(part.schema).transform(part.schema.rows(_take(part, indices)))


STUDY = Study(
    name="join",
    about="Join our clean columns with reports of another party's, and measure what that adds.",
    question="What do reports of another party's columns add to ours?",
    parameters=JoinParameters,
    prepare=lambda parameters, progress: Join(
        parameters.load(progress), parameters, parameters.columns
    ),
    measures=("semi_private_accuracy",),
    example="--data lending_club --columns paper",
    variant="join",
    place=3,
)
