r"""Estimators compared on real data: accuracy, or R², against ε.

Every estimator of `tacit.estimators` runs with every algorithm that has a proof and with default
settings, beside scikit-learn's without privacy and diffprivlib's with the same public bounds. Each
trial has its own split and noise. The bounds, and the norm of rows with one-hot columns, are public
(`tacit_papers.parts.classifier_data`).

`chance` is the share of the largest class in the test rows; predicting the mean has R² = 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from tacit.privacy import errors
from tacit_papers.engine import checks, declare
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.record import Cell, Record, versions
from tacit_papers.engine.registry import Study
from tacit_papers.engine.running import Measured, generator
from tacit_papers.engine.tables import Table, trials
from tacit_papers.parts import classifier_data
from tacit_papers.parts import classifier_models as models
from tacit_papers.parts.classifier_data import Case, Encoding, RowsAndTargets
from tacit_papers.parts.classifier_models import PEER, PLAIN, TACIT, Peer
from tacit_papers.parts.references import largest

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_QUICK_ROWS = 500


@dataclass(frozen=True)
class ClassifiersParameters(Parameters):
    """Parameters of the study; without estimators, all that fit the data."""

    data: str = declare.option(
        "digits", "adult, digits (accuracy); lending_club, diabetes (R²).", kw_only=True
    )
    estimators: tuple[str, ...] = declare.option(
        (),
        "Names of tacit.estimators.",
        check=checks.one_of([*models.CLASSIFIERS, *models.REGRESSORS]),
        otherwise="all that fit the data",
    )
    epsilons: tuple[float, ...] = declare.option(
        EPSILONS, "ε of a fit.", check=checks.epsilon, quick=(3.0,)
    )
    delta: float = declare.delta(1e-6, "δ of a fit, where one is used.")
    trials: int = declare.trials()
    seed: int = declare.seed()
    peer: str | None = declare.option(
        None,
        "A Python interpreter that has diffprivlib.",
        otherwise="this one, if it has it",
        kw_only=True,
    )
    quick: bool = declare.quick()


class Classifiers:
    """The experiment; see the module.

    Parameters
    ----------
    case : Case
        The data.
    parameters : ClassifiersParameters
        The parameters.
    peer : Peer, optional
        diffprivlib; without it there are no results of diffprivlib.
    """

    name = "classifiers"

    def __init__(
        self, case: Case, parameters: ClassifiersParameters, peer: Peer | None = None
    ) -> None:
        self.case, self.parameters, self.peer = case, parameters, peer
        fitting = tuple(models.known(case))
        self.estimators = parameters.estimators or fitting
        for name in self.estimators:
            errors.choice("study", f"estimators for {case.name}", name, fitting)
        if find_spec("torch") is None and any(name.startswith("MLP") for name in self.estimators):
            remedy = "pip install 'tacit[learn]', or leave it out of --estimators."
            errors.refuse("study", "estimators", "without MLP where torch is missing", "", remedy)
        self._last: tuple[Any, tuple[RowsAndTargets, RowsAndTargets]] | None = None

    def record(self) -> Record:
        """Return an empty record."""
        parameters, case = self.parameters, self.case
        recorded = {
            **parameters.recorded(),
            "data": case.name,
            "estimators": list(self.estimators),
            # Which interpreter it was does not matter; its version is among the versions.
            "peer": "PYTHON" if self.peer else None,
        }
        train, test = self._parts(0)
        data = {
            "rows": len(case.target),
            "training": len(train.y),
            "test": len(test.y),
            "columns": train.X.shape[1],
            "measure": case.measure,
            "classes": [str(value) for value in case.classes],
            "sha256": dict(case.sha256),
            "taken_as_public": list(case.taken_as_public),
        }
        made_by = versions("cpu") | ({PEER: self.peer.version} if self.peer else {})
        return Record(self.name, recorded, made_by, data)

    def cells(self) -> Sequence[Cell]:
        """List the cells, trial by trial: references, ours with every algorithm, diffprivlib."""
        return [
            {**cell, "trial": trial}
            for trial in range(self.parameters.trials)
            for cell in (*self._references(), *self._ours(), *self._peers())
        ]

    def _references(self) -> list[Cell]:
        chance: list[Cell] = [{"reference": "chance"}] if self.case.classes else []
        return chance + [_cell(PLAIN, name, None, None) for name in self.estimators]

    def _ours(self) -> list[Cell]:
        algorithms = models.known(self.case)
        return [
            _cell(TACIT, name, algorithm, epsilon)
            for name in self.estimators
            for algorithm in algorithms[name]
            for epsilon in self.parameters.epsilons
        ]

    def _peers(self) -> list[Cell]:
        if self.peer is None:
            return []
        # Estimators that we do not have are always run.
        ours = models.known(self.case)
        mine = [
            name
            for name in models.PEERS[self.case.measure]
            if name in self.estimators or name not in ours
        ]
        return [_cell(PEER, name, None, e) for name in mine for e in self.parameters.epsilons]

    def measure(self, cell: Cell) -> Measured:
        """Measure one fit on test rows."""
        if cell.get("reference"):
            return Measured({"accuracy": largest(self._parts(cell["trial"])[1].y)})
        library, name, epsilon = cell["library"], cell["estimator"], cell["epsilon"]
        train, test = self._parts(cell["trial"], models.encoding(self.case, name))
        seed = self.parameters.seed + cell["trial"]
        if library == PLAIN:
            model, _ = models.fitted(models.plain(name, train.X.shape[1], seed), train)
            return Measured({self.case.measure: float(model.score(*test))}, {"delta": None})
        if library == PEER:
            assert self.peer is not None
            score = self.peer.score(self.case, (train, test), name, epsilon, seed)
            return Measured({self.case.measure: score}, {"delta": 0.0})
        algorithm, rng = cell["algorithm"], generator(self.parameters.seed, cell)
        model = models.ours(self.case, name, algorithm, epsilon, self.parameters.delta, rng)
        model, noise = models.fitted(model, train)
        facts = {
            "delta": float(getattr(model.guarantee_, "delta", 0.0)),
            "guarantee": str(model.guarantee_),
            "default": models.is_default(name, algorithm),
        }
        score = float(model.score(*test))
        return Measured({self.case.measure: score, "mostly_noise": noise}, facts)

    def _parts(
        self, trial: int, encoding: Encoding | None = None
    ) -> tuple[RowsAndTargets, RowsAndTargets]:
        rows = encoding or self.case.indicators
        if self._last is None or self._last[0] != (trial, rows):
            most = _QUICK_ROWS if self.parameters.quick else None
            parts = self.case.split(rows, self.parameters.seed + trial, most)
            self._last = (trial, rows), parts
        return self._last[1]


def _cell(library: str, estimator: str, algorithm: str | None, epsilon: float | None) -> Cell:
    return {
        "library": library,
        "estimator": estimator,
        "algorithm": algorithm,
        "epsilon": epsilon,
    }


def table(record: Mapping[str, Any]) -> Table:
    """Return title, header and lines: one line per algorithm, one column per ε and for ε = ∞."""
    measure, epsilons = record["data"]["measure"], record["parameters"]["epsilons"]
    lines: dict[tuple[str, str], dict[float | None, str]] = {}
    for one in record["results"]:
        if one["library"] == PLAIN:
            continue
        said = one["algorithm"] or PEER
        shown = f"{said}*" if one.get("default") else said
        lines.setdefault((one["estimator"], shown), {})[one["epsilon"]] = _short(one[measure])
    free = {
        one["estimator"]: _short(one[measure])
        for one in record["results"]
        if one["library"] == PLAIN
    }
    rows = [
        (f"{name}\n  {said}", *(scores.get(e, "") for e in epsilons), free.get(name, "–"))
        for (name, said), scores in sorted(lines.items(), key=lambda pair: pair[0][0])
    ]
    return _title(record), ("", *(f"ε = {e:g}" for e in epsilons), "ε = ∞"), rows


def _title(record: Mapping[str, Any]) -> str:
    data, parameters = record["data"], record["parameters"]
    chance = record["references"].get("chance")
    named = "accuracy" if chance is not None else "R²"
    least = f" (the largest class: {chance:.3f})" if chance is not None else ""
    peer = "" if parameters["peer"] else "; no diffprivlib: name a Python that has it with --peer"
    return (
        f"classifiers, {parameters['data']}: {named}{least}, {data['training']:,} rows of "
        f"{data['columns']} columns, {data['test']:,} test rows; {trials(record)}; "
        f"* is the default{peer}"
    )


def _short(measure: Mapping[str, Any]) -> str:
    mean, std = measure["mean"], measure["std"]
    if mean < -10:
        return "< −10"
    return f"{mean:.3f}" + (f"\n±{std:.3f}" if len(measure["trials"]) > 1 else "")


def _prepare(parameters: ClassifiersParameters, progress: Any) -> Classifiers:
    peer = Peer.here() if parameters.peer is None else Peer(parameters.peer)
    return Classifiers(classifier_data.load(parameters.data, progress), parameters, peer)


STUDY = Study(
    name="classifiers",
    about="Compare every estimator against ε, beside scikit-learn and diffprivlib.",
    question="Which estimator loses least at which ε, and are the defaults the right ones?",
    parameters=ClassifiersParameters,
    prepare=_prepare,
    measures=("accuracy", "r2"),
    table=table,
    example="--data adult",
    epsilon_optional=True,
    place=9,
)
