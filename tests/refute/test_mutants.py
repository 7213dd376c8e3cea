"""Holes that were there once, put back: the refuter must find each of them."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.csv
import pytest

from tacit.anonymize import training as anonymizing
from tacit.central.queries import duckdb_engine, postgres_engine
from tacit.central.statistics import released, rows
from tacit.central.training import (
    correlated,
    gradients,
    journal,
    kinds,
    loading,
    loop,
    probing,
    rowwise,
    scaling,
    turns,
)
from tacit.central.training.tracing import Unfit
from tacit.data import lines
from tacit.federated.torch_model import TorchModel
from tacit.local.channels import PartitionedChannel
from tacit.local.inference import losses
from tacit.local.learned import base, private_features, private_partitions
from tacit.local.learned.features import QuantileTransform
from tacit.privacy import errors, silence
from tacit.privacy.accounting import participation

from .refuter import Verdict, refute
from .registry import ROOT, paths
from .tape import load_all
from .test_refuter import _path

BY_NAME = {path.name: path for path in paths()}


@pytest.fixture(scope="module", autouse=True)
def _everything_is_loaded() -> None:
    load_all()


def found(name: str) -> Verdict:
    return refute(BY_NAME[name])


def test_rows_of_layers_that_are_believed_to_be_examples(monkeypatch: Any) -> None:
    """Every operator is taken to keep rows in place."""
    called = rowwise.States._called

    def believed(self: Any, node: Any) -> Any:
        try:
            return called(self, node)
        except Unfit:
            made = node.meta["val"]
            rowed = getattr(made, "shape", ())[:1] == (self.count,)
            return rowwise.RowAxis(0) if rowed else None

    monkeypatch.setattr(rowwise.States, "_called", believed)
    monkeypatch.setattr(probing, "_agrees", lambda *given: True)
    assert found("private_training.train sorted rows").refuted


def test_turns_that_come_too_soon(monkeypatch: Any) -> None:
    """Every step takes the first batch: twelve turns, where three are stated."""
    batch = turns.FixedOrder.batch

    def first(self: Any) -> Any:
        self._step = 0
        return batch(self)

    monkeypatch.setattr(turns.FixedOrder, "batch", first)
    assert found("private_training.train_in_order mlp").refuted


def test_the_sensitivity_of_one_turn(monkeypatch: Any) -> None:
    squared = participation.Banded.squared_sensitivity

    def of_one(self: Any, steps: int, period: int, turns: Any = None) -> Any:
        return squared(self, steps, period, 1)

    monkeypatch.setattr(participation.Banded, "squared_sensitivity", of_one)
    assert found("private_training.train_in_order mlp").refuted


def test_sums_of_earlier_steps_that_are_not_mixed_in(monkeypatch: Any) -> None:
    """Noise is taken back with the records that it hid: their sums are added again and again."""

    def undone(self: Any, start: Any, earlier: Any) -> Any:
        for coefficient, one in zip(self._earlier, earlier, strict=False):
            start.add_(one, alpha=3 * coefficient)
        return start

    monkeypatch.setattr(correlated.CorrelatedNoise, "_combined", undone)
    assert found("private_training.train_in_order mlp").refuted


def test_a_data_set_whose_errors_are_shown(monkeypatch: Any) -> None:
    @contextmanager
    def shown(self: Any) -> Any:
        yield

    monkeypatch.setattr(silence.Watch, "silent", shown)
    assert found("private_training.TrainingLoop a data set that raises").refuted


def test_records_that_draw_from_one_stream(monkeypatch: Any) -> None:
    """How much one record draws decides how all after it are augmented."""
    monkeypatch.setattr(loading, "_draw_from", lambda words: None)
    assert found("private_training.TrainingLoop a data set that raises").refuted


def test_records_that_belong_to_two_processes(monkeypatch: Any) -> None:
    def all_of_them(plan: Any, rows: Any, loaded: Any, among: Any) -> Any:
        return replace(plan, parts=(plan.records,) * among.size), rows

    monkeypatch.setattr(loop, "_divided", all_of_them)
    assert found("private_training.TrainingLoop two processes, every record").refuted


def test_noise_that_is_shared_out(monkeypatch: Any) -> None:
    """Each process adds a part of the noise to its own sum, with a part of the deviation."""

    def shares(ranks: Any, sums: Any, tally: Any, noise: Any, divisor: float) -> Any:
        whole = sums.double()
        replace(noise, sigma=noise.sigma / ranks.size).add_to(whole, divisor)
        ranks.add(whole)
        return whole, tally

    monkeypatch.setattr(gradients, "together", shares)
    assert found("private_training.TrainingLoop two processes").refuted


def test_lost_steps_that_were_shown_and_are_not_charged(monkeypatch: Any) -> None:
    resume = journal.Journal.look

    def none_lost(self: Any, *given: Any) -> Any:
        return replace(resume(self, *given), lost=0)

    monkeypatch.setattr(journal.Journal, "look", none_lost)
    assert found("private_training.TrainingLoop resumed").refuted


def test_a_step_that_takes_two_samples(monkeypatch: Any) -> None:
    """Two noisy updates, of which one is counted."""
    draw = gradients.NoisyGradients.draw

    def twice(self: Any) -> Any:
        return draw(self) + draw(self)

    monkeypatch.setattr(gradients.NoisyGradients, "draw", twice)
    assert found("private_training.train mlp, every record").refuted


def test_a_count_without_noise(monkeypatch: Any) -> None:
    """The clip norm of the next step tells who was there."""
    rounded = kinds.rounded_gaussian

    def settled(self: Any, tally: Any, stream: Any) -> None:
        rounded(self.deviation, 1, stream)
        self.clip_norm *= math.exp(-0.2 * tally.signs / (2 * self.expected_size))
        self.scaling = scaling.Limited(self.room, self.clip_norm)

    monkeypatch.setattr(kinds._Following, "settle", settled)
    assert found("private_training.train adaptive").refuted


def test_a_count_that_is_not_centred(monkeypatch: Any) -> None:
    """Its noise is for half a count: a record counts one, or its blank nothing."""

    def counted(self: Any, norms: Any, fine: Any) -> int:
        return 2 * int(((norms[0] <= self.limit) & fine).sum())

    monkeypatch.setattr(scaling.Limited, "signs", counted)
    assert found("private_training.train adaptive").refuted


def test_bounds_per_layer_that_do_not_add_up(monkeypatch: Any) -> None:
    def whole(self: Any, setting: Any, order: Any) -> tuple[float, ...]:
        return (float(setting.clip_norm) * setting.room,) * len(order)

    monkeypatch.setattr(kinds.PerLayerClipping, "_bounds", whole)
    assert found("private_training.train per layer").refuted


def test_one_module_that_serves_every_client(monkeypatch: Any) -> None:
    @contextmanager
    def shared(self: Any, rng: Any) -> Any:
        yield self

    monkeypatch.setattr(TorchModel, "_serving", shared)
    monkeypatch.setattr(TorchModel, "admit", lambda self, data: None)
    assert found("ClientPrivacy a buffer that a pass writes").refuted


@pytest.mark.heavy
def test_quotes_that_reach_over_lines(monkeypatch: Any) -> None:
    def naive(path: Any, delimiter: str = ",") -> Any:
        options = pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=_skipped)
        kinds = dict.fromkeys(lines.header(path), pyarrow.string())
        convert = pyarrow.csv.ConvertOptions(column_types=kinds, check_utf8=False)
        read = pyarrow.csv.read_csv(path, parse_options=options, convert_options=convert)
        return iter(read.to_batches())

    monkeypatch.setattr(lines, "batches", naive)
    assert found("Curator, lines of text").refuted


def _skipped(row: Any) -> str:
    return "skip"


def test_views_that_fail_on_one_row(monkeypatch: Any) -> None:
    for engine in (duckdb_engine, postgres_engine):
        monkeypatch.setattr(engine, "must_be_stored", lambda *said: None, raising=False)
    assert found("Curator on a view").refuted


def test_an_encoder_that_remembers(monkeypatch: Any) -> None:
    def together(encoder: Any, inputs: Any, size: int) -> Any:
        return anonymizing.represent(encoder, inputs)

    monkeypatch.setattr(anonymizing, "represent_alone", together)
    assert found("AnonymizingEncoder remembering").refuted


def test_rows_that_are_not_clipped(monkeypatch: Any) -> None:
    def whole(self: Any, block: Any) -> Any:
        fine = np.isfinite(block).all(axis=1)
        steps = np.where(fine[:, None], np.clip(block, -1e6, 1e6), 0) / self.step
        return steps.astype(np.int64), fine

    monkeypatch.setattr(rows.Ball, "clipped", whole)
    for name in ("mean", "covariance", "kmeans"):
        assert found(f"private_statistics.{name}").refuted


def test_noise_that_the_event_does_not_name(monkeypatch: Any) -> None:
    draw = released.Spending.draw
    monkeypatch.setattr(
        released.Spending, "draw", lambda self, sigma, shape: draw(self, sigma / 2, shape)
    )
    assert found("private_statistics.mean").refuted


def test_a_row_that_is_refused(monkeypatch: Any) -> None:
    """What one record can raise is told without noise."""
    clipped = rows.Ball.clipped

    def strict(self: Any, block: Any) -> Any:
        if not np.isfinite(block).all():
            raise ValueError("rows must be finite")
        return clipped(self, block)

    monkeypatch.setattr(rows.Ball, "clipped", strict)
    assert found("private_statistics.mean").refuted


@pytest.mark.heavy
def test_numbers_that_are_told_exactly(monkeypatch: Any) -> None:
    """Such as n in an artifact that states add-remove."""
    path = copy.copy(BY_NAME["private_statistics.mean"])
    run = path.run
    object.__setattr__(
        path,
        "run",
        lambda data, coins: type(out := run(data, coins))((len(data[0]), out.released), out.event),
    )
    assert refute(path).refuted


def test_a_partition_that_the_row_chooses(monkeypatch: Any) -> None:
    def by_the_row(self: Any, raw: Any, rng: Any = None) -> Any:
        raw = np.asarray(raw)
        own = raw.sum(axis=1) % self.partitions
        symbols = np.take_along_axis(raw, own[:, None], axis=1)[:, 0]
        return {"partition": own, "symbols": self.law.release(symbols, rng)}

    monkeypatch.setattr(PartitionedChannel, "release", by_the_row)
    assert found("Partitions.release").refuted


def test_an_outcome_that_is_refused(monkeypatch: Any) -> None:
    """A voter's outcome that is no number must not stop the others' votes."""
    monkeypatch.setattr(losses, "numbers", lambda values: errors.reals("vote", values))
    assert found("Ballot on errors").refuted


def test_a_vote_that_depends_on_other_errors(monkeypatch: Any) -> None:
    """Errors that are scaled by the largest of them."""
    positions = losses.positions

    def scaled(error: Any, lower: float, limit: float) -> Any:
        return positions(error, lower, max(float(error.max()), 1e-9))

    monkeypatch.setattr(losses, "positions", scaled)
    assert found("Ballot on errors").refuted


def test_quantiles_of_inhouse_rows_without_noise(monkeypatch: Any) -> None:
    def exact(schema: Any, rows: Any, budget: Any) -> Any:
        noisy(schema, rows, budget)  # charged, and thrown away
        return QuantileTransform.fit(schema, rows)

    noisy = private_features._quantile
    monkeypatch.setattr(private_features, "_quantile", exact)
    assert found("Partitions quantile").refuted


def test_clusters_of_inhouse_rows_counted_without_noise(monkeypatch: Any) -> None:
    def exact(codes: Any, categories: int, **share: Any) -> Any:
        charged = counts(codes, categories, **share)
        return replace(charged, value=np.bincount(codes, minlength=categories))

    counts = private_partitions.statistics.counts
    mutant = SimpleNamespace(**{**vars(private_partitions.statistics), "counts": exact})
    monkeypatch.setattr(private_partitions, "statistics", mutant)
    assert found("Partitions raw").refuted


def test_all_rows_of_a_person_under_the_price_of_a_few(monkeypatch: Any) -> None:
    """Thirty people with hundreds of rows each were certified as persons."""
    assert not found("Codebook by names").refuted
    monkeypatch.setattr(base, "chosen", lambda people, *given, **more: np.ones(len(people), bool))
    assert found("Codebook by names").refuted


def test_rows_of_a_person_that_are_chosen_by_what_they_say(monkeypatch: Any) -> None:
    """Those with large values: which rows leave then depends on them, and so does their number."""

    def looking(self: Any, raw: Any, labels: Any = None, rng: Any = None, **named: Any) -> Any:
        largest = np.asarray(raw)[:, 0] > 0.95
        given = zip(named["persons"], largest, strict=True)
        names = [one if kept else None for one, kept in given]
        return release(self, raw, labels, rng, **{**named, "persons": names})

    release = base.Learned.release
    monkeypatch.setattr(base.Learned, "release", looking)
    assert found("Codebook by names").refuted


FLOAT_PRODUCTS = """
import numpy as np
from tacit.privacy import rowwise
rowwise.Product.__call__ = lambda self, rows: np.asarray(
    np.asarray(rows, np.float32) @ self.matrix.astype(np.float32), np.float64)
