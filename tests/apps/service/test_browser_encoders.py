"""Encoders in a real browser against ONNX Runtime and Python."""

from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tacit.apps.service import device
from tacit.data.schema import ArraySchema, Categorical, Continuous, TableSchema
from tacit.local.inference import exported
from tacit.local.inference.decisions import Rule
from tacit.local.inference.field import Field
from tacit.local.inference.mixture import Member, Mixture
from tacit.local.inference.proportions_classifier import ProportionsClassifier
from tacit.local.inference.views import Inputs
from tacit.local.learned.codebook import Codebook
from tacit.local.learned.direct import Direct
from tacit.local.learned.partitions import Partitions

from .browser import browser_fixture, call_fixture  # noqa: F401

pytestmark = pytest.mark.heavy

torch = pytest.importorskip("torch")
graphs = pytest.importorskip("tacit.local.learned.onnx")
nn = torch.nn

TABLE = TableSchema(
    (
        Categorical("job", ("a", "b", "c")),
        Continuous("age", 18, 90),
        Continuous("income", -5, 5, missing="indicate", outside="clip"),
        Categorical("zone", ("p", "q"), unseen="other"),
    )
)
PICTURES = ArraySchema(width=64, lower=0, upper=16, image=(8, 8))
RUN = """(m, given) => {
    const bytes = Uint8Array.from(atob(given.model), (c) => c.charCodeAt(0));
    const graph = new m.Graph(bytes);
    const numbers = { dims: given.numbers.dims, data: Float32Array.from(
      given.numbers.data, (v) => v ?? NaN) };
    const codes = { dims: given.codes.dims, data: Float64Array.from(given.codes.data) };
    const out = graph.run({ numbers, codes });
    return [out.dims, Array.from(out.data)]; }"""


def digits(count):
    return load_digits(return_X_y=True)[0][-count:]


def people(count, seed=1):
    """A table with gaps, unseen categories and values beyond the bounds."""
    rng = np.random.default_rng(seed)
    income = rng.normal(0, 4, count)
    income[rng.random(count) < 0.3] = np.nan
    return {
        "job": rng.choice(["a", "b", "c"], count),
        "age": rng.integers(18, 91, count).astype(float),
        "income": income,
        "zone": rng.choice(["p", "q", "elsewhere"], count),
    }


def in_browser(call, model, rows):
    numbers = [None if np.isnan(v) else float(v) for v in rows.numbers.ravel()]
    given = {
        "model": base64.b64encode(model).decode(),
        "numbers": {"dims": rows.numbers.shape, "data": numbers},
        "codes": {"dims": rows.codes.shape, "data": rows.codes.ravel().tolist()},
    }
    dims, data = call("onnx", RUN, given)
    return np.array(data).reshape(dims)


# --- codewords -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "scattering",
        pytest.param("raw", marks=pytest.mark.slow),
        pytest.param("random", marks=pytest.mark.slow),
    ],
)
def test_digits_get_the_same_codeword(call, kind):
    mechanism = Codebook(epsilon=4, classes=10, codewords=24, features=kind)
    mechanism.fit(digits(1797)[:800], schema=PICTURES)
    raw, model = digits(300), mechanism.onnx()
    rows = PICTURES.rows(raw)
    got = in_browser(call, model, rows)
    # ONNX Runtime adds up in another order: a row in 300 may lie between two cells.
    assert np.mean(got != graphs.run(model, rows)) <= 1 / 300
    assert np.mean(got != mechanism.encode(raw)) <= 1 / 300
    assert len(set(got.tolist())) > 10


def test_a_table_with_gaps_and_unseen_categories_gets_the_same_codeword(call):
    mechanism = Codebook(epsilon=2, classes=2, codewords=12).fit(people(600, 2), schema=TABLE)
    rows, model = TABLE.rows(people(400)), mechanism.onnx()
    got = in_browser(call, model, rows)
    assert np.mean(got != graphs.run(model, rows)) <= 1 / 400
    assert np.mean(got != mechanism.encode(people(400))) <= 1 / 400
    assert len(set(got.tolist())) > 6


def test_a_table_gets_the_same_cell_in_every_partition(call):
    """In the first round and in one with adapted cells, whatever their graphs are made of."""
    first = Partitions(epsilon=4, people=400, classes=2, codewords=6)
    first.fit(people(600, 2), schema=TABLE, inhouse_public=True)
    model = ProportionsClassifier(inhouse=people(300, 3))
    model.fit(first.release(people(300, 4), people(300, 4)["age"] > 50))
    for mechanism in (first, model.next_round(people(300, 3))):
        rows, graph = TABLE.rows(people(300)), mechanism.onnx()
        got = in_browser(call, graph, rows)
        assert got.shape == (300, mechanism.partitions)
        assert np.mean(got != graphs.run(graph, rows)) <= 1 / 300
        assert np.mean(got != mechanism.encode(people(300))) <= 1 / 300
        assert all(len(set(cells)) > 2 for cells in got.T.tolist())


