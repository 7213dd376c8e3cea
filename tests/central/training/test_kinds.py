"""Kinds of clipping: sums equal the naive loop, no record moves them further, events say so."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.central.training import (
    AdaptiveClipping,
    AutomaticClipping,
    PerLayerClipping,
    kinds,
    probing,
    train,
)
from tacit.central.training.auditing import audit_training
from tacit.central.training.scaling import Clipped, Divided, Limited, Scaling, Tally
from tacit.central.training.schedule import Schedule
from tacit.privacy import events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.privacy_loss import epsilon_pld, epsilon_rdp
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.randomness import Seeded

ROWS = 7


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.last = nn.GRU(4, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.cells(x)[0][:, -1])


class Sorted(nn.Module):
    """Rows in another order and back: differentiated one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        order = torch.argsort(x[:, 0], stable=True)
        return self.last(torch.tanh(self.first(x[order])))[torch.argsort(order)]


class Crossed(nn.Module):
    """The weight of one layer with the bias of another, in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        one = nn.functional.linear(x, self.first.weight, self.second.bias)
        return torch.tanh(one) + nn.functional.linear(x, self.second.weight, self.first.bias)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), (4,)),
    "positions": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2)), (3, 4)),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Conv2d(4, 2, 2)
        ),
        (2, 6, 6),
    ),
    "attention": (
        lambda: nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True),
        (5, 4),
    ),
    "recurrent": (Recurrent, (5, 4)),
    "alone": (Sorted, (4,)),
    "crossed": (Crossed, (4,)),
}


def spread(*shape: int) -> Tensor:
    """Rows of very different sizes, so that some are clipped and some are not."""
    sizes = torch.logspace(-1, 1.5, ROWS, dtype=torch.float64)
    rows = torch.randn(ROWS, *shape, dtype=torch.float64)
    return rows * sizes.view(-1, *[1] * len(shape))


def layers_of(module: nn.Module) -> list[str]:
    return [n.rpartition(".")[0] for n, p in module.named_parameters() if p.requires_grad]


def scalings(module: nn.Module, middle: float) -> dict[str, Scaling]:
    names = layers_of(module)
    order = list(dict.fromkeys(names))
    bounds = tuple(middle * (1 + i) / len(order) for i in range(len(order)))
    return {
        "flat": Clipped((middle,)),
        "per-layer": Clipped(bounds, tuple(map(order.index, names))),
        "automatic": Divided(middle, 0.01),
        "adaptive": Limited(1.0, middle),
        "adaptive, short": Limited(1.0, middle / 1000),
    }


def by_loop(rows: Tensor, sizes: list[int], scaling: Scaling) -> Tensor:
    """The sum as the definition has it, from gradients that are written out."""
    match scaling:
        case Divided(bound=bound, stability=gamma):
            return (rows * (bound / (rows.norm(dim=1) + gamma))[:, None]).sum(0)
        case Limited(limit=limit):
            return (rows / rows.norm(dim=1).clamp(min=limit)[:, None]).sum(0)
    parts = torch.tensor(scaling.parts or [0] * len(sizes)).repeat_interleave(torch.tensor(sizes))
    total = torch.zeros_like(rows[0])
    for part, bound in enumerate(scaling.bounds):
        own = rows * (parts == part)
        norms = own.norm(dim=1).clamp(min=1e-300)
        total += (own * (bound / norms).clamp(max=1)[:, None]).sum(0)
    return total


@pytest.mark.quick(4)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODULES)
def test_sums_of_every_kind_equal_the_loop(naive, name, dtype):
    make, shape = MODULES[name]
    module, inputs = make().to(dtype), spread(*shape).to(dtype)
    rows = naive.gradients(module, naive.squared, (inputs,)).double()
    sizes = [p.numel() for p in module.parameters()]
    made = probing.clipper("test", module, naive.squared, (inputs,))
    tolerance = 1e-4 if dtype == torch.float32 else 4e-6  # norms are overstated by a millionth
    for kind, scaling in scalings(module, float(rows.norm(dim=1).median()) * 1.01).items():
        for microbatch in (None, 3):
            found, tally = made.tallied((inputs.clone(),), scaling, microbatch)
            expected = by_loop(rows, sizes, scaling)
            assert (found - expected).norm() <= tolerance * expected.norm(), kind
            signs = 2 * (rows.norm(dim=1) <= getattr(scaling, "limit", 0)).sum() - ROWS
            assert tally == Tally(0, int(signs) if isinstance(scaling, Limited) else 0)


HOSTILE = {
    "not a number": torch.full((4,), float("nan")),
    "infinite": torch.tensor([1.0, float("inf"), 0, 0]),
    "overflowing": torch.full((4,), 3e38),
    "huge": torch.full((4,), 1e18),
    "tiny": torch.full((4,), 1e-38),
    "subnormal": torch.full((4,), 1e-45),
    "blank": torch.zeros(4),
}


@pytest.mark.parametrize("kind", ["flat", "per-layer", "automatic", "adaptive", "adaptive, short"])
@pytest.mark.parametrize("row", HOSTILE)
def test_a_hostile_row_moves_a_sum_by_the_bound_at_most(naive, kind, row):
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    scaling = scalings(module, 2.0)[kind]
    inputs = torch.randn(ROWS, 4)
    inputs[2] = HOSTILE[row]
    made = probing.clipper("test", module, naive.squared, (inputs,))
    there = torch.ones(ROWS, dtype=torch.bool)
    whole, tally = made.tallied((inputs.clone(),), scaling, present=there)
    blank, there[2] = inputs.clone(), False
    blank[2] = 0
    without, less = made.tallied((blank,), scaling, present=there)
    assert torch.isfinite(whole).all()
    bound = math.hypot(*scaling.bounds) * scaling.unit
    room = Schedule(ROWS, 2**32, 1, 1).rounding(torch.float32)
    moved = float((whole.double() - without.double()).norm())
    assert moved <= bound * (1 + room)
    assert abs(tally.signs - less.signs) <= 1
    if row in ("not a number", "infinite", "overflowing"):
        assert moved == 0
        assert tally == Tally(1, less.signs)


@pytest.mark.parametrize("scaling", [Divided(1.0, 0.01), Limited(1.0, 1e-3)], ids=str)
def test_factors_above_one_do_not_overflow(scaling):
    """The gradient at the output is near overflow; that of the weight is short, as its input is."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(layer.weight)
    x, y = torch.full((4, 1), 1e-42), torch.full((4,), 3e38)
    x[1:], y[1:] = 1, 1e-3
    made = probing.clipper("test", layer, lambda m, x, y: m(x)[:, 0] * y, (x, y))
    total, tally = made.tallied((x.clone(), y.clone()), scaling)
    assert torch.isfinite(total).all()
    assert tally.dropped == 0
    assert abs(float(total)) <= 4 * 1.001


