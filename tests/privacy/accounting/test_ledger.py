"""Accounts, notions, refusals and files. Several processes: test_ledger_processes.py."""

import math
import os
import random
import sqlite3
import tempfile
import threading
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from tacit.privacy import errors, events
from tacit.privacy.accounting import ledger_file
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.filters import limits_of, spent_as
from tacit.privacy.accounting.ledger import BudgetChange, Ledger
from tacit.privacy.accounting.privacy_loss import renyi_of
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import (
    ZCDP,
    ApproxDP,
    ConcentratedDP,
    NotPrivate,
    PureDP,
    RenyiDP,
    Unproven,
)
from tacit.privacy.rounding import float_above

SCOPE = {"adjacency": "add-remove", "unit": "record"}
ORDERS = (1.5, 2.0, 8.0, 64.0)


def pure(epsilon):
    return PureDP(epsilon=epsilon, **SCOPE)


def approx(epsilon, delta):
    return ApproxDP(epsilon=epsilon, delta=delta, **SCOPE)


def zcdp(rho, xi=0.0):
    return ZCDP(xi=xi, rho=rho, **SCOPE)


def curve(*epsilons, orders=ORDERS):
    return RenyiDP(orders=orders, epsilons=epsilons, **SCOPE)


def draw(epsilon):
    return events.Exponential(1, 2 / Fraction(str(epsilon)), **SCOPE)


def gaussian(sigma):
    return events.Gaussian(1, sigma, **SCOPE)


def sgd(sigma, steps=10):
    return events.Repeated(events.PoissonSampled(0.01, gaussian(sigma)), steps)


def contents(path):
    """Every row of every table, as text."""
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def execute(path, statement):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    with Ledger(path) as opened:
        yield opened


def refuses(ledger, path, expected, match, event, account="a", **options):
    before = contents(path)
    with pytest.raises(expected, match=match) as caught:
        ledger.charge(account, event, **options)
    assert "\n" not in str(caught.value)
    assert contents(path) == before


# Sums


def test_ten_tenths_are_one(ledger, path):
    ledger.open("a", pure(1.0))
    for _ in range(10):
        assert ledger.charge("a", draw(0.1)).amount["epsilon"] == Fraction(1, 10)
    account = ledger.show("a")
    assert account.spent == {"epsilon": 1, "delta": 0}
    assert account.guarantee == pure(1.0)
    assert account.remaining == {"epsilon": 0, "delta": 0}
    message = "at most 0.0, the remaining budget of account 'a', got 0.1. Nothing was charged"
    refuses(ledger, path, errors.BudgetExceeded, message, draw(0.1))
    refuses(ledger, path, errors.BudgetExceeded, "at most 0.0, .* got 1e-299", draw("1e-299"))


def test_an_overdraw_beyond_the_last_digit_of_a_float_is_refused(ledger, path):
    ledger.open("a", pure(1.0))
    ledger.charge("a", draw("1e-30"))
    # 1.0 - 1e-30 is 1.0 in floats; the message shows that it is not.
    refuses(
        ledger,
        path,
        errors.BudgetExceeded,
        r"at most 1\.0 \(exactly 9{30}/10{30}\), .* got 1\.0\.",
        draw(1),
    )


def test_accepts_exactly_what_the_exact_sum_allows(ledger):
    ledger.open("a", pure(1.0))
    rng, left, refused = random.Random(1), Fraction(1), 0
    for _ in range(60):
        epsilon = rng.choice([0.3, 0.07, 0.011, 1e-3, 1e-17])
        try:
            ledger.charge("a", draw(epsilon))
            accepted = True
        except errors.BudgetExceeded:
            accepted = False
        assert accepted == (Fraction(repr(epsilon)) <= left)
        left -= Fraction(repr(epsilon)) * accepted
        refused += not accepted
    assert 0 < refused < 60
    assert ledger.show("a").remaining["epsilon"] == left


def test_a_new_account_has_spent_nothing(ledger):
    for name, budget, stated in [
        ("p", pure(1), pure(0)),
        ("a", approx(1, 1e-6), approx(0, 1e-6)),
        ("z", zcdp(1), zcdp(1)),
        ("r", curve(1, 2, 3, 4), curve(1, 2, 3, 4)),
    ]:
        ledger.open(name, budget)
        account = ledger.show(name)
        assert (account.name, account.budget, account.guarantee) == (name, budget, stated)
        assert set(account.spent.values()) == {0}
        assert [(e.budget, e.reason) for e in account.entries] == [(budget, "opened")]
        assert account.charges == ()
    assert ledger.accounts() == ["a", "p", "r", "z"]


