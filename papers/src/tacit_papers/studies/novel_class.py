"""A class that in-house data never held: Figure 2 of "Learning to Noise".

Only people who have the new class report, without a label. `NovelClassClassifier` tells reports of
a codebook from the in-house rows; for the VLM and direct noising a network learns, as in the paper,
to tell released rows of the new class from held-out in-house rows that are released in the same
way. Half of the test rows are of the new class.

A central ε is that of the encoder, which people receive (`encoder_guarantee`). The classifier sees
in-house rows again and stays in-house: that of a codebook is not private towards them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.datasets.base import Dataset, NovelSplit
from tacit.local.inference.neural import fit_network, settings_for
from tacit.local.inference.novel import NovelClassClassifier
from tacit_papers.engine import declare
from tacit_papers.engine.record import Cell, Record
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured, generator
from tacit_papers.parts import paper
from tacit_papers.parts.collecting import QUICK_ROWS, Collecting, kind_of, mechanisms
from tacit_papers.parts.contenders import Contenders, learning
from tacit_papers.parts.trials import Trials, accuracy

MECHANISMS = ("codebook", "vlm", "vlm-paper", "direct")


@dataclass(frozen=True)
class NovelClassParameters(Collecting):
    """Parameters of the study."""

    new: str | None = declare.option(
        None, "The class that is new.", otherwise="the last class", kw_only=True
    )
    mechanisms: tuple[str, ...] = mechanisms(*MECHANISMS)


class NovelClass:
    """The experiment; see the module."""

    name = "novel-class"

    def __init__(self, dataset: Dataset, parameters: Collecting, new: Any = None) -> None:
        self.dataset, self.parameters = dataset, parameters
        self.new = dataset.classes[-1] if new is None else new
        self.trials = Trials(dataset, parameters)
        self._last: tuple[int, NovelSplit, Contenders] | None = None

    def record(self) -> Record:
        """Return an empty record."""
        split = self._split(0)
        sizes = {name: len(getattr(split, name)) for name in _PARTS}
        return self.parameters.record(self.name, self.dataset, sizes, new=str(self.new))

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial."""
        return self.parameters.cells(self.dataset.schema, ("chance",), ("direct",))

    def measure(self, cell: Cell) -> Measured:
        """Measure one mechanism at one ε."""
        split, contenders = self._of(cell["trial"])
        if "reference" in cell:
            return Measured({"accuracy": 0.5})
        rows, rng = self.dataset.take(split.test), generator(contenders.seed, cell)
        people = self.dataset.take(split.people)
        epsilon, central = cell["epsilon"], float(cell["central_epsilon"])
        if cell["mechanism"] == "codebook":
            mechanism: Any = contenders.codebook(epsilon, central)
            reports = mechanism.release(people, rng=rng)
            model = NovelClassClassifier(inhouse=contenders.rows).fit(reports)
            answers, towards = model.predict(rows), str(model.inhouse_guarantee_)
        else:
            mechanism = self._mechanism(cell, contenders)
            kept = self.dataset.take(split.heldout)
            answers = self._told_apart(cell, mechanism, people, kept, rows, contenders.seed)
            towards = f"{mechanism.inhouse_.guarantee}; "
            towards += f"rows kept back: {mechanism.channel(False).guarantee}"
        facts = {
            "guarantee": str(mechanism.channel(False).guarantee),
            "encoder_guarantee": str(mechanism.inhouse_.guarantee),
            "central_proved": mechanism.inhouse_.proved,
            "inhouse_guarantee": towards,
        }
        return Measured({"clean_accuracy": accuracy(answers, split.is_new)}, facts)

    def _mechanism(self, cell: Cell, contenders: Contenders) -> Any:
        epsilon = cell["epsilon"]
        if cell["mechanism"] == "direct":
            return contenders.direct(epsilon)
        table = paper.TABLE_4["clean", cell["level"], kind_of(self.dataset.schema)]
        return contenders.vlm(
            epsilon,
            paper.nearest(table, epsilon),
            float(cell["central_epsilon"]),
            two_stage=cell["mechanism"] == "vlm-paper",
        )

    def _told_apart(
        self, cell: Cell, mechanism: Any, people: Any, kept: Any, rows: Any, seed: int
    ) -> Any:
        """Train a network on released rows of both kinds, whose kind is known without noise."""
        rng, level = generator(seed, cell), cell["level"]
        released = [mechanism.release(part, rng=rng) for part in (kept, people)]
        seen = [mechanism.released_features(part, level=level) for part in released]
        network = fit_network(
            np.concatenate(seen),
            np.repeat([0, 1], [len(part) for part in seen]),
            np.eye(2),
            settings_for(cell["epsilon"], **learning(mechanism, self.dataset)),
            seed=seed,
            device=self.parameters.device,
        )
        clean = mechanism.clean_features(rows, level=level)
        return network.predict_proba(clean).argmax(axis=1)

    def _split(self, trial: int) -> NovelSplit:
        split = self.dataset.novel(self.parameters.seed + trial, self.new)
        return split.limited(*[QUICK_ROWS] * 4) if self.parameters.quick else split

    def _of(self, trial: int) -> tuple[NovelSplit, Contenders]:
        if self._last is None or self._last[0] != trial:
            split, seed = self._split(trial), self.parameters.seed + trial
            inhouse = self.dataset.take(split.inhouse)
            contenders = self.trials.contenders(inhouse, split.people, None, seed)
            self._last = trial, split, contenders
        return self._last[1:]


_PARTS = ("inhouse", "heldout", "people", "test")

STUDY = Study(
    name="novel-class",
    about="Find a class that the in-house data never held.",
    question="Can a class be found that in-house data never held?",
    parameters=NovelClassParameters,
    prepare=lambda parameters, progress: NovelClass(
        parameters.load(progress), parameters, parameters.new
    ),
    measures=("clean_accuracy",),
    example="--data mnist --new 9",
    variant="new",
    place=2,
)
