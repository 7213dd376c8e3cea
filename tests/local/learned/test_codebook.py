"""The codebook mechanism: its exact law, its draws, its storage, and what it refuses."""

from __future__ import annotations

import math
import warnings
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits

import tacit
from tacit.audit import exact, statistical
from tacit.data.columns import IgnoredColumnsWarning
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.learned.codebook import Codebook
from tacit.local.reports import Reports
from tacit.privacy import artifact
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import Adjacency, PureDP, Unit

FALSE_ALARM = 1e-6

DIGITS, TARGET = load_digits(return_X_y=True)
PICTURES = ArraySchema(64, 0, 16, image=(8, 8))
TABLE = TableSchema(
    (
        Continuous("age", 0, 100),
        Categorical("job", ("baker", "smith", "nurse")),
        Continuous("pay", 0, 10, missing="indicate", outside="clip"),
        Categorical("zone", ("n", "s"), unseen="other"),
    )
)


def people(count=400, seed=0):
    """Two kinds of people, so that codewords have something to hold on to."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, count)
    pay = np.clip(rng.normal(3 + 4 * kind, 1), 0, 10)
    pay[rng.random(count) < 0.1] = np.nan
    return {
        "age": np.clip(rng.normal(30 + 30 * kind, 8), 0, 100),
        "job": np.array(["baker", "smith", "nurse"])[(kind + (rng.random(count) < 0.2)) % 3],
        "pay": pay,
        "zone": np.array(["n", "s", "x"])[rng.choice(3, count, p=[0.5, 0.4, 0.1])],
    }


@pytest.fixture(scope="module")
def small():
    """Four codewords and two classes: eight symbols, all of whose reports can be listed."""
    rng = np.random.default_rng(0)
    given = ArraySchema(3, 0, 1)
    return Codebook(epsilon=1.5, codewords=4, classes=("no", "yes")).fit(
        rng.random((200, 3)), schema=given
    )


@pytest.fixture(scope="module")
def pictures():
    mechanism = Codebook(epsilon=4, people=1200, classes=10)
    return mechanism.fit(DIGITS[:600], schema=PICTURES)


@pytest.fixture(scope="module")
def table():
    return Codebook(epsilon=2, codewords=6, classes=2).fit(people(), schema=TABLE)


# --- the exact law -------------------------------------------------------------------------------


def law(mechanism, labelled):
    """Log P(report | person) over all reports and all people, from the mechanism's own log_prob."""
    channel = mechanism.channel(labelled).symbols
    sets = np.array(list(combinations(range(channel.categories), channel.event.size)))
    columns = {"symbols": sets}
    rows = []
    for codeword in range(mechanism.codewords_):
        for code in range(len(mechanism.classes)) if labelled else (None,):
            codes = None if code is None else np.full(len(sets), code)
            rows.append(mechanism.log_prob(columns, np.full(len(sets), codeword), codes))
    pairs = tuple((i, j) for i in range(len(rows)) for j in range(len(rows)) if i != j)
    return sets, exact.Table(np.array(rows), pairs)


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 1.5, 3.0, 8.0])
@pytest.mark.parametrize("size", [None, 1, 3])
def test_the_exact_profile_is_epsilon_and_no_more(small, labelled, epsilon, size):
    mechanism = small.at(epsilon)
    mechanism.subset_size = size
    _, table = law(mechanism, labelled)
    assert len(table.log_prob) == (8 if labelled else 4)
    found = exact.smallest_epsilon(table)
    assert epsilon - 1e-6 <= found <= epsilon + 1e-12
    assert exact.profile(table, epsilon) <= 1e-12
    # A mechanism that claims a little less than it spends would be seen.
    assert exact.profile(table, 0.99 * epsilon) > 1e-6
    assert float(mechanism.channel(labelled).guarantee.epsilon) == epsilon


@pytest.mark.parametrize("labelled", [False, True])
def test_the_guarantee_is_towards_any_two_people(small, labelled):
    guarantee = small.channel(labelled).guarantee
    assert isinstance(guarantee, PureDP)
    assert guarantee.epsilon == 1.5
    assert guarantee.adjacency == Adjacency.ANY_TWO_INPUTS
    assert guarantee.unit == Unit.RECORD
    certificate = small.certificate
    certificate.verify()
    assert certificate.event == small.channel(True).event
    assert any("in-house rows" in sentence for sentence in certificate.not_protected)


