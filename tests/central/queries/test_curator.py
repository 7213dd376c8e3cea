"""Answers: right without noise, covered by their intervals with it, private, charged first."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tacit.audit.statistical import black_box, bound_from_draws
from tacit.central.queries import declarations, estimates, grid, model, noise, releases
from tacit.central.queries.curator import Curator
from tacit.central.queries.model import Compare, Count, Mean, Several, Sum, Variance
from tacit.central.queries.scan import Scan
from tacit.privacy import errors, events
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import ZCDP, ApproxDP, PureDP
from tacit.privacy.randomness import Seeded

RECORD = {"adjacency": "add-remove", "unit": "record"}
AGES = [(7 * i) % 90 for i in range(200)]
SEXES = ["F" if i % 3 else "M" for i in range(200)]


def adults(budget: Any = 600.0, **options: Any) -> Curator:
    """With an ε of hundreds the noise is zero but for one draw in e^100."""
    table = pa.table(
        {"age": pa.array(AGES), "height": [a * 1.25 for a in AGES], "sex": pa.array(SEXES)}
    )
    given = {
        "bounds": {"age": (0, 100), "height": (0, 200)},
        "keys": {"sex": ["F", "M", "X"]},
        "rng": Seeded(1),
        **options,
    }
    return Curator(table, budget, threads=1, **given)


def of(sex: str) -> np.ndarray:
    return np.array([age for age, own in zip(AGES, SEXES, strict=True) if own == sex])


def test_answers_without_noise_are_those_of_the_table():
    curator = adults(700.0)
    groups = curator.count(by="sex", epsilon=50).groups
    assert {key: one.value for key, one in groups.items()} == {
        "F": of("F").size,
        "M": of("M").size,
        "X": 0,
    }
    mean = curator.mean("age", by="sex", epsilon=50).groups
    assert mean["F"].value == pytest.approx(of("F").mean(), abs=0.1)
    low, high = mean["F"].interval
    assert low - 0.1 <= of("F").mean() <= high + 0.1
    assert high - low < 0.5
    assert curator.sum("age", epsilon=50).value == pytest.approx(sum(AGES), abs=30)
    variance = curator.variance("height", epsilon=100)
    assert variance.value == pytest.approx(np.var(AGES) * 1.25**2, rel=0.01)
    assert variance.interval[0] <= np.var(AGES) * 1.25**2 <= variance.interval[1]
    median = curator.median("age", epsilon=100)
    assert abs(median.value - np.median(AGES)) <= 1
    assert median.interval[0] <= np.median(AGES) <= median.interval[1]
    histogram = curator.histogram("age", [0, 30, 60, 100], epsilon=50)
    assert histogram.value == list(np.histogram(AGES, [0, 30, 60, 100])[0])
    assert curator.top_k("sex", 2, epsilon=50).value == ["F", "M"]
    assert curator.sulq("age >= 60", epsilon=50).value == sum(age >= 60 for age in AGES)


def test_several_questions_share_a_release():
    with adults() as curator:
        answer = curator.answer(
            Several((Count(by="sex"), Mean("age", by="sex"), Sum("age", by="sex"))), epsilon=300
        )
        count, mean, total = answer.parts
        assert count.groups["F"].value == pytest.approx(of("F").size, abs=0.1)
        assert mean.groups["F"].value == pytest.approx(of("F").mean(), abs=0.1)
        assert total.groups["F"].value == pytest.approx(of("F").sum(), abs=10)
        # One release holds all three: the noise is that of ε, not of ε/3.
        assert isinstance(answer.event, events.Laplace)
        assert answer.event.l1_sensitivity / answer.event.scale == 300
        shown = answer.to_dict()
        assert set(shown["groups"]["F"]) == {"count(*)", "avg(age)", "sum(age)"}
        assert json.loads(json.dumps(shown))["remaining"]["epsilon"] == 300


def test_contingency_table():
    table = pa.table({"a": [1, 1, 2, 3, None], "b": [True, False, True, True, True]})
    keys = {"a": [1, 2], "b": [False, True]}
    with Curator(table, 500.0, keys=keys, threads=1) as curator:
        groups = curator.contingency(["a", "b"], epsilon=100).groups
        assert {key: one.value for key, one in groups.items()} == {
            (1, False): 1,
            (1, True): 1,
            (2, False): 0,
            (2, True): 1,
        }
        with pytest.raises(errors.InvalidParameter, match="two or more"):
            curator.contingency(["a"], epsilon=1)


def many(values: list[float | None], groups: int, **options: Any) -> Curator:
    """The same rows in every group: each group is one more draw of the same question."""
    keys = np.repeat(np.arange(groups), len(values))
    table = pa.table({"k": keys, "x": pa.array(values * groups, pa.float64())})
    given = {"bounds": {"x": (0, 10)}, "keys": {"k": list(range(groups))}, "rng": Seeded(5)}
    return Curator(table, options.pop("budget", 600.0), threads=1, **(given | options))


VALUES = [1.0, 2.0, 2.0, 7.5, 10.0, None, 3.25, 4.0]
PRESENT = np.array([v for v in VALUES if v is not None])
GROUPS = 1000
# 95 % or more, less than one wrong alarm in a million builds.
LEAST = 0.95 - 4.9 * math.sqrt(0.95 * 0.05 / GROUPS)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("notion", "amount"),
    [
        ("pure", 0.3),
        ("zcdp", 2.0),
        ("replace", 1.0),
        pytest.param("pure", 5.0, marks=pytest.mark.slow),
        pytest.param("zcdp", 0.1, marks=pytest.mark.slow),
        pytest.param("replace", 0.3, marks=pytest.mark.slow),
    ],
)
def test_intervals_cover(notion, amount):
    scope = RECORD if notion != "replace" else {**RECORD, "adjacency": "replace-one"}
    budget = ZCDP(xi=0, rho=600, **scope) if notion == "zcdp" else PureDP(epsilon=600, **scope)
    with many(VALUES, GROUPS, budget=budget) as curator:
        price = {"rho" if notion == "zcdp" else "epsilon": amount}
        asked = Several((Count(by="k"), Count("x", by="k"), Mean("x", by="k"), Sum("x", by="k")))
        parts = list(curator.answer(asked, **price).parts)
        parts += [curator.answer(Sum("x", by="k"), **price)]
        parts += [curator.answer(Mean("x", by="k"), **price)]
        parts += [curator.answer(Variance("x", by="k"), **price)]
        parts += [curator.quantile("x", 0.3, by="k", cells=64, **price)]
    truths = [8, 7, PRESENT.mean(), PRESENT.sum(), PRESENT.sum(), PRESENT.mean(), PRESENT.var()]
    truths += [np.quantile(PRESENT, 0.3, method="inverted_cdf")]
    for i, (part, truth) in enumerate(zip(parts, truths, strict=True)):
        inside = [
            one.interval[0] - 1e-9 <= truth <= one.interval[1] + 1e-9
            for one in part.groups.values()
        ]
        assert np.mean(inside) >= LEAST, part.query.label
        if i < 6:  # those of variances and quantiles are wider than they need to be
            assert np.mean(inside) <= 0.985, part.query.label


def test_a_single_mean_covers_in_one_call_and_not_much_more():
    with many(VALUES * 3, GROUPS) as curator:
        groups = curator.mean("x", by="k", epsilon=2.0).groups
    inside = [one.interval[0] <= PRESENT.mean() <= one.interval[1] for one in groups.values()]
    assert LEAST <= np.mean(inside) <= 0.97


def test_noise_is_that_of_the_formula():
    """The mean's error: ((1 − p)² + p²) 2/(nε)², as the release of a pair has it."""
    values, epsilon = [2.5] * 400, 1.0
    with many(values, GROUPS) as curator:
        means = [one.value for one in curator.mean("x", by="k", epsilon=epsilon).groups.values()]
        totals = [one.value for one in curator.sum("x", by="k", epsilon=epsilon).groups.values()]
    p, n = 0.25, len(values)
    expected = ((1 - p) ** 2 + p**2) * 2 / (n * epsilon) ** 2 * 10**2
    assert np.mean((np.array(means) - 2.5) ** 2) == pytest.approx(expected, rel=0.25)
    assert np.mean((np.array(totals) - 1000) ** 2) == pytest.approx(
        2 * (10 / epsilon) ** 2, rel=0.25
    )


