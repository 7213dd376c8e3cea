r"""The membership game: coins choose the members, a model is fitted, attacks guess the coins.

A guarantee for each record is a guarantee for each coin, so right guesses prove a lower bound on ε
(`tacit.audit.guesses`). There are two games.

- In *pairs*, a coin decides which of two records is a member and which is left out. The number of
  records is fixed; turning one coin replaces one record, so the bound is about replace-one
  neighbours. An add-remove or zero-out claim (ε, δ) is restated as (2ε, (1 + e^ε) δ), by way of the
  data without either record, or with a blank in their place.
- With *coins*, each record is a member or not by itself; turning one coin adds or removes a record.
  The number of records varies, so the bound applies only to claims that hide it, which are
  add-remove. A claim that takes it as public (zero-out or replace-one) must be tested in pairs.

Notes
-----
Coins are fair and independent, from the operating system by default. Guesses are made from the
fitted model, the records, and shadows with other coins: only the model depends on the coins. So the
theorem holds for any attack. Several attacks share the risk (Bonferroni).

A game can only refute, and ordinary records are not a worst case: a bound far below the claim only
says that these attacks on these records found no more. All records given are candidates: use
synthetic or public ones, or keep the report in-house.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.audit import guesses as guessing
from tacit.audit.guesses import Proof
from tacit.audit.membership import AttackReport, Setting, described
from tacit.audit.shadows import (
    Answers,
    Confidences,
    Fit,
    Losses,
    classifier_scores,
    likelihood_scores,
)
from tacit.privacy import errors
from tacit.privacy.guarantees import Adjacency, Guarantee
from tacit.privacy.randomness import Randomness

Reals = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Progress = Callable[[int, int], None]

ATTACKS = {
    "threshold": "loss threshold",
    "shadows": "shadow models",
    "lira": "likelihood ratio",
    "lira-offline": "likelihood ratio, offline",
}
GAMES = ("pairs", "coins")
_FEWEST = 40


@dataclass(frozen=True)
class Played:
    """The results of all attacks in one game."""

    reports: tuple[AttackReport, ...]
    certainty: float
    """Certainty of all reports together."""

    @property
    def best(self) -> AttackReport:
        """Return the report of the attack that proves the most."""
        return max(self.reports, key=lambda report: (report.epsilon, report.advantage.value))

    @property
    def refuted(self) -> bool:
        """Return whether some attack refutes the claim."""
        return any(report.refuted for report in self.reports)

    @property
    def words(self) -> str:
        """Return one line about the attack that proves the most."""
        return f"{self.best.attack}: {self.best.words}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "certainty": self.certainty,
            "refuted": self.refuted,
            "words": self.words,
            "reports": [report.to_dict() for report in self.reports],
        }


def play(
    fit: Fit,
    losses: Losses,
    rows: Any,
    labels: Any,
    *,
    confidences: Confidences | None = None,
    attacks: Sequence[str] = ("threshold",),
    shadows: int = 16,
    game: str = "pairs",
    always: tuple[Any, Any] | None = None,
    claim: Guarantee | None = None,
    delta: float | None = None,
    guesses: int | None = None,
    confidence: float = 0.95,
    certainty: float = 0.99,
    rng: Randomness | None = None,
    progress: Progress | None = None,
) -> Played:
    """Fit one model to the members that coins choose, attack it, and count the right guesses.

    Parameters
    ----------
    fit : callable
        `fit(rows, labels)` gives a model. It must draw fresh noise at every call.
    losses : callable
        `losses(model, rows, labels)` gives one number per record.
    rows, labels : arrays of shape (n, …) and (n,)
        The candidates. In pairs, the last of an odd number is left out.
    confidences : callable, optional
        `confidences(model, rows)` gives probabilities, one column per class in the order of
        `np.unique(labels)`: for "shadows" and for the logits of "lira". Without it they use the
        loss.
    attacks : sequence of {"threshold", "shadows", "lira", "lira-offline"}
    shadows : int
        Even number of models, fitted with other coins for the attacks that need them.
    game : {"pairs", "coins"}
    always : (rows, labels), optional
        Records that are always members, and never guessed.
    claim : Guarantee, optional
        The guarantee of `fit` for each record.
    delta, confidence, certainty
        As in `membership.loss_threshold`; the certainty is that of all attacks together.
    guesses : int, optional
        Number of coins to guess, fixed beforehand. By default a few numbers share the risk.
    rng : Randomness, optional
        Randomness of coins and pairs; by default the operating system's.
    progress : callable, optional
        Called after every fit with the number done and the total number.
    """
    wanted = [errors.choice("play", "attacks", one, list(ATTACKS)) for one in attacks]
    errors.whole("play", "attacks", len(wanted), least=1)
    count = _shadows(shadows) if set(wanted) - {"threshold"} else 0
    table = _Table.of(rows, labels, always, game, guessing.apart(rng))
    certain = 1 - (1 - certainty) / len(wanted)
    setting = Setting.of("play", table.adjacency, claim, delta, confidence, certain)
    query = _Querying(fit, losses, confidences, table, progress, 1 + count)
    inside = table.draw()
    answers = query(inside)
    others = [half for _ in range(count // 2) for half in _twins(table.draw())]
    shadow_answers = [query(one) for one in others]
    reports = []
    for name in wanted:
        scores = _scores(name, answers, table.labels, shadow_answers, np.array(others))
        proof = table.proof(inside, scores, guesses, setting)
        sides = scores[inside], scores[~inside]
        reports.append(described(ATTACKS[name], *sides, setting, proof))
    return Played(tuple(reports), certainty)


def _shadows(count: int) -> int:
    count = errors.whole("play", "shadows", count, least=2, most=10**6)
    if count % 2:
        errors.refuse("play", "shadows", "even", count)
    return count


def _twins(inside: Booleans) -> tuple[Booleans, Booleans]:
    """Return the members, and the non-members: in pairs, both have the same number."""
    return inside, ~inside


def _scores(
    name: str, answers: Answers, labels: Any, shadow_answers: list[Answers], inside: Booleans
) -> Reals:
    """Return an attack's scores, larger where a record seems to be a member."""
    if name == "threshold":
        return -answers.losses
    if name == "shadows":
        return classifier_scores(answers, labels, shadow_answers, inside)
    evidence = np.array([one.evidence(labels) for one in shadow_answers])
    logits = answers.evidence(labels)
    return likelihood_scores(logits, evidence, inside, online=name == "lira")


