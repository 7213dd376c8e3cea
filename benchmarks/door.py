"""What a hostile visitor and a patient one once found in the service, tried again.

    python benchmarks/door.py [--rounds 5] [--only headers slow tokens disk database forgery page]

Starts real servers on loopback, sends honest reports at 25 per second, each over a connection of
its own, in rounds: a while without an attack, a while with one of

- `headers`: two addresses send headers without end, and one long header value;
- `slow`: 600 requests are half sent by three addresses, to a server with 256 descriptors;
- `tokens`: two addresses send batches of 1,000 tokens that nobody made.

It prints the p99 of an honest report over its idle value in the same round, as the median over
rounds, and the server's largest resident memory over that before the first attack: they may be at
most 3 and 1.2. As root, servers and honest senders get a higher priority than other programs of the
machine, whose work would otherwise be measured too. `disk` limits the size of the database's files
and `database` stops PostgreSQL: both print readiness, liveness, log lines and counted 503s, and all
four must show the failure. `forgery` prints how often 5 % forged reports of three kinds are noticed
among 1,000, at least 9 times in 10, and honest ones alone, at most once in 100. `page`, `desk` and
`listing` run the tests of what was wrong with the pages, in a real browser; load is measured by
`service.py`. The exit code is 1 if anything of this does not hold.

Nothing but loopback is contacted, and everything ends by itself. But for the tests, the script uses
nothing that earlier versions lack, so that it also measures them: set PYTHONPATH to their sources.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "apps" / "service"))

from service import Supply

HONEST_RATE = 25
HELD, DESCRIPTORS = 600, 256
HEADER_BYTES = 48_000_000
MOST_P99, MOST_MEMORY = 3.0, 1.2
"""What a server must keep to under attack: an honest report's p99, and memory, over idle."""
LEAST_POWER, MOST_FALSE = 0.9, 0.01
"""How often forgeries must be noticed, and honest reports may be taken for forged."""
PRIORITY = -10
TESTS = Path(__file__).parents[1] / "tests" / "apps" / "service"
PAGES = {
    "page": ("test_browser_steps.py",),
    "desk": (
        "test_browser_page.py::test_owner_and_voter",
        *("test_browser_desk.py", "test_papers.py", "test_days.py", "test_desk.py"),
    ),
    "listing": (
        "test_rounds.py::test_a_crowd_sends_the_labels_of_the_mechanism",
        "test_keys.py::test_the_front_page_names_listed_campaigns_only",
        "test_browser_steps.py::test_large_text_on_a_small_screen_does_not_overflow",
    ),
}
"""Tests of the three findings about pages: those of participants, those of owners, the rest."""
_SERVE = """
import resource, sys
from pathlib import Path
from tacit.apps.service.server import Listener, serve
from tacit.apps.service.store import Store
url, secret, port, descriptors, size = sys.argv[1:]
for kind, most in ((resource.RLIMIT_NOFILE, int(descriptors)), (resource.RLIMIT_FSIZE, int(size))):
    if most:
        resource.setrlimit(kind, (most, most))
serve(Store.open(url, Path(secret)), Listener(port=int(port)))
"""


