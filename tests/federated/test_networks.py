"""Networks for noisy gradients, and starts that were learned elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tacit.federated.algorithms.registry import algorithm
from tacit.federated.model import Data
from tacit.federated.networks import feature_weights, pretrained, small_cnn
from tacit.federated.record_level.privacy import RecordPrivacy
from tacit.federated.record_level.silo import Silo
from tacit.federated.torch_model import TorchModel
from tacit.privacy import errors

SMALL: dict[str, Any] = {"image": (8, 6), "channels": (4, 8)}


def _rows(count: int = 5) -> Any:
    return np.random.default_rng(0).normal(size=(count, 8, 6)).astype(np.float32)


def test_rows_are_images_or_their_pixels() -> None:
    torch.manual_seed(0)
    module: Any = small_cnn(**SMALL)()
    rows = torch.from_numpy(_rows())
    with torch.no_grad():
        features = module[0](rows)
        assert torch.equal(features, module[0](rows.flatten(1)))
        assert torch.allclose(features.norm(dim=1), torch.ones(5), atol=1e-3)
        assert torch.equal(module(rows), torch.zeros(5, 2))  # nothing is known yet


def test_a_silo_takes_it() -> None:
    data = Data(_rows(20).reshape(20, -1), np.arange(20) % 2)
    model, fedsgd = TorchModel(small_cnn(**SMALL)), algorithm("fedsgd")
    silo = Silo(model, data, RecordPrivacy(2.0, 1e-2, rounds=1), fedsgd, fedsgd.config())
    reply, _ = silo.answer(
        1, fedsgd.phases[0], {"model": model.start()}, {}, np.random.default_rng(0)
    )
    assert reply.stated is not None
    assert reply.stated[0] <= 2.0


def test_features_are_taken_over_and_frozen() -> None:
    build = small_cnn(**SMALL)
    torch.manual_seed(1)
    weights = feature_weights(build())
    whole = TorchModel(pretrained(build, weights), seed=2)
    head = TorchModel(pretrained(build, weights, frozen=True), seed=3)
    assert whole.layout.size == TorchModel(build).layout.size
    assert head.layout.shapes == (("1.weight", (2, 8 * 2 * 2)), ("1.bias", (2,)))
    for model in (whole, head):
        found = feature_weights(model.module)
        assert all(np.array_equal(found[name], weights[name]) for name in weights)
    changed = dict(weights)
    changed["1.weight"][:] = 0  # a builder keeps no hold of what it was given
    assert not np.array_equal(feature_weights(head.module)["1.weight"], changed["1.weight"])


def test_other_features_are_refused() -> None:
    other = feature_weights(small_cnn((8, 6), channels=(8, 8))())
    with pytest.raises(errors.InvalidParameter, match="those of the features"):
        TorchModel(pretrained(small_cnn(**SMALL), other))
    with pytest.raises(errors.InvalidParameter, match="features and a last layer"):
        feature_weights(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"channels": ()}, "at least one"),
        ({"channels": (6,)}, "multiples of 4"),
        ({"classes": 1}, "classes"),
        ({"image": (0, 3)}, "image"),
    ],
)
def test_sizes_are_checked(sizes: dict[str, object], words: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=words):
        small_cnn(**sizes)  # type: ignore[arg-type]
