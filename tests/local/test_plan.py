"""Plans: by the rule's model and by simulation, honest about what they rest on."""

import json
import math

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tacit.local import plan as plans
from tacit.local.learned.rule import codewords_for
from tacit.local.plan import MODEL, SIMULATION, plan
from tacit.privacy.errors import InvalidData, InvalidParameter

IMAGES = load_digits(return_X_y=True)[0]


def accuracies(made):
    return [row.accuracy for row in made.rows]


# --- by the model --------------------------------------------------------------------------------


def test_more_epsilon_is_more_accuracy_and_fewer_people():
    made = [plan(classes=10, epsilon=e, target_accuracy=0.9) for e in (0.5, 1, 2, 4, 8)]
    needed = [m.people_needed for m in made]
    assert needed == sorted(needed, reverse=True)
    assert needed[0] > 5 * needed[-1]
    values = accuracies(made[1])
    assert values == sorted(values)
    assert [row.epsilon for row in made[1].rows] == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_more_people_is_more_accuracy():
    counts = [100, 300, 1000, 10_000, 100_000, 10**7]
    made = [plan(classes=5, epsilon=1, target_accuracy=0.8, people=n) for n in counts]
    at_one = [next(r for r in m.rows if r.epsilon == 1.0) for m in made]
    values = [row.accuracy for row in at_one]
    assert values == sorted(values)
    assert values[-1] > values[0] + 0.2
    assert [row.people for row in at_one] == counts
    assert len({m.people_needed for m in made}) == 1  # asked for the target, not for these
    assert all(0.2 <= value <= 1 for value in values)


def test_a_higher_target_needs_more_people():
    needed = [
        plan(classes=10, epsilon=2, target_accuracy=t).people_needed for t in (0.5, 0.7, 0.9, 0.95)
    ]
    assert needed == sorted(needed)
    assert needed[0] < needed[-1]


def test_the_answer_is_enough_and_not_far_too_much():
    made = plan(classes=10, epsilon=1, target_accuracy=0.9)
    row = next(r for r in made.rows if r.epsilon == 1.0)
    assert row.people == made.people_needed
    assert row.accuracy >= 0.9
    assert row.codewords == codewords_for(1.0, made.people_needed, 10)
    fewer = plan(classes=10, epsilon=1, target_accuracy=0.9, people=int(0.85 * made.people_needed))
    assert next(r for r in fewer.rows if r.epsilon == 1.0).accuracy < 0.9
    needed = f"{made.people_needed:,}"
    assert made.answer == f"Roughly: 0.9 at ε = 1 needs about {needed} people."
    assert made.people_needed % 10 ** (len(str(made.people_needed)) - 2) == 0


def test_a_target_out_of_reach_is_said_to_be():
    made = plan(classes=10, epsilon=1e-3, target_accuracy=0.99)
    assert made.people_needed is None
    reach = "is not reached with up to 100,000,000 people."
    assert made.answer == f"Roughly: 0.99 at ε = 0.001 {reach}"
    assert [row.people for row in made.rows] == [10_000] * 6


def test_a_number_of_people_needs_no_target():
    made = plan(classes=4, epsilon=2, people=5000)
    (mine,) = (row for row in made.rows if row.epsilon == 2)
    assert made.people_needed is None
    assert made.answer == f"Roughly: {mine.accuracy:.2f} with 5,000 people at ε = 2."
    assert made.to_dict()["target_accuracy"] is None
    with pytest.raises(InvalidParameter, match="target_accuracy must be given"):
        plan(classes=4, epsilon=2)


def test_an_epsilon_of_its_own_gets_a_row():
    made = plan(classes=4, epsilon=3, target_accuracy=0.7)
    assert [row.epsilon for row in made.rows] == [0.5, 1.0, 2.0, 3.0, 4.0, 8.0]


def test_what_it_assumes_is_said():
    made = plan(classes=10, epsilon=1, target_accuracy=0.9)
    assert made.assumptions == MODEL
    assert not made.simulated
    said = " ".join(made.assumptions)
    for words in ("equal size", "nine in ten", "a model, not your data", "Give in-house rows"):
        assert words in said
    assert "by the rule's model" in made.title