class Server:
    """A server process with its log in a file, and limits of its own."""

    def __init__(
        self, url: str, secret: Path, folder: Path, *, descriptors: int = 0, size: int = 0
    ) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]
        self.log = folder / f"log-{self.port}"
        arguments = [url, str(secret), str(self.port), str(descriptors), str(size)]
        with self.log.open("wb") as log:
            command = [sys.executable, "-c", _SERVE, *arguments]
            self.process = subprocess.Popen(command, stderr=log, stdout=log)
        for _ in range(1200):  # seconds pass on a busy machine
            if self.get("/v1/health")[0] == 200:
                return
            time.sleep(0.1)
        raise RuntimeError(self.log.read_text())

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text; status 0 if there was no answer within 10 s."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as one:
                return one.status, one.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def memory(self) -> float:
        """Return the largest resident memory so far, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def send(port: int, request: bytes, source: str = "127.0.0.1", patience: float = 10) -> bytes:
    """Send one request over a connection of its own, and return the beginning of its answer."""
    where = ("127.0.0.1", port)
    with socket.create_connection(where, patience, source_address=(source, 0)) as link:
        link.sendall(request)
        return link.recv(4096)


def honest(port: int, supply: Supply, seconds: float) -> tuple[list[float], int]:
    """Send honest reports at a steady rate; return their times in ms, and how many failed."""
    took, failed, began = [], 0, time.perf_counter()
    for number in range(int(seconds * HONEST_RATE)):
        time.sleep(max(0.0, began + number / HONEST_RATE - time.perf_counter()))
        request, start = supply.singles(1)[0], time.perf_counter()
        try:
            failed += not send(port, request).startswith(b"HTTP/1.1 201")
        except OSError:
            failed += 1
        took.append(1000 * (time.perf_counter() - start))
    return took, failed


def quantiles(took: list[float], failed: int) -> dict[str, Any]:
    """Summarize times."""
    order = sorted(took)
    p50, p99 = order[len(order) // 2], order[int(0.99 * len(order))]
    return {"p50_ms": round(p50, 1), "p99_ms": round(p99, 1), "failed": failed, "of": len(took)}


# --- attacks, each in a process of its own --------------------------------------------------------


def endless_headers(port: int, until: float, number: int, _: Any) -> int:
    """Send headers without end, or one long value, again and again; return the bytes sent."""
    source, chunk, total = f"127.0.0.{10 + number}", b"X-a: b\r\n" * 8192, 0
    while time.time() < until and total < 40 * HEADER_BYTES:
        try:
            where = ("127.0.0.1", port)
            with socket.create_connection(where, 5, source_address=(source, 0)) as link:
                link.sendall(b"GET /v1/live HTTP/1.1\r\nHost: x\r\n" + b"X-long: " * (number % 2))
                sent = 0
                while sent < HEADER_BYTES and time.time() < until:
                    link.sendall(chunk if number % 2 == 0 else b"v" * len(chunk))
                    sent += len(chunk)
                    total += len(chunk)
        except OSError:
            pass
        time.sleep(0.02)
    return total


def half_sent(port: int, until: float, number: int, _: Any) -> int:
    """Hold half-sent requests open; return how many are still open at the end."""
    source, links = f"127.0.0.{10 + number}", []
    for _ in range(HELD // 3):
        link = socket.socket()
        link.settimeout(2)
        try:
            link.bind((source, 0))
            link.connect(("127.0.0.1", port))
            link.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-a")
            links.append(link)
        except OSError:
            link.close()
    time.sleep(max(0.0, until - time.time()))
    return sum(_is_open(link) for link in links)


def _is_open(link: socket.socket) -> bool:
    link.settimeout(0.001)
    try:
        return link.recv(1000) != b"" and _is_open(link)
    except TimeoutError:
        return True
    except OSError:
        return False


def unknown_tokens(port: int, until: float, number: int, supply: Supply) -> int:
    """Send batches of tokens that nobody made, as fast as they are answered; return how many."""
    source, sent = f"127.0.0.{10 + number}", 0
    symbols, requests = next(supply.reports), []
    for _ in range(10):  # made in advance: making them would slow down this machine
        tokens = [secrets.token_urlsafe(24 + 9 * (number % 2)) for _ in range(1000)]
        items = [{"token": token, "report": {"symbols": symbols}} for token in tokens]
        body = {"artifact": supply.artifact, "reports": items}
        requests.append(supply._request(f"{supply.path}/batch", body))
    while time.time() < until:
        try:
            send(port, requests[sent % 10], source)
        except OSError:
            time.sleep(0.05)
        sent += 1
    return sent


@contextmanager
def attacked(
    attack: Callable[..., int], senders: int, port: int, seconds: float, supply: Any
) -> Iterator[list[int]]:
    """Run an attack from several processes for a while; the list holds what they return."""
    until, results = time.time() + seconds, multiprocessing.Queue()
    context = multiprocessing.get_context("fork")

    def one(number: int) -> None:
        os.setpriority(
            os.PRIO_PROCESS, 0, 10
        )  # senders elsewhere would not slow down this machine's honest ones
        results.put(attack(port, until, number, supply))

    workers = [context.Process(target=one, args=(number,)) for number in range(senders)]
    for worker in workers:
        worker.start()
    said: list[int] = []
    yield said
    said += [results.get(timeout=seconds + 60) for _ in workers]
    for worker in workers:
        worker.join()


def under(
    attack: Callable[..., int],
    senders: int,
    folder: Path,
    *,
    rounds: int,
    seconds: float,
    descriptors: int = 0,
) -> dict[str, Any]:
    """Measure honest reports in rounds without and with an attack, on a server of its own."""
    url, secret = f"sqlite:///{folder / attack.__name__}.db", folder / attack.__name__
    supply = Supply.prepare(url, secret, int(HONEST_RATE * (2 * seconds * rounds + 20)))
    server = Server(url, secret, folder, descriptors=descriptors)
    idle: list[tuple[list[float], int]] = []
    during: list[tuple[list[float], int]] = []
    try:
        honest(server.port, supply, 4)  # a warm-up
        memory, said = server.memory(), []
        for _ in range(rounds):
            idle.append(honest(server.port, supply, seconds))
            with attacked(attack, senders, server.port, seconds + 2, supply) as counts:
                time.sleep(1)
                during.append(honest(server.port, supply, seconds))
            said.append(counts)
            time.sleep(1)
        largest = server.memory()
        return {
            "idle": pooled(idle),
            "during": pooled(during),
            **ratios(idle, during, largest / memory),
            "memory_mb": round(largest),
            "attack": said[-1],
            "log_lines": len(server.log.read_text().splitlines()),
        }
    finally:
        server.stop()


def pooled(parts: list[tuple[list[float], int]]) -> dict[str, Any]:
    """Summarize the times of all rounds together."""
    return quantiles([one for took, _ in parts for one in took], sum(failed for _, failed in parts))


def ratios(idle: list[Any], during: list[Any], memory: float) -> dict[str, Any]:
    """Compare each attack with the idle time before it."""
    each = [
        quantiles(*late)["p99_ms"] / quantiles(*early)["p99_ms"]
        for early, late in zip(idle, during, strict=True)
    ]
    ratio = statistics.median(each)
    return {
        "p99_over_idle": round(ratio, 2),
        "p99_over_idle_by_round": [round(one, 2) for one in each],
        "memory_over_idle": round(memory, 2),
        "kept": ratio <= MOST_P99 and memory <= MOST_MEMORY,
    }


# --- failures that must be seen -----------------------------------------------------------------


def seen(server: Server) -> dict[str, Any]:
    """Return what an operator can see of a failure."""
    metrics = server.get("/v1/metrics")[1].splitlines()
    lines = server.log.read_text().splitlines()
    counted = [line for line in metrics if line.startswith("tacit_requests") and '"503"' in line]
    ready, live = server.get("/v1/health")[0], server.get("/v1/live")[0]
    count = sum(float(line.rpartition(" ")[2]) for line in counted)
    log = [line[:240] for line in lines if "database" in line][-2:]
    kept = (ready, live) == (503, 200) and count > 0 and bool(log)
    return {"ready": ready, "live": live, "counted_503": count, "log": log, "kept": kept}


def full_disk(folder: Path) -> dict[str, Any]:
    """Report until the database's files may not grow any more."""
    url, secret = f"sqlite:///{folder}/disk.db", folder / "disk"
    supply = Supply.prepare(url, secret, 60_000)
    largest = max(path.stat().st_size for path in folder.glob("disk.db*"))
    server = Server(url, secret, folder, size=largest + 100_000)
    try:
        statuses = []
        for request in supply.batches(300):
            statuses.append(int(send(server.port, request)[9:12] or 0))
            if statuses.count(503) >= 3:
                break
        return {"answers": {one: statuses.count(one) for one in set(statuses)}, **seen(server)}
    finally:
        server.stop()


