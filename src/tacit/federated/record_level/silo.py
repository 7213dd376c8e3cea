r"""A silo: rows under a budget, on which an algorithm trains without seeing them.

An algorithm's client function uses rows in one place, ``model.gradient(w, rows, labels)``. A silo
passes it placeholders, and a model whose gradient ignores its arguments: it draws a Poisson sample
of the silo's own rows, clips each row's gradient, sums, adds noise and divides by the expected
size. So whatever the function computes is post-processing of noisy gradients, and any algorithm
with one exchange per round runs unchanged: FedSGD, FedAvg, FedProx, FedDyn, Sub-FedAvg.

The theorem and its cost are in `tacit.federated.record_level.privacy`. This module ensures its
premises: draws are counted, everything is paid before it is computed (`federated.payment`), and
nothing is computed twice.
"""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.central.statistics.standardization import standardize
from tacit.central.training import gradients, probing
from tacit.central.training.gradients import NoisyGradients
from tacit.central.training.noise import Noise
from tacit.central.training.schedule import Schedule
from tacit.federated import rounds
from tacit.federated.algorithms.client_updates import Global, State
from tacit.federated.algorithms.registry import Algorithm, Phase
from tacit.federated.algorithms.registry import algorithm as named
from tacit.federated.config import Config
from tacit.federated.model import Data
from tacit.federated.payload import Vector
from tacit.federated.payment import Payment
from tacit.federated.record_level import held_out as judging
from tacit.federated.record_level import row_masks
from tacit.federated.record_level.normalisation import Normalisation, SiloMoments
from tacit.federated.record_level.privacy import RecordPrivacy, SiloPlan
from tacit.federated.record_level.private_model import ExampleLosses, PrivateModel
from tacit.federated.rounds import Reply
from tacit.federated.torch_model import TorchModel
from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Keystream, Randomness, rounded_gaussian, source

_WHERE = "Silo"