def test_json():
    made = plan(classes=10, epsilon=1, target_accuracy=0.9)
    body = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert body["people_needed"] == made.people_needed
    assert body["answer"] == made.answer
    assert body["rows"][0] == {
        "epsilon": 0.5,
        "people": made.people_needed,
        "codewords": made.rows[0].codewords,
        "accuracy": made.rows[0].accuracy,
    }
    assert body["assumptions"] == list(MODEL)


GOOD = {"classes": 10, "epsilon": 1, "target_accuracy": 0.9}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("classes", v) for v in (1, 0, 2.5, 1001, "ten", True)),
        *(("epsilon", v) for v in (0, -1, math.inf, math.nan, 701)),
        *(("target_accuracy", v) for v in (0, 1, 1.5, math.nan, "high")),
        *(("people", v) for v in (0, 99, 10**9, 150.5)),
    ],
)
def test_bad_parameters(name, wrong):
    with pytest.raises(InvalidParameter, match=f"plan: {name} must be"):
        plan(**{**GOOD, name: wrong})


# --- simulated -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few():
    """A smaller largest number: what is shown does not depend on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "_LARGEST_SIMULATED", 20_000)
        yield plan(classes=10, epsilon=4, target_accuracy=0.7, people=3000, inhouse=IMAGES)


@pytest.mark.heavy
def test_a_simulation_on_digits_is_sane(few):
    values = accuracies(few)
    assert few.simulated
    assert "upper bound: labels are assumed to follow the rows' groups" in few.title
    assert all(0 <= value <= 1 for value in values)
    # Groups of digits are well apart: little ε tells little, much ε nearly all.
    assert values[0] < 0.6
    assert values[-1] > 0.85
    assert values[-1] > values[1] > values[0] - 0.1
    assert 100 <= few.people_needed <= 3000
    assert all(12 <= row.codewords <= len(IMAGES) // 8 for row in few.rows)


@pytest.mark.heavy
def test_a_simulation_repeats_itself(few, monkeypatch):
    monkeypatch.setattr(plans, "_LARGEST_SIMULATED", 20_000)
    settings = {"classes": 10, "epsilon": 4, "target_accuracy": 0.7, "people": 3000}
    assert plan(**settings, inhouse=IMAGES) == few
    assert plan(**settings, inhouse=IMAGES, seed=1) != few


def test_people_and_noise_are_independent(monkeypatch):
    """Noise from the stream that people were drawn from would be known once the rows are."""
    monkeypatch.setattr(plans, "_LARGEST_SIMULATED", 300)
    streams = []

    class Spy(plans.Seeded):
        def __init__(self, seed):
            super().__init__(seed)
            streams.append(self._generator.bit_generator.state["state"]["state"])

    monkeypatch.setattr(plans, "Seeded", Spy)
    plan(classes=3, epsilon=2, target_accuracy=0.5, people=200, inhouse=IMAGES[:200], seed=5)
    assert streams
    assert np.random.default_rng(5).bit_generator.state["state"]["state"] not in streams


def test_what_a_simulation_assumes_is_said(few):
    assert few.assumptions == SIMULATION
    said = " ".join(few.assumptions)
    for words in ("have no labels", "cut across groups", "look alike", "protects nobody"):
        assert words in said
    assert "simulated on the in-house rows" in few.title
    json.dumps(few.to_dict(), allow_nan=False)


def test_bad_inhouse_rows():
    with pytest.raises(InvalidData, match="at least 400, 40 per class"):
        plan(**GOOD, inhouse=IMAGES[:399])
    holed = IMAGES[:500].copy()
    holed[3, 5] = np.nan
    with pytest.raises(InvalidData):
        plan(**GOOD, inhouse=holed)
    with pytest.raises(InvalidParameter, match="people must be"):
        plan(**GOOD, people=10**7, inhouse=IMAGES)