def stopped_database(folder: Path) -> dict[str, Any] | str:
    """Stop PostgreSQL under a running server, and start it again."""
    import postgres

    if not postgres.present():
        return postgres.ABSENT
    with postgres.started() as database:
        url, secret = database.create(), folder / "stopped"
        supply = Supply.prepare(url, secret, 100)
        server = Server(url, secret, folder)
        try:
            database.stop("immediate")
            time.sleep(0.5)
            statuses = [int(send(server.port, one)[9:12]) for one in supply.singles(2)]
            said = seen(server)
            database.start()
            time.sleep(1)
            back = server.get("/v1/health")[0]
            kept = said["kept"] and back == 200
            return {"answers": statuses, **said, "ready_again": back, "kept": kept}
        finally:
            server.stop()


def forgeries(runs: int) -> dict[str, Any]:
    """Measure how often forged and honest reports raise the alarm."""
    import numpy as np

    from tacit.local.inference.forgery import Sample, forgery_test
    from tacit.privacy.mechanisms import SubsetSelection

    people, fakes, classes, codewords, found = 1000, 50, 10, 20, {}
    rng = np.random.default_rng(0)
    for epsilon in (1, 2, 4):
        law = SubsetSelection(categories=classes * codewords, epsilon=epsilon)
        size, symbols = law.event.size, np.arange(law.categories)

        def filled(group: Any, size: int = size, symbols: Any = symbols) -> Any:
            order = np.concatenate([rng.permutation(group), rng.permutation(symbols)])
            return np.sort(list(dict.fromkeys(order.tolist()))[:size])

        def alarms(forge: Any, law: Any = law) -> float:
            raised = 0
            for _ in range(runs):
                shares = rng.dirichlet(np.full(law.categories, rng.choice([0.02, 0.3, 5])))
                made = [] if forge is None else [forge() for _ in range(fakes)]
                raw = rng.choice(law.categories, people - len(made), p=shares)
                drawn = law.release(raw)
                sets = np.concatenate([drawn, made]) if made else drawn
                raised += forgery_test([Sample(law, sets, classes)]).alarm
            return raised / runs

        same = filled(symbols)
        found[f"epsilon {epsilon}"] = {
            "honest": alarms(None),
            "one label": alarms(lambda f=filled: f(4 + classes * np.arange(codewords))),
            "one set": alarms(lambda one=same: one),
            "one codeword": alarms(lambda f=filled: f(20 + np.arange(classes))),
        }
    power = min(one[kind] for one in found.values() for kind in one if kind != "honest")
    false = sum(one["honest"] for one in found.values()) / len(found)
    kept = power >= LEAST_POWER and false <= MOST_FALSE
    said = {"reports": people, "forged": fakes, "runs": runs, "power": power, "false": false}
    return {**said, "kept": kept, **found, "moved": moved(runs)}