@pytest.mark.parametrize("labelled", [False, True])
def test_draws_of_the_operating_system_follow_the_law(small, labelled):
    """χ² over every possible report, from the real release; false alarms once in a million."""
    count = 30_000
    raw = np.full((count, 3), [0.9, 0.2, 0.4])
    reports = small.release(raw, np.full(count, "yes") if labelled else None)
    assert not reports.seeded
    assert reports.labelled == labelled
    sets, table = law(small, labelled)
    codeword = int(small.encode(raw[:1])[0])
    person = 2 * codeword + 1 if labelled else codeword
    index = {tuple(row): place for place, row in enumerate(sets.tolist())}
    seen = np.bincount(
        [index[tuple(row)] for row in reports.columns["symbols"].tolist()], minlength=len(sets)
    )
    expected = np.exp(table.log_prob) * count
    assert expected.min() > 20
    assert stats.chisquare(seen, expected[person]).pvalue > FALSE_ALARM
    # Mutants: somebody else's law, the other label's, and a tenth more ε than was paid for.
    for other in range(len(expected)):
        if other != person:
            assert stats.chisquare(seen, expected[other]).pvalue < FALSE_ALARM
    _, more = law(small.at(1.65), labelled)
    assert stats.chisquare(seen, np.exp(more.log_prob[person]) * count).pvalue < FALSE_ALARM


def test_an_audit_of_the_release_does_not_refute_it(small):
    """The pair with other codeword and other label; false alarms once in a million."""
    first, second = np.full((20_000, 3), 0.05), np.full((20_000, 3), 0.95)
    assert small.encode(first[:1]) != small.encode(second[:1])
    draws = [
        small.release(raw, np.full(20_000, label)).columns["symbols"]
        for raw, label in ((first, "no"), (second, "yes"))
    ]
    symbols = [2 * int(small.encode(first[:1])[0]), 2 * int(small.encode(second[:1])[0]) + 1]
    score = statistical.likelihood_ratio(small.channel(True).symbols, *symbols)
    bound = statistical.bound_from_draws(*draws, [score], confidence=1 - FALSE_ALARM)
    assert 1.0 < bound.epsilon <= 1.5


def test_a_label_changes_nothing_but_the_symbol(small):
    """Symbol = codeword · classes + label, in the declared order."""
    sure = small.at(40)  # reports hold the true symbol but for once in e^40
    raw = np.random.default_rng(1).random((50, 3))
    labels = np.random.default_rng(2).choice(["no", "yes"], 50)
    found = sure.release(raw, labels).columns["symbols"]
    assert found.shape == (50, 1)
    assert np.array_equal(found[:, 0], 2 * sure.encode(raw) + (labels == "yes"))


# --- another ε, other groups ---------------------------------------------------------------------


def test_at_another_epsilon_it_is_the_same_fitted_mechanism(pictures):
    before = pictures.channel(True)
    other = pictures.at(1)
    assert float(other.epsilon) == 1
    assert float(pictures.epsilon) == 4
    assert pictures.channel(True) is before
    assert other.channel(True).event.epsilon == 1
    assert other.channel(True).symbols.categories == before.symbols.categories
    assert np.array_equal(other.encode(DIGITS[:50]), pictures.encode(DIGITS[:50]))
    assert other.parts()[1].keys() == pictures.parts()[1].keys()
    for name, weight in other.parts()[1].items():
        assert weight is pictures.parts()[1][name]
    assert artifact.fingerprint(other) != artifact.fingerprint(pictures)
    assert artifact.fingerprint(other.at(4)) == artifact.fingerprint(pictures)


