r"""Kinds of clipping: how far one record moves a step, and with how much noise.

Write :math:`g_i` for the gradient of example i, :math:`g_{ip}` for its part in layer p, C for the
clip norm and z for the noise multiplier. A step adds noise of standard deviation σ to

=========== ============================================================  ============
kind        sum                                                           σ
=========== ============================================================  ============
"flat"      :math:`\sum_i g_i \min(1, C / \|g_i\|)` [ACG16]_              zC
"per-layer" :math:`\sum_i g_{ip} \min(1, C_p / \|g_{ip}\|)` [MRTZ18]_     zC
"automatic" :math:`\sum_i g_i C / (\|g_i\| + \gamma)` [BWZK23]_           zC
"adaptive"  :math:`\sum_i g_i / \max(\|g_i\|, C_t)`, and a count [ATM21]_ :math:`z_\Delta`
=========== ============================================================  ============

Theorem. Under zero-out neighbours a step of every kind is dominated by the Gaussian with multiplier
z on a Poisson sample, and so T steps by its T-fold composition.

Proof. By `schedule`, it is enough that blanking one slot moves what gets noise by at most 1, where
each number is measured in units of its own noise over z. Flat: :math:`\|g_i\| \min(1, C / \|g_i\|)
\le C`. Per layer: the parts are orthogonal, and :math:`\sum_p C_p^2 \le C^2`. Automatic:
:math:`\|g_i\| C / (\|g_i\| + \gamma) < C`. Adaptive: :math:`C_t` is computed from earlier releases,
so it is fixed given these. One record moves the sum by at most 1, and the centred count
:math:`\sum_i (b_i - 1/2)` by 1/2, where :math:`b_i` is 1 if :math:`\|g_i\| \le C_t` and 0 if not:
its own term is ±1/2, and that of a blank is 0. Divided by their noise, :math:`z_\Delta` and
:math:`\sigma_b`, both together are one vector that moves by at most

.. math:: \sqrt{z_\Delta^{-2} + (2\sigma_b)^{-2}} \le 1 / z,
          \qquad z_\Delta = (z^{-2} - (2\sigma_b)^{-2})^{-1/2},

with :math:`z_\Delta` rounded up (`plans.update_multiplier`). An example that is not finite, or on
which an operator raises, is a blank: factor 0 in all parts, and 0 in the count.

The event states what runs: one Gaussian, or for "adaptive" two on one sample, with their own noise.
Rounding of sums has the same share of the bound in every kind (`scaling`); counts are integers, and
get the rounded noise of `randomness.rounded_gaussian`.

Notes
-----
The count moves the limit, and the sum is released in units of it, times :math:`C_t` afterwards:

.. math:: \bar b = \frac12 + \frac{1}{qn} \Big(\sum_i (b_i - \tfrac12) + \mathcal N(0,
          \sigma_b^2)\Big), \qquad C_{t+1} = C_t e^{-\eta (\bar b - \gamma)}

A choice of kind by the results of several trainings is a release of its own, as any such choice is.

References
----------
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016.
.. [MRTZ18] McMahan, Ramage, Talwar, Zhang. Learning differentially private recurrent language
   models. ICLR 2018 (per-layer clipping).
.. [BWZK23] Bu, Wang, Zha, Karypis. Automatic clipping: differentially private deep learning made
   easier and stronger. NeurIPS 2023 (AUTO-S); Yang et al. 2022 have the same normalisation.
.. [ATM21] Andrew, Thakkar, McMahan, Ramaswamy. Differentially private learning with adaptive
   clipping. NeurIPS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from tacit.central.training.scaling import Clipped, Divided, Limited, Scaling, Tally
from tacit.privacy import errors, events
from tacit.privacy.accounting.plans import update_multiplier
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.randomness import Randomness, rounded_gaussian

if TYPE_CHECKING:
    from tacit.central.training.schedule import Schedule

_USUAL_COUNT_NOISE = Fraction(1, 20), Fraction(5, 2)
_SMALLEST, _LARGEST = 2.0**-24, 2.0**24
_BELOW = 1 - 2.0**-40  # keeps computed bounds below what they are meant to be


class Setting(NamedTuple):
    """What bounds depend on, besides the kind."""

    where: str
    clip_norm: Fraction
    plan: Schedule
    names: Sequence[str]
    """Names of the trained parameters, in their order."""
    dtype: torch.dtype

    @property
    def room(self) -> float:
        """The share of a bound that is left to clip to, so that a rounded sum stays within it."""
        return 1 / (1 + self.plan.rounding(self.dtype))


class Bounding(Protocol):
    """The factors of the current step, and what follows from what it counts."""

    @property
    def scaling(self) -> Scaling: ...

    @property
    def clip_norm(self) -> float:
        """The clip norm of the next step; it reveals no more than the releases."""
        ...

    def finish(self, gradient: Tensor) -> None:
        """Bring a noisy gradient into its own units, in place."""
        ...

    def settle(self, tally: Tally, stream: Randomness) -> None:
        """Release what is counted beside a gradient, with noise."""
        ...

    def restart(self, clip_norm: float) -> None:
        """Go on from the clip norm of a checkpoint."""
        ...


class Prepared(NamedTuple):
    """A kind of clipping for one training."""

    bounding: Bounding
    sigma: Fraction
    """Standard deviation of the noise on the sum."""
    event: events.Event


class Kind(Protocol):
    """A kind of clipping with its settings."""

    def prepared(self, setting: Setting, unit: Unit | str) -> Prepared:
        """Fix bounds, noise and event before any record is read."""
        ...


@dataclass(frozen=True)
class Steady:
    """Factors that are the same function of the norms in every step."""

    scaling: Scaling
    clip_norm: float

    def finish(self, gradient: Tensor) -> None:
        """Do nothing: its units are those of the parameters."""

    def settle(self, tally: Tally, stream: Randomness) -> None:
        """Do nothing: nothing is counted."""

    def restart(self, clip_norm: float) -> None:
        """Do nothing: the clip norm does not move."""


def _steady(setting: Setting, scaling: Scaling, unit: Unit | str) -> Prepared:
    clip, plan = setting.clip_norm, setting.plan
    bounding = Steady(scaling, float(clip))
    return Prepared(bounding, plan.noise_multiplier * clip, plan.event(clip, unit))


@dataclass(frozen=True)
class FlatClipping:
    """The whole gradient of an example is clipped to the clip norm."""

    def prepared(self, setting: Setting, unit: Unit | str) -> Prepared:
        return _steady(setting, Clipped((float(setting.clip_norm) * setting.room,)), unit)


@dataclass(frozen=True)
class PerLayerClipping:
    r"""Each layer's part of an example's gradient is clipped to a bound of its own.

    Parameters
    ----------
    bounds : mapping of str to float, optional
        Bounds by the name of a layer, such as "encoder.0"; a name stands for all layers within it,
        and the longest name that fits counts. Only their ratios matter: they are scaled so that
        their squares add up to the square of the clip norm. By default all layers that own trained
        parameters have the same bound.

    Notes
    -----
    Blanking one record moves the sum by at most :math:`\sqrt{\sum_p C_p^2} \le C`, so the noise is
    that of flat clipping. A parameter of several layers belongs to the first of them.
    """

    bounds: Mapping[str, float] | None = None

    def prepared(self, setting: Setting, unit: Unit | str) -> Prepared:
        layers = self._layers(setting)
        order = list(dict.fromkeys(layers))
        bounds = self._bounds(setting, order)
        return _steady(setting, Clipped(bounds, tuple(map(order.index, layers))), unit)

    def _layers(self, setting: Setting) -> list[str]:
        """Return the name of each trained parameter's layer."""
        if self.bounds is None:
            return [name.rpartition(".")[0] for name in setting.names]
        wanted = [str(one) for one in self.bounds]
        found = [_longest(name, wanted) for name in setting.names]
        missing = [name for name, one in zip(setting.names, found, strict=True) if one is None]
        idle = [one for one in wanted if one not in found]
        if missing or idle:
            condition = "names of layers that own all trained parameters between them"
            errors.refuse(setting.where, "bounds", condition, (missing or idle)[0])
        return [one for one in found if one is not None]

    def _bounds(self, setting: Setting, order: Sequence[str]) -> tuple[float, ...]:
        given = self.bounds or dict.fromkeys(order, 1.0)
        sizes = [float(errors.positive(setting.where, "bounds", given[one])) for one in order]
        scale = float(setting.clip_norm) * setting.room * _BELOW / math.hypot(*sizes)
        return tuple(size * scale for size in sizes)


