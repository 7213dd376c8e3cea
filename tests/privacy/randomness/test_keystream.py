"""The key stream: as uniform as the system's, never twice the same, never shared by a fork."""

from __future__ import annotations

import os
import pickle
import sys

import numpy as np
import pytest
from scipy import stats

from tacit.privacy.randomness import Keystream, SystemEntropy, keystream, source

SIGNIFICANCE = 1e-6


def test_it_is_secure_and_passed_through():
    stream = Keystream()
    assert stream.secure is True
    assert source(stream) is stream
    assert stream.cipher == "AES-256 in counter mode"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1001, 2**17 + 5, 3 * 2**17])
def test_words_are_64_bits(count):
    words = Keystream().words(count)
    assert words.dtype == np.uint64
    assert words.shape == (count,)


def test_words_are_the_cipher_and_go_on_where_they_stopped(monkeypatch):
    """Against the definition: block i is the encryption of nonce + i."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    drawn = []

    def known(size: int) -> bytes:
        drawn.append(bytes(range(size)))
        return drawn[-1]

    monkeypatch.setattr(keystream.os, "urandom", known)
    stream = Keystream()
    words = np.concatenate([stream.words(n) for n in (1, 2, 131_072, 5)])
    assert [len(one) for one in drawn] == [32, 16]
    block = Cipher(algorithms.AES(drawn[0]), modes.ECB()).encryptor()
    start = int.from_bytes(drawn[1], "big")
    for i in (0, 1, 2, 40_000, 65_538):
        text = ((start + i) % 2**128).to_bytes(16, "big")
        expected = np.frombuffer(block.update(text), dtype=np.uint64)
        assert np.array_equal(words[2 * i : 2 * i + 2], expected)


def test_streams_and_calls_differ():
    stream = Keystream()
    seen = [tuple(stream.words(2).tolist()) for _ in range(3)]
    seen += [tuple(Keystream().words(2).tolist()) for _ in range(3)]
    assert len(set(seen)) == 6


def test_every_bit_is_fair_and_bits_are_uncorrelated():
    size = 50_000
    words = Keystream().words(size)
    bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    signs = bits.astype(np.float64) * 2 - 1
    assert np.abs(signs.sum(axis=0)).max() / np.sqrt(size) < stats.norm.isf(SIGNIFICANCE / 128)
    pairs = (signs.T @ signs / np.sqrt(size))[np.triu_indices(64, 1)]
    assert np.abs(pairs).max() < stats.norm.isf(SIGNIFICANCE / 2 / pairs.size)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_takes_a_key_of_its_own():
    stream = Keystream()
    stream.words(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, stream.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 32), dtype=np.uint64)
    os.close(read)
    os.close(write)
    assert not set(theirs.tolist()) & set(stream.words(64).tolist())


def test_a_process_number_that_returns_is_noticed(monkeypatch):
    # The grandchild of a fork may get the number of its grandparent: forks are counted, too.
    stream = Keystream()
    monkeypatch.setattr(keystream.os, "urandom", bytes)
    first = stream.words(2)
    keystream._forked()
    assert np.array_equal(stream.words(2), first)  # the same key by construction: it was drawn anew


def test_a_key_does_not_travel():
    stream = Keystream()
    stream.words(1)
    with pytest.raises(TypeError, match="stay in its process"):
        pickle.dumps(stream)


def test_without_the_cipher_words_are_the_systems(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    monkeypatch.setattr(SystemEntropy, "words", lambda self, count: np.full(count, 7, np.uint64))
    stream = Keystream()
    assert stream.words(3).tolist() == [7, 7, 7]
    assert stream.cipher is None
    assert stream.secure is True
