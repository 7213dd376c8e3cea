"""What a hostile reader tried on collections and refits: each attempt, and why it fails now."""

import numpy as np
import pytest

import tacit
from tacit.data.schema import ArraySchema
from tacit.local.channels import PartitionedChannel
from tacit.local.collection import Collection
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.inhouse import Protection
from tacit.local.learned.partitions import Partitions
from tacit.privacy import artifact, errors, events
from tacit.privacy.mechanisms import SubsetSelection
from tacit.privacy.randomness import Seeded

pytestmark = pytest.mark.filterwarnings("ignore::tacit.local.inference.noise_aware.ShiftWarning")
OPTIONS = {"epsilon": 4, "people": 400, "classes": 2}


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(900, 5))


def labels(rows):
    return (rows[:, 0] > 0).astype(int)


def reported(mechanism, rows, seed=None):
    return mechanism.release(rows, labels(rows), None if seed is None else Seeded(seed))


MECHANISMS = {
    "partitions": lambda: Partitions(**OPTIONS),
    "codebook": lambda: tacit.Codebook(**OPTIONS),
    "direct": lambda: tacit.Direct(epsilon=4, classes=2),
}


@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_refused_refit_does_not_make_private_rows_public(kind, rows, tmp_path):
    """The second fit states that its rows are public, and fails: the first rows stay inside."""
    made = MECHANISMS[kind]().fit(rows[:300])
    with pytest.raises(errors.TacitError):
        made.fit(np.full((3, 5), np.nan), inhouse_public=True)
    assert not made.inhouse_.public
    with pytest.raises(errors.TacitError):
        made.export(tmp_path / "people")


@pytest.mark.parametrize("kind", ["proportions", "student"])
def test_a_refused_refit_does_not_state_another_epsilon(kind, rows, tmp_path):
    maker = Partitions if kind == "proportions" else tacit.Codebook
    model_kind = ProportionsClassifier if kind == "proportions" else tacit.StudentClassifier
    mechanism = maker(**OPTIONS).fit(rows[:300])
    model = model_kind(inhouse=rows[:300]).fit(reported(mechanism, rows[300:700]))
    assert "4-DP" in str(model.guarantee_)
    model.set_params(inhouse=np.zeros((5, 99)), inhouse_public=True)
    with pytest.raises(errors.TacitError):
        model.fit(reported(mechanism.at(0.1), rows[300:700]))
    with pytest.raises(Exception, match=r"not fitted|attribute|must") as caught:
        model.export(tmp_path / "model")
    assert not (tmp_path / "model").exists(), caught.value


def test_rounds_carry_the_protection_of_every_row_that_they_follow(rows, tmp_path):
    """Cells of a public collection that follow private rows are not handed out."""
    collection = Collection(**OPTIONS, rounds=2).fit(rows[:300], inhouse_public=True)
    reports = collection.release(rows[300:600], labels(rows[300:600]))
    private = ProportionsClassifier(inhouse=rows[600:]).fit(reports)
    adapted = collection.adapt(private)
    assert not adapted.mechanism_.inhouse_.may_leave
    with pytest.raises(errors.InvalidParameter, match="in-house rows"):
        adapted.export(tmp_path / "people")
    public = collection.learn(reports)
    with pytest.raises(errors.InvalidParameter, match="in-house rows"):
        public.next_round(rows[600:]).export(tmp_path / "others")
    assert tacit.load(collection.adapt(public).export(tmp_path / "fine")).kind == "partitions"


def test_models_of_other_collections_do_not_adapt_this_one(rows):
    first = Collection(**OPTIONS, rounds=2).fit(rows[:300])
    second = Collection(**OPTIONS, rounds=2).fit(rows[300:600])
    model = second.learn(second.release(rows[600:], labels(rows[600:])))
    with pytest.raises(errors.InvalidParameter, match="of this round"):
        first.adapt(model)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_seeded_round_marks_the_model_and_what_follows(rows, tmp_path, order):
    collection = Collection(**OPTIONS, rounds=2).fit(rows[:300], inhouse_public=True)
    rounds = [reported(collection.mechanism_, rows[300:600], 0)]
    rounds.append(reported(collection.mechanism_, rows[600:]))
    model = collection.learn([rounds[index] for index in order])
    assert model.certificate.seeded
    assert tacit.load(model.save(tmp_path / "model")).certificate.seeded
    adapted = collection.adapt(model)
    with pytest.raises(errors.InvalidParameter, match="seeded"):
        adapted.export(tmp_path / "people")
    again = artifact.unpack(artifact.pack(adapted.mechanism_))
    with pytest.raises(errors.InvalidParameter, match="seeded"):
        again.export(tmp_path / "people")


def test_a_stored_mechanism_cannot_claim_noise_that_it_never_had(rows):
    made = Partitions(**OPTIONS).fit(rows[:300])
    parameters, arrays = made.parts()
    event = events.Gaussian(sigma=100.0, l2_sensitivity=1.0, adjacency="zero-out", unit="record")
    claimed = Protection.of(event, 1e-6)
    with pytest.raises(errors.InvalidParameter, match="cells have no noise"):
        Partitions.from_parts({**parameters, "inhouse": claimed.to_plain()}, arrays)


def test_refusals_of_a_channel_do_not_depend_on_the_draw():
    channel = PartitionedChannel(law=SubsetSelection(categories=4, epsilon=1), partitions=8)
    raw = np.zeros((1, 8), np.int64)
    raw[0, 3] = 4
    for _ in range(40):
        with pytest.raises(errors.InvalidData, match="declared cells"):
            channel.release(raw)


@pytest.mark.parametrize("blocks", [[[50, -3], [-3, 8]], [[0, 5], [3, 8]], []])
def test_blocks_that_overlap_are_refused(rows, blocks):
    parameters, arrays = Partitions(**OPTIONS).fit(rows[:300]).parts()
    with pytest.raises(errors.TacitError, match="fit each other"):
        Partitions.from_parts({**parameters, "blocks": blocks}, arrays)


class Fewer(events.Repeated):
    """A composition that hides what it repeats."""


def test_compositions_that_are_not_the_librarys_have_no_guarantee():
    draw = SubsetSelection(categories=4, epsilon=1).event
    honest = events.Repeated(draw, 3)
    hidden = object.__new__(Fewer)
    for name, value in vars(honest).items():
        object.__setattr__(hidden, name, value)
    object.__setattr__(hidden, "count", 0)
    with pytest.raises(errors.InvalidParameter, match="event must be one of"):
        tacit.guarantee_of(hidden)
    nested = object.__new__(events.Composed)
    object.__setattr__(nested, "events", (hidden, draw))
    with pytest.raises(errors.InvalidParameter, match="event must be one of"):
        tacit.guarantee_of(nested)


def test_rows_of_another_width_leave_a_direct_mechanism_unfitted():
    made = tacit.Direct(epsilon=1, classes=2)
    with pytest.raises(errors.TacitError):
        made.fit(None, schema=ArraySchema(0, 0, 1))
