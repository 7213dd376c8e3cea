"""What protects the in-house rows, what may leave the house, and what goes with it."""

import copy
import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone

import tacit
from tacit.data.schema import ArraySchema
from tacit.local import inhouse
from tacit.local.inference.join import JoinClassifier
from tacit.local.inference.noise_aware import NoiseAwareClassifier
from tacit.local.inference.novel import NovelClassClassifier
from tacit.local.inhouse import COUNTED, FITTED, PUBLIC, TAUGHT, Protection, Target
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.local.reports import Reports
from tacit.privacy import artifact, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.certificate import Certificate
from tacit.privacy.errors import CertificateError, InvalidData, InvalidParameter
from tacit.privacy.guarantees import Adjacency, ApproxDP, NotPrivate, PureDP, Unit, Unproven
from tacit.privacy.randomness import Seeded

LEVELS = ("latent", "feature")
CENTRAL = {"central_epsilon": 5, "central_delta": 1e-5}
BOUNDS = ArraySchema(3, -1234.5, 9876.25)  # numbers that can be found again in a file


def gaussian(multiplier, adjacency=Adjacency.ZERO_OUT):
    return events.Gaussian(Fraction(1), Fraction(multiplier), adjacency=adjacency, unit=Unit.RECORD)


def rows(count=400, seed=0):
    """Two kinds of rows, so that codewords have something to hold on to."""
    rng = np.random.default_rng((seed, 5))
    kind = rng.integers(0, 2, count)
    near = np.clip(rng.normal(0.3 + 0.4 * kind[:, None], 0.1, (count, 3)), 0, 1)
    return BOUNDS.lower + near * (BOUNDS.upper - BOUNDS.lower), kind


INHOUSE = rows()[0]


def codebook(public=False, **settings):
    made = Codebook(epsilon=4, codewords=4, classes=2, **settings)
    return made.fit(INHOUSE, schema=BOUNDS, inhouse_public=public)


@pytest.fixture(scope="module")
def plain():
    return codebook()


@pytest.fixture(scope="module")
def public():
    return codebook(public=True)


@pytest.fixture(scope="module")
def private():
    return codebook(**CENTRAL)


# --- what each application needs outside ---------------------------------------------------------


@pytest.mark.parametrize(
    ("application", "level", "needed"),
    [
        ("collection", "latent", ("encoder",)),
        ("collection", "feature", ("encoder",)),
        ("novel-class", "latent", ("encoder",)),
        ("novel-class", "feature", ("encoder",)),
        ("join", "latent", ()),
        ("join", "feature", ("decoder",)),
        ("validation", "latent", ("encoder", "classifier")),
        ("validation", "feature", ("encoder", "decoder", "classifier")),
    ],
)
def test_the_papers_table_and_its_missing_row(application, level, needed):
    assert inhouse.requirements(application, level) == needed
    if level == "latent":
        assert inhouse.requirements(application) == needed


def test_the_table_is_complete():
    assert inhouse.APPLICATIONS == ("collection", "novel-class", "join", "validation")
    assert inhouse.LEVELS == LEVELS
    for application in inhouse.APPLICATIONS:
        for level in inhouse.LEVELS:
            assert isinstance(inhouse.requirements(application, level), tuple)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("collect", "latent"), "application must be one of collection, novel-class, join, val"),
        (("", "latent"), "application must be one of"),
        ((None, "latent"), "application must be one of"),
        (("join", "features"), "level must be one of latent, feature"),
        (("join", None), "level must be one of"),
    ],
)
def test_unknown_words_are_refused(words, named):
    with pytest.raises(InvalidParameter, match=named):
        inhouse.requirements(*words)


# --- Protection ----------------------------------------------------------------------------------


def test_nothing_promised():
    made = Protection.none()
    assert made.guarantee == NotPrivate(adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)
    assert (made.proved, made.may_leave, made.public, made.delta) == (False, False, False, 0.0)
    assert PUBLIC not in made.certificate.not_protected
    assert made.sentence.endswith("are not protected: what it knows of them has no noise.")