AUDITED = 4000


def audited(
    first: list[float], second: list[float], question: str = "mean", **options: Any
) -> float:
    """A lower bound on ε, from thousands of answers about two neighbouring tables."""
    draws = []
    for values in (first, second):
        with many(values, AUDITED, **options) as curator:
            query = Mean("x", by="k") if question == "mean" else Count(by="k")
            answer = curator.answer(query, epsilon=1.0)
            draws.append(np.array([one.value for one in answer.groups.values()]))
    quarter = AUDITED // 4
    scores = black_box(draws[0][:quarter], draws[1][:quarter])
    bound = bound_from_draws(draws[0][quarter:], draws[1][quarter:], scores, confidence=0.999999)
    return bound.epsilon


PAIRS = [([10.0], [10.0, 0.0]), ([5.0, 2.0], [5.0]), ([], [10.0])]


@pytest.mark.quick(1)
@pytest.mark.parametrize("pair", PAIRS)
def test_audit(pair):
    assert audited(*pair) <= 1.0


@pytest.mark.heavy
def test_audit_catches_bounds_from_the_data(monkeypatch):
    class Reading(declarations.Declarations):
        def grid(self, name: str, bits: int = 30, *, from_zero: bool = False) -> grid.Grid:
            (low, high), *_ = current._engine._connection.execute(
                "select min(x), max(x) + 1e-3 from data"
            ).fetchall()
            return grid.grid_of((low, high), whole=False, bits=bits)

    original = Curator._plan

    def planned(self: Curator, *rest: Any) -> Any:
        nonlocal current
        current = self
        self._declared = Reading(**self._declared.__dict__)
        return original(self, *rest)

    current: Any = None
    monkeypatch.setattr(Curator, "_plan", planned)
    assert audited([3.0], [3.0, 9.0]) > 1.5


