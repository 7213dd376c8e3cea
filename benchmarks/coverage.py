"""Coverage of the intervals of survey answers, over simulated surveys: a table on stdout.

Each survey draws people from a known population; an interval covers if it holds the number of the
population. Coverage of 95 % intervals must lie in [.93, .985] for every kind of answer. `whole` is
the share of the intervals without an end of their own: the reports tell nothing. `noise_alone` is
the mutant: intervals of means without the sampling of people, which must cover too rarely.

People are drawn with replacement, so reports are independent draws of one law, that of a random
person's report. Where the reports of all sheets can be listed, how often each occurs is drawn from
the multinomial law that `log_prob` gives; else people and their reports are drawn one by one. That
the sampler follows `log_prob` is tested elsewhere, and by `--reports`, which draws all reports.

    python benchmarks/coverage.py [--surveys 2000] [--kinds share,mean] [--people 500,20000]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import tacit
from tacit.local.surveys import moments
from tacit.local.surveys.grammar import targets
from tacit.local.surveys.survey import Survey
from tacit.privacy.randomness import Seeded

QUESTIONS = {
    "smoker": tacit.YesNo(),
    "rare": tacit.YesNo(),
    "region": tacit.OneOf(("north", "south")),
    "degree": tacit.OneOf(("none", "school", "college", "doctor")),
    "pets": tacit.SeveralOf(("cat", "dog", "fish")),
    "income": tacit.Number(0, 10),
    "age": tacit.Number(0, 100),
    "born": tacit.Date("1920-01-01", "2019-12-31"),
}


class Asked(NamedTuple):
    """A question, and the sheets that it is asked with."""

    question: str
    sheets: list[Any]
    divided: bool = False


PAIR = [("income:moments", "age:moments")]
ASKED = {
    "share": Asked("share of smoker", ["smoker"]),
    "rare share": Asked("share of rare", ["rare"]),
    "shares": Asked("share of degree", ["degree"]),
    "several": Asked("share of pets", ["pets"]),
    "mean": Asked("mean income", ["income"]),
    "mean date": Asked("mean born", ["born"]),
    "mean by group": Asked("mean income by region", [("region", "income")]),
    "divided": Asked("mean income by region", [("region", "income")], True),
    "share by group": Asked("share of smoker by region", [("region", "smoker")]),
    "difference": Asked("difference of income between north and south", [("region", "income")]),
    "table": Asked("table of region and smoker", [("region", "smoker")]),
    "median": Asked("median income", ["income:bins"]),
    "quantile": Asked("quantile .9 of age", ["age:bins"]),
    "median date": Asked("median born", ["born:bins"]),
    "quantile by group": Asked("quantile .75 of age by region", [("region", "age:bins")]),
    "variance": Asked("variance of income", ["income:moments"]),
    "correlation": Asked("correlation of income and age", PAIR),
    "regression": Asked("regression of income on age", PAIR),
    "logistic": Asked("logistic regression of smoker on region", [("smoker", "region")]),
    "change": Asked("mean income", ["income"]),
    "change by group": Asked("mean income by region", [("region", "income")]),
    "change of a share": Asked("share of smoker", ["smoker"]),
    "noise_alone": Asked("mean income", ["income"]),
}
LEAST, MOST = 0.93, 0.985
MOST_LISTED = 5000
"""Different reports of a sheet that are listed."""


def population(count: int, drawn: np.random.Generator, later: bool = False) -> pd.DataFrame:
    """Draw people; later, they earn more and smoke less."""
    south = drawn.random(count) < 0.45
    age = 100 * drawn.beta(2, 3, count)
    noise = drawn.normal(0, 1, count)
    income = np.clip(1 + 0.05 * age + 2 * south + noise + later * 0.8, 0, 10)
    degree = np.array(QUESTIONS["degree"].options)
    pets = drawn.random((count, 3)) < [0.3, 0.15 + 0.2 * later, 0.05]
    names = np.array(["".join(f"{name};" for name in row) for row in _several()])
    return pd.DataFrame(
        {
            "smoker": np.where(drawn.random(count) < 0.25 - 0.1 * later + 0.2 * south, "yes", "no"),
            "rare": np.where(drawn.random(count) < 0.02, "yes", "no"),
            "region": np.where(south, "south", "north"),
            "degree": degree[drawn.choice(4, count, p=[0.1, 0.5, 0.35, 0.05])],
            "pets": names[pets @ [1, 2, 4]],
            "income": income,
            "age": age,
            "born": (np.datetime64("2019-12-31") - (365.25 * age).astype(int)).astype(str),
        }
    )


def _several() -> list[list[str]]:
    options = QUESTIONS["pets"].options
    return [[one for at, one in enumerate(options) if code >> at & 1] for code in range(8)]


Draw = Callable[[int], Any]


def drawn_reports(survey: Survey, pool: Any, stream: Seeded) -> Draw:
    """Draw people, and then their reports."""
    encoded, channel = survey.encode(pool), survey.channel()
    drawn = np.random.default_rng(1)

    def draw(people: int) -> Any:
        rows = encoded[drawn.integers(0, len(encoded), people)]
        return tacit.Reports(survey, channel.release(rows, stream), channel, True)

    return draw


def counted_reports(survey: Survey, pool: Any, drawn: np.random.Generator) -> Draw | None:
    """Draw how often each report occurs; None where there are too many different ones."""
    channel, encoded = survey.channel(), survey.encode(pool)
    raw = dict(zip(channel.variables, encoded.T, strict=True))
    listed, chances = [], []
    for number, parts in enumerate(channel.sheets):
        if len(parts) > 1 or math.comb(parts[0].sent.released, parts[0].width) > MOST_LISTED:
            return None
        found = parts[0].sent.outputs()
        padded = np.full((len(found), channel.width), -1)
        padded[:, : found.shape[1]] = found
        listed.append(np.column_stack([np.full(len(found), number), padded]))
        chances.append(_of_a_person(parts[0], found, raw) / len(channel.sheets))
    every, law = np.concatenate(listed), np.concatenate(chances)
    assert abs(law.sum() - 1) < 1e-9

    def draw(people: int) -> Any:
        rows = np.repeat(every, drawn.multinomial(people, law / law.sum()), axis=0)
        columns = {"sheet": rows[:, 0], "symbols": rows[:, 1:]}
        return tacit.Reports(survey, columns, channel, True)

    return draw


def _of_a_person(part: Any, outputs: Any, raw: dict[str, Any]) -> np.ndarray:
    """Return the law of the report of a random person: a mixture over joint levels."""
    people = len(next(iter(raw.values())))
    levels, block = np.zeros(part.shape), 20_000
    for start in range(0, people, block):
        own = [one.law(raw[one.variable][start : start + block]) for one in part.measures]
        letters = "abcdef"[: len(own)]
        sums = np.einsum(",".join(f"n{one}" for one in letters) + "->" + letters, *own)
        levels += sums / people
    law = np.zeros(len(outputs))
    for symbol, weight in enumerate(levels.ravel()):
        sent = outputs if outputs.shape[1] > 1 or part.base is None else outputs[:, 0]
        law += weight * np.exp(part.law.log_prob(sent, np.full(len(outputs), symbol)))
    return law


def noise_alone(survey: Survey, question: str, pool: Any) -> Callable[[Any], Any]:
    """Answer with intervals that leave the sampling of people out."""
    (target,) = targets(survey, question)
    sampling = moments.from_rows(survey, pool, target.moments).covariance * len(pool)

    def answer(reports: Any) -> list[Any]:
        found = moments.from_reports(reports, target.moments)
        noise = np.maximum(found.covariance - sampling / len(reports), 0)
        return [target.estimate(found._replace(covariance=noise, ends=None), 1.96)]

    return answer


def coverage(
    kind: str, epsilon: float, people: int, surveys: int, pools: Any, each: bool
) -> dict[str, Any]:
    """Return how often intervals hold the population's numbers, and how often they say nothing."""
    question, sheets, divided = ASKED[kind]
    survey = Survey(QUESTIONS, epsilon=epsilon, sheets=sheets, divided=divided)
    change = kind.startswith("change")
    truth = np.array([[e.value for e in survey.answer(one, question).estimates] for one in pools])
    exact = truth[1] - truth[0] if change else truth[0]
    rng = np.random.default_rng(2)
    used = pools if change else pools[:1]
    draws = [
        (None if each else counted_reports(survey, pool, rng))
        or drawn_reports(survey, pool, Seeded(number + 1))
        for number, pool in enumerate(used)
    ]
    alone = noise_alone(survey, question, pools[0]) if kind == "noise_alone" else None
    held, whole, widths = np.zeros(len(exact)), np.zeros(len(exact)), []
    for _ in range(surveys):
        rounds = [draw(people) for draw in draws]
        if alone is not None:
            estimates = alone(rounds[0])
        elif change:
            estimates = survey.change(*rounds, question).estimates
        else:
            estimates = survey.answer(rounds[0], question).estimates
        for place, (one, true) in enumerate(zip(estimates, exact, strict=True)):
            low, high = one.interval
            held[place] += low <= true <= high
            whole[place] += not math.isfinite(high - low) or math.isnan(one.value)
            widths.append(high - low)
    return {
        "kind": kind,
        "epsilon": epsilon,
        "people": people,
        "least": round(float(held.min() / surveys), 4),
        "most": round(float(held.max() / surveys), 4),
        "whole": round(float(whole.max() / surveys), 3),
        "median_width": float(f"{np.median(widths):.3g}"),
    }


