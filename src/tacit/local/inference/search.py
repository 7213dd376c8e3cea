r"""Private search: several ways to collect and learn, compared by votes within one person's ε.

Every report and every vote costs ε: a candidate with another mechanism needs its own reports, and
votes on m candidates cost m times as much. So either each person is assigned to one
candidate, at random, and spends ε on it ("parallel"), or everybody answers for every candidate and
spends ε/m on each ("sequential"). Voters who are kept for the winner spend ε on it.

.. math:: \varepsilon_{\text{person}} = \max(\varepsilon_{\text{candidate}}), \qquad
          \varepsilon_{\text{person}} = \textstyle\sum_m \varepsilon/m
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data import labels
from tacit.local.inference.found import Found, Standing
from tacit.local.inference.losses import limit_in_range
from tacit.local.inference.selection import (
    FRESH,
    Precision,
    Selection,
    assign,
    part_of,
    precision,
    select,
)
from tacit.local.inference.validation import Estimate, whole_estimate
from tacit.local.inference.votes import Ballot, Votes, cast
from tacit.local.inhouse import together
from tacit.local.reports import REFUSED, Reports
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger, pay
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Unit
from tacit.privacy.randomness import Randomness, source

Progress = Callable[[str, int, int], None]
"""Called with a stage (fit, report, learn, vote), the number of steps done, and their total."""

ASSUMPTIONS = (
    "Nobody both reported and voted.",
    "Who answered for which candidate was drawn at random, without looking at anybody's data.",
)
HANDED_OUT = (
    "What the candidates carry of in-house rows: they were handed to those who reported and voted.",
)


@dataclass(frozen=True)
class Candidate:
    """A way to collect and learn.

    Parameters
    ----------
    name : str
        Its name in results.
    mechanism
        A local mechanism, unfitted if in-house rows are given to `search`. Candidates with the same
        object share its reports.
    learner
        An unfitted classifier or regressor of reports; by default `NoiseAwareClassifier()`, or
        `NoiseAwareRegressor()` for numeric outcomes.
    """

    name: str
    mechanism: Any
    learner: Any = None


@dataclass(frozen=True, repr=False)
class _People:
    """Rows and labels of reporters or voters, in memory."""

    rows: Any
    labels: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, places: npt.NDArray[np.int64]) -> _People:
        return _People(_take(self.rows, places), self.labels[places])


@dataclass(frozen=True)
class _Budget:
    """The cost of one answer, and the events that run for it."""

    epsilon: Fraction
    composition: str
    unit: Unit
    limit: float | None = None

    def share(self, parts: int) -> Fraction:
        return part_of(self.epsilon, parts) if self.composition == "sequential" else self.epsilon

    def ballot(self, parts: int) -> Ballot:
        return Ballot(epsilon=self.share(parts), limit=self.limit, unit=self.unit)

    def event(self, mechanisms: Sequence[Any], plan: Precision) -> events.Event:
        """Compose the events that will run on reporters and voters."""
        count, sequential = plan.candidates, self.composition == "sequential"
        reporting = tuple(mechanism.channel(True).event for mechanism in mechanisms)
        if sequential and len(reporting) > 1:
            reporting = (events.Composed(reporting),)
        voting: events.Event = self.ballot(count).event
        if sequential and count > 1:
            voting = events.Repeated(voting, count)
        every = [*reporting, *([voting] if count > 1 else [])]
        every += [self.ballot(1).event] if plan.fresh else []
        # Equal events of different people count once: people share no data.
        distinct = tuple(dict.fromkeys(every))
        return distinct[0] if len(distinct) == 1 else events.Parallel(distinct)


def search(
    candidates: Sequence[Candidate],
    *,
    people: tuple[Any, Any],
    voters: tuple[Any, Any],
    epsilon: float | Fraction,
    inhouse: Any = None,
    fitting: Mapping[str, Any] | None = None,
    composition: str = "parallel",
    confirm: str = "fresh",
    confirm_share: float | None = None,
    confidence: float = 0.95,
    within: float | None = None,
    limit: float | None = None,
    unit: Unit | str = Unit.PERSON,
    ledger: Ledger | None = None,
    account: str | None = None,
    key: str | None = None,
    rng: Randomness | None = None,
    progress: Progress | None = None,
) -> Found:
    """Fit every candidate in-house, collect, learn, let people vote, and choose the best.

    Parameters
    ----------
    candidates : sequence of Candidate
        Ties go to the first.
    people, voters : (rows, labels or outcomes)
        Those who report, and others who vote.
    epsilon : float
        The total cost for one person, as reporter or as voter.
    inhouse, fitting
        Rows that the mechanisms are fitted on, and keywords of their `fit`. Without rows, the
        mechanisms must be fitted already.
    composition : {"parallel", "sequential"}
        Each person answers for one candidate with ε, or for each of m with ε/m.
    confirm : {"fresh", "simultaneous"}
        The winner's interval is that of voters kept for it, or holds for all candidates at once.
    confirm_share, confidence, within
        See `tacit.inference.selection.precision`, which is called first. For regressors, `within`
        is in units of `limit`.
    limit : float, optional
        For regressors: absolute errors beyond this count as this; by default the distance between
        the bounds of the outcome.
    unit : Unit
        The unit of a report and of a vote; mechanisms must have the same.
    ledger, account, key
        Everything that will run is charged at once before any release; if refused, nothing runs.
    rng
        For tests; what a seeded generator releases is marked.
    progress : callable, optional
        See `Progress`.

    Notes
    -----
    ε-DP towards each reporter and each voter, for any two rows and labels. Learning, choosing and
    estimating are post-processing. Towards the in-house rows every candidate costs what its fit
    costs, also those that lose.
    """
    listed, mechanisms, owner = _listed(candidates)
    total = errors.epsilon_in_range("search", epsilon)
    plan = precision(
        len(voters[1]),
        total,
        len(listed),
        composition=composition,
        confirm=confirm,
        confirm_share=confirm_share,
        confidence=confidence,
        within=within,
    )
    settled = Unit.of("search", unit)
    budget = _Budget(total, composition, settled, _limit(mechanisms, limit))
    say, stream = progress or _silent, source(rng)
    fitted = _fit(mechanisms, inhouse, fitting or {}, budget, say)
    reporting, voting = (_People(rows, np.asarray(given)) for rows, given in (people, voters))
    _must_fit(fitted, reporting, voting)
    delta = _delta(fitted, composition)
    taught = bool(_taught([one.learner for one in listed]))
    certificate = _certify(budget.event(fitted, plan), delta, total, fitted, taught, stream)
    pay("search", ledger, account, certificate.event, key=key, delta=delta)

    reports = _report(fitted, reporting, composition, stream, say)
    models = _learn(listed, [reports[place] for place in owner], say)
    chosen, estimate = _vote(models, voting, budget, plan, stream, say)
    best = chosen.winner
    return Found(
        winner=listed[best].name,
        estimate=estimate,
        candidates=_standings(
            listed, [len(reports[place]) for place in owner], chosen, budget.limit
        ),
        composition=composition,
        confirm=confirm,
        precision=plan,
        certificate=certificate,
        inhouse_=together([one.inhouse_ for one in (*fitted, *_taught(models))]),
        mechanism=fitted[owner[best]],
        reports=reports[owner[best]],
        model=models[best],
        models=tuple(models),
        limit=budget.limit,
    )


def _taught(models: Sequence[Any]) -> list[Any]:
    """Select classifiers that read in-house rows themselves; their codebook then counts twice."""
    return [model for model in models if getattr(model, "inhouse", None) is not None]


def _listed(
    candidates: Sequence[Candidate],
) -> tuple[tuple[Candidate, ...], list[Any], list[int]]:
    """Return the candidates, their distinct mechanisms, and the index of each one's."""
    listed = tuple(candidates)
    if not listed or len({one.name for one in listed}) != len(listed):
        named = [one.name for one in listed]
        errors.refuse("search", "candidates", "at least one, with distinct names", named)
    mechanisms: list[Any] = []
    owner = []
    for one in listed:
        places = [i for i, known in enumerate(mechanisms) if known is one.mechanism]
        if not places:
            places = [len(mechanisms)]
            mechanisms.append(one.mechanism)
        owner.append(places[0])
    return listed, mechanisms, owner


