"""Graphs under ONNX Runtime against numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data.schema import ArraySchema, Categorical, Continuous, Rows, TableSchema
from tacit.local.learned import features as feature
from tacit.local.learned.partitions import Partitions
from tacit.privacy.errors import InvalidParameter

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
nn = torch.nn

from tacit.local.learned import onnx as graphs  # noqa: E402

PICTURES = ArraySchema(width=64, lower=0, upper=1, image=(8, 8))
TABLE = TableSchema(
    (
        Categorical("job", ("a", "b", "c")),
        Continuous("x", 0, 1),
        Continuous("y", 0, 1, missing="indicate"),
        Categorical("zone", ("p", "q"), unseen="other"),
    )
)
NUMBERS = TableSchema((Continuous("x", 0, 1), Continuous("y", 0, 1)))
CODES = TableSchema((Categorical("job", ("a", "b", "c")),))


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def rows_of(schema, count=200, seed=0):
    rng = np.random.default_rng(seed)
    if isinstance(schema, ArraySchema):
        return schema.rows(rng.random((count, schema.width)))
    numbers = rng.random((count, len(schema.continuous))).astype(np.float32)
    for index, column in enumerate(schema.continuous):
        if column.missing == "indicate":
            numbers[rng.random(count) < 0.3, index] = np.nan
    codes = [
        rng.integers(-1 if column.unseen == "other" else 0, len(column.categories), count)
        for column in schema.categorical
    ]
    return Rows(numbers, np.stack(codes, axis=1) if codes else np.empty((count, 0), np.int64))


COLOURS = ArraySchema(width=11 * 12 * 3, lower=0, upper=1, colour=(11, 12, 3))
WINDOWS = ArraySchema(width=20 * 3, lower=0, upper=1, signal=(20, 3))


@pytest.mark.parametrize("schema", [PICTURES, COLOURS, WINDOWS])
def test_partitions_of_images_and_signals_are_the_same_but_for_ties(schema):
    rows = rows_of(schema, 300)
    made = Partitions(epsilon=2, people=400, classes=2, codewords=5)
    made.fit(rows.numbers, schema=schema, inhouse_public=True)
    found = graphs.run(made.onnx(), rows)
    assert found.shape == (300, made.partitions)
    assert (found == made.encode_rows(rows)).mean() > 0.99


def test_local_patches_are_the_same_numbers():
    rows = rows_of(COLOURS, 70)
    fitted = feature.fit("patches", COLOURS, rows, seed=1)
    got = graphs.run(graphs.features_encoder(COLOURS, fitted), rows, block=32)
    np.testing.assert_allclose(got, fitted.transform(rows), atol=2e-4)


# --- fixed features --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("scattering", PICTURES),
        ("scattering", ArraySchema(width=28 * 28, lower=0, upper=1, image=(28, 28))),
        ("scattering", ArraySchema(width=7 * 10, lower=0, upper=1, image=(7, 10))),
        *((kind, schema) for kind in ("raw", "quantile", "random")
          for schema in (PICTURES, TABLE, NUMBERS, CODES)),
    ],
)  # fmt: skip
def test_features_are_the_same_numbers(kind, schema):
    rows = rows_of(schema, 70)
    fitted = feature.fit(kind, schema, rows, seed=1)
    expected = fitted.transform(rows)
    got = graphs.run(graphs.features_encoder(schema, fitted), rows, block=32)
    assert got.dtype == np.float32
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() < 2e-6


def test_a_graph_takes_one_row_as_well_as_many():
    rows = rows_of(PICTURES, 5)
    model = graphs.features_encoder(PICTURES, feature.fit("scattering", PICTURES, rows))
    alone = graphs.run(model, rows, block=1)
    assert np.abs(alone - graphs.run(model, rows, block=5)).max() < 1e-6


# --- the codebook ----------------------------------------------------------------------------


def codebook(schema, kind, rows, cells=64, width=12, seed=0):
    rng = np.random.default_rng(seed)
    fitted = feature.fit(kind, schema, rows, seed=seed)
    x = fitted.transform(rows)
    mean = x.mean(axis=0)
    matrix = np.linalg.svd(x - mean, full_matrices=False)[2][:width].T.copy()
    z = (x - mean) @ matrix
    centres = z[rng.choice(len(z), cells, replace=False)] + rng.normal(0, 1e-2, (cells, z.shape[1]))
    return fitted, mean, matrix, centres, rng.integers(0, 10, cells)


def nearest(fitted, mean, matrix, centres, rows):
    """Squared distances in float64, from features in float32."""
    z = ((fitted.transform(rows) - mean) @ matrix).astype(np.float64)
    return ((z[:, None] - centres[None]) ** 2).sum(axis=-1)


def encoder(schema, fitted, mean, matrix, centres, groups=None):
    vectors = graphs.vectors_graph(schema, fitted, mean, matrix)
    return graphs.codebook_encoder(vectors, centres, groups)


@pytest.mark.parametrize(("schema", "kind"), [(PICTURES, "scattering"), (TABLE, "quantile")])
def test_codewords_are_the_same_but_for_ties(schema, kind):
    """Rows as near to two cells as float32 can tell are under 1 in 500; no other may differ."""
    rows = rows_of(schema, 2000)
    fitted, mean, matrix, centres, groups = codebook(schema, kind, rows)
    distances = nearest(fitted, mean, matrix, centres, rows)
    best = np.sort(distances, axis=1)
    tied = best[:, 1] - best[:, 0] < 1e-5 * (1 + best[:, 0])
    cell = graphs.run(
        graphs.codebook_encoder(graphs.vectors_graph(schema, fitted, mean, matrix), centres), rows
    )
    model = graphs.codebook_encoder(
        graphs.vectors_graph(schema, fitted, mean, matrix), centres, groups
    )
    word = graphs.run(model, rows)
    assert cell.dtype == word.dtype == np.int64
    assert cell.shape == word.shape == (2000,)
    assert np.array_equal(cell[~tied], distances.argmin(axis=1)[~tied])
    assert np.array_equal(word, groups[cell])
    assert tied.mean() < 0.002
    assert len(set(cell.tolist())) > 10
    # Another mean is noticed.
    wrong = graphs.codebook_encoder(
        graphs.vectors_graph(schema, fitted, mean + 0.05, matrix), centres
    )
    assert not np.array_equal(graphs.run(wrong, rows)[~tied], cell[~tied])


def test_exact_ties_go_to_the_first_cell():
    rows = rows_of(NUMBERS, 50)
    fitted = feature.fit("raw", NUMBERS, rows)
    centres = np.array([[0.5, 0.5], [0.5, 0.5]])
    model = graphs.codebook_encoder(
        graphs.vectors_graph(NUMBERS, fitted, np.zeros(2), np.eye(2)), centres
    )
    assert np.all(graphs.run(model, rows) == 0)


def test_the_same_weights_give_the_same_bytes():
    rows = rows_of(PICTURES, 100)
    parts = codebook(PICTURES, "scattering", rows)
    first, second = (encoder(PICTURES, *parts) for _ in range(2))
    assert first == second
    model = onnx.load_from_string(first)
    onnx.checker.check_model(model, full_check=True)
    assert [entry.name for entry in model.graph.input] == ["numbers"]
    assert [entry.name for entry in model.graph.output] == ["codeword"]
    # Matrices that are used eight times are stored once.
    stored = [(*t.dims, t.data_type, t.raw_data) for t in model.graph.initializer]
    assert len(stored) == len(set(stored))
    used = [name for node in model.graph.node for name in node.input if name.startswith("c")]
    assert len(used) > 3 * len(stored)


# --- torch networks --------------------------------------------------------------------------


def through_torch(network, x):
    with torch.no_grad():
        return network.eval()(torch.from_numpy(x)).numpy()


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 5)],
        [nn.Linear(64, 40, bias=False), nn.Tanh(), nn.Dropout(0.5), nn.Linear(40, 5), nn.Sigmoid()],
        [nn.Linear(64, 9), nn.LeakyReLU(0.2), nn.Identity(), nn.Sequential(nn.ELU(0.7))],
    ],
)
def test_linear_networks(layers):
    rows, network = rows_of(PICTURES), nn.Sequential(*layers)
    got = graphs.run(graphs.network_encoder(PICTURES, network), rows)
    assert np.abs(got - through_torch(network, rows.numbers)).max() < 2e-6


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU(), nn.AvgPool2d(2)],
        [nn.Conv2d(1, 6, (3, 2), stride=2, bias=False), nn.GroupNorm(3, 6, affine=False)],
        [nn.Conv2d(1, 4, 3, padding=2, dilation=2), nn.MaxPool2d(3, stride=2, padding=1)],
        [nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.AvgPool2d(2, padding=1)],
        [nn.Conv2d(1, 4, 3), nn.AvgPool2d(3, 2, 1, count_include_pad=False)],
        [nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1)],
    ],
)
def test_convolutions(layers):
    for layer in layers:
        if getattr(layer, "affine", False):
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    network = nn.Sequential(*layers, nn.Flatten())
    rows = rows_of(PICTURES, 20)
    images = rows.numbers.reshape(-1, 1, 8, 8)
    expected = through_torch(network, images)
    graph = graphs.Graph()
    numbers, _ = graph.rows(PICTURES)
    model = graph.finish("out", graphs.apply_network(network, numbers.reshape(-1, 1, 8, 8)))
    got = graphs.run(model, rows)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() < 5e-6


def test_the_encoders_of_this_package():
    from tacit.local.learned.encoders import ConvEncoder, front_end, mlp

    rows = rows_of(PICTURES, 100)
    for unit in (True, False):
        encoder = ConvEncoder((8, 8), 16, unit=unit).eval()
        got = graphs.run(graphs.network_encoder(PICTURES, encoder), rows)
        assert np.abs(got - through_torch(encoder, rows.numbers)).max() < 5e-6
    rows = rows_of(TABLE, 100)
    front = front_end(TABLE)
    network = mlp([front.dimension, 20, 3])
    with torch.no_grad():
        expected = network(front(rows)).numpy()
    got = graphs.run(graphs.network_encoder(TABLE, network), rows)
    assert np.abs(got - expected).max() < 2e-6


@pytest.mark.parametrize("kind", ["autoencoder", "invariant"])
def test_trained_features_are_the_same_numbers(kind):
    module = pytest.importorskip(f"tacit.local.learned.{kind}")
    rows = rows_of(PICTURES, 64)
    fitted = module.fit(PICTURES, rows, 0, epochs=1)
    expected = fitted.transform(rows)
    got = graphs.run(graphs.features_encoder(PICTURES, fitted), rows)
    assert np.abs(got - expected).max() < 1e-5
    assert np.ptp(expected) > 1e-3


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(64),
        nn.LSTM(64, 3),
        nn.Flatten(0),
        nn.AdaptiveAvgPool2d(2),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(1, 1, 3, padding_mode="circular"),
        nn.Conv2d(1, 1, 3, padding="same"),
    ],
)
def test_layers_that_are_not_known_exactly_are_refused(layer):
    with pytest.raises(InvalidParameter, match="onnx: "):
        graphs.network_encoder(PICTURES, nn.Sequential(layer))
