"""Training: what it learns, what it states, and that the two belong together."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from scipy import stats
from torch import nn

from tacit.central.training import Trained, train, training
from tacit.central.training.schedule import Schedule
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import ApproxDP
from tacit.privacy.randomness import Seeded, SystemEntropy

SIGNIFICANCE = 1e-6
QUICK = {"epsilon": 3.0, "delta": 1e-5, "accountant": "rdp", "rng": Seeded(1)}


def toy(records: int = 2000) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(records, 8)
    return inputs, (inputs[:, 0] + inputs[:, 1] * inputs[:, 2].sign() > 0).long()


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def accuracy(module: nn.Module, data) -> float:
    with torch.no_grad():
        return float((module(data[0]).argmax(1) == data[1]).float().mean())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_it_learns(naive, optimizer):
    data, module = toy(), mlp()
    extra = (
        {"learning_rate": 0.02} if optimizer == "adam" else {"learning_rate": 2.0, "momentum": 0.5}
    )
    start = accuracy(module, data)
    trained = train(
        module, data, naive.cross_entropy, **QUICK, batch_size=200, epochs=12,
        optimizer=optimizer, decay=True, **extra,
    )  # fmt: skip
    assert start < 0.65
    assert accuracy(module, data) > 0.8
    assert trained.guarantee.epsilon <= 3


@pytest.fixture(scope="module")
def run() -> Trained:
    data = torch.randn(500, 4), torch.zeros(500, dtype=torch.long)
    return train(
        nn.Linear(4, 2),
        data,
        lambda m, x, y: nn.functional.cross_entropy(m(x), y, reduction="none"),
        epsilon=2.0,
        delta=1e-5,
        noise_multiplier=1.2,
        clip_norm=0.5,
        batch_size=25,
        steps=40,
        unit="person",
        accountant="rdp",
    )


def test_a_ledger_is_charged_first_and_refuses(tmp_path):
    scope = {"adjacency": "zero-out", "unit": "record"}
    data = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    given = {"epsilon": 2.0, "delta": 1e-5, "batch_size": 16, "steps": 2}

    def loss(module, x):
        return module(x).square().sum(1)

    with Ledger(tmp_path / "budget") as ledger:
        ledger.open("rows", ApproxDP(3.0, 1e-4, **scope))
        module = nn.Linear(3, 1)
        paid = {"ledger": ledger, "account": "rows"}
        trained = train(module, data, loss, **given, **paid)
        (charge,) = ledger.show("rows").charges
        assert (charge.event, charge.delta) == (trained.event, 1e-5)
        before = [one.detach().clone() for one in module.parameters()]
        with pytest.raises(errors.BudgetExceeded):
            train(module, data, loss, **given, **paid)
        after = list(module.parameters())
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
        for part in ({"ledger": ledger}, {"account": "rows"}):
            with pytest.raises(errors.InvalidParameter, match="must be given together"):
                train(module, data, loss, **given, **part)
        assert len(ledger.show("rows").charges) == 1


def test_what_is_stated_is_what_ran(run):
    assert isinstance(run.event, events.Repeated)
    sampled = run.event.event
    assert (run.event.count, run.steps) == (40, 40)
    assert sampled.probability == run.sampling_probability == (25 * 2**32 // 500) / 2**32
    assert float(sampled.event.l2_sensitivity) == 0.5
    assert float(sampled.event.sigma) == pytest.approx(0.6)
    assert run.noise_multiplier == 1.2
    assert events.scope_of(run.event) == {"adjacency": "zero-out", "unit": "person"}
    assert run.guarantee == guarantee_of(run.event, 1e-5)
    assert isinstance(run.guarantee, ApproxDP)
    assert run.seeded is False
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.steps = 1


def test_accounting_agrees_with_dp_accounting(run):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    step = dp_accounting.PoissonSampledDpEvent(
        run.sampling_probability, dp_accounting.GaussianDpEvent(run.noise_multiplier)
    )
    accountant = PLDAccountant().compose(dp_accounting.SelfComposedDpEvent(step, run.steps))
    assert run.guarantee.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)


def test_the_certificate_verifies_and_says_what_it_rests_on(run, tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"weights")
    certificate = run.certificate(path)
    certificate.save(tmp_path / "certificate.json")
    Certificate.load(tmp_path / "certificate.json").verify(path)
    text = " ".join(certificate.explain().split())
    for words in (
        "floating-point Gaussian",
        "AES-256 in counter mode keyed by the operating system's entropy",
        "The sampling probability and the divisor of a step, set from the number of persons.",
        "Training losses and the number of dropped examples. Do not release them.",
        "at the start of training did not depend on these data",
        "40 times",
    ):
        assert words in text
    assert certificate.seeded is False
    run.certificate().verify()


def test_what_is_dropped_is_counted_and_not_shown(naive):
    data = toy(400)
    data[0][7] = float("nan")
    trained = train(mlp(), data, naive.cross_entropy, **QUICK, batch_size=400, steps=3)
    assert trained.dropped == 3
    assert "dropped" not in repr(trained)
    assert "dropped" not in str(trained.event)


def test_a_nan_record_does_not_disturb_the_others(naive):
    data, bad = toy(399), toy(400)  # as many words of the stream for either
    bad[0][:399], bad[1][:399] = data
    bad[0][399] = float("nan")
    modules = [mlp(), mlp()]
    modules[1].load_state_dict(modules[0].state_dict())
    for module, rows in zip(modules, (data, bad), strict=True):
        setting = {**QUICK, "rng": Seeded(5), "noise_multiplier": 5.0}
        n = len(rows[0])
        train(module, rows, naive.cross_entropy, **setting, batch_size=n, steps=1, optimizer="sgd",
              learning_rate=n / 399)  # fmt: skip
    for first, second in zip(*(m.parameters() for m in modules), strict=True):
        assert torch.isfinite(second).all()
        assert torch.allclose(first, second, atol=1e-4)


def test_seeded_training_is_reproducible_and_marked(naive):
    data, states = toy(300), []
    start = mlp().state_dict()
    for seed in (3, 3, 4):
        module = mlp()
        module.load_state_dict(start)
        trained = train(
            module,
            data,
            naive.cross_entropy,
            **{**QUICK, "rng": Seeded(seed)},
            batch_size=30,
            steps=5,
        )
        states.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    assert trained.seeded is True
    certificate = trained.certificate()
    assert certificate.seeded is True
    assert any("seeded generator" in line for line in certificate.assumptions)


def test_without_a_seed_no_two_runs_are_alike(naive):
    data, states = toy(300), []
    start = mlp().state_dict()
    for rng in (None, None, SystemEntropy()):
        module = mlp()
        module.load_state_dict(start)
        quick = {**QUICK, "rng": rng}
        trained = train(module, data, naive.cross_entropy, **quick, batch_size=30, steps=1)
        states.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    assert not torch.equal(states[0], states[1])
    assert any("operating system's generator" in line for line in trained.assumptions)


def moved(records: int, batch_size: int, seed: int, loss) -> tuple[list[torch.Tensor], Trained]:
    """By how much one plain step moves every parameter."""
    module = nn.Sequential(nn.Linear(40, 50), nn.Tanh(), nn.Linear(50, 30), nn.LayerNorm(30))
    before = [p.detach().clone() for p in module.parameters()]
    trained = train(
        module, torch.randn(records, 40), loss, epsilon=5.0, delta=1e-5, accountant="rdp",
        clip_norm=0.8, noise_multiplier=1.5, steps=1, batch_size=batch_size, optimizer="sgd",
        learning_rate=1.0, rng=Seeded(seed),
    )  # fmt: skip
    after = [p.detach() for p in module.parameters()]
    return [b - a for a, b in zip(before, after, strict=True)], trained


def has_deviation(blocks: list[torch.Tensor], sigma: float) -> bool:
    for block in blocks:
        square = float((block.double() / sigma).square().sum())
        freedom = block.numel()
        chances = stats.chi2.sf(square, freedom), stats.chi2.cdf(square, freedom)
        if min(chances) < SIGNIFICANCE:
            return False
    return True


def nothing(module, x):
    """A loss whose gradient is zero: what moves the weights is noise alone."""
    return module(x).sum(1) * 0.0


def test_every_parameter_moves_by_the_stated_noise():
    blocks, trained = moved(1000, 100, 11, nothing)
    sigma = 1.5 * 0.8 / (trained.sampling_probability * 1000)
    assert has_deviation(blocks, sigma)
    for i in range(len(blocks)):  # mutants: one block without noise
        mutant = [b * 0 if i == j else b for j, b in enumerate(blocks)]
        assert not has_deviation(mutant, sigma)
    assert not has_deviation([b / 1.2 for b in blocks], sigma)


@pytest.mark.parametrize("name", ["nobody", "too many"])
def test_a_step_without_records_is_noise(monkeypatch, name):
    """Where nobody is sampled, or more than there are slots."""

    def loud(module, x):
        return 1e6 * module(x).sum(1)

    chosen = torch.arange(0 if name == "nobody" else 1000)
    monkeypatch.setattr(Schedule, "sample", lambda self, stream: chosen)
    blocks, trained = moved(1000, 100, 3, loud)
    assert has_deviation(blocks, 1.5 * 0.8 / (trained.sampling_probability * 1000))


def test_one_record_moves_the_mean_gradient_by_no_more_than_its_share(naive):
    rows = torch.randn(20, 40)

    def step(inputs: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        module = nn.Linear(40, 3)
        before = torch.cat([p.detach().flatten() for p in module.parameters()])
        train(module, inputs, naive.squared, epsilon=9.0, delta=1e-5, accountant="rdp",
              clip_norm=0.8, noise_multiplier=2.0, steps=1, batch_size=20, optimizer="sgd",
              learning_rate=20.0, rng=Seeded(13))  # fmt: skip
        after = torch.cat([p.detach().flatten() for p in module.parameters()])
        return after - before

    other = rows.clone()
    other[0] = 1e3
    # One record replaced by an enormous one: two shares at the most, besides the grid.
    assert 0.1 < (step(rows) - step(other)).norm() <= 2 * 0.8 * 1.01


def test_frozen_layers_stay(naive):
    module, data = mlp(), toy(200)
    module[0].requires_grad_(False)
    before = module[0].weight.clone()
    train(module, data, naive.cross_entropy, **QUICK, batch_size=20, steps=2)
    assert torch.equal(module[0].weight, before)
    assert [p.requires_grad for p in module.parameters()] == [False, False, True, True]


def test_micro_batches_give_the_same_training(naive):
    data, states = toy(300), []
    start = mlp().state_dict()
    for microbatch in (None, 7):
        module = mlp()
        module.load_state_dict(start)
        quick = {**QUICK, "rng": Seeded(3)}
        train(module, data, naive.cross_entropy, **quick, batch_size=60, steps=3,
              microbatch=microbatch)  # fmt: skip
        states.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    assert torch.allclose(*states, atol=1e-3)


def test_progress_is_told_and_nothing_is_left_behind(naive):
    module, told = mlp(), []
    train(module, toy(200), naive.cross_entropy, **QUICK, batch_size=20, steps=4,
          progress=lambda step, steps: told.append((step, steps)))  # fmt: skip
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert not any(layer._forward_hooks for layer in module.modules())


def test_the_learning_rate_falls_to_zero():
    rates = []

    class Watched(torch.optim.SGD):
        def step(self):
            rates.append(self.param_groups[0]["lr"])

    original = training.optimizer_of
    training.optimizer_of = lambda name, parameters, rate, momentum: Watched(parameters, lr=rate)
    try:
        train(nn.Linear(2, 1), torch.randn(50, 2), nothing, **QUICK, batch_size=10, steps=4,
              learning_rate=0.4, decay=True)  # fmt: skip
    finally:
        training.optimizer_of = original
    assert rates == pytest.approx([0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"clip_norm": float("nan")}, "clip_norm"),
        ({"clip_norm": 0}, "clip_norm"),
        ({"optimizer": "adagrad"}, "optimizer"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": 0.5}, "Adam has its own"),
        ({"microbatch": 0}, "microbatch"),
        ({"unit": "house"}, "unit"),
        ({"rng": 5}, "rng"),
        ({"epsilon": -1}, "epsilon"),
        ({"delta": 2}, "delta"),
    ],
    ids=str,
)
def test_what_is_refused(naive, changed, words):
    module = mlp()
    before = [p.clone() for p in module.parameters()]
    with pytest.raises(errors.InvalidParameter, match=words) as caught:
        train(module, toy(50), naive.cross_entropy, **{**QUICK, "steps": 1, **changed})
    assert "\n" not in str(caught.value)
    assert all(map(torch.equal, before, module.parameters()))


def test_empty_data_are_refused(naive):
    with pytest.raises(errors.InvalidData, match="empty"):
        train(mlp(), toy(0), naive.cross_entropy, **QUICK)


def test_batch_normalisation_is_refused_with_its_remedy(naive):
    module = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(errors.InvalidParameter, match=r"train: module .* use GroupNorm"):
        train(module, toy(50), naive.cross_entropy, **QUICK)
