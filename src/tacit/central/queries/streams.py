r"""Above-threshold streams: many counts compared with a threshold for the price of a few.

The whole ε is charged when the stream is opened. Every count is then compared with a noisy
threshold, until the stream has answered "above" `positives` times (`mechanisms.SparseVector` has
the proof and the reference). One unit changes each count by at most m rows, and under add-remove
all counts in the same direction.
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
    """A stream of counts compared with a threshold.

    `remaining` is the number of times that the stream may still answer "above".
    """

    def __init__(
        self, mechanism: SparseVector, count: Callable[[Any], int], rng: Randomness
    ) -> None:
        self._mechanism, self._count, self._rng = mechanism, count, rng
        self._pending: list[int] = []
        self._outcomes = mechanism.ask(self._answers(), rng)
        self.remaining = int(mechanism.positives)

    def ask(self, where: Any = None) -> bool:
        """Return whether the number of rows that satisfy a condition is above the threshold.

        The comparison is noisy, and charges nothing.
        """
        if self.remaining == 0:
            raise errors.BudgetExceeded(
                f"above_threshold: the stream has ended, after at most {self._mechanism.positives} "
                "answers above. Open another one."
            )
        try:
            self._pending.append(self._count(where))
        except errors.InvalidParameter:
            raise  # by the plan, independently of the rows
        except errors.TacitError:
            self.remaining = 0  # a failure may reveal rows: it must not be repeatable for free
            raise
        outcome, _ = next(self._outcomes)
        self.remaining -= outcome == ABOVE
        return outcome == ABOVE

    @property
    def guarantee(self) -> Guarantee:
        return self._mechanism.guarantee

    def certificate(self) -> Certificate:
        """Certify the guarantee of the whole stream, however long it is."""
        return certify(self._mechanism.event, self.guarantee, not self._rng.secure)

    def _answers(self) -> Iterator[int]:
        while True:
            # Clipped to what the mechanism accepts; clipping does not raise the sensitivity.
            yield min(self._pending.pop(), errors.LARGEST_INTEGER)