def test_public_rows_need_no_promise():
    for made in (Protection.none(public=True), Protection.unproven("a reason", public=True)):
        assert not made.proved
        assert made.may_leave
        assert PUBLIC in made.certificate.not_protected
        assert made.sentence.endswith("fitted on: their owner states that they are public.")
        made.must_leave("anything")


def test_unproven_has_its_reason():
    made = Protection.unproven("the proof has a hole")
    assert isinstance(made.guarantee, Unproven)
    assert made.guarantee.reason == "the proof has a hole"
    assert (made.proved, made.may_leave) == (False, False)
    assert "the proof has a hole" in made.sentence


def test_rows_that_were_not_looked_at():
    made = Protection.untouched()
    nothing = PureDP(epsilon=0.0, adjacency=Adjacency.ZERO_OUT, unit=Unit.RECORD)
    assert made.guarantee == nothing
    assert (made.proved, made.may_leave, made.public) == (True, True, False)
    assert made.sentence.endswith("need no protection: it does not depend on them.")


@pytest.mark.parametrize("public", [False, True])
def test_of_an_event(public):
    event = gaussian(2)
    made = Protection.of(event, 1e-5, assumptions=["Said."], public=public)
    assert made.guarantee == guarantee_of(event, 1e-5)
    assert isinstance(made.guarantee, ApproxDP)
    assert made.delta == 1e-5
    assert (made.proved, made.may_leave, made.public) == (True, True, public)
    made.certificate.verify()
    assert made.certificate.event == event
    assert "Said." in made.certificate.assumptions
    assert COUNTED in made.certificate.not_protected
    assert (PUBLIC in made.certificate.not_protected) == public
    assert not made.certificate.seeded
    if not public:
        assert f"beyond {made.guarantee}: see the certificate" in made.sentence


def test_of_a_seeded_event_is_marked():
    made = Protection.of(gaussian(2), 1e-5, seeded=True)
    assert made.certificate.seeded
    assert "SEEDED" in made.certificate.explain()
    assert not any("operating system" in line for line in made.certificate.assumptions)


def test_what_was_seeded_stays_inside():
    """Whoever knows the seed can undo the noise; what is public has nothing to undo."""
    made = Protection.of(gaussian(2), 1e-5, seeded=True)
    assert made.proved
    assert not made.may_leave
    with pytest.raises(InvalidParameter, match="noise from the operating system") as caught:
        made.must_leave("encoder")
    assert "\n" not in str(caught.value)
    assert Protection.of(gaussian(2), 1e-5, seeded=True, public=True).may_leave
    assert Protection.of(gaussian(2), 1e-5).may_leave


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT])
def test_the_number_of_rows_is_public_and_neighbours_say_so(adjacency):
    """Sizes follow from it: no certificate may speak of one row more or less."""
    made = Protection.of(gaussian(2, adjacency), 1e-5)
    assert made.guarantee.adjacency is Adjacency.ZERO_OUT
    assert made.certificate.event == gaussian(2)
    assert COUNTED in made.certificate.not_protected


def test_costs_of_someone_in_all_parts_add_up():
    first, second = gaussian(2), gaussian(3)
    before = Protection.of(first, 1e-5, assumptions=["One."])
    after = inhouse.together([before, Protection.of(second, 2e-6, whose=TAUGHT)])
    assert after.delta == 1.2e-5
    assert after.guarantee == guarantee_of(events.Composed((first, second)), 1.2e-5)
    assert after.guarantee.epsilon > before.guarantee.epsilon
    assert str(after.guarantee) in after.sentence
    assert [part.whose for part in after.parts] == [FITTED, TAUGHT]
    assert after.parts[0] is before.parts[0]
    with pytest.raises(InvalidParameter, match="of one part"):
        _ = after.certificate


@pytest.mark.parametrize(
    ("deltas", "total"),
    [((1e-5, 2e-5), 3e-5), ((1e-6, 2e-6), 3e-6), ((1e-7, 7e-7), 8e-7), ((0.1, 0.2), 0.3)],
)
def test_deltas_add_up_in_decimals(deltas, total):
    assert inhouse.together([Protection.of(gaussian(2), one) for one in deltas]).delta == total


