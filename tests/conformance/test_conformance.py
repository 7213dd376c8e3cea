"""One suite over every mechanism: its law, its draws, its guarantee, its manners.

Cases are in `conftest.py`. What is exact is compared in rationals; draws are tested at
significance 1e-6, beside a mutant whose ε is 10 % off and must be rejected.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from fractions import Fraction
from typing import get_type_hints

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tacit
from tacit.privacy import events, mechanisms, plain, wording
from tacit.privacy.errors import InvalidData, InvalidParameter, TacitError

SIGNIFICANCE = 1e-6
DRAWS = 60_000
DIGITS = "123457"
SLACK = 1e-12


# --- statistics ----------------------------------------------------------------------------------


def p_value(counts, chances):
    """Pearson's test; cells that expect few draws are pooled with their neighbours."""
    counts, chances = np.asarray(counts, dtype=float), np.asarray(chances, dtype=float)
    if (counts[chances == 0] > 0).any():
        return 0.0
    counts, expected = counts[chances > 0], chances[chances > 0] * counts.sum()
    small = expected < 50
    group = np.where(small, np.floor(np.cumsum(expected * small) / 100), -1 - np.arange(small.size))
    for _ in range(2):
        group = np.unique(group, return_inverse=True)[1]
        # What is still small joins the group before it.
        group = np.maximum(np.cumsum(np.bincount(group, expected) >= 25)[group] - 1, 0)
    observed, expected = np.bincount(group, counts), np.bincount(group, expected)
    assert len(expected) > 1, "one cell tests nothing"
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, len(expected) - 1))


class Law:
    """The law that a mechanism states, ready to be compared with draws."""

    def __init__(self, case, stated):
        self.outputs = np.ascontiguousarray((case.seen or case.outputs)(stated))
        self.chances = np.exp(case.law(stated, self.outputs, case.raw))
        assert self.chances.sum() <= 1 + 1e-9

    def p_value(self, draws):
        """Outputs beyond the table are one more cell."""
        assert draws.shape[1:] == self.outputs.shape[1:]
        counts = np.bincount(self.places(draws), minlength=len(self.outputs) + 1)
        beyond = max(1 - self.chances.sum(), 0.0)
        if beyond < 1e-8 and counts[-1] > 3:
            return 0.0  # outputs that cannot be
        return p_value(counts, np.append(self.chances, beyond + 1e-12))

    def places(self, draws):
        draws = np.ascontiguousarray(draws.astype(self.outputs.dtype))
        size = len(self.outputs)
        if self.outputs[0].size == 1:
            table, flat = self.outputs.ravel(), draws.ravel()
            found = np.minimum(np.searchsorted(table, flat), size - 1)
            return np.where(table[found] == flat, found, size)
        place = {row.tobytes(): index for index, row in enumerate(self.outputs)}
        return np.array([place.get(row.tobytes(), size) for row in draws])


def hockey_stick(first, second, epsilon):
    """Σ (P − e^ε P')₊ from logarithms."""
    with np.errstate(under="ignore"):
        return float(np.maximum(np.exp(first) - np.exp(second + epsilon), 0).sum())


# --- coverage ------------------------------------------------------------------------------------


def exported():
    names = [getattr(mechanisms, name) for name in mechanisms.__all__]
    return {one for one in names if inspect.isclass(one) and not getattr(one, "_is_protocol", 0)}


def test_every_exported_mechanism_has_a_case_and_a_contract(all_cases, all_contracts):
    assert len(exported()) >= 13
    assert {case.kind for case in all_cases} == exported()
    assert {contract.kind for contract in all_contracts} == exported()
    for kind in exported():
        assert getattr(tacit, kind.__name__) is kind


def test_every_parameter_has_a_refused_value(all_contracts):
    free = {"numeric"}  # any truth value only adds or removes an output
    for kind in exported():
        parameters = set(inspect.signature(kind).parameters) - free
        refused = {name for one in all_contracts if one.kind is kind for name in one.bad}
        assert parameters <= refused, (kind.__name__, parameters - refused)


def test_it_is_a_mechanism_that_states_its_law(case):
    mechanism = case.make(1.0)
    assert isinstance(mechanism, mechanisms.Mechanism)
    assert isinstance(mechanism, mechanisms.Channel)


def test_its_event_is_of_the_kind_that_it_names_and_carries_its_guarantee(case):
    mechanism = case.make(1.0)
    getter = getattr(case.kind.event, "fget", None) or case.kind.event.func
    assert type(mechanism.event) is get_type_hints(getter)["return"]
    assert type(mechanism.event) in events.KINDS.values()
    delta = mechanism.guarantee.delta or None
    derived = tacit.guarantee_of(mechanism.event, delta)
    assert mechanism.guarantee.epsilon == pytest.approx(derived.epsilon, rel=1e-9)
    assert mechanism.guarantee.scope == derived.scope == mechanism.event.scope


