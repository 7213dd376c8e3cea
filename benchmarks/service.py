"""Load on the collection service: reports per second, over those of the bare server and database.

    python benchmarks/service.py [--quick]

One run starts a real server on SQLite, and one on its own PostgreSQL if that is installed. At 1, 16
and 64 connections it sends reports in batches of 100, single reports, and empty POSTs, which the
server answers with nothing. Rounds of the three are interleaved, and ratios are medians over
rounds: of reports per second to empty POSTs per second, and of batches to the database's bulk
insert of the same rows. Memory is the server's resident set before and after a million reports.
Prints one JSON object; `p99_ms_64` is for single reports on the slower database, and all details
are under `details`.

The load comes from another process, over keep-alive sockets, with prepared requests; its share of a
processor is printed (`client`), since it must not be the bottleneck. As root, all of it gets a
higher priority than other programs of the machine, whose load is printed, too. Rate limits are off;
every report is valid, new, drawn with the operating system's entropy, and flushed to disk before it
is acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "apps" / "service"))

CONNECTIONS = (1, 16, 64)
BATCH = 100
KINDS = ("empty", "batch", "single")
PRIORITY = -10
EMPTY = b"POST /v1/empty HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


# --- the load: another process -------------------------------------------------------------------


class LoadLink(asyncio.Protocol):
    """A connection that sends the next request as soon as the last one was answered."""

    def __init__(self, requests: Iterator[bytes], took: list[float], bad: list[bytes]) -> None:
        self.requests, self.took, self.bad = requests, took, bad
        self.buffer, self.done = b"", asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self.requests, None)
        if request is None:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self.began = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length, at = 0, self.buffer.find(b"content-length: ", 0, end)
        if at >= 0:
            length = int(self.buffer[at + 16 : self.buffer.index(b"\r", at)])
        if len(self.buffer) < end + 4 + length:
            return
        self.took.append(time.perf_counter() - self.began)
        if self.buffer[9:10] != b"2" or b'"problem"' in self.buffer:
            self.bad.append(self.buffer[:500])
        self.buffer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("closed"))


@dataclass
class LoadResult:
    """Measurements of one round of load."""

    requests: int
    seconds: float
    latencies: list[float]
    client: float
    server: float = 0.0

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cost(self) -> float:
        """Seconds of a processor that the server used for one request."""
        return self.server * self.seconds / self.requests


def load(server: ServiceProcess, requests: Sequence[bytes], connections: int) -> LoadResult:
    """Send all requests from a separate process; any reply but success is an error."""
    before = server.processor_seconds()
    here, there = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.get_context("fork").Process(
        target=_worker, args=(there, server.port, requests, connections)
    )
    worker.start()
    there.close()
    try:
        received: Any = here.recv()
    finally:
        worker.join()
    if isinstance(received, str):
        raise RuntimeError(received)
    used = server.processor_seconds() - before
    return LoadResult(len(requests), *received, server=used / received[0])


def _worker(pipe: Any, port: int, requests: Sequence[bytes], connections: int) -> None:
    import uvloop

    took: list[float] = []
    bad: list[bytes] = []

    async def all_links() -> float:
        loop, waiting = asyncio.get_running_loop(), iter(requests)
        began = time.perf_counter()
        links = [
            await loop.create_connection(lambda: LoadLink(waiting, took, bad), "127.0.0.1", port)
            for _ in range(connections)
        ]
        await asyncio.gather(*(link.done for _, link in links))
        return time.perf_counter() - began

    try:
        busy = time.process_time()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seconds = runner.run(all_links())
        client = (time.process_time() - busy) / seconds
        said = f"{len(bad)} requests failed, the first: {bad[0]!r}" if bad else ""
        pipe.send(said or (seconds, took, client))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


# --- the server, and its requests ----------------------------------------------------------------


class ServiceProcess:
    """A server process on a database that was prepared before it started."""

    def __init__(self, url: str, secret: Path) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]
        arguments = ["--serve", url, str(secret), str(self.port)]
        self.process = subprocess.Popen([sys.executable, __file__, *arguments])
        for _ in range(3000):
            try:
                health = f"http://127.0.0.1:{self.port}/v1/health"
                urllib.request.urlopen(health, timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server did not start")

    def memory(self) -> float:
        """Resident memory of the server, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def processor_seconds(self) -> float:
        """Time of a processor that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def serve(url: str, secret: str, port: str) -> None:
    """Serve; called in the server's process."""
    from tacit.apps.service.app import Limits
    from tacit.apps.service.server import Listener, serve
    from tacit.apps.service.store import Store

    limits = Limits(rate=math.inf, token_rate=math.inf)
    serve(Store.open(url, Path(secret)), Listener(port=int(port)), limits=limits)


