"""Audits through `release` itself: raw rows in, reports out, on the pairs that have most to hide.

Every mutant states the guarantee of the honest mechanism and adds the noise of a larger ε (or
forgets something), and has to be refuted by the very call that must not refute the honest one.
"""

import copy
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.audit.exact import smallest_epsilon, tabulate_over
from tacit.audit.statistical import bound_from_draws
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.local.learned.vlm import VLM
from tacit.local.reports import Reports
from tacit.privacy.randomness import Seeded

torch.set_num_threads(1)
CONFIDENCE = 0.999999
"""A right mechanism is refuted once in a million runs, whatever the seed."""

EPSILON = 1.0
SAMPLES = 40_000


def flat(reports):
    """All released columns side by side, one row a report."""
    return np.column_stack([reports.columns[name] for name in sorted(reports.columns)])


def likelihood_ratio(mechanism, first, second):
    """Of reports as `flat` gives them, by the law that the mechanism states."""

    def law(draws, raw, label):
        columns = unflatten(mechanism, draws, label is not None)
        encoded = np.repeat(mechanism.encode(raw), len(draws), axis=0)
        codes = None if label is None else np.full(len(draws), mechanism.classes.index(label))
        return mechanism.log_prob(columns, encoded, codes)

    return lambda draws: law(draws, *first) - law(draws, *second)


def unflatten(mechanism, draws, labelled):
    if mechanism.kind == "codebook":
        return {"symbols": draws}
    if mechanism.kind == "vlm":
        columns = {"latent": draws[:, labelled:]}
        return columns | ({"label": draws[:, 0]} if labelled else {})
    places = len(mechanism.places)
    columns = {"numbers": draws[:, places + labelled :]}
    columns |= {"codes": draws[:, :places]} if places else {}
    return columns | ({"label": draws[:, places]} if labelled else {})


def repeated(raw, count):
    """One person's row, as if as many people had it."""
    if isinstance(raw, dict):
        return {name: np.repeat(column, count) for name, column in raw.items()}
    return np.repeat(raw, count, axis=0)


def audited(mechanism, first, second, *, scored_by=None, delta=0.0, samples=SAMPLES):
    """A certified lower bound on ε from draws of `release`; inputs are (raw row, label or None)."""
    stream, draws = Seeded(3), []
    for raw, label in (first, second):
        labels = None if label is None else np.repeat(label, samples)
        reports = mechanism.release(repeated(raw, samples), labels, stream)
        assert len(reports) == samples
        draws.append(flat(reports))
    score = likelihood_ratio(scored_by or mechanism, first, second)
    return bound_from_draws(*draws, [score], delta=delta, confidence=CONFIDENCE).epsilon


class Quieter:
    """A channel that states what the honest one states, and draws the noise of another one."""

    def __init__(self, honest, other):
        self._honest, self.release = honest, other.release

    def __getattr__(self, name):
        return getattr(self._honest, name)


def noisier_only_in_words(mechanism, factor=2):
    """The mutant: everything as before, and the noise of a larger ε."""
    mutant, other = copy.copy(mechanism), mechanism.at(factor * mechanism.epsilon)
    labelled = (False,) if mechanism.classes is None else (False, True)
    channels = {each: Quieter(mechanism.channel(each), other.channel(each)) for each in labelled}
    mutant.channel = channels.__getitem__
    return mutant


# --- codebook ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def codebook():
    rows = np.random.default_rng(0).standard_normal((300, 2)) + 4 * np.arange(300)[:, None] % 12
    return Codebook(epsilon=EPSILON, codewords=3, classes=["no", "yes"]).fit(rows)


def corners(mechanism):
    """Raw rows that fall into the first and into the last codeword."""
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 12, 30)] * 2), axis=-1).reshape(-1, 2)
    codes = mechanism.encode(grid)
    return grid[codes == 0][:1], grid[codes == codes.max()][:1]


@pytest.mark.parametrize("labelled", [False, True])
def test_codebook(codebook, labelled):
    low, high = corners(codebook)
    pair = ((low, "no" if labelled else None), (high, "yes" if labelled else None))
    claim = codebook.channel(labelled).guarantee.epsilon
    assert claim == EPSILON
    bound = audited(codebook, *pair)
    assert 0.8 < bound <= claim
    mutant = noisier_only_in_words(codebook)
    assert mutant.channel(labelled).guarantee.epsilon == claim
    assert audited(mutant, *pair, scored_by=codebook) > claim


def test_codebook_pairs_that_differ_in_one_part_only(codebook):
    low, high = corners(codebook)
    for pair in (((low, "no"), (low, "yes")), ((low, "no"), (high, "no"))):
        assert 0.8 < audited(codebook, *pair) <= EPSILON
    same = ((low, "no"), (low + 1e-9, "no"))
    assert audited(codebook, *same) == 0


