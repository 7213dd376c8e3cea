"""Images of nobody: the same for the same seed, within bounds, and pictures of something."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from tacit.local.learned import synthetic


@pytest.mark.parametrize("image", [(8, 8), (28, 28), (12, 20), (20, 12), (1, 9), (5, 1), (1, 1)])
def test_images_of_any_size(image):
    drawn = synthetic.strokes(40, image, 0)
    assert drawn.shape == (40, image[0] * image[1])
    assert drawn.dtype == np.float32
    assert np.isfinite(drawn).all()
    assert drawn.min() >= 0
    assert drawn.max() <= 1


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 600])
def test_as_many_as_were_asked_for(count):
    assert len(synthetic.strokes(count, (6, 6), 1)) == count


def test_the_seed_says_everything():
    """Public: whoever has the seed has the images, and no other state enters."""
    first = synthetic.strokes(300, (10, 10), 4)
    np.random.default_rng(0).random(10)
    assert np.array_equal(first, synthetic.strokes(300, (10, 10), 4))
    assert not np.array_equal(first, synthetic.strokes(300, (10, 10), 5))


def test_full_blocks_do_not_depend_on_how_many_follow():
    long = synthetic.strokes(600, (8, 8), 2)
    assert np.array_equal(synthetic.strokes(256, (8, 8), 2), long[:256])
    assert np.array_equal(synthetic.strokes(512, (8, 8), 2), long[:512])


def test_no_two_are_alike_and_none_is_empty():
    drawn = synthetic.strokes(500, (16, 16), 0)
    assert len(np.unique(drawn, axis=0)) == 500
    assert (drawn.max(axis=1) > 0.5).all()
    # Strokes on a dark ground, as a pen makes them: some ink, and not much.
    ink = drawn.mean(axis=1)
    assert ink.min() > 0.02
    assert ink.mean() < 0.35
    assert ink.max() < 0.75


def test_ink_is_centred():
    image = (20, 14)
    drawn = synthetic.strokes(300, image, 3).reshape(-1, *image)
    mass = drawn.sum(axis=(1, 2))
    for axis, side in ((2, image[0]), (1, image[1])):
        centre = (drawn.sum(axis=axis) @ np.arange(side)) / mass
        # To a whole pixel, but for strokes that were moved across the edge.
        assert np.median(np.abs(centre - side / 2)) <= 0.5
        assert np.mean(np.abs(centre - side / 2) <= 0.5) > 0.9


def test_their_directions_are_those_of_real_digits():
    """What they are for: a few of their directions hold most of what real images vary in."""
    digits = load_digits().data / 16
    digits = digits - digits.mean(axis=0)
    directions = PCA(16).fit(synthetic.strokes(2000, (8, 8), 0)).components_
    held = (np.square(digits @ directions.T)).sum() / np.square(digits).sum()
    best = PCA(16).fit(digits).explained_variance_ratio_.sum()
    rng = np.random.default_rng(0)
    random = np.linalg.qr(rng.standard_normal((64, 16)))[0]
    chance = np.square(digits @ random).sum() / np.square(digits).sum()
    assert held > 0.6
    assert held < best
    assert chance < 0.4