@pytest.mark.parametrize("rule", [{}, {"threshold": 0.4}, {"priors": [0.3, 0.7]}])
def test_a_model_of_partitions_answers_the_same(call, rule):
    """With everything that a mixture can be made of, in one graph."""
    first = Partitions(epsilon=8, people=400, classes=2, codewords=6)
    first.fit(people(600, 2), schema=TABLE, inhouse_public=True)
    model = ProportionsClassifier(inhouse=people(300, 3), **rule)
    model.fit(first.release(people(300, 4), people(300, 4)["age"] > 50))
    vectors = first.vectors(people(300, 3))
    block, rng = first.blocks_[-1], np.random.default_rng(0)
    seen = [Inputs.kernels(vectors, block, 0.7, 0), Inputs.diffusion(vectors, block, 4.0, 0)]
    others = [Member(one, single(rng.normal(0, 5, (4, one.width, 2))), 0.2) for one in seen]
    kept = [replace(member, share=0.6 * member.share) for member in model.mixture_.members]
    model.mixture_ = Mixture((*kept, *others))
    expected = model.predict(people(300))
    assert len(set(expected.tolist())) == 2
    places = in_browser(call, model.onnx(), TABLE.rows(people(300)))
    assert np.mean(model.classes_[places.astype(int)] != expected) <= 1 / 300


def test_a_field_answers_the_same(call):
    first = Partitions(epsilon=8, people=400, classes=10)
    first.fit(digits(600), schema=PICTURES, inhouse_public=True)
    rng, vectors = np.random.default_rng(0), first.vectors(digits(300))
    field = Field(vectors[:50], single(rng.dirichlet(np.full(10, 0.1), 50)))
    rule = Rule.of("test", range(10), None, None, None)
    graph = exported.answers(first.vectors_graph(), field, rule, np.full(10, 0.1))
    expected = rule.places(field.predict_proba(vectors))
    assert len(set(expected.tolist())) > 4
    got = in_browser(call, graph, PICTURES.rows(digits(300)))
    assert np.mean(got != expected) <= 1 / 300


def single(array):
    return array.astype(np.float32)


def test_one_row_at_a_time_is_the_same(call):
    mechanism = Codebook(epsilon=4, classes=10, codewords=24).fit(digits(800), schema=PICTURES)
    rows, model = PICTURES.rows(digits(10)), mechanism.onnx()
    alone = [in_browser(call, model, rows[at : at + 1])[0] for at in range(10)]
    assert np.array_equal(alone, in_browser(call, model, rows))


# --- networks --------------------------------------------------------------------------------


def test_a_vlm_gets_the_same_latent_and_grid_steps(call):
    from tacit.local.learned.vlm import VLM

    torch.manual_seed(0)
    mechanism = VLM(epsilon=4, classes=10).fit(digits(800), schema=PICTURES, epochs=1)
    mechanism.encoder_[-1].weight.mul_(30)
    raw, model = digits(200), mechanism.onnx()
    rows = PICTURES.rows(raw)
    got = in_browser(call, model, rows)
    assert np.abs(got - graphs.run(model, rows)).max() < 1e-4
    steps = np.array(on_device(call, mechanism, rows, True, "own.encode(row)"))
    expected = mechanism.encode(raw)
    assert np.abs(steps - expected).max() <= 1
    assert np.mean(steps != expected) < 0.01
    # Some of them had to be scaled into the ball.
    assert (np.abs(expected).sum(axis=1) > 0.99 * mechanism.ball.radius_steps).any()
    assert (np.abs(steps).sum(axis=1) <= mechanism.ball.radius_steps).all()


def on_device(call, mechanism, rows, labelled, body):
    """What `body` makes of `own`, the device, and of each `row`."""
    model = mechanism.onnx() if hasattr(mechanism, "onnx") else None
    code = f"""async (m, given) => {{
        const {{ SystemEntropy }} = await import('/randomness.js'), rng = new SystemEntropy();
        const bytes = given.model === null ? null
          : Uint8Array.from(atob(given.model), (c) => c.charCodeAt(0));
        const own = await m.deviceOf(given.told, bytes);
        return given.numbers.map((numbers, at) => {{
          const row = {{
            numbers: {{ dims: [1, numbers.length],
              data: Float32Array.from(numbers, (v) => v ?? NaN) }},
            codes: {{ dims: [1, given.codes[at].length], data: given.codes[at] }} }};
          return {body}; }}); }}"""
    given = {
        "told": device.describe(mechanism, mechanism.channel(labelled), model),
        "model": None if model is None else base64.b64encode(model).decode(),
        "numbers": [[None if np.isnan(v) else float(v) for v in row] for row in rows.numbers],
        "codes": rows.codes.tolist(),
    }
    return call("device", code, given)


