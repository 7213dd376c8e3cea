"""A silo: algorithms run unchanged on it, see no row, and cost what the plan says."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from torch import Tensor

from tacit.central.training.noise import Noise
from tacit.federated import rounds
from tacit.federated.algorithms import client_updates as local
from tacit.federated.algorithms.registry import Algorithm, Phase, algorithm
from tacit.federated.algorithms.server_updates import follow
from tacit.federated.config import Pruning
from tacit.federated.model import Data
from tacit.federated.payload import Payload, PayloadPart
from tacit.federated.record_level import silo as silo_module
from tacit.federated.record_level.normalisation import Normalisation, SiloMoments, combine
from tacit.federated.record_level.privacy import RecordPrivacy, SiloPlan
from tacit.federated.record_level.silo import Silo
from tacit.federated.rounds import RunOptions
from tacit.federated.torch_model import TorchModel, mlp
from tacit.privacy import errors, events
from tacit.privacy.randomness import Seeded


def data(count: int = 12, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    rows = rng.random((count, 4), dtype=np.float32)
    return Data(rows, rng.integers(0, 3, count))


def silo(
    held: Data | None = None,
    name: Any = "fedavg",
    *,
    settings: dict[str, Any] | None = None,
    given: dict[str, Any] | None = None,
    **options: Any,
) -> Silo:
    """All rows in every draw, so that calibration is a closed form, unless told otherwise."""
    chosen = algorithm(name) if isinstance(name, str) else name
    usual = {"batch_size": None, "epochs": 1} if "epochs" in chosen.reads else {}
    privacy = {"epsilon": 4.0, "delta": 1e-4, "rounds": 3, **(given or {})}
    return Silo(
        options.pop("model", None) or TorchModel(mlp(4, 3)),
        data() if held is None else held,
        RecordPrivacy(**privacy),
        chosen,
        chosen.config(**{**usual, **(settings or {})}),
        **options,
    )


def custom(client: Any) -> Algorithm:
    """An algorithm of one exchange, with this client function."""
    phase = Phase("train", client, follow, (PayloadPart("update"),))
    return Algorithm("custom", (phase,), ("epochs", "batch_size", "server_rate"))


def one_step(config: Any, model: Any, received: Any, state: Any, given: Data, rng: Any) -> Any:
    found = model.gradient(received["model"], given.rows, given.labels)
    return Payload({"update": -found}, float(len(given))), state


def asked(one: Silo, exchange: int = 1) -> Any:
    """Its reply to the start."""
    received: local.Global = {"model": one._model.start()}
    rng = np.random.default_rng(0)
    return one.answer(exchange, one.algorithm.phases[0], received, {}, rng)[0]


def minus(outputs: Tensor, labels: Tensor) -> Tensor:
    """A loss whose gradient is the row, backwards."""
    return -outputs.mean()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(self: Noise, sums: Tensor, divisor: float = 1.0) -> None:
        sums.div_(divisor)

    monkeypatch.setattr(Noise, "add_to", without)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", ["fedsgd", "fedavg", "fedprox", "feddyn"])
def test_without_noise_and_clipping_it_is_the_plain_loop(name: str) -> None:
    held = [data(12, 1), data(20, 2), data(7, 3)]
    settings = {} if name == "fedsgd" else {"epochs": 3, "batch_size": None}
    model, chosen = TorchModel(mlp(4, 3)), algorithm(name)
    given = {"clip_norm": 1e3, "rounds": 4}
    silos = [silo(one, name, settings=settings, given=given, model=model) for one in held]
    config = chosen.config(**settings)
    plain = rounds.run(name, model, held, 4, RunOptions(config=config))
    found = rounds.run(name, model, silos, 4, RunOptions(config=config))
    assert np.allclose(found.model, plain.model, atol=2e-3 * np.abs(plain.model).max())
    assert not np.allclose(plain.model, model.start(), atol=0.01)


def test_the_noise_has_its_spread() -> None:
    """That of one draw: z C / n, on 1,020 numbers."""
    rows = np.zeros((30, 50), dtype=np.float32)
    held = Data(rows, np.zeros(30, dtype=int))
    one = silo(held, "fedsgd", given={"clip_norm": 0.5}, model=TorchModel(mlp(50, 20), minus))
    reply = asked(one)
    found = np.concatenate([part.ravel() for part in reply.record.values()])
    expected = float(one.plan.multiplier) * 0.5 / 30
    assert found[:1000].std() == pytest.approx(expected, rel=0.12)  # rows are zero: noise alone


def test_an_algorithm_sees_no_row() -> None:
    seen: dict[str, Any] = {}

    def curious(config: Any, model: Any, received: Any, state: Any, given: Data, rng: Any) -> Any:
        seen.update(rows=given.rows, labels=given.labels, model=model)
        return one_step(config, model, received, state, given, rng)

    one = silo(name=custom(curious), given={"held_out": 4})
    reply = asked(one)
    assert seen["rows"].shape == (9, 0)
    assert not seen["labels"].any()
    assert seen["model"].evaluate(None, None, None).accuracy == 0
    assert reply.weight == len(one) == 9
    assert reply.stated == (one.spent, 1e-4)


def test_a_draw_more_than_planned_is_refused() -> None:
    counted = []

    def greedy(config: Any, model: Any, received: Any, state: Any, given: Data, rng: Any) -> Any:
        for _ in range(100):
            found = model.gradient(received["model"], given.rows, given.labels)
            counted.append(1)
        return Payload({"update": found}), state

    one = silo(name=custom(greedy), settings={"epochs": 2})
    with pytest.raises(errors.TacitError, match="no more draws than were planned"):
        asked(one)
    assert len(counted) == one.plan.draws == 2
    assert one.spent > 0  # what was begun is paid


def test_rows_that_are_held_out_are_never_trained_on() -> None:
    """A reply depends on every row but those: NaN there drops nothing."""
    held = data(12)
    held.rows[3::4] = np.nan
    one = silo(held, given={"held_out": 4})
    asked(one)
    assert one._gradients.dropped == 0
    held.rows[0] = np.nan
    one = silo(held, given={"held_out": 4})
    asked(one)
    assert one._gradients.dropped == 1


def test_masks_are_read_off_private_weights() -> None:
    pruning = Pruning(target=0.5, accuracy=0, distance=0)
    settings = {"pruning": pruning, "epochs": 2, "batch_size": None}
    one = silo(name="subfedavg", settings=settings)
    found = rounds.run("subfedavg", TorchModel(mlp(4, 3)), [one], 3, RunOptions(config=one.config))
    assert 0 < np.mean(found.states[0]["mask"] == 0) < 0.5


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fsvrg", {}, "algorithm must be one with a single exchange, got 'fsvrg'.*nothing cancels"),
        ("subfedavg", {}, "accuracy of pruning must be 0, got 0.5.*release without noise"),
    ],
)
def test_what_cannot_hold_is_refused(name: str, settings: Any, message: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=f"^RecordPrivacy: {message}"):
        silo(name=name, settings=settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": float("nan")}, "epsilon must be"),
        ({"delta": 0}, "delta must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"clip_norm": -1}, "clip_norm must be"),
        ({"statistics": 1}, "statistics must be"),
        ({"held_out": 1}, "held_out must be 0, or at least 2"),
        ({"evaluations": 2}, "held_out must be given for evaluations"),
        ({"bounds": (1, 1)}, "bounds must be"),
        ({"bounds": (0, np.inf)}, "bounds must be finite"),
        ({"held_out": 13, "evaluations": 1}, "held_out must be at most the number of rows"),
    ],
)
def test_impossible_settings_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=f"^RecordPrivacy: {message}"):
        silo(given=given)


@pytest.mark.usefixtures("quiet")
def test_rows_whose_label_is_no_class_count_nowhere() -> None:
    """As if they were blank: an error would tell the server a label."""
    rows = np.random.default_rng(0).random((6, 4), dtype=np.float32)
    odd, blank = np.array([0, 1, 77, 1, -1, 0]), rows.copy()
    blank[[2, 4]] = np.nan
    one, other = silo(Data(rows, odd)), silo(Data(blank, np.where((odd > 1) | (odd < 0), 0, odd)))
    assert (one.unlabelled, other.unlabelled) == (2, 0)
    first, second = asked(one).record, asked(other).record
    assert all(np.array_equal(first[name], second[name]) for name in first)


def exact_epsilon(mu: float, delta: float) -> float:
    """ε at δ of a Gaussian with this μ [Balle, Wang 2018], with fifty digits."""
    with mpmath.workdps(50):

        def excess(eps: Any) -> Any:
            upper = mpmath.ncdf(-eps / mu + mpmath.mpf(mu) / 2)
            return upper - mpmath.exp(eps) * mpmath.ncdf(-eps / mu - mpmath.mpf(mu) / 2) - delta

        return float(mpmath.findroot(excess, (0.01, 20), solver="bisect", tol=1e-40, maxsteps=200))


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_full_batches_cost_what_a_gaussian_costs(share: float) -> None:
    """With statistics beside, and evaluations on other rows."""
    given = {"epsilon": 2.0, "delta": 1e-5, "rounds": 10, "statistics": share}
    privacy = RecordPrivacy(**given, held_out=5, evaluations=4)  # type: ignore[arg-type]
    chosen = algorithm("fedavg")
    plan = privacy.plan(100, chosen, chosen.config(batch_size=None, epochs=3))
    squared = 30 / float(plan.multiplier) ** 2
    if share:
        squared += 1 / float(privacy.statistics_multiplier) ** 2
    trained = exact_epsilon(float(np.sqrt(squared)), 1e-5)
    tested = exact_epsilon(2 / float(privacy.evaluation_multiplier), 1e-5)
    assert plan.epsilon(10, statistics=share > 0) == pytest.approx(trained, rel=1e-6)
    assert plan.epsilon(0, evaluations=4) == pytest.approx(tested, rel=1e-6)
    assert 1.998 < trained <= 2
    assert 1.998 < tested <= 2
    together = plan.epsilon(10, statistics=share > 0, evaluations=4)
    assert together == pytest.approx(max(trained, tested), rel=1e-6)
    assert plan.epsilon(0) == 0 < plan.epsilon(1) < plan.epsilon(2)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 5.514321), (0.1, 5.612776)])
def test_samples_cost_what_an_oracle_said(share: float, expected: float) -> None:
    """Golden values of dp-accounting's PLDAccountant: 20 draws, q = 1/5, z = 1."""
    privacy = RecordPrivacy(epsilon=3, delta=1e-4, rounds=4, statistics=share)
    plan = SiloPlan(privacy, 500, 0, 2**32 // 5, 5, Fraction(1))
    found = plan.epsilon(4, statistics=share > 0)
    assert expected <= found <= expected * (1 + 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_samples_cost_what_an_oracle_says(share: float) -> None:
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    privacy = RecordPrivacy(epsilon=3, delta=1e-4, rounds=4, statistics=share)
    chosen = algorithm("fedavg")
    plan = privacy.plan(500, chosen, chosen.config(batch_size=100, epochs=1))
    assert (plan.draws, plan.threshold) == (5, 2**32 // 5)
    oracle = PLDAccountant()
    step = dp_event.GaussianDpEvent(float(plan.multiplier))
    oracle.compose(dp_event.PoissonSampledDpEvent(plan.probability, step), 20)
    if share:
        oracle.compose(dp_event.GaussianDpEvent(float(privacy.statistics_multiplier)))
    expected = oracle.get_epsilon(1e-4)
    assert plan.epsilon(4, statistics=share > 0) == pytest.approx(expected, rel=1e-3)
    assert 2.99 < expected <= 3.001


def test_statistics_once_and_rows_are_normalised_by_them() -> None:
    rng = np.random.default_rng(3)
    rows = rng.uniform(2, 6, (500, 4)).astype(np.float32)
    held = Data(rows, rng.integers(0, 3, 500))
    given = {"statistics": 0.5, "bounds": (0, 8), "epsilon": 20.0, "held_out": 5}
    one = silo(held, given=given, rng=Seeded(1))
    moments = one.statistics()
    assert moments.mean == pytest.approx([4.0], abs=0.15)
    assert moments.variance == pytest.approx([16 / 12], abs=0.3)
    assert moments.count == pytest.approx(400, abs=20)
    with pytest.raises(errors.BudgetExceeded, match="statistics 1 of this run must be new"):
        one.statistics()
    assert one.event == one.plan.event(0, statistics=True)
    one.normalise(combine([moments], (0, 8)))
    assert one._gradients.rows[0].std() == pytest.approx(1, abs=0.2)
    one.normalise(Normalisation([0.0], [1e-300]))  # a hostile one: rows are dropped, no harm
    assert np.isfinite(asked(one).record["update/0.weight"]).all()
    with pytest.raises(errors.InvalidParameter, match="statistics must be above 0"):
        silo().statistics()


def test_each_column_may_have_moments_of_its_own() -> None:
    held = data(2000)
    held.rows[:, 1] *= 0.1
    given = {"statistics": 0.5, "bounds": (0, 1), "epsilon": 20.0, "pooled": False}
    moments = silo(held, given=given, rng=Seeded(1)).statistics()
    assert moments.mean == pytest.approx(held.rows.mean(axis=0), abs=0.05)


def test_confusion_matrices_have_noise_and_an_end() -> None:
    rng = np.random.default_rng(3)
    held = Data(rng.random((5000, 4), dtype=np.float32), rng.integers(0, 3, 5000))
    one = silo(held, given={"held_out": 2, "evaluations": 2})
    start = one._model.start()
    first, second = one.evaluate(start), one.evaluate(start)
    assert first.shape == (3, 3)
    assert not np.array_equal(first, second)
    sigma = float(one.privacy.evaluation_multiplier)
    assert np.abs(first.sum() - 2500) < 5 * 3 * sigma
    truth = np.bincount(held.labels[1::2], minlength=3)
    assert np.abs(first.sum(axis=1) - truth).max() < 5 * np.sqrt(3) * sigma
    with pytest.raises(errors.BudgetExceeded, match="evaluations must be at most 2"):
        one.evaluate(start)
    assert one.spent == pytest.approx(4, rel=1e-6)
    with pytest.raises(errors.InvalidParameter, match="evaluations must be planned"):
        silo().evaluate(start)


def test_a_blank_row_counts_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """One held-out record more or less moves one count by one, before and after normalising."""

    def nothing(sigma: Any, size: int, rng: Any) -> Any:
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(silo_module, "rounded_gaussian", nothing)
    blank = data(12)
    blank.rows[3, 1], blank.rows[7, 2] = np.nan, np.inf
    for normalised in (False, True):
        found = []
        for held in (data(12), blank):
            one = silo(held, given={"held_out": 4, "evaluations": 1})
            if normalised:
                one.normalise(Normalisation([0.5], [0.5]))
            found.append(one.evaluate(one._model.start()))
        assert found[0].sum() == 3
        assert found[1].sum() == 1
        assert (found[0] - found[1]).min() >= 0


def test_certificates_say_what_ran() -> None:
    one = silo(given={"held_out": 4, "evaluations": 1})
    with pytest.raises(errors.TacitError, match="Nothing was begun"):
        one.certificate()
    asked(one)
    one.evaluate(one._model.start())
    found = one.certificate()
    assert found.event == one.event == one.plan.event(1, evaluations=1)
    assert isinstance(found.event, events.Parallel)
    assert any("depends on their position" in line for line in found.assumptions)
    whole = one.certificate(whole_plan=True)
    assert whole.event == one.plan.whole
    assert whole.guarantee.epsilon == pytest.approx(4)  # type: ignore[attr-defined]


def test_there_is_one_of_it() -> None:
    one = silo()
    assert copy.copy(one) is one is copy.deepcopy(one)
    with pytest.raises(errors.TacitError, match="A copy would spend twice"):
        pickle.dumps(one)


def test_moments_from_strangers() -> None:
    for mean, second, count in [
        ([np.nan], [1.0], 5),
        ([1.0], [0.5], 5),
        ([1.0], [1.0], 5),
        ([1.0, 2.0], [5.0], 5),
        (["x"], [5.0], 5),
        ([[1.0]], [[5.0]], 5),
        ([1e200], [1e300], 5),
    ]:
        with pytest.raises(errors.InvalidData):
            SiloMoments(mean, second, count)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidParameter):
        SiloMoments([0.0], [1.0], 0)  # type: ignore[arg-type]
    honest, far = SiloMoments([0.5], [0.3], 10), SiloMoments([90.0], [9000.0], 10**9)  # type: ignore[arg-type]
    assert combine([honest, far], (0, 1)).mean == pytest.approx([0.5])
    with pytest.raises(errors.InvalidData, match="within the bounds"):
        combine([far], (0, 1))
