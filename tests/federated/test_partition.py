"""Every row has one owner, and each kind of difference shows where it should and nowhere else."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tacit.federated import partition
from tacit.federated.divergence import Divergence, measure
from tacit.federated.partition import Parts
from tacit.privacy import errors
from tacit_papers.parts.federation_sizes import CROSS_DEVICE, CROSS_SILO

RNG = np.random.default_rng(0)
LABELS = RNG.integers(5, size=3000)
ROWS = RNG.normal(size=(3000, 4)) + 1.5 * np.eye(5)[LABELS][:, :4]
CLIENTS = 8
IID = partition.iid(3000, CLIENTS)

PARTITIONS: dict[str, Callable[[int], Parts]] = {
    "iid": lambda seed: partition.iid(3000, CLIENTS, seed=seed),
    "unbalanced": lambda seed: partition.unbalanced(3000, CLIENTS, seed=seed),
    "dirichlet": lambda seed: partition.dirichlet(LABELS, CLIENTS, concentration=0.2, seed=seed),
    "shards": lambda seed: partition.shards(LABELS, CLIENTS, seed=seed),
    "by_feature": lambda seed: partition.by_feature(ROWS, CLIENTS, seed=seed),
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_every_row_has_one_owner(kind: str) -> None:
    parts = PARTITIONS[kind](0)
    assert len(parts) == CLIENTS
    assert min(len(part) for part in parts) >= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(3000))
    again, other = PARTITIONS[kind](0), PARTITIONS[kind](1)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


def test_sizes() -> None:
    assert {len(part) for part in IID} == {375}
    assert {len(part) for part in partition.by_feature(ROWS, CLIENTS)} == {375}
    assert max(len(np.unique(LABELS[part])) for part in partition.shards(LABELS, CLIENTS)) <= 4
    assert [len(part) for part in partition.unbalanced(8, 8, spread=3)] == [1] * 8
    few = partition.dirichlet(LABELS, CLIENTS, concentration=0.1, least=50, seed=1)
    assert min(len(part) for part in few) >= 50


def kinds() -> dict[str, Divergence]:
    found = {kind: measure(ROWS, LABELS, make(0)) for kind, make in PARTITIONS.items()}
    drifted = partition.drifted_rows(ROWS, LABELS, IID, strength=1)
    found["drifted"] = measure(drifted, LABELS, IID)
    found["shifted"] = measure(ROWS, partition.shifted_labels(LABELS, IID), IID)
    return found


def test_each_difference_is_measured_where_it_is() -> None:
    found = kinds()
    assert max(map(abs, found["iid"])) < 0.02
    assert max(map(abs, found["unbalanced"][:4])) < 0.02
    assert found["unbalanced"].sizes > 0.05
    for kind in ("dirichlet", "shards"):
        assert found[kind].labels > 0.2
        assert abs(found[kind].rows_given_label) < 0.05
    assert found["by_feature"].rows > 0.1
    assert abs(found["by_feature"].labels_given_row) < 0.05 < found["by_feature"].rows
    assert abs(found["drifted"].labels) < 0.02
    assert found["drifted"].rows_given_label > 0.15
    assert abs(found["shifted"].rows) < 0.02
    assert found["shifted"].labels_given_row > 0.1


def test_stronger_is_further() -> None:
    def falls(values: list[float]) -> bool:
        return all(a > b + 0.02 for a, b in itertools.pairwise(values))

    def of(parts: Parts) -> Divergence:
        return measure(ROWS, LABELS, parts)

    alphas, strengths = (0.05, 0.5, 5), (1.0, 0.8, 0.2)
    assert falls([of(partition.dirichlet(LABELS, CLIENTS, concentration=a)).labels for a in alphas])
    assert falls([of(partition.shards(LABELS, CLIENTS, per_client=n)).labels for n in (1, 3, 30)])
    assert falls([of(partition.by_feature(ROWS, CLIENTS, strength=s)).rows for s in strengths])
    assert falls([of(partition.unbalanced(3000, CLIENTS, spread=s)).sizes for s in (2, 1, 0.3)])
    drifts = [partition.drifted_rows(ROWS, LABELS, IID, strength=s) for s in (2, 0.5, 0.01)]
    assert falls([measure(rows, LABELS, IID).rows_given_label for rows in drifts])
    shifts = [partition.shifted_labels(LABELS, IID, strength=s) for s in (1, 0.4, 0)]
    assert falls([measure(ROWS, labels, IID).labels_given_row for labels in shifts])


def test_shifts_leave_the_rest_alone() -> None:
    images = ROWS.reshape(3000, 2, 2)
    assert partition.drifted_rows(images, LABELS, IID).shape == images.shape
    np.testing.assert_array_equal(partition.shifted_labels(LABELS, IID, strength=0), LABELS)
    words = np.array(list("abcde"))[LABELS]
    renamed = partition.shifted_labels(words, IID)
    assert set(renamed) == set(words)
    assert np.all(renamed != words)  # a full circle leaves no class where it was
    for part in IID:  # names change, not what is named
        assert len(set(zip(words[part], renamed[part], strict=True))) == 5


def test_labels_tell_their_client_completely() -> None:
    parts = partition.shards(np.repeat(np.arange(4), 100), 4, per_client=1)
    found = measure(RNG.normal(size=(400, 2)), np.repeat(np.arange(4), 100), parts)
    assert found.labels == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.iid(3, 4), "^iid: rows must be at least 4, got 3. Take fewer clients"),
        (lambda: partition.iid(3, 0), "^iid: clients must be an integer"),
        (lambda: partition.dirichlet(LABELS, 8, concentration=0), "^dirichlet: concentration must"),
        (
            lambda: partition.dirichlet(LABELS[:20], 20, concentration=1e-3),
            "^dirichlet: least must",
        ),
        (lambda: partition.shards(LABELS[:9], 5), "^shards: rows must be at least 10, got 9"),
        (
            lambda: partition.by_feature(ROWS, 8, strength=2),
            r"^by_feature: strength must be in \[0",
        ),
        (lambda: partition.unbalanced(10, 2, spread=-1), "^unbalanced: spread must be above 0"),
        (lambda: partition.shards([], 2), "^shards: labels must be one per row"),
        (lambda: measure(ROWS, LABELS, IID[:1]), "^measure: parts must be at least two"),
    ],
)
def test_errors_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(errors.TacitError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_scales_have_the_magnitudes_of_the_survey() -> None:
    assert CROSS_DEVICE.population == (10**6, 10**10)
    assert CROSS_DEVICE.selected == (50, 5000)
    assert CROSS_DEVICE.rounds == (500, 10_000)
    assert CROSS_SILO.population == (2, 100)
    silos, phones = CROSS_SILO.likeness(6000), CROSS_DEVICE.likeness(6000)
    assert silos.clients < phones.clients
    assert (silos.participation, silos.dropout) == (1.0, 0.0)
    assert phones.dropout == 0.05