def test_its_event_is_frozen_and_survives_json(case):
    event = case.make(1.0).event
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.unit = "person"
    stored = json.loads(json.dumps(plain.to_plain(event)))
    assert plain.event_from_plain(stored) == event
    assert hash(plain.event_from_plain(stored)) == hash(event)
    for name in stored:
        if name != "kind":
            with pytest.raises(InvalidParameter):
                plain.event_from_plain({key: stored[key] for key in stored if key != name})
    with pytest.raises(InvalidParameter):
        plain.event_from_plain({**stored, "more": 1})


def test_its_event_refuses_numbers_that_void_the_proof(case):
    event = case.make(1.0).event
    for name in ("adjacency", "unit"):
        with pytest.raises(InvalidParameter, match=f"{type(event).__name__}: {name} must be"):
            dataclasses.replace(event, **{name: "x"})
    for one in dataclasses.fields(event):
        value = getattr(event, one.name)
        if isinstance(value, int | float | Fraction) and not isinstance(value, bool):
            for bad in (math.nan, math.inf, -1):
                with pytest.raises(InvalidParameter, match=type(event).__name__):
                    dataclasses.replace(event, **{one.name: bad})


def test_its_event_has_words_and_a_certificate(case):
    event = case.make(1.0).event
    (line,) = wording.describe(event)
    assert re.fullmatch(r"[A-Z].*\d.*\.", line), line  # a sentence with the numbers of the draw
    assert wording.standard_assumptions(event)
    assert wording.standard_limits(event)
    tacit.Certificate.issue(event, delta=case.make(1.0).guarantee.delta or None).verify()


# --- the law -------------------------------------------------------------------------------------


def test_mass_is_one(case):
    for epsilon in case.epsilons:
        mechanism = case.make(epsilon)
        outputs = case.outputs(mechanism)
        for raw in {str(raw): raw for pair in case.adjacent(mechanism) for raw in pair}.values():
            mass = math.fsum(np.exp(case.law(mechanism, outputs, raw)))
            assert mass == pytest.approx(1, abs=1e-9), (epsilon, raw)


def test_the_guarantee_holds_for_the_law_and_is_tight_where_it_should_be(case):
    for epsilon in case.epsilons:
        mechanism = case.make(epsilon)
        claim = mechanism.guarantee
        outputs = case.outputs(mechanism)
        worst = 0.0
        for raw, other in case.adjacent(mechanism):
            first, second = (case.law(mechanism, outputs, one) for one in (raw, other))
            if claim.delta:
                there = hockey_stick(first, second, claim.epsilon)
                back = hockey_stick(second, first, claim.epsilon)
                assert max(there, back) <= claim.delta * (1 + 1e-9), (epsilon, raw, other)
                worst = max(worst, there, back)
            else:
                size = max(1.0, float(np.abs([first, second]).max()))
                ratio = float(np.abs(first - second).max())
                assert ratio <= claim.epsilon + SLACK * size, (epsilon, raw, other)
                worst = max(worst, ratio)
        if case.tight is not None:
            target = claim.delta or claim.epsilon
            share = case.tight * (target if claim.delta else 1)
            assert worst == pytest.approx(target, abs=share), epsilon
        # A table in which nothing happens would prove nothing.
        assert worst > (0 if claim.delta else claim.epsilon / 3), epsilon


def test_it_promises_what_was_asked_for(case):
    for epsilon in case.epsilons:
        assert case.make(epsilon).guarantee.epsilon == pytest.approx(epsilon, rel=1e-8)
        assert case.make(epsilon).guarantee.epsilon <= epsilon * (1 + 1e-15)


# --- the draws -----------------------------------------------------------------------------------


def test_draws_follow_the_law_and_a_mutant_does_not(case):
    honest, mutant = case.drawn(1.0), case.drawn(1.1)
    stated = Law(case, honest)
    # From the operating system: a false alarm once in a million runs of this test.
    assert stated.p_value(case.draws(honest, case.raw, case.count, None)) > SIGNIFICANCE
    seeded = case.draws(mutant, case.raw, case.count, tacit.Seeded(1))
    assert stated.p_value(seeded) < SIGNIFICANCE


