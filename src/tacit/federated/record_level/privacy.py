r"""A guarantee for single records in a silo: how much noise, how often, settled beforehand.

A silo with n rows that it trains on answers in every round with what T noisy gradients come to,
each on a Poisson sample of its rows with probability :math:`q = k / 2^{32}`. Beside them it may
release a mean and a deviation of its rows, once, and noisy confusion matrices of rows that it never
trains on.

Theorem. All that a silo releases is (ε, δ)-DP towards its records, under zero-out neighbours: one
record, trained on or held out, is blanked and keeps its place. The number of rows is public.

Proof. (1) A round is T Gaussians of multiplier z on Poisson samples of the trained rows: each is a
draw of `private_training.gradients` at weights that depend on earlier releases alone, since the
client function gets placeholders in the place of rows. (2) The statistics are Gaussians on the
trained rows, with :math:`\sum_i z_i^{-2} = s \mu^2`, where :math:`\mu` is that of the Gaussian
mechanism which spends (ε, δ) [DRS22]_, and s the share. (3) z is such that R rounds and the
statistics, composed by their privacy loss distribution, spend (ε, δ) at most. (4) A row is trained
on or held out by its place, so a record is in one of both parts. A held-out row changes one count
of a confusion matrix by one (`held_out`); E matrices with noise of multiplier
:math:`\sqrt E / \mu` spend (ε, δ) by themselves. A record's loss is that of its own part, also
where what is asked of one part was chosen by looking at releases of the other: noise and numbers of
draws are fixed beforehand.

Notes
-----
Places are those in the silo's file. A row without finite numbers, or whose label is no class, is
blank: it counts nowhere, and its place stays. Add-remove is not stated: sampling rate, steps and
weight come from the exact number of rows, and with a row more or less other rows have other places.

References
----------
.. [DRS22] Dong, Roth, Su. Gaussian differential privacy. JRSS B 2022.
.. [KZP21] Kaissis et al. End-to-end privacy preserving deep learning on multi-institutional medical
   imaging. Nature Machine Intelligence 2021 (PriMIA).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tacit.federated.algorithms.registry import Algorithm
from tacit.federated.config import Config
from tacit.federated.record_level.normalisation import Bounds, bounds_of
from tacit.privacy import errors, events
from tacit.privacy.accounting import calibration, gaussian, privacy_loss
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit

_WORDS = 2**32
_SCOPE: Any = {"adjacency": Adjacency.ZERO_OUT, "unit": Unit.RECORD}
_WHERE = "RecordPrivacy"


@dataclass(frozen=True)
class RecordPrivacy:
    r"""What a silo may release of its records, before it looks at them.

    Parameters
    ----------
    epsilon, delta : float
        What everything together may cost each record.
    rounds : int
        How many the noise is calibrated to. A silo answers in none beyond.
    clip_norm : float
        C, to which every example's gradient is clipped.
    statistics : float
        Share of the budget, in [0, 1), for mean and deviation of the rows; 0: none.
    bounds : (float, float)
        Public bounds of the rows' numbers, for the statistics.
    pooled : bool
        One mean and deviation for all columns, as for images; else one for each.
    held_out : int
        With k ≥ 2 every k-th row is never trained on, only evaluated; 0: none is.
    evaluations : int
        How many noisy confusion matrices of held-out rows there may be.
    accountant : {"pld", "rdp"}
        What the noise is calibrated with.
    unit : Unit or str
        What a row is.

    Examples
    --------
    >>> from tacit.federated.algorithms.registry import algorithm
    >>> fedavg = algorithm("fedavg")
    >>> privacy = RecordPrivacy(epsilon=4, delta=1e-4, rounds=5, held_out=5, evaluations=1)
    >>> plan = privacy.plan(1000, fedavg, fedavg.config(batch_size=100, epochs=1))
    >>> plan.trained, plan.tested, plan.draws, plan.epsilon(5, evaluations=1) <= 4
    (800, 200, 8, True)
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
            remedy = "Every row would be held out: nothing is left to train on."
            errors.refuse(_WHERE, "held_out", "0, or at least 2", self.held_out, remedy)
        if self.evaluations and not self.held_out:
            remedy = "Rows that were trained on would be paid for twice."
            errors.refuse(_WHERE, "held_out", "given for evaluations", self.held_out, remedy)
        object.__setattr__(self, "bounds", bounds)
        unit = Unit(errors.choice(_WHERE, "unit", self.unit, list(Unit)))
        object.__setattr__(self, "unit", unit)

    def admit(self, algorithm: Algorithm, config: Config) -> None:
        """Refuse what gains nothing, or cannot hold, inside a silo."""
        if len(algorithm.phases) > 1:
            remedy = (
                "It takes differences of two gradients of one row: each has noise of its own "
                "here, so nothing cancels."
            )
            errors.refuse(_WHERE, "algorithm", "one of a single exchange", algorithm.name, remedy)
        rule = config.pruning
        if "pruning" in algorithm.reads and rule.target > 0 and rule.accuracy > 0:
            remedy = "How right a model is on the silo's rows would be a release without noise."
            errors.refuse(_WHERE, "accuracy of pruning", "0", rule.accuracy, remedy)

    def plan(self, rows: int, algorithm: Algorithm, config: Config) -> SiloPlan:
        """Noise and draws of a silo with so many rows."""
        self.admit(algorithm, config)
        count = errors.whole(_WHERE, "rows", rows, least=1, most=_WORDS)
        tested = count // self.held_out if self.held_out else 0
        if self.evaluations and not tested:
            errors.refuse(_WHERE, "held_out", "at most the number of rows", self.held_out)
        trained = count - tested
        size, epochs = trained, 1
        if "epochs" in algorithm.reads:
            size, epochs = min(config.batch_size or trained, trained), config.epochs
        return SiloPlan(
            privacy=self,
            trained=trained,
            tested=tested,
            # Rounded down: the event states this very probability.
            threshold=size * _WORDS // trained,
            draws=epochs * -(-trained // size),
            multiplier=self._multiplier(size * _WORDS // trained, epochs * -(-trained // size)),
        )

    def _multiplier(self, threshold: int, draws: int) -> Fraction:
        given = (float(self.epsilon), float(self.delta), float(self.statistics))
        found = _calibrated(*given, threshold, draws * self.rounds, self.accountant)
        return errors.positive(_WHERE, "noise_multiplier", found)

    @property
    def _whole(self) -> float:
        """The multiplier of the one Gaussian mechanism that spends (ε, δ): 1/μ."""
        return gaussian.noise_multiplier_for(float(self.epsilon), float(self.delta))

    @property
    def statistics_multiplier(self) -> Fraction:
        """Of mean, deviation and count of the rows together."""
        return _rounded_up(self._whole / math.sqrt(self.statistics))

    @property
    def evaluation_multiplier(self) -> Fraction:
        """Of each confusion matrix: deviation of the noise on every count."""
        return _rounded_up(self._whole * math.sqrt(self.evaluations))


@dataclass(frozen=True)
class SiloPlan:
    """Sampling, noise and draws of one silo; of its rows only their number enters."""

    privacy: RecordPrivacy
    trained: int
    """Rows that are trained on, n."""
    tested: int
    """Rows that are held out."""
    threshold: int
    """A row is sampled where its 32-bit word is below this."""
    draws: int
    """Gradients of a round, T."""
    multiplier: Fraction
    """z, deviation of the noise on a sum of gradients over the clip norm."""

    @property
    def probability(self) -> float:
        """q, the chance of a row to be in a sample."""
        return self.threshold / _WORDS

    def event(
        self, rounds: int, *, statistics: bool = False, evaluations: int = 0
    ) -> events.Event | None:
        """What so much of the plan is; None for nothing."""
        training = []
        if statistics:
            training.append(self._gaussian(Fraction(1), self.privacy.statistics_multiplier))
        if rounds:
            clip = errors.positive(_WHERE, "clip_norm", self.privacy.clip_norm)
            noise = self._gaussian(clip, self.multiplier * clip)
            sampled = events.PoissonSampled(self.probability, noise)
            training.append(events.Repeated(sampled, rounds * self.draws))
        parts = [_together(training)] if training else []
        if evaluations:
            noise = self._gaussian(Fraction(1), self.privacy.evaluation_multiplier)
            parts.append(events.Repeated(noise, evaluations))
        if len(parts) > 1:
            return events.Parallel(tuple(parts))
        return parts[0] if parts else None

    @property
    def whole(self) -> events.Event:
        """All that may run."""
        found = self.event(
            self.privacy.rounds,
            statistics=self.privacy.statistics > 0,
            evaluations=self.privacy.evaluations,
        )
        assert found is not None
        return found

    def guarantee(self, event: events.Event) -> Guarantee:
        """Of so much of it, at the plan's δ."""
        return guarantee_of(event, float(self.privacy.delta))

    def epsilon(self, rounds: int, *, statistics: bool = False, evaluations: int = 0) -> float:
        """What so much of it costs."""
        event = self.event(rounds, statistics=statistics, evaluations=evaluations)
        return 0.0 if event is None else _epsilon(event, float(self.privacy.delta))

    def _gaussian(self, sensitivity: Fraction, sigma: Fraction) -> events.Event:
        return events.Gaussian(sensitivity, sigma, **{**_SCOPE, "unit": self.privacy.unit})


def _together(parts: list[events.Event]) -> events.Event:
    return parts[0] if len(parts) == 1 else events.Composed(tuple(parts))


@lru_cache(maxsize=256)
def _epsilon(event: events.Event, delta: float) -> float:
    return float(getattr(guarantee_of(event, delta), "epsilon", math.inf))


@lru_cache(maxsize=256)
def _calibrated(
    epsilon: float, delta: float, share: float, threshold: int, steps: int, accountant: str
) -> float:
    """Noise of the gradients beside the statistics. Silos of one size ask for the same.

    A node of a deployment is a new process for every message, so this has to be quick: the privacy
    loss is looked at a few times, near where Rényi curves, which are, say that the noise is.
    """
    beside = None
    if share:
        z = _rounded_up(gaussian.noise_multiplier_for(epsilon, delta) / math.sqrt(share))
        beside = events.Gaussian(Fraction(1), z, **_SCOPE)
    q = threshold / _WORDS

    def found(by: str) -> float:
        return calibration.noise_multiplier_for(
            epsilon, delta, sampling_probability=q, steps=steps, accountant=by, beside=beside
        )

    def excess(log_multiplier: float, spent: Callable[..., float]) -> float:
        noise = events.Gaussian(Fraction(1), Fraction(math.exp(log_multiplier)), **_SCOPE)
        run = events.Repeated(events.PoissonSampled(q, noise), steps)
        event = run if beside is None else events.Composed((beside, run))
        return math.log(max(spent(event, delta), 1e-12) / epsilon)

    if accountant == "rdp" or (q == 1 and beside is None):
        return found(accountant)
    start = math.log(found("rdp"))
    slope = excess(start + 0.05, privacy_loss.epsilon_rdp) / 0.05
    near = _secant(lambda at: excess(at, privacy_loss.epsilon_pld_or_rdp), start, slope)
    return found(accountant) if near is None else math.exp(near)


def _secant(excess: Callable[[float], float], start: float, slope: float) -> float | None:
    """Where a falling function is in [−5e-4, 0]; None where that takes too many looks."""
    now, value = start, excess(start)
    for _ in range(6):
        if -5e-4 <= value <= 0:
            return now
        then = now - (value + 2e-4) / min(max(slope, -6.0), -0.2)
        before, value = value, excess(then)
        slope, now = (value - before) / (then - now), then
    return None


def _rounded_up(multiplier: float) -> Fraction:
    """A short fraction, no smaller: noise that a certificate can spell out."""
    return Fraction(math.ceil(multiplier * 2**20), 2**20)
