"""Forests: what a record can change, what ran, what is left of a fit, what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from tacit.audit.canaries import canary_bound
from tacit.central.estimators.base import NUMBERS, Box, MostlyNoise
from tacit.central.estimators.forest import classifier as forest
from tacit.central.estimators.forest import growing as forest_growing
from tacit.central.estimators.forest import splits as forest_splits
from tacit.central.estimators.forest.classifier import RandomForestClassifier
from tacit.central.estimators.forest.noise import ForestNoise
from tacit.central.estimators.forest.splits import blended, blended_sensitivity, consistent, gains
from tacit.central.estimators.forest.tree import Growth, ancestors, chances, places_of
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.errors import BudgetExceeded, InvalidData, InvalidParameter, TacitError
from tacit.privacy.events import Parallel, leaves
from tacit.privacy.guarantees import Adjacency, ApproxDP, PureDP
from tacit.privacy.randomness import Seeded

# Few records make quick tests, and mostly noise: the two tests of that warning ask for it.
pytestmark = pytest.mark.filterwarnings("ignore::tacit.central.estimators.base.MostlyNoise")

ALGORITHMS = list(forest.ALGORITHMS)
BOX = Box(np.array([-1.0, 0.0, -1.0]), np.array([1.0, 2.0, 3.0]))


def made_up(n: int = 4_000, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels by a tree of two levels."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n, d))
    return X, np.where(X[:, 0] > 0.1, X[:, 1] > -0.3, X[:, 2] > 0.4).astype(int)


def forest_of(**settings: Any) -> RandomForestClassifier:
    usual: dict[str, Any] = {"epsilon": 1.0, "bounds": (-1, 1), "n_estimators": 3, "max_depth": 3}
    return RandomForestClassifier(**{**usual, **settings})


def vector_of(model: RandomForestClassifier) -> np.ndarray:
    """Everything that was released, as far as it is random."""
    parts = [
        np.asarray(part, float).ravel()
        for tree in model.estimators_
        for part in (*tree.features, *tree.cuts, tree.chances, tree.counts, tree.records)
    ]
    return np.concatenate(parts)


# --- sensitivities, by brute force ---------------------------------------------------------------


def grown(rows: np.ndarray, codes: np.ndarray, levels: int, seed: int) -> Growth:
    """A tree on these records, with splits that do not depend on them."""
    growth, free = Growth(BOX, rows.T.copy(), codes, 3), np.random.default_rng(seed)
    for _ in range(levels):
        features = free.integers(0, 3, (growth.nodes, 1))
        cuts = growth.cuts_at(features, free.choice([0.0, 0.3, 0.5, 1.0], (growth.nodes, 1, 1)))
        growth.split(features[:, 0], cuts[:, 0, 0])
    return growth


def neighbours() -> list[tuple[np.ndarray, np.ndarray]]:
    """Few records, and each of these sets with one record less; corners of the box are in it."""
    free = np.random.default_rng(5)
    corners = np.array(list(itertools.product(*zip(BOX.lower, BOX.upper, strict=True))))
    rows = np.concatenate([corners, free.uniform(BOX.lower, BOX.upper, (6, 3))])
    codes = free.integers(0, 3, len(rows))
    every = [(rows, codes)]
    return every + [(np.delete(rows, i, 0), np.delete(codes, i)) for i in range(len(rows))]


@pytest.mark.parametrize("bins", [2, 3, 16])
@pytest.mark.parametrize("levels", [0, 1, 3])
def test_a_record_is_in_one_count_of_each_query(levels: int, bins: int) -> None:
    """Queries: the histograms of one column over all nodes of a level, and the counts of nodes."""
    tables = []
    for rows, codes in neighbours():
        growth, free = grown(rows, codes, levels, seed=levels), np.random.default_rng(1)
        features = np.tile(np.arange(3), (growth.nodes, 1))
        shifts = free.random(features.shape)
        shifts[0] = 0.0  # the one end that a draw can reach
        tables.append((growth.histograms(features, shifts, bins), growth.counts()))
    (histograms, counts), *fewer = tables
    assert histograms.sum() == 3 * counts.sum() == 3 * len(neighbours()[0][0])
    for less, left in fewer:
        changed = np.abs(histograms - less).sum(axis=(0, 2, 3))
        assert changed.tolist() == [1, 1, 1]
        assert np.abs(counts - left).sum() == 1


def test_bins_lie_between_the_cuts_that_they_are_named_by() -> None:
    rows, codes = np.random.default_rng(0).uniform(BOX.lower, BOX.upper, (500, 3)), np.zeros(500)
    growth = grown(rows, codes.astype(int), 2, seed=1)
    features, shifts = np.full((4, 1), 2), np.random.default_rng(2).random((4, 1))
    found = growth.histograms(features, shifts, 5)[:, 0, :, 0]
    cuts = growth.cuts_at(features, places_of(shifts, 5))[:, 0]
    for node in range(4):
        here = rows[growth.node == node, 2]
        expected = np.bincount(np.searchsorted(cuts[node], here, side="right"), minlength=5)
        assert found[node].tolist() == expected.tolist()


def tables_of(total: int) -> np.ndarray:
    """All ways to put so many records into two bins of two classes, as histograms (1, 1, 2, 2)."""
    ways = [c for c in itertools.product(range(total + 1), repeat=4) if sum(c) == total]
    return np.array(ways).reshape(-1, 1, 2, 2)


def largest_change(score: Callable[[np.ndarray], np.ndarray], tables: np.ndarray) -> float:
    """Over all tables, and all of their neighbours with one record more."""
    unit = np.eye(4, dtype=np.int64).reshape(4, 1, 1, 2, 2)
    before = score(tables)[:, 0, 0]
    return max(float(np.abs(score(tables + one)[:, 0, 0] - before).max()) for one in unit)


@pytest.mark.parametrize("blend", [0.0, 0.5, 1.0])
def test_sensitivity_of_scores(blend: float) -> None:
    for total in range(13):
        worst = largest_change(lambda t: blended(t, blend), tables_of(total))
        assert worst <= blended_sensitivity(total, blend)
    free = np.random.default_rng(0)
    large = free.integers(0, 2 ** free.integers(0, 20, (20_000, 4))).reshape(-1, 1, 2, 2)
    for lonely in ([0, 1, 10**6, 0], [1, 1, 10**6, 0], [10**6, 0, 10**6, 0]):
        large[free.integers(len(large))] = np.array(lonely).reshape(1, 2, 2)
    most = int(large.sum(axis=(1, 2, 3)).max())
    assert largest_change(lambda t: blended(t, blend), large) <= blended_sensitivity(most, blend)


def test_information_gain_nearly_reaches_its_bound() -> None:
    """Else the test above would let a bound through that is far too large."""
    lonely = np.array([[10**6, 0, 0, 0]]).reshape(1, 1, 2, 2)
    worst = largest_change(lambda t: blended(t, 1.0), lonely)
    assert worst > 0.9 * blended_sensitivity(10**6, 1.0)


def test_published_gain_ratio_has_no_useful_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the divisor is not held at half a bit. One record then moves the score by n."""
    lonely = np.array([[0, 0, 1000, 0]]).reshape(1, 1, 2, 2)
    bound = blended_sensitivity(1001, 0.0)
    assert largest_change(lambda t: blended(t, 0.0), lonely) <= bound
    monkeypatch.setattr(forest_splits, "LEAST_ENTROPY", 1e-12)
    assert largest_change(lambda t: blended(t, 0.0), lonely) > 1000 > bound