def test_equal_releases_are_two_and_the_same_one_is_one():
    one, equal = Protection.of(gaussian(2), 1e-5), Protection.of(gaussian(2), 1e-5)
    assert len(inhouse.together([one, one]).parts) == 1
    both = inhouse.together([one, equal])
    assert len(both.parts) == 2
    assert both.guarantee.epsilon > one.guarantee.epsilon


def states():
    """Every kind of promise, as a function: each call is another set of rows."""
    return {
        "none": lambda whose: Protection.none(whose=whose),
        "public": lambda whose: Protection.none(True, whose),
        "unproven": lambda whose: Protection.unproven("why", whose=whose),
        "unproven, public": lambda whose: Protection.unproven("why", True, whose),
        "proved": lambda whose: Protection.of(gaussian(2), 1e-5, whose=whose),
        "seeded": lambda whose: Protection.of(gaussian(2), 1e-5, seeded=True, whose=whose),
        "seeded, public": lambda whose: Protection.of(
            gaussian(2), 1e-5, seeded=True, public=True, whose=whose
        ),
        "untouched": lambda whose: Protection.untouched(),
    }


@pytest.mark.parametrize("second", states())
@pytest.mark.parametrize("first", states())
def test_no_part_hides_another(first, second):
    """All must be able to leave, and every set of rows that was read has its own words."""
    one, two = states()[first](FITTED), states()[second](TAUGHT)
    for order in ([one, two], [two, one]):
        both = inhouse.together(order)
        assert both.may_leave == (one.may_leave and two.may_leave)
        assert both.proved == (one.proved and two.proved)
        assert both.seeded == (one.seeded or two.seeded)
        for part in (*one.parts, *two.parts):
            if part.learned:
                assert part.sentence in both.sentence
                assert any(part is kept for kept in both.parts)
        for part in (*one.parts, *two.parts):
            if part.learned and not part.public:  # never better than what any of them has
                mine, whole = part.guarantee, both.guarantee
                worse = isinstance(whole, NotPrivate | Unproven) or whole.epsilon >= mine.epsilon
                assert worse
        if both.may_leave:
            both.must_leave("a classifier")
        else:
            with pytest.raises(
                InvalidParameter, match=r"^export: (this (would|may) .* it; )?a classifier must"
            ):
                both.must_leave("a classifier")
        plain = json.loads(json.dumps(both.to_plain()))
        assert Protection.from_plain(plain, learned=both.learned) == both


def test_what_was_not_read_is_not_said_beside_what_was():
    proved = Protection.of(gaussian(2), 1e-5)
    assert inhouse.together([proved, Protection.untouched()]).parts == proved.parts
    assert not inhouse.together([Protection.untouched()]).learned


def test_rows_without_noise_are_named_and_shown_once():
    noised = [Protection.of(gaussian(2), 1e-5) for _ in range(2)]
    bare = [Protection.none() for _ in range(3)]
    made = inhouse.together([*bare, *noised, Protection.none(whose=TAUGHT)])
    assert made.sentence.count("what it knows of them has no noise") == 2
    assert made.sentence.count("beyond") == 2
    assert made.shown == (bare[0].parts[0], *(one.parts[0] for one in noised), made.parts[-1])


def test_a_protection_holds_all_parts_of_what_it_was_built_on():
    mechanism, own = Protection.of(gaussian(2), 1e-5), Protection.none(True, TAUGHT)
    inhouse.together([mechanism, own]).must_hold(mechanism)
    own.must_hold(Protection.untouched())
    with pytest.raises(InvalidData, match="must include those of the mechanism"):
        own.must_hold(mechanism)