def plan(records: int = 400, threshold: int = 2**30, multiplier: str = "1.3") -> Schedule:
    return Schedule(records, threshold, 5, Fraction(multiplier))


def setting(
    clip: str = "0.7", names: tuple[str, ...] = ("a.weight", "a.bias", "b.c.weight"), **own
):
    return kinds.Setting("test", Fraction(clip), plan(**own), names, torch.float32)


@pytest.mark.parametrize(
    "bounds", [None, {"a": 1, "b.c": 3}, {"": 0.1, "b": 1e6}, {"a.bias": 1, "": 7}]
)
def test_squares_of_bounds_per_layer_add_up_to_that_of_the_clip_norm(bounds):
    kind = PerLayerClipping(bounds)
    prepared = kind.prepared(setting(), "record")
    scaling = prepared.bounding.scaling
    whole = Fraction(7, 10) / (1 + Fraction(plan().rounding(torch.float32)))
    together = sum(Fraction(bound) ** 2 for bound in scaling.bounds)
    assert whole**2 * (1 - Fraction(1, 10**9)) <= together <= whole**2
    assert prepared.sigma == Fraction("1.3") * Fraction("0.7")
    assert prepared.event == plan().event(Fraction("0.7"), "record")


def test_layers_are_found_by_their_names():
    def parts(bounds):
        return PerLayerClipping(bounds).prepared(setting(), "record").bounding.scaling.parts

    assert parts(None) == (0, 0, 1)
    assert parts({"b": 1, "a": 1}) == (0, 0, 1)
    assert parts({"a.bias": 1, "": 1}) == (0, 1, 0)
    for bounds, name in (({"a": 1}, "b.c.weight"), ({"": 1, "d": 1}, "d"), ({}, "a.weight")):
        with pytest.raises(InvalidParameter, match=f"^test: bounds must be .*, got '{name}'"):
            PerLayerClipping(bounds).prepared(setting(), "record")


