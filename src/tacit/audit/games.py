r"""The membership game: coins decide who is in, one model is fitted, attacks guess the coins.

What a guarantee says about each record it says about each coin, so right guesses prove a lower
bound on ε (`tacit.audit.guesses`). There are two games.

- In *pairs* a coin says which of two records is in and which is left out. The number of records
  stays; turning one coin replaces one record: the bound is about replace-one neighbours. An
  add-remove or zero-out claim (ε, δ) is restated as (2ε, (1 + e^ε) δ), by way of the data without
  either, or with a blank in their place.
- With *coins* each record is in or out by itself; turning one adds or removes a record. The number
  of records varies, so the bound speaks only to claims that cover it, which are add-remove. A
  claim that takes it as public (zero-out or replace-one) must be tested in pairs.

Notes
-----
Coins are fair and independent, from the operating system unless given. Guesses are made from the
fitted model, the records and shadows of other coins: nothing but the model knows the coins. So the
theorem holds, whatever the attack. Several attacks share the risk (Bonferroni).

A game can only refute, and ordinary records are no worst case: a bound far below the claim says
that these attacks on these records found no more. Records are candidates by being there: play with
made-up or public ones, or keep the report in the house.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.audit import guesses as guessing
from tacit.audit.guesses import Proof
from tacit.audit.membership import Report, Setting, described
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
    """What each attack reached in one game."""

    reports: tuple[Report, ...]
    certainty: float
    """Of all of them together."""

    @property
    def best(self) -> Report:
        """Of the attack that proves most."""
        return max(self.reports, key=lambda report: (report.epsilon, report.advantage.value))

    @property
    def refuted(self) -> bool:
        """Whether some attack refutes the claim."""
        return any(report.refuted for report in self.reports)

    @property
    def words(self) -> str:
        """One line, about the attack that proves most."""
        return f"{self.best.attack}: {self.best.words}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
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
    """Fit one model to those whom coins put in, attack it, and count what was guessed right.

    Parameters
    ----------
    fit : callable
        `fit(rows, labels)` gives a model. It must draw fresh noise at every call.
    losses : callable
        `losses(model, rows, labels)` gives a number for each record.
    rows, labels : arrays of shape (n, …) and (n,)
        The candidates. In pairs the last of an odd number is left out.
    confidences : callable, optional
        `confidences(model, rows)` gives probabilities, one column a class in the order of
        `np.unique(labels)`: for "shadows" and for the logits of "lira". Without it they go by the
        loss.
    attacks : sequence of {"threshold", "shadows", "lira", "lira-offline"}
    shadows : int
        Models fitted for the attacks that need them, an even number, to other coins.
    game : {"pairs", "coins"}
    always : (rows, labels), optional
        Records that are always in, and never guessed.
    claim : Guarantee, optional
        What `fit` promises towards each record.
    delta, confidence, certainty
        As in `membership.loss_threshold`; all attacks together have this certainty.
    guesses : int, optional
        How many coins are guessed, fixed beforehand. Without it a few numbers share the risk.
    rng : Randomness, optional
        Of coins and pairs; the operating system's without.
    progress : callable, optional
        Told after every fit how many are done, and of how many.
    """
    wanted = [errors.choice("play", "attacks", one, list(ATTACKS)) for one in attacks]
    errors.whole("play", "attacks", len(wanted), least=1)
    count = _shadows(shadows) if set(wanted) - {"threshold"} else 0
    table = _Table.of(rows, labels, always, game, guessing.apart(rng))
    certain = 1 - (1 - certainty) / len(wanted)
    setting = Setting.of("play", table.adjacency, claim, delta, confidence, certain)
    ask = _Ask(fit, losses, confidences, table, progress, 1 + count)
    inside = table.draw()
    answers = ask(inside)
    others = [half for _ in range(count // 2) for half in _twins(table.draw())]
    shown = [ask(one) for one in others]
    reports = []
    for name in wanted:
        scores = _scores(name, answers, table.labels, shown, np.array(others))
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
    """Those who are in, and those who are not: in pairs both are as many."""
    return inside, ~inside


def _scores(name: str, said: Answers, labels: Any, shown: list[Answers], inside: Booleans) -> Reals:
    """An attack's scores, larger where a record seems to be in."""
    if name == "threshold":
        return -said.losses
    if name == "shadows":
        return classifier_scores(said, labels, shown, inside)
    evidence = np.array([one.evidence(labels) for one in shown])
    logits = said.evidence(labels)
    return likelihood_scores(logits, evidence, inside, online=name == "lira")


@dataclass(frozen=True)
class _Table:
    """The candidates, in an order of their own: in pairs the two halves face each other."""

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
            errors.refuse("play", "labels", f"as many as rows, {len(table)}", len(truth))
        errors.whole("play", "candidates", len(table), least=_FEWEST)
        kept = len(table) - (len(table) % 2 if paired else 0)
        # Mixed, so that no order in which they came tells pairs or ties apart.
        order = np.argsort(stream.words(len(table)), kind="stable")[:kept]
        fixed = None if always is None else (np.asarray(always[0]), np.asarray(always[1]))
        return cls(table[order], truth[order], fixed, paired, stream)

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.REPLACE_ONE if self.paired else Adjacency.ADD_REMOVE

    def draw(self) -> Booleans:
        """Who is in, by fresh coins."""
        count = len(self.labels)
        if not self.paired:
            return guessing.coins(count, self.stream)
        first = guessing.coins(count // 2, self.stream)
        return np.concatenate([first, ~first])

    def training(self, inside: Booleans) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Rows and labels of those who are in."""
        chosen = np.flatnonzero(inside)
        if self.paired:
            # A pair keeps its place, whoever of it is in: a turned coin replaces one row, and no
            # other row moves.
            half = len(inside) // 2
            chosen = np.arange(half) + half * inside[half:]
        rows, labels = self.rows[chosen], self.labels[chosen]
        if self.always is None:
            return rows, labels
        return np.concatenate([rows, self.always[0]]), np.concatenate([labels, self.always[1]])

    def proof(
        self, inside: Booleans, scores: Reals, guesses: int | None, setting: Setting
    ) -> Proof:
        """What the scores prove about the fit that these coins went into."""
        known: dict[str, Any] = {"delta": setting.delta, "certainty": setting.certainty}
        known["guesses"] = guesses
        if not self.paired:
            return guessing.from_singles(inside, scores, rng=self.stream, **known)
        half = len(scores) // 2
        return guessing.from_pairs(inside[:half], scores[:half] - scores[half:], **known)


@dataclass
class _Ask:
    """Fits models, and asks them about every candidate."""

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