def _fit(
    mechanisms: list[Any],
    inhouse: Any,
    fitting: Mapping[str, Any],
    budget: _Budget,
    say: Progress,
) -> list[Any]:
    fitted = []
    for place, mechanism in enumerate(mechanisms):
        say("fit", place, len(mechanisms))
        own = mechanism.at(budget.share(len(mechanisms)))
        fitted.append(own if inhouse is None else own.fit(inhouse, **fitting))
        if (unit := events.scope_of(fitted[-1].channel(True).event)["unit"]) is not budget.unit:
            remedy = f"Make the mechanism with unit={str(budget.unit)!r}."
            errors.refuse("search", "unit of a mechanism", str(budget.unit), str(unit), remedy)
    say("fit", len(mechanisms), len(mechanisms))
    return fitted


def _must_fit(mechanisms: Sequence[Any], people: _People, voters: _People) -> None:
    """Refuse inputs that would fail later, before anything is charged or released."""
    if len(people) < len(mechanisms):
        least = f"at least {len(mechanisms)}, one for each mechanism"
        errors.refuse("search", "people", least, len(people))
    for mechanism in mechanisms:
        for who, name in ((people, "people"), (voters, "voters")):
            if getattr(mechanism, "outcome", None) is None:
                labels.codes(f"search, {name}", who.labels, mechanism.classes)
            elif who is people:
                mechanism.outcome.values(f"search, {name}", who.labels)
            if len(mechanism.schema.rows(who.rows, f"search, {name}")) != len(who):
                raise errors.InvalidData(f"search, {name}: labels must be one per row.")