def test_the_event_of_adaptive_clipping_names_both_draws():
    kind = AdaptiveClipping(count_noise=20)
    prepared = kind.prepared(setting(), "person")
    (sampled, count) = prepared.event.event, prepared.event.count
    sums, counts = sampled.event.events
    assert (count, sampled.probability) == (5, 0.25)
    assert (sums.l2_sensitivity, sums.sigma) == (1, prepared.sigma)
    assert (counts.l2_sensitivity, counts.sigma) == (1, 40)  # signs: twice b − 1/2
    assert events.scope_of(prepared.event) == {"adjacency": "zero-out", "unit": "person"}
    exact = (1.3**-2 - 40.0**-2) ** -0.5
    assert exact <= float(prepared.sigma) <= exact * (1 + 1e-8)


@pytest.mark.parametrize("epsilon", [epsilon_pld, epsilon_rdp])
def test_sum_and_count_cost_what_one_gaussian_does(epsilon):
    prepared = AdaptiveClipping(count_noise=2.0).prepared(setting(), "record")
    one, other = epsilon(prepared.event, 1e-5), epsilon(plan().event(Fraction(1), "record"), 1e-5)
    assert one == pytest.approx(other, rel=1e-6)
    whole = AdaptiveClipping(count_noise=2.0).prepared(setting(threshold=2**32), "record")
    expected = guarantee_of(plan(threshold=2**32).event(Fraction(1), "record"), 1e-5)
    assert guarantee_of(whole.event, 1e-5).epsilon == pytest.approx(expected.epsilon, rel=1e-6)


def test_noise_of_the_count_by_default():
    many = AdaptiveClipping().prepared(setting(records=40_000), "record")
    assert many.bounding.deviation == 2 * 10_000 / 20
    few = AdaptiveClipping().prepared(setting(records=40), "record")
    assert few.bounding.deviation == 5 * Fraction("1.3")
    assert 1 < few.sigma / Fraction("1.3") < Fraction("1.021")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (AdaptiveClipping(quantile=1.0), "quantile"),
        (AdaptiveClipping(quantile=float("nan")), "quantile"),
        (AdaptiveClipping(rate=0), "rate"),
        (AdaptiveClipping(count_noise=0.65), "count_noise"),
        (AutomaticClipping(0.0), "stability"),
        (AutomaticClipping(1e-9), "stability"),
        (AutomaticClipping(float("inf")), "stability"),
        (PerLayerClipping({"": -1}), "bounds"),
        (PerLayerClipping({"": float("nan")}), "bounds"),
    ],
)
def test_settings_without_a_theorem_are_refused(kind, words):
    with pytest.raises(InvalidParameter, match=f"^test: {words} must be [^\n]*$"):
        kind.prepared(setting(), "record")


def test_bounds_that_float32_cannot_hold_are_refused(naive):
    module, inputs = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2)), torch.randn(ROWS, 4)
    made = probing.clipper("test", module, naive.squared, (inputs,))
    with pytest.raises(InvalidParameter, match="1e-9"):
        made.tallied((inputs,), Clipped((1.0, 1e-12), (0, 0, 1, 1)))