# Notions


def test_pure_budget_has_no_delta(ledger, path):
    ledger.open("a", pure(1.0))
    exceeded = errors.BudgetExceeded
    declared = events.Declared(approx(0.1, 1e-12))
    refuses(ledger, path, exceeded, "delta must be at most 0.0, .* got 1e-12", declared)
    refuses(ledger, path, exceeded, "delta must be", gaussian(10), delta=1e-6)
    # A delta that the event does not need is not spent.
    assert ledger.charge("a", draw(0.5), delta=1e-6).amount == {"epsilon": 0.5, "delta": 0}


def test_approximate_budget_sums_epsilon_and_delta(ledger, path):
    ledger.open("a", approx(100.0, 3e-6))
    each = guarantee_of(gaussian(4), 1e-6)
    for _ in range(3):
        receipt = ledger.charge("a", gaussian(4), delta=1e-6)
    assert receipt.delta == 1e-6
    assert receipt.amount == {"epsilon": Fraction(repr(each.epsilon)), "delta": Fraction("1e-6")}
    account = ledger.show("a")
    total = 3 * Fraction(repr(each.epsilon))
    assert account.spent == {"epsilon": total, "delta": Fraction("3e-6")}
    assert account.guarantee == approx(float_above(total), 3e-6)
    message = "delta must be at most 0.0, .* got 1e-06"
    refuses(ledger, path, errors.BudgetExceeded, message, gaussian(4), delta=1e-6)
    ledger.charge("a", draw(1))


@pytest.mark.parametrize("event", [gaussian(4), events.Declared(zcdp(0.1)), sgd(1)])
@pytest.mark.parametrize("delta", [None, 0])
def test_a_gaussian_needs_a_delta(ledger, path, event, delta):
    ledger.open("a", approx(1.0, 1e-5))
    refuses(ledger, path, errors.InvalidParameter, "delta must be given", event, delta=delta)


@pytest.mark.parametrize(
    "guarantee",
    [zcdp(0.01), curve(0.01, 0.01, 0.05, 0.5), ConcentratedDP(mu=0.02, tau=0.2, **SCOPE)],
)
def test_a_declared_divergence_is_stated_at_delta(ledger, guarantee):
    ledger.open("a", approx(10.0, 1e-5))
    amount = ledger.charge("a", events.Declared(guarantee), delta=1e-6).amount
    assert float(amount["epsilon"]) == guarantee.at_delta(1e-6).epsilon > 0
    assert amount["delta"] == Fraction("1e-6")


def test_concentrated_budget_sums_rho(ledger, path):
    ledger.open("a", zcdp(1.0))
    tenth = events.DiscreteGaussian(1, 5, 3, **SCOPE)
    for _ in range(9):
        assert ledger.charge("a", tenth).amount == {"rho": Fraction(1, 10)}
    ledger.charge("a", draw(0.4))  # ε²/2 = 0.08
    assert float(ledger.show("a").spent["rho"]) == pytest.approx(0.98, rel=1e-15)
    refuses(ledger, path, errors.BudgetExceeded, "rho must be at most .* got 0.1", tenth)


def test_concentrated_budget_and_xi(ledger):
    ledger.open("a", zcdp(1.0))
    # A negative ξ buys nothing; ξ + ρα ≤ (ξ + ρ)α, rounded up.
    assert ledger.charge("a", events.Declared(zcdp(0.25, xi=-0.125))).amount["rho"] == 0.25
    upwards = ledger.charge("a", events.Declared(zcdp(0.25, xi=0.125))).amount["rho"]
    assert upwards == Fraction(3, 8)
    declared = events.Declared(ConcentratedDP(mu=0.0, tau=0.5, **SCOPE))
    assert ledger.charge("a", declared).amount["rho"] == 0.125


@pytest.mark.parametrize("event", [sgd(1), events.Declared(approx(0.1, 1e-6))])
def test_concentrated_budget_refuses_what_has_no_rho(ledger, path, event):
    ledger.open("a", zcdp(1.0))
    refuses(ledger, path, errors.IncompatibleGuarantees, "statement for a ZCDP account", event)


