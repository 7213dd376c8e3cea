"""Plans: honest about what they rest on, and never more certain than that."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.utils import shuffle

import tacit
from tacit.local import graphs
from tacit.local.plan import intervals, planning, record, simulation, worlds
from tacit.local.plan.intervals import Interval, Predicted
from tacit.local.plan.planning import plan
from tacit.local.plan.simulation import Simulation, Trial, levels
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.randomness import Seeded

ROWS, BENIGN = shuffle(*load_breast_cancer(return_X_y=True, as_frame=True), random_state=0)
ROWS = ROWS.iloc[:, :6]


def quicker(patch):
    """Fewer worlds, trials and people: what is tested does not depend on them."""
    patch.setattr(worlds, "WARM_UP", 100)
    patch.setattr(worlds, "CHAINS", 2)
    patch.setattr(planning, "WORLDS", 24)
    patch.setattr(planning, "TRIALS", 2)
    patch.setattr(planning, "NUMBERS", (100, 300))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    quicker(monkeypatch)


@pytest.fixture(scope="module")
def usual():
    """The plan that others are compared with, made once."""
    with pytest.MonkeyPatch.context() as patch:
        quicker(patch)
        return with_pilot(target_accuracy=0.8)


def with_pilot(count=80, **more):
    given = {
        "inhouse": ROWS[:200],
        "pilot": ROWS[200:280][:count],
        "labels": BENIGN[200:280][:count],
    }
    return plan(**{"epsilon": 4, "people": 300, **given, **more})


# --- nothing -------------------------------------------------------------------------------------


def test_with_nothing_the_record_is_the_range():
    made = plan(classes=2, epsilon=2, people=5000, target_accuracy=0.9)
    reached = [one.reached[1] for one in record.RECORD if one.classes == 2]
    assert made.basis == "record"
    assert made.accuracy == Interval(min(reached), max(reached))
    assert made.accuracy.high - made.accuracy.low > 0.3
    assert made.people == Interval(284, None)
    assert "Nothing is known of your rows" in made.assumptions[0]
    assert "at least 284 people, perhaps far more" in made.answer


def test_the_record_promises_nothing_beyond_itself():
    assert plan(classes=2, epsilon=2, target_accuracy=0.999).people == Interval(None, None)
    assert plan(classes=2, epsilon=0.5, people=5000).accuracy == Interval(None, None)
    assert "Nothing is known" in plan(classes=2, epsilon=9, people=5000).answer
    between = record.accuracies(2, 3)
    assert between[0] <= record.accuracies(2, 2)[0]
    assert between[1] >= record.accuracies(2, 4)[1]


def test_the_record_is_of_real_tables():
    assert len(record.RECORD) >= 8
    for one in record.RECORD:
        assert len(one.reached) == len(record.EPSILONS)
        assert all(0 < value <= 1 for value in (*one.reached, one.largest))


# --- in-house rows -------------------------------------------------------------------------------


def test_with_inhouse_rows_there_is_an_upper_bound_and_no_more():
    made = plan(classes=2, epsilon=4, people=300, target_accuracy=0.7, inhouse=ROWS[:200])
    assert made.basis == "in-house rows"
    assert made.accuracy.low is None
    assert 0.7 < made.accuracy.high <= 1
    assert made.people.low >= 100
    assert made.people.high is None
    assert "Upper bound" in made.answer
    assert "perhaps far more, or stays out of reach" in made.answer
    assert any("upper bound and no estimate" in sentence for sentence in made.assumptions)


# --- a pilot -------------------------------------------------------------------------------------


def test_a_pilot_gives_an_interval_that_holds_what_is_reached(usual):
    made = usual
    collection = tacit.Collection(epsilon=4, people=280, classes=2).fit(ROWS[:200])
    reports = collection.release(ROWS[280:], BENIGN[280:], rng=Seeded(1))
    reached = collection.learn(reports).score(ROWS[280:], BENIGN[280:])
    assert made.basis == "pilot"
    assert made.classes == 2
    assert made.accuracy.low <= reached <= made.accuracy.high
    assert made.accuracy.high - made.accuracy.low < 0.35
    said = " ".join(made.assumptions)
    for words in ("nine of ten", "look alike", "protects nobody", "keep the plan in-house"):
        assert words in said


def test_labels_of_chance_promise_little():
    """The rows' groups are well apart, but the pilot says that labels do not follow them."""
    coins = np.random.default_rng(0).integers(0, 2, 80)
    made = with_pilot(labels=coins, target_accuracy=0.95)
    assert made.accuracy.high < 0.85
    assert made.people == Interval(300, None)


def test_a_plan_repeats_itself_whatever_labels_are_called(usual):
    words = BENIGN[200:280].map({0: "no", 1: "yes"})
    assert with_pilot(target_accuracy=0.8, labels=words) == usual


def test_a_pilot_alone_stands_for_the_inhouse_rows():
    made = with_pilot(inhouse=None)
    assert made.basis == "pilot"
    assert 0.5 < made.accuracy.high <= 1


