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


LOCALES = ("en-US", "de-DE", "de-CH", "fr-FR", "es-ES", "es-MX", "ar", "ar-EG")


def run(body, given, locale="en-US"):
    """The result of a module's body, with the page's own modules at hand."""
    module, language = json.dumps((STATIC / "language.js").as_uri()), json.dumps(locale[:2])
    source = (
        "Object.defineProperty(globalThis, 'navigator', { configurable: true, "
        f"value: {{ languages: [{json.dumps(locale)}] }} }});\n"
        f"await (await import({module})).speak({language});\n"
        f"import * as words from {json.dumps((STATIC / 'words.js').as_uri())};\n"
        f"import * as odds from {json.dumps((STATIC / 'odds.js').as_uri())};\n"
        f"const given = {json.dumps(given)};\nconsole.log(JSON.stringify({body}));"
    )
    done = subprocess.run(
        [NODE, "--input-type=module"], input=source, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def number_in(text, locale):
    """The number that a text shows, exactly: its digits, and the locale's mark between them."""
    point = {"de-DE": ",", "fr-FR": ",", "es-ES": ",", "ar-EG": "٫"}.get(locale, ".")
    plain = "".join(
        str(int(one)) if one.isdecimal() else "." if one == point else "" for one in text
    )
    return Fraction(plain)


def real(fraction):
    return mpmath.mpf(fraction.numerator) / fraction.denominator


@pytest.mark.parametrize("locale", LOCALES)
def test_what_is_printed_is_a_bound(locale):
    mpmath.mp.dps = 60
    body = "given.map((e) => [words.cost(e), words.factor(e), words.believed(0.1, e)])"
    printed = run(body, EPSILONS, locale)
    for epsilon, texts in zip(EPSILONS, printed, strict=True):
        shown, factor, believed = (number_in(text, locale) for text in texts)
        exact = mpmath.mpf(repr(epsilon))
        assert (
            Fraction(repr(epsilon)) <= shown <= Fraction(repr(epsilon)) * Fraction(100002, 100000)
        )
        assert mpmath.exp(exact) <= real(factor) <= mpmath.exp(exact) * 1.011
        true = 100 / (1 + 9 * mpmath.exp(-exact))
        assert true <= real(believed) <= true + 0.11


def test_numbers_are_written_as_in_the_language():
    body = "[words.factor(0), words.believed(0.5, 0), words.cost(0), words.percent(0.0151)]"
    assert run(body, 0) == ["1", "50%", "ε\u00a0=\u00a00", "1.5%"]
    assert run(body, 0, "de-DE") == ["1", "50\u00a0%", "ε\u00a0=\u00a00", "1,5\u00a0%"]
    assert run(body, 0, "ar-EG")[:1] == ["١"]
    large = "[words.factor(13.8), words.factor(20), words.factor(700)]"
    assert run(large, 0) == ["985,000", "486,000,000", "1.02E304"]


READ = """await import(MODULE).then(({ numberIn }) => given.map((text) => {
    const found = numberIn(text); return Number.isNaN(found) ? null : found; }))"""


@pytest.mark.parametrize(("locale", "texts", "expected"), [
    ("en-US", ["1,234.5", "50,000", "2.5", "2,5", ".5", "1e5", "12,34", "−3"],
              [1234.5, 50000, 2.5, 2.5, 0.5, None, 12.34, -3]),
    ("de-DE", ["1.234,5", "2.5", "2,5", "1.234"], [1234.5, 2.5, 2.5, 1234]),
    ("fr-FR", ["1 234,5", "1\u202f234", "2,5"], [1234.5, 1234, 2.5]),
    ("ar-EG", ["٢٫٥", "١٬٢٣٤", "2.5", "−٣"], [2.5, 1234, 2.5, -3]),
])  # fmt: skip
def test_numbers_are_read_as_in_the_language(locale, texts, expected):
    module = json.dumps((STATIC / "language.js").as_uri())
    assert run(READ.replace("MODULE", module), texts, locale) == expected


def test_sentences_choose_the_form_of_their_number():
    """Arabic has six, of which a survey's report can need five."""
    module = json.dumps((STATIC / "language.js").as_uri())
    body = f"""await import({module}).then(({{ text }}) =>
        given.map((count) => text("until-reports", {{ count }})))"""
    said = run(body, [0, 1, 2, 3, 11, 100], "ar")
    assert len(set(said)) == 6
    assert run(body, [1, 2], "en-US") == ["1 report has arrived", "2 reports have arrived"]


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