def test_what_may_not_leave_is_refused_in_one_line():
    for made in (Protection.none(), Protection.unproven("the proof has a hole")):
        with pytest.raises(InvalidParameter) as caught:
            made.must_leave("encoder (collection, latent level)")
        said = str(caught.value)
        assert "\n" not in said
        known = "would" if made == Protection.none() else "may"
        assert said.startswith(
            f"export: this {known} reveal the in-house rows to everyone who gets it; encoder "
            "(collection, latent level) must carry a central "
        )
        assert str(made.guarantee) in said
        assert "Fit the mechanism with central_epsilon and central_delta" in said
        assert "public" in said
    with pytest.raises(InvalidParameter, match="Fit a StudentClassifier with central_epsilon"):
        Protection.none(whose=TAUGHT).must_leave("a classifier")


KINDS = [
    Protection.none(),
    Protection.none(public=True),
    Protection.unproven("why"),
    Protection.untouched(),
    Protection.of(gaussian(2), 1e-5, assumptions=["Said."]),
    Protection.of(gaussian(2), 1e-5, public=True, seeded=True),
]


@pytest.mark.parametrize("made", KINDS, ids=lambda one: str(one.guarantee))
def test_stored_and_read_back(made):
    plain = json.loads(json.dumps(made.to_plain()))
    again = Protection.from_plain(plain, learned=made.learned)
    assert again == made
    assert again.certificate.to_json() == made.certificate.to_json()


@pytest.mark.parametrize("made", KINDS, ids=lambda one: str(one.guarantee))
def test_a_changed_byte_is_refused(made):
    (body,) = made.to_plain()["parts"]
    text = body["certificate"]
    for place in range(0, len(text), 37):
        changed = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        with pytest.raises(CertificateError):
            Protection.from_plain({"parts": [{**body, "certificate": changed}]})


def test_a_certificate_that_promises_more_than_its_events_is_refused():
    honest = Protection.of(gaussian(2), 1e-5)
    better = dataclasses.replace(honest.guarantee, epsilon=honest.guarantee.epsilon / 2)
    forged = dataclasses.replace(honest.certificate, guarantee=better)
    with pytest.raises(CertificateError, match="its events give"):
        Protection.from_plain({"parts": [stated(forged)]})


def stated(certificate):
    return {"whose": FITTED, "public": False, "certificate": certificate.to_json()}


@pytest.mark.parametrize("flag", [1, 0, "true", "", None, []])
def test_a_flag_that_is_no_flag_is_refused(flag):
    with pytest.raises(InvalidParameter, match="public must be"):
        Protection.from_plain(
            {"parts": [{**Protection.none(True).parts[0].to_plain(), "public": flag}]}
        )


def test_words_of_nobody_are_refused():
    body = {**Protection.none(True).parts[0].to_plain(), "whose": "Nobody's rows"}
    with pytest.raises(InvalidParameter, match="whose must be"):
        Protection.from_plain({"parts": [body]})
    with pytest.raises(InvalidParameter, match="at least one"):
        Protection.from_plain({"parts": []})


@pytest.mark.parametrize("made", KINDS, ids=lambda one: str(one.guarantee))
def test_a_flag_that_its_certificate_does_not_say_is_refused(made):
    """Else whoever writes the file lets everything leave."""
    (body,) = made.to_plain()["parts"]
    with pytest.raises(InvalidParameter, match="public must be"):
        Protection.from_plain({"parts": [{**body, "public": not made.public}]})


@pytest.mark.parametrize(
    "adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ANY_TWO_INPUTS]
)
def test_a_promise_to_somebody_else_is_refused(adjacency):
    other = Certificate.issue(gaussian(2, adjacency), delta=1e-5)
    with pytest.raises(InvalidParameter, match="a blank in its place"):
        Protection.from_plain({"parts": [stated(other)]})


# --- Target --------------------------------------------------------------------------------------


def test_both_or_neither():
    assert Target.of("here", None, None) is None
    assert Target.of("here", 5, 1e-5) == Target(5.0, 1e-5)
    for given, missing in (((5, None), "central_delta"), ((None, 1e-5), "central_epsilon")):
        with pytest.raises(InvalidParameter, match=f"here: {missing} must be given") as caught:
            Target.of("here", *given)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "much"])