def test_undeclared_classes():
    words = BENIGN[200:280].map({0: "no", 1: "yes"})
    with pytest.raises(InvalidData, match="declared classes"):
        with_pilot(labels=words, classes=["yes", "maybe"])


def test_json_has_the_agreed_names(usual):
    body = json.loads(json.dumps(usual.to_dict(), allow_nan=False))
    assert set(body["accuracy"]) == set(body["people"]) == {"low", "high"}
    assert body["at_people"] == 300
    assert body["answer"]


# --- reports -------------------------------------------------------------------------------------


def test_a_first_round_of_reports_tells_of_the_labels():
    collection = tacit.Collection(epsilon=8, people=280, classes=2).fit(ROWS[:200])
    given = {"epsilon": 4, "people": 300, "inhouse": ROWS[:200]}
    coins = np.random.default_rng(0).integers(0, 2, 280)
    true = collection.release(ROWS[280:560], BENIGN[280:560], rng=Seeded(0))
    chance = collection.release(ROWS[280:560], coins, rng=Seeded(0))
    made = plan(**given, reports=true)
    assert made.basis == "reports"
    assert made.accuracy.low > 0.6
    assert plan(**given, reports=chance).accuracy.high < made.accuracy.high
    both = plan(**given, reports=true, pilot=ROWS[200:280], labels=BENIGN[200:280])
    assert both.basis == "pilot and reports"


def test_reports_must_be_labelled_and_come_with_rows():
    mechanism = tacit.Partitions(epsilon=4, people=280, classes=2).fit(ROWS[:200])
    labelled = mechanism.release(ROWS[280:], BENIGN[280:], rng=Seeded(0))
    with pytest.raises(InvalidParameter, match="inhouse must be given with reports"):
        plan(epsilon=4, people=300, reports=labelled)
    with pytest.raises(InvalidData, match="labelled reports"):
        plan(epsilon=4, people=300, inhouse=ROWS, reports=mechanism.release(ROWS[280:]))


# --- the parts -----------------------------------------------------------------------------------


def test_worlds_follow_the_labels_where_these_are_known():
    vectors = np.random.default_rng(0).normal(size=(400, 3))
    inputs = worlds.Inputs.fit(vectors, 2, seed=0)
    seen = inputs(vectors[:100])
    codes = (vectors[:100, 0] > 0).astype(np.int64)
    drawn = worlds.draw(seen, worlds.labelled(codes), 2, 10, seed=0)
    mean = np.mean([world(inputs(vectors)) for world in drawn], axis=0)
    assert np.mean(mean.argmax(axis=1) == (vectors[:, 0] > 0)) > 0.85
    unknown = worlds.draw(seen, lambda _: 0.0, 2, 10, seed=0)
    other = np.mean([world(inputs(vectors)) for world in unknown], axis=0)
    assert np.mean(other.argmax(axis=1) == (vectors[:, 0] > 0)) < 0.85


def test_a_smoothed_world_is_as_predictable_as_asked():
    rng = np.random.default_rng(0)
    drawn = [worlds.softmax(rng.normal([1, 0, 0], size=(200, 3))) for _ in range(5)]
    for best in (0.6, 0.9):
        assert levels(worlds.smoothed(drawn, best))[0] == pytest.approx(best, abs=1e-3)


def test_a_trial_is_judged_in_its_own_world():
    simulated = Simulation(ROWS[:200], 2, 8.0)
    surely = np.tile([0.0, 1.0], (200, 1))
    trial = simulated.trial(surely, 300, 0, "any")
    assert (trial.best, trial.largest, trial.reached) == (1, 1, 1)
    coins = np.full((200, 2), 0.5)
    assert simulated.trial(coins, 300, 0, "any").reached == pytest.approx(0.5)


def predicted(efficiencies=(0.2, 0.5, 0.9)):
    trials = [
        Trial(people, 0.9, 0.5, 0.5 + 0.4 * r, "any")
        for people, r in zip((100, 1000, 10_000), efficiencies, strict=True)
    ]
    return Predicted(np.full(50, 0.9), np.full(50, 0.5), trials, 2)


def test_more_people_are_never_worse():
    found = predicted((0.2, 0.1, 0.9))
    ends = [found.accuracy(people) for people in (100, 300, 1000, 3000, 10_000, 10**6)]
    assert ends == sorted(ends)
    assert ends[-1][0] == ends[-2][0]  # nothing was simulated there: the lower end stays
    assert ends[-1][1] > 0.9  # and the upper one is that of the best classifier


def test_no_number_of_people_is_named_below_the_evidence():
    found = predicted()
    fewest, enough = found.people(0.7)
    assert found.accuracy(fewest * 0.9)[1] < 0.7 <= found.accuracy(fewest * 1.1)[1]
    assert found.accuracy(enough)[0] >= 0.7
    assert found.people(0.4)[0] == 100  # no fewer than were simulated
    assert found.people(0.99) == (10_000, None)