def _limit(mechanisms: Sequence[Any], limit: float | None) -> float | None:
    """Return the limit of errors; None for classifiers. All candidates must answer one question."""
    outcomes = {getattr(mechanism, "outcome", None) for mechanism in mechanisms}
    if len(outcomes) > 1:
        errors.refuse("search", "outcome", "that of all candidates", "different ones")
    outcome = outcomes.pop()
    if outcome is None:
        if limit is not None:
            errors.refuse("search", "limit", "None for classifiers", limit)
        return None
    return limit_in_range("search", outcome.upper - outcome.lower if limit is None else limit)


def _delta(mechanisms: Sequence[Any], composition: str) -> float | None:
    deltas = [float(mechanism.channel(True).delta or 0) for mechanism in mechanisms]
    total = sum(deltas) if composition == "sequential" else max(deltas)
    return total or None


def _report(
    mechanisms: Sequence[Any],
    people: _People,
    composition: str,
    stream: Randomness,
    say: Progress,
) -> list[Reports]:
    """Run on people's devices: each reports to one mechanism, or to all of them."""
    count, parallel = len(mechanisms), composition == "parallel"
    mine = assign(len(people), count if parallel else 1, rng=stream)
    collected = []
    for place, mechanism in enumerate(mechanisms):
        say("report", place, count)
        part = people[np.flatnonzero(mine == (place if parallel else 0))]
        collected.append(mechanism.release(part.rows, part.labels, rng=stream))
    say("report", count, count)
    return collected


def _learn(candidates: Sequence[Candidate], reports: Sequence[Reports], say: Progress) -> list[Any]:
    models = []
    for place, (candidate, released) in enumerate(zip(candidates, reports, strict=True)):
        say("learn", place, len(candidates))
        learner = candidate.learner
        learner = _default(released) if learner is None else copy.deepcopy(learner)
        models.append(learner.fit(released))
    say("learn", len(candidates), len(candidates))
    return models