def test_epsilons_that_protect_nobody(epsilon):
    with pytest.raises(InvalidParameter, match="epsilon must be"):
        Target.of("here", epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, 1.5, float("nan"), "few"])
def test_deltas_that_protect_nobody(delta):
    with pytest.raises(InvalidParameter, match="central_delta must be"):
        Target.of("here", 5, delta)


def test_the_multiplier_spends_it_all_and_no_more():
    target = Target(5.0, 1e-5)
    multiplier = Fraction(repr(target.noise_multiplier))
    found = guarantee_of(gaussian(multiplier), target.delta)
    assert 5 * (1 - 1e-6) <= found.epsilon <= 5 * (1 + 1e-9)
    # A mutant with a thousandth less noise promises more than it keeps.
    less = guarantee_of(gaussian(multiplier * Fraction(999, 1000)), target.delta)
    assert less.epsilon > 5.001


@pytest.mark.parametrize("made", [Codebook, Direct])
@pytest.mark.parametrize("one", CENTRAL)
def test_mechanisms_take_both_or_neither(made, one):
    with pytest.raises(InvalidParameter, match=r"central_(epsilon|delta) must be given"):
        made(epsilon=1, **({"codewords": 4} if made is Codebook else {}), **{one: CENTRAL[one]})


# --- what leaves, for whom -----------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("application", inhouse.APPLICATIONS)
def test_who_gets_what(plain, public, private, application, level, tmp_path):
    """Protected and public mechanisms leave whole; of the others, the channel or nothing."""
    for whole in (private, public):
        assert whole.shared(application, level) is whole
    loaded = tacit.load(private.export(tmp_path / "private", application, level))
    assert np.array_equal(loaded.encode(INHOUSE), private.encode(INHOUSE))
    assert loaded.inhouse_ == private.inhouse_
    needed = inhouse.requirements(application, level)
    if not needed:
        return
    with pytest.raises(InvalidParameter) as caught:
        plain.export(tmp_path / "plain", application, level)
    said = str(caught.value)
    assert said.startswith("export: this would reveal the in-house rows to everyone who gets it; ")
    assert f"; {' and '.join(needed)} ({application}, {level} level) must" in said
    assert "not private" in said
    assert "\n" not in said
    assert not (tmp_path / "plain").exists()


def test_unknown_applications_are_refused_whatever_is_promised(private, public, plain, tmp_path):
    for mechanism in (private, public, plain):
        with pytest.raises(InvalidParameter, match="application must be one of"):
            mechanism.export(tmp_path / "x", "anything")
        with pytest.raises(InvalidParameter, match="level must be one of"):
            mechanism.export(tmp_path / "x", "join", "anything")
    assert list(tmp_path.iterdir()) == []


def test_reports_say_what_protects_the_in_house_rows(plain, public, private):
    for mechanism in (plain, public, private):
        reports = mechanism.release(INHOUSE[:5], rng=Seeded(0))
        assert mechanism.inhouse_.sentence in reports.certificate.not_protected
        assert mechanism.inhouse_.sentence in mechanism.certificate.not_protected
    assert str(private.inhouse_.guarantee) in private.inhouse_.sentence


# --- the channel alone ---------------------------------------------------------------------------


