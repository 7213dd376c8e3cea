r"""An audit of `ClientPrivacy`, as it ships, by canary clients that a coin includes or leaves out.

A canary is a client whose reply is as long as clipping allows, in a direction that no other client
uses: its own weight. A canary that is left out stays silent, and the number of clients, which is
public, is that of the plan. All coins are thrown anew in every run. From the releases of a run, an
attacker names one canary, the one that stands out most, and guesses whether it was included.

Theorem. If a run is (ε, δ)-DP under zero-out neighbours and has m canaries, then a guess is
correct with probability

.. math:: p \le \frac{e^\varepsilon + m\delta}{1 + e^\varepsilon}.

So v correct guesses in n runs prove, with confidence 1 − α,

.. math:: \varepsilon \ge \ln \frac{p_\alpha - m\delta}{1 - p_\alpha}, \qquad
          p_\alpha = \text{Clopper and Pearson's lower bound for } v \text{ of } n.

Proof. Let I be the canary that is named, B the guess, S the coins. I and B are computed from what
was released. So for either value s of canary i's coin, whatever the other coins are,

.. math:: P(I = i, B = s \mid S_i = s) \le e^\varepsilon P(I = i, B = s \mid S_i = 1 - s) + \delta,

averaged over fair coins
:math:`P(I = i, B = S_i) \le e^\varepsilon P(I = i, B \ne S_i) + \delta`, and summed over all
canaries :math:`p \le e^\varepsilon (1 - p) + m\delta`. Given the runs before, the next guess is
correct with probability at most p, since its coins are new: the number of correct guesses is
stochastically dominated by a binomial variable with n and p. (The bound on p cannot be improved:
randomized response that with probability mδ reveals the coin of a random canary attains it.)

Nothing is assumed about the dependence between the canaries of one run, which is why one of them is
named instead of guessing all. More canaries only make the most confident guess more confident. If
all are guessed in one run [SNJ23]_, δ costs 2mδ in confidence instead of mδ in p, and guesses about
unremarkable canaries show little at a small ε.

The score is the log-likelihood ratio for a canary at the clip norm, over rounds with releases
:math:`y_t` of its weight, in units of the clip norm, and with noise multiplier z:

.. math:: s = \sum_t \ln\left(1 - q + q\,e^{(y_t - 1/2) / z^2}\right).

Notes
-----
An audit can only refute. Here the canary is the worst client there can be and the score is optimal,
so the lower bound approaches the claim, slowly: n runs certify at most
:math:`\ln(n / \ln(1/\alpha))`.

References
----------
.. [SNJ23] Steinke, Nasr, Jagielski. Privacy auditing with one (1) training run. NeurIPS 2023.
.. [JUO20] Jagielski, Ullman, Oprea. Auditing differentially private machine learning. NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from tacit.audit.guesses import apart, coins
from tacit.federated import rounds as plain
from tacit.federated.algorithms.registry import Algorithm, Phase, algorithm
from tacit.federated.algorithms.server_updates import Averaged
from tacit.federated.client_level.privacy import ClientPrivacy
from tacit.federated.config import Config
from tacit.federated.coordinator import Coordinator
from tacit.federated.model import Data, Evaluation
from tacit.federated.payload import Layout, Payload, ReplyLimits, Vector
from tacit.federated.rounds import Reply, RunOptions
from tacit.privacy import errors
from tacit.privacy.accounting.plans import WORDS
from tacit.privacy.decimals import above, below
from tacit.privacy.randomness import Randomness, source

_WHERE = "audit_clients"
_LOUD = 1e3
"""Length of a canary's reply before clipping, in clip norms."""
_USUAL = 100
_DEAREST, _LONGEST = 700.0, 256
"""The largest ε of a plan, and the largest number of audited runs within one plan."""


