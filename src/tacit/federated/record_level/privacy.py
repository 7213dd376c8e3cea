r"""A guarantee for the records of a silo: the noise and the number of releases, fixed beforehand.

A silo that trains on n rows replies in every round with the result of T noisy gradients, each on a
Poisson sample of its rows with probability :math:`q = k / 2^{32}`. In addition it may release a
mean and a standard deviation of its rows, once, and noisy confusion matrices of rows on which it
never trains.

Theorem. All that a silo releases is (ε, δ)-DP for its records under zero-out neighbours: one
record, trained on or held out, is blanked and keeps its position. The number of rows is public.

Proof. (1) A round consists of T Gaussian mechanisms with multiplier z on Poisson samples of the
trained rows: each is a draw of `central.training.gradients` at weights that depend on earlier
releases alone, since the client function gets placeholders instead of rows. (2) The statistics are
Gaussian mechanisms on the trained rows, with :math:`\sum_i z_i^{-2} = s \mu^2`, where :math:`\mu`
is that of the Gaussian mechanism which spends (ε, δ) [DRS22]_, and s the share. (3) z is such that
R rounds and the statistics, composed by their privacy loss distribution, spend at most (ε, δ). (4)
The position of a row decides whether it is trained on or held out, so a record is in one of the two
parts. A held-out row changes one count of a confusion matrix by one (`held_out`); E matrices with
noise multiplier :math:`\sqrt E / \mu` spend (ε, δ) by themselves. A record's privacy loss is that
of its own part, even if a query on one part was chosen after releases about the other: noise and
numbers of draws are fixed beforehand.

Notes
-----
Positions are those in the silo's file. A row with numbers that are not finite, or with a label that
is not a class, is blank: it is not counted, and keeps its position. Add-remove is not stated:
sampling probability, steps and weight are computed from the exact number of rows, and adding or
removing a row changes the positions of others.

References
----------
.. [DRS22] Dong, Roth, Su. Gaussian differential privacy. JRSS B 2022.
.. [KZP21] Kaissis et al. End-to-end privacy preserving deep learning on multi-institutional medical
   imaging. Nature Machine Intelligence 2021 (PriMIA).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tacit.federated.algorithms.registry import Algorithm
from tacit.federated.config import Config
from tacit.federated.record_level.calibration import gradient_multiplier, rounded_up
from tacit.federated.record_level.normalisation import Bounds, bounds_of
from tacit.privacy import errors, events, gaussian
from tacit.privacy.accounting import calibration, plans
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.plans import SampledGaussian
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit

_WHERE = "RecordPrivacy"


@dataclass(frozen=True)
class RecordPrivacy:
    r"""The budget of a silo's records and its division among releases, fixed beforehand.

    Parameters
    ----------
    epsilon, delta : float
        Budget of each record for all releases together.
    rounds : int
        Number of rounds to which the noise is calibrated. A silo does not reply in further rounds.
    clip_norm : float
        C, to which the gradient of every example is clipped.
    statistics : float
        Share of the budget, in [0, 1), for mean and standard deviation of the rows; 0 releases
        none.
    bounds : (float, float)
        Public bounds of the numbers in the rows, for the statistics.
    pooled : bool
        Use one mean and standard deviation for all columns, as for images; otherwise one per
        column.
    held_out : int
        With k ≥ 2 every k-th row is held out: never trained on, only evaluated. 0 holds out none.
    evaluations : int
        Number of noisy confusion matrices of held-out rows.
    accountant : {"pld", "rdp"}
        Accountant with which the noise is calibrated.
    unit : Unit or str
        The unit that a row is.

    Examples
    --------
    >>> from tacit.federated.algorithms.registry import algorithm
    >>> fedavg = algorithm("fedavg")
    >>> privacy = RecordPrivacy(epsilon=4, delta=1e-4, rounds=5, held_out=5, evaluations=1)
    >>> plan = privacy.plan(1000, fedavg, fedavg.config(batch_size=100, epochs=1))
    >>> plan.trained, plan.tested, plan.draws, round(plan.epsilon(5, evaluations=1), 2)
    (800, 200, 8, 4.0)
    """

    epsilon: float
    delta: float
    rounds: int
    clip_norm: float = 1.0
    statistics: float = 0.0
    bounds: Bounds = (-1.0, 1.0)
    pooled: bool = True
    held_out: int = 0
    evaluations: int = 0
    accountant: str = "pld"
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        errors.epsilon_in_range(_WHERE, self.epsilon)
        errors.probability(_WHERE, "delta", self.delta, zero=False)
        errors.whole(_WHERE, "rounds", self.rounds, least=1, most=10**6)
        errors.clip_norm_in_range(_WHERE, self.clip_norm)
        errors.probability(_WHERE, "statistics", self.statistics)
        errors.whole(_WHERE, "held_out", self.held_out, least=0)
        errors.whole(_WHERE, "evaluations", self.evaluations, least=0, most=10**6)
        errors.choice(_WHERE, "accountant", self.accountant, calibration.ACCOUNTANTS)
        bounds = bounds_of(_WHERE, self.bounds)
        if not math.isfinite(bounds[1] - bounds[0]):
            errors.refuse(_WHERE, "bounds", "finite", self.bounds)
        if self.held_out == 1:
            remedy = "Every row would be held out, and none remains to train on."
            errors.refuse(_WHERE, "held_out", "0, or at least 2", self.held_out, remedy)
        if self.evaluations and not self.held_out:
            remedy = "Evaluation on trained rows would cost them twice."
            errors.refuse(_WHERE, "held_out", "given for evaluations", self.held_out, remedy)
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "unit", Unit.of(_WHERE, self.unit))

    def admit(self, algorithm: Algorithm, config: Config) -> None:
        """Refuse algorithms that gain nothing, or have no guarantee, inside a silo."""
        if len(algorithm.phases) > 1:
            remedy = (
                "It takes differences of two gradients of one row, but here each has its own "
                "noise, so nothing cancels."
            )
            errors.refuse(_WHERE, "algorithm", "one with a single exchange", algorithm.name, remedy)
        rule = config.pruning
        if "pruning" in algorithm.reads and rule.target > 0 and rule.accuracy > 0:
            remedy = "Accuracy on the silo's rows would be a release without noise."
            errors.refuse(_WHERE, "accuracy of pruning", "0", rule.accuracy, remedy)

    def plan(self, rows: int, algorithm: Algorithm, config: Config) -> SiloPlan:
        """Plan noise and draws of a silo with this number of rows."""
        self.admit(algorithm, config)
        count = errors.whole(_WHERE, "rows", rows, least=1, most=plans.WORDS)
        tested = count // self.held_out if self.held_out else 0
        if self.evaluations and not tested:
            errors.refuse(_WHERE, "held_out", "at most the number of rows", self.held_out)
        trained = count - tested
        size, epochs = trained, 1
        if "epochs" in algorithm.reads:
            size, epochs = min(config.batch_size or trained, trained), config.epochs
        threshold, draws = plans.threshold(size, trained), epochs * -(-trained // size)
        multiplier = self._multiplier(threshold, draws)
        return SiloPlan(self, trained, tested, threshold, draws, multiplier)

    def _multiplier(self, threshold: int, draws: int) -> Fraction:
        budget = (float(self.epsilon), float(self.delta), float(self.statistics))
        multiplier = gradient_multiplier(*budget, threshold, draws * self.rounds, self.accountant)
        return errors.positive(_WHERE, "noise_multiplier", multiplier)

    @property
    def _whole(self) -> float:
        """1/μ, the multiplier of a single Gaussian mechanism that spends (ε, δ)."""
        return gaussian.noise_multiplier_for(float(self.epsilon), float(self.delta))

    @property
    def statistics_multiplier(self) -> Fraction:
        """Noise multiplier of mean, standard deviation and count of the rows together."""
        return rounded_up(self._whole / math.sqrt(self.statistics))

    @property
    def evaluation_multiplier(self) -> Fraction:
        """Noise multiplier of a confusion matrix, the standard deviation on every count."""
        return rounded_up(self._whole * math.sqrt(self.evaluations))


@dataclass(frozen=True)
class SiloPlan:
    """Sampling, noise and draws of one silo, computed from its number of rows alone."""

    privacy: RecordPrivacy
    trained: int
    """n, the number of rows that are trained on."""
    tested: int
    """Number of rows that are held out."""
    threshold: int
    """A row is sampled if its 32-bit word is below this."""
    draws: int
    """T, the number of gradients in a round."""
    multiplier: Fraction
    """z, the noise multiplier of a sum of gradients."""

    @property
    def probability(self) -> float:
        """q, the sampling probability of a row."""
        return self.sampled(1).probability

    def sampled(self, rounds: int) -> SampledGaussian:
        """Return the plan of the gradients of this many rounds."""
        steps = rounds * self.draws
        return SampledGaussian(self.trained, self.threshold, steps, self.multiplier)

    def event(
        self, rounds: int, *, statistics: bool = False, evaluations: int = 0
    ) -> events.Event | None:
        """Return the event of a part of the plan; None if nothing was released."""
        training = []
        if statistics:
            training.append(self._gaussian(Fraction(1), self.privacy.statistics_multiplier))
        if rounds:
            clip = errors.positive(_WHERE, "clip_norm", self.privacy.clip_norm)
            training.append(self.sampled(rounds).event(self.privacy.unit, clip))
        parts = [_together(training)] if training else []
        if evaluations:
            noise = self._gaussian(Fraction(1), self.privacy.evaluation_multiplier)
            parts.append(events.Repeated(noise, evaluations))
        if len(parts) > 1:
            return events.Parallel(tuple(parts))
        return parts[0] if parts else None

    @property
    def whole(self) -> events.Event:
        """The event of the whole plan."""
        event = self.event(
            self.privacy.rounds,
            statistics=self.privacy.statistics > 0,
            evaluations=self.privacy.evaluations,
        )
        assert event is not None
        return event

    def guarantee(self, event: events.Event) -> Guarantee:
        """Derive the guarantee of an event at the plan's δ."""
        return guarantee_of(event, float(self.privacy.delta))

    def epsilon(self, rounds: int, *, statistics: bool = False, evaluations: int = 0) -> float:
        """Compute ε of a part of the plan."""
        event = self.event(rounds, statistics=statistics, evaluations=evaluations)
        return 0.0 if event is None else _epsilon(event, float(self.privacy.delta))

    def _gaussian(self, sensitivity: Fraction, sigma: Fraction) -> events.Event:
        return events.Gaussian(
            sensitivity, sigma, adjacency=Adjacency.ZERO_OUT, unit=self.privacy.unit
        )


def _together(parts: list[events.Event]) -> events.Event:
    return parts[0] if len(parts) == 1 else events.Composed(tuple(parts))


@lru_cache(maxsize=256)
def _epsilon(event: events.Event, delta: float) -> float:
    return float(getattr(guarantee_of(event, delta), "epsilon", math.inf))