def bytes_in(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def traces(mechanism):
    """Every row of everything that was learned without noise, as it would lie in a file."""
    arrays = mechanism.parts()[1]
    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return [
        line.tobytes()
        for name, array in kept.items()
        if name != "groups"
        for line in (array if array.ndim == 2 else [array])
        if np.unique(line).size > 2
    ]


def test_a_partner_gets_the_channel_alone(plain, tmp_path):
    """No encoder, no cells, no counts, no bounds: neither as arrays nor as text."""
    folder = plain.export(tmp_path / "partner", "join", "latent")
    assert {path.name for path in folder.iterdir()} == {"mechanism.json", "weights.safetensors"}
    found = bytes_in(folder)
    whole = bytes_in(plain.save(tmp_path / "inhouse"))
    marks = [str(BOUNDS.lower).encode(), str(BOUNDS.upper).encode(), b'"schema": {\n   "']
    for mark in [*marks, *traces(plain)]:
        assert mark in whole  # else this test could not fail
        assert mark not in found
    for word in (b"cells", b"prototypes", b"links", b"groups", b"matrix", b"mean", b"features"):
        assert word not in (folder / "weights.safetensors").read_bytes()
    _, arrays = plain.shared("join").parts()
    assert set(arrays) == {"counts"}
    assert not arrays["counts"].any()
    assert plain.counts_.any()


def test_what_the_channel_alone_can_do(plain, tmp_path):
    alone = tacit.load(plain.export(tmp_path / "partner", "join", "latent"))
    for labelled in (False, True):
        assert alone.channel(labelled) == plain.channel(labelled)
        assert alone.channel(labelled).guarantee == plain.channel(labelled).guarantee
    assert not alone.inhouse_.may_leave
    again = tacit.load(alone.save(tmp_path / "again"))
    assert artifact.fingerprint(again) == artifact.fingerprint(alone)
    assert again.codewords_ == plain.codewords_
    assert float(alone.at(1).channel(False).guarantee.epsilon) == 1


def test_the_channel_alone_cannot_encode(plain):
    alone = plain.shared("join")
    for call in (alone.encode, alone.release, alone.vectors, alone.clean_features):
        with pytest.raises(InvalidParameter, match="must hold its encoder") as caught:
            call(INHOUSE)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidParameter, match="must hold its encoder"):
        _ = alone.schema
    # What it was made of still can.
    assert len(plain.encode(INHOUSE)) == len(INHOUSE)


def test_nor_does_the_copy_in_memory_hold_anything():
    """Whatever a caller does with it: features that were handed in are not among its parts."""
    from tacit.local.learned import features

    given = features.QuantileTransform.fit(BOUNDS, BOUNDS.rows(INHOUSE))
    whole = codebook(features=given)
    assert given in vars(whole).values()
    kept = vars(whole.shared("join"))
    assert not any(hasattr(value, "transform") for value in kept.values())
    arrays = [value for value in kept.values() if isinstance(value, np.ndarray)]
    assert all(not array.any() for array in arrays)


def test_the_channel_alone_is_again_the_channel_alone(plain):
    alone = plain.shared("join")
    assert artifact.fingerprint(alone.shared("join")) == artifact.fingerprint(alone)
    with pytest.raises(InvalidParameter, match="encoder"):
        alone.shared("collection")


def test_reports_for_a_partner(plain, private, tmp_path):
    """The file of reports holds their mechanism: it must be the channel alone there too."""
    data, labels = rows(1500, 1)
    reports = plain.release(data, rng=Seeded(1))
    shared = reports.shared()
    assert np.array_equal(shared.columns["symbols"], reports.columns["symbols"])
    assert shared.guarantee == reports.guarantee
    assert shared.seeded
    path = shared.write(tmp_path / "shared.parquet")
    whole = reports.write(tmp_path / "whole.parquet").read_bytes()
    found = path.read_bytes()
    for mark in [str(BOUNDS.upper).encode(), *traces(plain)]:
        assert mark in whole
        assert mark not in found
    received = Reports.read(path)
    clean = np.random.default_rng(0).random((1500, 1)) + labels[:, None] * 0.2
    model = JoinClassifier(hidden=()).fit(received, labels, clean=clean)
    assert model.score(received, labels, clean=clean) > 0.8
    with pytest.raises(InvalidParameter, match="must hold its encoder"):
        model.predict(data, clean=clean)
    with pytest.raises(InvalidParameter, match="must hold its"):
        JoinClassifier(level="feature").fit(received, labels, clean=clean)
    with pytest.raises(InvalidParameter, match="decoder"):
        reports.shared("join", "feature")
    with pytest.raises(InvalidParameter, match="encoder"):
        reports.shared("collection")
    proved = private.release(data[:50], rng=Seeded(1))
    assert proved.shared().mechanism is private


