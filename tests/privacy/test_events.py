"""Events refuse what would void their statement, and survive JSON exactly."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy import events, guarantees, plain
from tacit.privacy.errors import IncompatibleGuarantees, InvalidParameter
from tacit.privacy.guarantees import (
    ZCDP,
    Adjacency,
    ApproxDP,
    ConcentratedDP,
    NotPrivate,
    PureDP,
    RenyiDP,
    Unit,
    Unproven,
)

ALL = 2**64
SCOPE = {"adjacency": "add-remove", "unit": "record"}
OTHER = {"adjacency": "replace-one", "unit": "record"}
EPSILONS = (
    Fraction(1, 1000),
    Fraction(1, 2),
    Fraction(1),
    Fraction(17, 5),
    Fraction(10),
    Fraction(30),
)
moderate = settings(deadline=None, max_examples=60)


def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Rational bounds of e^x: Taylor below, with twice the next term above (x < terms / 2)."""
    terms, total, term = 200, Fraction(0), Fraction(1)
    for k in range(terms):
        total += term
        term *= x / (k + 1)
    return total, total + 2 * term


def below_exp(numerator: int, denominator: int, epsilon: Fraction) -> bool:
    """numerator/denominator ≤ e^ε, by rational bounds that must agree."""
    lower, upper = exp_bounds(epsilon)
    ratio = Fraction(numerator, denominator)
    assert (ratio <= lower) == (ratio <= upper), "the oracle needs more terms"
    return ratio <= lower


def largest_keep(categories: int, epsilon: Fraction) -> tuple[int, int]:
    """The best weights that sum to 2^64: other as small as e^ε allows."""
    lower, _ = exp_bounds(epsilon)
    other = math.ceil(ALL / (lower + categories - 1))
    while not below_exp(ALL - (categories - 1) * other, other, epsilon):
        other += 1
    while below_exp(ALL - (categories - 1) * (other - 1), other - 1, epsilon):
        other -= 1
    return ALL - (categories - 1) * other, other


def largest_inclusion(categories: int, size: int, epsilon: Fraction) -> int:
    lower, _ = exp_bounds(epsilon)
    rest = categories - size
    inclusion = math.floor(ALL * lower * size / (rest + lower * size))

    def allowed(weight: int) -> bool:
        return below_exp(weight * rest, (ALL - weight) * size, epsilon)

    while not allowed(inclusion):
        inclusion -= 1
    while allowed(inclusion + 1):
        inclusion += 1
    return inclusion


def respond(categories=2, epsilon=Fraction(1), **scope):
    keep, other = largest_keep(categories, epsilon)
    return events.RandomizedResponse(categories, epsilon, keep, other, **(scope or SCOPE))


LAPLACE = events.Laplace(3, Fraction(7, 3), **SCOPE)
GAUSSIAN = events.Gaussian(1, Fraction(11, 10), **SCOPE)
EXAMPLES = (
    LAPLACE,
    GAUSSIAN,
    events.DiscreteGaussian(4, Fraction(25, 2), 3, **SCOPE),
    respond(5),
    events.SubsetSelection(6, 2, 1, largest_inclusion(6, 2, Fraction(1)), **SCOPE),
    events.Exponential(1, Fraction(7, 3), adjacency="any-two-inputs", unit="label"),
    events.SparseVector(1, 2, 5, 0, 3, True, **OTHER),
    events.SmoothLaplace(1, Fraction(1, 50), 1e-6, adjacency="replace-one", unit="client"),
    events.Declared(PureDP(1.0, **SCOPE)),
    events.PoissonSampled(0.01, GAUSSIAN),
    events.Repeated(events.PoissonSampled(1, GAUSSIAN), 10**6),
    events.Composed((LAPLACE, GAUSSIAN, events.Repeated(LAPLACE, 3))),
    events.Parallel((LAPLACE, events.Composed((GAUSSIAN,)))),
    events.CertifiedTable(Fraction(1, 3), 1e-6, 5, 7, "0f" * 32, **OTHER),
    events.ObjectivePerturbation("laplace", 1, 5, Fraction(1, 4), 2, 3, 90, 2, **SCOPE),
    events.MemoizedResponse(
        5, 3, 3, 1, respond(5).keep, Fraction(1, 2), respond(5, Fraction(1, 2)).keep, **SCOPE
    ),
    events.SignVector(5, 4, 3, 1, 2**63, **SCOPE),
    events.ProjectiveGeometryResponse(10, 3, 3, 1, largest_inclusion(13, 4, Fraction(1)), **SCOPE),
    events.SummedDiscreteGaussian(4, Fraction(25, 2), 3, 4, 5, **SCOPE),
)
by_kind = pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
leaf_kinds = [event for event in EXAMPLES if isinstance(event, events.Leaf)]
GUARANTEES = (
    PureDP(0.1, **SCOPE),
    ApproxDP(1.0, 1e-5, **SCOPE),
    ConcentratedDP(0.5, 1.0, **SCOPE),
    ZCDP(-0.01, 0.5, **SCOPE),
    RenyiDP((1.5, 2.0, 64.0), (0.1, 0.2, math.inf), adjacency="any-two-inputs", unit="person"),
    NotPrivate(**SCOPE),
    Unproven("the sensitivity is not bounded: ‖g‖ ≤ ?", **SCOPE),
)


