"""A row's result has the same bits wherever the row stands: on every kernel of a library."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit.privacy import rowwise
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.rowwise import Product

pytestmark = pytest.mark.heavy

RNG = np.random.default_rng(0)


def test_sums_are_those_of_the_same_numbers():
    for width in (0, 1, 2, 3, 7, 8, 1000, 8193):
        x = RNG.normal(size=(5, width))
        assert rowwise.total(x) == pytest.approx(x.sum(axis=1))
        assert rowwise.lengths(x) == pytest.approx(np.linalg.norm(x, axis=1))
    whole = RNG.integers(-9, 9, (4, 3, 11))
    assert np.array_equal(rowwise.total(whole), whole.sum(axis=2))


def test_sums_leave_their_rows_as_they_are():
    x = RNG.normal(size=(5, 7))
    before = x.copy()
    rowwise.total(x)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("width", [1, 3, 64, 5184])
@pytest.mark.parametrize("limit", [1.0, 3.0, 1e-3, 1e4])
def test_products_are_exact(width, limit):
    """Against Python's integers; and close to the product of what was not rounded."""
    matrix = RNG.normal(size=(width, 3)) * 10.0 ** RNG.integers(-3, 3, 3)
    product = Product.of(matrix, limit)
    rows = RNG.uniform(-limit, limit, (4, width))
    rows[0] = limit  # the largest sums there are
    rows[1] = limit * np.sign(matrix[:, 0])
    found = product(rows)
    unit = product.grid.step
    scale = 2.0 ** round(np.log2(np.abs(product.matrix[product.matrix != 0]).min())) / 2**60
    assert scale > 0
    for row, line in zip(product.grid(rows), found, strict=True):
        for column, entry in zip(product.matrix.T, line, strict=True):
            exact = sum(int(a / unit) * int(b * 2.0**80) for a, b in zip(row, column, strict=True))
            assert int(float(entry) / unit * 2.0**80) == exact
    size = np.abs(matrix).max() * limit
    assert found == pytest.approx(rows @ matrix, abs=size * np.sqrt(width) * 1e-5)


def test_what_is_beyond_or_no_number_is_held():
    product = Product.of(np.eye(2), 4.0)
    rows = np.array([[np.nan, 1.0], [np.inf, -np.inf], [1e300, 5.0]])
    assert product(rows).tolist() == [[0.0, 1.0], [4.0, -4.0], [4.0, 4.0]]


def test_matrices_that_are_too_long_or_empty():
    with pytest.raises(InvalidParameter, match="entries a sum"):
        rowwise.exactly(np.ones((2**20, 1)), 1.0)
    assert Product.of(np.zeros((3, 2)), 1.0)(np.ones((1, 3))).tolist() == [[0.0, 0.0]]


def test_tables_of_functions():
    x = -np.concatenate([RNG.uniform(0, 39, 5000), [0.0, 1e-9]])
    assert rowwise.exp_below(x) == pytest.approx(np.exp(x), rel=1e-6)
    assert rowwise.exp_below(np.array([-41.0, -np.inf, np.nan, 0.0])).tolist() == [0, 0, 0, 1]
    turns = RNG.uniform(-50, 50, 5000)
    assert rowwise.cosine(turns) == pytest.approx(np.cos(2 * np.pi * turns), abs=1e-5)


PROBE = Path(__file__).with_name("rowwise_probe.py")
KERNELS = ("Haswell", "Zen", "SkylakeX", "Prescott")


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_is_the_same_in_every_place_on_every_kernel(kernel):
    """All that guarantees rest on, with the library's products of that processor.

    With kernels for Haswell and Zen, features used to change in hundreds of rows when the first
    row was taken out: a row tuned to a cell's edge moved a query by 119 times its sensitivity.
    """
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernel, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, str(PROBE)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
    assert "0 of" in ran.stdout
