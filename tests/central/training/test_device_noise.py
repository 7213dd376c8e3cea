"""Noise on the device: ChaCha20 bit for bit, never twice the same word, and the CPU's noise.

Everything here runs on the CPU too, and on a GPU where there is one.
"""

from __future__ import annotations

import copy
import math
import os
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats
from torch import Tensor, nn

from tacit.central.training import DeviceStream, Noise, device_noise, device_stream, train
from tacit.central.training.device_stream import blocks
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SIGNIFICANCE = 1e-6

# RFC 8439, section 2.3.2.
KEY = bytes(range(32))
NONCE = bytes.fromhex("000000090000004a00000000")
BLOCK = bytes.fromhex(
    "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
    "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
)


def stream_bytes(key: bytes, nonce: bytes, count: int, first: int, device: str = "cpu") -> bytes:
    words = torch.tensor(device_stream._signed(key), dtype=torch.int32, device=device)
    one, two, three = device_stream._signed(nonce)
    return blocks(words, (one, two, three), count, first).cpu().numpy().tobytes()


def expected(key: bytes, nonce: bytes, count: int, first: int) -> bytes:
    start = first.to_bytes(4, "little") + nonce
    return Cipher(algorithms.ChaCha20(key, start), None).encryptor().update(bytes(64 * count))


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_the_block_of_the_standard(device: str) -> None:
    assert stream_bytes(KEY, NONCE, 1, 1, device) == BLOCK


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("count", "first"), [(1, 0), (3, 7), (1000, 0), (17, 2**31 - 17), (20_000, 2**30)]
)
def test_words_are_those_of_another_implementation(device: str, count: int, first: int) -> None:
    draws = np.random.default_rng([count, first])
    for key, nonce in [
        (draws.bytes(32), draws.bytes(12)),
        (bytes(32), bytes(12)),
        (b"\xff" * 32, b"\xff" * 12),
    ]:
        assert stream_bytes(key, nonce, count, first, device) == expected(key, nonce, count, first)


def test_counters_do_not_wrap_around() -> None:
    with pytest.raises(InvalidParameter, match=r"first \+ count must be from 0 to 2147483648"):
        stream_bytes(KEY, NONCE, 2, 2**31 - 1)