def test_scores_are_textbook_quantities() -> None:
    """One cut, (3, 1) left and (1, 3) right: gain 0.1887 bits, split entropy 1 bit."""
    table = np.array([[[[3, 1], [1, 3]]]])
    assert blended(table, 1.0).item() == pytest.approx(8 * 0.18872, rel=1e-4)
    assert blended(table, 0.0).item() == pytest.approx(8 * 0.18872, rel=1e-4)


# --- what is read off noisy counts ---------------------------------------------------------------


def test_gains_without_noise_are_those_of_a_tree() -> None:
    X, y = made_up(500)
    growth = Growth(Box(np.full(4, -1.0), np.full(4, 1.0)), X.T.copy(), y, 2)
    features, shifts = np.arange(4)[None], np.full((1, 4), 0.5)
    counts = growth.histograms(features, shifts, 64).astype(float)
    agreed, totals = consistent(counts)
    assert np.allclose(agreed, counts)
    found = gains(agreed, totals, 0.0)
    column, place = np.unravel_index(found[0].argmax(), found[0].shape)
    stump = DecisionTreeClassifier(max_depth=1).fit(X, y).tree_
    assert column == stump.feature[0]
    cut = growth.cuts_at(features, places_of(shifts, 64))[0, column, place]
    assert cut == pytest.approx(stump.threshold[0], abs=2 / 63)