def test_unknown_kinds_are_refused():
    with pytest.raises(InvalidParameter, match=r"^train: clipping must be one of flat, per-layer"):
        kinds.kind_of("train", "ghost")


def following(kind: AdaptiveClipping, seed: int = 0, **own):
    return kind.prepared(setting(**own), "record").bounding


def test_the_clip_norm_finds_the_quantile():
    norms = np.random.default_rng(1).lognormal(2, 1, 4000)
    for quantile in (0.3, 0.5, 0.9):
        made = following(AdaptiveClipping(quantile), records=16_000, clip="0.01")
        stream = Seeded(3)
        for _ in range(200):
            signs = int(np.where(norms <= made.clip_norm, 1, -1).sum())
            made.settle(Tally(0, signs), stream)
            assert made.scaling == Limited(made.room, made.clip_norm)
        assert abs((norms <= made.clip_norm).mean() - quantile) < 0.05


def test_the_count_has_the_stated_noise_and_sensitivity(monkeypatch):
    kind = AdaptiveClipping(rate=1.0, count_noise=7.0)
    moved = []
    for seed in range(3000):
        made = following(kind)
        made.settle(Tally(0, 0), Seeded(seed))
        moved.append(math.log(made.clip_norm / 0.7))
    assert abs(np.std(moved) / (7.0 / 100) - 1) < 5 / math.sqrt(2 * 3000)
    assert abs(np.mean(moved)) < 5 * 0.07 / math.sqrt(3000)
    monkeypatch.setattr(kinds, "rounded_gaussian", lambda sigma, n, rng: np.zeros(n, int))
    ends = []
    for signs in (0, 1):
        made = following(kind)
        made.settle(Tally(0, signs), Seeded(0))
        ends.append(math.log(made.clip_norm))
    # A record or its blank: half a count apart, over the expected batch of 100.
    assert ends[0] - ends[1] == pytest.approx(0.5 / 100)


def test_no_draw_makes_the_clip_norm_infinite_or_zero():
    for signs, end in ((10**9, 2.0**-24), (-(10**9), 2.0**24)):
        made = following(AdaptiveClipping(rate=100))
        made.settle(Tally(0, signs), Seeded(0))
        assert made.clip_norm == pytest.approx(end)


def test_gradients_of_adaptive_clipping_are_in_the_units_of_the_loss():
    made = following(AdaptiveClipping(), clip="0.25")
    gradient = torch.ones(3)
    made.finish(gradient)
    made.settle(Tally(0), Seeded(0))
    assert gradient.tolist() == [0.25] * 3
    assert made.clip_norm != 0.25


@pytest.mark.parametrize("clipping", ["flat", "per-layer", "automatic", "adaptive"])
def test_every_kind_trains_and_keeps_its_promise(naive, clipping):
    inputs = torch.randn(800, 4)
    labels = (inputs.sum(1) > 0).long()
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    trained = train(
        module, (inputs, labels), naive.cross_entropy, epsilon=4, delta=1e-5, batch_size=200,
        epochs=10, learning_rate=0.02, clipping=clipping, accountant="rdp", rng=Seeded(5),
    )  # fmt: skip
    assert trained.guarantee.epsilon <= 4
    assert guarantee_of(trained.event, 1e-5).epsilon == trained.guarantee.epsilon
    trained.certificate().verify()
    assert float((module(inputs).argmax(1) == labels).float().mean()) > 0.85


@pytest.mark.heavy
@pytest.mark.parametrize("clipping", ["per-layer", "automatic", "adaptive"])
def test_canaries_do_not_refute_a_kind(clipping):
    found = audit_training(
        epsilon=4,
        delta=1e-5,
        canaries=400,
        batch_size=400,
        steps=1,
        clipping=clipping,
        rng=Seeded(2),
    )
    assert not found.refuted
    assert found.proof.epsilon > 0.3