@pytest.mark.parametrize("unit", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_convolutional_encoder(call, unit):
    from tacit.local.learned.encoders import ConvEncoder

    torch.manual_seed(0)
    model = graphs.network_encoder(PICTURES, ConvEncoder((8, 8), 16, unit=unit).eval())
    rows = PICTURES.rows(digits(200))
    assert np.abs(in_browser(call, model, rows) - graphs.run(model, rows)).max() < 1e-4


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(1, 6, (3, 2), stride=2, bias=False), nn.GroupNorm(3, 6, affine=False)],
        [nn.Conv2d(1, 4, 3, padding=2, dilation=2), nn.MaxPool2d(3, stride=2, padding=1)],
        [nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.AvgPool2d(2, padding=1), nn.ELU(0.7)],
        [nn.Conv2d(1, 4, 3), nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.LeakyReLU(0.2)],
        [nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Sigmoid(), nn.Tanh()],
    ],
)
def test_layers(call, layers):
    torch.manual_seed(1)
    graph = graphs.Graph()
    numbers, _ = graph.rows(PICTURES)
    network = nn.Sequential(*layers, nn.Flatten())
    model = graph.finish("out", graphs.apply_network(network, numbers.reshape(-1, 1, 8, 8)))
    rows = PICTURES.rows(digits(20))
    got, expected = in_browser(call, model, rows), graphs.run(model, rows)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() < 1e-5


def test_an_operator_that_is_not_known_is_refused(call):
    from playwright.sync_api import Error

    graph = graphs.Graph()
    numbers, _ = graph.rows(PICTURES)
    model = graph.finish("out", graph.node("Sin", numbers))
    with pytest.raises(Error, match=r"unknown operator Sin\."):
        in_browser(call, model, PICTURES.rows(digits(2)))


# --- whole devices ---------------------------------------------------------------------------


def test_direct_noise_starts_from_the_same_numbers(call):
    mechanism = Direct(epsilon=3, classes=2).fit(None, schema=TABLE)
    rows = TABLE.rows(people(300))
    steps = on_device(call, mechanism, rows, True, "own.encode(row)")
    got = np.array([one["steps"] + one["codes"] for one in steps])
    assert np.array_equal(got, mechanism.encode(people(300)))


@pytest.mark.parametrize("labelled", [True, False])
def test_reports_of_every_kind_are_what_the_server_takes(call, labelled):
    from tacit.local.learned.vlm import VLM

    torch.manual_seed(0)
    raw = people(40)
    for mechanism in (
        Codebook(epsilon=2, classes=3, codewords=6).fit(raw, schema=TABLE),
        Partitions(epsilon=2, people=400, classes=3, codewords=5).fit(raw, schema=TABLE),
        Direct(epsilon=2, classes=3).fit(None, schema=TABLE),
        VLM(epsilon=2, classes=3).fit(raw, schema=TABLE, epochs=1),
    ):
        body = "own.release(own.encode(row), given.told.labelled ? 1 : null, rng)"
        reports = on_device(call, mechanism, TABLE.rows(raw), labelled, body)
        columns = {name: np.array([one[name] for one in reports]) for name in reports[0]}
        mechanism.channel(labelled).check(columns)


def test_weaker_noise_than_stated_and_another_encoder_are_refused(call):
    from playwright.sync_api import Error

    mechanism = Codebook(epsilon=2, classes=3, codewords=6).fit(people(40), schema=TABLE)
    model, body = mechanism.onnx(), "(m, given) => m.deviceOf(given, new Uint8Array([1]))"
    told = device.describe(mechanism, mechanism.channel(True), model)
    with pytest.raises(Error, match="encoder is not the one"):
        call("device", body, told)
    weaker = {**told, "encoder": None, "epsilon": 1.99}
    with pytest.raises(Error, match="weaker than this survey states"):
        call("device", body, weaker)


def test_a_network_answers_as_in_python(call):
    from tacit.local.inference.noise_aware import NoiseAwareClassifier
    from tacit.local.inference.votes import Ballot

    mechanism = Direct(epsilon=30, classes=3).fit(None, schema=TABLE)
    raw, rng = people(600), np.random.default_rng(0)
    labels = np.where(raw["age"] > 60, 2, rng.integers(0, 2, 600))
    model = NoiseAwareClassifier(prior="inhouse").fit(mechanism.release(raw, labels))
    encoded = on_device(call, mechanism, TABLE.rows(raw), True, "own.encode(row)")
    body = """async (m, given) => { const own = await m.deviceOf(given.told, null);
        return given.encoded.map((one) => own.answer(one, given.ballot)); }"""
    given = {
        "told": device.describe(mechanism, mechanism.channel(True), None),
        "encoded": encoded,
        "ballot": device.ballot(model, Ballot(epsilon=1)),
    }
    answers = call("device", body, given)
    assert np.mean(np.array(answers) != model.predict(raw)) <= 1 / 300
    assert len(set(answers)) > 1
