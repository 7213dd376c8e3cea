r"""What all estimators share: public bounds, the charge before anything is read, the certificate.

A fit runs in this order: parameters and shapes are checked; the event of the fit is worked out from
parameters and shapes alone; the ledger, if any, is charged with it or refuses; only then is
anything computed from the rows. What ran must be what was charged, or nothing is kept. Certificates
name what is looked at before: that rows are finite, and the classes, where none are declared.

Notes
-----
Neighbours: one record more or less (add-remove). Columns are public; so is the number of records
where an estimator says that it uses it.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from tacit import errors
from tacit.accounting.derivation import guarantee_of
from tacit.accounting.ledger import Ledger
from tacit.certificate import Certificate
from tacit.events import Event
from tacit.guarantees import Guarantee
from tacit.randomness import Randomness, Seeded, source

Reals = npt.NDArray[np.float64]
Bounds = tuple[Any, Any]

DELTA = 1e-6
"""Where an algorithm needs a δ and none is given."""

PUBLIC = (
    "Bounds, classes and settings were chosen without the records, or had been released before."
)
UNFIT = "That the rows do not fit what was declared: they are refused, and nothing is released."


class MostlyNoise(UserWarning):
    """The noise that ε asks for is larger than what there is to learn."""


@dataclass(frozen=True, eq=False)
class Box:
    """Public bounds of columns, and the ball about their middle that rows are clipped to."""

    lower: Reals
    upper: Reals

    @classmethod
    def of(cls, where: str, name: str, bounds: Any, columns: int) -> Box:
        """A pair of numbers, or of arrays with a number a column."""
        if bounds is None or not isinstance(bounds, tuple | list) or len(bounds) != 2:
            remedy = "They are public knowledge, never read off the data."
            errors.refuse(
                where, name, "a pair (lower, upper), numbers or one a column", bounds, remedy
            )
        try:
            low, high = (np.broadcast_to(np.asarray(one, np.float64), columns) for one in bounds)
        except (TypeError, ValueError):
            errors.refuse(where, name, f"two numbers, or two arrays of {columns}", bounds)
        if not bool(np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            errors.refuse(where, name, "finite, the lower below the upper", bounds)
        return cls(low.copy(), high.copy())

    @property
    def center(self) -> Reals:
        """The middle of the box."""
        return (self.lower + self.upper) / 2

    @property
    def radius(self) -> float:
        """ℓ2 distance of the corners from the middle."""
        return math.sqrt(float((((self.upper - self.lower) / 2) ** 2).sum()))

    def clip(self, values: Reals) -> tuple[Reals, int]:
        """Values within the box, and how many rows were not: a number for the house alone."""
        held = np.clip(values, self.lower, self.upper)
        moved = held != values
        return held, int(moved.any(axis=1).sum() if moved.ndim == 2 else moved.sum())


class PrivateEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the estimators. Abstract: each states its event, and how it is fitted.

    Every one has these parameters: `epsilon`, `delta`, `unit`, `ledger` and `account`, `rng`.
    """

    epsilon: float
    delta: float
    unit: str
    ledger: Ledger | None
    account: str | None
    rng: Randomness | None

    event_: Event
    clipped_: int
    """Rows that lay outside the bounds. In-house only: it depends on the data without noise."""

    @abstractmethod
    def _event(self, rows: int, columns: int) -> Event:
        """What a fit runs, from parameters and shapes alone."""

    def _charge(self, rows: int, columns: int) -> Event:
        """The event, paid for: before any value of a row is looked at."""
        where = type(self).__name__
        event = self._event(rows, columns)
        guarantee_of(event, self._delta())
        if self.ledger is not None:
            if self.account is None:
                errors.refuse(where, "account", "given with a ledger", None, "Name the account.")
            self.ledger.charge(self.account, event, delta=self._delta())
        return event

    def _keep(self, charged: Event, ran: Event) -> Self:
        """Nothing is kept of a fit that ran anything but what was charged."""
        if ran != charged:
            raise errors.TacitError(f"{type(self).__name__}: what ran is not what was charged.")
        self.event_ = charged
        self._seeded_ = not source(self.rng).secure
        return self

    def _delta(self) -> float | None:
        return self.delta or None

    @property
    def guarantee_(self) -> Guarantee:
        """Towards each record."""
        self._fitted()
        return guarantee_of(self.event_, self._delta())

    @property
    def certificate_(self) -> Certificate:
        """Guarantee and event of the fit, as a value to save."""
        return Certificate.issue(
            self.event_,
            guarantee=self.guarantee_,
            assumptions=(PUBLIC, *self._assumptions()),
            not_protected=(UNFIT, *self._limits()),
            rng=Seeded(0) if self._seeded_ else None,
        )

    def _assumptions(self) -> tuple[str, ...]:
        return ()

    def _limits(self) -> tuple[str, ...]:
        return ()

    def _fitted(self) -> None:
        if not hasattr(self, "event_"):
            name = type(self).__name__
            raise NotFittedError(f"{name}: it must be fitted first. Call fit.")

    def _rows(self, X: Any) -> Reals:
        """New rows to predict: checked, not clipped."""
        self._fitted()
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))


def warn_of_noise(where: str, signal: float, noise: float, remedy: str) -> None:
    """Say so where the result is noise. A warning is for the house: it may name what is raw."""
    if not signal > noise:
        warnings.warn(
            f"{where}: the noise that this ε asks for ({noise:.3g}) is larger than what there is "
            f"to learn ({signal:.3g}): the result is noise. {remedy}",
            MostlyNoise,
            stacklevel=3,
        )
