"""Coverage of the intervals of survey answers, over simulated surveys: one JSON object on stdout.

Each survey draws people from a known population and releases their reports; an interval covers if
it holds the number of the population. Coverage of 95 % intervals must lie in [.93, .985] for every
kind of answer, but where most intervals are the whole range, which says that the reports tell
nothing (`whole` is the share of these). `noise_alone` is the mutant: the mean's interval without
the sampling of people, which must cover too rarely.

    python benchmarks/coverage.py [--surveys 2000] [--kinds share,mean] [--people 500,20000]
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np
import pandas as pd

import tacit
from tacit.local.surveys.survey import Survey
from tacit.privacy.randomness import Seeded

QUESTIONS = {
    "smoker": tacit.YesNo(),
    "rare": tacit.YesNo(),
    "region": tacit.OneOf(("north", "south")),
    "degree": tacit.OneOf(("none", "school", "college", "doctor")),
    "income": tacit.Number(0, 10),
    "age": tacit.Number(0, 100),
}
ASKED = {
    "share": ("share of smoker", ["smoker"]),
    "rare share": ("share of rare", ["rare"]),
    "shares": ("share of degree", ["degree"]),
    "mean": ("mean income", ["income"]),
    "mean by group": ("mean income by region", [("region", "income")]),
    "share by group": ("share of smoker by region", [("region", "smoker")]),
    "difference": ("difference of income between north and south", [("region", "income")]),
    "table": ("table of region and smoker", [("region", "smoker")]),
    "median": ("median income", ["income:bins"]),
    "quantile": ("quantile .9 of age", ["age:bins"]),
    "variance": ("variance of income", ["income:moments"]),
    "correlation": ("correlation of income and age", [("income:moments", "age:moments")]),
    "regression": ("regression of income on age", [("income:moments", "age:moments")]),
    "logistic": ("logistic regression of smoker on region", [("smoker", "region")]),
    "change": ("mean income", ["income"]),
}


def population(count: int, drawn: np.random.Generator) -> pd.DataFrame:
    """Draw people."""
    south = drawn.random(count) < 0.45
    age = 100 * drawn.beta(2, 3, count)
    income = np.clip(1 + 0.05 * age + 2 * south + drawn.normal(0, 1, count), 0, 10)
    degree = np.array(QUESTIONS["degree"].options)
    return pd.DataFrame(
        {
            "smoker": np.where(drawn.random(count) < 0.15 + 0.2 * south, "yes", "no"),
            "rare": np.where(drawn.random(count) < 0.02, "yes", "no"),
            "region": np.where(south, "south", "north"),
            "degree": degree[drawn.choice(4, count, p=[0.1, 0.5, 0.35, 0.05])],
            "income": income,
            "age": age,
        }
    )


def coverage(kind: str, epsilon: float, people: int, surveys: int, pool: Any) -> dict[str, Any]:
    """Return how often intervals hold the population's numbers, and how often they say nothing."""
    question, sheets = ASKED[kind]
    survey = Survey(QUESTIONS, epsilon=epsilon, sheets=sheets)
    truth = [one.value for one in survey.answer(pool, question).estimates]
    truth = [0.0 for _ in truth] if kind == "change" else truth
    drawn, stream = np.random.default_rng(1), Seeded(1)

    def reports() -> Any:
        rows = pool.iloc[drawn.integers(0, len(pool), people)]
        return survey.release(rows, stream)

    held, whole, widths = np.zeros(len(truth)), np.zeros(len(truth)), []
    for _ in range(surveys):
        given = (
            survey.change(reports(), reports(), question)
            if kind == "change"
            else (survey.answer(reports(), question))
        )
        for place, (one, true) in enumerate(zip(given.estimates, truth, strict=True)):
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
        "median_width": round(float(np.median(widths)), 4),
    }


def main() -> None:
    """Print the coverage of all kinds of answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", type=int, default=2000)
    parser.add_argument("--kinds", default=",".join(ASKED))
    parser.add_argument("--epsilons", default="1,4")
    parser.add_argument("--people", default="500,20000")
    given = parser.parse_args()
    pool = population(400_000, np.random.default_rng(0))
    found = [
        coverage(kind, float(epsilon), int(people), given.surveys, pool)
        for kind in given.kinds.split(",")
        for epsilon in given.epsilons.split(",")
        for people in given.people.split(",")
    ]
    print(json.dumps({"surveys": given.surveys, "coverage": found}, indent=1))


if __name__ == "__main__":
    main()
