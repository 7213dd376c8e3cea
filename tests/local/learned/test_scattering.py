"""Scattering by matrix products against the same thing by fast Fourier transforms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import fft
from sklearn.datasets import load_digits

from tacit.local.learned import scattering
from tacit.privacy.errors import InvalidData


def by_fft(images, image):
    """Straight from the definition: complex convolutions at full size, then every fourth pixel."""
    full = tuple(scattering.padded(side) for side in image)
    before = [(big - small) // 2 for big, small in zip(full, image, strict=True)]
    x = np.zeros((len(images), *full))
    rows, columns = (slice(b, b + s) for b, s in zip(before, image, strict=True))
    x[:, rows, columns] = images.reshape(-1, *image)
    fine, coarse = (transfer(full, scale) for scale in (0, 1))
    blur = gaussian(full)
    channels = [smooth(x, blur)]
    for wavelet in fine:
        edges = np.abs(fft.ifft2(fft.fft2(x) * wavelet))
        channels.append(smooth(edges, blur))
        channels += [smooth_coarse(edges, other, blur) for other in coarse]
    channels += [smooth_coarse(x, other, blur) for other in coarse]
    stacked = np.stack(channels, axis=1).reshape(len(images), scattering.CHANNELS, -1)
    norm = np.linalg.norm(stacked, axis=2, keepdims=True)
    return (stacked / (norm + scattering.FLOOR)).reshape(len(images), -1)


def smooth(x, blur):
    return fft.ifft2(fft.fft2(x) * blur).real[:, ::4, ::4]


def smooth_coarse(x, wavelet, blur):
    """Every second pixel between the two: that is where the second scale is sampled."""
    edges = np.abs(fft.ifft2(fft.fft2(x) * wavelet))[:, ::2, ::2]
    kernel = 4 * fft.ifft2(blur).real[::2, ::2]
    return fft.ifft2(fft.fft2(edges) * fft.fft2(kernel)).real[:, ::2, ::2]


def wrapped(full, function):
    total = 0
    for a in range(-2, 3):
        for b in range(-2, 3):
            x, y = np.mgrid[a * full[0] : (a + 1) * full[0], b * full[1] : (b + 1) * full[1]]
            total = total + function(x, y)
    return total


def transfer(full, scale):
    sigma, xi = 0.8 * 2**scale, 0.75 * np.pi / 2**scale
    out = []
    for index in range(8):
        angle = (3 - index) * np.pi / 8
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        form = turn @ np.diag([1, 0.25]) @ turn.T / (2 * sigma**2)

        def gabor(x, y, xi, form=form, angle=angle):
            square = form[0, 0] * x * x + 2 * form[0, 1] * x * y + form[1, 1] * y * y
            return np.exp(-square + 1j * xi * (x * np.cos(angle) + y * np.sin(angle)))

        wave = wrapped(full, lambda x, y, gabor=gabor: gabor(x, y, xi))
        bell = wrapped(full, lambda x, y, gabor=gabor: gabor(x, y, 0))
        out.append(fft.fft2((wave - wave.sum() / bell.sum() * bell) / (4 * np.pi * sigma**2)))
    return out


def gaussian(full):
    bell = wrapped(full, lambda x, y: np.exp(-(x * x + y * y) / (2 * 1.6**2)))
    return fft.fft2(bell / (2 * np.pi * 1.6**2)).real


@pytest.mark.parametrize("image", [(28, 28), (8, 8), (13, 22)])
def test_products_are_convolutions(image):
    images = np.random.default_rng(1).random((5, image[0] * image[1]))
    got = scattering.transform(images, image)
    expected = by_fft(images, image)
    assert got.dtype == np.float32
    assert got.shape == expected.shape == (5, scattering.dimension(image))
    assert np.abs(got - expected).max() < 2e-6
    # The same test must notice a wrong filter: here the angles are in another order.
    shuffled = got.reshape(5, scattering.CHANNELS, -1)[:, [0, *range(80, 0, -1)]]
    assert np.abs(shuffled.reshape(5, -1) - expected).max() > 1e-2


def test_sizes():
    assert scattering.padded(28) == 32
    assert scattering.dimension((28, 28)) == 81 * 64
    for side in range(1, 40):
        assert scattering.padded(side) % 4 == 0
        assert 4 <= scattering.padded(side) - side <= 7


def test_channels_have_unit_norm_and_ignore_the_strength_of_strokes():
    images = load_digits().data[:20] / 16
    features = scattering.transform(images, (8, 8)).reshape(20, scattering.CHANNELS, -1)
    norms = np.linalg.norm(features, axis=2)
    assert np.all(norms < 1)
    assert np.all(norms > 0.7)
    fainter = scattering.transform(images / 2, (8, 8)).reshape(features.shape)
    assert np.abs(fainter - features).max() < 0.1
    assert np.abs(scattering.transform(images[::-1], (8, 8))[-1] - features[0].ravel()).max() < 1e-6


def test_a_blank_image_has_no_features():
    assert np.all(scattering.transform(np.zeros((1, 784)), (28, 28)) == 0)


def test_a_shift_by_the_stride_moves_the_features_by_a_pixel():
    image = np.zeros((28, 28))
    image[8:16, 8:16] = load_digits().images[3] / 16
    moved = np.roll(image, 4, axis=1)
    both = scattering.transform(np.stack([image, moved]).reshape(2, -1), (28, 28))
    first, second = both.reshape(2, scattering.CHANNELS, 8, 8)
    assert np.abs(np.roll(first, 1, axis=2) - second).max() < 1e-5
    assert np.abs(first - second).max() > 0.1


def test_blocks_do_not_change_the_features(monkeypatch):
    images = np.random.default_rng(2).random((70, 64))
    once = scattering.transform(images, (8, 8))
    for pixels in (1, 12 * 12 * 33):
        monkeypatch.setattr(scattering, "_BLOCK_PIXELS", pixels)
        assert np.abs(scattering.transform(images, (8, 8)) - once).max() < 1e-6


def test_torch_runs_the_same_code():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    images = np.random.default_rng(3).random((4, 784)).astype(np.float32)
    filters = scattering.bank(28, 28).convert(lambda array: torch.from_numpy(array.copy()))
    stacked = torch.from_numpy(images.T.copy()).reshape(28, 28, -1)
    features = scattering.scatter(stacked, filters, torch).reshape(-1, 4).T
    assert np.abs(features.numpy() - scattering.transform(images, (28, 28))).max() < 1e-6


@pytest.mark.parametrize("shape", [(2, 783), (784,), (2, 28, 28)])
def test_images_of_another_size_are_refused(shape):
    with pytest.raises(InvalidData, match=r"\(n, 784\)"):
        scattering.transform(np.zeros(shape), (28, 28))


def test_the_bank_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        scattering.bank(28, 28).blur.rows[0, 0] = 1
