"""A variational mechanism with a central guarantee: what trains, on what, and what is proved."""

import math

import numpy as np
import pytest
import torch

import tacit
from tacit.central.training import probing
from tacit.central.training.noise import Noise
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local import inhouse
from tacit.local.inference.join import JoinClassifier
from tacit.local.inhouse import COUNTED, PUBLIC
from tacit.local.learned import private_variational, synthetic, variational
from tacit.local.learned.encoders import to_arrays
from tacit.local.learned.vlm import VLM
from tacit.local.reports import Reports
from tacit.privacy import artifact, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.errors import InvalidData, InvalidParameter
from tacit.privacy.guarantees import Adjacency, ApproxDP, NotPrivate, Unproven
from tacit.privacy.randomness import Seeded

torch.set_num_threads(1)

CENTRAL = {"central_epsilon": 5, "central_delta": 1e-5}
PICTURES = ArraySchema(36, 0, 255, image=(6, 6))
ALL = {"epochs": 3, "batch_size": 10**6}  # every row in every step: accounted in no time


def pictures(count=60, seed=0):
    return np.random.default_rng((seed, 8)).integers(0, 256, (count, 6, 6)).astype(np.uint8)


def made(**settings):
    return VLM(epsilon=4, latent_dimension=3, classes=2, **{**CENTRAL, **settings})


@pytest.fixture(autouse=True)
def _few_strokes(monkeypatch):
    monkeypatch.setattr(private_variational, "_STROKES", 64)
    monkeypatch.setattr(private_variational, "_STROKE_STEPS", 2)


def joint():
    return made().fit(pictures(), **ALL)


@pytest.fixture
def private(_few_strokes):
    return joint()


def weights(mechanism, name):
    return to_arrays(getattr(mechanism, f"{name}_"))


def same(first, second):
    return all(np.array_equal(first[name], second[name]) for name in first)


# --- what is promised ----------------------------------------------------------------------------


def test_both_networks_carry_the_guarantee(private, tmp_path):
    found = private.inhouse_.guarantee
    assert isinstance(found, ApproxDP)
    assert found.adjacency is Adjacency.ZERO_OUT
    assert found.delta == 1e-5
    assert 0.95 * 5 < found.epsilon <= 5 * (1 + 1e-9)
    assert private.inhouse_.may_leave
    assert private.losses_ == []
    for application in inhouse.APPLICATIONS:
        for level in inhouse.LEVELS:
            assert private.shared(application, level) is private
    loaded = tacit.load(private.export(tmp_path / "m"))
    assert loaded.inhouse_ == private.inhouse_
    assert loaded.inhouse_.certificate.to_json() == private.inhouse_.certificate.to_json()
    assert artifact.fingerprint(loaded) == artifact.fingerprint(private)
    assert np.array_equal(loaded.encode(pictures()), private.encode(pictures()))
    for other in (private.at(1), private.on("cpu")):
        assert other.inhouse_ is private.inhouse_


def test_the_certificate_is_about_what_dp_adam_ran(private):
    certificate = private.inhouse_.certificate
    certificate.verify()
    event = certificate.event
    assert isinstance(event, events.Repeated)
    assert event.count == 3
    assert isinstance(event.event, events.PoissonSampled)
    assert event.event.probability == 1
    assert isinstance(event.event.event, events.Gaussian)
    assert guarantee_of(event, 1e-5) == private.inhouse_.guarantee
    assert COUNTED in certificate.not_protected
    assert any("floating-point Gaussian" in line for line in certificate.assumptions)
    assert private_variational.PUBLIC_START not in certificate.assumptions  # strokes are nobody's
    assert not certificate.seeded


