"""Images over many clients with a guarantee for each: short on digits, as stated on MNIST."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.data import datasets
from tacit.federated.model import Data
from tacit.privacy import errors
from tacit.privacy.randomness import Seeded
from tacit_papers.parts import client_level
from tacit_papers.parts.client_level import ClientLevelSettings, PreparedImages


def easy(rows: int = 1200, columns: int = 12) -> PreparedImages:
    """Two classes on either side of the origin."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 2 * rows)
    found = rng.normal(0, 0.3, (2 * rows, columns)) + (2 * labels[:, None] - 1) / columns**0.5
    found = found.astype(np.float32)
    return PreparedImages(Data(found[:rows], labels[:rows]), Data(found[rows:], labels[rows:]), 2)


def test_drop_outs_change_neither_rounds_nor_cost() -> None:
    few = ClientLevelSettings(rounds=3, learning_rate=1.0, clip_norm=1.0)
    ends = [
        client_level.measure(easy(), clients=100, dropout=share, settings=few, rng=Seeded(0))
        for share in (0.0, 0.1)
    ]
    assert ends[0].epsilon == ends[1].epsilon <= 8
    assert [(end.rounds, end.skipped) for end in ends] == [(3, 0)] * 2
    assert ends[0].answered == 1
    assert 0.85 < ends[1].answered < 0.95
    assert min(end.accuracy for end in ends) > 0.9


def test_less_budget_is_more_noise() -> None:
    few = ClientLevelSettings(rounds=1, learning_rate=1.0)
    noise = [
        client_level.measure(easy(), clients=50, epsilon=epsilon, settings=few).noise_multiplier
        for epsilon in (0.5, 8.0)
    ]
    assert noise[0] > 5 * noise[1]


def test_without_a_trusted_server_it_learns_as_well() -> None:
    few = ClientLevelSettings(rounds=2, learning_rate=1.0)
    told = {"clients": 50, "dropout": 0.1, "settings": few, "rng": Seeded(0)}
    trusted = client_level.measure(easy(), **told)
    found = client_level.measure(easy(), **told, corrupt=0.04)
    assert found.epsilon <= 8
    assert found.skipped == 0
    assert 0.7 < found.answered < 1
    assert found.noise_multiplier > trusted.noise_multiplier
    assert found.accuracy > trusted.accuracy - 0.1


def test_only_images_have_features() -> None:
    table = datasets.load("adult")
    with pytest.raises(errors.InvalidParameter, match=r"^study: data must be images"):
        client_level.prepare(table)


@pytest.mark.slow
def test_mnist_over_a_thousand_clients() -> None:
    prepared = client_level.prepare(datasets.load("mnist"))
    assert len(prepared.training) == 60_000
    usual = ClientLevelSettings()
    ends = [client_level.measure(prepared, dropout=share, rng=Seeded(0)) for share in (0.0, 0.1)]
    assert min(end.accuracy for end in ends) >= 0.93
    assert {(end.rounds, end.skipped) for end in ends} == {(usual.rounds, 0)}
    assert ends[0].epsilon == ends[1].epsilon <= 8
    secure = client_level.measure(prepared, dropout=0.1, corrupt=0.05, rng=Seeded(0))
    assert secure.accuracy >= 0.965
    assert (secure.rounds, secure.skipped) == (usual.rounds, 0)
    # Sampling hides too: a tenth of the clients a round, in more rounds with more noise each.
    many = replace(usual, rounds=40, cohort=0.1, server_rate=0.3)
    assert client_level.measure(prepared, settings=many, rng=Seeded(0)).accuracy >= 0.93
