"""Try to refute every registered path, under the kernels at hand: one line a path, one of all.

`python -m refute [--quick] [NAME ...]` with `tests` on the path; exit code 1 where one is refuted.
Which kernels are at hand is set by the environment: OPENBLAS_CORETYPE, OMP_NUM_THREADS,
ATEN_CPU_CAPABILITY.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

KERNELS = ("OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY", "OMP_NUM_THREADS")


def main() -> int:
    from .refuter import refute
    from .registry import paths
    from .tape import load_all

    given = argparse.ArgumentParser(prog="refute", description=__doc__)
    given.add_argument("names", nargs="*", help="parts of the names of paths; all without")
    given.add_argument("--quick", action="store_true", help="a few neighbours of each")
    options = given.parse_args()
    load_all()
    wanted = [
        path
        for path in paths()
        if path.available()
        and (not options.names or any(name in path.name for name in options.names))
    ]
    tried = queries = refuted = 0
    worst = 0.0
    for path in wanted:
        began = time.perf_counter()
        verdict = refute(path, everything=not options.quick)
        tried, queries = tried + verdict.neighbours, queries + verdict.queries
        refuted, worst = refuted + verdict.refuted, max(worst, verdict.worst)
        seconds = time.perf_counter() - began
        print(
            f"{path.name:48} {path.adjacency:14} {verdict.neighbours:5} neighbours "
            f"{verdict.queries:6} queries  worst {verdict.worst:.6f}  {seconds:5.1f} s",
            flush=True,
        )
        for fault in verdict.faults[:5]:
            print(f"    REFUTED {fault}")
    kernels = ", ".join(f"{name}={os.environ[name]}" for name in KERNELS if name in os.environ)
    print(
        f"{len(wanted)} paths, {tried} neighbours, {queries} queries; largest movement over claim "
        f"{worst:.9f}; {refuted} refuted ({kernels or 'kernels as they are'})"
    )
    return int(refuted > 0)


sys.exit(main())