def test_consistent_histograms_have_the_noise_that_is_taken_off() -> None:
    noise = np.random.default_rng(0).normal(size=(4_000, 10, 8, 1))
    agreed, totals = consistent(noise)
    assert np.allclose(agreed.sum(axis=2), totals[:, None])
    k = np.arange(1, 8)
    bridge = np.cumsum(agreed, axis=2)[:, :, :-1] - totals[:, None, None] * (k / 8)[:, None]
    assert np.allclose(bridge.var(axis=(0, 1, 3)), k * (1 - k / 8), rtol=0.05)


def test_a_leaf_with_nothing_but_noise_says_what_its_parent_says() -> None:
    root, children = np.array([[900.0, 100.0]]), np.array([[880.0, -3.0], [-2.0, -8.0]])
    left, right = chances([(root, 1.0), (children, 5.0)], 2)
    assert right == pytest.approx([0.9, 0.1], abs=1e-3)
    assert left[0] > 0.99
    assert ancestors(children, 5.0)[0][0].tolist() == [[878.0, -11.0]]


# --- budget and events ---------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_guarantee_is_what_was_asked_for(algorithm: str, delta: float) -> None:
    X, y = made_up(300)
    model = forest_of(algorithm=algorithm, delta=delta).fit(X, y)
    pure = algorithm == "dprf" or not delta
    expected = PureDP if pure else ApproxDP
    assert isinstance(model.guarantee_, expected)
    assert model.guarantee_.epsilon == pytest.approx(1, rel=1e-6)
    assert model.guarantee_.epsilon <= 1
    # DPRF alone has a sensitivity that depends on the number of records.
    uses_n = algorithm == "dprf"
    assert model.guarantee_.adjacency is (Adjacency.ZERO_OUT if uses_n else Adjacency.ADD_REMOVE)
    assert isinstance(model.event_, Parallel) is pure
    assert model.event_ == model._event(300, 4)
    model.certificate_.verify()


def test_event_does_not_depend_on_values() -> None:
    X, y = made_up(300)
    for algorithm in ALGORITHMS:
        first = forest_of(algorithm=algorithm).fit(X, y).event_
        assert first == forest_of(algorithm=algorithm).fit(-X, 1 - y).event_


def test_noise_is_what_the_event_says() -> None:
    """Every draw of a fit is seen, and the events say its number and its deviation."""
    X, y = made_up(200)
    model = forest_of(n_estimators=2, max_depth=2)
    said = {float(leaf.sigma): leaf for leaf in leaves(model.fit(X, y).event_)}  # type: ignore[attr-defined]
    z = forest_growing.ForestNoise(1.0, 1e-6, "record", None).deviation(Fraction(1))
    each = Fraction(9, 10) / (2 * 2 * 4)
    expected = sorted([z / float(each) ** 0.5, z / float(Fraction(1, 20)) ** 0.5])
    assert sorted(said) == pytest.approx(expected, rel=1e-9)
    noise = ForestNoise(1.0, 1e-6, "record", Seeded(0))
    drawn = noise.add(np.zeros(20_000, dtype=np.int64), 1, each)
    assert drawn.std() == pytest.approx(noise.deviation(each), rel=0.03)
    laplace = ForestNoise(1.0, 0.0, "record", Seeded(0))
    drawn = laplace.add(np.zeros(20_000, dtype=np.int64), 1, Fraction(1, 10))
    assert drawn.std() == pytest.approx(laplace.deviation(Fraction(1, 10)), rel=0.05)