@pytest.mark.parametrize(
    "event", [gaussian(20), draw(0.1), sgd(1, 5), events.Repeated(draw(0.1), 3)]
)
def test_renyi_budget_sums_curves(ledger, event):
    ledger.open("a", curve(10, 10, 10, 500))
    ledger.charge("a", event)
    ledger.charge("a", gaussian(30))
    exact = [
        Fraction(repr(one)) + Fraction(repr(two))
        for one, two in zip(
            renyi_of(event, ORDERS).epsilons, renyi_of(gaussian(30), ORDERS).epsilons, strict=True
        )
    ]
    account = ledger.show("a")
    assert list(account.spent.values()) == exact
    assert account.guarantee == account.budget  # a filter's promise, however little was spent
    limits = [10, 10, 10, 500]
    assert list(account.remaining.values()) == [a - b for a, b in zip(limits, exact, strict=True)]


@pytest.mark.parametrize("tight", range(4))
def test_renyi_budget_holds_at_every_order(ledger, path, tight):
    limits = [100.0] * 4
    limits[tight] = 0.1
    ledger.open("a", curve(*limits))
    message = rf"epsilon at order {ORDERS[tight]} must be at most 0.1, .* got 0.2\."
    event = events.Declared(curve(0.2, 0.2, 0.2, 0.2))
    refuses(ledger, path, errors.BudgetExceeded, message, event)
    ledger.charge("a", events.Declared(curve(0.1, 0.1, 0.1, 0.1)))
    assert min(ledger.show("a").remaining.values()) == 0


def test_an_infinite_divergence_exceeds_every_budget(ledger, path):
    ledger.open("a", curve(1e300, 1e300, 1e300, 1e300))
    event = events.Declared(curve(1, 1, 1, math.inf))
    message = "order 64.0 must be at most 1e\\+300, .* got inf. Nothing was charged"
    refuses(ledger, path, errors.BudgetExceeded, message, event)


@pytest.mark.parametrize(
    "event",
    [events.Declared(approx(0.1, 1e-6)), events.Declared(curve(1, 1, orders=(1.5, 2.0)))],
)
def test_renyi_budget_refuses_what_has_no_such_curve(ledger, path, event):
    ledger.open("a", curve(1, 1, 1, 1))
    refuses(ledger, path, errors.IncompatibleGuarantees, "statement for a RenyiDP", event)


def test_delta_is_for_epsilon_delta_accounts(ledger, path):
    ledger.open("a", zcdp(1.0))
    ledger.open("b", curve(1, 1, 1, 1))
    for account in "ab":
        message = "delta must be None for a"
        refuses(ledger, path, errors.InvalidParameter, message, gaussian(9), account, delta=1e-6)


# Refusals


@pytest.mark.parametrize("budget", [pure(1e6), approx(1e6, 0.9), zcdp(1e6), curve(9, 9, 9, 9)])
@pytest.mark.parametrize(
    ("guarantee", "match"),
    [
        (Unproven(reason="the decoder saw every record", **SCOPE), "the decoder saw every record"),
        (NotPrivate(**SCOPE), "not private"),
    ],
)
def test_unknown_never_counts_as_zero(ledger, path, budget, guarantee, match):
    ledger.open("a", budget)
    bare = events.Declared(guarantee)
    for event in (
        bare,
        events.Repeated(bare, 2),
        events.Composed((draw(0.1), bare)),
        events.Parallel((draw(0.1), bare)),
        events.PoissonSampled(0.5, bare),
    ):
        message = f"proved private, got .*{match}.*Unknown never counts as zero"
        refuses(ledger, path, errors.InvalidParameter, message, event)


def test_a_derived_unproven_is_refused(ledger, path):
    ledger.open("a", approx(100.0, 0.5))
    # A Rényi curve without a useful order says nothing at this delta.
    nowhere = events.Declared(curve(math.inf, math.inf, math.inf, math.inf))
    refuses(ledger, path, errors.InvalidParameter, "not private", nowhere, delta=1e-6)