def test_a_single_release_agrees_with_many(case):
    """One input a call, as a user would: not only arrays of copies."""
    mechanism = case.make(1.0)
    stated = Law(case, mechanism)
    stream = tacit.Seeded(7)
    if case.draws.__name__ == "plain_draws":
        draws = np.array([mechanism.release(case.raw, stream) for _ in range(400)])
    else:
        draws = case.draws(mechanism, case.raw, 400, stream)
    assert stated.p_value(draws) > SIGNIFICANCE


def test_seeds_reproduce_and_entropy_does_not(case):
    mechanism, count = case.drawn(1.0), 300
    draw = lambda rng: case.draws(mechanism, case.raw, count, rng).tolist()  # noqa: E731
    assert draw(tacit.Seeded(2)) == draw(tacit.Seeded(2))
    assert draw(tacit.Seeded(2)) != draw(tacit.Seeded(3))
    assert draw(np.random.default_rng(2)) == draw(tacit.Seeded(2))
    assert draw(None) != draw(None)


def test_one_stream_does_not_repeat_itself(case):
    mechanism, stream = case.drawn(1.0), tacit.Seeded(4)
    first = case.draws(mechanism, case.raw, 300, stream).tolist()
    assert first != case.draws(mechanism, case.raw, 300, stream).tolist()


@pytest.mark.parametrize("rng", [42, "x", np.random.RandomState(0), object()])
def test_a_bad_rng_is_refused(case, rng):
    with pytest.raises(InvalidParameter, match=r"\Arelease: rng must be [^\n]*\Z"):
        case.draws(case.make(1.0), case.raw, 1, rng)


def test_release_does_not_change_its_input(contract):
    mechanism = contract.kind(**contract.good)
    raw = np.array(contract.raw)
    before = raw.copy()
    mechanism.release(raw, tacit.Seeded(1), **contract.release)
    assert np.array_equal(raw, before)
    raw.flags.writeable = False
    mechanism.release(raw, tacit.Seeded(1), **contract.release)


# --- the guarantee -------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 5.0])
def test_event_and_guarantee_agree(case, epsilon):
    mechanism = case.make(epsilon)
    claim = mechanism.guarantee
    derived = tacit.guarantee_of(mechanism.event, claim.delta or None)
    assert type(derived) is type(claim)
    assert derived.scope == claim.scope
    assert derived.epsilon == pytest.approx(claim.epsilon, rel=1e-9)
    assert derived.epsilon <= claim.epsilon * (1 + 1e-9)
    tacit.Certificate.issue(mechanism.event, guarantee=claim).verify()


def test_a_stronger_claim_is_not_certified(case):
    mechanism = case.make(1.0)
    stronger = case.make(0.9).guarantee
    with pytest.raises(TacitError):
        tacit.Certificate.issue(mechanism.event, guarantee=stronger)


def test_a_mechanism_is_frozen(contract):
    mechanism = contract.kind(**contract.good)
    for name in contract.good:
        with pytest.raises(AttributeError):
            setattr(mechanism, name, contract.good[name])


# --- bad parameters ------------------------------------------------------------------------------


def refused_well(make, value, *, echo):
    """None if a bad parameter is refused in the house form, else what went wrong."""
    try:
        make()
    except InvalidParameter as error:
        message = str(error)
        if "\n" in message:
            return f"more than one line: {message!r}"
        if " must be " not in message:
            return f"not in the house form: {message!r}"
        if echo and repr(value) not in message and str(value) not in message:
            return f"value not echoed: {message!r}"
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def test_bad_parameters_are_refused(contract):
    wrong = {}
    for name, values in contract.bad.items():
        for value in values:
            arguments = {**contract.good, name: value}
            found = refused_well(lambda a=arguments: contract.kind(**a), value, echo=True)
            if found:
                wrong[name, repr(value)] = found
    assert not wrong


def test_huge_parameters_are_refused(contract):
    wrong = {}
    for name in contract.huge:
        arguments = {**contract.good, name: 2**60}
        found = refused_well(lambda a=arguments: contract.kind(**a), 2**60, echo=False)
        if found:
            wrong[name] = found
    assert not wrong


def test_numbers_beyond_floats_are_refused(contract):
    """10^400 is a number to Python, and none to numpy."""
    wrong = {}
    numeric = [name for name in contract.good if name not in ("unit", "adjacency")]
    for name in numeric:
        for value in (10**400, -(10**400), Fraction(1, 10**400)):
            arguments = {**contract.good, name: value}
            found = refused_well(lambda a=arguments: contract.kind(**a), value, echo=False)
            if found and found != "accepted":
                wrong[name, value > 1, value < 0] = found[:100]
            elif found == "accepted":
                _ = contract.kind(**arguments).guarantee  # then it has one
    assert not wrong


