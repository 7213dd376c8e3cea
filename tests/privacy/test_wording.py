"""Plain words: the right numbers, and words for every kind of event and guarantee."""

from __future__ import annotations

import dataclasses
import math
import re
from fractions import Fraction
from typing import Any

import mpmath
import pytest

from tacit import Certificate
from tacit.privacy import decimals as digits
from tacit.privacy import events, guarantees, wording
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.guarantees import (
    ZCDP,
    Adjacency,
    ApproxDP,
    ConcentratedDP,
    Guarantee,
    NotPrivate,
    PureDP,
    RenyiDP,
    Unit,
    Unproven,
)
from tacit.privacy.mechanisms import (
    LocalVector,
    MemoizedResponse,
    ProjectiveGeometryResponse,
    RandomizedResponse,
    SparseVector,
    SubsetSelection,
)
from tacit.privacy.randomness import Seeded

SCOPE: dict[str, Any] = {"adjacency": "add-remove", "unit": "record"}
LOCAL: dict[str, Any] = {"adjacency": "any-two-inputs", "unit": "person"}
LAPLACE = events.Laplace(Fraction(3), Fraction(6), **SCOPE)

EVENTS: dict[str, tuple[events.Event, list[str]]] = {
    "Laplace": (LAPLACE, ["Laplace", "scale 6", "at most 3"]),
    "Gaussian": (
        events.Gaussian(Fraction(1, 2), Fraction(5), **SCOPE),
        ["deviation 5", "at most 0.5"],
    ),
    "DiscreteGaussian": (
        events.DiscreteGaussian(Fraction(4), Fraction(9), 1, **SCOPE),
        ["Discrete Gaussian", "deviation 3", "2 (Euclidean norm)"],
    ),
    "SummedDiscreteGaussian": (
        events.SummedDiscreteGaussian(Fraction(4), Fraction(9), 5, 6, 7, **SCOPE),
        ["a share of standard deviation 3", "2 (Euclidean norm)", "At least 5 shares"],
    ),
    "RandomizedResponse": (
        RandomizedResponse(categories=3, epsilon=1.0).event,
        ["one of 3", f"{math.e / (math.e + 2):.6g}", digits.below(1 / (math.e + 2))],
    ),
    "SubsetSelection": (
        SubsetSelection(categories=10, epsilon=1.0, size=2).event,
        ["one of 10", "set of 2", f"{2 * math.e / (2 * math.e + 8):.6g}"],
    ),
    "ProjectiveGeometryResponse": (
        ProjectiveGeometryResponse(categories=100, epsilon=1.0, order=3).event,
        ["one of 100", "one of 121 points", "40 points", f"{40 * math.e / (40 * math.e + 81):.6g}"],
    ),
    "SignVector": (
        LocalVector(dimension=5, lower=0, upper=1, epsilon=1.0, told=3, agreeing=2).event,
        ["5 bounded numbers", "3 of them", "2 or more", f"{math.e / (math.e + 1):.6g}"],
    ),
    "MemoizedResponse": (
        MemoizedResponse(categories=2, epsilon=7.1, permanent_epsilon=1.0, reports=12).event,
        ["2 cells", "12 reports", "Changes can be seen", "epsilon = 7.1", "1 per distinct cell"],
    ),
    "Exponential": (events.Exponential(1, 8, **SCOPE), ["candidate", "each 8 of", "at most 1."]),
    "SparseVector": (
        SparseVector(epsilon=1.0, threshold=0, positives=7, adjacency="replace-one").event,
        ["threshold", "7"],
    ),
    "SmoothLaplace": (
        events.SmoothLaplace(Fraction(1), Fraction(1, 10), 1e-6, **SCOPE),
        ["Laplace", "smooth"],
    ),
    "CertifiedTable": (
        events.CertifiedTable(Fraction(1), 0.0, 101, 102, "ab" * 32, **SCOPE),
        ["101 × 102 integer weights", "whole numbers", "ab" * 32],
    ),
    "ObjectivePerturbation": (
        events.ObjectivePerturbation("gaussian", 1, 5, Fraction(1, 4), 2, 3, 90, 7, **SCOPE),
        ["7 convex", "Gaussian", "5 times", "8 times", "30 times"],
    ),
    "Declared": (
        events.Declared(Unproven(reason="nobody looked", **SCOPE)),
        ["nothing is proved", "nobody looked"],
    ),
    "PoissonSampled": (events.PoissonSampled(0.125, LAPLACE), ["sample", "0.125", "scale 6"]),
    "Repeated": (events.Repeated(LAPLACE, 41), ["41 times", "scale 6"]),
    "Composed": (events.Composed((LAPLACE, LAPLACE)), ["same data", "scale 6"]),
    "Parallel": (events.Parallel((LAPLACE, LAPLACE)), ["separate part", "scale 6"]),
}

