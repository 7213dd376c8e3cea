"""Channels of reports: from encoded rows, in integers, to released columns, by an exact law.

A learned mechanism encodes a raw row; its channel releases what was encoded, with the code of a
label where one is reported. The guarantee ranges over all integers that a channel takes, so it does
not depend on the encoder.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.local.report_files import Columns
from tacit.privacy import errors
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.events import Composed, Event, Repeated
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.mechanisms import (
    DiscreteLaplace,
    Gaussian,
    RandomizedResponse,
    SubsetSelection,
)
from tacit.privacy.mechanisms.bounding import GridBall
from tacit.privacy.randomness import Randomness, source, uniform_below
from tacit.privacy.shown import Shown

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Noise = DiscreteLaplace | Gaussian

_FARTHEST = 2**62
"""No released number lies farther from zero."""

_PLACE = np.dtype("<u2")
"""The number of a partition in the compact form of a report."""


class ColumnForm(NamedTuple):
    """The shape of one row of a released column, and the values that it may hold."""

    shape: tuple[int, ...]
    least: int
    most: Any


class ReportChannel(Shown, ABC):
    """The channel of one report: a frozen value with a guarantee, an event and an exact law.

    Raw input is an array of integers with one row per person, as `combine` makes it from encoded
    rows and codes of labels. Released output is a dictionary of columns.
    """

    classes: tuple[Any, ...] | None
    """The labels that a report may hold; None where it holds none."""

    @property
    def labelled(self) -> bool:
        """Whether a report holds a label."""
        return self.classes is not None

    @property
    def class_count(self) -> int:
        """How many labels a report may hold; 1 where it holds none."""
        return 1 if self.classes is None else len(self.classes)

    @property
    def symbols(self) -> SubsetSelection | None:
        """The law of symbols, where a report is one symbol for row and label together."""
        return None

    @property
    def flip(self) -> RandomizedResponse | None:
        """The law of the label, where it is released by itself."""
        return None

    @property
    def additive(self) -> dict[str, Noise]:
        """The noise of each column that has independent noise on every number."""
        return {}

    @property
    def report_bytes(self) -> int | None:
        """Bytes of one report in its compact form; None where there is no such form."""
        return None

    def to_bytes(self, columns: Columns) -> npt.NDArray[np.uint8]:
        """Encode each report in `report_bytes` bytes; refuse what cannot have been released."""
        raise NotImplementedError

    def from_bytes(self, wire: npt.NDArray[np.uint8]) -> Columns:
        """Decode the compact form; refuse bytes that are not a report."""
        raise NotImplementedError

    @property
    def delta(self) -> float | None:
        """The δ that the guarantee is stated for; None for pure ε-DP."""
        return None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences that a certificate states beside the guarantee."""
        return ()

    @property
    @abstractmethod
    def event(self) -> Event:
        """The event that accounting composes, for one person's report."""

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee towards the person who reports."""
        # Cached: composing a Gaussian with a flip takes a while.
        return guarantee_of(self.event, self.delta)

    def kinds(self, columns: Columns) -> list[tuple[Event, int]]:
        """Count the reports of each kind: only reports of one kind hide each other.

        Of which kind a report is must be public, and not depend on data.
        """
        return [(self.event, len(next(iter(columns.values()))))]

    @abstractmethod
    def combine(self, encoded: Any, codes: Any = None) -> Integers:
        """Join encoded rows and codes of labels into the integers that the channel takes."""

    @abstractmethod
    def release(self, raw: Any, rng: Randomness | None = None) -> Columns:
        """Draw one report per row, from OS entropy unless a test passes its own `rng`."""

    @abstractmethod
    def log_prob(self, released: Columns, raw: Any) -> Reals:
        """Compute the natural logarithm of the exact probability of each report."""

    @abstractmethod
    def forms(self) -> dict[str, ColumnForm]:
        """List the columns of a report."""

    def check(self, columns: Columns) -> Columns:
        """Return the columns as integers; refuse what the channel cannot have released."""
        forms = self.forms()
        if {name: column.shape[1:] for name, column in columns.items()} != {
            name: form.shape for name, form in forms.items()
        }:
            wanted = " and ".join(_described(name, form) for name, form in forms.items())
            raise errors.InvalidData(f"reports: columns must be {wanted}.")
        if len({len(column) for column in columns.values()}) != 1:
            raise errors.InvalidData("reports: columns must be of equal length.")
        for name, column in columns.items():
            least, most = forms[name].least, forms[name].most
            whole = column.dtype.kind in "iu"
            if not whole or bool(np.any((column < least) | (column > most))):
                raise errors.InvalidData(
                    f"reports: column {name!r} must hold integers that its channel can release."
                )
        return {name: column.astype(np.int64, copy=False) for name, column in columns.items()}


@dataclass(frozen=True, kw_only=True, repr=False)
class SymbolChannel(ReportChannel):
    """One symbol for the codeword and the label together, by subset selection.

    Parameters
    ----------
    law : SubsetSelection
        Over all symbols: codeword k with label y among C classes is the symbol k·C + y.
    classes : tuple, optional
        The labels that a report may hold.
    """

    law: SubsetSelection
    classes: tuple[Any, ...] | None = None

    @property
    def symbols(self) -> SubsetSelection:
        return self.law

    @property
    def report_bytes(self) -> int:
        return self.law.report_bytes

    def to_bytes(self, columns: Columns) -> npt.NDArray[np.uint8]:
        return self.law.to_bytes(columns["symbols"])

    def from_bytes(self, wire: npt.NDArray[np.uint8]) -> Columns:
        return {"symbols": self.law.from_bytes(wire)}

    @property
    def event(self) -> Event:
        return self.law.event

    def combine(self, encoded: Any, codes: Any = None) -> Integers:
        codewords = errors.integers("channel", encoded)
        if self.classes is None:
            return codewords
        return codewords * self.class_count + errors.integers("channel", codes)

    def release(self, raw: Any, rng: Randomness | None = None) -> Columns:
        return {"symbols": self.law.release(raw, rng)}

    def log_prob(self, released: Columns, raw: Any) -> Reals:
        return self.law.log_prob(released["symbols"], raw)

    def forms(self) -> dict[str, ColumnForm]:
        return {"symbols": ColumnForm((self.law.event.size,), 0, self.law.categories - 1)}

    def check(self, columns: Columns) -> Columns:
        """Return sets of symbols as the narrowest integers; refuse any other column."""
        if set(columns) != {"symbols"} or columns["symbols"].ndim != 2:
            raise errors.InvalidData("reports: columns must be 'symbols' alone, sets of symbols.")
        if len(columns["symbols"]):
            self.law.must_be_sets(columns["symbols"])
        narrow = np.min_scalar_type(self.law.categories - 1)
        return {"symbols": columns["symbols"].astype(narrow, copy=False)}


@dataclass(frozen=True, kw_only=True, repr=False)
class PartitionedChannel(ReportChannel):
    r"""One symbol of one partition among several, by subset selection; the partition is public.

    Raw input holds a symbol for each of the P partitions. A fair draw that does not depend on them
    assigns the partition, and the symbol of that partition is released with the whole ε:

    .. math:: P(\text{partition } p, S \mid x) = \frac1P \, P(S \mid x_p).

    The draw cancels in every ratio, so the guarantee is that of subset selection.

    Parameters
    ----------
    law : SubsetSelection
        Over the symbols of a partition: cell k with label y among C classes is the symbol k·C + y.
    partitions : int
        P, how many partitions there are.
    classes : tuple, optional
        The labels that a report may hold.
    """

    law: SubsetSelection
    partitions: int
    classes: tuple[Any, ...] | None = None

    @property
    def report_bytes(self) -> int:
        return _PLACE.itemsize + self.law.report_bytes

    def to_bytes(self, columns: Columns) -> npt.NDArray[np.uint8]:
        checked = self.check(columns)
        assigned = checked["partition"].astype(_PLACE)[:, None].view(np.uint8)
        return np.hstack([assigned, self.law.to_bytes(checked["symbols"])])

    def from_bytes(self, wire: npt.NDArray[np.uint8]) -> Columns:
        assigned, sets = np.hsplit(np.asarray(wire), [_PLACE.itemsize])
        places = np.ascontiguousarray(assigned).view(_PLACE)[:, 0].astype(np.int64)
        return self.check({"partition": places, "symbols": self.law.from_bytes(sets)})

    @property
    def event(self) -> Event:
        return self.law.event

    def combine(self, encoded: Any, codes: Any = None) -> Integers:
        cells = errors.integers("channel", encoded)
        if self.classes is None:
            return cells
        return cells * self.class_count + errors.integers("channel", codes)[:, None]

    def release(self, raw: Any, rng: Randomness | None = None) -> Columns:
        symbols, stream = self._symbols(raw), source(rng)
        assigned = uniform_below(self.partitions, len(symbols), stream)
        own = np.take_along_axis(symbols, assigned[:, None], axis=1)[:, 0]
        return {"partition": assigned, "symbols": self.law.release(own, stream)}

    def log_prob(self, released: Columns, raw: Any) -> Reals:
        symbols = self._symbols(raw)
        assigned = errors.integers("channel", released["partition"])
        own = np.take_along_axis(symbols, assigned[:, None], axis=1)[:, 0]
        return self.law.log_prob(released["symbols"], own) - math.log(self.partitions)

    def kinds(self, columns: Columns) -> list[tuple[Event, int]]:
        return by_partition(self.event, columns)

    def _symbols(self, raw: Any) -> Integers:
        """Check the symbols of all partitions: a refusal must not depend on the assigned one."""
        symbols = _whole(raw, self.partitions)
        if bool(np.any((symbols < 0) | (symbols >= self.law.categories))):
            raise errors.InvalidData("channel: symbols must be those of declared cells and labels.")
        return symbols

    def forms(self) -> dict[str, ColumnForm]:
        sets = ColumnForm((self.law.event.size,), 0, self.law.categories - 1)
        return {"partition": ColumnForm((), 0, self.partitions - 1), "symbols": sets}

    def check(self, columns: Columns) -> Columns:
        """Return partitions and sets of symbols; refuse what the channel cannot have released."""
        checked = super().check(columns)
        if len(checked["symbols"]):
            self.law.must_be_sets(checked["symbols"])
        narrow = np.min_scalar_type(self.law.categories - 1)
        return {**checked, "symbols": checked["symbols"].astype(narrow, copy=False)}


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
        whole = _whole(raw, self.dimension + self.labelled)
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
        whole = _whole(raw, end + self.labelled)
        most = 0 if self.noise is None else self.noise.sensitivity
        numbers, values = whole[:, : self.numbers].clip(0, most), whole[:, self.numbers : end]
        if bool(np.any((values < 0) | (values >= np.array(self.places, np.int64)))):
            raise errors.InvalidData("channel: categories must be codes of declared values.")
        return numbers, values, whole[:, -1]


def _whole(raw: Any, width: int) -> Integers:
    whole = errors.integers("channel", raw)
    if whole.ndim != 2 or whole.shape[1] != width:
        raise errors.InvalidData(f"channel: raw rows must be {width} integers each, from combine.")
    return whole


def _beside(encoded: Any, codes: Any, flip: RandomizedResponse | None) -> Integers:
    """Put the code of the label last."""
    whole = errors.integers("channel", encoded)
    if flip is None:
        return whole
    return np.concatenate([whole, errors.integers("channel", codes)[:, None]], axis=1)


def _label_form(flip: RandomizedResponse | None) -> dict[str, ColumnForm]:
    return {} if flip is None else {"label": ColumnForm((), 0, flip.categories - 1)}


def _described(name: str, form: ColumnForm) -> str:
    return f"{name!r} ({form.shape[0]} wide)" if form.shape else f"{name!r}"


def by_partition(event: Event, columns: Columns) -> list[tuple[Event, int]]:
    """Count the reports of each partition that has any."""
    counts = np.bincount(columns["partition"]).tolist()
    return [(event, count) for count in counts if count]