def test_an_array_for_a_parameter_is_refused_in_one_line(contract):
    wrong = {}
    for name in contract.good:
        value = np.arange(4.0).reshape(2, 2)
        arguments = {**contract.good, name: value}
        found = refused_well(lambda a=arguments: contract.kind(**a), value, echo=False)
        if found:
            wrong[name] = found
    assert not wrong


def test_a_whole_float_is_refused_or_is_the_integer(contract):
    """3.0 categories: the constructor says no, or everything works as with 3."""
    reference = contract.kind(**contract.good)
    for name in contract.whole:
        arguments = {**contract.good, name: float(contract.good[name])}
        try:
            mechanism = contract.kind(**arguments)
        except InvalidParameter:
            continue
        assert mechanism.event == reference.event, name
        found = [
            one.release(contract.raw, tacit.Seeded(5), **contract.release)
            for one in (mechanism, reference)
        ]
        assert np.array_equal(*found), name
        assert found[0].dtype == found[1].dtype, name
        if isinstance(reference, mechanisms.FiniteChannel):
            assert list(mechanism.inputs()) == list(reference.inputs()), name
            assert np.array_equal(mechanism.outputs(), reference.outputs()), name
        if hasattr(reference, "matrix"):
            assert np.array_equal(mechanism.matrix, reference.matrix), name


@pytest.mark.parametrize("convert", [np.float64, Fraction, np.float32, str])
def test_epsilon_may_be_any_kind_of_number_that_is_accepted(contract, convert):
    if "epsilon" not in contract.good:
        return
    try:
        mechanism = contract.kind(**{**contract.good, "epsilon": convert(0.5)})
    except InvalidParameter:
        return
    assert mechanism.guarantee.epsilon == pytest.approx(0.5, rel=1e-8)
    _ = mechanism.release(contract.raw, **contract.release)


def test_a_fraction_in_words_is_refused_or_works(contract):
    if "epsilon" not in contract.good:
        return
    try:
        mechanism = contract.kind(**{**contract.good, "epsilon": "1/2"})
    except InvalidParameter:
        return
    assert mechanism.guarantee.epsilon == pytest.approx(0.5, rel=1e-8)


# --- bad data ------------------------------------------------------------------------------------


def chain(error):
    """The messages that a traceback would show."""
    while error is not None:
        yield str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def leaks(call):
    """None if bad data are refused in one line without a word about them."""
    try:
        call()
    except (InvalidData, InvalidParameter) as error:
        shown = " ".join(chain(error))
        if "\n" in str(error):
            return f"more than one line: {error}"
        if re.search(DIGITS, shown.replace(",", "").replace("_", "")):
            return f"data in the message: {shown}"
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def test_bad_data_are_refused_and_not_echoed(contract):
    mechanism = contract.kind(**contract.good)
    wrong = []
    for raw in contract.bad_data + contract.bad_shape:
        found = leaks(lambda raw=raw: mechanism.release(raw, **contract.release))
        if found:
            wrong.append((repr(raw)[:60], found))
    assert not wrong


def test_far_data_are_held(contract):
    """Beyond 2^53 the answer is that at 2^53: neighbours on both sides of it both have one."""
    mechanism, shape = contract.kind(**contract.good), np.shape(contract.raw)
    for number in contract.far:
        far = [np.full(shape, number, object).tolist()]
        far += [np.full(shape, number, np.uint64)] if 0 <= number < 2**64 else []
        near = np.full(shape, min(max(number, -(2**53)), 2**53))
        for raw in far:
            both = (raw, near)
            pair = [mechanism.release(one, tacit.Seeded(3), **contract.release) for one in both]
            assert np.array_equal(*pair)
            if contract.kind is not mechanisms.SparseVector:  # too far from its threshold to sum
                laws = [mechanism.log_prob(pair[0], one, **contract.release) for one in both]
                assert np.array_equal(*laws)


def test_bad_data_are_refused_by_the_law_too(contract):
    mechanism = contract.kind(**contract.good)
    released = mechanism.release(contract.raw, tacit.Seeded(6), **contract.release)
    wrong = []
    for raw in contract.bad_data:
        found = leaks(lambda raw=raw: mechanism.log_prob(released, raw, **contract.release))
        if found:
            wrong.append((repr(raw)[:60], found))
    assert not wrong


def test_bad_releases_are_refused_by_the_law(contract):
    """What somebody sends is data too: a report that cannot be is refused, or impossible."""
    mechanism = contract.kind(**contract.good)
    wrong = []
    for released in ([math.nan], "x", ["x"], None, [[1], [1, 2]], [], [math.inf], {"a": 1}):
        found = leaks(
            lambda released=released: mechanism.log_prob(released, contract.raw, **contract.release)
        )
        if found:
            wrong.append((repr(released), found))
    assert not wrong


