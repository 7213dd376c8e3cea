"""Quality of the winner of a private search, and coverage of its interval.

    python benchmarks/search.py [--repeats 500]

12 candidates, 15,000 voters, ε = 2 per voter. The library assigns voters, adds noise to votes,
chooses the winner and computes its 95 % interval, all with its defaults; the candidates' true
accuracies are given, with several spacings. Prints for each how far the winner is below the best
candidate on average, how often its interval covers its true accuracy (within ± 0.02 by chance at
500 repeats), and how often all candidates' intervals cover at once. The votes of fresh voters do
not depend on who wins: `exactly` is the mean over winners of the exact coverage of their intervals,
a sum of binomial probabilities. `reused` is the mistake to avoid: the interval from the votes that
chose the winner.
"""

from __future__ import annotations

import argparse
import json
from functools import cache

import numpy as np
from scipy.stats import binom

from tacit.local.inference.selection import FRESH, assign, part_of, precision, select
from tacit.local.inference.validation import Estimate, answers, exact_interval, whole_estimate
from tacit.local.inference.votes import Ballot, Votes
from tacit.privacy.randomness import Randomness, Seeded

CANDIDATES, VOTERS, EPSILON = 12, 15_000, 2
SPREADS = {
    "even, .50 to .90": np.linspace(0.5, 0.9, CANDIDATES),
    "a pack, .80 to .83": np.linspace(0.8, 0.83, CANDIDATES),
    "all .80": np.full(CANDIDATES, 0.8),
    "one good, .90 among .60": np.r_[np.full(CANDIDATES - 1, 0.6), 0.9],
    # Accuracies of one mechanism over a grid of settings, as in a search over latent dimensions.
    "a usual grid": np.array(
        [0.19, 0.43, 0.55, 0.62, 0.71, 0.74, 0.78, 0.8, 0.81, 0.83, 0.84, 0.85]
    ),
    "near one, .970 to .999": np.linspace(0.97, 0.999, CANDIDATES),
    "steps, .80, .85 and .90": np.r_[np.full(6, 0.8), np.full(5, 0.85), 0.9],
}


def covers(estimate: Estimate, truth: float) -> bool:
    return estimate.interval[0] <= truth <= estimate.interval[1]


@cache
def coverage(truth: float, voters: int) -> float:
    """Compute the exact coverage of the interval from this number of fresh voters."""
    true, false = answers(Ballot(epsilon=EPSILON))
    share = false + truth * (true - false)
    likely = range(*map(int, binom.interval(1 - 1e-9, voters, share)))
    return sum(
        float(binom.pmf(count, voters, share))
        for count in likely
        if (ends := exact_interval(count, voters, true, false, 0.95))[0] <= truth <= ends[1]
    )


def votes_on(
    truths: np.ndarray, composition: str, mine: np.ndarray, draws: np.ndarray, rng: Randomness
) -> list[Votes]:
    """Draw one row per voter: easy for all candidates that are good enough, or hard."""
    if composition == "parallel":
        ballot = Ballot(epsilon=EPSILON)
        return [ballot.release(draws[mine == j] < a, rng=rng) for j, a in enumerate(truths)]
    ballot = Ballot(epsilon=part_of(EPSILON, CANDIDATES))
    return [ballot.release(draws[mine != FRESH] < a, rng=rng) for a in truths]


def measure(
    truths: np.ndarray, composition: str, confirm: str, repeats: int, seed: int
) -> dict[str, float]:
    plan = precision(VOTERS, EPSILON, CANDIDATES, composition=composition, confirm=confirm)
    generator = np.random.default_rng(seed)
    rng = Seeded(generator)
    parallel = composition == "parallel"
    lost, held, exactly, all_held, reused, width = [], [], [], [], [], []
    for _ in range(repeats):
        draws = generator.random(VOTERS)
        mine = assign(VOTERS, CANDIDATES if parallel else 1, plan.fresh, rng)
        votes = votes_on(truths, composition, mine, draws, rng)
        chosen = select(votes, independent=parallel)
        truth = float(truths[chosen.winner])
        estimate = chosen.estimates[chosen.winner]
        if plan.fresh:
            fresh = Ballot(epsilon=EPSILON).release(draws[mine == FRESH] < truth, rng=rng)
            estimate = whole_estimate(fresh, 0.95)
            exactly.append(coverage(truth, plan.fresh))
        lost.append(truths.max() - truth)
        held.append(covers(estimate, truth))
        width.append((estimate.interval[1] - estimate.interval[0]) / 2)
        all_held.append(all(map(covers, chosen.estimates, truths.tolist())))
        reused.append(covers(whole_estimate(votes[chosen.winner], 0.95), truth))
    return {
        "points_below_best": round(100 * float(np.mean(lost)), 2),
        "winner_covered": round(float(np.mean(held)), 3),
        **({"exactly": round(float(np.mean(exactly)), 4)} if exactly else {}),
        "half_width": round(float(np.mean(width)), 4),
        "all_covered_at_once": round(float(np.mean(all_held)), 3),
        "reused": round(float(np.mean(reused)), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=500)
    repeats = parser.parse_args().repeats
    result = {}
    for composition in ("parallel", "sequential"):
        for confirm in ("fresh", "simultaneous"):
            result[f"{composition}, {confirm}"] = {
                name: measure(truths, composition, confirm, repeats, seed)
                for seed, (name, truths) in enumerate(SPREADS.items())
            }
    setting = {"candidates": CANDIDATES, "voters": VOTERS, "epsilon": EPSILON, "repeats": repeats}
    print(json.dumps({**setting, "measured": result}, indent=1))


if __name__ == "__main__":
    main()