def test_seeded_noise_is_marked_and_stays_inside(tmp_path):
    seeded = made().fit(pictures(), public_rows=None, rng=Seeded(1), **ALL)
    assert seeded.inhouse_.certificate.seeded
    assert seeded.inhouse_.proved
    with pytest.raises(InvalidParameter, match="seeded generator"):
        seeded.export(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.heavy
def test_noise_of_the_operating_system_is_not_marked():
    one, two = (made().fit(pictures(), public_rows=None, epochs=1, batch_size=60) for _ in "ab")
    assert not one.inhouse_.certificate.seeded
    for name in ("encoder", "decoder"):
        assert not same(weights(one, name), weights(two, name))


def test_the_people_who_report_are_told(private):
    reports = private.release(pictures(5), np.zeros(5, int), rng=Seeded(0))
    assert private.inhouse_.sentence in reports.certificate.not_protected
    assert "(5, 1e-05)-DP" in private.inhouse_.sentence


# --- all that is saved comes from the noisy sums -------------------------------------------------


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


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"public_rows": None},
        {"public_rows": pictures(20, 5)},
        {"trained": "encoder"},
        {"trained": "decoder", "public_rows": None},
    ],
    ids=["synthetic", "random", "public", "encoder", "decoder"],
)
def test_other_rows_with_the_same_noisy_sums_give_the_same_networks(options, record):
    def fit(seed):
        mechanism = made(pretraining_epsilon="learned")
        return mechanism.fit(pictures(seed=seed), rng=Seeded(1), **ALL, **options)

    first, tape = record(lambda: fit(0))
    second, other = record(lambda: fit(1), tape)
    assert len(tape) == len(other) == 3
    assert not torch.equal(tape[0][0], other[0][0])
    for name, array in first.parts()[1].items():
        assert np.array_equal(array, second.parts()[1][name]), name
    assert first.spread_ == second.spread_
    parameters, again = first.parts()[0], second.parts()[0]
    assert {**parameters, "inhouse": None} == {**again, "inhouse": None}


@pytest.mark.parametrize("trained", ["encoder", "decoder"])
def test_the_papers_two_stages_do_not(trained, record):
    """Why nothing is proved of them: the fixed network comes from the rows themselves."""

    def fit(seed):
        mechanism = made().fit(
            pictures(seed=seed), rng=Seeded(1), two_stage="paper", trained=trained, **ALL
        )
        return mechanism

    first, tape = record(lambda: fit(0))
    second, _ = record(lambda: fit(1), tape)
    fixed = {"encoder": "decoder", "decoder": "encoder"}[trained]
    assert same(weights(first, trained), weights(second, trained))
    assert not same(weights(first, fixed), weights(second, fixed))


@pytest.mark.heavy
def test_one_row_moves_the_sums_by_the_clip_norm_and_in_two_stages_by_more(record, monkeypatch):
    """The sensitivity that DP-Adam is calibrated to holds for joint training, and not for theirs.

    The draws of the training's own noise are left out, so that both runs can be compared.
    """
    monkeypatch.setattr(
        variational, "standard_noise", lambda like, noise, generator: torch.zeros_like(like)
    )

    def away(**options):
        rows = pictures(60)
        more = np.concatenate([rows, np.full((1, 6, 6), 255, np.uint8)])
        settings = {"learning_rate": 1e-2, "rng": Seeded(1), **ALL, **options}
        _, tape = record(lambda: made().fit(rows, **settings))
        _, other = record(lambda: made().fit(more, **settings), tape)
        return [float((b[0] - a[0]).norm()) for a, b in zip(tape, other, strict=True)]

    for options in ({}, {"public_rows": None}, {"trained": "encoder"}, {"trained": "decoder"}):
        steps = away(**options)
        assert len(steps) == 3
        assert max(steps) <= 1 + 1e-4, options
        assert max(steps) > 0.01, options
    assert max(away(two_stage="paper")) > 1.5


# --- where it starts -----------------------------------------------------------------------------