@pytest.mark.parametrize("budget", [pure(1), approx(1, 0.1), zcdp(1), curve(9, 9, 9, 9)])
@pytest.mark.parametrize(
    "other",
    [
        {"adjacency": "replace-one"},
        {"adjacency": "zero-out"},
        {"adjacency": "any-two-inputs"},
        {"unit": "person"},
    ],
)
def test_neighbours_that_do_not_convert_are_refused(ledger, path, budget, other):
    ledger.open("a", budget)
    event = events.Laplace(1, 10, **{**SCOPE, **other})
    message = "neighbours that convert to its own .add-remove/record.*zero-out account takes all"
    refuses(ledger, path, errors.IncompatibleGuarantees, message, event)


@pytest.mark.parametrize("budget", [pure(9), approx(9, 0.1), zcdp(9), curve(9, 9, 99, 99)])
@pytest.mark.parametrize("kind", ["add-remove", "replace-one", "zero-out"])
def test_a_zero_out_account_takes_all_neighbours_at_their_own_price(ledger, budget, kind):
    ledger.open("own", replace(budget, adjacency=kind))
    ledger.open("all", replace(budget, adjacency="zero-out"))
    event = events.Laplace(1, 2, adjacency=kind, unit="record")
    assert ledger.charge("all", event).amount == ledger.charge("own", event).amount
    assert ledger.show("all").guarantee.adjacency == "zero-out"


@pytest.mark.parametrize("kind", ["add-remove", "zero-out"])
def test_a_replace_one_account_takes_others_at_the_price_of_two(ledger, path, kind):
    scope, one = {"adjacency": "replace-one"}, {"adjacency": kind, "unit": "record"}
    noise, count = events.Gaussian(1, 4, **one), events.Laplace(1, 2, **one)
    ledger.open("pure", replace(pure(2), **scope))
    assert ledger.charge("pure", count).amount == {"epsilon": 1, "delta": 0}
    ledger.open("rho", replace(zcdp(2), **scope))
    assert ledger.charge("rho", noise).amount == {"rho": Fraction(4, 32)}
    ledger.open("curve", replace(curve(99, 99, orders=(2.0, 8.0)), **scope))
    assert list(ledger.charge("curve", noise).amount.values()) == [Fraction(4, 16), 1]
    sampled = events.PoissonSampled(0.1, noise)
    inner = renyi_of(sampled, (4.0, 16.0)).epsilons
    found = [float(cost) for cost in ledger.charge("curve", sampled).amount.values()]
    assert found == pytest.approx([3 * epsilon for epsilon in inner])
    ledger.open("low", replace(curve(99, orders=(1.5,)), **scope))
    message = "a group of two has a curve only at orders of 2 and above"
    refuses(ledger, path, errors.IncompatibleGuarantees, message, sampled, account="low")
    ledger.open("both", replace(approx(99, 0.5), **scope))
    stated = events.Declared(ApproxDP(1.0, 1e-6, **one))
    cost = ledger.charge("both", stated).amount
    assert cost["epsilon"] == 2
    assert 0 <= float(cost["delta"]) - 1e-6 * (1 + math.e) < 1e-18
    message = "event must be proved private"
    refuses(ledger, path, errors.InvalidParameter, message, stated, account="both", delta=1e-6)


@pytest.mark.parametrize("delta", [0.4, 1e-3, 1e-9])
@pytest.mark.parametrize("sigma", [0.3, 1, 4, 100])
def test_two_units_of_a_gaussian_at_a_delta_are_paid_for(ledger, sigma, delta):
    ledger.open("a", replace(approx(700, 0.5), adjacency="replace-one"))
    cost = ledger.charge("a", gaussian(sigma), delta=delta).amount
    assert cost["delta"] <= Fraction(repr(delta))
    # The truth: two steps move the mean by twice as much.
    exact = guarantee_of(gaussian(Fraction(sigma) / 2), float(cost["delta"])).epsilon
    assert exact <= float(cost["epsilon"]) <= 3 * exact + 0.1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"event": None}, "event must be an event"),
        ({"event": 0.1}, "event must be an event"),
        ({"event": pure(0.1)}, "event must be an event"),
        ({"event": events.Event()}, "kind must be one of"),
        ({"event": events.Laplace(10**300, Fraction(1, 10**300), **SCOPE)}, "range of floats"),
        ({"delta": math.nan}, "delta must be"),
        ({"delta": -1e-9}, "delta must be"),
        ({"delta": 1}, "delta must be"),
        ({"delta": "much"}, "delta must be"),
        ({"key": ""}, "key must be a nonempty line"),
        ({"key": 7}, "key must be a nonempty line"),
        ({"key": "a\nb"}, "key must be a nonempty line"),
        ({"account": None}, "account must be a nonempty line"),
        ({"account": "\ud800"}, "account must be a nonempty line"),
    ],
)
def test_bad_input_is_refused(ledger, path, options, match):
    ledger.open("a", approx(1.0, 1e-3))
    options = {"event": draw(0.1), **options}
    refuses(ledger, path, errors.InvalidParameter, match, **options)