GUARANTEES: dict[str, Guarantee] = {
    "PureDP": PureDP(epsilon=1.0, **SCOPE),
    "ApproxDP": ApproxDP(epsilon=1.0, delta=1e-5, **SCOPE),
    "ConcentratedDP": ConcentratedDP(mu=0.1, tau=0.5, **SCOPE),
    "ZCDP": ZCDP(xi=0.0, rho=0.1, **SCOPE),
    "RenyiDP": RenyiDP(orders=(2.0, 8.0), epsilons=(0.1, 0.4), **SCOPE),
    "NotPrivate": NotPrivate(**SCOPE),
    "Unproven": Unproven(reason="step 2 reuses the data", **SCOPE),
}


def said(guarantee: Guarantee) -> str:
    return "\n".join(wording.how_well(guarantee))


# --- numbers ------------------------------------------------------------------------------------


def beliefs(text: str) -> dict[int, float]:
    """What someone who was so sure can become at most, in per cent."""
    found = re.findall(r"was (\d+) ?% sure .* can become at most ([0-9.]+) ?% sure", text)
    return {int(prior): float(posterior) for prior, posterior in found}


def test_epsilon_one_in_numbers() -> None:
    text = said(PureDP(epsilon=1.0, **SCOPE))
    assert "2.72" in text
    # An upper bound may be rounded up, not down by more than the digits that are shown.
    assert beliefs(text) == {
        1: pytest.approx(2.67, abs=0.05),
        50: pytest.approx(73.1, abs=0.11),
    }
    assert "epsilon = 1, delta = 0." in text
    assert "Apart from" not in text


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 3.0, 8.0])
def test_beliefs_are_bounds(epsilon: float) -> None:
    found = beliefs(said(PureDP(epsilon=epsilon, **SCOPE)))
    assert set(found) == {1, 50}
    for prior, most in found.items():
        true = 100 * wording.posterior(prior / 100, epsilon)
        assert true <= most + 0.05 * (most < 10) + 0.05
        assert most <= true + 0.11


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("prior", [0.0, 0.01, 0.5, 0.99, 1.0])
def test_posterior_is_bayes(prior: float, epsilon: float) -> None:
    # The likelihood ratio is at most e^ε.
    odds = prior * math.exp(epsilon)
    assert wording.posterior(prior, epsilon) == pytest.approx(odds / (odds + 1 - prior))


def test_posterior_far_out() -> None:
    assert wording.posterior(0.01, 5000.0) == 1.0
    assert wording.posterior(0.5, 0.0) == 0.5


def odds(text: str) -> str:
    return re.findall(r"odds .* by a factor of at most (.*)\.$", text, re.MULTILINE)[0]


@pytest.mark.parametrize("epsilon", [0.0, 0.1, math.log(2), 2.0, 10.0])
def test_factors(epsilon: float) -> None:
    factor = float(odds(said(PureDP(epsilon=epsilon, **SCOPE))))
    assert factor == pytest.approx(math.exp(epsilon), rel=0.005)


def test_a_huge_factor_is_said_in_words() -> None:
    assert "million" in odds(said(PureDP(epsilon=20.0, **SCOPE)))
    assert "million" in odds(said(PureDP(epsilon=800.0, **SCOPE)))


