"""Kills of server processes under load, with backups and restores: is anything lost or doubled?

    python benchmarks/kills.py [--kills 100] [--processes 3] [--only sqlite|postgresql]

On each database, several server processes take single reports, batches and withdrawals from six
senders. Again and again one of the processes is killed (SIGKILL), and every tenth time all of them;
then PostgreSQL is stopped as if the machine had died, too. Senders send again, byte for byte and to
whichever process, what got no answer. Every quarter of the kills, a backup is made while reports
arrive; all servers are killed, the backup is restored into a new database, the servers go on with
that, and what was acknowledged since the backup is sent again, as devices that keep their draws do.

After each kill it compares the database with what was acknowledged, and after each tenth one, with
the senders waiting, with all that was sent. It prints one JSON object; the exit code is 1 if an
acknowledged report or withdrawal was missing, if a report was stored that nobody sent, if a token
got two receipts, or if a count is not that of the rows.

A kill ends processes, not the machine: what the operating system holds in memory survives it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "apps" / "service"))

import postgres

from service import Supply, serve

SENDERS, PAUSE = 6, 0.04
SIZES = (*[1] * 60, *[20] * 4, 600)
"""Reports of a request. From 512 on, SQLite appends them to a log and PostgreSQL copies them."""
WITHDRAWN = 0.05
PEOPLE_PER_KILL = 6000
Item = tuple[str, list[int]]


@dataclass
class Known:
    """What the senders know: what they sent, what was acknowledged, and what was not answered."""

    reports: dict[str, list[int]] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    receipts: dict[str, str] = field(default_factory=dict)
    withdrawing: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    doubled: list[str] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, token: str, receipt: str) -> None:
        with self.lock:
            if self.receipts.setdefault(token, receipt) != receipt:
                self.doubled.append(token)

    def state(self) -> tuple[set[str], set[str]]:
        """Return the tokens whose reports and whose withdrawals were acknowledged."""
        with self.lock:
            return set(self.receipts), set(self.withdrawn)


class Server:
    """A process that serves, forked from one that has loaded everything: that takes a moment."""

    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["service", "uvicorn", "tacit.apps.service.server"])

    def __init__(self, url: str, secret: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]
        arguments = (url, str(secret), str(self.port))
        self.process = self.forks.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        for _ in range(3000):
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            try:
                link.request("GET", "/v1/live")
                if link.getresponse().status == 200:
                    return
            except OSError:
                time.sleep(0.05)
            finally:
                link.close()
        raise RuntimeError("the server did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


class Servers:
    """Server processes on one database."""

    def __init__(self, url: str, secret: Path, count: int) -> None:
        self.url, self.secret, self.count = url, secret, count
        self.pool = ThreadPoolExecutor(count)
        self.running: list[Server | None] = []
        self.start()

    def start(self) -> None:
        self.running = list(self.pool.map(lambda _: self._new(), range(self.count)))

    def _new(self) -> Server:
        return Server(self.url, self.secret)

    def port(self) -> int | None:
        alive = [one.port for one in self.running if one is not None]
        return random.choice(alive) if alive else None

    def kill(self, at: int) -> None:
        one, self.running[at] = self.running[at], None
        if one is not None:
            one.kill()

    def kill_all(self) -> None:
        for at in range(self.count):
            self.kill(at)

    def replace(self, at: int) -> Future[None]:
        def work() -> None:
            self.running[at] = self._new()

        return self.pool.submit(work)


class Senders:
    """Threads that send reports and withdrawals to any process, until they are told to wait."""

    def __init__(self, path: str, artifact: str, known: Known, items: Iterator[Item]) -> None:
        self.path, self.artifact, self.known, self.items = path, artifact, known, items
        self.servers: Servers | None = None
        self.again: SimpleQueue[list[str]] = SimpleQueue()
        self._taking = threading.Lock()
        self._go, self._end = threading.Event(), False
        self._idle = threading.Semaphore(0)
        for _ in range(SENDERS):
            threading.Thread(target=self._run, daemon=True).start()

    @contextmanager
    def sending(self, servers: Servers) -> Iterator[None]:
        """Let them send; at the end all have stopped."""
        self.servers = servers
        self._go.set()
        yield
        self._go.clear()
        for _ in range(SENDERS):
            self._idle.acquire()

    def _run(self) -> None:
        while True:
            self._go.wait()
            while self._go.is_set():
                self.report(self._taken())
                time.sleep(PAUSE)
            self._idle.release()
            while not self._go.is_set():
                time.sleep(0.01)

    def _taken(self) -> list[str]:
        try:
            return self.again.get_nowait()
        except Empty:
            pass
        with self._taking:
            some = list(islice(self.items, random.choice(SIZES)))
        with self.known.lock:
            self.known.reports.update(some)
        return [token for token, _ in some]

    def report(self, tokens: list[str]) -> None:
        """Send reports, and withdraw a few of them."""
        known = self.known
        if not tokens:
            known.problems["no people are left"] += 1
            return
        with known.lock:
            known.sent.update(tokens)
        body: dict[str, Any] = {"artifact": self.artifact}
        single = len(tokens) == 1
        if single:
            body["report"] = {"symbols": known.reports[tokens[0]]}
        else:
            items = [{"token": one, "report": {"symbols": known.reports[one]}} for one in tokens]
            body["reports"] = items
        said = self._post(
            self.path + ("" if single else "/batch"), body, tokens[0] if single else None
        )
        if said is None:
            known.unanswered += 1
            self.again.put(tokens)
            return
        for token, one in zip(tokens, said.get("results", [said]), strict=True):
            if (receipt := one.get("receipt")) is not None:
                known.acknowledge(token, receipt)
            elif one["problem"]["type"] != "tacit:withdrawn" or token not in known.withdrawing:
                known.problems[one["problem"]["type"]] += 1
        if single and random.random() < WITHDRAWN:
            self.withdraw(tokens[0])

    def withdraw(self, token: str, patient: bool = False) -> None:
        """Withdraw a report that was acknowledged, until that is acknowledged, too."""
        known = self.known
        if (receipt := known.receipts.get(token)) is None:
            return
        with known.lock:
            known.withdrawing.add(token)
        for _ in range(600):
            path = self.path.removesuffix("/reports") + "/withdrawals"
            said = self._post(path, {"receipt": receipt}, None)
            if said == {"withdrawn": True}:
                with known.lock:
                    known.withdrawn.add(token)
                return
            if said is not None:
                known.problems[said["problem"]["type"]] += 1
                return
            if not patient and not self._go.is_set():
                return
            time.sleep(0.05)

    def _post(self, path: str, body: Any, token: str | None) -> dict[str, Any] | None:
        """Return what a process answered; None if it gave no answer, or was not able to store."""
        assert self.servers is not None
        port = self.servers.port()
        if port is None:
            time.sleep(0.05)
            return None
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            link.request("POST", path, json.dumps(body), headers)
            answer = link.getresponse()
            said: dict[str, Any] = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(0.02)
            return None
        finally:
            link.close()
        if answer.status >= 500 or answer.status == 429:
            self.known.problems[said["type"]] += 1
            time.sleep(0.05)
            return None
        return said if answer.status in (200, 201) else {"problem": said}


class Trial:
    """One database, its servers and senders, and what was found missing or too much."""

    def __init__(self, url: str, folder: Path, processes: int, kills: int, database: Any) -> None:
        from tacit.apps.service.store import Store

        self.folder, self.kills, self.database = folder, kills, database
        self.secret = folder / "secret"
        supply = Supply.prepare(url, self.secret, PEOPLE_PER_KILL * kills + 20_000)
        self.name = supply.path.split("/")[3]
        self.known = Known()
        self.store = Store.open(url, self.secret)
        self.artifact = supply.artifact
        mechanism = self.store.campaign(self.name)
        self.form = self.store._form("report", mechanism)
        items = zip(supply.tokens, supply.reports, strict=False)
        self.senders = Senders(supply.path, supply.artifact, self.known, items)
        self.servers = Servers(url, self.secret, processes)
        self.found: Counter[str] = Counter()
        self._packed: dict[str, tuple[bytes, bytes]] = {}

    # --- comparisons ---------------------------------------------------------------------------

    def _rows(self, tokens: set[str]) -> dict[bytes, bytes]:
        """Return the rows and contents that these reports have in the database."""
        listed = list(tokens - self._packed.keys())
        places = self.store.secret.rows(self.name, listed)
        with self.known.lock:
            reports = [{"symbols": self.known.reports[one]} for one in listed]
        contents = self.form.pack(reports) if reports else []
        for token, place, content in zip(listed, places, contents, strict=True):
            self._packed[token] = place[1], content
        return dict(self._packed[token] for token in tokens)

    def compare(self, acknowledged: set[str], gone: set[str], *, waiting: bool = False) -> None:
        """Count what is missing and, if nobody is sending, what is too much."""
        import sqlalchemy as sql

        from tacit.apps.service import tables

        self.store.answers.merge()
        a, c = tables.answers.c, tables.campaigns.c
        with self.store.engine.connect() as connection:
            rows = connection.execute(sql.select(a.row, a.content)).all()
            query = sql.select(c.reports, c.withdrawn).where(c.id == self.name)
            counted = tuple(connection.execute(query).one())
        stored = {bytes(row): None if one is None else bytes(one) for row, one in rows}
        self.found["doubled"] = len(self.known.doubled)
        with self.known.lock:
            maybe_gone, sent = set(self.known.withdrawing), set(self.known.sent)
        for row, content in self._rows(acknowledged - maybe_gone).items():
            self.found["lost"] += stored.get(row, b"") != content
        for row in self._rows(gone):
            self.found["withdrawal lost"] += stored.get(row, b"") is not None
        if waiting:
            known = self._rows(sent)
            self.found["never sent"] += sum(
                row not in known or content not in (None, known[row])
                for row, content in stored.items()
            )
            empty = sum(content is None for content in stored.values())
            self.found["miscounted"] += counted != (len(stored) - empty, empty)

    def settle(self) -> None:
        """Wait until everything that was sent is acknowledged, and compare it all."""
        with self.senders.sending(self.servers):
            time.sleep(0.2)
        while True:
            try:
                self.senders.report(self.senders.again.get_nowait())
            except Empty:
                break
        acknowledged, gone = self.known.state()
        self.compare(acknowledged, gone, waiting=True)
        missing = self.known.sent - acknowledged
        self.found["never acknowledged"] += len(missing)

    # --- what happens --------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        began, backups = time.monotonic(), 0
        for number in range(1, self.kills + 1):
            everything = number % 10 == 0
            with self.senders.sending(self.servers):
                self._wait_for(30)
                back = self.kill(everything)
                self.compare(*self.known.state())
                for one in back:
                    one.result()
            if everything:
                self.settle()
                print(f"{number} kills: {dict(self.found)}", file=sys.stderr, flush=True)
            if number % max(self.kills // 4, 1) == 0:
                self.replace_by_backup(backups := backups + 1)
        self.settle()
        self.servers.kill_all()
        self.store.engine.dispose()
        acknowledged, gone = self.known.state()
        return {
            "kills": self.kills,
            "backups_restored": backups,
            "acknowledged": len(acknowledged),
            "withdrawals": len(gone),
            "requests_without_an_answer": self.known.unanswered,
            "problems": dict(self.known.problems),
            "seconds": round(time.monotonic() - began),
            **{name: self.found[name] for name in WRONG},
        }

    def _wait_for(self, more: int) -> None:
        target = len(self.known.receipts) + more
        while len(self.known.receipts) < target:
            if self.known.problems["no people are left"]:
                raise RuntimeError("no people are left: raise PEOPLE_PER_KILL")
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.3))

    def kill(self, everything: bool) -> list[Future[None]]:
        """Kill one process, or all and PostgreSQL with them; return what brings them back."""
        if not everything:
            at = random.randrange(self.servers.count)
            self.servers.kill(at)
            return [self.servers.replace(at)]
        self.servers.kill_all()
        if self.database is not None:
            self.store.engine.dispose()
            self.database.stop("immediate")
            self.database.start()
        return [self.servers.replace(at) for at in range(self.servers.count)]

    def replace_by_backup(self, number: int) -> None:
        """Make a backup under load, kill everything, and go on with the backup."""
        from tacit.apps.service import backups
        from tacit.apps.service.store import Store

        file = self.folder / f"backup-{number}"
        with self.senders.sending(self.servers):
            self._wait_for(30)
            before, gone_before = self.known.state()
            backups.back_up(self.servers.url, file)
            self._wait_for(30)
            self.servers.kill_all()
        after, gone = self.known.state()
        url = f"sqlite:///{self.folder}/restored-{number}.db"
        if self.database is not None:
            url = self.database.create()
        backups.restore(file, url)
        self.store.engine.dispose()
        self.store = Store.open(url, self.secret)
        self.compare(before, gone_before)
        self.servers.url = url
        self.servers.start()
        self.senders.servers = self.servers
        since = sorted(after - before)
        for start in range(0, len(since), 500):
            self.senders.again.put(since[start : start + 500])
        # What was withdrawn since the backup is back, or was sent again: both are withdrawn anew.
        self.settle_withdrawals(sorted(gone - gone_before))
        self.settle()

    def settle_withdrawals(self, tokens: list[str]) -> None:
        with self.known.lock:
            self.known.withdrawn.difference_update(tokens)
        for token in tokens:
            self.senders.withdraw(token, patient=True)


WRONG = ("lost", "doubled", "never sent", "miscounted", "withdrawal lost", "never acknowledged")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="on each database")
    parser.add_argument("--processes", type=int, default=3, help="servers of each database")
    parser.add_argument("--only", choices=["sqlite", "postgresql"], help="try one database")
    args = parser.parse_args()
    kinds = [args.only] if args.only else ["sqlite", "postgresql"]
    good = True
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        for kind in kinds:
            folder, database = Path(name) / kind, None
            folder.mkdir()
            url = f"sqlite:///{folder}/campaign.db"
            if kind == "postgresql":
                if not postgres.present():
                    sys.exit(postgres.ABSENT)
                database = stack.enter_context(postgres.started())
                url = database.create()
            said = Trial(url, folder, args.processes, args.kills, database).run()
            good = good and not any(said[name] for name in WRONG)
            print(json.dumps({kind: said}), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