@dataclass(frozen=True)
class _Table:
    """The candidates in random order; in pairs, the two halves are matched."""

    rows: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    always: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None
    paired: bool
    stream: Randomness

    @classmethod
    def of(
        cls, rows: Any, labels: Any, always: tuple[Any, Any] | None, game: str, stream: Randomness
    ) -> _Table:
        paired = errors.choice("play", "game", game, GAMES) == "pairs"
        table, truth = np.asarray(rows), np.asarray(labels)
        if len(table) != len(truth):
            errors.refuse("play", "labels", f"one per row, {len(table)}", len(truth))
        errors.whole("play", "candidates", len(table), least=_FEWEST)
        kept = len(table) - (len(table) % 2 if paired else 0)
        # Shuffled, so that the original order tells nothing about pairs or ties.
        order = np.argsort(stream.words(len(table)), kind="stable")[:kept]
        fixed = None if always is None else (np.asarray(always[0]), np.asarray(always[1]))
        return cls(table[order], truth[order], fixed, paired, stream)

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.REPLACE_ONE if self.paired else Adjacency.ADD_REMOVE

    def draw(self) -> Booleans:
        """Draw the members, by fresh coins."""
        count = len(self.labels)
        if not self.paired:
            return guessing.coins(count, self.stream)
        first = guessing.coins(count // 2, self.stream)
        return np.concatenate([first, ~first])

    def training(self, inside: Booleans) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return rows and labels of the members."""
        chosen = np.flatnonzero(inside)
        if self.paired:
            # A pair keeps its place, whichever record is the member: a turned coin replaces one
            # row, and no other row moves.
            half = len(inside) // 2
            chosen = np.arange(half) + half * inside[half:]
        rows, labels = self.rows[chosen], self.labels[chosen]
        if self.always is None:
            return rows, labels
        return np.concatenate([rows, self.always[0]]), np.concatenate([labels, self.always[1]])

    def proof(
        self, inside: Booleans, scores: Reals, guesses: int | None, setting: Setting
    ) -> Proof:
        """Return what the scores prove about the fit with these coins."""
        known: dict[str, Any] = {"delta": setting.delta, "certainty": setting.certainty}
        known["guesses"] = guesses
        if not self.paired:
            return guessing.from_singles(inside, scores, rng=self.stream, **known)
        half = len(scores) // 2
        return guessing.from_pairs(inside[:half], scores[:half] - scores[half:], **known)


@dataclass
class _Querying:
    """Fits models, and queries them about every candidate."""

    fit: Fit
    losses: Losses
    confidences: Confidences | None
    table: _Table
    progress: Progress | None
    fits: int
    done: int = 0

    def __call__(self, inside: Booleans) -> Answers:
        model = self.fit(*self.table.training(inside))
        rows, labels = self.table.rows, self.table.labels
        answers = Answers.of(model, rows, labels, self.losses, self.confidences)
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.fits)
        return answers
