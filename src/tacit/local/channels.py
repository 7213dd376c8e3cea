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
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.mechanisms import (
    DiscreteLaplace,
    Gaussian,
    RandomizedResponse,
    SubsetSelection,
)
from tacit.privacy.randomness import Randomness, source, uniform_below
from tacit.privacy.shown import Shown

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Noise = DiscreteLaplace | Gaussian

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
        symbols = whole_rows(raw, self.partitions)
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


def whole_rows(raw: Any, width: int) -> Integers:
    """Return raw rows of this many integers each; refuse any other shape."""
    whole = errors.integers("channel", raw)
    if whole.ndim != 2 or whole.shape[1] != width:
        raise errors.InvalidData(f"channel: raw rows must be {width} integers each, from combine.")
    return whole


def _described(name: str, form: ColumnForm) -> str:
    return f"{name!r} ({form.shape[0]} wide)" if form.shape else f"{name!r}"


def by_partition(event: Event, columns: Columns) -> list[tuple[Event, int]]:
    """Count the reports of each partition that has any."""
    counts = np.bincount(columns["partition"]).tolist()
    return [(event, count) for count in counts if count]