# --- theorems over parameters --------------------------------------------------------------------

epsilons = st.floats(0.01, 20)
sensitivities = st.integers(1, 1000)
many = settings(deadline=None, max_examples=60)
some = settings(deadline=None, max_examples=25)


def rational_exp_floor(x: Fraction) -> Fraction:
    """A rational lower bound of e^x, relative error 2^-150, by series and squaring."""
    halvings = max(0, math.ceil(math.log2(float(x) + 1))) + 2
    small = x / 2**halvings
    total = term = Fraction(1)
    for k in range(1, 60):
        term = term * small / k
        total += term
    scale = 2**400
    total = Fraction(math.floor(total * scale), scale)
    for _ in range(halvings):
        total = Fraction(math.floor(total**2 * scale), scale)
    return total


def test_the_rational_bound_is_below_and_near():
    for text in ("0.01", "0.5", "1", "3.7", "20"):
        with mp.workprec(700):
            exact = mp.exp(mp.mpf(text))
            bound = rational_exp_floor(Fraction(text))
            ratio = mp.mpf(bound.numerator) / bound.denominator / exact
            assert 1 - mp.mpf(2) ** -100 < ratio < 1


@many
@given(epsilon=epsilons, categories=st.integers(2, 60))
def test_randomized_response_in_rationals(epsilon, categories):
    mechanism = mechanisms.RandomizedResponse(categories=categories, epsilon=epsilon)
    event = mechanism.event
    keep, other = Fraction(event.keep, 2**64), Fraction(event.other, 2**64)
    assert keep + (categories - 1) * other == 1
    assert keep > other > 0
    bound = rational_exp_floor(Fraction(repr(epsilon)))
    assert keep / other <= bound * (1 + Fraction(1, 2**100))
    assert keep / other >= bound * (1 - Fraction(1, 10**9))  # and nothing is given away
    table = np.array(
        [
            mechanism.log_prob(np.arange(categories), np.full(categories, x))
            for x in range(min(3, categories))
        ]
    )
    assert np.exp(table).sum(axis=1) == pytest.approx(1, abs=1e-12)
    ratio = float(np.abs(table[0] - table[-1]).max()) if len(table) > 1 else epsilon
    assert ratio == pytest.approx(epsilon, abs=1e-9)


@many
@given(data=st.data(), epsilon=epsilons, categories=st.integers(2, 60))
def test_subset_selection_in_rationals(data, epsilon, categories):
    size = data.draw(st.none() | st.integers(1, categories - 1))
    mechanism = mechanisms.SubsetSelection(categories=categories, epsilon=epsilon, size=size)
    event = mechanism.event
    d, k = event.size, categories
    p = Fraction(event.inclusion, 2**64)
    held = p / math.comb(k - 1, d - 1)
    missed = (1 - p) / math.comb(k - 1, d)
    assert held * math.comb(k - 1, d - 1) + missed * math.comb(k - 1, d) == 1
    bound = rational_exp_floor(Fraction(repr(epsilon)))
    assert 1 <= held / missed <= bound * (1 + Fraction(1, 2**100))
    assert held / missed >= bound * (1 - Fraction(1, 10**8))
    row = np.arange(d)
    stated = mechanism.log_prob(np.array([row, row]), np.array([0, k - 1]))
    assert stated == pytest.approx([math.log(held), math.log(missed)], abs=1e-9)


@many
@given(epsilon=epsilons, sensitivity=sensitivities, shift=st.integers(-1000, 1000))
def test_discrete_laplace_is_calibrated_exactly(epsilon, sensitivity, shift):
    mechanism = mechanisms.DiscreteLaplace(
        epsilon=epsilon, sensitivity=sensitivity, adjacency="replace-one"
    )
    event = mechanism.event
    assert event.l1_sensitivity / event.scale == Fraction(repr(epsilon))
    assert mechanism.guarantee.epsilon == epsilon
    shift = max(-sensitivity, min(sensitivity, shift))
    y = np.arange(-1500, 1501)
    first = mechanism.log_prob(y, np.zeros_like(y))
    second = mechanism.log_prob(y, np.full_like(y, shift))
    slack = SLACK * max(1.0, float(np.abs(first).max()))
    assert float(np.abs(first - second).max()) <= epsilon + slack
    at = mechanism.log_prob(0, 0) - mechanism.log_prob(0, sensitivity)
    assert at == pytest.approx(epsilon, abs=1e-9)
    # The mass of all integers, the tail in closed form.
    rate = float(Fraction(repr(epsilon)) / sensitivity)
    tail = 2 * math.exp(-1501 * rate) / -math.expm1(-rate) * math.tanh(rate / 2)
    assert math.fsum(np.exp(first)) + tail == pytest.approx(1, abs=1e-9)