@dataclass
class Supply:
    """A campaign with tokens, and valid reports to send under them."""

    path: str
    artifact: str
    tokens: Iterator[str]
    reports: Iterator[list[int]]

    @classmethod
    def prepare(cls, url: str, secret: Path, people: int, held: int = 0) -> Supply:
        import numpy as np
        from sklearn.datasets import load_digits

        import tacit
        from tacit.apps.service.store import Store

        images, digits = load_digits(return_X_y=True)
        mechanism = tacit.Codebook(epsilon=4, codewords=20, classes=10, unit="person")
        mechanism.fit(images[:400], image=(8, 8), inhouse_public=True)
        store = Store.open(url, secret)
        campaign, _ = store.create(mechanism, title="Load", purpose="A measurement", labelled=True)
        tokens: list[str] = []
        while len(tokens) < people:
            tokens += store.invite(campaign.id, min(100_000, people - len(tokens)))
        preload(store, campaign.id, held)
        store.engine.dispose()
        secrets.SystemRandom().shuffle(tokens)
        symbols = np.resize(mechanism.encode(images) * 10 + digits, people)
        drawn = mechanism.channel(True).symbols.release(symbols)
        path = f"/v1/campaigns/{campaign.id}/reports"
        return cls(path, campaign.fingerprint, iter(tokens), iter(drawn.tolist()))

    def batches(self, count: int) -> list[bytes]:
        return [self._request(f"{self.path}/batch", self._batch()) for _ in range(count)]

    def singles(self, count: int) -> list[bytes]:
        return [self._single() for _ in range(count)]

    def _batch(self) -> dict[str, Any]:
        chosen = zip(islice(self.tokens, BATCH), islice(self.reports, BATCH), strict=True)
        items = [{"token": token, "report": {"symbols": drawn}} for token, drawn in chosen]
        return {"artifact": self.artifact, "reports": items}

    def _single(self) -> bytes:
        body = {"artifact": self.artifact, "report": {"symbols": next(self.reports)}}
        return self._request(self.path, body, f"Authorization: Bearer {next(self.tokens)}\r\n")

    def _request(self, path: str, body: dict[str, Any], header: str = "") -> bytes:
        content = json.dumps(body, separators=(",", ":")).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{header}"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def preload(store: Any, name: str, count: int) -> None:
    """Store reports of that many people directly, as if they had been collected long ago."""
    import sqlalchemy as sql

    from tacit.apps.service import tables

    def rows() -> list[bytes]:
        return sorted(secrets.token_bytes(16) for _ in range(count))

    with store.engine.begin() as connection:
        number = connection.execute(sql.select(tables.number_of(name))).scalar()
        held = [(row, number, 0, 1, secrets.token_bytes(3)) for row in rows()]
        invited = [(row, number) for row in rows()]
        _bulk(connection, "answers", ("row", "campaign", "kind", "round", "content"), held)
        _bulk(connection, "invitations", ("row", "campaign"), invited)
        counted = tables.campaigns.c.reports
        connection.execute(tables.campaigns.update().values({counted: counted + count}))
    if store.engine.dialect.name == "postgresql":
        alone = store.engine.execution_options(isolation_level="AUTOCOMMIT")
        with alone.connect() as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
            connection.exec_driver_sql("CHECKPOINT")


