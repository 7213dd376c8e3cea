"""A year of monthly reports with memoised answers: one JSON object on stdout.

Each simulated person has a folder and a ledger of their own, as on a device, and answers yes or no
every month; 10 % change their answer each month. Measured:

- the share of each month against its 95 % interval, for the people and for the population;
- coverage of these intervals, and of the interval of a change, over many years;
- ε: the largest loss of any two histories and any reports, exactly from the law of the draws,
  beside what is stated; and the loss of the person of this year who lost most;
- the thirteenth report: refused by the device, and a new series for it by the ledger.

    python benchmarks/year.py [--people 2000] [--epsilon 7.1] [--years 400] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import tacit
from tacit.privacy.errors import BudgetExceeded
from tacit.privacy.randomness import Seeded

MONTHS, CHANGE, FIRST = 12, 0.1, 0.2
BUDGET = 8.0


def histories(people: int, drawn: np.random.Generator) -> np.ndarray:
    """Draw who answers yes in which month."""
    changes = drawn.random((people, MONTHS)) < CHANGE
    changes[:, 0] = drawn.random(people) < FIRST
    return np.cumsum(changes, axis=1) % 2


def population() -> list[float]:
    """Compute the share of yes in each month."""
    shares = [FIRST]
    for _ in range(MONTHS - 1):
        shares.append((1 - CHANGE) * shares[-1] + CHANGE * (1 - shares[-1]))
    return shares


def devices(mechanism: Any, raw: np.ndarray, folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Let each device report every month, on a budget of its own; try a thirteenth report."""
    released, unrefused = np.empty(raw.shape, np.int64), {"report": 0, "series": 0}
    spent = set()
    for number, history in enumerate(raw.tolist()):
        own = folder / str(number)
        own.mkdir()
        ledger = tacit.DeviceLedger(own / "ledger.sqlite", budget=BUDGET)
        person = tacit.Respondent(mechanism, own / "answers", ledger=ledger)
        for month, answer in enumerate(history):
            released[number, month] = person.report(answer, number=month)
        with suppress(BudgetExceeded):
            person.report(1, number=MONTHS)
            unrefused["report"] += 1
        with suppress(BudgetExceeded):
            tacit.Respondent(mechanism, own / "again", ledger=ledger)
            unrefused["series"] += 1
        spent.add(float(ledger.balance().spent))
    refused = {what: len(raw) - count for what, count in unrefused.items()}
    return released, {"thirteenth_refused": refused, "charged": sorted(spent)}


def losses(mechanism: Any) -> np.ndarray:
    """Compute the largest loss of any two histories, for reports with each number of ones.

    The law of reports depends on how often each cell gave each report, so one sequence of reports
    stands for all orders of it, and histories are counted by their ones where the report is 1 or 0.
    """
    worst = []
    for ones in range(MONTHS + 1):
        reports = np.repeat([1, 0], [ones, MONTHS - ones])
        every = [
            np.r_[np.arange(ones) < i, np.arange(MONTHS - ones) < j].astype(np.int64)
            for i in range(ones + 1)
            for j in range(MONTHS - ones + 1)
        ]
        law = mechanism.log_prob(np.tile(reports, (len(every), 1)), np.array(every))
        worst.append(law.max() - law.min())
    return np.array(worst)


def months(mechanism: Any, raw: np.ndarray, released: np.ndarray) -> list[dict[str, Any]]:
    """Compare each month's share with its intervals."""
    found = []
    for month, share in enumerate(population()):
        estimate = mechanism.estimate_counts(mechanism.in_round(released, month))
        low, high = estimate.share_interval()[1].tolist()
        least, most = (estimate.interval()[1] / len(raw)).tolist()
        own = float(raw[:, month].mean())
        found.append(
            {
                "share": round(float(estimate.shares[1]), 4),
                "population": round(share, 4),
                "interval": [round(low, 4), round(high, 4)],
                "holds_population": low <= share <= high,
                "holds_people": bool(least <= own <= most),
            }
        )
    return found


def coverage(mechanism: Any, people: int, years: int) -> dict[str, float]:
    """Count how often intervals hold the shares of the population and their changes."""
    drawn, shares, held = np.random.default_rng(2), population(), {"share": [], "change": []}
    for year in range(years):
        released = mechanism.release(histories(people, drawn), Seeded(year))
        rounds = [mechanism.in_round(released, month) for month in range(MONTHS)]
        for month, share in enumerate(shares):
            low, high = mechanism.estimate_counts(rounds[month]).share_interval()[1]
            held["share"].append(low <= share <= high)
            low, high = mechanism.estimate_change(rounds[0], rounds[month]).interval()[1]
            if month:
                held["change"].append(low <= share - shares[0] <= high)
    return {name: round(float(np.mean(one)), 4) for name, one in held.items()}


def main() -> None:
    """Run a year and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=2_000)
    parser.add_argument("--epsilon", type=float, default=7.1)
    parser.add_argument("--years", type=int, default=400)
    parser.add_argument("--folder", help="for the devices' files; one in memory is quicker")
    given = parser.parse_args()
    mechanism = tacit.MemoizedResponse(
        categories=2, epsilon=given.epsilon, permanent_epsilon=1.0, reports=MONTHS
    )
    raw, began = histories(given.people, np.random.default_rng(1)), time.perf_counter()
    with TemporaryDirectory(dir=given.folder) as folder:
        released, kept = devices(mechanism, raw, Path(folder))
    seconds = time.perf_counter() - began
    found, worst = months(mechanism, raw, released), losses(mechanism)
    result = {
        "people": given.people,
        "first_report": round(mechanism.first_epsilon, 3),
        "later_report": round(mechanism.later_epsilon, 3),
        "months": found,
        "held": {
            "population": sum(one["holds_population"] for one in found),
            "people": sum(one["holds_people"] for one in found),
        },
        "coverage": coverage(mechanism, given.people, given.years),
        "epsilon": {
            "stated": mechanism.guarantee.epsilon,
            "exact_worst_pair": round(float(worst.max()), 4),
            "worst_of_these_people": round(float(worst[released.sum(axis=1)].max()), 4),
            "never_changed": float(mechanism.event.same_pattern(1)),
        },
        **kept,
        "seconds_of_a_device": round(seconds / given.people, 4),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