@many
@given(
    epsilon=epsilons,
    raw=st.lists(st.integers(-50, 50), min_size=1, max_size=6),
    data=st.data(),
)
def test_discrete_laplace_of_vectors(epsilon, raw, data):
    """Any neighbour within the ℓ1 sensitivity, any output."""
    move = data.draw(st.lists(st.integers(-9, 9), min_size=len(raw), max_size=len(raw)))
    released = data.draw(st.lists(st.integers(-99, 99), min_size=len(raw), max_size=len(raw)))
    sensitivity = max(sum(map(abs, move)), 1)
    mechanism = mechanisms.DiscreteLaplace(
        epsilon=epsilon, sensitivity=sensitivity, adjacency="replace-one"
    )
    other = [x + m for x, m in zip(raw, move, strict=True)]
    ratio = mechanism.log_prob(released, raw).sum() - mechanism.log_prob(released, other).sum()
    assert abs(ratio) <= epsilon + 1e-9


@many
@given(
    epsilon=epsilons,
    lower=st.integers(-40, 40),
    width=st.integers(1, 40),
    sensitivity=st.integers(1, 60),
)
def test_geometric_over_its_whole_table(epsilon, lower, width, sensitivity):
    mechanism = mechanisms.Geometric(
        epsilon=epsilon,
        lower=lower,
        upper=lower + width,
        sensitivity=sensitivity,
        adjacency="replace-one",
    )
    table = np.array(
        [
            mechanism.log_prob(np.arange(lower, lower + width + 1), np.full(width + 1, x))
            for x in mechanism.inputs()
        ]
    )
    assert np.exp(table).sum(axis=1) == pytest.approx(1, abs=1e-9)
    worst = 0.0
    slack = SLACK * max(1.0, float(np.abs(table).max()))
    for step in range(1, min(sensitivity, width) + 1):
        ratio = float(np.abs(table[step:] - table[:-step]).max())
        assert ratio <= epsilon + slack
        worst = max(worst, ratio)
    if sensitivity <= width:
        assert worst == pytest.approx(epsilon, abs=1e-9)
    # Outside the range is the end of the range.
    assert mechanism.log_prob(lower, lower - 7) == mechanism.log_prob(lower, lower)


def test_laplace_at_halfway_points():
    """Half-way points of the grid: round-half-even moves 0.5 down to 0 and 1.5 up to 2."""
    for grid in (1.0, None):
        for dimension in (1, 3):
            mechanism = mechanisms.Laplace(
                epsilon=1.0,
                sensitivity=float(dimension),
                dimension=dimension,
                grid=grid,
                adjacency="replace-one",
            )
            step = mechanism.step
            half = np.full(dimension, 0.5 * step)
            odd = (1 / step) // 2 * 2 + 1 if step < 1 else 1.0  # an odd number of steps
            mechanism = mechanisms.Laplace(
                epsilon=1.0,
                sensitivity=odd * step * dimension,
                dimension=dimension,
                grid=step,
                adjacency="replace-one",
            )
            other = half + odd * step
            released = np.zeros(dimension)
            laws = [mechanism.log_prob(released, raw).sum() for raw in (half, other)]
            assert abs(laws[0] - laws[1]) <= 1.0 + 1e-9, (grid, dimension)


@settings(deadline=None, max_examples=150)
@given(
    epsilon=epsilons,
    dimension=st.integers(1, 4),
    quarters=st.integers(1, 400),
    power=st.integers(-12, 3),
    data=st.data(),
)
def test_laplace_holds_for_real_answers(epsilon, dimension, quarters, power, data):
    """Real neighbours at most Δ apart, half-way points of the grid among them.

    Rounding is part of the mechanism: what counts is the law of the release given the reals.
    """
    grid = 2.0**power
    sensitivity = quarters * grid / 4
    mechanism = mechanisms.Laplace(
        epsilon=epsilon,
        sensitivity=sensitivity,
        dimension=dimension,
        grid=grid,
        adjacency="replace-one",
    )
    quarter = lambda least, most: data.draw(st.integers(least, most))  # noqa: E731
    first = [quarter(-999, 999) for _ in range(dimension)]
    left, second = quarters, []
    for index, x in enumerate(first):
        step = left if index == dimension - 1 else quarter(0, left)
        left -= step
        second.append(x + data.draw(st.sampled_from([-1, 1])) * step)
    raw, other = (np.array(x) * grid / 4 for x in (first, second))
    assert np.abs(raw - other).sum() <= sensitivity
    for released in (np.rint(raw / grid) * grid, np.rint(other / grid) * grid):
        ratio = float(
            (mechanism.log_prob(released, raw) - mechanism.log_prob(released, other)).sum()
        )
        assert abs(ratio) <= epsilon + 1e-9, (raw, other)