def _bulk(connection: Any, table: str, columns: Sequence[str], rows: list[Any]) -> None:
    """Insert rows in the fastest way that the database has."""
    named = ", ".join(f'"{name}"' for name in columns)
    driver = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        driver.executemany(f"INSERT INTO {table} ({named}) VALUES ({marks})", rows)
        return
    types = {"row": "bytea", "content": "bytea", "campaign": "int4"}
    with driver.cursor().copy(f"COPY {table} ({named}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types([types.get(name, "int2") for name in columns])
        for row in rows:
            copy.write_row(row)


# --- measurements --------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadPlan:
    """Numbers of empty POSTs, batches and single reports in a round, by number of connections."""

    rounds: int
    sent: dict[int, tuple[int, int, int]]
    memory: int
    held: int = 1_000_000

    @classmethod
    def of(cls, quick: bool) -> LoadPlan:
        if quick:
            return cls(2, {1: (500, 20, 100), 16: (2000, 60, 600), 64: (3000, 100, 1500)}, 50_000)
        sent = {1: (2000, 100, 300), 16: (6000, 250, 2000), 64: (8000, 300, 4000)}
        return cls(5, sent, 1_000_000)

    @property
    def people(self) -> int:
        each = sum(batches * BATCH + singles for _, batches, singles in self.sent.values())
        return (self.rounds + 1) * each


def rounds(server: ServiceProcess, supply: Supply, plan: LoadPlan) -> dict[str, Any]:
    """Return, by number of connections, medians over rounds and the latencies of all rounds."""
    summaries: dict[str, Any] = {}
    for connections, (empty, batches, singles) in plan.sent.items():
        seen: dict[str, list[LoadResult]] = {kind: [] for kind in KINDS}
        for number in range(plan.rounds + 1):
            for kind, requests in (
                ("empty", [EMPTY] * empty),
                ("batch", supply.batches(batches)),
                ("single", supply.singles(singles)),
            ):
                one = load(server, requests, connections)
                if number:  # the first round warms up
                    seen[kind].append(one)
        summaries[str(connections)] = _summary(seen)
    return summaries


def _summary(seen: dict[str, list[LoadResult]]) -> dict[str, Any]:
    def ratio(kind: str, each: int) -> float:
        pairs = zip(seen[kind], seen["empty"], strict=True)
        return statistics.median(each * one.rate / empty.rate for one, empty in pairs)

    def work(kind: str, each: int) -> float:
        pairs = zip(seen[kind], seen["empty"], strict=True)
        return statistics.median(each * empty.cost / one.cost for one, empty in pairs)

    said: dict[str, Any] = {
        "batch_over_empty_post": round(ratio("batch", BATCH), 2),
        "single_over_empty_post": round(ratio("single", 1), 3),
        "batch_over_empty_post_work": round(work("batch", BATCH), 2),
        "single_over_empty_post_work": round(work("single", 1), 3),
    }
    for kind, each in zip(KINDS, (1, BATCH, 1), strict=True):
        runs = seen[kind]
        took = sorted(value for one in runs for value in one.latencies)
        name = "requests" if kind == "empty" else "reports"
        said[kind] = {
            f"{name}_per_second": round(statistics.median(each * one.rate for one in runs)),
            "p50_ms": round(1000 * took[len(took) // 2], 2),
            "p99_ms": round(1000 * took[int(0.99 * len(took))], 2),
            "client": round(statistics.median(one.client for one in runs), 2),
            "server": round(statistics.median(one.server for one in runs), 2),
        }
    return said


def bulk_insert(url: str, count: int) -> float:
    """Measure rows per second of the database alone: same columns, one transaction, bulk insert."""
    rows = sorted((secrets.token_bytes(16), 1, 0, secrets.token_bytes(3)) for _ in range(count))
    make = (
        'CREATE TABLE bulk ("row" {0} NOT NULL PRIMARY KEY, campaign INTEGER NOT NULL, '
        "kind SMALLINT NOT NULL, content {0} NOT NULL)"
    )
    if url.startswith("sqlite"):
        import sqlite3

        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(make.format("BLOB") + " WITHOUT ROWID")
            began = time.perf_counter()
            connection.executemany("INSERT INTO bulk VALUES (?, ?, ?, ?)", rows)
            connection.commit()
            return count / (time.perf_counter() - began)
    import psycopg

    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute(make.format("BYTEA"))
        connection.commit()
        began = time.perf_counter()
        with connection.cursor().copy("COPY bulk FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["bytea", "int4", "int2", "bytea"])
            for row in rows:
                copy.write_row(row)
        connection.commit()
        return count / (time.perf_counter() - began)


def growth(url: str, secret: Path, reports: int) -> tuple[float, dict[str, Any]]:
    """Measure the growth of the server's memory in a million reports, in MB, after a warm-up."""
    supply = Supply.prepare(url, secret, reports + 20 * BATCH * 10)
    server = ServiceProcess(url, secret)
    try:
        load(server, supply.batches(200), 16)
        before, seen = server.memory(), []
        for _ in range(10):
            load(server, supply.batches(reports // BATCH // 10), 16)
            seen.append(round(server.memory(), 1))
    finally:
        server.stop()
    each = (seen[-1] - before) * 1_000_000 / reports
    said = {"reports": reports, "before_mb": round(before, 1), "after_mb": seen}
    return each, {**said, "extrapolated": reports < 1_000_000}


def measure(name: str, url: str, secret: Path, plan: LoadPlan) -> dict[str, Any]:
    """Measure everything on one database."""
    supply = Supply.prepare(url, secret, plan.people, plan.held)
    server = ServiceProcess(url, secret)
    try:
        measured = rounds(server, supply, plan)
    finally:
        server.stop()
    bulk = bulk_insert(url, 50_000)
    measured["bulk_insert_rows_per_second"] = round(bulk)
    for connections in plan.sent:
        one = measured[str(connections)]
        one["batch_over_bulk_insert"] = round(one["batch"]["reports_per_second"] / bulk, 3)
    print(f"{name}: {json.dumps(measured)}", file=sys.stderr)
    return measured


@contextmanager
def databases(folder: Path) -> Iterator[dict[str, str]]:
    """Yield addresses of fresh databases, with PostgreSQL if it is installed."""
    import postgres

    urls = {"sqlite": f"sqlite:///{folder / 'campaign.db'}"}
    with ExitStack() as stack:
        if postgres.present():
            urls["postgresql"] = stack.enter_context(postgres.started()).create()
        else:
            print(postgres.ABSENT, file=sys.stderr)
        yield urls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer requests; memory is extrapolated"
    )
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=["sqlite", "postgresql"], help="measure one database")
    parser.add_argument("--held", type=int, default=1_000_000, help="reports in the table before")
    parser.add_argument("--connections", type=int, choices=CONNECTIONS, help="only this many")
    parser.add_argument("--no-memory", action="store_true", help="do not send the million reports")
    args = parser.parse_args()
    if args.serve:
        return serve(*args.serve)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    plan, details, result = LoadPlan.of(args.quick), {"load": [round(os.getloadavg()[0], 1)]}, {}
    measured: list[dict[str, Any]] = []
    sent = {args.connections: plan.sent[args.connections]} if args.connections else plan.sent
    plan = replace(plan, held=args.held, sent=sent)
    with tempfile.TemporaryDirectory() as name, databases(Path(name)) as urls:
        for database in ("sqlite", "postgresql"):
            if database in urls and args.only in (None, database):
                secret = Path(name) / f"{database}.secret"
                details[database] = measure(database, urls[database], secret, plan)
                measured.append(details[database])
            most = details.get(database, {}).get("64", {})
            for kind in ("batch", "single"):
                ratio = f"{kind}_over_empty_post"
                result[f"{ratio}_{database}_64"] = most.get(ratio)
        latencies = [one["64"]["single"]["p99_ms"] for one in measured if "64" in one]
        result["p99_ms_64"] = max(latencies, default=None)
        result["memory_growth_mb_per_million"] = None
        if not args.no_memory:
            where = Path(name) / "memory.db"
            each, said = growth(f"sqlite:///{where}", Path(f"{where}.secret"), plan.memory)
            result["memory_growth_mb_per_million"] = round(each, 1)
            details["memory"] = said
    details["processors"] = os.cpu_count()
    details["load"].append(round(os.getloadavg()[0], 1))
    print(json.dumps({**result, "details": details}))


if __name__ == "__main__":
    main()