def test_a_second_fit_forgets_the_first():
    """Also where reports were made in between: the channel must follow the codewords."""
    given, rng = ArraySchema(2, 0, 1), np.random.default_rng(0)
    mechanism = Codebook(epsilon=1, codewords=8, classes=2)
    corners = rng.integers(0, 2, (200, 2)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # k-means finds fewer than eight distinct points
        mechanism.fit(corners, schema=given).release(corners, np.zeros(200, int))
    assert mechanism.codewords_ == 4
    mechanism.fit(rng.random((200, 2)), schema=given)
    assert mechanism.codewords_ == 8
    assert mechanism.channel(True).symbols.categories == 16
    assert len(mechanism.release(rng.random((50, 2)), np.ones(50, int))) == 50


def test_regrouped_joins_codewords(small):
    coarse = small.regrouped([7, 3, 7, 3], subset_size=1)
    raw = np.random.default_rng(3).random((100, 3))
    assert coarse.codewords_ == 2
    assert coarse.classes is None
    assert np.array_equal(coarse.encode(raw), np.array([1, 0, 1, 0])[small.encode(raw)])
    assert coarse.counts_.tolist() == [
        small.counts_[[1, 3]].sum(),
        small.counts_[[0, 2]].sum(),
    ]
    share = small.counts_[[0, 2]] / small.counts_[[0, 2]].sum()
    assert coarse.prototypes_[1] == pytest.approx(share @ small.prototypes_[[0, 2]], abs=1e-5)
    assert coarse.channel(False).symbols.categories == 2
    assert float(coarse.channel(False).guarantee.epsilon) == 1.5
    assert small.codewords_ == 4
    with pytest.raises(InvalidParameter, match="classes must be declared"):
        coarse.release(raw, np.full(100, "no"))
    back = Codebook.from_parts(*coarse.parts())
    assert np.array_equal(back.encode(raw), coarse.encode(raw))
    assert back.channel(False) == coarse.channel(False)


@pytest.mark.parametrize("groups", [[0, 1, 2], [0, 0, 0, 0], [[0, 1, 0, 1]], [0, 1, 0, 0.5]])
def test_groups_that_do_not_fit_are_refused(small, groups):
    with pytest.raises((InvalidParameter, InvalidData), match="regrouped"):
        small.regrouped(groups)


# --- what it learned -----------------------------------------------------------------------------


def test_counts_and_prototypes_are_those_of_the_in_house_rows(small):
    raw = np.random.default_rng(0).random((200, 3))
    codes = small.encode(raw)
    assert np.array_equal(np.bincount(codes, minlength=4), small.counts_)
    means = [raw[codes == codeword].mean(axis=0) for codeword in range(4)]
    assert small.prototypes_ == pytest.approx(np.array(means), abs=1e-5)


def test_features_of_clean_and_released_rows(small):
    raw = np.random.default_rng(4).random((40, 3))
    codes = small.encode(raw)
    assert np.array_equal(small.clean_features(raw), np.eye(4, dtype=np.float32)[codes])
    assert small.clean_features(raw, "feature") == pytest.approx(small.prototypes_[codes])
    reports = small.release(raw)
    posterior = small.posterior(reports)
    # Bayes' rule with the exact law, and in-house shares (one added) as the prior.
    likelihood = np.stack(
        [np.exp(small.log_prob(reports.columns, np.full(40, k))) for k in range(4)], axis=1
    )
    expected = likelihood * (small.counts_ + 1)
    expected /= expected.sum(axis=1, keepdims=True)
    assert posterior == pytest.approx(expected, rel=1e-6)
    assert small.released_features(reports) == pytest.approx(expected, rel=1e-5)
    decoded = small.released_features(reports, "feature")
    assert decoded == pytest.approx(expected @ small.prototypes_, rel=1e-4)
    with pytest.raises(InvalidParameter, match="level must be one of latent, feature"):
        small.clean_features(raw, "other")


def test_no_label_of_the_in_house_rows_is_needed_and_reports_teach(pictures):
    """The way from digits to a classifier: far above the one in ten of a guess."""
    assert 12 <= pictures.codewords_ <= 1280
    reports = pictures.release(DIGITS[600:1500], TARGET[600:1500], rng=tacit.Seeded(0))
    learned = tacit.NoiseAwareClassifier(prior="inhouse").fit(reports)
    assert learned.score(DIGITS[1500:], TARGET[1500:]) > 0.6


@pytest.mark.parametrize(
    ("kind", "given", "rows"),
    [
        ("scattering", PICTURES, DIGITS[:300]),
        ("raw", PICTURES, DIGITS[:300]),
        ("quantile", PICTURES, DIGITS[:300]),
        ("random", PICTURES, DIGITS[:300]),
        ("raw", TABLE, people(300)),
        ("quantile", TABLE, people(300)),
        ("random", TABLE, people(300)),
    ],
)
def test_every_kind_of_features_is_stored_and_runs_under_onnx(kind, given, rows, tmp_path):
    """Codewords again, the same: from the artifact always, under ONNX Runtime but for ties.

    Sums in another order can move a point that lies between two cells: at most one in a hundred
    here, and none as far from its second cell as a thousandth of the distances themselves.
    """
    onnxruntime = pytest.importorskip("onnxruntime")
    assert onnxruntime
    from tacit.local.learned import onnx as exporting

    mechanism = Codebook(epsilon=1, codewords=12, features=kind).fit(rows, schema=given)
    codes = mechanism.encode(rows)
    assert len(np.unique(codes)) > 3
    path = mechanism.save(tmp_path / "mechanism")
    loaded = tacit.load(path)
    assert loaded.features_.kind == kind
    assert np.array_equal(loaded.encode(rows), codes)
    assert artifact.fingerprint(loaded) == artifact.fingerprint(mechanism)
    found = exporting.run((path / "encoder.onnx").read_bytes(), given.rows(rows))
    different = np.flatnonzero(found != codes)
    assert len(different) <= len(codes) // 100
    vectors, cells = mechanism.vectors(rows), mechanism.quantizer_.cells
    distance = np.sort(((vectors[:, None] - cells[None]) ** 2).sum(axis=2), axis=1)
    gap = (distance[:, 1] - distance[:, 0]) / (distance[:, 1] + (vectors**2).sum(axis=1))
    assert np.all(gap[different] < 1e-3)
    assert len(cells) > 3


def test_features_follow_the_rows():
    def kind(rows, **options):
        return Codebook(epsilon=1, codewords=4).fit(rows, **options).features_.kind

    assert kind(DIGITS[:60], schema=PICTURES) == "scattering"
    assert kind(DIGITS[:60].reshape(-1, 8, 8)) == "scattering"
    assert kind(DIGITS[:60], image=(8, 8)) == "scattering"
    assert kind(DIGITS[:60]) == "raw"
    assert kind(people(60)) == "quantile"


def test_without_labels_the_number_of_codewords_is_fixed():
    from tacit.local.learned.codebook import UNLABELLED

    made = Codebook(epsilon=1, features="raw").fit(DIGITS[:400], schema=PICTURES)
    assert made.codewords_ == UNLABELLED
    assert len(made.release(DIGITS[:5])) == 5


def test_grouping_can_be_fixed():
    linked = Codebook(epsilon=1, codewords=5, grouping="linked", features="raw")
    compact = Codebook(epsilon=1, codewords=5, grouping="compact", features="raw")
    assert len(linked.fit(DIGITS[:400], schema=PICTURES).quantizer_.cells) > 5
    assert len(compact.fit(DIGITS[:400], schema=PICTURES).quantizer_.cells) == 5


def test_the_same_seed_gives_the_same_mechanism():
    def made(seed):
        mechanism = Codebook(epsilon=1, codewords=6, features="random")
        return artifact.fingerprint(mechanism.fit(DIGITS[:200], schema=PICTURES, seed=seed))

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_rows_alike_leave_nothing_to_report():
    """One codeword: what cannot be loaded again, or released, may not be made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # k-means says so too
        with pytest.raises(InvalidData, match="rows must"):
            Codebook(epsilon=1, codewords=3, classes=2).fit(
                np.zeros((40, 2)), schema=ArraySchema(2, 0, 1)
            )


def test_reports_travel_in_few_bytes(pictures):
    channel = pictures.channel(True).symbols
    reports = pictures.release(DIGITS[:30], TARGET[:30])
    wire = channel.to_bytes(reports.columns["symbols"])
    assert wire.nbytes == 30 * channel.report_bytes
    assert channel.report_bytes <= -(-channel.categories // 8)
    back = Reports(pictures, {"symbols": channel.from_bytes(wire)}, pictures.channel(True))
    assert np.array_equal(back.columns["symbols"], reports.columns["symbols"])


# --- what it refuses -----------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, -math.inf, math.nan, 1e-12, 701, "x", None])
def test_an_epsilon_out_of_range_is_refused(small, epsilon):
    for make in (small.at, lambda e: Codebook(epsilon=e, codewords=4)):
        with pytest.raises(InvalidParameter, match="Codebook: epsilon must be") as error:
            make(epsilon)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"classes": 3}, "people must be given"),
        ({"people": 0, "classes": 2}, "people must be"),
        ({"codewords": 1}, "codewords must be"),
        ({"codewords": 2**17}, "codewords must be"),
        ({"codewords": 2.5}, "codewords must be"),
        ({"codewords": 4, "classes": 1}, "classes must be"),
        ({"codewords": 4, "features": "magic"}, "features must be one of"),
        ({"codewords": 4, "grouping": "magic"}, "grouping must be one of"),
    ],
)
def test_parameters_out_of_range_are_refused(options, name):
    with pytest.raises(InvalidParameter, match=name):
        Codebook(epsilon=1, **options)


@pytest.mark.parametrize("size", [0, 4, 8, -1])
def test_a_subset_size_out_of_range_is_refused(size):
    mechanism = Codebook(epsilon=1, codewords=4, subset_size=size)
    mechanism.fit(np.random.default_rng(0).random((50, 2)), schema=ArraySchema(2, 0, 1))
    with pytest.raises(InvalidParameter, match="size must be"):
        mechanism.release(np.zeros((1, 2)))


def test_before_fit_nothing_works():
    mechanism = Codebook(epsilon=1, codewords=4, classes=2)
    calls = (
        lambda: mechanism.release(np.zeros((1, 2))),
        lambda: mechanism.encode(np.zeros((1, 2))),
        lambda: mechanism.channel(True).guarantee,
        lambda: mechanism.certificate,
        lambda: mechanism.parts(),
        lambda: mechanism.save("nowhere"),
    )
    for call in calls:
        with pytest.raises(InvalidParameter, match="must be fitted first"):
            call()


def secret(column, value, rows=20):
    """People's rows, one of them with this value."""
    changed = people(rows)
    kind = object if isinstance(value, str) else changed[column].dtype
    changed[column] = changed[column].astype(kind)
    changed[column][rows // 2] = value
    return changed


def reordered():
    rows = people(20)
    return {name: rows[name] for name in ("job", "age", "pay", "zone")}


def without(column):
    return {name: data for name, data in people(20).items() if name != column}


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (secret("age", math.nan), "column 'age' must be without missing values"),
        (secret("age", math.inf), "column 'age' must be finite"),
        (secret("age", 7531.5), r"column 'age' must be within \[0, 100\]"),
        (secret("age", "7531"), "column 'age' must be numbers"),
        (secret("job", "7531"), "column 'job' must be one of its 3 declared categories"),
        ({**people(20), "job": np.full(20, 75.31)}, "column 'job' must be text"),
        (without("job"), "column 'job' must be present"),
        (without("zone"), "column 'zone' must be present"),
        ({**people(20), "pay": np.zeros(19)}, "column 'pay' must have one value per row"),
        ({name: data[:0] for name, data in people(20).items()}, "must not be empty"),
        (np.full((20, 4), 75.31), "must be a table"),
    ],
)
def test_bad_rows_of_a_table_are_refused_by_column_and_not_echoed(table, rows, named):
    for use in (table.release, table.encode):
        with pytest.raises(InvalidData, match=named) as error:
            use(rows)
        message = str(error.value)
        assert "\n" not in message
        assert "7531" not in message
        assert "75.31" not in message