def test_a_missing_account_is_refused(ledger, path):
    refuses(ledger, path, errors.LedgerError, "account must exist, got 'a'", draw(1))
    with pytest.raises(errors.LedgerError, match="account must exist"):
        ledger.show("a")
    with pytest.raises(errors.LedgerError, match="account must exist"):
        ledger.raise_budget("a", pure(1), "why not")


@pytest.mark.parametrize(
    ("budget", "match"),
    [
        (None, "budget must be PureDP"),
        (1.0, "budget must be PureDP"),
        (NotPrivate(**SCOPE), "budget must be PureDP"),
        (Unproven(reason="?", **SCOPE), "budget must be PureDP"),
        (ConcentratedDP(mu=1, tau=1, **SCOPE), "budget must be PureDP"),
        (zcdp(1.0, xi=0.5), "xi must be 0"),
        (zcdp(1.0, xi=-0.5), "xi must be 0"),
        (curve(1, 1, 1, math.inf), "finite at every order"),
    ],
)
def test_a_budget_without_a_filter_is_refused(ledger, budget, match):
    with pytest.raises(errors.InvalidParameter, match=match):
        ledger.open("a", budget)
    assert ledger.accounts() == []


def test_an_account_is_opened_once(ledger, path):
    ledger.open("a", pure(1.0))
    before = contents(path)
    with pytest.raises(errors.LedgerError, match="account must be new, got 'a'"):
        ledger.open("a", pure(2.0))
    with pytest.raises(errors.InvalidParameter, match="account must be a nonempty line"):
        ledger.open(" ", pure(2.0))
    assert contents(path) == before


# Keys and entries


def test_a_key_is_charged_once(ledger, path):
    ledger.open("a", approx(1.0, 1e-5))
    ledger.open("b", approx(1.0, 1e-5))
    first = ledger.charge("a", draw(0.9), key="one")
    before = contents(path)
    # 0.9 more would overdraw: the repetition is no charge.
    again = ledger.charge("a", draw("9/10"), key="one")
    assert contents(path) == before
    assert (first.repeated, again.repeated) == (False, True)
    assert (again.key, again.event, again.amount, again.time) == (
        first.key,
        first.event,
        first.amount,
        first.time,
    )
    message = "key must be new or repeat its own event"
    refuses(ledger, path, errors.LedgerError, message, draw(0.1), key="one")
    refuses(ledger, path, errors.LedgerError, message, draw(0.9), key="one", delta=1e-6)
    assert not ledger.charge("b", draw(0.2), key="one").repeated


def test_the_same_event_reads_the_same_however_it_was_written(ledger):
    ledger.open("a", pure(1.0))
    ledger.charge("a", events.PoissonSampled(1, draw(0.1)), key="one")
    assert ledger.charge("a", events.PoissonSampled(1.0, draw("0.1")), key="one").repeated


def test_without_a_key_every_call_is_a_charge(ledger):
    ledger.open("a", pure(1.0))
    receipts = [ledger.charge("a", draw(0.1)) for _ in range(3)]
    assert len({receipt.key for receipt in receipts}) == 3
    assert not any(receipt.repeated for receipt in receipts)


def test_entries_say_what_ran_and_when(path):
    run = events.Composed((sgd(1), events.Parallel((draw("1/3"), draw(0.2)))))
    with Ledger(path) as ledger:
        ledger.open("a", curve(10, 10, 10, 500))
        receipts = [ledger.charge("a", run, key="k"), ledger.charge("a", draw(0.1))]
    with Ledger(path) as ledger:
        account = ledger.show("a")
    assert account.charges == tuple(receipts)
    assert account.charges[0].event == run
    times = [datetime.fromisoformat(entry.time) for entry in account.entries]
    assert times == sorted(times)
    assert all(time.utcoffset() == timedelta(0) for time in times)


# Budgets


