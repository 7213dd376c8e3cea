"""Several processes charge one account, and some of them are killed: real processes, kill -9."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from fractions import Fraction

import pytest

from tacit.privacy import errors, events
from tacit.privacy.accounting import ledger_file
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import PureDP

SCOPE = {"adjacency": "replace-one", "unit": "person"}
PROCESSES = 8

NURSERY = """
import json, os, signal, sys, time, traceback
from fractions import Fraction
from tacit import errors, events
from tacit.accounting.ledger import Ledger

def draw(epsilon):
    scale = 2 / Fraction(str(epsilon))
    return events.Exponential(1, scale, adjacency="replace-one", unit="person")

def say(*words):
    os.write(1, json.dumps(words).encode() + b"\\n")  # One write: lines do not mix.

def work(path, epsilon, keys):
    repeated = []
    with Ledger(path) as ledger:
        for key in keys:
            try:
                repeated.append(ledger.charge("a", draw(epsilon), key=key).repeated)
            except errors.BudgetExceeded:
                pass
    say(repeated)

def stop_inside(path, stop_at):
    seen = []
    def watch(statement):  # SQLite calls it just before it runs the statement.
        seen.append(statement.split()[0])
        if statement.startswith(stop_at) and "INSERT" in seen:
            say(os.getpid(), seen)
            time.sleep(600)
    with Ledger(path) as ledger:
        ledger._file.db.set_trace_callback(watch)
        ledger.charge("a", draw("0.25"), key="interrupted")

def charge_on(path):
    say(os.getpid())
    with Ledger(path) as ledger:
        for number in range(10**6):
            say(number, ledger.charge("a", draw("0.001"), key=str(number)).repeated)

# Forked before any ledger is open, and after the imports, which take longest.
for line in sys.stdin:
    job, count, *arguments = json.loads(line)
    start = time.monotonic() + 0.02 * count
    for _ in range(count):
        if os.fork() == 0:
            signal.alarm(60)  # Whatever a failing test leaves behind ends.
            try:
                time.sleep(max(start - time.monotonic(), 0))
                globals()[job](*arguments)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
    say("ended", [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(count)])
