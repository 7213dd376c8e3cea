"""Numbers on the page, by node: bounds that are printed hold, to the last digit."""

import json
import math
import shutil
import subprocess
from fractions import Fraction

import mpmath
import pytest

from .browser import STATIC

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="No node found.")
EPSILONS = [
    *(1.000000000009, 3.00000000002, 0.1000000000009, 0.69314718057, 1.0986122887, 1e-9, 0.7),
    *(0.6931471805599453, 0.6931471805599454, 13.8, 1 / 3, 2.0, 0.1),
]


def run(body, given):
    """The result of a module's body, with the page's own modules at hand."""
    source = (
        f"import * as words from {json.dumps((STATIC / 'words.js').as_uri())};\n"
        f"import * as odds from {json.dumps((STATIC / 'odds.js').as_uri())};\n"
        f"const given = {json.dumps(given)};\nconsole.log(JSON.stringify({body}));"
    )
    done = subprocess.run(
        [NODE, "--input-type=module"], input=source, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_what_is_printed_is_a_bound():
    mpmath.mp.dps = 60
    body = "given.map((e) => [words.cost(e), words.factor(e), words.believed(0.1, e)])"
    for epsilon, (cost, factor, believed) in zip(EPSILONS, run(body, EPSILONS), strict=True):
        exact = mpmath.mpf(repr(epsilon))
        shown = Fraction(cost.split("\u00a0")[-1])
        assert (
            Fraction(repr(epsilon)) <= shown <= Fraction(repr(epsilon)) * Fraction(100002, 100000)
        )
        assert mpmath.exp(exact) <= mpmath.mpf(factor) <= mpmath.exp(exact) * 1.011
        true = 100 / (1 + 9 * mpmath.exp(-exact))
        assert true <= mpmath.mpf(believed.split("\u00a0")[0]) <= true + 0.11
    assert run("[words.factor(0), words.believed(0.5, 0), words.cost(0)]", 0) == [
        "1",
        "50\u00a0%",
        "ε\u00a0=\u00a00",
    ]


def test_sums_and_costs_are_not_below():
    pairs = [[a, b] for a in EPSILONS for b in EPSILONS]
    for (a, b), total in zip(
        pairs, run("given.map((p) => odds.sumAbove(...p))", pairs), strict=True
    ):
        exact = Fraction(repr(a)) + Fraction(repr(b))
        assert Fraction(repr(total)) >= exact
        assert Fraction(repr(math.nextafter(total, 0))) < exact
    laws = [[2, 1], [3, 1], [5, 4], [10**6, 7]]
    body = "given.map(([a, b]) => new odds.Cost([BigInt(a), BigInt(b)]).epsilon)"
    for (a, b), epsilon in zip(laws, run(body, laws), strict=True):
        true = mpmath.log(mpmath.mpf(a) / b)
        assert true <= mpmath.mpf(repr(epsilon)) <= true * (1 + mpmath.mpf(1e-15))


AGREE = """given.map((total) => {
    const told = { epsilon: 0.1, vote_epsilon: 0.2, total_epsilon: total, delta: 0, classes: null,
        labelled: true, artifact: { sha256: "x" }, certificate: { guarantee: { epsilon: total } } };
    const described = { classes: null, labelled: true, artifact: "x", epsilon: 0.1 };
    try { device.mustAgree(told, described, null); return true; } catch { return false; } })"""


def test_a_total_below_the_sum_is_refused():
    """A last digit below it was let through."""
    body = f"await import({json.dumps((STATIC / 'device.js').as_uri())}).then((device) => {AGREE})"
    totals = [0.3, 0.30000000000000004, 0.29999999999999999, 0.2999999999, 0.29, 0.31, "0.3", None]
    assert run(body, totals) == [True, True, True, False, False, False, False, False]
    assert run(body, [math.nextafter(0.3, 0)]) == [False]