def test_a_raised_budget_is_on_record(ledger, path):
    ledger.open("a", pure(1.0))
    ledger.charge("a", draw(1))
    refuses(ledger, path, errors.BudgetExceeded, "at most 0.0, .* got 0.5", draw(0.5))
    ledger.raise_budget("a", pure(1.5), "second wave, approved by the board")
    ledger.charge("a", draw(0.5))
    account = ledger.show("a")
    assert account.budget == account.guarantee == pure(1.5)
    changes = [(e.budget, e.reason) for e in account.entries if isinstance(e, BudgetChange)]
    assert changes == [(pure(1.0), "opened"), (pure(1.5), "second wave, approved by the board")]
    assert [type(entry).__name__ for entry in account.entries] == [
        "BudgetChange",
        "Receipt",
        "BudgetChange",
        "Receipt",
    ]


@pytest.mark.parametrize(
    ("budget", "reason", "expected", "match"),
    [
        (pure(2.0), "", errors.InvalidParameter, "reason must be a nonempty line"),
        (pure(2.0), "  ", errors.InvalidParameter, "reason must be a nonempty line"),
        (pure(2.0), None, errors.InvalidParameter, "reason must be a nonempty line"),
        (pure(0.4), "less", errors.InvalidParameter, "at least 0.5, which is spent, got 0.4"),
        (approx(2.0, 1e-6), "kind", errors.IncompatibleGuarantees, "of the kind"),
        (zcdp(2.0), "kind", errors.IncompatibleGuarantees, "of the kind"),
        (NotPrivate(**SCOPE), "no", errors.InvalidParameter, "budget must be PureDP"),
        (
            PureDP(epsilon=2, adjacency="add-remove", unit="person"),
            "unit",
            errors.IncompatibleGuarantees,
            "share adjacency and unit",
        ),
    ],
)
def test_a_budget_is_raised_only_with_a_reason_and_in_kind(
    ledger, path, budget, reason, expected, match
):
    ledger.open("a", pure(1.0))
    ledger.charge("a", draw(0.5))
    before = contents(path)
    with pytest.raises(expected, match=match):
        ledger.raise_budget("a", budget, reason)
    assert contents(path) == before


def test_a_raised_curve_keeps_its_orders(ledger):
    ledger.open("a", curve(1, 1, 1, 1))
    with pytest.raises(errors.IncompatibleGuarantees, match="of the kind"):
        ledger.raise_budget("a", curve(2, 2, orders=(1.5, 2.0)), "fewer orders")
    ledger.raise_budget("a", curve(2, 2, 2, 2), "more")


def test_the_delta_of_an_account_is_not_raised(ledger, path):
    ledger.open("a", approx(1.0, 1e-6))
    before = contents(path)
    with pytest.raises(errors.InvalidParameter, match="delta must be 1e-06, as the account was"):
        ledger.raise_budget("a", approx(2.0, 2e-6), "more")
    assert contents(path) == before
    ledger.charge("a", draw(1))
    ledger.raise_budget("a", approx(2.0, 1e-6), "more")
    ledger.charge("a", draw(0.5))
    account = ledger.show("a")
    assert account.guarantee == approx(1.5, 1e-6)
    assert account.at_delta(1e-5) == approx(1.5, 1e-5)
    assert isinstance(account.at_delta(1e-7), Unproven)


@pytest.mark.parametrize(
    ("opened", "raised", "event"),
    [
        (zcdp(0.5), zcdp(0.7), gaussian(1)),
        (curve(1, 1, 4, 64), curve(2, 2, 9, 99), gaussian(3)),
    ],
)
def test_what_was_raised_after_a_look_has_no_guarantee_but_at_a_delta(
    ledger, opened, raised, event
):
    ledger.open("a", opened)
    ledger.raise_budget("a", raised, "nothing was released yet")
    assert ledger.show("a").guarantee == raised
    ledger.raise_budget("a", opened, "less again")
    ledger.charge("a", event)
    ledger.raise_budget("a", raised, "no more than was allowed once")
    assert ledger.show("a").guarantee == raised
    assert ledger.show("a").at_delta(1e-5) == raised.at_delta(1e-5)
    more = spent_as(raised, {n: 2 * one for n, one in limits_of("", raised).items()})
    ledger.raise_budget("a", more, "after a look")
    account = ledger.show("a")
    assert isinstance(account.guarantee, Unproven)
    assert "raised after releases were seen" in account.guarantee.reason
    left = spent_as(more, account.remaining)
    parts = raised.at_delta(5e-6).epsilon, left.at_delta(2.5e-6).epsilon
    assert account.at_delta(1e-5).epsilon == pytest.approx(sum(parts), rel=1e-12)