"""


class Nursery:
    """Starts processes that do one of the jobs above; they answer on one pipe."""

    def __init__(self, process):
        self._process = process
        self.busy = False

    def start(self, job, count, *arguments):
        self.busy = True
        self._process.stdin.write(json.dumps([job, count, *arguments]) + "\n")
        self._process.stdin.flush()

    def hear(self):
        words = self._line()
        assert words[0] != "ended", words
        return words

    def rest(self):
        """What is still said until all have ended, and how they ended."""
        said = []
        while (words := self._line())[0] != "ended":
            said.append(words)
        return said, words[1]

    def _line(self):
        line = self._process.stdout.readline()
        assert line, "the nursery ended without an answer"
        words = json.loads(line)
        self.busy = words[0] != "ended"
        return words

    def work(self, *arguments):
        """The same work in several processes at once: what was charged by each."""
        self.start("work", PROCESSES, *arguments)
        said, codes = self.rest()
        assert codes == [0] * PROCESSES
        return [repeated for (repeated,) in said]


@pytest.fixture(scope="module")
def shared_nursery():
    command = [sys.executable, "-c", NURSERY]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipe) as process:
        yield Nursery(process)
        process.kill()


@pytest.fixture
def nursery(shared_nursery):
    yield shared_nursery
    if shared_nursery.busy:  # The test has failed midway: the next one starts afresh.
        shared_nursery.rest()


@pytest.fixture
def path(tmp_path):
    """A ledger with an account "a" of epsilon 1."""
    file = tmp_path / "ledger.db"
    with Ledger(file) as ledger:
        ledger.open("a", PureDP(epsilon=1.0, **SCOPE))
    return str(file)


def draw(epsilon):
    return events.Exponential(1, 2 / Fraction(str(epsilon)), **SCOPE)


def show(path):
    with Ledger(path) as ledger:
        return ledger.show("a")


def test_processes_together_spend_the_budget_and_no_more(nursery, path):
    answers = nursery.work(path, "0.05", [None] * 20)
    assert sum(map(len, answers)) == 20
    account = show(path)
    assert account.remaining["epsilon"] == 0
    assert account.spent["epsilon"] == 1
    assert len(account.charges) == 20


def test_one_key_from_all_processes_is_charged_once(nursery, path):
    keys = [f"key {number}" for number in range(10)]
    answers = nursery.work(path, "0.01", keys)
    assert [len(answer) for answer in answers] == [10] * PROCESSES
    for repeated in zip(*answers, strict=True):
        assert repeated.count(False) == 1
    account = show(path)
    assert sorted(charge.key for charge in account.charges) == keys
    assert account.remaining["epsilon"] == Fraction(9, 10)


def test_processes_may_create_the_file_together(nursery, tmp_path):
    for attempt in range(10):
        file = str(tmp_path / f"{attempt}.db")
        assert nursery.work(file, "0.1", []) == [[]] * PROCESSES
        with Ledger(file) as ledger:
            assert ledger.accounts() == []


def test_nobody_charges_between_the_look_and_the_charge(path):
    """The race that overdraws, on purpose: a rival charges after we saw what is left."""
    outcome = []

    def rival():
        with Ledger(path) as ledger:
            try:
                outcome.append(ledger.charge("a", draw("0.6")))
            except errors.BudgetExceeded as refusal:
                outcome.append(refusal)

    thread = threading.Thread(target=rival)

    def watch(statement):
        if statement.startswith("INSERT"):
            thread.start()
            thread.join(0.5)

    with Ledger(path) as ledger:
        ledger._file.db.set_trace_callback(watch)
        ledger.charge("a", draw("0.6"))
    thread.join()
    assert [type(one) for one in outcome] == [errors.BudgetExceeded]
    assert show(path).spent["epsilon"] == Fraction(3, 5)


@pytest.mark.parametrize("stop_at", ["UPDATE accounts", "COMMIT"])
def test_killed_inside_a_charge_leaves_nothing(nursery, path, stop_at, monkeypatch):
    nursery.start("stop_inside", 1, path, stop_at)
    process, seen = nursery.hear()
    assert "INSERT" in seen
    with (
        closing(sqlite3.connect(path, timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("BEGIN IMMEDIATE")
    os.kill(process, signal.SIGKILL)
    assert nursery.rest() == ([], [-signal.SIGKILL])
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0)  # no lock is left to wait for
    account = show(path)
    assert account.charges == ()
    assert account.spent["epsilon"] == 0
    with Ledger(path) as ledger:
        assert not ledger.charge("a", draw("0.75")).repeated
        assert not ledger.charge("a", draw("0.25"), key="interrupted").repeated
        assert ledger.charge("a", draw("0.25"), key="interrupted").repeated
        assert ledger.show("a").remaining["epsilon"] == 0


@pytest.mark.heavy
def test_killed_at_random_moments_loses_and_doubles_nothing(nursery, path):
    rng, charged = random.Random(7), 0
    for _ in range(20):
        nursery.start("charge_on", 1, path)
        (process,) = nursery.hear()
        # Once it makes charges of its own, strike somewhere inside one of the next.
        said = [nursery.hear()]
        while said[-1][1]:
            said.append(nursery.hear())
        time.sleep(rng.uniform(0, 0.01))
        os.kill(process, signal.SIGKILL)
        more, codes = nursery.rest()
        assert codes == [-signal.SIGKILL]
        said += more
        account = show(path)  # It checks that the total is the sum of the charges.
        keys = [charge.key for charge in account.charges]
        assert keys == [str(number) for number in range(len(keys))]
        # Whatever was acknowledged is there; at most one charge had no time to be.
        assert 0 <= len(keys) - len(said) <= 1
        assert [number for number, repeated in said if repeated] == list(range(charged))
        assert account.remaining["epsilon"] == 1 - Fraction(len(keys), 1000)
        charged = len(keys)
    assert charged >= 20