def test_people_are_rounded_in_the_direction_that_claims_less():
    assert intervals._rounded(1234.0, up=False) == 1200
    assert intervals._rounded(1234.0, up=True) == 1300
    assert intervals._rounded(99.0, up=True) == 99


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("classes", v) for v in (1, 0, 2.5, None)),
        *(("epsilon", v) for v in (0, -1, math.inf, math.nan, 701)),
        *(("target_accuracy", v) for v in (0, 1, 1.5, math.nan, "high")),
        *(("people", v) for v in (0, 99, 10**9, 150.5)),
    ],
)
def test_bad_parameters(name, wrong):
    good = {"classes": 10, "epsilon": 1, "target_accuracy": 0.9}
    with pytest.raises(InvalidParameter, match=f"plan: {name} must be"):
        plan(**{**good, name: wrong})


def test_a_target_or_a_number_of_people_is_needed():
    with pytest.raises(InvalidParameter, match="target_accuracy must be given"):
        plan(classes=4, epsilon=2)


def test_bad_rows_and_pilots():
    with pytest.raises(InvalidData, match="at least 50"):
        plan(classes=2, epsilon=1, people=300, inhouse=ROWS[:49])
    with pytest.raises(InvalidData, match="at least 20"):
        with_pilot(19)
    with pytest.raises(InvalidData, match="one per row"):
        with_pilot(labels=BENIGN[200:279])
    with pytest.raises(InvalidParameter, match="labels must be given with pilot"):
        plan(classes=2, epsilon=1, people=300, pilot=pd.DataFrame(ROWS[:100]))


# --- the pipeline that will run ------------------------------------------------------------------


def settings_seen(monkeypatch, **given):
    """Plan, and return what the simulated collections were made with, fitted with, and did."""
    seen = {"made": [], "fitted": [], "rows": [], "adapted": 0}

    class Watched(tacit.Collection):
        def __init__(self, **settings):
            seen["made"].append(settings)
            super().__init__(**settings)

        def fit(self, inhouse, **more):
            seen["fitted"].append(more)
            seen["rows"].append(simulation._count(inhouse))
            return super().fit(inhouse, **more)

        def adapt(self, model):
            seen["adapted"] += 1
            return super().adapt(model)

    monkeypatch.setattr(simulation, "Collection", Watched)
    return with_pilot(**given), seen


def test_rounds_are_simulated(monkeypatch, usual):
    made, seen = settings_seen(monkeypatch, rounds=2)
    assert all(settings["rounds"] == 2 for settings in seen["made"])
    assert seen["adapted"] == planning.TRIALS
    assert made.accuracy != usual.accuracy


def test_a_central_guarantee_is_simulated_on_all_rows(monkeypatch):
    monkeypatch.setattr(simulation, "MOST_FITTED", 120)
    columns = [tacit.Continuous(name, 0, 5000, outside="clip") for name in ROWS.columns]
    central = {"central_epsilon": 4, "central_delta": 1e-5}
    schema = tacit.TableSchema(tuple(columns))
    _, seen = settings_seen(monkeypatch, schema=schema, **central)
    assert all(settings.items() >= central.items() for settings in seen["made"])
    assert all(more["schema"] == schema for more in seen["fitted"])
    assert set(seen["rows"]) == {200}  # the noise depends on their number
    assert set(settings_seen(monkeypatch)[1]["rows"]) == {120}


def test_signals_are_simulated_as_signals(monkeypatch):
    waves = np.random.default_rng(0).normal(size=(200, 12))
    given = {"inhouse": waves, "pilot": waves[:80], "labels": (waves[:80, 0] > 0).astype(int)}
    _, seen = settings_seen(monkeypatch, signal=(6, 2), **given)
    assert all(more["signal"] == (6, 2) for more in seen["fitted"])


def test_a_pipeline_that_cannot_run_is_refused():
    with pytest.raises(InvalidParameter, match="central_delta must be"):
        with_pilot(central_epsilon=1)
    with pytest.raises(InvalidParameter, match="rounds must be"):
        with_pilot(rounds=0)


def test_the_record_knows_one_round_only():
    said = " ".join(plan(classes=2, epsilon=2, people=5000, rounds=2).assumptions)
    assert "The record is of collections in one round" in said
    assert "in one round" not in " ".join(plan(classes=2, epsilon=2, people=5000).assumptions)


def test_groups_follow_clusters_of_any_shape_where_cells_do():
    """Two rings: cells of k-means cut them, linked groups do not."""
    rng = np.random.default_rng(0)
    angle, ring = rng.uniform(0, 2 * np.pi, 2000), np.repeat([1.0, 4.0], 1000)
    vectors = ring[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    vectors += rng.normal(0, 0.05, vectors.shape)
    for clustered, agrees in ((True, True), (False, False)):
        centres, groups = worlds.grouped(vectors, 2, 0, clustered)
        found = groups[graphs.nearest(vectors, centres)]
        shares = np.mean(found == (ring > 2))
        assert (max(shares, 1 - shares) == 1) == agrees
