"""One budget for all that a person sends: exact, once, for several processes, and fixed prices."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

import tacit
from tacit.privacy import errors
from tacit.privacy.accounting.device_ledger import DEFAULT_BUDGET, LARGEST_DELTA

LOCAL = {"adjacency": "any-two-inputs", "unit": "person"}


def price(epsilon, **changed):
    return tacit.PureDP(epsilon, **{**LOCAL, **changed})


@pytest.fixture(name="path")
def _path(tmp_path):
    return tmp_path / "ledger.sqlite"


def test_sums_are_exact_and_the_next_charge_is_refused(path):
    ledger = tacit.DeviceLedger(path, budget=1)
    for number in range(10):
        assert ledger.charge(price(0.1), key=f"report {number}")
    assert ledger.balance().remaining == 0
    with pytest.raises(errors.BudgetExceeded) as refusal:
        ledger.charge(price(1e-9), key="one more")
    assert "\n" not in str(refusal.value)
    assert "what is left of this person's budget of 1" in str(refusal.value)
    assert "Nothing was drawn." in str(refusal.value)
    assert ledger.balance().spent == 1
    assert ledger.guarantee.epsilon == 1


def test_a_draw_is_charged_once(path):
    ledger = tacit.DeviceLedger(path, budget=8)
    assert ledger.charge(price(3), key="report") is True
    assert tacit.DeviceLedger(path).charge(price(3), key="report") is False
    assert ledger.balance().spent == 3
    with pytest.raises(errors.LedgerError, match="key must be new or repeat"):
        ledger.charge(price(2), key="report")  # another price is another draw


def test_the_unit_of_a_report_does_not_matter_but_its_neighbours_do(path):
    ledger = tacit.DeviceLedger(path)
    ledger.charge(price(1, unit="record"), key="a row")
    ledger.charge(price(1, unit="label"), key="a label")
    assert ledger.balance().spent == 2
    with pytest.raises(errors.InvalidParameter, match="a local guarantee"):
        ledger.charge(price(1, adjacency="replace-one"), key="central")
    for unknown in (tacit.Unproven(reason="?", **LOCAL), tacit.NotPrivate(**LOCAL)):
        with pytest.raises(errors.InvalidParameter, match="price must be a guarantee in ε"):
            ledger.charge(unknown, key="unknown")


def test_delta_adds_up_too(path):
    ledger = tacit.DeviceLedger(path, budget=100)
    gaussian = tacit.ApproxDP(1, LARGEST_DELTA / 2, **LOCAL)
    ledger.charge(gaussian, key="a")
    ledger.charge(gaussian, key="b")
    with pytest.raises(errors.BudgetExceeded, match="delta must be at most 0"):
        ledger.charge(gaussian, key="c")


def test_a_budget_stays_until_the_person_sets_another(path):
    assert tacit.DeviceLedger(path).balance().budget == DEFAULT_BUDGET
    assert tacit.DeviceLedger(path, budget=5).balance().budget == 5
    ledger = tacit.DeviceLedger(path)
    ledger.charge(price(4), key="a")
    assert ledger.balance().remaining == 1
    with pytest.raises(
        errors.InvalidParameter, match=r"DeviceLedger: budget must be at least 4, which is spent"
    ):
        tacit.DeviceLedger(path, budget=3)
    assert [sorted(one) for one in ledger.entries()] == [
        ["budget", "reason", "time"],
        ["budget", "reason", "time"],
        ["epsilon", "key", "time"],
    ]
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(errors.InvalidParameter, match="budget must be"):
            tacit.DeviceLedger(path, budget=wrong)


def test_asking_charges_nothing(path):
    ledger = tacit.DeviceLedger(path, budget=2)
    ledger.must_afford(price(2))
    with pytest.raises(errors.BudgetExceeded):
        ledger.must_afford(price(2.001))
    assert ledger.balance().spent == 0


def test_another_ledger_is_refused(path):
    with tacit.Ledger(path) as made:
        made.open("this person", tacit.PureDP(1.0, adjacency="zero-out", unit="person"))
    with pytest.raises(errors.InvalidParameter, match="a device ledger"):
        tacit.DeviceLedger(path)


def test_threads_share_a_budget(path):
    ledger = tacit.DeviceLedger(path, budget=5)

    def charge(number):
        try:
            return ledger.charge(price(1), key=f"report {number // 2}")
        except errors.BudgetExceeded:
            return None

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(charge, range(20)))
    assert outcomes.count(True) == 5
    assert ledger.balance().spent == 5


_CHARGER = """
import sys, tacit
ledger = tacit.DeviceLedger(sys.argv[1], budget=1000)
price = tacit.PureDP(0.5, adjacency="any-two-inputs", unit="person")
print("ready", flush=True)
for number in range(100_000):
    ledger.charge(price, key=f"{sys.argv[2]} {number}")
    print(number, flush=True)
"""


def test_processes_that_are_killed_lose_no_charge(path: Path) -> None:
    """What was said to be charged is on disk; at most one more was on its way."""
    made = [
        subprocess.Popen([sys.executable, "-c", _CHARGER, path, str(n)], stdout=subprocess.PIPE)
        for n in range(2)
    ]
    for process in made:
        assert process.stdout is not None
        for _ in range(8):
            process.stdout.readline()
        process.kill()
    said = 0
    for process in made:
        assert process.stdout is not None
        said += 7 + len(process.stdout.read().split())
        process.wait()
        process.stdout.close()
    balance = tacit.DeviceLedger(path).balance()
    assert balance.spent == Fraction(balance.charges, 2)
    assert said <= balance.charges <= said + 2