def test_columns_are_chosen_by_name(table):
    expected = table.encode(people(20))
    assert np.array_equal(table.encode(reordered()), expected)
    with pytest.warns(IgnoredColumnsWarning, match=r"are ignored: 7531\."):
        found = table.encode({**people(20), "7531": np.zeros(20)})
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("broken", [math.nan, math.inf, 16.75, -0.0625])
def test_bad_pixels_are_refused_by_column_and_not_echoed(pictures, broken):
    rows = DIGITS[:30].copy()
    rows[17, 5] = broken
    with pytest.raises(InvalidData, match=r"Codebook\.release: column 5 must be") as error:
        pictures.release(rows, TARGET[:30])
    assert not any(text in str(error.value) for text in ("16.75", "0.0625", "row 17", "\n"))


@pytest.mark.parametrize(
    "rows",
    [
        DIGITS[:5].astype(str),
        DIGITS[:5].astype(object),
        DIGITS[:5] > 3,
        DIGITS[:5, :63],
        DIGITS[0],
        DIGITS[:5].reshape(5, 4, 16),
        DIGITS[:0],
        [[1, 2], [3]],
        "7531",
    ],
)
def test_pixels_of_another_form_are_refused(pictures, rows):
    with pytest.raises(InvalidData, match=r"Codebook\.release: rows must") as error:
        pictures.release(rows)
    assert "7531" not in str(error.value)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.float64])
