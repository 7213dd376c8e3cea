r"""How an answer changes over several rounds of different people: a series, and its slope.

The slope is that of the least-squares line through the rounds' true values, each with the same
weight: :math:`\sum_t c_t \theta_t` with public weights :math:`c_t`, whether or not the values are
on a line. Its interval is made from those of the rounds, which are independent ([ZG09]_, as for
differences), before they are cut at the bounds of the question.

References
----------
.. [ZG09] Zou, Huang, Zhang. A note on confidence interval estimation for a linear function of
   binomial proportions. Computational Statistics & Data Analysis 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm

from tacit.local.reports import Reports
from tacit.local.surveys import answers, grammar
from tacit.local.surveys.intervals import LINE, Estimate
from tacit.local.surveys.questions import Reals
from tacit.local.surveys.targets import Target
from tacit.privacy import errors
from tacit.privacy.accounting.readers import DELTA

PREFIX = "trend of "
SLOPE = (
    " The slope is that of the least-squares line through the values of the {count} rounds, each "
    "with the same weight; rounds are of different people."
)
_MOST_ROUNDS = 1000


def asks(question: str) -> bool:
    """Return whether a question is about a trend."""
    return " ".join(str(question).split()).lower().startswith(PREFIX)


def trend(
    survey: Any,
    rounds: Sequence[Any],
    question: str,
    *,
    times: Sequence[float] | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    delta: float = DELTA,
    fake: int = 0,
) -> answers.Answer:
    """Answer a question for each round, and by how much the answer changes per unit of time.

    Parameters
    ----------
    rounds : sequence of Reports, or of rows without noise
        One of each round, in their order; nobody is in two of them.
    times : sequence of float, optional
        When the rounds were; 1, 2, 3, … unless given.
    """
    when, unit = _times(times, len(rounds)), "round" if times is None else "unit of time"
    inner = " ".join(question.split())[len(PREFIX) :] if asks(question) else question
    targets = grammar.targets(survey, inner)
    confidence = errors.within("trend", "confidence", confidence, "(0, 1)")
    numbers = len(targets) * (len(rounds) + 1)
    alpha = (1 - confidence) / (numbers if simultaneous else 1)
    z = float(norm.ppf(1 - alpha / 2))
    each = [answers.estimates(survey, one, inner, targets, z) for one in rounds]
    free = [answers.estimates(survey, one, inner, _unlimited(targets), z) for one in rounds]
    made: list[Estimate] = []
    for place, target in enumerate(targets):
        named = f"{target.label}, " if len(targets) > 1 else ""
        made += [
            replace(one[place], label=f"{named}round {at:g}")
            for one, at in zip(each, when, strict=True)
        ]
        made.append(slope([one[place] for one in free], when, f"{named}slope per {unit}"))
    private = [one for one in rounds if isinstance(one, Reports)]
    first = grammar.first_date(survey, inner)
    days = f" Numbers are days after {first}." if first else ""
    told = answers.covered(targets, bool(private), numbers, confidence, simultaneous)
    answer = answers.Answer(
        question=f"{PREFIX}{inner}",
        estimates=tuple(made),
        covers=told + SLOPE.format(count=len(rounds)) + days,
        guarantee=answers.NONE,
        readers=answers.NONE,
        people=sum(answers.people(survey, one) for one in rounds),
    )
    if len(private) < len(rounds):
        return answer
    return answers.promised(answer, private, delta, fake)


def slope(series: Sequence[Estimate], times: Reals, label: str) -> Estimate:
    """Return the slope of the least-squares line through independent estimates."""
    offsets = times - times.mean()
    weights = offsets / float(offsets @ offsets)
    value = float(weights @ [one.value for one in series])
    error = math.sqrt(
        sum((w * e.standard_error) ** 2 for w, e in zip(weights, series, strict=True))
    )
    below = above = 0.0
    for weight, one in zip(weights.tolist(), series, strict=True):
        if weight:
            ends = sorted(weight * end for end in one.interval)
            below += (weight * one.value - ends[0]) ** 2
            above += (ends[1] - weight * one.value) ** 2
    return Estimate(label, value, error, (value - math.sqrt(below), value + math.sqrt(above)))


def _times(times: Sequence[float] | None, count: int) -> Reals:
    errors.whole("trend", "rounds", count, least=2, most=_MOST_ROUNDS)
    when = np.arange(1.0, count + 1) if times is None else np.asarray(times, np.float64)
    fit = (
        when.shape == (count,) and bool(np.isfinite(when).all()) and bool(np.all(np.diff(when) > 0))
    )
    if not fit:
        errors.refuse("trend", "times", f"{count} increasing numbers, one per round", times)
    return when


def _unlimited(targets: Sequence[Target]) -> list[Target]:
    """Return the same numbers without bounds: a slope of values that were cut is off."""
    return [
        replace(one, limits=LINE) if hasattr(one, "limits") else one  # type: ignore[call-arg]
        for one in targets
    ]