@pytest.mark.parametrize("device", DEVICES)
def test_calls_have_nonces_of_their_own(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(device_stream.os, "urandom", lambda size: bytes(range(size)))
    stream, there = DeviceStream(), torch.device(device)
    for call, count in enumerate((1, 16, 17, 1000)):
        found = stream.words_on(there, count)
        assert (found.dtype, found.shape) == (torch.int32, (count,))
        whole = expected(KEY, call.to_bytes(12, "little"), -(-count // 16), 0)
        assert found.cpu().numpy().tobytes() == whole[: 4 * count]


def test_a_mutant_rotation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shift to the right that copies the sign."""
    monkeypatch.setattr(device_stream, "_rotated", lambda w, n: (w << n) | (w >> (32 - n)))
    assert stream_bytes(KEY, NONCE, 1, 1) != BLOCK


def test_streams_and_devices_differ() -> None:
    cpu, meta = torch.device("cpu"), torch.device("cpu", 0)
    one, other = DeviceStream(), DeviceStream()
    seen = [one.words_on(cpu, 4), one.words_on(cpu, 4), other.words_on(cpu, 4)]
    seen.append(one.words_on(meta, 4))
    assert len({tuple(words.tolist()) for words in seen}) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_takes_a_key_of_its_own() -> None:
    stream, there = DeviceStream(), torch.device("cpu")
    stream.words_on(there, 1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, stream.words_on(there, 8).numpy().tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 32) != stream.words_on(there, 8).numpy().tobytes()


def test_a_key_is_not_copied() -> None:
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a key must stay in its process"):
            copied(DeviceStream())


# --- the map from words to noise ------------------------------------------------------------------


class Same:
    """The words of the device, for the path on the CPU."""

    secure = False

    def __init__(self, words: np.ndarray) -> None:
        self._words, self._at = words.view(np.uint64), 0

    def words(self, count: int) -> np.ndarray:
        found = self._words[self._at : self._at + count].copy()
        self._at += count
        return found


def both(words: np.ndarray, sums: Tensor, sigma: float, device: str) -> tuple[Tensor, Tensor]:
    """Return what both make of the same words, in steps of the grid."""
    noise = Noise(sigma, Same(words))
    ours, theirs = sums.to(device, copy=True), sums.clone()
    given = torch.from_numpy(words).to(device)
    device_noise.add_words(ours, given, sigma, noise.grid, 1.0)
    noise.add_to(theirs)
    return ours.cpu().double() / noise.grid, theirs.double() / noise.grid


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 2, 3, 6, 70_001, 1 << 17])
@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1.9, 5000.0])
def test_it_is_the_noise_of_the_cpu(device: str, count: int, sigma: float) -> None:
    words = Seeded(count).words(device_noise.words_for(count) // 2).view(np.int32).copy()
    words[: count // 4 : 5] %= 300  # many small radii, more than there are words to refine them
    small = np.flatnonzero(np.abs(words[: (count + 1) // 2].astype(np.int64)) < 256)
    words[small[device_noise._REFINED :]] = 2**30
    sums = torch.rand(count, generator=torch.Generator().manual_seed(1)) * sigma
    ours, theirs = both(words, sums, sigma, device)
    apart = (ours - theirs).abs()
    assert float(apart.max()) <= 1
    assert int((apart > 0).sum()) <= 5 + count * 2e-4
    assert torch.equal(ours, ours.round())


def in_double(words: np.ndarray, count: int, sigma: float, grid: float) -> np.ndarray:
    """Return the noise in steps of the grid, by the definition, in float64."""
    half = count // 2
    size = np.maximum(np.abs(words[:half].astype(np.float64)), 1)
    radius = np.sqrt(-2 * np.log(size * 2.0**-31)) * sigma / grid
    angle = words[half:count] * (np.pi * 2.0**-31)
    shift = words[count : count + half].view(np.int16) * 2.0**-16
    return np.rint(np.concatenate([radius * np.cos(angle), radius * np.sin(angle)]) + shift)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sigma", [0.7, 1.0, 1.9])
def test_how_often_float32_moves_an_entry(device: str, sigma: float) -> None:
    differing, entries, count = 0, 0, 1 << 17
    for seed in range(16):
        words = Seeded(seed).words(device_noise.words_for(count) // 2).view(np.int32).copy()
        ours, theirs = both(words, torch.zeros(count), sigma, device)
        exact = in_double(words, count, sigma, Noise(sigma, Seeded(0)).grid)
        fine = np.abs(words[: count // 2].astype(np.int64)) >= 256  # the others are refined
        for found in (ours, theirs):
            apart = np.abs(found.numpy() - exact)[np.concatenate([fine, fine])]
            assert apart.max() <= 1
        differing, entries = differing + int((ours.numpy() != exact).sum()), entries + count
    assert differing / entries < 1e-4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("word", [0, 1, -1, 7, 255, -255])
@pytest.mark.parametrize("more", [0, 1, -1, 2**62, -(2**63), 2**63 - 1])
def test_small_radii_are_refined_within_their_cell(device: str, word: int, more: int) -> None:
    words = np.zeros(device_noise.words_for(2), dtype=np.int32)
    words[0] = word
    words[-2 * device_noise._REFINED :].view(np.int64)[:] = more
    sums = torch.zeros(2, device=device, dtype=torch.float64)
    device_noise.add_words(sums, torch.from_numpy(words).to(device), 1.0, 2.0**-20, 1.0)
    part = (more + 0.5) * 2.0**-64
    size = abs(abs(word) + part)
    assert float(sums.norm()) == pytest.approx(math.sqrt(-2 * math.log(size * 2.0**-31)), rel=1e-5)


def test_words_at_all_extremes_give_finite_noise() -> None:
    for word in (0, -1, 1, 2**31 - 1, -(2**31)):
        sums = torch.zeros(1000)
        words = torch.full((device_noise.words_for(1000),), word, dtype=torch.int32)
        device_noise.add_words(sums, words, 1.0, 2.0**-7, 1.0)
        assert torch.isfinite(sums).all()


class Counted(DeviceStream):
    """A reproducible stream of the same cipher."""

    def _key(self, device: torch.device) -> Tensor:
        return torch.arange(8, dtype=torch.int32, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_the_law_of_ten_million_to_five_deviations(device: str) -> None:
    """Counts within each half deviation, out to five on both sides, and the moments."""
    count, sigma = 10**7, 3.0
    sums = torch.zeros(count, device=device)
    noise = Noise(sigma, Counted())
    noise.add_to(sums)
    values = sums.cpu().double().numpy() / sigma
    cuts = np.arange(-5, 5.5, 0.5)
    seen = np.histogram(values, [-np.inf, *cuts, np.inf])[0]
    # Noise on the grid is a normal variable with a uniform one of a cell: they smear the cuts.
    cells = noise.grid / sigma
    points = (np.arange(2000) + 0.5) / 2000 - 0.5
    edges = np.ceil(cuts[:, None] / cells) * cells + cells * (points - 0.5)
    below = stats.norm.cdf(edges).mean(axis=1)
    law = np.diff([0, *below, 1])
    chances = [stats.binomtest(int(k), count, p).pvalue for k, p in zip(seen, law, strict=True)]
    assert min(chances) > SIGNIFICANCE
    assert stats.chisquare(seen, law * count).pvalue > SIGNIFICANCE
    variance = float((values**2).mean())
    assert abs(variance - 1 - cells**2 / 6) < 5 * math.sqrt(2 / count)
    assert abs(float((values**4).mean()) - 3) < 5 * math.sqrt(96 / count)
    assert abs(float(values[1:] @ values[:-1])) < 5 * math.sqrt(count)
    half = count // 2
    assert abs(float(values[:half] @ values[half:])) < 5 * math.sqrt(half)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_training_takes_the_stream(device: str, dtype: torch.dtype) -> None:
    def loss(module: nn.Module, rows: Tensor) -> Tensor:
        return module(rows).square().sum(1)

    rows = torch.rand(40, 3, dtype=dtype, device=device)
    module = nn.Linear(3, 2, dtype=dtype, device=device)
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "batch_size": 10, "steps": 3}
    trained = train(module, rows, loss, **given, rng=DeviceStream())
    assert not trained.seeded
    words = "ChaCha20 and AES-256 in counter mode keyed by the operating system's entropy"
    assert words in trained.assumptions[0]
    assert all(torch.isfinite(one).all() for one in module.parameters())
