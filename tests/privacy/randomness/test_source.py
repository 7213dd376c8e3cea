"""Streams of words: who may predict them, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import tacit
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded, SystemEntropy, source

SIGNIFICANCE = 1e-6


def test_none_is_the_operating_system():
    stream = source(None)
    assert isinstance(stream, SystemEntropy)
    assert stream.secure is True


def test_system_entropy_has_no_state_to_copy_across_a_fork():
    assert vars(SystemEntropy()) == {}


def test_system_entropy_differs_between_calls_and_objects():
    stream = SystemEntropy()
    seen = [tuple(stream.words(4).tolist()), tuple(stream.words(4).tolist())]
    seen.append(tuple(SystemEntropy().words(4).tolist()))
    assert len(set(seen)) == 3


def test_seeded_is_reproducible_marked_and_depends_on_the_seed():
    first, again, other = (Seeded(seed).words(100) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert Seeded(1).secure is False
    assert source(np.random.default_rng(1)).secure is False


def test_seeded_moves_on():
    stream = Seeded(3)
    assert not np.array_equal(stream.words(10), stream.words(10))


def test_seeded_is_passed_through_and_exported():
    stream = Seeded(4)
    assert source(stream) is stream
    assert tacit.Seeded is Seeded


def test_a_generator_and_a_seeded_stream_of_it_agree():
    assert np.array_equal(source(np.random.default_rng(5)).words(7), Seeded(5).words(7))


@pytest.mark.parametrize("count", [0, 1, 2, 1001])
@pytest.mark.parametrize("stream", [SystemEntropy(), Seeded(6)], ids=["system", "seeded"])
def test_words_are_64_bits(stream, count):
    words = stream.words(count)
    assert words.dtype == np.uint64
    assert words.shape == (count,)


@pytest.mark.parametrize("stream", [SystemEntropy(), Seeded(7)], ids=["system", "seeded"])
def test_every_bit_is_fair_and_bits_are_uncorrelated(stream):
    size = 20_000
    words = stream.words(size)
    bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    signs = bits.astype(np.float64) * 2 - 1
    z = signs.sum(axis=0) / np.sqrt(size)
    assert np.abs(z).max() < stats.norm.isf(SIGNIFICANCE / 2 / 64)
    products = signs.T @ signs / np.sqrt(size)
    pairs = products[np.triu_indices(64, 1)]
    assert np.abs(pairs).max() < stats.norm.isf(SIGNIFICANCE / 2 / pairs.size)


@pytest.mark.parametrize(
    "rng",
    [42, 0, "x", 1.5, object(), np.random.RandomState(0), np.random.PCG64(0), [1, 2], np.random],
    ids=lambda rng: type(rng).__name__,
)
def test_anything_else_is_refused_in_one_line(rng):
    with pytest.raises(InvalidParameter) as caught:
        source(rng)
    message = str(caught.value)
    assert "rng must be" in message
    assert "\n" not in message