def _longest(name: str, layers: Sequence[str]) -> str | None:
    """Return the longest of these names that is the parameter's, or that of a layer around it."""
    fits = [one for one in layers if one in ("", name) or name.startswith(f"{one}.")]
    return max(fits, key=len, default=None)


@dataclass(frozen=True)
class AutomaticClipping:
    r"""Each example's gradient is divided by its norm plus a constant.

    Parameters
    ----------
    stability : float
        :math:`\gamma`: gradients that are much longer have about the length of the clip norm, and
        shorter ones keep their proportions.

    Notes
    -----
    Blanking one record moves the sum by less than C, so the noise is that of flat clipping. With an
    optimiser that does not mind the scale of a gradient, such as Adam, C needs no choice.
    """

    stability: float = 0.01

    def prepared(self, setting: Setting, unit: Unit | str) -> Prepared:
        gamma = float(errors.positive(setting.where, "stability", self.stability))
        if not 1e-6 <= gamma <= 1e6:
            errors.refuse(setting.where, "stability", "from 1e-6 to 1e6", gamma, "Scale the loss.")
        bound = float(setting.clip_norm) * setting.room
        return _steady(setting, Divided(bound, gamma), unit)


@dataclass(frozen=True)
class AdaptiveClipping:
    r"""The clip norm follows a quantile of the norms, tracked by a noisy count.

    Parameters
    ----------
    quantile : float
        :math:`\gamma`, the share of examples that should not be clipped.
    rate : float
        :math:`\eta`: a step changes the clip norm by a factor of up to about :math:`e^\eta`.
    count_noise : float, optional
        :math:`\sigma_b`, the standard deviation of the noise on the count. By default a twentieth
        of the expected batch [ATM21]_, but at least 2.5 noise multipliers, so that the noise on the
        sum grows by at most 2.1 %.

    Notes
    -----
    Sum and count of a step have the noise multiplier z together: the sum gets :math:`z_\Delta =
    (z^{-2} - (2\sigma_b)^{-2})^{-1/2}`. Training starts at `clip_norm`.
    """

    quantile: float = 0.5
    rate: float = 0.2
    count_noise: float | None = None

    def prepared(self, setting: Setting, unit: Unit | str) -> Prepared:
        where, plan, start = setting.where, setting.plan, float(setting.clip_norm)
        errors.probability(where, "quantile", self.quantile, zero=False)
        errors.positive(where, "rate", self.rate)
        if not _SMALLEST <= start <= _LARGEST:
            errors.refuse(where, "clip_norm", "from 2^-24 to 2^24", start, "Scale the loss.")
        deviation = self._deviation(setting)
        sigma = update_multiplier(where, plan.noise_multiplier, deviation)
        bounding = _Following(self, setting.room, start, deviation, plan.expected_size)
        return Prepared(bounding, sigma, _sum_and_count(plan, sigma, deviation, unit))

    def _deviation(self, setting: Setting) -> Fraction:
        r"""Return :math:`2\sigma_b`: the noise on a sum of ±1, twice that on b − 1/2."""
        if self.count_noise is not None:
            return 2 * errors.positive(setting.where, "count_noise", self.count_noise)
        share, least = _USUAL_COUNT_NOISE
        expected = Fraction(setting.plan.expected_size)
        return 2 * max(share * expected, least * setting.plan.noise_multiplier)