def test_audit_catches_missing_noise(monkeypatch):
    draw = noise.LaplaceNoise.draw

    def half(self: Any, size: int, rng: Any) -> list[int]:
        return [z * (i % 2 == 0) for i, z in enumerate(draw(self, size, rng))]

    monkeypatch.setattr(noise.LaplaceNoise, "draw", half)
    assert audited([10.0], [10.0, 0.0]) > 1.5


@pytest.mark.heavy
def test_audit_catches_a_unit_that_is_ignored(monkeypatch):
    """A person more, with ten rows."""

    def tables(values: list[float], **options: Any) -> Curator:
        keys = np.repeat(np.arange(AUDITED), len(values))
        table = pa.table({"k": keys, "p": keys * 100 + (np.array(values * AUDITED) > 0)})
        options |= {"unit": "p", "keys": {"k": list(range(AUDITED))}, "rng": Seeded(3)}
        return Curator(table, 600.0, threads=1, **options)

    pair = ([0.0], [0.0] + [1.0] * 10)
    monkeypatch.setitem(
        audited.__globals__, "many", lambda values, groups, **options: tables(values)
    )
    assert audited(*pair, question="count") <= 1.0
    monkeypatch.setattr(Scan, "_bounded", lambda self, releases, several: {})
    assert audited(*pair, question="count") > 1.5


def test_guarantee_price_and_certificate(tmp_path):
    with adults(1.0) as curator:
        query = Mean("age", by="sex")
        price = curator.price(query, epsilon=0.25)
        assert price.guarantee == PureDP(epsilon=0.25, **RECORD)
        assert price.remaining_after == {"epsilon": 0.75, "delta": 0.0}
        assert curator.statements == 0
        assert curator.remaining["epsilon"] == 1.0
        answer = curator.answer(query, epsilon=0.25)
        assert answer.guarantee == price.guarantee
        assert answer.remaining == price.remaining_after == curator.remaining
        curator.median("age", epsilon=0.5)
        certificate = curator.certificate()
        assert certificate.guarantee == PureDP(epsilon=0.75, **RECORD)
        assert certificate.seeded
        certificate.verify()
        path = answer.certificate().save(tmp_path / "answer.json")
        Certificate.load(path).verify()
        assert "A record is a row" in answer.certificate().explain()