def moved(runs: int) -> dict[str, Any]:
    """Measure how far 50 forged reports of 1,056 move a label, that each of them names 3 times."""
    import numpy as np

    from tacit.local.inference import poisoning
    from tacit.local.inference.robust import robust_shares
    from tacit.privacy.mechanisms import SubsetSelection

    people, fakes, classes, codewords = 1056, 50, 10, 19
    law = SubsetSelection(categories=classes * codewords, epsilon=4)
    chances, labels = poisoning.law_of(law), np.arange(law.categories) % classes
    rng, found = np.random.default_rng(0), []
    for _ in range(runs):
        raw = rng.choice(law.categories, people - fakes)
        own = np.flatnonzero(labels == 4)
        made = np.sort([rng.choice(own, law.event.size, replace=False) for _ in range(fakes)])
        sets = np.concatenate([law.release(raw), made])
        named = (labels[sets] == 4).sum(axis=1) - codewords * chances.other
        robust = robust_shares(law, sets, labels, fakes)
        low, high = robust.intervals[4]
        usual = float((named / (chances.own - chances.other)).mean())
        found.append((usual, robust.shares[4], low <= 1 / classes <= high))
    usual, share, covered = np.mean(found, axis=0).round(4).tolist()
    worst = poisoning.class_shift(law, classes, people, fakes).worst
    bounds = {"usual_bound": round(worst, 4), "robust_bound": round(robust.shift, 4)}
    return {"truth": 1 / classes, "usual": usual, "robust": share, "covered": covered, **bounds}


def tested(names: Sequence[str]) -> dict[str, Any]:
    """Run tests, none of which may be skipped for want of a browser."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--no-header", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(str(TESTS / name) for name in names)], capture_output=True, text=True
    )
    lines = [line.partition(" ")[0] for line in done.stdout.splitlines()]
    counts = {word.lower(): lines.count(word) for word in ("PASSED", "FAILED", "ERROR", "SKIPPED")}
    kept = done.returncode == 0 and counts["passed"] > 0 and not counts["skipped"]
    return {"tests": list(names), **counts, "kept": kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = ("headers", "slow", "tokens", "disk", "database", "forgery", *PAGES)
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--rounds", type=int, default=5, help="without and with each attack")
    parser.add_argument("--seconds", type=float, default=8, help="of honest reports, each time")
    parser.add_argument("--runs", type=int, default=100, help="of each kind of forgery")
    args = parser.parse_args()
    threading.Timer(1200, os._exit, (1,)).start()  # whatever happens
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with tempfile.TemporaryDirectory() as name:
        folder, kept = Path(name), True
        often: Any = {"rounds": args.rounds, "seconds": args.seconds}
        work: dict[str, Callable[[], Any]] = {
            "headers": lambda: under(endless_headers, 2, folder, **often),
            "slow": lambda: under(half_sent, 3, folder, **often, descriptors=DESCRIPTORS),
            "tokens": lambda: under(unknown_tokens, 2, folder, **often),
            "disk": lambda: full_disk(folder),
            "database": lambda: stopped_database(folder),
            "forgery": lambda: forgeries(args.runs),
            **{name: lambda names=names: tested(names) for name, names in PAGES.items()},
        }
        for kind in args.only:
            found = work[kind]()
            kept = kept and (not isinstance(found, dict) or found.get("kept", True))
            print(json.dumps({kind: found}), flush=True)
    os._exit(0 if kept else 1)


if __name__ == "__main__":
    main()