def started(seed=0, rows=None, **settings):
    """Networks as they are before they see an in-house row, trained on other rows if given."""
    mechanism = made(**settings)
    objective = mechanism._objective(PICTURES, seed, "cpu")
    if rows is not None:
        passes = max(1, -(-2 * 128 // len(rows)))
        training = variational.Training(epochs=passes)
        variational.train(objective, rows, training, seed=seed, device="cpu")
    return {name: to_arrays(getattr(objective, name)) for name in ("encoder", "decoder")}


@pytest.mark.quick(4)
@pytest.mark.parametrize("start", ["random", "synthetic", "public"])
@pytest.mark.parametrize("trained", ["encoder", "decoder"])
def test_the_other_network_stays_as_it_started(trained, start):
    public = pictures(20, seed=7)
    public_rows = {"random": None, "synthetic": "synthetic", "public": public}[start]
    rows = {
        "random": lambda: None,
        "synthetic": lambda: private_variational.start_rows(PICTURES, "synthetic", 0),
        "public": lambda: PICTURES.rows(public),
    }[start]()
    before = started(rows=rows)
    mechanism = made().fit(pictures(), trained=trained, public_rows=public_rows, **ALL)
    other = {"encoder": "decoder", "decoder": "encoder"}[trained]
    assert same(weights(mechanism, other), before[other])
    assert not same(weights(mechanism, trained), before[trained])
    assert mechanism.inhouse_.proved
    said = private_variational.PUBLIC_START in mechanism.inhouse_.certificate.assumptions
    assert said == (start == "public")
    if start != "random":  # it was moved by the public rows
        assert not same(before[other], started()[other])


def test_strokes_are_the_start_for_images_alone():
    drawn = private_variational.start_rows(PICTURES, "synthetic", 3)
    assert np.array_equal(drawn.numbers, synthetic.strokes(64, (6, 6), 3))
    assert private_variational.start_rows(ArraySchema(36, 0, 1), "synthetic", 0) is None
    assert private_variational.start_rows(PICTURES, None, 0) is None
    table = TableSchema((Continuous("a", 0, 1), Categorical("b", ("x", "y"))))
    assert private_variational.start_rows(table, "synthetic", 0) is None


def test_both_networks_move(private):
    before = started(rows=private_variational.start_rows(PICTURES, "synthetic", 0))
    for name in ("encoder", "decoder"):
        assert not same(weights(private, name), before[name])


def test_public_in_house_rows_are_said_to_be():
    mechanism = made().fit(pictures(), public_rows=None, inhouse_public=True, **ALL)
    assert mechanism.inhouse_.public
    assert mechanism.inhouse_.proved
    assert PUBLIC in mechanism.inhouse_.certificate.not_protected


# --- two stages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trained", "fixed"), [(None, "decoder"), ("encoder", "decoder"), ("decoder", "encoder")]
)
def test_nothing_is_proved_of_the_papers_way(trained, fixed, tmp_path):
    mechanism = made().fit(pictures(), two_stage="paper", trained=trained, **ALL)
    found = mechanism.inhouse_.guarantee
    assert isinstance(found, Unproven)
    assert f"fitted the {fixed} to every in-house row without noise" in found.reason
    assert mechanism.losses_ == []
    for application in ("collection", "novel-class", "validation"):
        with pytest.raises(InvalidParameter, match="without noise") as caught:
            mechanism.export(tmp_path / "m", application)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidParameter, match="decoder"):
        mechanism.export(tmp_path / "m", "join", "feature")
    assert list(tmp_path.iterdir()) == []
    assert isinstance(tacit.load(mechanism.save(tmp_path / "in")).inhouse_.guarantee, Unproven)


# --- the learned spread --------------------------------------------------------------------------


def test_a_learned_spread_is_part_of_what_is_trained():
    settings = {"pretraining_epsilon": "learned"}
    both = made(**settings).fit(pictures(), public_rows=None, **ALL)
    assert both.spread_ != pytest.approx(variational.PRIOR_SCALE, abs=1e-9)
    assert both.inhouse_.proved
    one = made(**settings).fit(pictures(), public_rows=None, trained="encoder", **ALL)
    assert one.spread_ == pytest.approx(variational.PRIOR_SCALE, rel=1e-6)
    fixed = made().fit(pictures(), public_rows=None, **ALL)
    assert fixed.spread_ == pytest.approx(2 * 5 / 15, rel=1e-6)