def test_a_budget_in_zcdp_and_one_in_epsilon_and_delta():
    with adults(ZCDP(xi=0.0, rho=1.0, **RECORD)) as curator:
        answer = curator.mean("age", rho=0.5)
        assert isinstance(answer.event, events.DiscreteGaussian)
        curator.median("age", rho=0.25)
        assert curator.remaining["rho"] == pytest.approx(0.25, abs=1e-9)
        assert curator.remaining["rho"] >= 0.25
        with pytest.raises(errors.InvalidParameter, match="rho must be given"):
            curator.count(epsilon=0.1)
        curator.above_threshold(10, epsilon=0.5)
        assert curator.remaining["rho"] == pytest.approx(0.125, abs=1e-9)
    with adults(ApproxDP(epsilon=1.0, delta=1e-6, **RECORD)) as curator:
        curator.count(epsilon=1.0)
        assert curator.remaining == {"epsilon": 0.0, "delta": 1e-6}


def test_replace_one_doubles_where_it_must():
    scope = {**RECORD, "adjacency": "replace-one"}
    with adults(PureDP(epsilon=10.0, **scope)) as curator:
        assert curator.price(Count(), epsilon=1).event.scale == 1
        assert curator.price(Count(by="sex"), epsilon=1).event.scale == 2
        event = curator.price(Mean("age"), epsilon=1).event
        assert event.l1_sensitivity == 2 * event.scale / 2
        assert curator.price(Sum("age"), epsilon=1).event.l1_sensitivity == 100 * 2**23