def test_no_more_is_handed_out_than_there_is() -> None:
    noise = ForestNoise(1.0, 0.0, "record", Seeded(0))
    noise.charge(2, Fraction(1, 2))
    assert guarantee_of(noise.event).epsilon == 1  # type: ignore[attr-defined]
    with pytest.raises(TacitError, match="add up"):
        noise.charge(1, Fraction(1, 100))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bags_share_no_record_and_look_at_none(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[np.ndarray] = []

    class Watched(Growth):
        def __init__(self, box: Box, columns: np.ndarray, codes: Any, classes: int) -> None:
            seen.append(columns[0])
            super().__init__(box, columns, codes, classes)

    monkeypatch.setattr(forest_growing, "Growth", Watched)
    X, y = made_up(300)
    forest_of(algorithm=algorithm, delta=0.0, n_estimators=7, rng=Seeded(3)).fit(X, y)
    bags = [np.flatnonzero(np.isin(X[:, 0], one)) for one in seen]
    assert sorted(np.concatenate(bags).tolist()) == list(range(300))
    seen.clear()
    other = X[::-1] / 2
    forest_of(algorithm=algorithm, delta=0.0, n_estimators=7, rng=Seeded(3)).fit(other, y)
    assert [np.isin(other[:, 0], one).sum() for one in seen] == [len(bag) for bag in bags]
    assert all(np.isin(other[bag, 0], one).all() for bag, one in zip(bags, seen, strict=True))


def test_with_gaussian_noise_every_tree_has_all_records() -> None:
    X, y = made_up(20_000)
    model = forest_of(epsilon=10.0).fit(X, y)
    assert all(abs(tree.records - 20_000) < 1_000 for tree in model.estimators_)
    bagged = forest_of(epsilon=10.0, delta=0.0).fit(X, y)
    assert all(abs(tree.records - 20_000 / 3) < 1_000 for tree in bagged.estimators_)


def test_ledger_is_charged_first_or_refuses(tmp_path: Path) -> None:
    X, y = made_up(200)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open(
            "house", ApproxDP(epsilon=1.5, delta=1e-5, adjacency="add-remove", unit="record")
        )
        settings: dict[str, Any] = {"ledger": ledger, "account": "house"}
        forest_of(**settings).fit(X, y)
        model = forest_of(**settings)
        with pytest.raises(BudgetExceeded):
            model.fit(X, y)
        assert not hasattr(model, "estimators_")
        with pytest.raises(InvalidParameter, match="account"):
            forest_of(ledger=ledger).fit(X, y)


def test_certificate_says_what_is_taken_as_public() -> None:
    X, y = made_up(200)
    read = forest_of().fit(X, y).certificate_
    told = forest_of(classes=[0, 1], algorithm="dprf", rng=Seeded(0)).fit(X, y).certificate_
    assert forest.READ_CLASSES in read.assumptions
    assert NUMBERS in read.assumptions
    assert "How many records there are." not in read.not_protected
    assert forest.READ_CLASSES not in told.assumptions
    assert NUMBERS not in told.assumptions
    assert "How many records there are." in told.not_protected
    assert told.seeded
    assert not read.seeded
    assert forest_growing.public_size(511) == 512
    assert forest_growing.public_size(512) == forest_growing.public_size(1023) == 1024


# --- audits of a whole fit -----------------------------------------------------------------------

CONFIDENCE = 0.9999


def audited(runs: int = 200, canary: Any = None, **settings: Any) -> float:
    """A lower bound on ε from fits with and without a record of a class that no other has."""
    free = np.random.default_rng(0)
    data = np.concatenate([free.uniform(-1, 0.5, (6, 1)), np.zeros((6, 1))], axis=1)
    usual = {"n_estimators": 1, "max_depth": 1, "bins": 3, "classes": [0, 1], **settings}

    def fit(rows: np.ndarray) -> np.ndarray:
        return vector_of(forest_of(**usual).fit(rows[:, :1], rows[:, 1].astype(int)))

    delta = settings.get("delta", 1e-6)
    found = canary_bound(
        fit, data, canary or [1.0, 1.0], runs=runs, delta=delta, confidence=CONFIDENCE
    )
    return found.epsilon


HISTOGRAMS: dict[str, Any] = {"algorithm": "histograms"}
PURE: list[dict[str, Any]] = [{"algorithm": one, "delta": 0.0} for one in ALGORITHMS]
SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in PURE]