# Tampering and files


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("""UPDATE accounts SET spent = '{"epsilon": "1/10", "delta": "0"}'""", "add up to"),
        ("""UPDATE accounts SET spent = '{"epsilon": "0"}'""", "notion"),
        ("UPDATE accounts SET spent = 'nothing'", "as they were written"),
        ("""UPDATE accounts SET spent = '{"epsilon": "1/0", "delta": "0"}'""", "as they were"),
        ("DELETE FROM entries WHERE key = 'two'", "add up to"),
        ("UPDATE entries SET amount = replace(amount, '1/5', '1/50')", "add up to"),
        ("UPDATE entries SET amount = '{}' WHERE key = 'two'", "add up to"),
        ("UPDATE entries SET event = '{}' WHERE key = 'two'", "as they were written"),
        ("UPDATE accounts SET budget = replace(budget, '1.0', '9.0')", "last recorded"),
        ("UPDATE accounts SET budget = 'more'", "as they were written"),
        ("DELETE FROM entries WHERE reason = 'opened'", "last recorded"),
    ],
)
def test_tampering_is_noticed(ledger, path, statement, match):
    ledger.open("a", pure(1.0))
    ledger.charge("a", draw(0.2), key="one")
    ledger.charge("a", draw(0.2), key="two")
    ledger.show("a")
    execute(path, statement)
    with pytest.raises(errors.LedgerError, match=match) as caught:
        ledger.show("a")
    assert "\n" not in str(caught.value)


def test_tampering_with_both_budgets_cannot_hide_an_overdraft(ledger, path):
    ledger.open("a", pure(1.0))
    ledger.charge("a", draw(0.5))
    for table in ("accounts", "entries"):
        execute(path, f"UPDATE {table} SET budget = replace(budget, '1.0', '0.1')")
    with pytest.raises(errors.LedgerError, match="no more epsilon than its budget"):
        ledger.show("a")


@pytest.mark.parametrize("garbage", [b"no", b"not a ledger" * 1000, b"\0" * 4096])
def test_a_file_that_is_no_database_is_refused(path, garbage):
    path.write_bytes(garbage)
    with pytest.raises(errors.LedgerError, match="path must be a ledger"):
        Ledger(path)
    assert path.read_bytes() == garbage


def test_another_database_is_refused_untouched(path):
    execute(path, "CREATE TABLE accounts (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(errors.LedgerError, match="got another database"):
        Ledger(path)
    assert path.read_bytes() == before


def test_another_schema_version_is_refused(path):
    Ledger(path).close()
    execute(path, "PRAGMA user_version = 2")
    with pytest.raises(errors.LedgerError, match="schema version must be 1, got 2"):
        Ledger(path)


def test_a_truncated_ledger_is_refused(path):
    with Ledger(path) as ledger:
        ledger.open("a", pure(1.0))
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(errors.LedgerError, match="malformed"), Ledger(path) as ledger:
        ledger.show("a")


def test_an_empty_file_is_a_new_ledger(path):
    path.touch()
    with Ledger(str(path)) as ledger:
        assert ledger.accounts() == []


def test_the_folder_must_exist(tmp_path):
    with pytest.raises(errors.LedgerError, match="folder that exists"):
        Ledger(tmp_path / "missing" / "ledger.db")
    with pytest.raises(errors.LedgerError, match="unable to open"):
        Ledger(tmp_path)
    for bad in (None, 3, "a\0b", "\ud800"):
        with pytest.raises(errors.InvalidParameter, match="path must be the path of a file"):
            Ledger(bad)


def test_memory_is_a_file_name_like_any_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Ledger(":memory:").close()
    assert Path(":memory:").stat().st_size > 0


def test_a_locked_file_is_said_to_be_locked(path, monkeypatch):
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.05)
    with Ledger(path) as ledger, closing(sqlite3.connect(path)) as other:
        ledger.open("a", pure(1.0))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(errors.LedgerError, match=r"locked\)\. Another process holds it"):
            ledger.charge("a", draw(0.1), key="one")
        other.execute("ROLLBACK")
        assert not ledger.charge("a", draw(0.1), key="one").repeated