def through_json(value):
    return json.loads(json.dumps(plain.to_plain(value)))


# --- constructors --------------------------------------------------------------------------


def test_examples_cover_every_kind(drawn_kinds):
    covered = {type(event) for event in EXAMPLES}
    assert covered | drawn_kinds == set(events.KINDS.values())
    assert {type(one) for one in GUARANTEES} == set(guarantees.KINDS.values())


@by_kind
def test_events_are_frozen_and_hashable(event):
    name = dataclasses.fields(event)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, name, None)
    assert hash(event) == hash(dataclasses.replace(event))


@pytest.mark.parametrize("event", leaf_kinds, ids=lambda event: type(event).__name__)
def test_leaves_refuse_unknown_neighbours(event):
    kind = type(event).__name__
    with pytest.raises(InvalidParameter, match=f"{kind}: adjacency must be .* got 'add'"):
        dataclasses.replace(event, adjacency="add")
    with pytest.raises(InvalidParameter, match=f"{kind}: unit must be .* got 'household'"):
        dataclasses.replace(event, unit="household")
    stored = dataclasses.replace(event, adjacency="add-remove", unit="person")
    assert stored.adjacency is Adjacency.ADD_REMOVE
    assert stored.unit is Unit.PERSON


POSITIVE = [
    (LAPLACE, "l1_sensitivity"),
    (LAPLACE, "scale"),
    (GAUSSIAN, "l2_sensitivity"),
    (GAUSSIAN, "sigma"),
    (EXAMPLES[2], "squared_sensitivity"),
    (EXAMPLES[2], "variance"),
    (EXAMPLES[3], "epsilon"),
    (EXAMPLES[4], "epsilon"),
    (EXAMPLES[5], "sensitivity"),
    (EXAMPLES[5], "scale"),
    (EXAMPLES[6], "sensitivity"),
    (EXAMPLES[6], "threshold_scale"),
    (EXAMPLES[6], "comparison_scale"),
    (EXAMPLES[7], "alpha"),
    (EXAMPLES[7], "beta"),
    (EXAMPLES[13], "epsilon"),
    (EXAMPLES[18], "squared_sensitivity"),
    (EXAMPLES[18], "variance"),
]


@pytest.mark.parametrize(
    ("event", "name"), POSITIVE, ids=[f"{type(e).__name__}.{n}" for e, n in POSITIVE]
)
def test_numbers_of_a_proof_must_be_positive_and_finite(event, name):
    for value in (0, -1, 0.0, -1e-300, math.nan, math.inf, -math.inf, "nan", "1/0", "", None, []):
        with pytest.raises(InvalidParameter, match=f"{name} must be") as caught:
            dataclasses.replace(event, **{name: value})
        assert f"got {value!r}" in str(caught.value)