class Silo:
    """One silo's rows, and all releases about them in a run.

    Parameters
    ----------
    model : TorchModel
        The network of the run. Several silos in one process may share one.
    data : Data
        The rows. A row is one record; which rows are held out depends on their position.
    privacy : RecordPrivacy
        What may be released.
    algorithm : Algorithm or str
        The algorithm. FSVRG is refused, and so is Sub-FedAvg with a threshold on accuracy.
    config : Config
        Settings of the algorithm.
    ledger, account : Ledger, str, optional
        The owner's budget for this data set, charged before anything is computed.
    run : str, optional
        Name of the run. Another process with the same ledger, account and name continues it.
    rng : Randomness, optional
        Source of randomness for tests. The default is the operating system's.

    Notes
    -----
    A Rényi account is charged exchange by exchange, and adds up the releases about trained and
    held-out rows. Other accounts are charged for the whole plan before the first exchange. A silo
    must be used from one thread.
    """

    def __init__(
        self,
        model: TorchModel,
        data: Data,
        privacy: RecordPrivacy,
        algorithm: Algorithm | str,
        config: Config,
        *,
        ledger: Ledger | None = None,
        account: str | None = None,
        run: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.algorithm = named(algorithm) if isinstance(algorithm, str) else algorithm
        model = copy.deepcopy(model)  # so that no state of a pass reaches another silo
        self.privacy, self.config, self._model = privacy, config, model
        self._held = row_masks.held_out(len(data), privacy.held_out)
        self._data = data
        self._rows: npt.NDArray[Any] = data.rows
        self.classes = row_masks.classes(_WHERE, model, data)
        self._there = row_masks.labelled(data.labels, self.classes)
        if self.classes is not None and privacy.evaluations:
            judging.admit(_WHERE, model, data.rows)
        trained = self._tensors()
        clipper = probing.clipper(_WHERE, model.module, ExampleLosses(model), trained)
        self.plan = privacy.plan(len(data), self.algorithm, config)
        plan = self.plan
        name = None if run is None else f"{run} {_short(plan)}"
        self._payment = Payment(_WHERE, plan.whole, float(privacy.delta), ledger, account, name)
        self._stream = Keystream() if rng is None else source(rng)
        self._rng = source(rng)
        clip = errors.positive(_WHERE, "clip_norm", privacy.clip_norm)
        schedule = Schedule(plan.trained, plan.threshold, plan.draws, plan.multiplier)
        noise = Noise(float(plan.multiplier * clip), self._stream)
        room = gradients.clip_norm_within(float(clip), schedule, torch.float32)
        self._gradients = NoisyGradients(clipper, trained, noise, schedule, room)
        nothing = np.zeros(plan.trained, dtype=np.int64)
        self.stand_in = Data(np.zeros((plan.trained, 0), dtype=np.float32), nothing)
        """As many empty rows as are trained on: the data that an algorithm gets."""

    @property
    def unlabelled(self) -> int:
        """Number of ignored rows, whose label is not a class of the job. In-house only.

        They raise no error: the server chooses the number of classes, and an error would reveal a
        label to it.
        """
        return int((~self._there).sum())

    def __len__(self) -> int:
        """Return the number of rows that are trained on."""
        return self.plan.trained

    def __copy__(self) -> Silo:
        """Return itself: two copies of a budget would be two budgets on one charge."""
        return self

    def __deepcopy__(self, memo: object) -> Silo:
        return self

    def __reduce__(self) -> Any:
        raise errors.TacitError("Silo: it must stay in its process. A copy would spend twice.")

    def answer(
        self,
        exchange: int,
        phase: Phase,
        received: Global,
        state: State,
        rng: np.random.Generator,
    ) -> tuple[Reply, State]:
        """Compute a private reply, which states what this silo has spent with it.

        Raises
        ------
        BudgetExceeded
            If the exchange is beyond the plan, was begun before, or cannot be paid. Then nothing is
            computed.
        """
        if phase not in self.algorithm.phases:
            errors.refuse(_WHERE, "phase", f"one of {self.algorithm.name}", phase.name)
        number = errors.whole(_WHERE, "exchange", exchange, least=1)
        most = self.privacy.rounds
        if number > most:
            raise errors.BudgetExceeded(
                f"{_WHERE}: exchange must be at most {most}, the rounds of its plan, got {number}. "
                "Plan for more, with more noise."
            )
        self._begin("round", number, self.plan.event(1))
        with self._gradients.drawing():
            model = PrivateModel(self._model, self._gradients, self.plan.draws)
            reply, kept = rounds.computed(
                phase, self.config, model, received, state, self.stand_in, rng
            )
        return reply._replace(stated=(self.spent, float(self.privacy.delta))), kept

    def statistics(self) -> SiloMoments:
        """Release noisy means and means of squares of the rows that are trained on; once per run.

        Raises
        ------
        BudgetExceeded
            At the second call.
        """
        if not self.privacy.statistics:
            remedy = "Give mean and standard deviation a share of the budget."
            errors.refuse(_WHERE, "statistics", "above 0", self.privacy.statistics, remedy)
        self._begin("statistics", 1, self.plan.event(0, statistics=True))
        rows = self._data.rows[~self._held]
        scale = standardize(
            rows.reshape(len(rows), -1),
            *self.privacy.bounds,
            pooled=self.privacy.pooled,
            noise_multiplier=self.privacy.statistics_multiplier,  # type: ignore[arg-type]  # exact
            unit=self.privacy.unit,
            rng=self._rng,
        ).value
        first = slice(0, 1 if self.privacy.pooled else None)
        mean, deviation = scale.mean[first], scale.deviation[first]
        return SiloMoments(mean, deviation**2 + mean**2, scale.count)

    def normalise(self, normalisation: Normalisation) -> None:
        """Normalise rows from now on, after clipping them to the bounds."""
        if not np.issubdtype(self._data.rows.dtype, np.floating):
            remedy = "Convert them first."
            errors.refuse(_WHERE, "rows", "reals", str(self._data.rows.dtype), remedy)
        held = Normalisation(normalisation.mean, normalisation.deviation, self.privacy.bounds)
        self._rows = held.apply(self._data.rows)
        self._gradients.rows = self._tensors()

    def evaluate(self, parameters: Vector) -> npt.NDArray[np.int64]:
        """Release a noisy confusion matrix of the held-out rows, true class by predicted class.

        Raises
        ------
        BudgetExceeded
            After the planned number of evaluations.
        """
        if self.classes is None or not self.privacy.evaluations:
            errors.refuse(_WHERE, "evaluations", "planned, for a model with classes", 0)
        weights = np.asarray(parameters, dtype=np.float32)
        if weights.shape != (self._model.layout.size,):
            errors.refuse(_WHERE, "parameters", "those of the model", weights.shape)
        self._next_evaluation()
        counts = np.zeros((self.classes, self.classes), dtype=np.int64)
        truth = self._data.labels[self._held].astype(np.int64)
        # A row that is blank, or whose label is not a class, is not counted.
        there = row_masks.finite(self._data.rows[self._held]) & self._there[self._held]
        predicted, there = judging.judge(self._model, weights, self._rows[self._held], there)
        np.add.at(counts, (truth[there], predicted[there]), 1)
        noise = rounded_gaussian(self.privacy.evaluation_multiplier, counts.size, self._rng)
        return np.asarray(counts + noise.reshape(counts.shape))

    def _next_evaluation(self) -> None:
        """Begin the first evaluation that no process has begun."""
        most = self.privacy.evaluations
        for number in range(1, most + 1):
            if self._payment.has("evaluation", number):
                continue
            try:
                self._begin("evaluation", number, self.plan.event(0, evaluations=1))
            except errors.BudgetExceeded:
                if self._payment.has("evaluation", number):
                    continue  # begun by another process in the meantime
                raise
            return
        raise errors.BudgetExceeded(
            f"{_WHERE}: evaluations must be at most {most}, got one more. Plan for more."
        )

    def _begin(self, kind: str, number: int, event: events.Event | None) -> None:
        assert event is not None
        self._payment.begin(kind, number, event)

    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows to train on as tensors, their labels, and whether each row counts."""
        used = ~self._held
        there = self._there[used]
        labels = self._data.labels[used]
        labels = labels if self._there.all() else np.where(there, labels, 0)
        parts = (self._rows[used], labels, there.astype(np.float32))
        rows, truth, counts = (self._model.tensor(part) for part in parts)
        return rows, truth, counts

    @property
    def event(self) -> events.Event | None:
        """The event of all that any process has begun so far; None before anything was."""
        return self.plan.event(
            self._payment.begun("round"),
            statistics=self._payment.begun("statistics") > 0,
            evaluations=self._payment.begun("evaluation"),
        )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all releases so far."""
        return self.plan.guarantee(self._ran())

    @property
    def spent(self) -> float:
        """ε of all that was begun so far."""
        return self.plan.epsilon(
            self._payment.begun("round"),
            statistics=self._payment.begun("statistics") > 0,
            evaluations=self._payment.begun("evaluation"),
        )

    def certificate(
        self, artifact: str | Path | None = None, *, whole_plan: bool = False
    ) -> Certificate:
        """Issue a certificate of what this silo has released, or of a file made from it.

        Parameters
        ----------
        artifact : path, optional
            The file.
        whole_plan : bool
            State the cost of the whole plan. Use it if somebody looked at models to decide when to
            stop.
        """
        event, unit = self.plan.whole if whole_plan else self._ran(), str(self.privacy.unit)
        return Certificate.issue(
            event,
            delta=float(self.privacy.delta),
            artifact=artifact,
            assumptions=(
                *gradients.assumptions(self._gradients.noise, self._gradients.rows[0].device),
                *_assumptions(unit),
                *(() if whole_plan else (_SETTLED,)),
            ),
            not_protected=gradients.limits(unit),
            rng=self._rng,
        )

    def _ran(self) -> events.Event:
        if self.event is None:
            raise errors.TacitError(
                "Silo: something must be released first. Nothing was begun yet."
            )
        return self.event


def _short(plan: SiloPlan) -> str:
    """Return a short name of a plan: with another plan a run of the same name pays separately.

    Otherwise two jobs of equal cost could hold out different rows on one charge.
    """
    return hashlib.sha256(repr(plan).encode()).hexdigest()[:16]


def _assumptions(unit: str) -> tuple[str, ...]:
    return (
        f"Which {unit}s are held out, and never trained on, depends on their position in the "
        f"silo's file. A {unit} that is blanked keeps its position; nothing is stated for one that "
        "is removed, so that others move up.",
        f"Each held-out {unit} is evaluated in its own slot, by torch.vmap. The rounding of "
        "numbers in one slot is assumed not to depend on the content of another.",
        "Mean, standard deviation and count of rows, if released, are stated as one equivalent "
        "Gaussian mechanism.",
        "The ledger's file, if there is one, was not restored to an earlier state.",
    )


_SETTLED = "The decision to end training after this round did not depend on what was released."