rowwise.total = lambda x: x.sum(axis=-1)
from refute.registry import paths
from refute.refuter import refute
from refute.tape import load_all
load_all()
wide = next(path for path in paths() if path.name == "Codebook wide")
raise SystemExit(0 if refute(wide, everything=True).refuted else 1)
"""


@pytest.mark.slow
def test_products_that_depend_on_a_rows_place() -> None:
    """On kernels where they do: others never showed it."""
    given = {**os.environ, "OPENBLAS_CORETYPE": "Haswell", "PYTHONPATH": _path()}
    done = subprocess.run(
        [sys.executable, "-c", FLOAT_PRODUCTS], env=given, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_updates_that_are_clipped_before_they_are_rounded_alone(monkeypatch: Any) -> None:
    """The rounded vector of a client is not measured in integers."""
    from tacit.federated.client_level import grid

    monkeypatch.setattr(grid, "clip_l2", lambda values, radius: values)
    monkeypatch.setattr(grid, "_SLACK", 0.0)
    monkeypatch.setattr(grid.Grid, "bound", property(lambda self: self.steps))
    assert found("SecureClientPrivacy fedavg").refuted


def test_clients_that_are_silent_where_their_model_fails(monkeypatch: Any) -> None:
    """A client that raised sends nothing, not even noise: the server hears it."""
    from tacit.federated.client_level import shares

    shared = shares.SharePlan.share
    monkeypatch.setattr(
        shares.SharePlan,
        "share",
        lambda self, encoded, rng: shared(self, encoded, rng) if encoded.any() else encoded,
    )
    assert found("SecureClientPrivacy fedavg").refuted
