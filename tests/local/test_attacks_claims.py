"""Attacks: an answer that changes another, a person drawn twice, and claims that are too small."""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, permutations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import tacit
from tacit.data import labels
from tacit.data.outcomes import Numeric
from tacit.data.schema import Continuous, TableSchema
from tacit.local import distributed
from tacit.local.persons import PerPerson, chosen
from tacit.local.reports import Reports, ReportsWriter
from tacit.local.surveys.questions import Date, Number, OneOf, SeveralOf, YesNo
from tacit.local.surveys.survey import Survey
from tacit.privacy import errors
from tacit.privacy.accounting.readers import Readers, of_event, pairs, weakest
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import ApproxDP, PureDP

SCHEMA = TableSchema((Continuous("age", 0, 100),))


@pytest.fixture(scope="module", name="mechanism")
def _mechanism():
    made = tacit.Codebook(epsilon=1, classes=["no", "yes"], codewords=4, unit="person")
    return made.fit({"age": np.linspace(0, 100, 200)}, schema=SCHEMA, inhouse_public=True)


# --- one answer must not change how another is read -------------------------------------------

DAY = Date(first="2019-01-01", last="2021-01-01")
MIXED = [
    (DAY, ["2020-01-01", datetime.date(2020, 1, 2), np.datetime64("2020-01-03T12:00")]),
    (DAY, [pd.Timestamp("2020-01-04"), " 2020-01-05", "2020-01-06 23:59"]),
    (Number(lower=-5, upper=5), [1, 0.1, 10**400, np.float32(0.1), -(2**70), np.uint64(2**64 - 1)]),
    (YesNo(), ["yes", True, 1.0, 0]),
    (OneOf(options=("a", "b")), ["b", "a"]),
    (SeveralOf(options=("a", "b")), ["a;b", ["b"], "", {"a"}]),
    (Numeric(0, 10), [1, np.uint64(2**64 - 1), 0.1, -(10**400)]),
]


@pytest.mark.parametrize(("question", "answers"), MIXED)
def test_an_answer_is_read_by_itself(question, answers):
    """Dates were converted as a list: one text made days since 1970 of all others into years."""
    read = getattr(question, "encode", None) or question.positions
    together = read("test", answers)
    assert np.array_equal(together, np.concatenate([read("test", [one]) for one in answers]))


@pytest.mark.parametrize("wrong", [18_000, 1e300, "nat", "today", "now", pd.NaT, None, "2020"])
def test_what_is_not_a_date_is_refused_whatever_the_others_are(wrong):
    for others in ([], ["2020-01-01"], [datetime.date(2020, 1, 1)]):
        with pytest.raises(errors.InvalidData, match="dates like"):
            DAY.encode("test", [*others, wrong])


def test_dates_far_beyond_the_bounds_count_as_the_bound():
    far = np.array(["-20000-01-01", "20000-01-01"], "datetime64[D]")
    assert DAY.encode("test", far).tolist() == [0, 2**20]


def test_labels_beyond_two_to_the_53_are_refused():
    """A float among them made numpy round all others: 2^60 + 1 was read as 2^60."""
    with pytest.raises(errors.InvalidParameter, match=r"within 2\^53"):
        labels.declare("test", [2**60, 2**60 + 1])


@pytest.mark.parametrize("bounds", [(0, 1e20), (-1e300, 1e300), (1, 1 + 2**-50)])
def test_numbers_have_the_bounds_that_outcomes_have(bounds):
    for kind in (lambda low, high: Number(lower=low, upper=high), Numeric):
        with pytest.raises(errors.InvalidParameter):
            kind(*bounds)


@pytest.mark.parametrize("options", [("a", "b;c"), ("a", " b")])
def test_every_option_can_be_chosen_in_a_file(options):
    """Whoever meant "b;c" was refused, and nobody else was."""
    with pytest.raises(errors.InvalidParameter, match="semicolons"):
        SeveralOf(options=options)


@pytest.mark.parametrize("wrong", [5, [["a"]]])
def test_answers_that_are_no_list_are_refused_in_our_words(wrong):
    with pytest.raises(errors.InvalidData, match="declared options"):
        SeveralOf(options=("a", "b")).encode("test", ["a", wrong])


