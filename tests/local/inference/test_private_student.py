"""A student that may leave the house: taught with DP-Adam, over a codebook that is private."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

import tacit
from tacit.central.training.noise import Noise
from tacit.data.schema import ArraySchema
from tacit.local.inference import student, taught
from tacit.local.inference.student import StudentClassifier
from tacit.local.inhouse import PUBLIC, Target
from tacit.local.learned.codebook import Codebook
from tacit.privacy import events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.guarantees import Adjacency, ApproxDP, NotPrivate
from tacit.privacy.randomness import Seeded

torch.set_num_threads(1)

NAMES = np.array(["left", "right"])
SCHEMA = ArraySchema(3, -6.0, 6.0, outside="clip")
CENTRAL = {"central_epsilon": 5, "central_delta": 1e-5}
PRICE = {"central_epsilon": 3, "central_delta": 2e-6}


def people(count, seed):
    """A label that a line decides, across the cells of a codebook."""
    rng = np.random.default_rng((seed, 77))
    rows = rng.standard_normal((count, 3)) * [2.0, 1.0, 0.5]
    return rows, NAMES[(rows @ [0.6, 1.0, 0.0] > 0).astype(int)]


INHOUSE = people(2000, 0)[0]


def codebook(grouping="compact", public=False, **central):
    made = Codebook(epsilon=4.0, classes=NAMES, codewords=6, grouping=grouping, **central)
    return made.fit(INHOUSE, schema=SCHEMA, inhouse_public=public)


def reports_of(mechanism):
    return mechanism.release(*people(5000, 1), rng=Seeded(1))


def model(**settings):
    return StudentClassifier(**{"inhouse": INHOUSE, "prior": "none", "hidden": (16,), **settings})


@pytest.fixture(scope="module")
def mechanism():
    return codebook(**CENTRAL)


@pytest.fixture(scope="module")
def reports(mechanism):
    return reports_of(mechanism)


@pytest.fixture(scope="module")
def private(reports):
    return model(**PRICE).fit(reports)


@pytest.fixture(scope="module")
def unseen():
    return people(2000, 2)


# --- what is promised ----------------------------------------------------------------------------


def test_without_a_price_it_carries_the_rows(mechanism, reports, tmp_path):
    """Over a private codebook too: it was taught on the rows themselves."""
    for teaching in ("auto", "table"):
        taught_on_rows = model(teaching=teaching).fit(reports)
        assert isinstance(taught_on_rows.inhouse_guarantee_, NotPrivate)
        with pytest.raises(InvalidParameter, match="it; a model that is handed out must"):
            taught_on_rows.export(tmp_path / "m")
        assert list(tmp_path.iterdir()) == []
        assert student.CARRIED in taught_on_rows.certificate.not_protected
        assert taught_on_rows.teacher_.inhouse_ == mechanism.inhouse_


def test_codebook_and_teaching_add_up(private, mechanism):
    before, after = mechanism.inhouse_.guarantee, private.inhouse_guarantee_
    assert isinstance(after, ApproxDP)
    assert after.adjacency is Adjacency.ZERO_OUT
    assert after.delta == 1.2e-5
    assert before.epsilon < after.epsilon <= before.epsilon + 3
    first, certificate = private.inhouse_.certificates
    assert first == mechanism.inhouse_.certificate
    certificate.verify()
    second = certificate.event
    assert isinstance(second, events.Repeated)
    assert isinstance(second.event, events.PoissonSampled)
    assert 2.85 < guarantee_of(second, 2e-6).epsilon <= 3 * (1 + 1e-9)
    assert guarantee_of(events.Composed((first.event, second)), 1.2e-5) == after
    assert any("one rounding per operation" in line for line in certificate.assumptions)
    assert not certificate.seeded
    assert private.inhouse_.may_leave


def test_a_seeded_codebook_marks_its_student(tmp_path):
    seeded = Codebook(epsilon=4.0, classes=NAMES, codewords=6, **CENTRAL)
    seeded.fit(INHOUSE, schema=SCHEMA, rng=Seeded(3))
    made = model(**PRICE).fit(reports_of(seeded))
    assert made.inhouse_.seeded
    assert [one.seeded for one in made.inhouse_.certificates] == [True, False]
    with pytest.raises(InvalidParameter, match="seeded generator"):
        made.export(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_towards_those_who_reported_nothing_changes(private, reports):
    assert private.guarantee_ == reports.guarantee == private.certificate.guarantee
    said = [line for line in private.certificate.not_protected if student.TAUGHT in line]
    assert said == [private.inhouse_.parts[1].sentence]


def test_it_still_knows_something(private, unseen):
    assert private.score(*unseen) > 0.75
    assert np.allclose(private.predict_proba(unseen[0]).sum(axis=1), 1)


def test_stored_and_handed_out(private, unseen, tmp_path):
    for path in (private.save(tmp_path / "in"), private.export(tmp_path / "out")):
        again = tacit.load(path)
        assert again.inhouse_ == private.inhouse_
        assert again.certificate == private.certificate
        assert np.array_equal(again.predict_proba(unseen[0]), private.predict_proba(unseen[0]))
        assert again.inhouse is None
        assert (again.central_epsilon, again.central_delta) == (3, 2e-6)
        assert again.teacher_.inhouse_ == private.mechanism_.inhouse_
    assert again.export(tmp_path / "again").is_dir()


def test_scikit_learn():
    made = model(**PRICE)
    params = clone(made).get_params()
    assert (params["central_epsilon"], params["central_delta"]) == (3, 2e-6)
    assert "inhouse=…" in repr(made)


@pytest.mark.heavy
def test_linked_codewords_can_teach(unseen):
    """By the median of five fits: one in fifty is below 0.7, as its noise has it."""
    scores = []
    for _ in range(5):
        linked = codebook("linked", **CENTRAL)
        assert linked.codewords_ < len(linked.quantizer_.cells)
        made = model(**PRICE).fit(reports_of(linked))
        assert made.inhouse_.proved
        scores.append(made.score(*unseen))
    assert np.median(scores) > 0.7


def test_two_teachings_differ(private, reports):
    other = model(**PRICE).fit(reports)
    assert not np.array_equal(other.network_.weights[0], private.network_.weights[0])
    assert other.inhouse_guarantee_ == private.inhouse_guarantee_


# --- all that it learns of the rows comes from the noisy sums ------------------------------------


@pytest.fixture
def record(monkeypatch):
    """`record(fit)` writes sums down, raw and noisy; `record(fit, tape)` hands the noisy out."""
    honest, state = Noise.add_to, {}

    def add_to(self, sums, divisor=1.0):
        raw = sums.clone()
        if state["earlier"] is None:
            honest(self, sums, divisor)
        else:
            sums.copy_(state["earlier"][len(state["tape"])][1])
        state["tape"].append((raw, sums.clone()))

    monkeypatch.setattr(Noise, "add_to", add_to)

    def run(fit, earlier=None):
        state.update(earlier=earlier, tape=[])
        return fit(), state["tape"]

    return run


def test_other_rows_with_the_same_noisy_sums_give_the_same_student(reports, record):
    """Scaling too: by the cells, which are private, and not by the rows."""
    first, tape = record(lambda: model(**PRICE).fit(reports))
    other = people(2000, 9)[0] * 0.5 + 1
    second, raw = record(lambda: model(inhouse=other, **PRICE).fit(reports), tape)
    assert len(tape) == taught.EPOCHS
    assert not torch.equal(tape[0][0], raw[0][0])
    (parameters, arrays), (again, others) = first.parts(), second.parts()
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert np.array_equal(array, others[name]), name
    for name in ("network", "settings", "teacher", "reports"):
        assert parameters[name] == again[name]


def test_a_plain_student_does_not_come_from_noisy_sums(reports, record):
    """The mutant of the test above."""
    first, tape = record(lambda: model(teaching="table").fit(reports))
    other = people(2000, 9)[0] * 0.5 + 1
    second, _ = record(lambda: model(inhouse=other, teaching="table").fit(reports))
    assert tape == []
    assert not np.array_equal(first.network_.center, second.network_.center)


def test_one_row_moves_the_sums_by_the_clip_norm(reports, record, monkeypatch):
    """In every step, given the same earlier ones; a row far out, in front of all others."""
    monkeypatch.setattr(taught, "EPOCHS", 5)
    _, tape = record(lambda: model(**PRICE).fit(reports))
    largest = 0.0
    for row in ([[6.0, -6.0, 6.0]], [[-6.0, -6.0, -6.0]], INHOUSE[:1]):
        more = np.concatenate([row, INHOUSE])
        _, other = record(lambda more=more: model(inhouse=more, **PRICE).fit(reports), tape)
        moved = [float((b[0] - a[0]).norm()) for a, b in zip(tape, other, strict=True)]
        assert len(moved) == 5
        assert max(moved) <= 1 + 1e-3
        largest = max(largest, *moved)
    assert largest > 0.5


class Stop(Exception):
    """What would be taught is known: no need to train."""


def between(mechanism, data, count):
    """Rows between two codewords, where the last digit decides."""
    rng, codes = np.random.default_rng(0), mechanism.encode(data)
    found = []
    while len(found) < 7 * count:
        first, second = rng.integers(0, len(data), 2)
        if codes[first] % 2 == codes[second] % 2:
            continue
        low, high = 0.0, 1.0
        away = data[second] - data[first]
        for _ in range(30):
            middle = (low + high) / 2
            same = mechanism.encode((data[first] + middle * away)[None])[0] == codes[first]
            low, high = (middle, high) if same else (low, middle)
        found += [data[first] + (low + step * 5e-8) * away for step in range(-3, 4)]
    return np.array(found)


def test_what_is_taught_of_a_row_does_not_depend_on_the_others(monkeypatch):
    """To the last bit: a row between two cells would be taught another label else."""
    seen = []

    def stopped(vectors, answers, *rest):
        seen.append((np.array(vectors), np.array(answers)))
        raise Stop

    monkeypatch.setattr(taught, "taught_privately", stopped)
    data = np.random.default_rng(5).random((1500, 40))
    wide = Codebook(epsilon=8, classes=NAMES, codewords=6, **CENTRAL)
    wide.fit(data, schema=ArraySchema(40, 0, 1), rng=Seeded(2))
    reports = wide.release(data, NAMES[wide.encode(data) % 2], rng=Seeded(1))
    rows = np.concatenate([between(wide, data, 40), data])

    def taught_on(some):
        with pytest.raises(Stop):
            model(inhouse=some, **PRICE).fit(reports)
        return seen.pop()

    vectors, answers = taught_on(rows)
    assert len(np.unique(answers[:280])) == 2
    backwards = taught_on(rows[::-1])
    assert np.array_equal(backwards[0][::-1], vectors)
    assert np.array_equal(backwards[1][::-1], answers)
    for start in range(0, 280, 7):
        for length in (1, 2, 7):
            some = slice(start, start + length)
            few = taught_on(rows[some])
            assert np.array_equal(few[0], vectors[some])
            assert np.array_equal(few[1], answers[some])


def test_scaling_by_the_rows_would_be_seen(reports, record, monkeypatch):
    """The mutant: centred on the rows, so that one of them moves the inputs of all."""
    honest = taught.taught_privately

    def scaled(vectors, answers, classes, hidden, cells, *rest):
        return honest(vectors, answers, classes, hidden, vectors, *rest)

    monkeypatch.setattr(taught, "taught_privately", scaled)
    first, tape = record(lambda: model(**PRICE).fit(reports))
    second, _ = record(lambda: model(inhouse=people(2000, 9)[0], **PRICE).fit(reports), tape)
    assert not np.array_equal(first.network_.center, second.network_.center)


def test_the_price_is_calibrated_to_the_rows():
    vectors = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
    answers = (vectors[:, 0] > 0).astype(np.int64)
    network, trained = taught.taught_privately(
        vectors, answers, 3, (5,), vectors[:4], Target(2.0, 1e-5), 0
    )
    assert trained.guarantee.epsilon <= 2 * (1 + 1e-9)
    assert trained.sampling_probability == 1
    assert trained.steps == taught.EPOCHS
    assert not trained.seeded
    assert network.predict_proba(vectors).shape == (300, 3)
    assert np.array_equal(network.center, vectors[:4].mean(axis=0))


# --- refusals ------------------------------------------------------------------------------------


def test_the_codebook_must_be_private_too():
    plain = codebook()
    for public in (False, True):
        given = codebook(public=public) if public else plain
        with pytest.raises(
            InvalidParameter, match="codebook must protect its in-house rows"
        ) as caught:
            model(**PRICE).fit(reports_of(given))
        said = str(caught.value)
        assert said.startswith("StudentClassifier: ")
        assert "Fit the codebook with central_epsilon too." in said
        assert "\n" not in said


def test_nor_may_it_be_unproven():
    from tacit.local.learned import features

    given = features.QuantileTransform.fit(SCHEMA, SCHEMA.rows(INHOUSE))
    made = Codebook(epsilon=4, classes=NAMES, codewords=6, features=given, **CENTRAL)
    made.fit(INHOUSE, schema=SCHEMA)
    with pytest.raises(
        InvalidParameter, match=r"must protect its in-house rows, got .*[Uu]nproven"
    ):
        model(**PRICE).fit(reports_of(made))


def test_the_likelihood_has_no_private_form(reports):
    with pytest.raises(InvalidParameter, match="teaching must be by the table") as caught:
        model(teaching="likelihood", **PRICE).fit(reports)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("one", PRICE)
def test_both_or_neither(reports, one):
    with pytest.raises(InvalidParameter, match=r"central_(epsilon|delta) must be given"):
        model(**{one: PRICE[one]}).fit(reports)


@pytest.mark.parametrize("wrong", [{"central_epsilon": 0}, {"central_delta": 1}])
def test_prices_that_protect_nobody(reports, wrong):
    with pytest.raises(InvalidParameter, match="must be"):
        model(**{**PRICE, **wrong}).fit(reports)


# --- public rows ---------------------------------------------------------------------------------


def test_what_was_taught_on_public_rows_may_leave(unseen, tmp_path):
    reports = reports_of(codebook(public=True))
    # That the codebook's rows are public says nothing of these.
    assert not model(hidden=(2,), teaching="likelihood").fit(reports).inhouse_.may_leave
    made = model(inhouse_public=True, teaching="likelihood").fit(reports)
    assert made.inhouse_.public
    assert not made.inhouse_.proved
    loaded = tacit.load(made.export(tmp_path / "m"))
    assert loaded.inhouse_.public
    assert all(PUBLIC in one.not_protected for one in loaded.inhouse_.certificates)
    assert any("public" in line for line in loaded.certificate.not_protected)
    assert np.array_equal(loaded.predict(unseen[0]), made.predict(unseen[0]))


def test_a_price_beside_public_rows_is_stated_too():
    reports = reports_of(codebook(public=True, **CENTRAL))
    for public in (False, True):
        made = model(inhouse_public=public, **PRICE).fit(reports)
        assert made.inhouse_.proved
        assert made.inhouse_.public == public
        first, second = made.inhouse_.certificates
        assert PUBLIC in first.not_protected
        assert (PUBLIC in second.not_protected) == public
