"""The cost of privacy for a query: time and memory over the plain query, error over the peers'.

    python benchmarks/queries.py [--quick]

Prints one JSON object. Times are medians of interleaved runs, in one process, over a Parquet file
of 10 million rows that DuckDB makes first: `select region, count(*), avg(income) … group by
region`, by the curator and by DuckDB with the same threads and memory limit. `unit` has one row
per person (the largest possible number of people), `unit5` five rows per person in random order.
Each ratio is over the same plain query; `busy` compares processor time instead of wall-clock time,
which other work on the machine disturbs less. Peak memory is that of the whole process.

Errors are mean squared errors over the same rows, ε and bounds, ours over the peer's, each with its
standard error; below 1 ours is better. Neighbours are those of the peer: OpenDP adds or removes a
row for count, sum and histogram; its mean, and everything of diffprivlib but the histogram, takes
the number of rows as public and replaces a row; `mean_low` is that mean where values are near a
bound: we hide the number of missing values, they do not. `mean_add_remove` hides the number of
rows, for which OpenDP divides a sum by a count. null means not measured.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from peers import Peer, say
from query_cases import ABOVE, EDGES, EPSILON, LOW, LOWER, UPPER, VALUES, Draw, squared_errors

ROWS = 10_000_000
REGIONS = [f"region {number}" for number in range(10)]
THREADS, MEMORY = 2, "1GB"
PLAIN = "SELECT region, count(*), avg(income) FROM read_parquet(?) GROUP BY region"


def make_table(path: Path, rows: int) -> None:
    """Make people with a region and an income; `person5` has five rows each, in random order."""
    import duckdb

    with duckdb.connect() as db:
        db.execute(f"SET threads = {THREADS}")
        db.execute(
            f"""COPY (
                SELECT i AS person, (hash(i) % {max(rows // 5, 1)})::BIGINT AS person5,
                    'region ' || (hash(i + 1) % 10) AS region,
                    (hash(i + 2) % 20000000) / 100.0 AS income
                FROM range({rows}) t(i)
            ) TO '{path}' (FORMAT parquet)"""
        )


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return wall-clock seconds, and seconds of all processors."""
    clock, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - busy


def contestants(path: Path) -> dict[str, Callable[[], Any]]:
    """Return the plain query and the private ones."""
    import duckdb

    from tacit.central.queries import sql
    from tacit.central.queries.curator import Curator

    db = duckdb.connect(config={"threads": THREADS, "memory_limit": MEMORY})
    query = sql.parse("select region, count(*), avg(income) from data group by region").query

    def private(unit: str | None) -> Callable[[], Any]:
        curator = Curator(
            path,
            600.0,
            bounds={"income": (0, 200_000)},
            keys={"region": REGIONS},
            unit=unit,
            memory=MEMORY,
            threads=THREADS,
        )
        return lambda: curator.answer(query, epsilon=EPSILON)

    return {
        "plain": lambda: db.execute(PLAIN, [str(path)]).fetchall(),
        "groupby": private(None),
        "groupby_unit": private("person"),
        "groupby_unit5": private("person5"),
    }


def times(path: Path, rounds: int) -> dict[str, float]:
    """Return medians over rounds in which each takes a turn, and the peak memory."""
    works = contestants(path)
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for name, work in works.items():
        work()  # file cache, lazy imports
        say(f"{name}: warm")
    for number in range(rounds):
        for name, work in works.items():
            seen[name].append(timed(work))
        say(f"round {number + 1} of {rounds}")
    clock, busy = ({name: median(t[i] for t in seen[name]) for name in works} for i in (0, 1))
    private = [name for name in works if name != "plain"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        **{f"{name}_over_plain_10m": clock[name] / clock["plain"] for name in private},
        "peak_memory_mb": peak,
        **{f"{name}_busy_over_plain_10m": busy[name] / busy["plain"] for name in private},
        **{f"{name}_seconds_10m": value for name, value in clock.items()},
    }


def in_a_process(rows: int, rounds: int) -> dict[str, float]:
    """Run `times` in a fresh process, so that nothing else has used memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        say(f"making {rows:,} rows")
        make_table(path, rows)
        command = [sys.executable, __file__, "--times", str(path), "--rounds", str(rounds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def ours(adjacency: str) -> dict[str, Draw]:
    """Return one answer per statistic, each with a fresh budget."""
    import pandas as pd

    from tacit.central.queries.curator import Curator
    from tacit.privacy.guarantees import PureDP

    table = pd.DataFrame({"value": VALUES, "low": LOW})
    budget = PureDP(1e6, adjacency=adjacency, unit="record")
    curator = Curator(table, budget, bounds=dict.fromkeys(table, (LOWER, UPPER)), threads=1)

    def cells() -> list[float]:
        return list(curator.histogram("value", EDGES, epsilon=EPSILON).value)

    return {
        "count": lambda: [curator.count(where=f"value > {ABOVE}", epsilon=EPSILON).value],
        "sum": lambda: [curator.sum("value", epsilon=EPSILON).value],
        "mean": lambda: [curator.mean("value", epsilon=EPSILON).value],
        "mean_add_remove": lambda: [curator.mean("value", epsilon=EPSILON).value],
        "mean_low": lambda: [curator.mean("low", epsilon=EPSILON).value],
        "variance": lambda: [curator.variance("value", epsilon=EPSILON).value],
        "histogram": cells,
    }


REPLACE, ADD = "replace-one", "add-remove"
CONTESTS = {
    "opendp": {
        "count": ADD,
        "sum": ADD,
        "mean": REPLACE,
        "mean_low": REPLACE,
        "mean_add_remove": ADD,
        "histogram": ADD,
    },
    "diffprivlib": {
        "count": REPLACE,
        "sum": REPLACE,
        "mean": REPLACE,
        "mean_low": REPLACE,
        "variance": REPLACE,
        "histogram": ADD,
    },
}


def errors(draws: int) -> dict[str, float | None]:
    """Return our mean squared errors over the peers', each ratio with its standard error."""
    peers = [
        Peer("opendp", "opendp==0.16.0"),
        Peer("diffprivlib", "diffprivlib==0.6.6", "scikit-learn<1.8"),
    ]
    known: dict[tuple[str, str], tuple[float, float]] = {}
    answers = {adjacency: ours(adjacency) for adjacency in (REPLACE, ADD)}
    results: dict[str, float | None] = {}
    for peer in peers:
        for name, adjacency in CONTESTS[peer.name].items():
            if (name, adjacency) not in known:
                draw = answers[adjacency][name]
                known[name, adjacency] = squared_errors(name, draw, draws)
            theirs: Any = peer.rate(f"{name} {draws}")  # send a request, and read the reply
            ratio, error = compared(known[name, adjacency], theirs)
            results[f"mse_over_{peer.name}_{name}"] = ratio
            results[f"mse_over_{peer.name}_{name}_error"] = error
            say(f"{peer.name} {name}: {ratio}")
        peer.close()
    return results


def compared(
    mine: tuple[float, float], theirs: tuple[float, float] | None
) -> tuple[float | None, float | None]:
    if theirs is None:
        return None, None
    ratio = mine[0] / theirs[0]
    return ratio, ratio * ((mine[1] / mine[0]) ** 2 + (theirs[1] / theirs[0]) ** 2) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and draws")
    parser.add_argument("--times", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.times:
        results = times(args.times, args.rounds)
    else:
        results = in_a_process(ROWS, 3 if args.quick else 9)
        results |= errors(2_000 if args.quick else 6_000)
    print(json.dumps({k: v and float(f"{v:.4g}") for k, v in results.items()}, indent=2))


if __name__ == "__main__":
    main()
