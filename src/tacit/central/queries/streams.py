r"""Above-threshold streams: many counts compared with a threshold for the price of a few.

The whole ε is charged when the stream is opened. Every question is then compared with one noisy
threshold, until "above" has been said as often as was paid for (`mechanisms.SparseVector`, which
has the proof and the reference). Counts of a unit change by at most m rows each, and under
add-remove all in one direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tacit.central.queries.answers import certify
from tacit.privacy import errors
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import Guarantee
from tacit.privacy.mechanisms import SparseVector
from tacit.privacy.mechanisms.sparse_vector import ABOVE
from tacit.privacy.randomness import Randomness


class AboveThreshold:
    """Ask whether counts are above a threshold; `left` says how often "above" may still be said."""

    def __init__(
        self, mechanism: SparseVector, count: Callable[[Any], int], rng: Randomness
    ) -> None:
        self._mechanism, self._count, self._rng = mechanism, count, rng
        self._pending: list[int] = []
        self._outcomes = mechanism.ask(self._answers(), rng)
        self.left = int(mechanism.positives)

    def ask(self, where: Any = None) -> bool:
        """Whether so many rows as the threshold, about, fulfil a condition. Charges nothing."""
        if self.left == 0:
            raise errors.BudgetExceeded(
                "above_threshold: the stream has said above as often as was paid for. "
                "Open another one."
            )
        try:
            self._pending.append(self._count(where))
        except errors.InvalidParameter:
            raise  # by the plan, whatever the rows hold
        except errors.TacitError:
            self.left = 0  # that reading failed may tell of rows: not again for nothing
            raise
        outcome, _ = next(self._outcomes)
        self.left -= outcome == ABOVE
        return outcome == ABOVE

    @property
    def guarantee(self) -> Guarantee:
        return self._mechanism.guarantee

    def certificate(self) -> Certificate:
        """The guarantee of the whole stream, however long."""
        return certify(self._mechanism.event, self.guarantee, not self._rng.secure)

    def _answers(self) -> Iterator[int]:
        while True:
            # Held to what the mechanism takes: holding moves no count further.
            yield min(self._pending.pop(), errors.LARGEST_INTEGER)
