"""Attacks on networks and their training: what is read, what is said, how products are rounded."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tacit.central.estimators import MLPClassifier, MLPRegressor
from tacit.privacy import events
from tacit.privacy.guarantees import Adjacency, ApproxDP, Unit
from tacit.privacy.randomness import Seeded

torch = pytest.importorskip("torch")

ROWS = np.random.default_rng(0).uniform(-1, 1, (200, 3))
LABELS = (ROWS[:, 0] > 0).astype(int)
SMALL: dict[str, Any] = {
    "epsilon": 1, "bounds": (-1, 1), "hidden_layer_sizes": (4,), "epochs": 2, "batch_size": 200
}  # fmt: skip


# --- products in full ----------------------------------------------------------------------------


def pulled(seen: list[Any]) -> Any:
    def loss(module: Any, x: Any) -> Any:
        seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        return module(x)[:, 0]

    return loss


def test_training_takes_no_short_products_whatever_the_process_allows(monkeypatch: Any) -> None:
    """TF32 keeps 11 digits: crafted factors grow by 2^-11 each, for which no room was derived."""
    from tacit.central.training.clipping import Clipper
    from tacit.central.training.training import train

    factor = 1 + 2**-11 + 2**-14
    assert round(factor * 2**10) / 2**10 / factor - 1 > 4e-4
    seen: list[Any] = []
    honest = Clipper.tallied

    def tallied(*given: Any) -> Any:
        seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        return honest(*given)

    monkeypatch.setattr(Clipper, "tallied", tallied)
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    try:
        train(
            torch.nn.Linear(3, 1), torch.zeros(50, 3), pulled([]),
            epsilon=8.0, delta=1e-5, steps=2, batch_size=50, rng=Seeded(0),
        )  # fmt: skip
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32 == before[1]
    finally:
        torch.set_float32_matmul_precision(before[0])
    assert seen == [("highest", False)] * 2


# --- one composition -----------------------------------------------------------------------------


def test_components_and_training_are_one_promise() -> None:
    fitted = MLPClassifier(**SMALL, components=2, classes=[0, 1], rng=Seeded(0)).fit(ROWS, LABELS)
    assert isinstance(fitted.event_, events.Composed)
    found = fitted.guarantee_
    assert isinstance(found, ApproxDP)
    assert 0.99 < found.epsilon <= 1
    own = fitted.event_.events[1]
    alone = MLPClassifier(**SMALL, classes=[0, 1], rng=Seeded(0)).fit(ROWS, LABELS).event_
    # What the components cost is paid for by more noise in training.
    assert isinstance(own, events.Repeated)
    assert isinstance(alone, events.Repeated)
    multipliers = [one.event.event.noise_multiplier for one in (own, alone)]  # type: ignore[attr-defined]
    assert multipliers[0] > multipliers[1]


@pytest.mark.parametrize(
    "other",
    [
        {"adjacency": Adjacency.ANY_TWO_INPUTS, "unit": Unit.RECORD},
        {"adjacency": Adjacency.ADD_REMOVE, "unit": Unit.PERSON},
    ],
)
def test_what_is_beside_must_be_about_the_same_neighbours(other: Any) -> None:
    from tacit.central.training.training import train
    from tacit.privacy.errors import TacitError

    seen: list[Any] = []
    with pytest.raises(TacitError):
        train(
            torch.nn.Linear(3, 1), torch.zeros(50, 3), pulled(seen), epsilon=8.0, delta=1e-5,
            steps=1, batch_size=50, beside=events.Gaussian(Fraction(1), Fraction(10), **other),
        )  # fmt: skip


# --- what is said --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
@pytest.mark.parametrize(
    ("rows", "secret"),
    [([["Alice"], ["Bob"]], "Alice"), (np.array([[7777j], [0]]), "7777"), ([7777.0, 1.0], "7777")],
)
def test_errors_quote_no_record(kind: Any, rows: Any, secret: str) -> None:
    more = {"target_bounds": (0, 1)} if kind is MLPRegressor else {}
    with pytest.raises(ValueError, match=kind.__name__) as caught:
        kind(**SMALL, **more).fit(rows, [0, 1])
    assert secret not in str(caught.value)


def test_nothing_of_the_rows_travels_with_a_network() -> None:
    fitted = MLPClassifier(**SMALL, classes=[0, 1], rng=Seeded(0)).fit(3 * ROWS, LABELS)
    assert fitted.clipped_ > 0
    assert not hasattr(pickle.loads(pickle.dumps(fitted)), "clipped_")
    held = {key for key in vars(fitted) if key.endswith("_") and not key.startswith("_")}
    assert held <= {
        "classes_", "coefs_", "intercepts_", "event_", "certificate_", "clipped_", "n_features_in_"
    }  # fmt: skip