class TwoReports:
    """The mutant that spends ε on the codeword and ε again on the label."""

    def __init__(self, codebook):
        self.inner, self.kind, self.classes = codebook, "vlm", codebook.classes
        self.plain = codebook.regrouped(np.arange(codebook.codewords_), subset_size=1)
        self.flip = Codebook(epsilon=EPSILON, codewords=2).fit(np.array([[0.0], [1.0]] * 20))

    def encode(self, raw):
        return self.inner.encode(raw)

    def release(self, raw, labels, rng):
        names = np.array([[float(label == "yes")] for label in labels])
        row = self.plain.release(raw, None, rng).columns["symbols"]
        label = self.flip.release(names, None, rng).columns["symbols"]
        columns = {"label": label[:, 0].astype(int), "latent": row.astype(int)}
        anything = _Anything()
        return Reports(anything, columns, anything, True)

    def log_prob(self, columns, encoded, codes):
        row = self.plain.log_prob({"symbols": columns["latent"]}, encoded)
        flipped = self.flip.encode(np.array([[0.0], [1.0]]))[codes]
        return row + self.flip.log_prob({"symbols": columns["label"][:, None]}, flipped)


class _Anything:
    """A mechanism that is its own channel, and checks nothing."""

    labelled = True

    def check(self, columns):
        return columns

    def channel(self, labelled):
        return self


def test_two_reports_at_the_whole_epsilon_are_refuted(codebook):
    low, high = corners(codebook)
    pair = ((low, "no"), (high, "yes"))
    assert audited(TwoReports(codebook), *pair) > EPSILON
    assert audited(codebook, *pair) <= EPSILON


