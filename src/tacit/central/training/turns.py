"""Whose turn it is: batches of records in a fixed order, and no way to have one twice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from tacit.central.training import layers
from tacit.central.training.schedule import Schedule
from tacit.privacy import errors
from tacit.privacy.accounting import plans
from tacit.privacy.accounting.participation import Banded

_WHERE = "train_in_order"
_USUAL_EPOCHS = 20
_USUAL_BANDS = 32


@dataclass(frozen=True)
class Turns:
    """Who has a turn when: it depends on the number of records alone."""

    records: int
    period: int
    """b: the number of batches, and of steps from one turn of a record to the next."""
    steps: int

    @property
    def slots(self) -> int:
        """Return the size of a batch; the last one is filled up with blanks."""
        return -(-self.records // self.period)

    @property
    def most(self) -> int:
        """Return k: the largest number of turns of a record."""
        return -(-self.steps // self.period)

    def bands(self, wanted: int | None) -> int:
        """Return the number of bands: more than a period would be valid, but have no less error."""
        most = min(self.period, self.steps)
        if wanted is None:
            return min(most, _USUAL_BANDS)
        return errors.whole(_WHERE, "bands", wanted, least=1, most=most)

    def rounding(self, dtype: torch.dtype, chosen: Banded) -> float:
        """Return the share of the clip norm that is reserved for rounding.

        That of the sums (`Schedule.rounding`), and of mixing them in float64 (`correlated`). The
        latter differs between neighbours in at most k b̂ steps, by twice its bound in each, and the
        sensitivity is at least 1.
        """
        total = float(sum(chosen.coefficients))
        touched = min(self.steps, self.most * chosen.bands)
        mixing = layers.gamma(chosen.bands + 2, torch.float64) * total * 2 * self.slots
        everyone = Schedule(self.slots, plans.WORDS, 1, Fraction(1))
        return everyone.rounding(dtype) + 2 * math.sqrt(touched) * mixing


class FixedOrder:
    """Batches of these records in their order, each once for every step that was stated."""

    def __init__(self, turns: Turns, rows: tuple[Tensor, ...]) -> None:
        self.turns, self._rows, self._step = turns, rows, 0

    def batch(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the rows of the next step and which of them are there, in fixed slots."""
        if self._step == self.turns.steps:
            raise errors.TacitError(
                f"{_WHERE}: steps must be at most {self._step}, as stated. Start another training: "
                "it is accounted for by itself."
            )
        first = self._step % self.turns.period * self.turns.slots
        self._step += 1
        return tuple(self._slots(part, first) for part in self._rows), self._there(first)

    def _slots(self, part: Tensor, first: int) -> Tensor:
        """Copy the rows of a batch: those that are dropped are blanked in place."""
        rows = part[first : first + self.turns.slots]
        batch = part.new_zeros(self.turns.slots, *part.shape[1:])
        batch[: len(rows)] = rows
        return batch

    def _there(self, first: int) -> Tensor:
        places = torch.arange(first, first + self.turns.slots, device=self._rows[0].device)
        return places < self.turns.records

    def __reduce__(self) -> Any:
        raise TypeError("FixedOrder: a copy would give records more turns than stated.")


def turns_of(records: int, batch_size: int, epochs: float | None, steps: int | None) -> Turns:
    """Divide records into batches, and decide on the number of steps."""
    size = errors.whole(_WHERE, "batch_size", batch_size, least=1)
    period = -(-records // size)
    if epochs is not None and steps is not None:
        errors.refuse(_WHERE, "steps", "left out if epochs is given", steps)
    if steps is None:
        passes = _USUAL_EPOCHS if epochs is None else errors.positive(_WHERE, "epochs", epochs)
        steps = max(1, round(float(passes) * period))
    return Turns(records, period, errors.whole(_WHERE, "steps", steps, least=1, most=10**7))