def _sum_and_count(
    plan: Schedule, sigma: Fraction, deviation: Fraction, unit: Unit | str
) -> events.Event:
    """Return the event: two Gaussians, each of sensitivity 1, on each Poisson sample."""
    unit, near = Unit.of("train", unit), Adjacency.ZERO_OUT
    draws = [
        events.Gaussian(Fraction(1), one, adjacency=near, unit=unit) for one in (sigma, deviation)
    ]
    sampled = events.PoissonSampled(plan.probability, events.Composed(tuple(draws)))
    return events.Repeated(sampled, plan.steps)


@dataclass
class _Following:
    """A clip norm that moves after every step."""

    kind: AdaptiveClipping
    room: float
    clip_norm: float
    deviation: Fraction
    expected_size: float
    scaling: Scaling = field(init=False)

    def __post_init__(self) -> None:
        self.scaling = Limited(self.room, self.clip_norm)

    def finish(self, gradient: Tensor) -> None:
        gradient.mul_(self.clip_norm)

    def settle(self, tally: Tally, stream: Randomness) -> None:
        noise = rounded_gaussian(self.deviation, 1, stream)
        noisy = int((np.array([tally.signs]) + noise)[0])
        share = 0.5 + noisy / (2 * self.expected_size)
        # In logarithms and within bounds, so that no sequence of draws makes it 0 or infinite.
        moved = math.log(self.clip_norm) - self.kind.rate * (share - self.kind.quantile)
        self.restart(math.exp(min(max(moved, math.log(_SMALLEST)), math.log(_LARGEST))))

    def restart(self, clip_norm: float) -> None:
        if not _SMALLEST <= clip_norm <= _LARGEST:
            errors.refuse("TrainingLoop", "clip_norm", "from 2^-24 to 2^24", clip_norm)
        self.clip_norm = clip_norm
        self.scaling = Limited(self.room, self.clip_norm)


KINDS: dict[str, Kind] = {
    "flat": FlatClipping(),
    "per-layer": PerLayerClipping(),
    "automatic": AutomaticClipping(),
    "adaptive": AdaptiveClipping(),
}


def kind_of(where: str, clipping: str | Kind) -> Kind:
    """Return a kind of clipping by its name, or as it is given."""
    if not isinstance(clipping, str) and hasattr(clipping, "prepared"):
        return clipping
    return KINDS[errors.choice(where, "clipping", clipping, tuple(KINDS))]