# --- other rows, other noise ---------------------------------------------------------------------


@pytest.mark.heavy
def test_tables_and_gaussian_noise():
    table = TableSchema((Continuous("a", 0, 1), Categorical("b", ("x", "y"))))
    rng = np.random.default_rng(0)
    data = {"a": rng.random(50), "b": rng.choice(["x", "y"], 50)}
    mechanism = made(noise="gaussian", delta=1e-6).fit(data, schema=table, **ALL)
    assert 4.75 < mechanism.inhouse_.guarantee.epsilon <= 5 * (1 + 1e-9)
    assert mechanism.inhouse_.guarantee.delta == 1e-5
    assert mechanism.channel(False).guarantee.delta == 1e-6
    assert len(mechanism.release(data)) == 50


def test_progress_is_told_no_loss():
    told = []
    made().fit(pictures(), public_rows=None, progress=lambda *said: told.append(said), **ALL)
    assert [said[:2] for said in told] == [(1, 3), (2, 3), (3, 3)]
    assert all(math.isnan(said[2]) for said in told)


# --- without a guarantee, and for a partner ------------------------------------------------------


@pytest.fixture(scope="module")
def plain():
    mechanism = VLM(epsilon=8, latent_dimension=3, classes=2, pretraining_epsilon="learned")
    given = ArraySchema(36, -1234.5, 9876.25, image=(6, 6), outside="clip")
    return mechanism.fit(pictures().reshape(60, 36) * 30.0, schema=given, epochs=1)


@pytest.mark.parametrize("level", inhouse.LEVELS)
@pytest.mark.parametrize("application", inhouse.APPLICATIONS)
def test_what_is_not_protected_stays_inside(plain, application, level, tmp_path):
    assert isinstance(plain.inhouse_.guarantee, NotPrivate)
    needed = inhouse.requirements(application, level)
    if not needed:
        alone = tacit.load(plain.export(tmp_path / "m", application, level))
        assert alone.parts()[1] == {}
        return
    with pytest.raises(InvalidParameter, match=f"export: this .* it; {' and '.join(needed)}"):
        plain.export(tmp_path / "m", application, level)
    assert list(tmp_path.iterdir()) == []


def test_a_partner_gets_the_channel_alone(plain, tmp_path):
    folder = plain.export(tmp_path / "partner", "join", "latent")
    assert {path.name for path in folder.iterdir()} == {"mechanism.json", "weights.safetensors"}
    found = b"".join(path.read_bytes() for path in folder.iterdir())
    inside = plain.save(tmp_path / "inside")
    whole = b"".join(path.read_bytes() for path in inside.iterdir())
    lines = [line for array in plain.parts()[1].values() for line in np.atleast_2d(array)]
    marks = [b"-1234.5", b"9876.25", b"encoder.", b"decoder.", repr(plain.spread_).encode()]
    for mark in [*marks, *(line.tobytes() for line in lines)]:
        assert mark in whole  # else this test could not fail
        assert mark not in found
    alone = tacit.load(folder)
    for labelled in (False, True):
        assert alone.channel(labelled).event == plain.channel(labelled).event
    assert alone.channel().assumptions == plain.channel().assumptions  # the grid, which is public
    for call in (alone.encode, alone.release, alone.clean_features):
        with pytest.raises(InvalidParameter, match="must hold its encoder") as caught:
            call(pictures())
        assert "\n" not in str(caught.value)
    assert alone.shared("join").parts()[1] == {}