def test_the_first_rows_do_not_decide_how_outcomes_are_read(tmp_path):
    """The type was guessed: whether "2_0" was an outcome depended on what others had written."""
    made = tacit.Codebook(epsilon=1, outcome=Numeric(0, 80), codewords=4)
    made = made.fit({"age": np.linspace(0, 100, 200)}, schema=SCHEMA, inhouse_public=True)
    for first in ("1_0", "10"):
        file = tmp_path / "rows.csv"
        file.write_text(f"age,hours\n1,{first}\n2,2_0\n")
        assert sum(len(one) for one in distributed.release("local", made, [file], "hours")) == 2


# --- a person must not be drawn twice ---------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        pd.Series(["Ada", "Ada", pd.NA], dtype="string"),
        pd.array([1, 1, None], dtype="Int64"),
        ["Ada", "Ada", pd.NaT],
    ],
)
def test_a_missing_name_of_pandas_is_no_name(names):
    """It raised a TypeError: that somebody had no name was seen before anything was released."""
    kept = chosen(names)
    assert kept.sum() == 1
    assert not kept[2]


def _written(path, limit, parts):
    first = parts[0]
    with ReportsWriter(path, first.mechanism, first.channel, per_person=limit) as writer:
        for part in parts:
            writer.add(part)


def test_a_file_of_two_draws_does_not_certify_names(mechanism, tmp_path):
    """Ada was in both: the file had two reports of hers, and certified one at ε = 1."""
    one, two = (mechanism.release({"age": [1.0]}, ["no"], persons=["Ada"]) for _ in range(2))
    limit = PerPerson(1, enforced=True)
    for given, own in ((limit, [one]), (one.per_person, [one, two])):
        with pytest.raises(errors.InvalidData, match="drawn once for the whole file"):
            _written(tmp_path / "r.parquet", given, own)
    assert not Reports.concatenate([one, two]).per_person.enforced
    assert len(Reports.read(one.write(tmp_path / "one.parquet"))) == 1


BIG = 2**53 + 1
FILES = {
    "a file with a missing name has floats": ([[BIG], [float(BIG), None]], 1),
    "whole numbers of two types": ([[7], np.array([7], np.int16)], 1),
    "a file without names": ([["Ada"], pa.nulls(1)], 1),
    "texts that repeat": ([["Ada"], pa.array(["Ada", None]).dictionary_encode()], 1),
}


def _draw(folder, columns):
    for number, names in enumerate(columns):
        column = names if isinstance(names, pa.Array) else pa.array(names)
        ages = np.zeros(len(column))
        table = pa.table({"who": column, "age": ages})
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet")
    files = distributed.parts(folder)
    return distributed.Persons.drawn(files, SCHEMA, "who", PerPerson(1, enforced=True))


@pytest.mark.parametrize("case", FILES)
def test_a_person_is_the_same_in_all_files(case, tmp_path):
    columns, people = FILES[case]
    assert _draw(tmp_path, columns).count == people


@pytest.mark.parametrize(
    "columns",
    [
        [[1], ["1"]],
        [[1.0], ["1"]],
        [[b"1"], [b"1"]],
        [np.array([1], np.float32), [1]],
        [pa.array([1]).cast(pa.decimal128(20)), [1]],
        [pa.array([None, None], pa.decimal128(5)), ["Ada"]],
    ],
)
def test_types_of_names_are_refused_by_their_declaration(columns, tmp_path):
    """Ada was 1 in one file and "1" in the next. A file's schema decides, and no name."""
    with pytest.raises(errors.InvalidParameter, match="--person"):
        _draw(tmp_path, columns)


# --- what is stated towards readers -----------------------------------------------------------


def test_a_certificate_without_reports_states_nothing_towards_readers():
    """A central event verified with a shuffled guarantee: ε = 2 was said to be 0.13."""
    mechanism = tacit.Laplace(sensitivity=1, epsilon=2.0, adjacency="add-remove")
    less = of_event(tacit.RandomizedResponse(categories=2, epsilon=2.0).event, 13_500, 1e-6)
    told = replace(Certificate.issue(mechanism.event), readers=Readers(less, 13_500))
    with pytest.raises(errors.CertificateError, match="not those of reports"):
        told.verify()