@many
@given(epsilon=epsilons, sensitivity=st.floats(0.01, 1000), grid=st.none() | st.integers(-6, 3))
def test_laplace_is_tight_at_its_integer_sensitivity(epsilon, sensitivity, grid):
    step = None if grid is None else 2.0**grid
    mechanism = mechanisms.Laplace(
        epsilon=epsilon, sensitivity=sensitivity, grid=step, adjacency="replace-one"
    )
    shift = float(mechanism.event.l1_sensitivity) * mechanism.step
    assert shift <= sensitivity + mechanism.step
    ratio = mechanism.log_prob([0.0], [0.0]) - mechanism.log_prob([0.0], [shift])
    assert ratio == pytest.approx(epsilon, abs=1e-9)


@many
@given(
    epsilon=epsilons,
    radius=st.floats(0.1, 100),
    grid=st.none() | st.just(0.0625),
    data=st.data(),
)
def test_local_laplace_for_any_two_inputs(epsilon, radius, grid, data):
    mechanism = mechanisms.LocalLaplace(epsilon=epsilon, radius=radius, grid=grid)
    size = data.draw(st.integers(1, 4))
    vectors = st.lists(st.floats(-1e6, 1e6), min_size=size, max_size=size)
    raw, other = data.draw(vectors), data.draw(vectors)
    step = mechanism.ball.step
    released = (
        np.array(data.draw(st.lists(st.integers(-99, 99), min_size=size, max_size=size))) * step
    )
    ratio = mechanism.log_prob(released, raw) - mechanism.log_prob(released, other)
    assert abs(ratio) <= epsilon + 1e-9
    vertex = np.eye(size)[0] * radius
    assert float(
        mechanism.log_prob(vertex // step * step, vertex)
        - mechanism.log_prob(vertex // step * step, -vertex)
    ) == pytest.approx(epsilon, abs=1e-9)


@many
@given(
    epsilon=epsilons,
    sensitivity=st.floats(0.01, 100),
    kind=st.sampled_from([mechanisms.Exponential, mechanisms.PermuteAndFlip]),
    data=st.data(),
)
def test_selection_over_random_scores(epsilon, sensitivity, kind, data):
    """Scores that all move by up to Δ, each its own way; gaps from none to far beyond 1/ε."""
    size = data.draw(st.integers(2, 12))
    reach = data.draw(st.sampled_from([1.0, 10.0, 200.0])) * sensitivity
    scores = np.array(data.draw(st.lists(st.floats(0, 1), min_size=size, max_size=size))) * reach
    moves = data.draw(
        st.lists(st.sampled_from([-1.0, -0.5, 0.0, 1.0]), min_size=size, max_size=size)
    )
    other = scores + np.array(moves) * sensitivity
    mechanism = kind(epsilon=epsilon, sensitivity=sensitivity, adjacency="replace-one")
    first, second = (
        mechanism.log_prob(np.arange(size), np.broadcast_to(x, (size, size)))
        for x in (scores, other)
    )
    assert math.fsum(np.exp(first)) == pytest.approx(1, abs=1e-9)
    assert math.fsum(np.exp(second)) == pytest.approx(1, abs=1e-9)
    slack = 1e-12 * max(1.0, float(np.abs([first, second]).max()))
    assert float(np.abs(first - second).max()) <= epsilon * (1 + 1e-9) + slack + 1e-10


@some
@given(
    epsilon=st.floats(0.2, 20),
    sensitivity=st.integers(1, 5),
    positives=st.integers(1, 3),
    monotonic=st.booleans(),
    threshold=st.integers(-5, 5),
    data=st.data(),
)
def test_sparse_vector_over_random_answers(
    epsilon, sensitivity, positives, monotonic, threshold, data
):
    mechanism = mechanisms.SparseVector(
        epsilon=epsilon,
        threshold=threshold,
        sensitivity=sensitivity,
        positives=positives,
        monotonic=monotonic,
        adjacency="replace-one",
    )
    answers = data.draw(st.lists(st.integers(-12, 12), min_size=1, max_size=4))
    least = 0 if monotonic else -sensitivity
    moves = [data.draw(st.integers(least, sensitivity)) for _ in answers]
    other = [a + m for a, m in zip(answers, moves, strict=True)]
    outputs = []
    for code in range(2 ** len(answers)):
        run, above = [], 0
        for index in range(len(answers)):
            run.append(-1 if above == positives else code >> index & 1)
            above += run[-1] == 1
        outputs.append(tuple(run))
    outputs = np.array(sorted(set(outputs)))
    first, second = (
        mechanism.log_prob(outputs, np.broadcast_to(x, outputs.shape)) for x in (answers, other)
    )
    assert math.fsum(np.exp(first)) == pytest.approx(1, abs=1e-9)
    assert math.fsum(np.exp(second)) == pytest.approx(1, abs=1e-9)
    assert float(np.abs(first - second).max()) <= epsilon + 1e-9


@some
@given(
    epsilon=epsilons,
    log_delta=st.floats(-10, -1),
    sensitivity=st.integers(1, 12),
    kind=st.sampled_from(["one", "any", "rounded"]),
)
def test_gaussians_over_parameters(epsilon, log_delta, sensitivity, kind):
    delta = 10**log_delta
    wanted = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity}
    wanted["adjacency"] = "replace-one"
    if kind == "rounded":
        mechanism = mechanisms.Gaussian(**wanted)
    else:
        mechanism = mechanisms.DiscreteGaussian(**wanted, dimension=1 if kind == "one" else None)
    assert mechanism.guarantee.epsilon == epsilon
    assert mechanism.guarantee.delta == delta
    event = mechanism.event
    sigma = math.sqrt(event.variance) if kind != "rounded" else float(event.sigma)
    far = math.ceil(10 * sigma) + sensitivity
    if far < 3e5:
        y = np.arange(-far, far + 1)
        first, second = (mechanism.log_prob(y, np.full_like(y, x)) for x in (0, sensitivity))
        assert math.fsum(np.exp(first)) == pytest.approx(1, abs=1e-9)
        assert hockey_stick(first, second, epsilon) <= delta * (1 + 1e-7) + 1e-15
    tacit.Certificate.issue(event, guarantee=mechanism.guarantee).verify()


@many
@given(
    epsilon=epsilons,
    log_delta=st.floats(-9, -1),
    bound=st.floats(0.3, 50),
    slope=st.floats(-1, 1),
    data=st.data(),
)
def test_smooth_laplace_over_parameters(epsilon, log_delta, bound, slope, data):
    """Any two bounds within e^β, any two values within the smaller of them."""
    mechanism = mechanisms.SmoothLaplace(
        epsilon=epsilon, delta=10**log_delta, adjacency="replace-one"
    )
    other = bound * math.exp(slope * mechanism.beta)
    shift = data.draw(st.integers(0, int(min(bound, other))))
    claim = mechanism.guarantee
    assert claim.epsilon <= epsilon
    far = math.ceil(30 * max(bound, other) / float(mechanism.event.alpha)) + 60
    y = np.arange(-min(far, 400_000), min(far, 400_000) + 1)
    first = mechanism.log_prob(y, np.zeros_like(y), bound=bound)
    second = mechanism.log_prob(y, np.full_like(y, shift), bound=other)
    assert math.fsum(np.exp(first)) == pytest.approx(1, abs=1e-9)
    for one, two in ((first, second), (second, first)):
        assert hockey_stick(one, two, claim.epsilon) <= claim.delta * (1 + 1e-9)


@pytest.mark.slow
def test_draws_follow_the_law_for_longer(case):
    """Half a million draws see an ε that is 4 % off."""
    one_a_call = case.kind in (mechanisms.SmoothLaplace, mechanisms.Laplace)
    count, factor = (DRAWS, 1.1) if one_a_call else (500_000, 1.04)
    honest, mutant = case.drawn(1.0), case.drawn(factor)
    stated = Law(case, honest)
    assert stated.p_value(case.draws(honest, case.raw, count, None)) > SIGNIFICANCE
    assert stated.p_value(case.draws(mutant, case.raw, count, tacit.Seeded(1))) < SIGNIFICANCE


def test_whoever_states_a_sensitivity_states_whose(contract):
    if "adjacency" not in contract.good:
        pytest.skip("it works out its own sensitivity, or is local")
    rest = {name: value for name, value in contract.good.items() if name != "adjacency"}
    with pytest.raises(TypeError, match="adjacency"):
        contract.kind(**rest)
    for adjacency in ("add-remove", "replace-one", "zero-out"):
        assert contract.kind(**rest, adjacency=adjacency).guarantee.adjacency == adjacency