def test_the_channel_alone_keeps_the_whole_one_whole(plain):
    before = artifact.fingerprint(plain)
    kept = copy.deepcopy(plain.counts_)
    plain.shared("join")
    assert artifact.fingerprint(plain) == before
    assert np.array_equal(plain.counts_, kept)


# --- Direct: nothing is learned ------------------------------------------------------------------


def test_declared_bounds_touch_nobody(tmp_path):
    for settings in ({}, CENTRAL):
        made = Direct(epsilon=2, classes=2, **settings).fit(INHOUSE, schema=BOUNDS)
        assert not made.inhouse_.learned
        assert made.inhouse_.guarantee.epsilon == 0
        for application in inhouse.APPLICATIONS:
            for level in LEVELS:
                assert made.shared(application, level) is made
    loaded = tacit.load(made.export(tmp_path / "direct"))
    assert loaded.inhouse_.guarantee == made.inhouse_.guarantee
    assert loaded.schema == BOUNDS


def test_bounds_read_off_the_rows_do_not_leave(tmp_path):
    made = Direct(epsilon=2).fit(INHOUSE)
    assert isinstance(made.inhouse_.guarantee, NotPrivate)
    for application in inhouse.APPLICATIONS:
        for level in LEVELS:
            with pytest.raises(InvalidParameter, match="must carry a central guarantee"):
                made.export(tmp_path / "direct", application, level)
    assert list(tmp_path.iterdir()) == []
    assert made.save(tmp_path / "inhouse").is_dir()
    open_ = Direct(epsilon=2).fit(INHOUSE, inhouse_public=True)
    assert tacit.load(open_.export(tmp_path / "open")).inhouse_.public


def test_direct_with_a_central_budget_needs_declared_bounds():
    with pytest.raises(InvalidParameter, match=r"Direct.fit: schema must be given") as caught:
        Direct(epsilon=2, **CENTRAL).fit(INHOUSE)
    assert "\n" not in str(caught.value)
    pixels = np.zeros((10, 3), np.uint8)
    made = Direct(epsilon=2, **CENTRAL).fit(pixels)
    assert (made.schema.lower, made.schema.upper) == (0, 255)
    assert made.inhouse_.guarantee.epsilon == 0


# --- classifiers ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled():
    return rows(3000, 2)


def test_a_classifier_inherits_from_its_mechanism(plain, public, private, labelled, tmp_path):
    for name, mechanism in (("public", public), ("private", private)):
        reports = mechanism.release(*labelled, rng=Seeded(3))
        model = NoiseAwareClassifier(prior="none").fit(reports)
        assert model.inhouse_ == mechanism.inhouse_
        assert model.inhouse_guarantee_ == mechanism.inhouse_.guarantee
        loaded = tacit.load(model.export(tmp_path / name))
        assert loaded.inhouse_ == mechanism.inhouse_
        assert loaded.certificate == model.certificate
        assert mechanism.inhouse_.sentence in model.certificate.not_protected
        few = model.for_private_points(2)
        assert few.inhouse_ == few.mechanism_.inhouse_ == mechanism.inhouse_
    model = NoiseAwareClassifier(prior="none").fit(plain.release(*labelled, rng=Seeded(3)))
    assert isinstance(model.inhouse_guarantee_, NotPrivate)
    with pytest.raises(InvalidParameter, match="it; a model that is handed out must"):
        model.export(tmp_path / "plain")
    assert not (tmp_path / "plain").exists()
    assert model.save(tmp_path / "inside").is_dir()


