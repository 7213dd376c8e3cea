"""The cost of messages: a round through Flower's apps in this process, over one of a plain loop.

    python benchmarks/federated.py [--rounds 40] [--ray]

FedAvg on the 8 × 8 digits that come with scikit-learn, a network 64-32-10, 5 local epochs, IID over
10 and over 100 clients, all of them in every round. Both engines take turns in one run, round by
round, on one thread. Prints the median ratio of the times of neighbouring rounds. `--ray` adds
Flower's own simulation, without its start.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.datasets import load_digits

from tacit.federated import Data, TorchModel, partition, rounds
from tacit.federated.app import engines
from tacit.federated.rounds import Round, RunOptions
from tacit.federated.torch_model import mlp

Engine = Callable[..., object]


def clients_of(count: int) -> list[Data]:
    digits = load_digits()
    rows = (digits.data / 8 - 1).astype(np.float32)
    parts = partition.iid(len(rows), count)
    return [Data(rows[part], digits.target[part]) for part in parts]


def network() -> TorchModel:
    return TorchModel(mlp(64, 32, 10))


def side_by_side(left: Engine, right: Engine, clients: list[Data], count: int) -> list[list[float]]:
    """Return the seconds of every round of both engines, which take turns in two threads."""
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    times: list[list[float]] = [[], []]

    def work(me: int, engine: Engine) -> None:
        started = 0.0

        def told(one: Round) -> None:
            nonlocal started
            times[me].append(time.perf_counter() - started)
            turns[1 - me].release()
            turns[me].acquire()
            started = time.perf_counter()

        turns[me].acquire()
        started = time.perf_counter()
        engine("fedavg", network(), clients, count, RunOptions(callback=told))
        turns[1 - me].release()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate((left, right))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def ratio(left: Engine, right: Engine, count: int, repeats: int) -> float:
    """Return the median ratio of a round of the first to one of the second, after a warm-up."""
    first, second = side_by_side(left, right, clients_of(count), repeats + 1)
    pairs = zip(first[1:], second[1:], strict=True)
    return round(median(one / other for one, other in pairs), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--ray", action="store_true")
    arguments = parser.parse_args()
    result = {
        f"local_over_plain_{count}": ratio(engines.run, rounds.run, count, arguments.rounds)
        for count in (10, 100)
    }
    if arguments.ray:
        from tacit.federated.app import simulation

        def on_ray(name: str, model: object, *others: object) -> object:
            return simulation.run(name, network, *others)  # type: ignore[arg-type]

        result["ray_over_plain_10"] = ratio(on_ray, rounds.run, 10, arguments.rounds)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
