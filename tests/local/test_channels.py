"""Channels of reports: one protocol for all learned mechanisms."""

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.inference import search
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.local.learned.vlm import VLM
from tacit.local.reports import Reports
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.mechanisms import Channel, Mechanism
from tacit.privacy.randomness import Seeded

ROWS = np.random.default_rng(0).random((60, 3))
LABELS = np.arange(60) % 2
GUARANTEE = "2-DP (local, any-two-inputs, unit: record)"
TABLE = TableSchema(
    (Continuous("n", 0, 1), Categorical("c", ("x", "y")), Categorical("single", ("z",)))
)


@pytest.fixture(scope="module")
def mechanisms():
    given = {"epsilon": 2, "classes": 2}
    unit = ArraySchema(3, 0.0, 1.0)
    return [
        Codebook(codewords=4, **given).fit(ROWS),
        VLM(latent_dimension=3, **given).fit(ROWS, epochs=1),
        VLM(noise="gaussian", delta=1e-6, **given).fit(ROWS, epochs=1),
        Direct(**given).fit(None, schema=unit),
    ]


def test_a_learned_mechanism_is_a_mechanism_and_its_channel_a_channel(mechanisms):
    for mechanism in mechanisms:
        assert isinstance(mechanism, Mechanism)
        assert isinstance(mechanism.guarantee, Guarantee)
        assert mechanism.guarantee == mechanism.channel(True).guarantee
        assert mechanism.event == mechanism.channel().event == mechanism.channel(True).event
        for labelled in (False, True):
            channel = mechanism.channel(labelled)
            assert isinstance(channel, Channel)
            assert channel is mechanism.channel(labelled)
            assert channel.labelled == labelled
            assert channel.guarantee == guarantee_of(channel.event, channel.delta)


def test_without_classes_the_main_channel_has_no_label():
    mechanism = Direct(epsilon=1).fit(None, schema=ArraySchema(2, 0.0, 1.0))
    assert mechanism.guarantee == mechanism.channel(False).guarantee
    with pytest.raises(InvalidParameter, match="classes must be declared"):
        mechanism.channel(True)


def test_before_fit_there_is_no_guarantee():
    mechanism = Codebook(epsilon=1, codewords=4)
    assert not isinstance(mechanism, Mechanism)
    with pytest.raises(InvalidParameter, match="must be fitted first"):
        _ = mechanism.guarantee
    assert repr(mechanism) == "Codebook(epsilon=1, codewords=4; not fitted)"


def test_channels_are_frozen(mechanisms):
    for mechanism in mechanisms:
        channel = mechanism.channel()
        with pytest.raises(FrozenInstanceError):
            setattr(channel, fields(channel)[0].name, None)
        assert hash(channel) == hash(mechanism.at(mechanism.epsilon).channel())


@pytest.mark.parametrize("labelled", [False, True])
def test_the_channel_releases_what_the_mechanism_releases(mechanisms, labelled):
    for mechanism in mechanisms:
        reports = mechanism.release(ROWS, LABELS if labelled else None, Seeded(7))
        channel = mechanism.channel(labelled)
        codes = LABELS if labelled else None
        raw = channel.combine(mechanism.encode(ROWS), codes)
        again = channel.release(raw, Seeded(7))
        assert set(again) == set(reports.columns)
        assert all(np.array_equal(again[name], reports.columns[name]) for name in again)
        stated = mechanism.log_prob(reports.columns, mechanism.encode(ROWS), codes)
        assert np.array_equal(channel.log_prob(reports.columns, raw), stated)


def test_raw_integers_out_of_range_are_covered_by_the_guarantee(mechanisms):
    """A latent outside the ball, or a number outside its range, has the law of a clipped one."""
    for mechanism in mechanisms[1:]:
        channel = mechanism.channel(False)
        width = mechanism.encode(ROWS[:1]).shape[1]
        columns = mechanism.release(ROWS[:1], rng=Seeded(0)).columns
        far, near = np.full((1, width), 2**40), np.full((1, width), 2**30)
        assert channel.log_prob(columns, far) == pytest.approx(channel.log_prob(columns, near))


def test_categories_out_of_range_and_rows_of_another_width_are_refused(mechanisms):
    channel = Direct(epsilon=1).fit(None, schema=TABLE).channel()
    with pytest.raises(InvalidData, match="codes of declared values"):
        channel.release([[0, 0, 1]])  # a column with one value has no flip to hide another one
    for mechanism in mechanisms[1:]:
        with pytest.raises(InvalidData, match="integers each"):
            mechanism.channel(True).release(mechanism.encode(ROWS))


def test_reports_hold_a_channel_of_their_own_mechanism(mechanisms):
    for mechanism in mechanisms:
        reports = mechanism.release(ROWS, LABELS, Seeded(0))
        assert reports.channel is mechanism.channel(True)
        assert reports[:5].channel is reports.channel
        with pytest.raises(InvalidData, match="their mechanism's own"):
            Reports(mechanism, dict(reports.columns), mechanism.at(1).channel(True))
        with pytest.raises(InvalidData):
            Reports(mechanism, dict(reports.columns), mechanism.channel(False))


def test_a_search_states_what_its_channels_assume(mechanisms):
    vlm = mechanisms[1]
    (sentence,) = vlm.channel(True).assumptions
    issued = search._certify(vlm.event, None, vlm.epsilon, [vlm], False, Seeded(0))
    assert sentence in issued.assumptions
    assert sentence in vlm.certificate.assumptions


def test_reprs_show_parameters_and_guarantee_in_one_line(mechanisms):
    for mechanism in mechanisms:
        reports = mechanism.release(ROWS[:7], LABELS[:7], Seeded(0))
        for thing in (mechanism, mechanism.channel(), reports, mechanism.certificate):
            text = repr(thing)
            assert text.startswith(f"{type(thing).__name__}(")
            assert text.endswith(f"; {thing.guarantee})")
            assert "\n" not in text
    assert repr(mechanisms[0]) == f"Codebook(epsilon=2, classes=2, codewords=4; {GUARANTEE})"
    assert repr(mechanisms[0].release(ROWS[:7])) == (
        "Reports(reports=7, mechanism='codebook', labelled=False, seeded=False; " + GUARANTEE + ")"
    )
