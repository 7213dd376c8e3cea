"""Attacks on the audits themselves: what they say must not be more, nor less, than is so."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.apps.cli import main
from tacit.apps.cli.train.audit import _attribute, _same
from tacit.apps.cli.train.rows import Records
from tacit.audit.games import _Table
from tacit.audit.guesses import from_pairs, from_singles
from tacit.audit.membership import allowed_advantage, loss_threshold
from tacit.privacy.guarantees import ZCDP, ApproxDP, Guarantee, PureDP
from tacit.privacy.randomness import Seeded

SCOPE: Any = {"adjacency": "add-remove", "unit": "record"}


# --- proofs --------------------------------------------------------------------------------------


def test_a_turned_coin_replaces_one_row_and_moves_no_other() -> None:
    # Reports in order are replace-one private by place: a game that moves rows would not be theirs.
    rows = np.arange(60.0)[:, None]
    table = _Table.of(rows, np.zeros(60), None, "pairs", Seeded(0))
    inside = table.draw()
    for at in range(30):
        turned = inside.copy()
        turned[[at, at + 30]] = ~turned[[at, at + 30]]
        before, after = (table.training(one)[0][:, 0] for one in (inside, turned))
        assert len(set(before)) == 30
        assert np.flatnonzero(before != after).tolist() == [at]


def test_choosing_the_number_of_guesses_afterwards_is_paid_for() -> None:
    """Fair coins guessed blindly: the best of several bounds is above 0 as seldom as promised."""
    generator = np.random.default_rng(0)
    drawn = [(generator.random(64) < 0.5, generator.normal(size=64)) for _ in range(400)]
    for bound in (from_singles, from_pairs):
        above = sum(bound(*one, certainty=0.8).epsilon > 0 for one in drawn)
        assert above <= 110  # P(Bin(400, 0.2) > 110) < 1e-3


# --- ceilings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 0.01])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_ceiling_of_an_add_remove_claim_is_reached_by_no_law(
    epsilon: float, delta: float
) -> None:
    """All pairs of chances that two hops by the empty place allow, on a grid."""
    grid = np.linspace(0, 1, 2001)
    grow = math.exp(epsilon)
    most = np.minimum(np.minimum(grow * grid + delta, 1 - (1 - grid - delta) / grow), 1)
    least = np.maximum(np.maximum((grid - delta) / grow, 1 - grow * (1 - grid) - delta), 0)
    reached = float((most - least).max())
    claim: Guarantee = PureDP(epsilon=epsilon, **SCOPE)
    if delta:
        claim = ApproxDP(epsilon=epsilon, delta=delta, **SCOPE)
    assert reached <= allowed_advantage(claim) + 1e-12
    assert allowed_advantage(claim) <= 1 - math.exp(-epsilon) * (1 - 2 * delta)
    report = loss_threshold(np.zeros(8), np.ones(8), claim=claim)
    assert report.ceiling == (None if report.tested is None else allowed_advantage(claim))
    assert allowed_advantage(ApproxDP(epsilon=1000, delta=1e-5, **SCOPE)) == 1.0


# --- the command line ----------------------------------------------------------------------------


class Silent:
    """A model that says the same of everybody."""

    guarantee_ = PureDP(epsilon=1.0, **SCOPE)

    def predict(self, rows: Any) -> Any:
        return np.zeros(len(rows))


def test_a_prior_is_not_judged_by_those_whom_it_was_read_off() -> None:
    generator = np.random.default_rng(0)
    given = {"attribute": "x", "values": None, "confidence": 0.95}
    missed, gained = 0, []
    for _ in range(300):
        sides = [
            Records(generator.integers(0, 10, (80, 1)).astype(float), np.zeros(80), {"x": [0]})
            for _ in range(2)
        ]
        found = _attribute(Silent(), *sides, given)
        missed += not found.on_others.low <= 0.1 <= found.on_others.high
        gained.append(found.advantage.value)
    assert missed <= 28  # P(Bin(300, 0.05) > 28) < 1e-3; it was 45 and more
    assert abs(np.mean(gained)) < 0.02  # it was −0.06


def test_labels_that_are_no_numbers_are_refused_and_not_refuted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for bad in (math.nan, math.inf):
        path = tmp_path / f"{bad}.parquet"
        labels = [bad, *[float(place % 2) for place in range(39)]]
        half = {"member": [place % 2 for place in range(40)], "0": [0.5] * 40, "1": [0.5] * 40}
        pq.write_table(pa.table({**half, "label": labels}), path)
        assert main(["train", "audit", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_promises_without_an_epsilon_are_the_same_only_if_equal() -> None:
    one, other = (ZCDP(0.0, rho, **SCOPE) for rho in (0.1, 10.0))
    assert _same(one, one, 0.01)
    assert not _same(one, other, 0.01)
    near, far = (PureDP(epsilon=float(e), **SCOPE) for e in (Fraction(1001, 1000), 2))
    assert _same(near, PureDP(epsilon=1.0, **SCOPE), 0.01)
    assert not _same(far, PureDP(epsilon=1.0, **SCOPE), 0.01)