def survey(**settings):
    asked = {"smoker": YesNo(), "region": OneOf(options=("a", "b", "c"))}
    sheets = [["smoker"], ["smoker", "region"]]
    return Survey(asked, epsilon=2, sheets=sheets, **settings)


@pytest.mark.parametrize("divided", [False, True])
def test_sheets_of_different_sizes_state_what_holds_for_the_fewest(divided):
    """Each sheet was judged by its own people, but said to hold for those of the smallest."""
    made = survey(divided=divided)
    rows = {"smoker": [True] * 3000, "region": ["b"] * 3000}
    reports = made.release(rows, assigned=np.r_[np.zeros(2900, int), np.ones(100, int)])
    readers = reports.readers(fake=50)
    kinds = [event for event, _ in reports.channel.kinds(reports.columns)]
    assert readers.guarantee.epsilon == max(of_event(e, 50, 1e-6).epsilon for e in kinds)
    reports.certify(readers=readers).verify()
    smaller = replace(readers.guarantee, epsilon=readers.guarantee.epsilon * 0.99)
    with pytest.raises(errors.CertificateError):
        reports.certify(readers=replace(readers, guarantee=smaller)).verify()


def test_no_pure_guarantee_follows_from_a_weaker_kind():
    """1-DP of a kind that hides nobody was stated for another kind whose reports are 2-DP."""
    first, second = (tacit.RandomizedResponse(categories=2, epsilon=e).event for e in (0.1, 4))
    assert isinstance(of_event(first, 60, 1e-300), PureDP)
    stated = weakest([first, second], 10**6, 1e-6)
    assert isinstance(stated, ApproxDP)
    alone = weakest([second], 1, 1e-6)
    assert isinstance(alone, PureDP)
    assert alone.epsilon == 4


def _laws(mechanism):
    """All laws in fractions, from the mechanism's own list of outcomes."""
    event = mechanism.event
    p = Fraction(event.inclusion, 2**64)
    if isinstance(mechanism, tacit.SubsetSelection):
        k, d = event.categories, event.size
        held, missed = p / math.comb(k - 1, d - 1), (1 - p) / math.comb(k - 1, d)
        sets = list(combinations(range(k), d))
        return [[held if x in one else missed for one in sets] for x in range(k)]
    logs = [mechanism.log_prob(np.arange(event.points), x) for x in range(event.categories)]
    held, missed = p / event.held, (1 - p) / (event.points - event.held)
    return [[held if one > log.min() else missed for one in log] for log in logs]


def _excess(laws, people, odds):
    """The exact δ of the multiset of reports, at the worst answers of everybody."""

    def added(counts, law):
        found = defaultdict(Fraction)
        for key, mass in counts.items():
            for place, chance in enumerate(law):
                found[(*key[:place], key[place] + 1, *key[place + 1 :])] += mass * chance
        return found

    worst = Fraction(0)
    for others in combinations_with_replacement(laws, people - 1):
        counts = {(0,) * len(laws[0]): Fraction(1)}
        for law in others:
            counts = added(counts, law)
        for x, y in permutations(laws, 2):
            one, two = added(counts, x), added(counts, y)
            worst = max(worst, sum(max(v - odds * two[k], Fraction(0)) for k, v in one.items()))
    return worst


@pytest.mark.parametrize(
    "mechanism",
    [
        tacit.SubsetSelection(categories=4, epsilon=1.0),
        tacit.SubsetSelection(categories=3, epsilon=2.0),
        tacit.ProjectiveGeometryResponse(categories=3, epsilon=1.0, order=2),
        tacit.ProjectiveGeometryResponse(categories=4, epsilon=2.0, order=3),
    ],
)
def test_the_bound_covers_three_people_whatever_they_answer(mechanism):
    laws, epsilon = _laws(mechanism), float(mechanism.epsilon) / 2
    assert all(sum(law) == 1 for law in laws)
    (pair,) = pairs(mechanism.event, mechanism.guarantee)
    exact = float(_excess(laws, 3, Fraction(math.exp(epsilon))))
    assert exact <= pair.delta_of(epsilon, 3, 1e-3) <= 1.15 * exact