def test_whole_pixels_have_the_same_codeword_in_every_type(pictures, dtype):
    expected = pictures.encode(DIGITS[:100])
    assert np.array_equal(pictures.encode(DIGITS[:100].astype(dtype)), expected)
    assert np.array_equal(pictures.encode(DIGITS[:100].reshape(-1, 8, 8)), expected)


def test_a_row_has_the_same_codeword_in_any_company(pictures):
    together = pictures.encode(DIGITS[:60])
    alone = np.concatenate([pictures.encode(DIGITS[i : i + 1]) for i in range(60)])
    # Sums of another order: a tie may fall either way, and more than one in sixty is no tie.
    assert np.count_nonzero(together != alone) <= 1


@pytest.mark.parametrize(
    "labels",
    [
        np.full(10, 10),
        np.full(10, -1),
        np.full(10, 3.5),
        np.full(10, math.nan),
        np.full(10, "3"),
        np.full(9, 3),
        np.full(11, 3),
        np.full((10, 1), 3),
        [],
        3,
    ],
)
def test_labels_that_were_never_declared_are_refused(pictures, labels):
    with pytest.raises(InvalidData, match=r"Codebook\.release: labels must be") as error:
        pictures.release(DIGITS[:10], labels)
    assert "\n" not in str(error.value)