@pytest.mark.parametrize("case", [HISTOGRAMS, *SLOW], ids=str)
def test_an_audit_does_not_refute_a_fit(case: dict[str, Any]) -> None:
    assert audited(**case) <= 1


@pytest.mark.parametrize("case", [HISTOGRAMS, *SLOW], ids=str)
def test_an_audit_catches_leaves_without_noise(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: one block, the counts of the leaves, is paid for and has no noise."""
    right = ForestNoise.add

    def add(self: ForestNoise, counts: np.ndarray, queries: int, share: Fraction) -> np.ndarray:
        released = right(self, counts, queries, share)
        return counts if counts.ndim == 2 else released

    monkeypatch.setattr(ForestNoise, "add", add)
    assert audited(**case) > 1


@pytest.mark.slow
def test_an_audit_catches_histograms_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ForestNoise.add

    def add(self: ForestNoise, counts: np.ndarray, queries: int, share: Fraction) -> np.ndarray:
        released = right(self, counts, queries, share)
        return counts if counts.ndim == 4 else released

    monkeypatch.setattr(ForestNoise, "add", add)
    assert audited(algorithm="histograms") > 1


@pytest.mark.parametrize("case", [SLOW[0], PURE[1], SLOW[2]], ids=str)
def test_an_audit_catches_bounds_that_were_read_off_the_data(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: the box ends where the records end. A record outside all others moves the cuts."""
    right = RandomForestClassifier.fit

    def fit(self: RandomForestClassifier, X: np.ndarray, y: np.ndarray) -> Any:
        self.bounds = (X.min(), X.max())
        return right(self, X, y)

    monkeypatch.setattr(RandomForestClassifier, "fit", fit)
    assert audited(canary=[1e6, 1.0], **case) > 1


# --- what is left of a fit -----------------------------------------------------------------------


def test_default_learns_a_tree() -> None:
    X, y = made_up(20_000, seed=1)
    model = RandomForestClassifier(epsilon=1.0, bounds=(-1, 1), max_depth=5, rng=Seeded(0))
    assert model.fit(X[:15_000], y[:15_000]).score(X[15_000:], y[15_000:]) > 0.88


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_learn_where_epsilon_is_large(algorithm: str) -> None:
    X, y = made_up(6_000, seed=1)
    model = forest_of(
        epsilon=200.0, algorithm=algorithm, n_estimators=20, max_depth=6, rng=Seeded(0)
    ).fit(X[:5_000], y[:5_000])
    majority = max(y.mean(), 1 - y.mean())
    assert model.score(X[5_000:], y[5_000:]) > majority + 0.1
    proba = model.predict_proba(X)
    assert proba.shape == (6_000, 2)
    assert np.allclose(proba.sum(axis=1), 1)


def test_many_classes_and_words_for_them() -> None:
    X, _ = made_up(6_000)
    words = np.array(["low", "middle", "top"])
    y = words[np.digitize(X[:, 0], [-0.3, 0.3])]
    model = forest_of(epsilon=20.0, max_depth=4, rng=Seeded(0)).fit(X, y)
    assert model.classes_.tolist() == ["low", "middle", "top"]
    assert model.score(X, y) > 0.9


@pytest.mark.filterwarnings("error::tacit.central.estimators.base.MostlyNoise")
def test_separable_and_constant_columns() -> None:
    X, _ = made_up(3_000)
    X[:, 1] = 0.5
    y = (X[:, 0] > 0).astype(int)
    assert forest_of(epsilon=10.0, rng=Seeded(0)).fit(X, y).score(X, y) > 0.9


def test_rows_outside_the_bounds_are_clipped_and_counted() -> None:
    X, y = made_up(500)
    model = forest_of(bounds=(-0.5, 0.5), rng=Seeded(1)).fit(X, y)
    assert model.clipped_ == (np.abs(X) > 0.5).any(axis=1).sum()
    clipped = forest_of(bounds=(-0.5, 0.5), rng=Seeded(1)).fit(np.clip(X, -0.5, 0.5), y)
    assert np.array_equal(vector_of(model), vector_of(clipped))


def test_fewer_records_than_columns() -> None:
    X, y = np.random.default_rng(0).uniform(-1, 1, (8, 30)), np.arange(8) % 2
    with pytest.warns(MostlyNoise, match="larger epsilon"):
        forest_of(rng=Seeded(0)).fit(X, y)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_tiny_epsilon_is_called_noise(algorithm: str) -> None:
    X, y = made_up(500)
    with pytest.warns(MostlyNoise):
        forest_of(epsilon=1e-3, algorithm=algorithm, rng=Seeded(0)).fit(X, y)


def test_a_declared_class_may_be_missing_but_no_other_may_come() -> None:
    X, y = made_up(2_000)
    model = forest_of(epsilon=50.0, classes=[0, 1]).fit(X, np.ones(2_000, dtype=int))
    assert (model.predict(X) == 1).mean() > 0.95
    with pytest.raises(InvalidData, match="declared classes") as refused:
        forest_of(classes=[0, 1]).fit(X, y + 7)
    assert "7" not in str(refused.value)
    with pytest.raises(InvalidData, match="one class"):
        forest_of().fit(X, np.ones(2_000))


def test_a_table_too_large_for_memory_is_refused() -> None:
    X, y = np.zeros((30, 40)), np.arange(30) % 10
    with pytest.raises(InvalidParameter, match="Lower max_depth"):
        forest_of(max_depth=16, bins=256).fit(X, y)


def test_dprf_needs_cuts_to_choose_from_before_it_pays() -> None:
    X, y = made_up(50)
    with pytest.raises(InvalidParameter, match="cuts to choose from"):
        forest_of(algorithm="dprf", max_features=1, bins=2).fit(X, y)


def test_what_ran_must_be_what_was_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = made_up(100)
    monkeypatch.setattr(
        forest_growing.RandomSplits, "_charge", lambda _, n: n.charge(1, Fraction(1, 7))
    )
    with pytest.raises(TacitError, match="not what was charged"):
        forest_of(algorithm="random-splits").fit(X, y)


# --- scikit-learn's conventions ------------------------------------------------------------------


class Restarting:
    """The same words at every call: two fits are then the same, as scikit-learn wants them."""

    secure = False

    def words(self, count: int) -> np.ndarray:
        return np.random.default_rng(count).integers(0, 2**64, count, dtype=np.uint64)

    def __repr__(self) -> str:
        return "Restarting()"


CHECKED = [
    forest_of(epsilon=600.0, bounds=(-5, 5), algorithm=one, n_estimators=trees, rng=Restarting())
    for one, trees in (("histograms", 3), ("random-splits", 60), ("dprf", 3))
]


@pytest.mark.quick(61)
@parametrize_with_checks(CHECKED)
def test_conventions(estimator: Any, check: Any) -> None:
    check(estimator)