def test_delta_is_said_beside_epsilon() -> None:
    text = said(ApproxDP(epsilon=1.0, delta=1e-5, **SCOPE))
    assert "2.72" in text
    assert text.count("1e-05") >= 2
    # What is said of odds and beliefs holds but for a failure, and the text says so before.
    assert text.index("Apart from") < text.index("odds")
    apart = float(re.findall(r"Apart from .* probability at most ([^:,]+)[:,]", text)[0])
    assert 1e-5 <= apart <= 1e-4


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-3), (3.0, 0.01)])
def test_odds_beside_a_delta_hold(epsilon: float, delta: float) -> None:
    # The worst (ε, δ) pair that is known: randomized response, which fails with δ. The odds that
    # are stated may only be exceeded with the probability that is stated.
    text = said(ApproxDP(epsilon=epsilon, delta=delta, **SCOPE))
    factor = float(odds(text))
    apart = float(re.findall(r"Apart from .* probability at most ([^:,]+)[:,]", text)[0])
    keep = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    law = [(delta, 0.0), (keep, 1 - delta - keep), (1 - delta - keep, keep), (0.0, delta)]
    assert sum(p for p, q in law if p > factor * q) <= apart
    # Loss spread out just above what is stated: P = f P' on a set of mass m needs m ≤ δ + e^ε m/f.
    if factor > math.exp(epsilon):
        assert delta / (1 - math.exp(epsilon) / factor) <= apart * 1.01


@pytest.mark.parametrize("name", ["ZCDP", "ConcentratedDP", "RenyiDP"])
def test_other_notions_are_converted(name: str) -> None:
    guarantee = GUARANTEES[name]
    converted = guarantee.at_delta(1e-6)
    assert isinstance(converted, ApproxDP)
    text = said(guarantee)
    assert str(guarantee) in text
    assert f"implies {converted}" in text
    stated = float(re.findall(r"epsilon = ([^,]+), delta = 1e-06", text)[0])
    assert converted.epsilon * (1 - 1e-9) <= stated <= converted.epsilon * (1 + 1e-5)
    assert set(beliefs(text)) == {1, 50}


def test_a_curve_without_a_finite_order_protects_nobody() -> None:
    guarantee = RenyiDP(orders=(2.0,), epsilons=(math.inf,), **SCOPE)
    assert "Not at all" in said(guarantee)


def test_unknown_is_not_a_number() -> None:
    text = said(GUARANTEES["Unproven"])
    assert "step 2 reuses the data" in text
    assert "not protected" in text
    assert not re.search(r"epsilon|%|odds", text)
    nothing = said(GUARANTEES["NotPrivate"])
    assert "Not at all" in nothing
    assert not re.search(r"epsilon|%|odds", nothing)


# --- every kind ---------------------------------------------------------------------------------


def test_every_kind_is_in_these_tests(drawn_kinds: set[type[events.Event]]) -> None:
    assert set(EVENTS) | {kind.__name__ for kind in drawn_kinds} == set(events.KINDS)
    assert set(GUARANTEES) == set(guarantees.KINDS)


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_has_words(name: str) -> None:
    event, words = EVENTS[name]
    text = "\n".join(wording.describe(event))
    for word in words:
        assert word in text
    assert wording.standard_assumptions(event)
    assert wording.standard_limits(event)


@pytest.mark.parametrize("name", GUARANTEES)
def test_every_guarantee_has_words(name: str) -> None:
    text = wording.explain(GUARANTEES[name], LAPLACE, title="The title", assumptions=("One.",))
    assert text.startswith("The title\n")
    headings = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert headings == [
        "The title",
        "Who is protected, from whom",
        "How well",
        "Why that is true",
        "Assumptions",
        "Not protected",
    ]
    assert "  - One." in text
    assert "  - none stated" in text  # no limits were given