def test_labels_without_classes_are_refused():
    mechanism = Codebook(epsilon=1, codewords=4).fit(DIGITS[:60], schema=PICTURES)
    with pytest.raises(InvalidParameter, match="classes must be declared"):
        mechanism.release(DIGITS[:5], TARGET[:5])
    assert len(mechanism.release(DIGITS[:5])) == 5


def test_scattering_wants_images():
    with pytest.raises(InvalidParameter, match="rows must be images for scattering"):
        Codebook(epsilon=1, codewords=4, features="scattering").fit(people(40))


def test_more_codewords_than_rows_are_refused():
    with pytest.raises(InvalidData, match="at least 30, one per codeword"):
        Codebook(epsilon=1, codewords=30).fit(DIGITS[:20], schema=PICTURES)


# --- storage -------------------------------------------------------------------------------------


def test_everything_that_matters_comes_back(pictures, tmp_path):
    loaded = tacit.load(pictures.at(2).save(tmp_path / "m"))
    assert loaded.epsilon == 2
    assert loaded.classes == tuple(range(10))
    assert loaded.schema == PICTURES
    assert loaded.people == 1200
    assert loaded.channel(True).guarantee == pictures.at(2).channel(True).guarantee
    assert np.array_equal(loaded.counts_, pictures.counts_)
    assert np.array_equal(loaded.prototypes_, pictures.prototypes_)
    first = pictures.at(2).release(DIGITS[:40], TARGET[:40], rng=tacit.Seeded(5))
    again = loaded.release(DIGITS[:40], TARGET[:40], rng=tacit.Seeded(5))
    assert np.array_equal(first.columns["symbols"], again.columns["symbols"])


def test_words_come_back_as_words(small):
    back = Codebook.from_parts(*small.parts())
    assert back.classes == ("no", "yes")
    assert back.channel(True) == small.channel(True)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cells", lambda a: a[:-1]),
        ("cells", lambda a: np.where(np.arange(len(a))[:, None] == 0, np.nan, a)),
        ("cells", lambda a: a[:, :-1]),
        ("groups", lambda a: a + 1),
        ("groups", lambda a: a * 2),
        ("mean", lambda a: a[:-1]),
        ("counts", lambda a: a[:-1]),
        ("prototypes", lambda a: a[:-1]),
    ],
)
def test_weights_that_do_not_fit_each_other_are_refused(small, name, change):
    parameters, arrays = small.parts()
    with pytest.raises(InvalidData, match="weights must fit each other"):
        Codebook.from_parts(parameters, {**arrays, name: change(arrays[name])})


def test_flat_rows_that_are_said_to_be_images_are_square():
    flat = np.random.default_rng(0).random((60, 64))
    fitted = Codebook(epsilon=1, codewords=4, features="scattering").fit(flat)
    assert fitted.schema.image == (8, 8)
    with pytest.raises(tacit.privacy.errors.InvalidParameter, match="images"):
        Codebook(epsilon=1, codewords=4, features="scattering").fit(flat[:, :60])