def _default(released: Reports) -> Any:
    from tacit.local.inference.noise_aware import NoiseAwareClassifier
    from tacit.local.inference.noise_aware_regressor import NoiseAwareRegressor

    numeric = getattr(released.mechanism, "outcome", None) is not None
    return NoiseAwareRegressor() if numeric else NoiseAwareClassifier()


def _vote(
    models: Sequence[Any],
    voters: _People,
    budget: _Budget,
    plan: Precision,
    stream: Randomness,
    say: Progress,
) -> tuple[Selection, Estimate]:
    """Run on voters' devices: first those who choose, then those kept for the winner."""
    count, parallel = len(models), budget.composition == "parallel"
    steps = count + bool(plan.fresh) if count > 1 else 1
    mine = assign(len(voters), count if parallel else 1, plan.fresh, stream)
    ballot, votes = budget.ballot(count), list[Votes]()
    for place, model in enumerate(models if count > 1 else ()):
        say("vote", place, steps)
        part = voters[np.flatnonzero(mine == (place if parallel else 0))]
        votes.append(cast(model, part.rows, part.labels, ballot, rng=stream))
    chosen = select(votes, confidence=plan.confidence, independent=parallel) if votes else None
    winner = 0 if chosen is None else chosen.winner
    if plan.fresh:
        say("vote", steps - 1, steps)
        part = voters[np.flatnonzero(mine == FRESH)]
        fresh = cast(models[winner], part.rows, part.labels, budget.ballot(1), rng=stream)
        estimate = whole_estimate(fresh, plan.confidence)
    else:
        assert chosen is not None
        estimate = chosen.estimates[winner]
    say("vote", steps, steps)
    return chosen or Selection(0, (estimate,), plan.confidence), estimate


def _standings(
    candidates: Sequence[Candidate],
    reports: Sequence[int],
    chosen: Selection,
    limit: float | None,
) -> tuple[Standing, ...]:
    return tuple(
        Standing(one.name, count, int(estimate.voters), estimate, limit)
        for one, count, estimate in zip(candidates, reports, chosen.estimates, strict=True)
    )


def _certify(
    event: events.Event,
    delta: float | None,
    epsilon: Fraction,
    mechanisms: Sequence[Any],
    taught: bool,
    stream: Randomness,
) -> Certificate:
    """Issue the certificate, with what the mechanisms and the search assume and do not protect."""
    guarantee = guarantee_of(event, delta)
    stated = float(getattr(guarantee, "epsilon", np.inf))
    if not stated <= float(epsilon) * (1 + 1e-9):
        errors.refuse("search", "guarantee", f"within ε = {float(epsilon):g}", str(guarantee))
    assumed = [line for one in mechanisms for line in one.channel(True).assumptions]
    exposed = [line for one in mechanisms for line in one.not_protected]
    if taught or not all(one.inhouse_.may_leave for one in mechanisms):
        exposed += HANDED_OUT
    return Certificate.issue(
        event,
        guarantee=guarantee,
        assumptions=(*ASSUMPTIONS, *dict.fromkeys(assumed)),
        not_protected=(*dict.fromkeys(exposed), REFUSED),
        rng=stream,
    )


def _take(rows: Any, places: npt.NDArray[np.int64]) -> Any:
    """Select rows of a mapping, a pandas or Arrow table, or an array."""
    if isinstance(rows, Mapping):
        return {name: np.asarray(data)[places] for name, data in rows.items()}
    if hasattr(rows, "iloc"):
        return rows.iloc[places]
    if hasattr(rows, "take") and hasattr(rows, "schema"):
        return rows.take(places)
    return np.asarray(rows)[places]


def _silent(stage: str, done: int, total: int) -> None:
    """Show no progress."""
