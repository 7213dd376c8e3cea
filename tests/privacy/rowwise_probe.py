"""Run by `test_rowwise`, with another library kernel each time: counts results that moved."""

import sys

import numpy as np

from tacit.central.estimators.base import Box
from tacit.central.estimators.components import PrivateComponents
from tacit.central.estimators.frames import Frame
from tacit.central.estimators.scores import RowScaling
from tacit.central.estimators.softmax import NoisyDescent
from tacit.central.statistics.rows import Ball
from tacit.data import schema as schemas
from tacit.local.learned import features as features_of
from tacit.local.learned import private_quantizer as pq
from tacit.local.learned.quantizer import Projection, project_alone
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms.bounding import GridBall
from tacit.privacy.randomness import Seeded

RNG = np.random.default_rng(0)
moved, tried = [], 0


def compare(name, function, rows, places=(1, 2, 3, 5)):
    """The same rows with the first few taken out, in reverse, and one at a time."""
    global tried
    whole = function(rows)
    cases = [(function(rows[start:]), whole[start:]) for start in places]
    cases.append((function(rows[::-1]), whole[::-1]))
    last = len(rows) - 1
    cases.append((function(rows[last:]), whole[last:]))
    for found, wanted in cases:
        tried += 1
        if not np.array_equal(found, wanted):
            moved.append(name)


def learned():
    """Features, public directions, projections: rows of numbers and images."""
    flat = schemas.ArraySchema(300, 0.0, 1.0)
    image = schemas.ArraySchema(64, 0.0, 1.0, (8, 8))
    for given, kind in ((flat, "raw"), (flat, "random"), (image, "scattering"), (image, "random")):
        rows = given.rows(RNG.random((400, given.width)).astype(np.float32))
        made = features_of.fit(kind, given, rows, 0)
        drawn = np.linalg.qr(RNG.standard_normal((made.dimension, 40)))[0]
        axes = pq.Axes(RNG.standard_normal(made.dimension), drawn, 30.0)
        mean, matrix = axes.center.astype(np.float32), drawn.astype(np.float32)

        def alone(indices, made=made, rows=rows):
            return features_of.alone(made, rows[indices])

        def reduced(indices, made=made, rows=rows, axes=axes):
            return pq.on_axes(made, rows[indices], axes)

        def projected(indices, made=made, rows=rows, mean=mean, matrix=matrix):
            return project_alone(made, rows[indices], Projection(mean, matrix))

        for name, function in (("alone", alone), ("reduced", reduced), ("projected", projected)):
            compare(f"{kind} {name}", function, np.arange(400))


def network():
    """An autoencoder's latents, in whole numbers."""
    from tacit.local.learned import autoencoder, encoders

    front = encoders.TableFrontEnd(50)
    made = autoencoder.AutoencoderFeatures(
        front, encoders.build(0, lambda: encoders.mlp([50, 30, 7]))
    )
    rows = schemas.ArraySchema(50, 0.0, 1.0).rows(RNG.random((500, 50)))
    compare("autoencoder", lambda i: made.alone(rows[i]), np.arange(500))
    close = np.abs(made.alone(rows) - made.transform(rows)).max()
    assert close < 1e-3, close


def statistics():
    """Clipping, in either order of memory."""
    ball = Ball("probe", 3.0, None, 300, 20)
    rows = RNG.normal(size=(700, 300))
    compare("ball", lambda x: ball.clipped(x)[0], rows)
    compare("ball, columns first", lambda x: ball.clipped(np.asfortranarray(x))[0], rows)
    for order in (1, 2):
        grid = GridBall("probe", 3.0, 2.0**-12, order)
        compare(f"grid ball {order}", grid.clip, rows)
    compare("norms", lambda x: pq.rowwise.lengths(x), rows)


def estimators():
    """Rows of regressions, also beyond 8,192 columns, scores, and a network's components."""
    for width in (30, 9000):
        box = Box(-np.ones(width), np.ones(width))
        rows = RNG.uniform(-1, 1, (20, width))
        scores = RowScaling.of("probe", box, None, intercept=True)
        compare(f"scores {width}", lambda x, s=scores: s.rows(x)[0], rows)
        frame = Frame.of("probe", box, Box(-np.ones(1), np.ones(1)), None, intercept=True, order=2)
        compare(f"frame {width}", lambda x, f=frame: f.rows(x, np.zeros(len(x))), rows)
    box = Box(-np.ones(30), np.ones(30))
    rows = RNG.uniform(-1, 1, (900, 30))
    made, _ = PrivateComponents("probe", box, 7, None, 1.0, 1e-5, "record").fit(rows, Seeded(1))
    compare("components", made, rows)
    zeros = np.zeros(900, dtype=np.int64)
    for count in (1, 3):
        descent = NoisyDescent("probe", 30, count, 1.0, 1e-5, None, 3, Unit.RECORD)
        given = RNG.normal(0, 4, (900, count))
        shaped = given[:, 0] if count == 1 else given

        compare("residuals", lambda s, d=descent: d._residuals(s, zeros[: len(s)]), shaped)


for work in (learned, network, statistics, estimators):
    work()
print(f"{len(moved)} of {tried} moved: {sorted(set(moved))}")
sys.exit(bool(moved))