def main() -> None:
    """Print the coverage of all kinds of answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--surveys", type=int, default=2000)
    parser.add_argument("--kinds", default=",".join(ASKED))
    parser.add_argument("--epsilons", default="1,4")
    parser.add_argument("--people", default="500,20000")
    parser.add_argument("--reports", action="store_true", help="draw every report (slow)")
    given = parser.parse_args()
    pools = [population(100_000, np.random.default_rng(0), later) for later in (False, True)]
    print(f"{'kind':<20}{'epsilon':>8}{'people':>8}{'least':>8}{'most':>8}{'whole':>7}  width")
    found = []
    for kind in given.kinds.split(","):
        # With little noise its omission of sampling must show.
        epsilons = "8" if kind == "noise_alone" else given.epsilons
        for epsilon in map(float, epsilons.split(",")):
            for people in map(int, given.people.split(",")):
                one = coverage(kind, epsilon, people, given.surveys, pools, given.reports)
                found.append(one)
                row = f"{kind:<20}{epsilon:>8g}{people:>8}{one['least']:>8.3f}{one['most']:>8.3f}"
                mark = "" if one["least"] >= LEAST and one["most"] <= MOST else "  outside"
                print(f"{row}{one['whole']:>7.2f}  {one['median_width']:.3g}{mark}", flush=True)
    print(json.dumps({"surveys": given.surveys, "coverage": found}))


if __name__ == "__main__":
    main()
