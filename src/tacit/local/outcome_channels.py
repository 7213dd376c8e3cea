r"""Channels of reports about a row and a numeric outcome; the outcome is rounded at random.

Raw input is the encoded row, and last the position of the outcome between its public bounds, in
steps of 2^-20 (`tacit.data.outcomes`). Rounding and noise are drawn in whole numbers; the law that
is stated includes both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.outcomes import STEPS, Numeric, level_chances, rounded
from tacit.local.channels import (
    ColumnForm,
    Integers,
    PartitionedChannel,
    Reals,
    ReportChannel,
    SymbolChannel,
    by_partition,
)
from tacit.local.report_files import Columns
from tacit.privacy import errors
from tacit.privacy.events import Event
from tacit.privacy.mechanisms import LocalMean
from tacit.privacy.randomness import Randomness, source, uniform_below

_PLACE = np.dtype("<u2")


class OutcomeChannel(ReportChannel):
    """A channel whose reports hold a numeric outcome. Abstract."""

    outcome: Numeric
    classes: tuple[Any, ...] | None = None

    @property
    def labelled(self) -> bool:
        """Whether a report holds an outcome: always."""
        return True

    def combine(self, encoded: Any, codes: Any = None) -> Integers:
        rows = errors.integers("channel", encoded)
        rows = rows[:, None] if rows.ndim == 1 else rows
        return np.concatenate([rows, errors.integers("channel", codes)[:, None]], axis=1)

    def _apart(self, raw: Any, width: int) -> tuple[Integers, Integers]:
        """Split into encoded rows and positions; positions beyond the bounds count as the bound."""
        whole = errors.integers("channel", raw)
        if whole.ndim != 2 or whole.shape[1] != width + 1:
            condition = f"{width + 1} integers each, from combine"
            raise errors.InvalidData(f"channel: raw rows must be {condition}.")
        return whole[:, :-1], whole[:, -1].clip(0, STEPS)


@dataclass(frozen=True, kw_only=True, repr=False)
class RoundedChannel(OutcomeChannel):
    r"""One symbol for the cell and a level of the outcome together, by subset selection.

    An outcome between two levels is rounded to either at random, so that its expectation stays:
    with a the share of the way from the lower one,

    .. math:: P(S \mid k, y) = (1 - a) \, P(S \mid k, l) + a \, P(S \mid k, l + 1).

    Parameters
    ----------
    inner : SymbolChannel or PartitionedChannel
        The channel of cells and levels; its classes are the levels.
    outcome : Numeric
        The bounds of the outcome.

    Notes
    -----
    The law given a row and an outcome is a mixture of two laws of the inner channel, so its
    guarantee holds for any two rows and outcomes.
    """

    inner: SymbolChannel | PartitionedChannel
    outcome: Numeric

    @property
    def levels(self) -> int:
        """How many levels an outcome is rounded to."""
        return self.inner.class_count

    @property
    def class_count(self) -> int:
        return self.levels

    @property
    def event(self) -> Event:
        return self.inner.event

    def kinds(self, columns: Columns) -> list[tuple[Event, int]]:
        return self.inner.kinds(columns)

    @property
    def report_bytes(self) -> int | None:
        return self.inner.report_bytes

    def to_bytes(self, columns: Columns) -> npt.NDArray[np.uint8]:
        return self.inner.to_bytes(columns)

    def from_bytes(self, wire: npt.NDArray[np.uint8]) -> Columns:
        return self.inner.from_bytes(wire)

    def forms(self) -> dict[str, ColumnForm]:
        return self.inner.forms()

    def check(self, columns: Columns) -> Columns:
        return self.inner.check(columns)

    def release(self, raw: Any, rng: Randomness | None = None) -> Columns:
        cells, position = self._cells(raw)
        stream = source(rng)
        levels = rounded(position, self.levels, stream)
        return self.inner.release(self.inner.combine(cells, levels), stream)

    def log_prob(self, released: Columns, raw: Any) -> Reals:
        cells, position = self._cells(raw)
        below, above, share = level_chances(position, self.levels)
        low, high = (
            self.inner.log_prob(released, self.inner.combine(cells, level))
            for level in (below, above)
        )
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log1p(-share) + low, np.log(share) + high)

    def _cells(self, raw: Any) -> tuple[Integers, Integers]:
        if isinstance(self.inner, PartitionedChannel):
            return self._apart(raw, self.inner.partitions)
        cells, position = self._apart(raw, 1)
        return cells[:, 0], position


@dataclass(frozen=True, kw_only=True, repr=False)
class ContrastChannel(OutcomeChannel):
    r"""The outcome, with the sign of one public half of all rows, as a bounded number.

    A fair draw that does not depend on the raw input assigns a partition p into two cells. With
    :math:`h_p = 1` in the second cell and −1 in the first, and y the outcome, scaled to [−1, 1],

    .. math:: P(p, s \mid x, y) = \frac1P \, P_\text{mean}(s \mid h_p(x) \, y),

    where the second factor is the law of `LocalMean`, the channel of small variance for a bounded
    number. A report estimates :math:`h_p(x) y` without bias. It says nothing else about the cell,
    and so costs less noise than one that names cell and outcome.

    Parameters
    ----------
    law : LocalMean
        Of a number in [−1, 1].
    partitions : int
        P.
    outcome : Numeric
        The bounds of the outcome.

    Notes
    -----
    The draw of the partition cancels in every ratio, and the product is a number in [−1, 1]
    whatever row and outcome are: the guarantee is that of `LocalMean`.
    """

    law: LocalMean
    partitions: int
    outcome: Numeric

    @property
    def event(self) -> Event:
        return self.law.event

    def kinds(self, columns: Columns) -> list[tuple[Event, int]]:
        return by_partition(self.event, columns)

    @property
    def report_bytes(self) -> int:
        return 2 * _PLACE.itemsize

    def to_bytes(self, columns: Columns) -> npt.NDArray[np.uint8]:
        checked = self.check(columns)
        both = np.stack([checked["partition"], checked["symbol"]], axis=1)
        return both.astype(_PLACE).view(np.uint8)

    def from_bytes(self, wire: npt.NDArray[np.uint8]) -> Columns:
        both = np.ascontiguousarray(wire).view(_PLACE).astype(np.int64)
        return self.check({"partition": both[:, 0], "symbol": both[:, 1]})

    def forms(self) -> dict[str, ColumnForm]:
        most = len(self.law.outputs()) - 1
        return {
            "partition": ColumnForm((), 0, self.partitions - 1),
            "symbol": ColumnForm((), 0, most),
        }

    def release(self, raw: Any, rng: Randomness | None = None) -> Columns:
        cells, position = self._halves(raw)
        stream = source(rng)
        assigned = uniform_below(self.partitions, len(cells), stream)
        numbers = _products(cells, position, assigned)
        return {"partition": assigned, "symbol": self.law.release(numbers, stream)}

    def log_prob(self, released: Columns, raw: Any) -> Reals:
        cells, position = self._halves(raw)
        assigned = errors.integers("channel", released["partition"])
        numbers = _products(cells, position, assigned)
        return self.law.log_prob(released["symbol"], numbers) - math.log(self.partitions)

    def _halves(self, raw: Any) -> tuple[Integers, Integers]:
        cells, position = self._apart(raw, self.partitions)
        return cells.clip(0, 1), position


def _products(cells: Integers, position: Integers, assigned: Integers) -> Reals:
    """Return outcome times sign: multiples of 2^-19, which floats hold exactly."""
    own = np.take_along_axis(cells, assigned[:, None], axis=1)[:, 0]
    return (2 * own - 1) * (position / (STEPS // 2) - 1.0)
