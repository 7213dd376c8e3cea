"""The membership game: attacks on fits whose privacy is known, and on fits that have none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.audit.attributes import attribute_inference
from tacit.audit.games import ATTACKS, Played, play
from tacit.audit.membership import cross_entropy, squared
from tacit.audit.shadows import likelihood_scores
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import Adjacency, PureDP
from tacit.privacy.randomness import Seeded

EVERY = tuple(ATTACKS)


def claim(epsilon: float, adjacency: str = "add-remove") -> PureDP:
    return PureDP(epsilon=epsilon, adjacency=adjacency, unit="record")  # type: ignore[arg-type]


# --- fits of known privacy ----------------------------------------------------------------------


def flipped(epsilon: float, count: int, seed: int) -> dict[str, Any]:
    """Who is there, each told by randomized response: ε-DP towards one more or less, tightly."""
    generator, keep = np.random.default_rng(seed), 1 / (1 + math.exp(-epsilon))

    def fit(rows: Any, labels: Any) -> np.ndarray:
        there = np.isin(np.arange(count), rows)
        return np.where(generator.random(count) < keep, there, ~there)

    losses = lambda told, rows, labels: -told[rows].astype(float)  # noqa: E731
    return {"fit": fit, "losses": losses, "rows": np.arange(count), "labels": np.zeros(count, int)}


@pytest.mark.parametrize(("game", "most"), [("coins", 1.0), ("pairs", 2.0)])
def test_the_bound_is_not_above_the_truth(game: str, most: float) -> None:
    # In pairs one coin moves two records: 1-DP towards each is 2-DP towards their exchange.
    # Fit and game have equal seeds on purpose: they must share no draw.
    found = [
        play(
            **flipped(1.0, 400, seed), game=game, claim=claim(1.0), certainty=0.9, rng=Seeded(seed)
        ).best
        for seed in range(60)
    ]
    assert all(report.tested and report.tested.epsilon == most for report in found)
    assert sum(report.refuted for report in found) <= 16  # P(Bin(60, 0.1) > 16) < 1e-4
    assert np.median([report.epsilon for report in found]) > 0.4 * most
    allowed = math.tanh(0.5) if game == "coins" else 1 - math.exp(-1)
    assert found[0].ceiling == pytest.approx(allowed)


@pytest.mark.parametrize("game", ["coins", "pairs"])
def test_a_fit_with_less_noise_than_claimed_is_refuted(game: str) -> None:
    options: dict[str, Any] = {"game": game, "claim": claim(1.0), "certainty": 0.9999}
    for epsilon, refuted in ((4.0, True), (1.0, False)):
        found = play(**flipped(epsilon, 1000, 7), rng=Seeded(7), **options)
        assert found.best.certifiable > 2
        assert found.refuted is refuted
    assert found.words.startswith("loss threshold: not refuted")


def test_the_number_of_records_stays_in_pairs_alone() -> None:
    sizes: dict[str, set[int]] = {"pairs": set(), "coins": set()}
    for game, seen in sizes.items():
        toy = flipped(1.0, 101, 0)
        fit = toy.pop("fit")

        def counted(rows: Any, labels: Any, fit: Any = fit, seen: Any = seen) -> Any:
            seen.add(len(rows))
            return fit(rows, labels)

        for seed in range(5):
            played = play(counted, **toy, game=game, rng=Seeded(seed))
            wanted = Adjacency.REPLACE_ONE if game == "pairs" else Adjacency.ADD_REMOVE
            assert played.best.adjacency is wanted
    assert sizes["pairs"] == {50}
    assert len(sizes["coins"]) > 1


def test_whoever_is_always_in_is_never_guessed() -> None:
    toy, seen = flipped(1.0, 60, 0), []
    fit = toy.pop("fit")

    def kept(rows: Any, labels: Any) -> Any:
        seen.append((set(rows) >= {1000, 1001}, len(rows)))
        return fit(rows, labels)

    always = (np.array([1000, 1001]), np.zeros(2, int))
    report = play(kept, **toy, always=always).best
    assert seen == [(True, 32)]
    assert report.members == report.others == 30


# --- difficulty that varies ---------------------------------------------------------------------


def varied(seed: int, spread: float, gain: float = 1.0, count: int = 400) -> dict[str, Any]:
    """Every record has a loss of its own, a little smaller where it was seen."""
    generator = np.random.default_rng(seed)
    own = generator.normal(0, spread, count)

    def fit(rows: Any, labels: Any) -> np.ndarray:
        seen = np.isin(np.arange(count), rows)
        return np.asarray(own - gain * seen + generator.normal(0, 0.4, count))

    losses = lambda model, rows, labels: model[rows]  # noqa: E731
    return {"fit": fit, "losses": losses, "rows": np.arange(count), "labels": np.zeros(count, int)}


def test_likelihood_ratios_beat_a_threshold_where_difficulty_varies() -> None:
    reports = play(**varied(0, 5.0), attacks=EVERY, rng=Seeded(0)).reports
    areas = {report.attack: report.auc.value for report in reports}
    assert areas["loss threshold"] < 0.65
    assert areas["likelihood ratio"] > 0.9
    assert areas["likelihood ratio, offline"] > 0.9
    proofs = {report.attack: report.epsilon for report in reports}
    assert proofs["loss threshold"] < 0.5 < 1.5 < proofs["likelihood ratio"]


def test_without_difficulty_all_attacks_see_the_same() -> None:
    reports = play(**varied(1, 0.0), attacks=EVERY, shadows=4, rng=Seeded(1)).reports
    assert min(report.auc.value for report in reports) > 0.9


def test_scores_of_likelihood_are_log_ratios() -> None:
    # Two records; shadows in at 2 ± 1 and 5 ± 1, out at 0 ± 1 and 0 ± 1: n − 1 of 2 gives √2.
    inside = np.array([[1, 1], [1, 1], [0, 0], [0, 0]], dtype=bool)
    shown = np.array([[3.0, 6], [1, 4], [1, 1], [-1, -1]])
    asked = np.array([1.0, 5.0])
    for each in (False, True):
        found = likelihood_scores(asked, shown, inside, each=each)
        assert found == pytest.approx([0.0, 25 / 4], abs=1e-3)
        offline = likelihood_scores(asked, shown, inside, online=False, each=each)
        assert offline == pytest.approx(asked / math.sqrt(2), rel=1e-3)
    # A spread for each tells what a common one cannot.
    shown = np.array([[1.0, 60], [1, -60], [0, 60], [0, -60]])
    apart = likelihood_scores(np.array([1.0, 1.0]), shown, inside, each=True)
    assert apart[0] > 100 > 1 > abs(apart[1])
    with pytest.raises(InvalidParameter, match="shadows of a record must be at least 1"):
        likelihood_scores(asked, shown, np.ones_like(inside))


# --- models of scikit-learn ---------------------------------------------------------------------


def noisy_classes(seed: int, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(count, 4))
    return rows, (rows[:, 0] + generator.normal(0, 1.5, count) > 0).astype(int)


def attacked(learner: Callable[[], Any], seed: int, **options: Any) -> Played:
    rows, labels = noisy_classes(seed)
    classes = np.unique(labels)
    return play(
        lambda rows, labels: learner().fit(rows, labels),
        lambda model, rows, labels: cross_entropy(model.predict_proba(rows), labels, classes),
        rows,
        labels,
        confidences=lambda model, rows: model.predict_proba(rows),
        attacks=EVERY,
        shadows=8,
        rng=Seeded(seed),
        **options,
    )


def test_every_attack_sees_an_overfitted_tree() -> None:
    from sklearn.tree import DecisionTreeClassifier

    played = attacked(lambda: DecisionTreeClassifier(random_state=0), 0, claim=claim(0.5))
    for report in played.reports:
        assert report.advantage.value > 0.25, report.attack
        assert report.auc.low > 0.5, report.attack
    assert played.best.epsilon > 0.3
    plain = json.loads(json.dumps(played.to_dict(), allow_nan=False))
    assert [one["attack"] for one in plain["reports"]] == list(ATTACKS.values())


def test_no_attack_sees_a_constant_model() -> None:
    from sklearn.dummy import DummyClassifier

    played = attacked(lambda: DummyClassifier(strategy="uniform"), 1, claim=claim(0.01))
    for report in played.reports:
        assert report.epsilon == 0
        assert report.advantage.low <= 0 <= report.advantage.high
        assert report.auc.low <= 0.5 <= report.auc.high
    assert not played.refuted


def test_shadows_without_confidences_go_by_the_loss() -> None:
    # A regression with as many columns as records: members have no error at all.
    generator = np.random.default_rng(2)
    rows, targets = generator.normal(size=(80, 60)), generator.normal(size=80)
    played = play(
        lambda rows, targets: np.linalg.lstsq(rows, targets, rcond=None)[0],
        lambda weights, rows, targets: squared(rows @ weights, targets),
        rows,
        targets,
        attacks=("threshold", "shadows"),
        shadows=4,
        rng=Seeded(2),
    )
    assert all(report.advantage.value > 0.6 for report in played.reports)


def test_progress_and_refusals() -> None:
    toy, told = flipped(1.0, 60, 0), []
    play(**toy, attacks=("lira",), shadows=4, progress=lambda *step: told.append(step))
    assert told == [(i, 5) for i in range(1, 6)]
    for options, words in (
        ({"attacks": ("guess",)}, "attacks must be one of"),
        ({"attacks": ()}, "attacks must be an integer from 1"),
        ({"attacks": ("lira",), "shadows": 3}, "shadows must be even"),
        ({"game": "dice"}, "game must be one of pairs, coins"),
        ({"rows": np.arange(59)}, "labels must be one per row, 59"),
        ({"losses": lambda *_: np.zeros(3)}, r"losses must be of shape \(60,\)"),
        ({"confidences": lambda *_: np.zeros((60, 3))}, r"confidences must be of shape \(60, 1\)"),
        ({"certainty": 2.0}, "certainty must be"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            play(**{**toy, **options})
    with pytest.raises(InvalidParameter, match="candidates must be an integer from 40"):
        play(**flipped(1.0, 30, 0))
    with pytest.raises(InvalidData, match="without NaN"):
        play(**{**toy, "losses": lambda *_: np.full(60, math.nan)})


# --- attributes ---------------------------------------------------------------------------------


def people(seed: int, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """A binary attribute in the first column, two one-hot columns of another, and a noisy label."""
    generator = np.random.default_rng(seed)
    colour = np.eye(3)[generator.integers(0, 3, count)]
    rows = np.column_stack([generator.random(count) < 0.5, colour, generator.normal(size=count)])
    return rows, generator.integers(0, 2, count)


def memorised(seed: int) -> Callable[[Any, Any], np.ndarray]:
    """A loss of 0 for exactly the records that were seen, and about 1 for all else."""
    rows, labels = people(seed)
    seen = {(*row, label) for row, label in zip(rows, labels, strict=True)}
    generator = np.random.default_rng(seed + 1)

    def losses(rows: Any, labels: Any) -> np.ndarray:
        known = [(*row, label) in seen for row, label in zip(rows, labels, strict=True)]
        return np.where(known, 0.01, generator.random(len(rows)) + 0.5)

    return losses


@pytest.mark.parametrize("rule", ["likelihood", "nearest"])
@pytest.mark.parametrize("kind", ["cross-entropy", "squared"])
def test_attributes_of_memorised_records_are_told(rule: str, kind: str) -> None:
    options: dict[str, Any] = {"rule": rule, "kind": kind, "claim": claim(1.0)}
    found = attribute_inference(memorised(0), people(0), people(9), 0, [0, 1], **options)
    assert found.on_members.value == 1.0
    assert found.on_others.low < 0.5 < found.on_others.high
    assert found.advantage.low > 0.35
    assert found.ceiling == pytest.approx(1 - math.exp(-1))
    several = attribute_inference(
        memorised(0), people(0), people(9), [1, 2, 3], np.eye(3), **options
    )
    assert several.values == 3
    assert several.advantage.low > 0.5
    assert json.loads(json.dumps(several.to_dict()))["words"] == several.words


def test_what_the_population_tells_is_no_advantage() -> None:
    # The prior is right for three in four, of members and of others alike.
    generator = np.random.default_rng(3)
    sides = [((generator.random((500, 1)) < 0.75).astype(float), np.zeros(500)) for _ in range(2)]
    constant = lambda rows, labels: np.ones(len(rows))  # noqa: E731
    found = attribute_inference(constant, *sides, 0, [0, 1], prior=[0.25, 0.75])
    assert found.on_others.value == pytest.approx(0.75, abs=0.06)
    assert found.baseline == found.on_others.value
    assert found.advantage.low < 0 < found.advantage.high


def test_a_loss_that_leans_overrules_the_prior() -> None:
    rows = (np.zeros((40, 1)), np.zeros(40))
    lean = lambda rows, labels: 1.0 + 3 * rows[:, 0]  # noqa: E731
    for prior, right in (([0.2, 0.8], 1.0), ([0.01, 0.99], 0.0)):  # e³ is about 20 : 1
        found = attribute_inference(lean, rows, rows, 0, [0, 1], prior=prior, scale=1.0)
        assert found.on_members.value == right


def test_refusals_about_attributes() -> None:
    rows = people(0)
    with pytest.raises(InvalidParameter, match="values must be 2 or more of 3 columns"):
        attribute_inference(memorised(0), rows, rows, [1, 2, 3], [0, 1])
    with pytest.raises(InvalidParameter, match="prior must be 2 numbers"):
        attribute_inference(memorised(0), rows, rows, 0, [0, 1], prior=[1, -1])
    with pytest.raises(InvalidParameter, match="rule must be one of"):
        attribute_inference(memorised(0), rows, rows, 0, [0, 1], rule="luck")
