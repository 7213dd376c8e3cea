"""What a hostile reader found in the audits, kept: what is stated about a bound is true."""

import math

import numpy as np

from tacit.audit import statistical
from tacit.audit.canaries import OneRun
from tacit.audit.guesses import from_singles
from tacit.privacy.mechanisms import RandomizedResponse
from tacit.privacy.randomness import Seeded

SAMPLES = 4002


class Plain:
    """Releases its input as it is, and states ε = 0.1."""

    true = RandomizedResponse(categories=2, epsilon=0.1)
    guarantee, event = true.guarantee, true.event

    def release(self, raw, rng=None):
        return np.asarray(raw).copy()


class Hostile(Plain):
    """States a perfect law where the event is chosen, and none where it is counted."""

    def __init__(self):
        self.sizes = []

    def log_prob(self, released, raw):
        self.sizes.append(len(released))
        if len(self.sizes) <= 4:  # two inputs, two laws
            return np.where(np.asarray(released) == np.asarray(raw), 0.0, -50.0)
        return np.full(len(released), math.log(0.5))


def test_a_law_that_falls_silent_does_not_hide_the_draws():
    hostile = Hostile()
    found = statistical.lower_bound(hostile, 0, 1, samples=SAMPLES, rng=Seeded(1))
    alone = statistical.lower_bound(Plain(), 0, 1, samples=SAMPLES, rng=Seeded(1))
    assert found.epsilon > 5
    assert alone.epsilon - 0.2 < found.epsilon <= found.certifiable <= alone.certifiable
    assert len(set(hostile.sizes)) == 1


def test_a_proof_states_the_confidence_that_it_has():
    """At random scores, so many are false as the certainty allows, and that is what is stated."""
    rng, runs, false = np.random.default_rng(0), 300, 0
    for run in range(runs):
        inside, scores = rng.random(64) < 0.5, rng.random(64)
        proof = from_singles(inside, scores, certainty=0.5, rng=Seeded(run))
        assert proof.confidence == 0.5
        false += proof.epsilon > 0
    assert false <= runs * 0.5 + 4 * math.sqrt(runs) / 2
    each = 1 - 0.5 / len(proof.tried)
    best = max(OneRun.of(64, r, r, delta=0.0, confidence=each).epsilon for r in proof.tried)
    assert proof.certifiable == best