def test_floats_are_read_as_the_decimal_that_denotes_them():
    event = events.Laplace(0.1, "1/3", **SCOPE)
    assert (event.l1_sensitivity, event.scale) == (Fraction(1, 10), Fraction(1, 3))
    assert events.Gaussian(2, 3, **SCOPE).noise_multiplier == 1.5
    assert events.DiscreteGaussian(4, 8, 1, **SCOPE).rho == 0.25


WHOLE = [
    (EXAMPLES[2], "dimension", 0),
    (EXAMPLES[3], "categories", 2),
    (EXAMPLES[4], "categories", 2),
    (EXAMPLES[4], "size", 1),
    (EXAMPLES[6], "positives", 1),
    (EXAMPLES[10], "count", 1),
    (EXAMPLES[13], "inputs", 2),
    (EXAMPLES[13], "outputs", 1),
    (EXAMPLES[18], "honest", 1),
    (EXAMPLES[18], "survivors", 3),
    (EXAMPLES[18], "dimension", 1),
]


@pytest.mark.parametrize(
    ("event", "name", "least"), WHOLE, ids=[f"{type(e).__name__}.{n}" for e, n, _ in WHOLE]
)
def test_counts_must_be_whole(event, name, least):
    for value in (least - 1, -1, 1.5, math.nan, math.inf, True, "3", None, 2**53 + 1):
        with pytest.raises(InvalidParameter) as caught:
            dataclasses.replace(event, **{name: value})
        assert f"{name} must be" in str(caught.value)
        assert f"got {value!r}" in str(caught.value)


@pytest.mark.parametrize("value", [3.0, np.int64(3)], ids=["float", "numpy"])
def test_counts_are_kept_as_integers(value):
    """What a constructor accepts must come back from JSON."""
    for event in (events.Repeated(LAPLACE, value), events.DiscreteGaussian(4, 4, value, **SCOPE)):
        assert plain.event_from_plain(through_json(event)) == event


# --- randomized response -------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("categories", [2, 3, 10, 1000])
def test_response_takes_the_largest_weight_and_not_one_unit_more(categories, epsilon):
    keep, other = largest_keep(categories, epsilon)
    events.RandomizedResponse(categories, epsilon, keep, other, **SCOPE)
    with pytest.raises(InvalidParameter, match=r"keep / other must be at most e\^epsilon"):
        events.RandomizedResponse(categories, epsilon, keep + categories - 1, other - 1, **SCOPE)


def test_response_weights_must_sum_to_one():
    keep, other = largest_keep(4, Fraction(1))
    for weights in ((keep - 1, other), (keep, other - 1), (keep + 1, other), (0, 0)):
        with pytest.raises(InvalidParameter, match=r"RandomizedResponse: .* must be"):
            events.RandomizedResponse(4, 1, *weights, **SCOPE)