def test_nor_does_the_copy_in_memory_hold_anything(plain):
    kept = vars(plain.shared("join"))
    assert plain.losses_
    assert kept["losses_"] == []
    held = [value for value in kept.values() if value is not None]
    assert not any(isinstance(value, torch.nn.Module | ArraySchema) for value in held)
    assert not any(getattr(value, "schema", None) is plain.schema for value in held)
    assert plain.spread_ not in held


def test_a_partner_cannot_decode_what_has_no_decoder(plain):
    reports = plain.release(pictures() * 30.0, rng=Seeded(0)).shared()
    with pytest.raises(InvalidParameter, match="must hold its"):
        reports.mechanism.released_features(reports, level="feature")


def test_two_in_house_data_sets_have_the_same_channel(plain):
    """Whatever was learned: but for the certificate, nothing tells one from the other."""
    mechanism = VLM(epsilon=8, latent_dimension=3, classes=2, pretraining_epsilon="learned")
    other = mechanism.fit(
        pictures(40, 9).reshape(40, 36) * 7.0, schema=ArraySchema(36, 0, 2000.0), epochs=2
    )
    assert other.spread_ != plain.spread_
    first, second = (one.shared("join").parts()[0] for one in (plain, other))
    assert {**first, "inhouse": None} == {**second, "inhouse": None}


def test_a_partner_learns_from_reports(plain, tmp_path):
    data = pictures(300, 3) * 30.0
    labels = np.arange(300) % 2
    reports = plain.release(data, rng=Seeded(0))
    path = reports.shared().write(tmp_path / "reports.parquet")
    found = path.read_bytes()
    assert b"9876.25" in reports.write(tmp_path / "whole.parquet").read_bytes()
    assert b"9876.25" not in found
    received = Reports.read(path)
    clean = np.random.default_rng(0).random((300, 1)) + labels[:, None]
    model = JoinClassifier(hidden=()).fit(received, labels, clean=clean)
    assert model.score(received, labels, clean=clean) > 0.9


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"two_stage": "thesis"}, "two_stage must be one of paper"),
        ({"trained": "neither"}, "trained must be one of both, encoder, decoder"),
        ({"two_stage": "paper", "trained": "both"}, "trained must be encoder or decoder in two"),
        ({"public_rows": "strokes"}, "public_rows must be one of synthetic"),
        ({"epochs": 0}, "epochs must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"learning_rate": -1}, "learning_rate must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_settings_are_refused(options, named):
    with pytest.raises(InvalidParameter, match=named) as caught:
        made().fit(pictures(), **{**ALL, **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{"two_stage": "paper"}, {"trained": "encoder"}])
def test_what_needs_a_central_budget(options):
    with pytest.raises(InvalidParameter, match="central_epsilon must be given"):
        VLM(epsilon=4).fit(pictures(), epochs=1, **options)


def test_both_or_neither():
    for one, missing in (("central_epsilon", "delta"), ("central_delta", "epsilon")):
        with pytest.raises(InvalidParameter, match=f"VLM: central_{missing} must be given"):
            VLM(epsilon=4, **{one: CENTRAL[one]})


def test_bounds_must_be_declared():
    with pytest.raises(InvalidParameter, match=r"VLM.fit: schema must be given") as caught:
        made().fit(pictures() / 255, **ALL)
    assert "\n" not in str(caught.value)


def test_public_rows_must_fit_the_schema():
    with pytest.raises(InvalidData, match="rows must be an array"):
        made().fit(pictures(), public_rows=np.zeros((5, 7), np.uint8), **ALL)


@pytest.mark.parametrize("likelihood", ["logits", "bernoulli"])
def test_training_is_book_kept(likelihood, monkeypatch):
    """Rows beyond their bounds have no finite likelihood: that must not send it the long way."""
    kept = []
    honest = probing.clipper
    monkeypatch.setattr(probing, "clipper", lambda *given: kept.append(honest(*given)) or kept[-1])
    made(likelihood=likelihood).fit(pictures(), rng=Seeded(1), **ALL)
    assert [one.book_kept for one in kept] == [True]
