r"""A silo: rows behind a budget, which an algorithm trains on without seeing them.

An algorithm's client function meets rows in one place, ``model.gradient(w, rows, labels)``. A silo
hands it placeholders, and a model whose gradient ignores what it is passed: it draws a Poisson
sample of the silo's own rows, clips each one's gradient, sums, adds noise and divides by the size
that was expected. So whatever the function computes is post-processing of noisy gradients, and any
algorithm of one exchange runs unchanged: FedSGD, FedAvg, FedProx, FedDyn, Sub-FedAvg.

The theorem, and what it costs, is in `tacit.federated.record_level.privacy`. This module keeps its
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
from torch import Tensor, nn

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
from tacit.federated.model import Data, Evaluation
from tacit.federated.payload import Layout, Vector
from tacit.federated.payment import Payment
from tacit.federated.record_level import held_out as judging
from tacit.federated.record_level.normalisation import Moments, Normalisation
from tacit.federated.record_level.privacy import RecordPrivacy, SiloPlan
from tacit.federated.rounds import Reply
from tacit.federated.torch_model import TorchModel
from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.randomness import Keystream, Randomness, rounded_gaussian, source

_WHERE = "Silo"


class Silo:
    """One silo's rows, and all that may ever be released of them in a run.

    Parameters
    ----------
    model : TorchModel
        The network of the run. Several silos in one process may share one.
    data : Data
        The rows. A row is one record; which rows are held out goes by their place.
    privacy : RecordPrivacy
        What may be released.
    algorithm : Algorithm or str
        What runs; FSVRG is refused, and Sub-FedAvg that looks at its accuracy.
    config : Config
        Its settings.
    ledger, account : Ledger, str, optional
        The owner's budget for this data set, charged before anything is computed.
    run : str, optional
        Names the run. Another process with the same ledger, account and name goes on with it.
    rng : Randomness, optional
        For tests. The operating system's without it.

    Notes
    -----
    A Rényi account is charged exchange by exchange, and adds up what is released of trained and of
    held-out rows. Other accounts are charged for the whole plan before the first exchange. A silo
    belongs to one thread.
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
        model = copy.deepcopy(model)  # nothing that a pass leaves in it reaches another silo
        self.privacy, self.config, self._model = privacy, config, model
        self._held = _places(len(data), privacy.held_out)
        self._data = data
        self._rows: npt.NDArray[Any] = data.rows
        self.classes = _classes(model, data)
        self._there = _labelled(data.labels, self.classes)
        if self.classes is not None and privacy.evaluations:
            judging.admit(_WHERE, model, data.rows)
        trained = self._tensors()
        clipper = probing.clipper(_WHERE, model.module, _Loss(model), trained)
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
        """As many rows as are trained on, without anything in them: what an algorithm gets."""

    @property
    def unlabelled(self) -> int:
        """Rows whose label is no class of the job: they count nowhere. In-house only.

        They are no error: the server chooses how many classes there are, and an error would tell
        it a label.
        """
        return int((~self._there).sum())

    def __len__(self) -> int:
        """Rows that are trained on."""
        return self.plan.trained

    def __copy__(self) -> Silo:
        """Itself: two copies of a budget would be two budgets, on one charge."""
        return self

    def __deepcopy__(self, memo: object) -> Silo:
        return self

    def __reduce__(self) -> Any:
        raise errors.TacitError("Silo: it must stay in its process: a copy spends twice.")

    def answer(
        self,
        exchange: int,
        phase: Phase,
        received: Global,
        state: State,
        rng: np.random.Generator,
    ) -> tuple[Reply, State]:
        """A private reply, and what this silo has spent with it.

        Raises
        ------
        BudgetExceeded
            Where the exchange is beyond the plan, was begun before, or cannot be paid. Nothing is
            computed then.
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
            model = _Private(self._model, self._gradients, self.plan.draws)
            reply, kept = rounds.computed(
                phase, self.config, model, received, state, self.stand_in, rng
            )
        return reply._replace(stated=(self.spent, float(self.privacy.delta))), kept

    def statistics(self) -> Moments:
        """Noisy means and means of squares of the rows that are trained on; once a run.

        Raises
        ------
        BudgetExceeded
            The second time.
        """
        if not self.privacy.statistics:
            remedy = "Give mean and deviation a share of the budget."
            errors.refuse(_WHERE, "statistics", "above 0", self.privacy.statistics, remedy)
        self._begin("statistics", 1, self.plan.event(0, statistics=True))
        rows = self._data.rows[~self._held]
        found = standardize(
            rows.reshape(len(rows), -1),
            *self.privacy.bounds,
            pooled=self.privacy.pooled,
            noise_multiplier=self.privacy.statistics_multiplier,  # type: ignore[arg-type]  # exact
            unit=self.privacy.unit,
            rng=self._rng,
        ).value
        first = slice(0, 1 if self.privacy.pooled else None)
        mean, deviation = found.mean[first], found.deviation[first]
        return Moments(mean, deviation**2 + mean**2, found.count)

    def normalise(self, normalisation: Normalisation) -> None:
        """From now on rows are held to the bounds, less this mean, over this deviation."""
        if not np.issubdtype(self._data.rows.dtype, np.floating):
            remedy = "Convert them first."
            errors.refuse(_WHERE, "rows", "reals", str(self._data.rows.dtype), remedy)
        held = Normalisation(normalisation.mean, normalisation.deviation, self.privacy.bounds)
        self._rows = held.apply(self._data.rows)
        self._gradients.rows = self._tensors()

    def evaluate(self, parameters: Vector) -> npt.NDArray[np.int64]:
        """A noisy confusion matrix of the held-out rows, truth by prediction.

        Raises
        ------
        BudgetExceeded
            After as many as were planned.
        """
        if self.classes is None or not self.privacy.evaluations:
            errors.refuse(_WHERE, "evaluations", "planned, of a model of classes", 0)
        weights = np.asarray(parameters, dtype=np.float32)
        if weights.shape != (self._model.layout.size,):
            errors.refuse(_WHERE, "parameters", "those of the model", weights.shape)
        self._next_evaluation()
        counts = np.zeros((self.classes, self.classes), dtype=np.int64)
        truth = self._data.labels[self._held].astype(np.int64)
        # A row that is blank, or whose label is no class, counts nowhere.
        there = _finite(self._data.rows[self._held]) & self._there[self._held]
        found, there = judging.judge(self._model, weights, self._rows[self._held], there)
        np.add.at(counts, (truth[there], found[there]), 1)
        noise = rounded_gaussian(self.privacy.evaluation_multiplier, counts.size, self._rng)
        return np.asarray(counts + noise.reshape(counts.shape))

    def _next_evaluation(self) -> None:
        """Begin the first one that nobody has begun."""
        most = self.privacy.evaluations
        for number in range(1, most + 1):
            if self._payment.has("evaluation", number):
                continue
            try:
                self._begin("evaluation", number, self.plan.event(0, evaluations=1))
            except errors.BudgetExceeded:
                if self._payment.has("evaluation", number):
                    continue  # by another process, meanwhile
                raise
            return
        raise errors.BudgetExceeded(
            f"{_WHERE}: evaluations must be at most {most}, got one more. Plan for more."
        )

    def _begin(self, kind: str, number: int, event: events.Event | None) -> None:
        assert event is not None
        self._payment.begin(kind, number, event)

    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows that are trained on, as the module takes them; their labels; whether they count."""
        used = ~self._held
        there = self._there[used]
        labels = self._data.labels[used]
        labels = labels if self._there.all() else np.where(there, labels, 0)
        parts = (self._rows[used], labels, there.astype(np.float32))
        rows, truth, counts = (self._model.tensor(part) for part in parts)
        return rows, truth, counts

    @property
    def event(self) -> events.Event | None:
        """What was begun so far, by this process or another; None before anything was."""
        return self.plan.event(
            self._payment.begun("round"),
            statistics=self._payment.begun("statistics") > 0,
            evaluations=self._payment.begun("evaluation"),
        )

    @property
    def guarantee(self) -> Guarantee:
        """Of all that was released so far."""
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
        """Certify what this silo has released, or a file made of it.

        Parameters
        ----------
        artifact : path, optional
            The file.
        whole_plan : bool
            State the cost of all that was planned. That is what holds where somebody looked at
            models and stopped at one that pleased.
        """
        event, unit = self.plan.whole if whole_plan else self._ran(), str(self.privacy.unit)
        return Certificate.issue(
            event,
            delta=float(self.privacy.delta),
            artifact=artifact,
            assumptions=(
                *gradients.assumptions(self._gradients.noise),
                *_assumptions(unit),
                *(() if whole_plan else (_SETTLED,)),
            ),
            not_protected=gradients.limits(unit),
            rng=self._rng,
        )

    def _ran(self) -> events.Event:
        if self.event is None:
            raise errors.TacitError("Silo: nothing was begun yet, so there is no release.")
        return self.event


