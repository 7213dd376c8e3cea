"""Channels of reports with independent noise on every number, and flips beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.local.channels import ColumnForm, Integers, Noise, Reals, ReportChannel, whole_rows
from tacit.local.report_files import Columns
from tacit.privacy import errors
from tacit.privacy.events import Composed, Event, Repeated
from tacit.privacy.mechanisms import DiscreteLaplace, RandomizedResponse
from tacit.privacy.mechanisms.bounding import GridBall
from tacit.privacy.randomness import Randomness, source

_FARTHEST = 2**62
"""No released number lies farther from zero."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LatentChannel(ReportChannel):
    """Noise on the grid steps of a clipped latent, and a flip of the label where one is reported.

    Steps outside the ball are clipped once more: the guarantee holds for any raw integers.

    Parameters
    ----------
    noise : DiscreteLaplace or Gaussian
        Of every grid step; its sensitivity is the diameter of the ball.
    dimension : int
        Numbers in a latent.
    ball : GridBall
        The grid, and the ball that latents are clipped to.
    label : RandomizedResponse, optional
        The flip of the label.
    classes : tuple, optional
        The labels that a report may hold.
    stated_delta : float, optional
        δ of the guarantee, for Gaussian noise.
    """

    noise: Noise
    dimension: int
    ball: GridBall
    label: RandomizedResponse | None = None
    classes: tuple[Any, ...] | None = None
    stated_delta: float | None = None

    @property
    def flip(self) -> RandomizedResponse | None:
        return self.label

    @property
    def additive(self) -> dict[str, Noise]:
        return {"latent": self.noise}

    @property
    def delta(self) -> float | None:
        return self.stated_delta

    @property
    def assumptions(self) -> tuple[str, ...]:
        step, steps = self.ball.step, self.ball.radius_steps
        return (
            f"A latent is put on a grid of step {step:g} and clipped in whole steps to a ball of "
            f"radius {steps}; noise is added to the steps.",
        )

    @property
    def event(self) -> Event:
        noise, flip = self.noise.event, self.label
        return noise if flip is None else Composed((noise, flip.event))

    def combine(self, encoded: Any, codes: Any = None) -> Integers:
        return _beside(encoded, codes, self.label)

    def release(self, raw: Any, rng: Randomness | None = None) -> Columns:
        steps, codes = self._apart(raw)
        stream, columns = source(rng), {}
        if self.label is not None:
            columns["label"] = self.label.release(codes, stream)
        columns["latent"] = self.noise.release(steps, stream)
        return columns

    def log_prob(self, released: Columns, raw: Any) -> Reals:
        steps, codes = self._apart(raw)
        total = self.noise.log_prob(released["latent"], steps).sum(axis=-1)
        if self.label is not None:
            total = total + self.label.log_prob(released["label"], codes)
        return np.asarray(total)

    def forms(self) -> dict[str, ColumnForm]:
        latent = {"latent": ColumnForm((self.dimension,), -_FARTHEST, _FARTHEST)}
        return latent | _label_form(self.label)

    def _apart(self, raw: Any) -> tuple[Integers, Integers]:
        """Split into steps and codes; steps outside the ball would not be covered: clip them."""
        whole = whole_rows(raw, self.dimension + self.labelled)
        return self.ball.clip_steps(whole[:, : self.dimension]), whole[:, -1]


@dataclass(frozen=True, kw_only=True, repr=False)
class FeatureChannel(ReportChannel):
    """Noise on every feature by itself, and a flip of the label where one is reported.

    Parameters
    ----------
    noise : DiscreteLaplace or None
        Of every number; None where there is none.
    numbers : int
        How many numbers there are.
    flips : tuple of RandomizedResponse or None
        One per categorical feature; None where the feature has a single value.
    places : tuple of int
        How many values each categorical feature has.
    label : RandomizedResponse, optional
        The flip of the label.
    classes : tuple, optional
        The labels that a report may hold.
    """

    noise: DiscreteLaplace | None
    numbers: int
    flips: tuple[RandomizedResponse | None, ...]
    places: tuple[int, ...]
    label: RandomizedResponse | None = None
    classes: tuple[Any, ...] | None = None

    @property
    def flip(self) -> RandomizedResponse | None:
        return self.label

    @property
    def additive(self) -> dict[str, Noise]:
        return {} if self.noise is None else {"numbers": self.noise}

    @property
    def event(self) -> Event:
        noise = self.noise
        parts: list[Event] = [] if noise is None else [Repeated(noise.event, self.numbers)]
        parts += [one.event for one in (*self.flips, self.label) if one is not None]
        return parts[0] if len(parts) == 1 else Composed(tuple(parts))

    def combine(self, encoded: Any, codes: Any = None) -> Integers:
        return _beside(encoded, codes, self.label)

    def release(self, raw: Any, rng: Randomness | None = None) -> Columns:
        numbers, values, codes = self._apart(raw)
        stream, columns = source(rng), {}
        if self.noise is not None:
            columns["numbers"] = self.noise.release(numbers, stream)
        if self.flips:
            columns["codes"] = self._flipped(values, stream)
        if self.label is not None:
            columns["label"] = self.label.release(codes, stream)
        return columns

    def _flipped(self, values: Integers, rng: Randomness) -> Integers:
        released = values.copy()
        # Strict: a column without its flip would be released unchanged.
        for index, (flip, column) in enumerate(zip(self.flips, values.T, strict=True)):
            if flip is not None:
                released[:, index] = flip.release(column, rng)
        return released

    def log_prob(self, released: Columns, raw: Any) -> Reals:
        numbers, values, codes = self._apart(raw)
        total = np.zeros(len(numbers))
        if self.noise is not None:
            total += self.noise.log_prob(released["numbers"], numbers).sum(axis=1)
        for index, flip in enumerate(self.flips):
            if flip is not None:
                total += flip.log_prob(released["codes"][:, index], values[:, index])
        if self.label is not None:
            total += self.label.log_prob(released["label"], codes)
        return total

    def forms(self) -> dict[str, ColumnForm]:
        forms = {
            "numbers": ColumnForm((self.numbers,), -_FARTHEST, _FARTHEST),
            "codes": ColumnForm((len(self.places),), 0, np.array(self.places, np.int64) - 1),
        }
        return {name: form for name, form in forms.items() if form.shape[0]} | _label_form(
            self.label
        )

    def _apart(self, raw: Any) -> tuple[Integers, Integers, Integers]:
        """Split into numbers, categories and codes; the guarantee covers numbers in range only."""
        end = self.numbers + len(self.places)
        whole = whole_rows(raw, end + self.labelled)
        most = 0 if self.noise is None else self.noise.sensitivity
        numbers, values = whole[:, : self.numbers].clip(0, most), whole[:, self.numbers : end]
        if bool(np.any((values < 0) | (values >= np.array(self.places, np.int64)))):
            raise errors.InvalidData("channel: categories must be codes of declared values.")
        return numbers, values, whole[:, -1]


def _beside(encoded: Any, codes: Any, flip: RandomizedResponse | None) -> Integers:
    """Put the code of the label last."""
    whole = errors.integers("channel", encoded)
    if flip is None:
        return whole
    return np.concatenate([whole, errors.integers("channel", codes)[:, None]], axis=1)


def _label_form(flip: RandomizedResponse | None) -> dict[str, ColumnForm]:
    return {} if flip is None else {"label": ColumnForm((), 0, flip.categories - 1)}