@pytest.mark.parametrize(
    ("categories", "keep"),
    [(2, 0), (2, 1), (2, -5), (2, ALL), (3, 0), (3, ALL + 2), (2, ALL // 4), (5, ALL % 4)],
)
def test_response_weights_that_tell_the_input_are_refused(categories, keep):
    """Lying too often gives the input away as much as lying too seldom: both odds count."""
    other, rest = divmod(ALL - keep, categories - 1)
    assert rest == 0
    with pytest.raises(InvalidParameter):
        events.RandomizedResponse(categories, 1, keep, other, **SCOPE)


def test_response_odds_are_bounded_both_ways():
    """The smallest weight of the truth at which every odds ratio is still within e^ε."""
    other, keep = largest_keep(2, Fraction(1))
    assert keep < other
    with pytest.raises(InvalidParameter):
        events.RandomizedResponse(2, 1, keep - 1, other + 1, **SCOPE)


@pytest.mark.parametrize(
    ("categories", "keep", "other"),
    [
        (2, float(ALL // 2), float(ALL // 2)),
        (4.0, ALL // 4 + 3, ALL // 4),
        (2, "1", "2"),
        (2, None, 1),
    ],
)
def test_response_weights_must_be_integers(categories, keep, other):
    """In floating point a sum can round to 2^64: refuse, or keep the integers that were meant."""
    try:
        event = events.RandomizedResponse(categories, 1, keep, other, **SCOPE)
    except InvalidParameter:
        return
    assert all(type(n) is int for n in (event.categories, event.keep, event.other))
    assert event.keep + (event.categories - 1) * event.other == ALL


# --- subset selection ----------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize(("categories", "size"), [(2, 1), (5, 2), (100, 30)])
def test_subset_takes_the_largest_inclusion_and_not_one_unit_more(categories, size, epsilon):
    inclusion = largest_inclusion(categories, size, epsilon)
    events.SubsetSelection(categories, size, epsilon, inclusion, **SCOPE)
    with pytest.raises(InvalidParameter, match=r"SubsetSelection: inclusion must be"):
        events.SubsetSelection(categories, size, epsilon, inclusion + 1, **SCOPE)


@pytest.mark.parametrize("inclusion", [-1, 0, 1, ALL // 100, ALL, ALL + 1])
def test_subset_inclusions_that_tell_the_input_are_refused(inclusion):
    """A set that nearly always leaves the truth out tells it too."""
    with pytest.raises(InvalidParameter, match=f"got {inclusion}"):
        events.SubsetSelection(4, 2, 1, inclusion, **SCOPE)


@pytest.mark.parametrize("inclusion", [0.7, ALL / 2 + 0.5, "1", None, True])
def test_subset_inclusions_must_be_integers(inclusion):
    try:
        event = events.SubsetSelection(4, 2, 1, inclusion, **SCOPE)
    except InvalidParameter:
        return
    assert type(event.inclusion) is int
    assert event.inclusion == inclusion


def test_subset_size_leaves_something_out():
    for size in (0, 4, 5):
        with pytest.raises(InvalidParameter, match="size must be an integer from 1 to 3"):
            events.SubsetSelection(4, size, 1, ALL // 2, **SCOPE)


@pytest.mark.parametrize("epsilon", EPSILONS[:4], ids=str)
@pytest.mark.parametrize(("categories", "size"), [(3, 1), (5, 2), (6, 4)])
def test_subset_statement_is_that_of_the_whole_channel(categories, size, epsilon):
    """Enumerate every subset: the worst odds of the drawn law are within e^ε."""
    weight = Fraction(largest_inclusion(categories, size, epsilon), ALL)
    held, missed = math.comb(categories - 1, size - 1), math.comb(categories - 1, size)
    worst = Fraction(0)
    for subset in itertools.combinations(range(categories), size):
        law = [weight / held if x in subset else (1 - weight) / missed for x in range(categories)]
        worst = max(worst, max(law) / min(law))
    lower, upper = exp_bounds(epsilon)
    assert lower * (1 - Fraction(1, 2**50)) <= worst <= upper


# --- certified tables ----------------------------------------------------------------------


@pytest.mark.parametrize("sha256", ["", "0" * 63, "0" * 65, "F" * 64, "0" * 63 + "g", None, 7])
def test_a_table_is_named_by_its_hash(sha256):
    with pytest.raises(InvalidParameter, match="CertifiedTable: sha256 must be 64 hexadecimal"):
        events.CertifiedTable(1, 0.0, 2, 2, sha256, **SCOPE)


@pytest.mark.parametrize("delta", [-0.1, 1, 1.5, math.nan, "x", None])
def test_a_table_has_a_delta_below_one(delta):
    with pytest.raises(InvalidParameter, match="CertifiedTable: delta must be"):
        events.CertifiedTable(1, delta, 2, 2, "0" * 64, **SCOPE)


# --- the other leaves ----------------------------------------------------------------------


def test_sparse_vector_shares():
    for value in (-1, math.nan, None):
        with pytest.raises(InvalidParameter, match="answer_scale must be"):
            events.SparseVector(1, 1, 1, value, 1, False, **SCOPE)
    assert events.SparseVector(3, 6, 9, 0.1, 2, False, **SCOPE).shares == (
        Fraction(1, 2),
        Fraction(4, 3),
        60,
    )
    assert events.SparseVector(3, 6, 9, 0, 2, True, **SCOPE).shares[1:] == (Fraction(2, 3), 0)


def test_sparse_vector_monotonic_is_a_truth_value():
    with pytest.raises(InvalidParameter):
        events.SparseVector(1, 1, 1, 0, 1, "no", **SCOPE)


@pytest.mark.parametrize("delta", [0, 1, -1e-9, math.nan, math.inf, None])
def test_smooth_laplace_needs_a_delta(delta):
    with pytest.raises(InvalidParameter, match="SmoothLaplace: delta must be"):
        events.SmoothLaplace(1, 1, delta, **SCOPE)


def test_smooth_laplace_keeps_its_delta_as_a_number():
    with_fraction = events.SmoothLaplace(1, 1, Fraction(1, 10), **SCOPE)
    assert plain.event_from_plain(through_json(with_fraction)) == with_fraction


# --- composite events ----------------------------------------------------------------------


@pytest.mark.parametrize("probability", [0, 0.0, -0.1, 1.0000001, math.nan, math.inf, "x", None])
def test_sampling_probability(probability):
    with pytest.raises(InvalidParameter, match="PoissonSampled: probability must be"):
        events.PoissonSampled(probability, GAUSSIAN)


def test_sampling_probability_is_kept_as_a_float():
    sampled = events.PoissonSampled(Fraction(1, 8), GAUSSIAN)
    assert plain.event_from_plain(through_json(sampled)) == sampled


@pytest.mark.parametrize("adjacency", ["replace-one", "any-two-inputs"])
def test_sampling_is_for_add_remove_neighbours_only(adjacency):
    leaf = dataclasses.replace(LAPLACE, adjacency=adjacency)
    declared = events.Declared(PureDP(1.0, adjacency=adjacency, unit="record"))
    for inner in (leaf, declared, events.Repeated(leaf, 2), events.Composed((leaf, leaf))):
        with pytest.raises(InvalidParameter, match=f"zero-out, got '{adjacency}'"):
            events.PoissonSampled(0.1, inner)


@pytest.mark.parametrize("kind", [events.Composed, events.Parallel])
def test_parts_share_their_neighbours(kind):
    person = dataclasses.replace(LAPLACE, unit="person")
    replaced = dataclasses.replace(LAPLACE, adjacency="replace-one")
    for odd in (person, replaced, events.Declared(PureDP(1.0, **OTHER))):
        with pytest.raises(IncompatibleGuarantees, match=kind.__name__):
            kind((LAPLACE, odd))
        with pytest.raises(IncompatibleGuarantees, match=kind.__name__):
            kind((LAPLACE, events.Repeated(odd, 2)))
    with pytest.raises(InvalidParameter, match="at least one"):
        kind(())


@pytest.mark.parametrize("kind", [events.Composed, events.Parallel])
def test_a_list_of_parts_is_refused_or_kept_as_a_tuple(kind):
    try:
        event = kind([LAPLACE, GAUSSIAN])
    except InvalidParameter:
        return
    assert event == kind((LAPLACE, GAUSSIAN))
    assert plain.event_from_plain(through_json(event)) == event


@pytest.mark.parametrize(
    "build",
    [
        lambda: events.Composed(("laplace",)),
        lambda: events.Parallel((PureDP(1.0, **SCOPE),)),
        lambda: events.Repeated("laplace", 3),
        lambda: events.PoissonSampled(0.1, None),
        lambda: events.Declared("ε = 1"),
        lambda: events.Declared(LAPLACE),
    ],
)
def test_parts_must_be_events_and_declarations_guarantees(build):
    with pytest.raises(InvalidParameter):
        build()


def test_leaves_come_in_order_and_carry_the_scope():
    tree = events.Composed(
        (events.Repeated(LAPLACE, 2), events.Parallel((GAUSSIAN, events.Repeated(LAPLACE, 3))))
    )
    assert events.leaves(tree) == [LAPLACE, GAUSSIAN, LAPLACE]
    assert events.scope_of(tree) == {
        "adjacency": Adjacency.ADD_REMOVE,
        "unit": Unit.RECORD,
    }
    declared = events.Declared(PureDP(1.0, adjacency="any-two-inputs", unit="label"))
    assert events.scope_of(declared)["unit"] is Unit.LABEL


@moderate
@given(st.integers(1, 2**70), st.integers(1, 2**70), st.fractions(0, 40, max_denominator=997))
def test_ratio_within_agrees_with_rational_bounds(numerator, denominator, epsilon):
    if epsilon == 0:
        expected = numerator <= denominator
    else:
        expected = below_exp(numerator, denominator, epsilon)
    assert events.ratio_within(numerator, denominator, epsilon) == expected


# --- plain data ----------------------------------------------------------------------------


@by_kind
def test_events_survive_json(event):
    again = plain.event_from_plain(through_json(event))
    assert again == event
    assert type(again) is type(event)
    assert plain.to_plain(again) == plain.to_plain(event)


@pytest.mark.parametrize("one", GUARANTEES, ids=lambda one: type(one).__name__)
def test_guarantees_survive_json_alone_and_declared(one):
    assert plain.guarantee_from_plain(through_json(one)) == one
    declared = events.Declared(one)
    assert plain.event_from_plain(through_json(declared)) == declared


def test_weights_beyond_what_json_readers_keep_are_strings():
    data = plain.to_plain(respond())
    assert isinstance(data["keep"], str)
    assert json.loads(json.dumps(data), parse_int=float) == data | {"categories": 2.0}


@moderate
@given(
    st.floats(1e-300, 1e300),
    st.fractions(Fraction(1, 10**6), 10**6),
    st.integers(1, 2**53),
    st.floats(1e-12, 1),
)
def test_trees_survive_json_exactly(sensitivity, scale, count, probability):
    leaf = events.Laplace(sensitivity, scale, **SCOPE)
    tree = events.Composed((events.PoissonSampled(probability, events.Repeated(leaf, count)), leaf))
    assert plain.event_from_plain(through_json(tree)) == tree


@by_kind
def test_missing_surplus_and_unknown_are_refused(event):
    data = through_json(event)
    for name in set(data) - {"kind"}:
        short = {key: value for key, value in data.items() if key != name}
        with pytest.raises(InvalidParameter, match="fields must be exactly"):
            plain.event_from_plain(short)
    with pytest.raises(InvalidParameter, match="fields must be exactly"):
        plain.event_from_plain(data | {"comment": "harmless"})
    for kind in ("Nothing", "Leaf", "Event", "PureDP", None, 3, ""):
        with pytest.raises(InvalidParameter, match="kind must be one of"):
            plain.event_from_plain(data | {"kind": kind})


@pytest.mark.parametrize("one", GUARANTEES, ids=lambda one: type(one).__name__)
def test_missing_and_surplus_are_refused_in_guarantees(one):
    data = through_json(one)
    with pytest.raises(InvalidParameter, match="fields must be exactly"):
        plain.guarantee_from_plain(data | {"delta2": 0.1})
    for name in set(data) - {"kind"}:
        with pytest.raises(InvalidParameter, match="fields must be exactly"):
            plain.guarantee_from_plain({k: v for k, v in data.items() if k != name})
    with pytest.raises(InvalidParameter, match="kind must be one of"):
        plain.guarantee_from_plain(data | {"kind": "Laplace"})


@pytest.mark.parametrize("data", [None, [], "Laplace", 3, True, {}, [{"kind": "Laplace"}]])
def test_what_is_no_record_is_refused(data):
    for read in (plain.event_from_plain, plain.guarantee_from_plain):
        with pytest.raises(InvalidParameter, match="kind must be one of"):
            read(data)


@pytest.mark.parametrize("kind", [["Laplace"], {"Laplace": 1}])
def test_a_kind_that_is_no_word_is_refused(kind):
    with pytest.raises(InvalidParameter, match="kind must be one of"):
        plain.event_from_plain({"kind": kind})


WRONG = [None, True, [], {}, "x", "", [1], 1.5, [None], {"kind": "Laplace"}]


@by_kind
def test_wrong_types_are_refused(event):
    data = through_json(event)
    for name, right in data.items():
        if name == "kind":
            continue
        for wrong in WRONG:
            if isinstance(wrong, type(right)) and not isinstance(right, str | list | dict):
                continue
            if name == "probability" and wrong is True:
                continue
            with pytest.raises((InvalidParameter, IncompatibleGuarantees)):
                plain.event_from_plain(data | {name: wrong})


@pytest.mark.parametrize("one", GUARANTEES[:5], ids=lambda one: type(one).__name__)
def test_wrong_types_are_refused_in_guarantees(one):
    data = through_json(one)
    for name in set(data) - {"kind"}:
        for wrong in (None, True, {}, "x", "1.0", [None], ["2.0"], math.nan):
            with pytest.raises(InvalidParameter):
                plain.guarantee_from_plain(data | {name: wrong})


@pytest.mark.parametrize(
    "count", ["--5", "-", "²", "٣²", "9" * 5000, "1e3", "1.0", " 3"], ids=lambda text: text[:6]
)
def test_integers_in_words_must_be_integers(count):
    data = through_json(events.Repeated(LAPLACE, 3))
    with pytest.raises(InvalidParameter):
        plain.event_from_plain(data | {"count": count})


@pytest.mark.parametrize("scale", ["1/0", "nan", "inf", "-1/3", "0", "1/3/4", "--1", "0x10"])
def test_fractions_in_words_must_be_positive_fractions(scale):
    with pytest.raises(InvalidParameter, match="scale must be"):
        plain.event_from_plain(through_json(LAPLACE) | {"scale": scale})


def test_numbers_too_large_for_a_float_are_refused():
    data = json.loads(json.dumps(plain.to_plain(PureDP(1.0, **SCOPE))))
    with pytest.raises(InvalidParameter):
        plain.guarantee_from_plain(data | {"epsilon": 10**400})
    sampled = through_json(events.PoissonSampled(0.1, GAUSSIAN))
    with pytest.raises(InvalidParameter):
        plain.event_from_plain(sampled | {"probability": 10**400})


def test_a_forged_record_is_refused_by_the_constructor():
    """Reading builds the event anew, so a weight raised by hand does not pass."""
    data = through_json(respond())
    forged = data | {"keep": str(int(data["keep"]) + 1), "other": str(int(data["other"]) - 1)}
    with pytest.raises(InvalidParameter, match="keep / other"):
        plain.event_from_plain(forged)


def _leaf(**scope):
    return events.Laplace(1, 2, **scope)


@pytest.mark.parametrize("kind", ["add-remove", "replace-one", "zero-out"])
def test_a_blank_unit_costs_an_event_nothing(kind):
    scope = {"adjacency": kind, "unit": "record"}
    declared = events.Declared(PureDP(1.0, **scope))
    one = events.Composed((events.Repeated(_leaf(**scope), 3), events.Parallel((declared,))))
    restated = events.towards(one, "zero-out")
    assert restated == events.towards(restated, Adjacency.ZERO_OUT)
    for before, after in zip(events.leaves(one), events.leaves(restated), strict=True):
        if isinstance(before, events.Declared):
            assert after.guarantee == before.guarantee.towards("zero-out")
        else:
            assert after == dataclasses.replace(before, adjacency="zero-out")
    sampled = events.PoissonSampled(0.5, _leaf(**SCOPE))
    assert events.scope_of(events.towards(sampled, "zero-out"))["adjacency"] == "zero-out"


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("add-remove", "replace-one"),
        ("zero-out", "replace-one"),
        ("zero-out", "add-remove"),
        ("replace-one", "add-remove"),
        ("any-two-inputs", "zero-out"),
    ],
)
def test_an_event_is_not_restated_for_neighbours_that_have_a_price(kind, wanted):
    leaf = _leaf(adjacency=kind, unit="record")
    for event in (leaf, events.Declared(PureDP(1.0, adjacency=kind, unit="record"))):
        with pytest.raises(IncompatibleGuarantees, match="towards: adjacency must"):
            events.towards(event, wanted)