class _Private:
    """The model that an algorithm gets: gradients of nobody's rows in particular."""

    def __init__(self, model: TorchModel, gradients: NoisyGradients, draws: int) -> None:
        self._model, self._gradients, self._left = model, gradients, draws

    @property
    def layout(self) -> Layout:
        return self._model.layout

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._model.dtype

    def start(self) -> Vector:
        return self._model.start()

    def gradient(self, parameters: Vector, rows: Any, labels: Any) -> Vector:
        """A draw, whatever rows are passed."""
        if self._left <= 0:
            raise errors.TacitError(f"{_WHERE}: a round must have no more draws than were planned.")
        self._left -= 1
        self._model.load(parameters)
        return np.asarray(self._gradients.draw().cpu().numpy())

    def evaluate(self, parameters: Vector, rows: Any, labels: Any) -> Evaluation:
        """Nothing is known: 0 passes a gate of 0, and no other."""
        return Evaluation(float("nan"), 0.0)


class _Loss:
    """The losses of examples, each alone."""

    def __init__(self, model: TorchModel) -> None:
        self._model = model

    def __call__(self, module: nn.Module, rows: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        return self._model.losses(module(rows), labels) * counts


def _short(plan: SiloPlan) -> str:
    """Names a plan: with another one, the same run is another run, and pays for itself.

    Else rows could change sides between two jobs that cost the same, on one charge.
    """
    return hashlib.sha256(repr(plan).encode()).hexdigest()[:16]


def _places(count: int, every: int) -> npt.NDArray[np.bool_]:
    """Which rows are held out: by their place alone."""
    held = np.zeros(count, dtype=np.bool_)
    if every:
        held[every - 1 :: every] = True
    return held


def _finite(rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which rows have no NaN and no infinity."""
    return np.asarray(np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))


def _classes(model: TorchModel, data: Data) -> int | None:
    """How many classes the module tells apart; None where labels are none."""
    blank = model.tensor(np.zeros_like(data.rows[:1]))
    try:
        with torch.no_grad():
            outputs = copy.deepcopy(model).module(blank)
    except (RuntimeError, ValueError, IndexError):
        raise errors.InvalidData(
            f"{_WHERE}: the model must take rows of shape {tuple(data.rows.shape[1:])}, as these "
            "have. Its first layer does not."
        ) from None
    if outputs.ndim != 2 or data.labels.ndim != 1 or data.labels.dtype.kind not in "biu":
        return None
    return int(outputs.shape[1])


def _labelled(labels: npt.NDArray[Any], classes: int | None) -> npt.NDArray[np.bool_]:
    """Rows whose label is one of the classes; all where there are none."""
    if classes is None:
        return np.ones(len(labels), dtype=np.bool_)
    return np.asarray((labels >= 0) & (labels < classes))


def _assumptions(unit: str) -> tuple[str, ...]:
    return (
        f"Which {unit}s are held out, and never trained on, went by their place in the silo's "
        f"file. A {unit} that is blanked keeps its place: towards one that is taken out, so that "
        "others move up, nothing is stated.",
        f"Each held-out {unit} is judged in a place of its own, mapped over them by torch.vmap: "
        "how numbers in one place are rounded is taken not to depend on what is in another.",
        "Mean, deviation and count of rows, where they were released, are stated as the one "
        "Gaussian that they come to.",
        "The ledger's file, where there is one, was not put back to an earlier state.",
    )


_SETTLED = "That training ended after this round was not decided by looking at what was released."