@pytest.mark.parametrize("labelled", [False, True])
def test_the_exact_profile_of_the_finite_channel(codebook, labelled):
    """Over all symbols that rows and labels can have, through the codebook's own law."""
    channel = codebook.channel(labelled).symbols

    class Law:
        def log_prob(self, released, raw):
            if not labelled:
                return codebook.log_prob({"symbols": released}, raw)
            return codebook.log_prob({"symbols": released}, raw // 2, raw % 2)

    table = tabulate_over(Law(), list(channel.inputs()), channel.outputs(), lambda a, b: a != b)
    found = smallest_epsilon(table, 0.0)
    assert EPSILON - 1e-6 < found <= EPSILON + 1e-12
    for other in (0.3, 4.0):
        channel = codebook.at(other).channel(labelled).symbols
        table = tabulate_over(channel, list(channel.inputs()), channel.outputs(), channel.adjacent)
        assert other - 1e-6 < smallest_epsilon(table, 0.0) <= other + 1e-12


# --- the variational mechanism -------------------------------------------------------------------


def by_hand(**settings):
    """A mechanism with a linear encoder: rows 0 and 1 end at opposite vertices of the ball."""
    made = VLM(epsilon=EPSILON, latent_dimension=3, radius=1.0, classes=["no", "yes"], **settings)
    encoder, decoder = nn.Sequential(nn.Linear(2, 3)), nn.Sequential(nn.Linear(3, 2))
    with torch.no_grad():
        encoder[0].weight.copy_(torch.tensor([[200.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
        encoder[0].bias.copy_(torch.tensor([-100.0, 0.0, 0.0]))
    made._set(ArraySchema(2, 0.0, 1.0), encoder, decoder)
    return made


LOW, HIGH = np.array([[0.0, 0.3]]), np.array([[1.0, 0.9]])


def test_the_pair_is_the_worst_there_is():
    for settings in ({}, {"noise": "gaussian", "delta": 0.01}):
        made = by_hand(**settings)
        steps = made.ball.radius_steps
        assert made.encode(LOW).tolist() == [[-steps, 0, 0]]
        assert made.encode(HIGH).tolist() == [[steps, 0, 0]]


@pytest.mark.parametrize("labelled", [False, True])
def test_vlm_with_laplace_noise(labelled):
    made = by_hand()
    pair = ((LOW, "no" if labelled else None), (HIGH, "yes" if labelled else None))
    claim = made.channel(labelled).guarantee.epsilon
    assert claim == EPSILON
    assert 0.75 < audited(made, *pair) <= claim
    assert audited(noisier_only_in_words(made), *pair, scored_by=made) > claim


def test_half_the_sensitivity_is_refuted():
    """The mutant that forgets that two rows may be on opposite sides."""
    made = by_hand()
    mutant = copy.copy(made)
    noise = made._noise(2 * made.epsilon)
    mutant.channel = lambda labelled: replace(made.channel(labelled), noise=noise)
    assert float(noise.event.scale) == made.ball.radius_steps / EPSILON
    assert audited(mutant, (LOW, None), (HIGH, None), scored_by=made) > EPSILON


def test_latents_that_are_not_clipped_are_refuted():
    made = by_hand()
    mutant = copy.copy(made)
    mutant.encode_rows = lambda rows: 3 * made.encode_rows(rows)
    # The channel, too: it clips whatever it is given.
    ball = replace(made.ball, radius=3 * made.ball.radius, grid=made.ball.step)
    mutant.channel = lambda labelled: replace(made.channel(labelled), ball=ball)
    assert audited(mutant, (LOW, None), (HIGH, None), scored_by=made) > EPSILON


DELTA = 0.01


@pytest.mark.parametrize("labelled", [False, True])
def test_vlm_with_gaussian_noise(labelled):
    made = by_hand(noise="gaussian", delta=DELTA)
    pair = ((LOW, "no" if labelled else None), (HIGH, "yes" if labelled else None))
    claim = made.channel(labelled).guarantee
    assert claim.epsilon <= EPSILON
    assert claim.delta == DELTA
    bound = audited(made, *pair, delta=DELTA, samples=60_000)
    assert 0.5 < bound <= claim.epsilon
    mutant = noisier_only_in_words(made)
    assert audited(mutant, *pair, scored_by=made, delta=DELTA, samples=60_000) > EPSILON
    # With no δ to hide behind, Gaussian noise keeps no ε this small.
    assert audited(made, *pair, delta=0.0, samples=60_000) > bound


# --- direct --------------------------------------------------------------------------------------

TABLE = TableSchema(
    (
        Continuous("age", 0, 100),
        Continuous("income", 0, 10, missing="indicate"),
        Categorical("job", ("a", "b", "c"), unseen="other"),
    )
)
YOUNG = {"age": np.array([0.0]), "income": np.array([0.0]), "job": np.array(["a"])}
OLD = {"age": np.array([100.0]), "income": np.array([10.0]), "job": np.array(["zzz"])}


def test_numbers_at_both_ends_of_their_range():
    made = Direct(epsilon=EPSILON).fit(np.zeros((2, 2)), schema=ArraySchema(2, 0, 1))
    pair = ((np.array([[0.0, 0.0]]), None), (np.array([[1.0, 1.0]]), None))
    # Two independent shares: few reports come near e^ε, and the draws see about half of it.
    assert 0.5 < audited(made, *pair) <= EPSILON
    assert audited(noisier_only_in_words(made, 3), *pair, scored_by=made) > EPSILON


@pytest.mark.parametrize("labelled", [False, True])
def test_direct_on_a_table(labelled):
    made = Direct(epsilon=EPSILON, classes=["no", "yes"]).fit(YOUNG, schema=TABLE)
    pair = ((YOUNG, "no" if labelled else None), (OLD, "yes" if labelled else None))
    assert EPSILON - 1e-9 < made.channel(labelled).guarantee.epsilon <= EPSILON
    assert 0.3 < audited(made, *pair) <= EPSILON
    assert audited(noisier_only_in_words(made, 4), *pair, scored_by=made) > EPSILON


def test_a_missing_value_is_protected_as_well():
    made = Direct(epsilon=EPSILON).fit(YOUNG, schema=TABLE)
    missing = {**OLD, "income": np.array([np.nan])}
    assert audited(made, (YOUNG, None), (missing, None)) <= EPSILON
    # The mutant that tells in the clear whether a value is missing.
    mutant = copy.copy(made)
    honest = made.channel(False)
    mutant.channel = lambda labelled: replace(honest, flips=(None, *honest.flips[1:]))

    def seen(draws):
        return draws[:, 0].astype(float)

    stream = Seeded(3)
    for mechanism, refuted in ((made, False), (mutant, True)):
        draws = [
            flat(mechanism.release(repeated(raw, 10_000), None, stream)) for raw in (missing, YOUNG)
        ]
        bound = bound_from_draws(*draws, [seen], confidence=CONFIDENCE).epsilon
        assert (bound > EPSILON) is refuted


@pytest.mark.parametrize("kind", [Codebook, Direct, VLM])
def test_the_unit_is_what_was_asked_for(kind, tmp_path):
    options = {"codewords": 4} if kind is Codebook else {}
    rows = np.random.default_rng(0).random((80, 3))
    training = {"epochs": 1} if kind is VLM else {}
    made = kind(epsilon=2, classes=2, unit="person", **options).fit(rows, **training)
    for labelled in (False, True):
        assert made.channel(labelled).guarantee.unit == "person"
        assert str(made.at(1).channel(labelled).guarantee).endswith("unit: person)")
    made.save(tmp_path / "m")
    assert tacit.load(tmp_path / "m").channel(True).guarantee == made.channel(True).guarantee
    with pytest.raises(tacit.privacy.errors.InvalidParameter, match="unit"):
        kind(epsilon=2, unit="household", **options)


def test_a_gaussian_fitted_again_states_what_it_then_runs():
    rows = np.random.default_rng(0).random((60, 3))
    made = VLM(epsilon=4, noise="gaussian", delta=1e-5).fit(rows, epochs=1)
    assert made.channel(False).guarantee.epsilon <= 4
    made.epsilon = Fraction(8)
    made.fit(rows, epochs=1)
    assert made.channel(False).guarantee.epsilon > 7.9