def test_a_novel_class_is_taught_on_raw_rows(plain, public, private, labelled, tmp_path):
    """Over a private codebook too: the rows are put in a second time, without noise."""
    known, new = (labelled[0][labelled[1] == kind] for kind in (0, 1))
    model = NovelClassClassifier(inhouse=known).fit(private.release(new, rng=Seeded(4)))
    assert isinstance(model.inhouse_guarantee_, NotPrivate)
    with pytest.raises(InvalidParameter, match="must carry a central guarantee"):
        model.export(tmp_path / "novel")
    assert isinstance(tacit.load(model.save(tmp_path / "in")).inhouse_guarantee_, NotPrivate)
    reports = public.release(new, rng=Seeded(4))
    # That the mechanism's rows are public says nothing of these.
    others = NovelClassClassifier(inhouse=known).fit(reports)
    assert not others.inhouse_.may_leave
    open_ = NovelClassClassifier(inhouse=known, inhouse_public=True).fit(reports)
    assert open_.inhouse_.public
    half = NovelClassClassifier(inhouse=known, inhouse_public=True).fit(
        plain.release(new, rng=Seeded(4))
    )
    assert not half.inhouse_.may_leave
    loaded = tacit.load(open_.export(tmp_path / "open"))
    assert loaded.inhouse_.public
    assert any("public" in line for line in loaded.certificate.not_protected)
    for stated in loaded.inhouse_.certificates:
        assert any("public" in line for line in stated.not_protected)


def test_a_join_carries_the_clean_columns(private, public, labelled, tmp_path):
    """Where the in-house rows are public too: the clean columns are somebody else's."""
    for mechanism in (private, public):
        reports = mechanism.release(labelled[0][:500], rng=Seeded(5))
        clean = np.ones((500, 1), np.float32)
        model = JoinClassifier(hidden=()).fit(reports, labelled[1][:500], clean=clean)
        assert isinstance(model.inhouse_guarantee_, NotPrivate)
        with pytest.raises(InvalidParameter, match="must carry a central guarantee"):
            model.export(tmp_path / "join")
        assert not (tmp_path / "join").exists()


def test_a_model_must_be_fitted_before_it_leaves(tmp_path):
    from sklearn.exceptions import NotFittedError

    for model in (NoiseAwareClassifier(), clone(JoinClassifier())):
        with pytest.raises(NotFittedError):
            model.export(tmp_path / "x")


def test_a_forged_flag_in_a_file_is_refused(plain, tmp_path):
    """Someone who rewrites the digest too: the certificate inside still says otherwise."""

    class Forged:
        kind, certificate, release = plain.kind, plain.certificate, plain.release

        def parts(self):
            parameters, arrays = plain.parts()
            (part,) = parameters["inhouse"]["parts"]
            return {**parameters, "inhouse": {"parts": [{**part, "public": True}]}}, arrays

    path = artifact.save(Forged(), tmp_path / "forged")
    with pytest.raises((artifact.ArtifactError, InvalidData)):
        tacit.load(path)


def test_a_file_that_leaves_out_a_part_is_refused(private, labelled, tmp_path):
    """A student's file without what was promised to the codebook's rows, digest and all."""
    own = tacit.StudentClassifier(inhouse=labelled[0], inhouse_public=True)
    model = own.fit(private.release(*labelled, rng=Seeded(4)))
    assert len(model.inhouse_.parts) == 2

    class Forged:
        kind, certificate = model.kind, model.certificate

        def parts(self):
            parameters, arrays = model.parts()
            return {**parameters, "inhouse": {"parts": parameters["inhouse"]["parts"][1:]}}, arrays

    with pytest.raises((artifact.ArtifactError, InvalidData)):
        tacit.load(artifact.save(Forged(), tmp_path / "forged"))


@pytest.mark.parametrize("seeded", [False, True])
def test_public_teaching_rows_do_not_hide_a_seeded_codebook(seeded, labelled, tmp_path):
    made = Codebook(epsilon=4, codewords=4, classes=2, **CENTRAL)
    made.fit(INHOUSE, schema=BOUNDS, rng=Seeded(1) if seeded else None)
    reports = made.release(*labelled)
    model = tacit.StudentClassifier(inhouse=labelled[0], inhouse_public=True).fit(reports)
    assert made.inhouse_.sentence in model.inhouse_.sentence
    assert model.inhouse_.may_leave is not seeded
    if seeded:
        with pytest.raises(InvalidParameter, match="seeded generator"):
            model.export(tmp_path / "student")
        assert not (tmp_path / "student").exists()
    else:
        loaded = tacit.load(model.export(tmp_path / "student"))
        assert loaded.inhouse_.sentence == model.inhouse_.sentence