@pytest.mark.parametrize("name", EVENTS)
def test_every_certificate_is_explained(name: str) -> None:
    event, words = EVENTS[name]
    text = Certificate.issue(event).explain()
    sections = re.split(r"\n(?=\S)", text)
    for heading in ("Who is protected", "How well", "Why that is true", "Assumptions"):
        (section,) = (one for one in sections if one.startswith(heading))
        assert section.count("  - ") >= 1
        assert "none stated" not in section
    (limits,) = (one for one in sections if one.startswith("Not protected"))
    assert "learning that is the purpose" in limits
    for word in words:
        assert word in text


def test_nested_events_are_indented() -> None:
    event = events.Composed((events.Repeated(events.PoissonSampled(0.5, LAPLACE), 3), LAPLACE))
    lines = wording.describe(event)
    depths = [len(line) - len(line.lstrip()) for line in lines]
    assert depths == [0, 2, 4, 6, 2]
    assert "3 times" in lines[1]


def test_an_event_without_words_and_theorem_cannot_be_made() -> None:
    class Odd(events.Leaf):
        pass

    with pytest.raises(TypeError, match=r"Odd.*guarantee_at.*words"):
        Odd(**SCOPE)  # type: ignore[abstract]


# --- who, from whom, and what not ---------------------------------------------------------------


@pytest.mark.parametrize("unit", list(Unit))
def test_who_is_protected_from_whom(unit: Unit) -> None:
    said_of = {
        adjacency: wording.explain(
            PureDP(epsilon=1.0, adjacency=adjacency, unit=unit), LAPLACE, title=""
        )
        for adjacency in Adjacency
    }
    local = said_of[Adjacency.ANY_TWO_INPUTS]
    assert "including whoever collects it" in local
    assert f"Each {unit} " in local
    assert "report" in local
    for adjacency in (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE):
        holder = "the server that gathers" if unit == "client" else "whoever holds the raw data"
        assert f"not from {holder}" in said_of[adjacency]
        assert f"Each {unit} in the data" in said_of[adjacency]
    its, it = ("their", "them") if unit == "person" else ("its", "it")
    assert f"any other {unit} in {its} place" in said_of[Adjacency.REPLACE_ONE]
    assert f"without {it}." in said_of[Adjacency.ADD_REMOVE]


def test_assumptions_follow_the_model() -> None:
    local = " ".join(wording.standard_assumptions(events.Declared(PureDP(epsilon=1.0, **LOCAL))))
    central = " ".join(wording.standard_assumptions(LAPLACE))
    assert "where the raw value was" in local
    assert "trusted" not in local
    assert "trusted" in central
    assert "sensitivity" in central
    assert "declared" in local
    assert "declared" not in central


def test_limits_follow_the_neighbours() -> None:
    def limits(**scope: Any) -> str:
        return " ".join(wording.standard_limits(events.Laplace(Fraction(1), Fraction(1), **scope)))

    assert "took part" in limits(adjacency="any-two-inputs", unit="person")
    assert "How many records" in limits(adjacency="replace-one", unit="record")
    assert "How many" not in limits(adjacency="add-remove", unit="record")
    assert "behind several records" in limits(adjacency="add-remove", unit="record")
    assert "behind several" not in limits(adjacency="add-remove", unit="person")


def test_seeded_releases_are_announced_first() -> None:
    text = Certificate.issue(LAPLACE, rng=Seeded(1)).explain()
    assert text.index("SEEDED") < text.index("Who is protected")
    assert "SEEDED" not in Certificate.issue(LAPLACE).explain()


def test_a_seeded_release_does_not_claim_the_operating_system() -> None:
    certificate = Certificate.issue(LAPLACE, rng=Seeded(1))
    assert not any("operating system" in line for line in certificate.assumptions)


CENTRAL = [one for one in Adjacency if one.model == "central"]


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("adjacency", CENTRAL, ids=str)
def test_no_certificate_hides_how_many_and_tells_it(name: str, adjacency: Adjacency) -> None:
    """Add-remove hides the number of records: it must not be under what is not protected."""
    event = EVENTS[name][0]
    if not isinstance(event, events.Leaf):
        pytest.skip("built of others")
    try:
        stated = dataclasses.replace(event, adjacency=adjacency)
    except InvalidParameter:
        pytest.skip("has no proof for these")
    told = Certificate.issue(stated).explain()
    hidden = adjacency is Adjacency.ADD_REMOVE
    assert ("How many" in told) is not hidden
    assert ("compared with the same data without it" in told) is hidden
    assert ("blank" in told) is (adjacency is Adjacency.ZERO_OUT)
    assert ("any other record in its place" in told) is (adjacency is Adjacency.REPLACE_ONE)