@dataclass(frozen=True)
class ClientAudit:
    """The lower bound on ε that canary clients prove for a plan, next to its claim."""

    epsilon: float
    """The claimed ε, at `delta`, of a run of all planned rounds."""
    delta: float
    certainty: float
    canaries: int
    runs: int
    right: int

    @property
    def certified(self) -> float:
        """The lower bound on ε, which is wrong with probability at most 1 − `certainty`."""
        return one_guess_bound(self.canaries, self.runs, self.right, self.delta, self.certainty)

    @property
    def certifiable(self) -> float:
        """The largest ε that this number of runs can certify."""
        return one_guess_bound(self.canaries, self.runs, self.runs, self.delta, self.certainty)

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted, wrongly with probability at most 1 − `certainty`."""
        return self.certified > self.epsilon

    @property
    def words(self) -> str:
        """One line that states what is proved and what is claimed."""
        return (
            f"{'refuted' if self.refuted else 'not refuted'}: ε ≥ {below(self.certified, 3)} at "
            f"δ = {above(self.delta, 3)} (certainty {100 * self.certainty:.6g} %, {self.right} of "
            f"{self.runs} guesses right, at most {above(self.certifiable, 3)} could be shown); "
            f"claimed: {above(self.epsilon)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        bounds = {"certified": self.certified, "certifiable": self.certifiable}
        return {**asdict(self), **bounds, "refuted": self.refuted, "words": self.words}


def one_guess_bound(
    canaries: int, runs: int, right: int, delta: float, confidence: float = 0.99
) -> float:
    """Compute the lower bound on ε at δ from the number of correct guesses, one per run.

    The theorem is in the docstring of the module.

    Examples
    --------
    >>> round(one_guess_bound(50, 1000, 1000, delta=1e-5), 2)
    5.38
    >>> one_guess_bound(50, 1000, 500, delta=1e-5)
    0.0
    """
    if not 0 <= right <= runs:
        errors.refuse("one_guess_bound", "right", f"from 0 to {runs}", right)
    least = float(betaincinv(right, runs - right + 1, 1 - confidence)) if right else 0.0
    odds = (least - canaries * delta) / (1 - least)
    return math.log(odds) if odds > 1 else 0.0


def audit_clients(
    privacy: ClientPrivacy,
    *,
    canaries: int | None = None,
    runs: int = 1000,
    certainty: float = 0.99,
    rng: Randomness | None = None,
) -> ClientAudit:
    """Run a plan many times over canary clients, guess once per run, and bound ε from below.

    Parameters
    ----------
    privacy : ClientPrivacy
        The guarantee that is audited: its plan, clip norm and adaptation. It is only read. Runs of
        the audit have guarantees of their own, without a ledger.
    canaries : int, optional
        Number of clients that are canaries; the others never reply. By default all clients, but
        at most 100.
    runs : int
        Number of runs of the plan, each with one guess.
    certainty : float
        A true claim is refuted with probability at most 1 − certainty.
    rng : Randomness, optional
        Source of coins, cohorts and noise. The default is the operating system's.

    Notes
    -----
    The runs are stretches of the planned rounds in long runs of FedSGD with the plan's noise, so
    that it is not calibrated a thousand times. Coins are new in every stretch, noise and samples in
    every round; only an adaptive clip norm continues from where it was, as the theorem of
    `ClientPrivacy` allows. Time is proportional to runs × rounds × cohort, about 0.1 ms for each.

    Examples
    --------
    >>> from tacit.privacy.randomness import Seeded
    >>> privacy = ClientPrivacy(20, cohort=20, epsilon=8, delta=1e-5, rounds=1)
    >>> audit = audit_clients(privacy, runs=100, rng=Seeded(0))
    >>> audit.refuted, round(audit.certified, 2)
    (False, 2.67)
    """
    plan = privacy.plan
    runs = errors.whole(_WHERE, "runs", runs, least=1, most=10**7)
    certainty = errors.probability(_WHERE, "certainty", certainty, zero=False)
    count = min(plan.clients, _USUAL) if canaries is None else canaries
    count = errors.whole(_WHERE, "canaries", count, least=1, most=plan.clients)
    claimed, hidden = plan.epsilon(plan.rounds), apart(rng)
    clip_norm = privacy.initial_clip_norm("gradient")
    build = partial(
        ClientPrivacy,
        plan.clients,
        cohort=Fraction(plan.threshold * plan.clients, WORDS),
        epsilon=_DEAREST,
        delta=plan.delta,
        noise_multiplier=float(plan.multiplier),
        clip_norm=clip_norm,
        adaptive=privacy.adaptive,
        rng=source(rng),
    )
    right = sum(
        _right(
            audited,
            coins(stretches * count, hidden).reshape(stretches, count),
            plan.rounds,
            _LOUD * clip_norm,
        )
        for audited, stretches in _long_runs(build, plan.rounds, claimed, runs)
    )
    return ClientAudit(claimed, plan.delta, certainty, count, runs, right)


def _long_runs(
    build: Callable[..., ClientPrivacy], length: int, claimed: float, runs: int
) -> Iterator[tuple[ClientPrivacy, int]]:
    """Yield as few runs as hold this many stretches, each with its number of stretches."""
    most = max(1, min(int(_DEAREST / max(claimed, 1.0)), _LONGEST))
    while runs:
        privacy = build(rounds=min(most, runs) * length)
        stretches = privacy.plan.rounds // length
        if not stretches:
            remedy = "Such a plan gives no protection."
            errors.refuse(_WHERE, "epsilon", f"below {_DEAREST:g}", claimed, remedy)
        yield privacy, stretches
        runs -= stretches


def _right(privacy: ClientPrivacy, inside: npt.NDArray[np.bool_], length: int, loud: float) -> int:
    """Count the correct guesses, one per row of coins and its stretch of rounds."""
    (stretches, count), clients = inside.shape, privacy.plan.clients

    def spoken(number: int, client: int, reply: Reply) -> Reply | None:
        there = client < count and inside[(number - 1) // length, client]
        return reply if there else None

    watched, fedsgd = _Watched(privacy), algorithm("fedsgd")
    options = RunOptions(
        config=fedsgd.config(weighted=False),
        coordinator=watched,
        intercept=spoken,
        limits=ReplyLimits(magnitude=2 * loud),
    )
    places = [Data(np.full((1, 1), place), np.zeros(1, np.int64)) for place in range(clients)]
    plain.run(fedsgd, _Pulled(count, loud), places, stretches * length, options)
    evidence = np.array(watched.evidence).reshape(stretches, length, count).sum(axis=1)
    named, every = np.abs(evidence).argmax(axis=1), np.arange(stretches)
    return int(((evidence[every, named] > 0) == inside[every, named]).sum())


class _Watched(Coordinator):
    """A coordinator that records, round by round, the evidence for each canary in the releases."""

    def __init__(self, privacy: ClientPrivacy) -> None:
        self._privacy, self.evidence = privacy, list[Vector]()

    def admit(self, algorithm: Algorithm, config: Config, clients: int) -> None:
        self._privacy.admit(algorithm, config, clients)

    def choose(self, number: int, clients: int) -> list[int]:
        return self._privacy.choose(number, clients)

    def gather(
        self, number: int, phase: Phase, taken: Mapping[int, Payload], layout: Layout
    ) -> Averaged:
        plan, (unit,) = self._privacy.plan, self._privacy.clip_norms
        norm = self._privacy.clip_norms[unit]  # a release of the round before
        released = self._privacy.gather(number, phase, taken, layout)
        shift = -released.parts["gradient"] * (plan.cohort / norm)
        ratio = (shift - 0.5) / float(self._privacy.update_multiplier) ** 2
        with np.errstate(divide="ignore"):  # if every client is asked
            missed = np.log1p(-plan.probability)
        self.evidence.append(np.logaddexp(missed, np.log(plan.probability) + ratio))
        return released


class _Pulled:
    """A model with one weight per canary, whose gradient raises that weight and no other."""

    dtype = np.dtype(np.float32)

    def __init__(self, canaries: int, strength: float) -> None:
        self.layout = Layout((("weights", (canaries,)),))
        self._strength = strength

    def serving(self, data: Data, rng: np.random.Generator) -> AbstractContextManager[_Pulled]:
        """Return itself: it keeps no state, and copies would take most of the time."""
        return nullcontext(self)

    def start(self) -> Vector:
        return np.zeros(self.layout.size)

    def gradient(self, parameters: Vector, rows: Any, labels: Any) -> Vector:
        gradient, place = self.start(), int(rows[0, 0])
        if place < len(gradient):
            gradient[place] = -self._strength
        return gradient

    def evaluate(self, parameters: Vector, rows: Any, labels: Any) -> Evaluation:
        return Evaluation(0.0, 0.0)