def test_the_switch_to_wal_waits_for_a_writer(path):
    """SQLite itself fails at once here: processes that create the file together meet it."""
    Ledger(path).close()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.2, other.execute, ["ROLLBACK"])
        release.start()
        Ledger(path).close()
        release.join()


@pytest.fixture
def unprivileged():
    """A user whom permissions bind: they do not bind root."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    yield
    if is_root:
        os.seteuid(0)


def test_a_readonly_file_is_said_to_be_readonly(unprivileged):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        with Ledger(path) as ledger:
            ledger.open("a", pure(1.0))
        path.chmod(0o444)
        with pytest.raises(errors.LedgerError, match="readonly"), Ledger(path) as ledger:
            ledger.charge("a", draw(0.1))
        Path(folder).chmod(0o555)
        with pytest.raises(errors.LedgerError, match="path must be"), Ledger(path) as ledger:
            ledger.charge("a", draw(0.1))
        Path(folder).chmod(0o755)


def test_a_closed_ledger_says_so(path):
    with Ledger(path) as ledger:
        pass
    ledger.close()
    with pytest.raises(errors.LedgerError, match="closed"):
        ledger.accounts()


def test_a_fork_may_not_use_its_parents_connection(ledger, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(errors.LedgerError, match="got a fork"):
        ledger.accounts()


def test_another_thread_is_told_to_open_its_own(ledger):
    raised = []

    def use():
        try:
            ledger.accounts()
        except errors.LedgerError as error:
            raised.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "same thread" in raised[0]


def test_every_commit_is_flushed(ledger):
    pragma = ledger._file.db.execute
    assert pragma("PRAGMA journal_mode").fetchone() == ("wal",)
    assert pragma("PRAGMA synchronous").fetchone() == (2,)  # FULL


@pytest.mark.parametrize(
    ("budget", "charges"),
    [
        (pure(2.0), [(draw(0.1), None)] * 3),
        (approx(4.0, 1e-5), [(draw(0.1), None), (gaussian(9), 1e-6)]),
        (approx(4.0, 1e-5), [(gaussian(9), 1e-5)]),
        (zcdp(0.5), [(gaussian(9), None), (draw(0.1), None)]),
        (curve(1, 2, 8, 64), [(gaussian(9), None)]),
    ],
)
def test_the_certificate_of_an_account_states_its_guarantee(tmp_path, budget, charges):
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("people", budget)
        with pytest.raises(errors.LedgerError, match="must have charges"):
            Certificate.of_account(ledger.show("people"))
        for event, delta in charges:
            ledger.charge("people", event, delta=delta)
        account = ledger.show("people")
    certificate = Certificate.of_account(account)
    certificate.save(tmp_path / "certificate.json")
    Certificate.load(tmp_path / "certificate.json").verify()
    stated, promised = (
        limits_of("test", one) for one in (certificate.guarantee, account.guarantee)
    )
    assert type(certificate.guarantee) is type(account.guarantee)
    for name, amount in promised.items():
        assert amount <= stated[name] <= amount * (1 + Fraction(1, 10**12))


def test_the_certificate_of_an_account_keeps_events_where_their_sums_hold(tmp_path):
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("people", PureDP(1.0, adjacency="replace-one", unit="record"))
        ledger.charge("people", replace(draw(0.25), adjacency="replace-one"))
        ledger.charge("people", draw(0.25))  # at the price of two
        first, second = ledger.show("people").event.events
    assert first == replace(draw(0.25), adjacency="replace-one")
    assert second == events.Declared(PureDP(0.5, adjacency="replace-one", unit="record"))


def test_a_raised_concentrated_account_has_no_certificate(tmp_path):
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("people", zcdp(0.1))
        ledger.charge("people", gaussian(9))
        ledger.raise_budget("people", zcdp(0.2), "more")
        with pytest.raises(errors.LedgerError, match="a guarantee without a delta"):
            Certificate.of_account(ledger.show("people"))


def test_a_refusal_does_not_state_what_calibration_left(tmp_path):
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("people", pure(1.0))
        ledger.charge("people", events.Declared(pure(1.0 - 7.5e-15)))
        with pytest.raises(errors.BudgetExceeded, match=r"epsilon must be at most 0\.0, the"):
            ledger.charge("people", events.Declared(pure(0.1)))
        assert ledger.show("people").remaining["epsilon"] > 0