def test_the_ledger_is_charged_before_the_read_and_outlives_a_crash(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    curator = adults(1.0, ledger=path, account="survey")

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(type(curator._engine), "rows", killed)
    with pytest.raises(Killed):
        curator.mean("age", epsilon=0.75)
    monkeypatch.undo()
    assert curator.statements == 0
    with Ledger(path) as ledger:
        assert ledger.show("survey").remaining["epsilon"] == Fraction(1, 4)
    with adults(1.0, ledger=path, account="survey") as again:
        assert again.remaining["epsilon"] == 0.25
        with pytest.raises(errors.BudgetExceeded):
            again.mean("age", epsilon=0.5)
        assert again.statements == 0
        again.mean("age", epsilon=0.25)
        assert again.remaining["epsilon"] == 0
    with pytest.raises(errors.InvalidParameter, match="budget must be that of account"):
        adults(2.0, ledger=path, account="survey")


def test_ten_tenths_are_the_whole_budget():
    with adults(1.0) as curator:
        for _ in range(10):
            curator.count(epsilon=0.1)
        assert curator.remaining["epsilon"] == 0
        with pytest.raises(errors.BudgetExceeded, match="Nothing was charged"):
            curator.count(epsilon=1e-9)


def test_the_law_of_a_sum_of_noises():
    """Against draws, against the discrete law, and convex where the search for an end needs it."""
    law = noise.LaplaceNoise(1, Fraction(1, 50))
    rng = np.random.default_rng(1)
    draws = rng.laplace(scale=50, size=(3, 400_000))
    for factors in ((1.0, 0.0), (0.6, 0.4), (0.5, 0.5), (0.25, 0.25, 0.75), (1.0, 1.0, 1.0)):
        a = np.array(factors)
        sums = np.abs(a @ draws[: len(a)])
        for w in (20.0, 100.0, 250.0):
            assert float(law.tail(a, np.array(w))) == pytest.approx(np.mean(sums > w), abs=5e-3)
    others = noise.LaplaceNoise(3, Fraction(2)), noise.GaussianNoise(9, Fraction(1, 2))
    for one in (law, *others):
        k = one.reach(0.95)
        inner = np.mean([abs(z) <= k for z in one.draw(100_000, Seeded(2))])
        less = np.mean([abs(z) < k for z in one.draw(100_000, Seeded(3))])
        assert inner >= 0.95 - 0.004
        assert less <= 0.95 + 0.004


def test_slack_covers_the_discrete_law():
    """P(|aZ₁ + cZ₂| ≤ reach) ≥ 95 % for the discrete law itself, summed exactly."""
    for epsilon in (Fraction(3), Fraction(1), Fraction(1, 5)):
        law = noise.LaplaceNoise(1, epsilon)
        z = np.arange(-400, 401)
        mass = np.exp(-np.abs(z) * float(epsilon))
        joint = np.outer(mass, mass) / mass.sum() ** 2
        for factors in ((0.5, 0.5), (0.7, 0.3), (0.99, 0.01), (1.0, 1.0)):
            reach = noise.reach_of(law, factors, 0.95)
            total = np.abs(factors[0] * z[:, None] + factors[1] * z[None, :])
            assert joint[total <= reach + 1e-9].sum() >= 0.95


def test_variance_interval_reaches_the_extremes_of_its_box():
    """The closed form against a fine search over the box."""
    rng = np.random.default_rng(4)
    release = releases.triple_release(
        "x", grid.grid_of((0.0, 1.0), whole=False, bits=8), nulls=False
    )
    law = noise.LaplaceNoise(1, Fraction(1, 40))
    reach = law.reach(1 - 0.05 / 3)
    for _ in range(200):
        noisy = [int(v) for v in rng.integers(0, 3000, size=3)]
        found = estimates._variance(release, noisy, law)
        axes = [np.linspace(max(y - reach, 0), max(y + reach, 0), 15) for y in noisy]
        b0, b1, b2 = np.meshgrid(*axes)
        size = b0 + b1 + b2
        spread = np.where(size > 0, (b0 * b2 - b1**2 / 4) / np.where(size > 0, size, 1) ** 2, 0)
        assert found.interval[0] <= max(spread.min(), 0) + 1e-12
        assert found.interval[1] >= min(spread.max(), 0.25) - 1e-12


def test_conditions_are_counted_as_sql_does():
    where = model.Or((model.Not(Compare("sex", "=", "F")), model.Between("age", 10, 20)))
    expected = sum(s != "F" or 10 <= a <= 20 for a, s in zip(AGES, SEXES, strict=True))
    with adults() as curator:
        assert curator.count(where=where, epsilon=100).value == expected
        text = "sex <> 'F' or age between 10 and 20"
        assert curator.count(where=text, epsilon=100).value == expected


@pytest.mark.heavy
def test_a_mean_of_all_rows_uses_their_public_number():
    """As good as a mean of known n: 2 (U − L)²/(nε)², where no value is missing."""
    rows = np.linspace(0, 74, 1000)
    budget = PureDP(1e6, adjacency="replace-one", unit="record")
    with Curator(
        pa.table({"x": rows}), budget, bounds={"x": (0, 100)}, threads=1, rng=Seeded(3)
    ) as made:
        off = [made.mean("x", epsilon=1.0).value - rows.mean() for _ in range(400)]
        assert np.mean(np.square(off)) < 1.25 * 2 * (100 / 1000) ** 2
        one_in_ten = made.mean("x", where="x < 7.4", epsilon=50.0)
        assert abs(one_in_ten.value - 3.66) < 0.5


def test_a_sum_of_rho_is_certified_for_fixed_questions_only() -> None:
    """Stopped after a look, a sum of ρ is an odometer, and not a guarantee."""
    budget = ZCDP(0.0, 0.1, adjacency="zero-out", unit="record")
    with Curator(pa.table({"age": [1, 2, 3]}), budget, rng=Seeded(1)) as curator:
        curator.count(rho=0.01)
        assert not any("did not depend" in line for line in curator.certificate().assumptions)
        curator.count(rho=0.02)
        assert any("did not depend" in line for line in curator.certificate().assumptions)


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
@pytest.mark.parametrize("as_path", [True, False])
def test_a_number_takes_the_neighbours_of_the_account(
    tmp_path: Path, adjacency: str, as_path: bool
) -> None:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        ledger.open("people", PureDP(1.0, adjacency=adjacency, unit="record"))
        charged = {"ledger": path if as_path else ledger, "account": "people"}
        with Curator(pa.table({"n": [1, 2]}), 1.0, **charged) as curator:
            assert str(curator.count(epsilon=0.25).guarantee.adjacency) == adjacency
        with pytest.raises(errors.InvalidParameter, match="budget must be that of account"):
            Curator(pa.table({"n": [1, 2]}), 2.0, **charged)
        assert ledger.show("people").spent["epsilon"] == Fraction(1, 4)