def test_printed_bounds_round_outwards() -> None:
    scope: Any = {"adjacency": "zero-out", "unit": "record"}
    told = "\n".join(wording.how_well(ApproxDP(1.0000001, 1.2349e-5, **scope)))
    assert "epsilon = 1.00001, delta = 1.24e-05." in told
    assert "1.23e-05" not in told
    for number in (1.2349e-5, 0.1, 1 / 3, 2 / 3, 1e-300, 123456789.0, 0.0, 1.0, 999999.5):
        for places in (1, 3, 6):
            assert Fraction(digits.below(number, places)) <= Fraction(repr(number))
            assert Fraction(repr(number)) <= Fraction(digits.above(number, places))
    assert digits.above(0.1) == digits.below(0.1) == "0.1"
    assert digits.above(Fraction(1, 3), 3) == "0.334"
    assert digits.below(Fraction(2, 3), 3) == "0.666"
    assert digits.above(math.inf) == "inf"


# What a hostile reader found: printed bounds were below the truth in their last digit.


@pytest.mark.parametrize("number", [1e-323, 3e-323, 5e-324, 1e-310, 2.5e-5, 123456.7, 1e6, 1e300])
@pytest.mark.parametrize("places", [1, 3, 6])
def test_printed_decimals_are_outside(number, places):
    assert Fraction(digits.above(number, places)) >= Fraction(repr(number))
    assert Fraction(digits.below(number, places)) <= Fraction(repr(number))
    assert digits.above(1000.0) == "1000"
    assert digits.above(1234567.0) == "1.23457e+06"
    assert digits.below(0.00001234) == "1.234e-05"


@pytest.mark.parametrize("epsilon", [0.6931471805599453, 0.6931471805599454, 1e-9, 1.0, 13.8])
def test_printed_odds_and_beliefs_are_bounds(epsilon):
    mpmath.mp.dps = 60
    exact = mpmath.mpf(repr(epsilon))
    scope = {"adjacency": "replace-one", "unit": "person"}
    lines = "\n".join(wording.how_well(PureDP(epsilon=epsilon, **scope)))
    assert mpmath.mpf(odds(lines)) >= mpmath.exp(exact)
    for prior, most in zip((0.01, 0.5), re.findall(r"at most ([0-9.]+)% sure", lines), strict=True):
        true = 1 / (1 + (1 / mpmath.mpf(repr(prior)) - 1) * mpmath.exp(-exact))
        assert mpmath.mpf(most) >= 100 * true
        assert mpmath.mpf(repr(wording.posterior(prior, epsilon))) >= true
    lines = "\n".join(wording.how_well(ApproxDP(epsilon=epsilon, delta=1e-12, **scope)))
    (rare,) = re.findall("probability at most (.*):", lines)
    room = min(exact, mpmath.mpf(repr(math.log(2))))
    assert mpmath.mpf(rare) >= mpmath.mpf("1e-12") / (1 - mpmath.exp(-room))


def test_large_factors_and_beliefs_are_spelled_out():
    lines = "\n".join(wording.how_well(PureDP(epsilon=7.1, **SCOPE)))
    assert odds(lines) == "1212"
    assert "at most 99.92% sure" in lines


def test_events_that_repeat_are_described_once():
    other = events.Gaussian(Fraction(1, 2), Fraction(5), **SCOPE)
    (one,), (two,) = wording.describe(LAPLACE), wording.describe(other)
    together = events.Composed((LAPLACE, LAPLACE, LAPLACE, other, LAPLACE))
    assert wording.describe(together) == [
        "All of these ran on the same data:",
        "  3 times:",
        f"    {one}",
        f"  {two}",
        f"  {one}",
    ]
