"""A search, whole: who answers for what, what is charged when, and whose votes the interval is."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tacit.data.schema import ArraySchema, Continuous, TableSchema
from tacit.local.inference import search as module
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inference.search import Candidate, search
from tacit.local.inference.validation import whole_estimate
from tacit.local.inhouse import Protection
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.privacy import events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.errors import BudgetExceeded, InvalidData, InvalidParameter
from tacit.privacy.guarantees import PureDP, Unit
from tacit.privacy.mechanisms import Gaussian
from tacit.privacy.randomness import Seeded

pytestmark = pytest.mark.filterwarnings("ignore::tacit.local.inference.noise_aware.ShiftWarning")

NAMES = np.array(["north", "east", "south"])
CENTERS = np.array([[0.0, 4.0], [4.0, -3.0], [-4.0, -3.0]])
SCHEMA = ArraySchema(2, -10.0, 10.0, outside="clip")
BOTH = pytest.mark.parametrize("composition", ["parallel", "sequential"])


def people(count, seed):
    rng = np.random.default_rng((seed, 77))
    group = rng.integers(0, 3, count)
    return CENTERS[group] + rng.standard_normal((count, 2)), NAMES[group]


def codebook(codewords, **settings):
    given = {"epsilon": 2, "classes": NAMES, "unit": "person", **settings}
    return Codebook(codewords=codewords, **given)


def candidates(*sizes):
    return [Candidate(f"{size} codewords", codebook(size)) for size in sizes]


GIVEN = {
    "inhouse": people(600, 0)[0],
    "fitting": {"schema": SCHEMA},
    "people": people(1200, 1),
    "voters": people(900, 2),
    "epsilon": 2,
}


class Watched:
    """A stream that says whether anything was drawn from it."""

    secure = False

    def __init__(self):
        self.drawn = 0
        self._seeded = Seeded(0)

    def words(self, count):
        self.drawn += count
        return self._seeded.words(count)


class Recorded:
    """What each mechanism and each voter was handed."""

    def __init__(self, monkeypatch):
        self.reports, self.votes = [], []
        release, cast = Codebook.release, module.cast

        def releasing(mechanism, raw, labels=None, rng=None):
            self.reports.append((mechanism, np.asarray(raw)))
            return release(mechanism, raw, labels, rng)

        def casting(model, rows, truth, ballot, **more):
            votes = cast(model, rows, truth, ballot, **more)
            self.votes.append((model, np.asarray(rows), ballot, votes))
            return votes

        monkeypatch.setattr(Codebook, "release", releasing)
        monkeypatch.setattr(module, "cast", casting)


@pytest.fixture
def recorded(monkeypatch):
    return Recorded(monkeypatch)


def as_set(rows):
    return {tuple(row) for row in rows.tolist()}


# --- who answers for what ------------------------------------------------------------------------


def test_in_parallel_everybody_answers_once(recorded):
    found = search(candidates(2, 3, 6), **GIVEN)
    parts = [as_set(rows) for _, rows in recorded.reports]
    assert [len(part) for part in parts] == [400, 400, 400]
    assert set.union(*parts) == as_set(GIVEN["people"][0])
    ballots = [as_set(rows) for _, rows, _, _ in recorded.votes]
    assert len(ballots) == 4  # three candidates, and those who were kept
    assert sum(map(len, ballots)) == 900
    assert set.union(*ballots) == as_set(GIVEN["voters"][0])
    assert {float(ballot.epsilon) for _, _, ballot, _ in recorded.votes} == {2}
    assert {float(mechanism.epsilon) for mechanism, _ in recorded.reports} == {2}
    assert [one.votes for one in found.candidates] == [len(part) for part in ballots[:3]]
    assert found.precision.fresh == len(ballots[3])


def test_in_sequence_everybody_answers_for_all_with_a_share(recorded):
    found = search(candidates(2, 3, 6), **GIVEN, composition="sequential")
    everybody = as_set(GIVEN["people"][0])
    assert [as_set(rows) for _, rows in recorded.reports] == [everybody] * 3
    *choosing, kept = [(as_set(rows), ballot) for _, rows, ballot, _ in recorded.votes]
    assert all(rows == choosing[0][0] for rows, _ in choosing)
    assert not choosing[0][0] & kept[0]
    assert choosing[0][0] | kept[0] == as_set(GIVEN["voters"][0])
    shares = {ballot.epsilon for _, ballot in choosing}
    shares |= {mechanism.epsilon for mechanism, _ in recorded.reports}
    (share,) = shares
    assert 3 * share <= 2
    assert float(3 * share) == pytest.approx(2)
    assert kept[1].epsilon == 2
    assert [one.reports for one in found.candidates] == [1200] * 3


def test_the_winners_interval_is_that_of_fresh_voters_alone(recorded):
    found = search(candidates(2, 3), **GIVEN)
    model, _, _, votes = recorded.votes[-1]
    assert model is found.model
    assert found.estimate == whole_estimate(votes, 0.95)
    chose = recorded.votes[[one.name for one in found.candidates].index(found.winner)]
    assert found.estimate.interval != whole_estimate(chose[3], 0.95).interval


@BOTH
def test_simultaneous_keeps_nobody(composition, recorded):
    """Šidák's level for independent votes; Bonferroni's where the same people vote on all."""
    given = {**GIVEN, "epsilon": 6, "composition": composition}
    found = search(candidates(2, 3), **given, confirm="simultaneous")
    assert len(recorded.votes) == 2
    voted = sum(len(rows) for _, rows, _, _ in recorded.votes)
    assert voted == (900 if composition == "parallel" else 1800)
    place = [one.name for one in found.candidates].index(found.winner)
    assert found.estimate == found.candidates[place].estimate
    each = 0.95**0.5 if composition == "parallel" else 0.975
    expected = whole_estimate(recorded.votes[place][3], each)
    assert found.estimate.interval == expected.interval
    assert found.estimate.confidence == 0.95


def test_assignment_does_not_depend_on_anybodys_data(monkeypatch):
    """Other rows, other labels: the same places answer for the same candidates."""
    places = []
    take = module._take

    def taking(rows, chosen):
        places[-1].append(chosen.tolist())
        return take(rows, chosen)

    monkeypatch.setattr(module, "_take", taking)
    for seed in (1, 5):
        places.append([])
        given = {**GIVEN, "people": people(1200, seed), "voters": people(900, seed + 1)}
        # A stream of one's own for assignments: noise draws as many words as its data demand.
        monkeypatch.setattr(
            module, "assign", lambda *a, rng=None, **k: ASSIGN(*a[:3], **k, rng=Seeded(3))
        )
        search(candidates(2, 3), **given)
    first, second = places
    # The winner may differ, but not who votes on it.
    assert first == second


ASSIGN = module.assign


def test_candidates_that_share_a_mechanism_share_its_reports(recorded):
    mechanism = codebook(4)
    listed = [
        Candidate("with in-house counts", mechanism, NoiseAwareClassifier(prior="inhouse")),
        Candidate("without", mechanism, NoiseAwareClassifier(prior="none")),
        Candidate("another", codebook(3)),
    ]
    found = search(listed, **GIVEN)
    assert [len(rows) for _, rows in recorded.reports] == [600, 600]
    assert [one.reports for one in found.candidates] == [600, 600, 600]
    settings = [model.prior for model, *_ in recorded.votes[:3]]
    assert settings == ["inhouse", "none", "auto"]


def test_learners_alone(recorded):
    """One mechanism: everybody reports to it with the whole ε, in either composition."""
    mechanism = codebook(4)
    listed = [
        Candidate(prior, mechanism, NoiseAwareClassifier(prior=prior)) for prior in ("auto", "none")
    ]
    for composition in ("parallel", "sequential"):
        recorded.reports.clear()
        search(listed, **GIVEN, composition=composition)
        ((used, rows),) = recorded.reports
        assert len(rows) == 1200
        assert used.epsilon == 2


# --- what it costs -------------------------------------------------------------------------------


@BOTH
def test_the_event_is_what_runs(composition, recorded):
    found = search(candidates(2, 3), **GIVEN, composition=composition)
    ran = [mechanism.channel(True).event for mechanism, _ in recorded.reports]
    voted = [ballot.event for _, _, ballot, _ in recorded.votes]
    if composition == "parallel":
        assert found.event == events.Parallel((*ran, voted[0]))
    else:
        assert voted[0] == voted[1] != voted[2]
        expected = (events.Composed(tuple(ran)), events.Repeated(voted[0], 2), voted[2])
        assert found.event == events.Parallel(expected)
    assert found.guarantee == guarantee_of(found.event)
    assert found.guarantee == PureDP(2, adjacency="any-two-inputs", unit="person")
    found.certificate.verify()
    assert "Nobody both reported and voted." in found.certificate.assumptions


@BOTH
def test_the_ledger_is_charged_once_before_anything_is_released(composition, tmp_path, monkeypatch):
    release, charged = Codebook.release, []
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("people", PureDP(2, adjacency="any-two-inputs", unit="person"))

        def releasing(mechanism, raw, labels=None, rng=None):
            charged.append(len(ledger.show("people").charges))
            return release(mechanism, raw, labels, rng)

        monkeypatch.setattr(Codebook, "release", releasing)
        given = {**GIVEN, "ledger": ledger, "account": "people", "composition": composition}
        found = search(candidates(2, 3, 5), **given)  # the whole budget is just enough
        assert charged == [1, 1, 1]
        (receipt,) = ledger.show("people").charges
        assert receipt.event == found.event

        watched = Watched()
        with pytest.raises(BudgetExceeded):
            search(candidates(2, 3, 5), **given, rng=watched)
        assert watched.drawn == 0
        assert charged == [1, 1, 1]
        assert len(ledger.show("people").charges) == 1


def test_what_does_not_fit_is_refused_before_it_costs(tmp_path):
    watched = Watched()
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("people", PureDP(9, adjacency="any-two-inputs", unit="person"))
        given = {**GIVEN, "ledger": ledger, "account": "people", "rng": watched}
        rows, labels = GIVEN["voters"]
        wrong = [
            ({"voters": (rows, np.where(labels == "east", "secret", labels))}, InvalidData),
            ({"voters": (rows[:-1], labels)}, InvalidData),
            ({"voters": (rows[:, :1], labels)}, InvalidData),
            ({"people": (rows, np.arange(len(rows)))}, InvalidData),
            ({"people": (rows[:1], labels[:1])}, InvalidParameter),
            ({"voters": (rows[:5], labels[:5])}, InvalidParameter),
            ({"within": 0.001}, InvalidParameter),
            ({"epsilon": 0}, InvalidParameter),
            ({"unit": "record"}, InvalidParameter),
            ({"composition": "mixed"}, InvalidParameter),
            ({"account": None}, InvalidParameter),
        ]
        for change, error in wrong:
            with pytest.raises(error) as caught:
                search(candidates(2, 3), **{**given, **change})
            assert "secret" not in str(caught.value)
        assert watched.drawn == 0
        assert ledger.show("people").charges == ()


def test_a_mechanism_about_records_is_refused():
    listed = [Candidate("records", codebook(3, unit="record")), Candidate("people", codebook(2))]
    with pytest.raises(InvalidParameter, match="unit of a mechanism must be person"):
        search(listed, **GIVEN)
    found = search([Candidate("a", codebook(3, unit="record"))], **GIVEN, unit="record")
    assert found.guarantee.unit is Unit.RECORD


def test_shares_of_labels_add_up_in_floats_too(tmp_path):
    """Direct splits ε between row and label, at shares that no float holds."""
    listed = [
        Candidate(f"{share}", Direct(epsilon=3, classes=NAMES, label_share=share, unit="person"))
        for share in (0.1, 0.3, 0.7)
    ]
    learner = NoiseAwareClassifier(hidden=())
    listed = [Candidate(one.name, one.mechanism, learner) for one in listed]
    plan = module._Budget(module.part_of(3, 1), "sequential", Unit.PERSON)
    fitted = module._fit(
        [one.mechanism for one in listed], GIVEN["inhouse"], GIVEN["fitting"], plan, module._silent
    )
    event = plan.event(fitted, module.precision(9000, 3, 3, composition="sequential"))
    assert guarantee_of(event).epsilon <= 3


def test_a_mechanism_that_spends_more_is_refused():
    class Spendthrift:
        """Says that it was put to another ε, and was not."""

        def __init__(self):
            self.inner = codebook(3, epsilon=5)

        def at(self, epsilon):
            return self

        def __getattr__(self, name):
            return getattr(self.inner, name)

    with pytest.raises(InvalidParameter, match="guarantee must be within ε = 2"):
        search([Candidate("a", Spendthrift()), Candidate("b", codebook(3))], **GIVEN)


@BOTH
def test_a_failure_probability_is_stated(composition):
    """Gaussian noise beside votes: (ε, δ), the δ of one report, or of all of them."""

    class Noisy:
        delta, assumptions, not_protected, inhouse_ = 1e-6, (), (), Protection.untouched()
        noise = Gaussian(
            sensitivity=1, epsilon=1.0, delta=1e-6, adjacency="any-two-inputs", unit="person"
        )

        event = noise.event

        def channel(self, labelled):
            return self

    fitted = [Noisy(), Noisy()]
    budget = module._Budget(module.part_of(2, 1), composition, Unit.PERSON)
    event = budget.event(fitted, module.precision(900, 2, 2, composition=composition))
    delta = module._delta(fitted, composition)
    assert delta == (1e-6 if composition == "parallel" else 2e-6)
    certificate = module._certify(event, delta, budget.epsilon, fitted, False, Seeded(0))
    assert certificate.guarantee.delta == delta
    assert certificate.guarantee.epsilon <= 2
    certificate.verify()


# --- the result ----------------------------------------------------------------------------------


def test_the_better_candidate_wins():
    """Two codewords cannot tell three classes apart."""
    found = search(candidates(2, 6), **{**GIVEN, "epsilon": 4}, rng=Seeded(0))
    assert found.winner == "6 codewords"
    test = people(2000, 9)
    truth = found.model.score(*test)
    assert truth > 0.9
    assert found.estimate.interval[0] <= truth + 0.02
    assert found.mechanism.epsilon == 4
    assert len(found.reports) == 600
    assert found.certificate.seeded
    plain = found.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert [one["name"] for one in plain["candidates"]] == ["2 codewords", "6 codewords"]


def test_candidates_are_left_as_they_were():
    listed = candidates(2, 3)
    learner = NoiseAwareClassifier()
    listed = [Candidate(one.name, one.mechanism, learner) for one in listed]
    found = search(listed, **GIVEN)
    assert not hasattr(listed[0].mechanism, "codewords_")
    assert not hasattr(learner, "table_")
    assert not found.certificate.seeded


def test_a_single_candidate_is_validated():
    found = search(candidates(4), **GIVEN)
    assert found.precision.fresh == 900
    assert found.candidates[0].estimate == found.estimate
    assert isinstance(found.event, events.Parallel)


def test_fitted_mechanisms_need_no_in_house_rows():
    fitted = [Candidate(str(k), codebook(k).fit(GIVEN["inhouse"], schema=SCHEMA)) for k in (2, 4)]
    given = {name: GIVEN[name] for name in ("people", "voters")}
    found = search(fitted, **given, epsilon=3)  # at another ε than they were made for
    assert found.mechanism.epsilon == 3


def test_progress_is_told():
    seen = []
    search(candidates(2, 3), **GIVEN, progress=lambda *step: seen.append(step))
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["fit", "report", "learn", "vote"]
    for stage in stages:
        steps = [(done, total) for name, done, total in seen if name == stage]
        total = 3 if stage == "vote" else 2
        assert steps == [(done, total) for done in range(total + 1)]


def test_names_must_tell_candidates_apart():
    for listed in ([], [Candidate("a", codebook(2)), Candidate("a", codebook(3))]):
        with pytest.raises(InvalidParameter, match="distinct names"):
            search(listed, **GIVEN)


def test_tables_of_any_kind():
    schema = TableSchema(
        (Continuous("x", -10, 10, outside="clip"), Continuous("y", -10, 10, outside="clip"))
    )

    def table(given):
        rows, labels = given
        return {"x": rows[:, 0], "y": rows[:, 1]}, labels

    kinds = {"mapping": lambda rows: rows, "arrow": pa.table}
    for make in kinds.values():
        changed = {
            name: (make(rows), labels)
            for name, (rows, labels) in ((n, table(GIVEN[n])) for n in ("people", "voters"))
        }
        inhouse = table((GIVEN["inhouse"], None))[0]
        found = search(
            candidates(3, 4),
            **{**GIVEN, **changed, "inhouse": inhouse, "fitting": {"schema": schema}},
        )
        assert sum(one.reports for one in found.candidates) == 1200
