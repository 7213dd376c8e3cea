"""Inputs of models: kernels, diffusions and storage."""

import numpy as np
import pytest

from tacit.local.inference.views import Inputs, squared_distances

WIDTH = 4


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(600, WIDTH)).astype(np.float32)


def test_kernels_of_landmarks_reproduce_the_kernel(vectors):
    seen = Inputs.kernels(vectors, slice(0, WIDTH), 1.4, 0)
    marks = np.zeros((len(seen.landmarks), WIDTH), np.float32)
    marks[:] = seen.landmarks
    made = seen(marks)[:, :-1]
    between = ((marks[:, None] - marks) ** 2).sum(axis=2)
    np.testing.assert_allclose(made @ made.T, np.exp(-seen.gamma * between), atol=0.02)


def two_rings(count, seed):
    """Two rings around the same centre: no line separates them."""
    drawn = np.random.default_rng(seed)
    angles, outer = drawn.uniform(0, 2 * np.pi, count), drawn.integers(0, 2, count)
    radius = 1 + 2 * outer + drawn.normal(scale=0.1, size=count)
    rings = np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)
    return rings.astype(np.float32), outer


def test_a_long_walk_separates_clusters_of_any_shape():
    rings, outer = two_rings(1200, 0)
    seen = Inputs.diffusion(rings, slice(0, 2), 64.0, 0)
    fresh, truth = two_rings(500, 1)
    first = seen(fresh)[:, 0]  # the slowest harmonic
    sides = [first[truth == side] for side in (0, 1)]
    assert max(sides[0].max(), sides[1].max()) > 0 > min(sides[0].min(), sides[1].min())
    assert sides[0].max() < sides[1].min() or sides[1].max() < sides[0].min()
    assert not np.isclose(seen(rings)[outer == 0, 0].mean(), seen(rings)[outer == 1, 0].mean())


def test_a_row_mixes_its_nearest_landmarks(vectors):
    seen = Inputs.diffusion(vectors, slice(0, WIDTH), 4.0, 0)
    distances = squared_distances(vectors[:50], seen.landmarks)
    weights = seen._weights(distances)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    assert ((weights > 0).sum(axis=1) <= seen.nearest).all()
    assert (weights.argmax(axis=1) == distances.argmin(axis=1)).all()
    assert np.isfinite(seen(np.full((1, WIDTH), 1e6, np.float32))).all()  # far from all of them


@pytest.mark.parametrize("rows", [3, 40])
def test_few_or_equal_rows_have_inputs(rows):
    alike = np.ones((rows, WIDTH), np.float32)
    alike[0] = 2
    assert np.isfinite(Inputs.diffusion(alike, slice(0, WIDTH), 4.0, 0)(alike)).all()


@pytest.mark.parametrize("kind", ["components", "kernels", "diffusion"])
def test_inputs_are_stored_and_rebuilt(kind, vectors):
    block = slice(1, WIDTH)
    made = {
        "components": Inputs(1, WIDTH),
        "kernels": Inputs.kernels(vectors, block, 0.7, 0),
        "diffusion": Inputs.diffusion(vectors, block, 4.0, 0),
    }[kind]
    plain, arrays = made.parts()
    np.testing.assert_array_equal(Inputs.from_parts(plain, arrays)(vectors), made(vectors))
    assert made(vectors).shape[1] == made.width
    if arrays:
        arrays["landmarks"] = arrays["landmarks"][1:]
        with pytest.raises(ValueError, match="must fit each other"):
            Inputs.from_parts(plain, arrays)
