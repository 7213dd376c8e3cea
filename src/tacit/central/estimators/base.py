r"""Base of all estimators: public bounds, the charge before any value is read, the certificate.

A fit runs in this order: parameters and shapes are checked; the event of the fit is derived from
parameters and shapes alone; the ledger, if any, is charged with it or refuses; only then is
anything computed from the rows. If the event that ran is not the one charged, nothing is kept. The
certificate names what is checked earlier: that rows are finite, and the classes if none are
declared.

Notes
-----
Neighbours differ by one record more or less (add-remove) where the number of records is not used.
Where it is used (for a sampling probability or a sensitivity), it is public, and neighbours have
one record replaced by a blank (zero-out). `events.towards` restates the former as the latter. The
columns are public.
"""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from tacit.central.estimators import storage
from tacit.privacy import artifact, errors
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import Ledger, LedgerLike, pay
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event, scope_of
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.randomness import Randomness, Seeded, source

Reals = npt.NDArray[np.float64]
Bounds = tuple[Any, Any]

DELTA = 1e-6
"""The δ of algorithms that need one, where none is given."""

PUBLIC = (
    "Bounds, classes and settings were chosen without the records, or had been released before."
)
NUMBERS = "With or without any one record, there is at least one, and no more than a fit accepts."
"""Assumption for neighbours that differ in number: too small or too large a table is refused."""
UNFIT = "Whether the rows fit the declaration: if not, they are refused, and nothing is released."

_LARGEST = 1e150

_UNQUOTED = (
    "Found array with",
    "Found input variables with inconsistent numbers of samples",
    "requires y to be passed",
    "feature names should match those that were passed",
    "features, but",
    "should be a 1d array, got an array of shape",
    "Sparse data was passed",
    "Unknown label type",
    "argument must be a string or a real number",
)
"""Parts of scikit-learn's messages that are clear enough and quote none of the data."""

_FINITE = (
    "data must be without NaN and infinity. Replace missing values by constants that are chosen "
    "without looking at the records (an imputer that is fitted to them is not private)."
)

_LABELS = (
    "labels and targets must be without NaN and missing values, and of one type. Give missing "
    "labels a class of their own, declared in classes, and missing targets a constant."
)

_SAID = {
    "Input y contains NaN": _LABELS,
    "not supported between instances of": _LABELS,  # None beside text, which cannot be sorted
    "contains NaN": _FINITE,
    "contains infinity": _FINITE,
    "could not convert string": (
        "data must be numbers. Encode text first, with categories that you declare: "
        "OneHotEncoder(categories=[…], handle_unknown='ignore')."
    ),
    "Complex data not supported": "Complex data not supported: data must be real numbers.",
    "Reshape your data": "data must be one row per record, in two dimensions. Reshape your data.",
}
"""Parts of its other messages, and what is said instead of them."""

_IRREGULAR = "data must be numbers, one row per record, and labels one column. Encode them first."


class MostlyNoise(UserWarning):
    """Warning that the noise that ε requires is larger than the signal."""


@dataclass(frozen=True, eq=False)
class Box:
    """Public bounds of columns, and the ball about their middle that rows are clipped to."""

    lower: Reals
    upper: Reals

    @classmethod
    def of(cls, where: str, name: str, bounds: Any, columns: int) -> Box:
        """Read bounds: a pair of numbers, or a pair of arrays with one number per column."""
        if bounds is None or not isinstance(bounds, tuple | list) or len(bounds) != 2:
            remedy = "They are public knowledge, never computed from the data."
            errors.refuse(
                where, name, "a pair (lower, upper), numbers or one per column", bounds, remedy
            )
        if isinstance(bounds, list) and all(isinstance(one, tuple) for one in bounds):
            remedy = "A list of pairs would be read as lowers and uppers: give (lowers, uppers)."
            errors.refuse(where, name, "a tuple (lower, upper)", bounds, remedy)
        try:
            low, high = (np.broadcast_to(np.asarray(one, np.float64), columns) for one in bounds)
        except (TypeError, ValueError):
            remedy = f"Rows have {columns} columns here, after all encoding."
            errors.refuse(where, name, f"two numbers, or two arrays of {columns}", bounds, remedy)
        if not bool(np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            errors.refuse(where, name, "finite, the lower below the upper", bounds)
        # Proofs measure rows in half-widths: these and their squares must be finite floats.
        large = np.maximum(np.abs(low), np.abs(high)).max() > _LARGEST
        if large or bool((high / 2 - low / 2 < 1 / _LARGEST).any()):
            condition = "within 1e150, the lower 1e-150 or more below the upper"
            errors.refuse(where, name, condition, bounds, "Measure the columns in another unit.")
        return cls(low.copy(), high.copy())

    @property
    def center(self) -> Reals:
        """Return the middle of the box."""
        return (self.lower + self.upper) / 2

    def origin(self, intercept: bool) -> Reals:
        """Return where columns are measured from: the middle, or zero without an intercept."""
        return self.center if intercept else np.zeros(len(self.lower))

    def reach(self, origin: Reals) -> Reals:
        """Return how far from there each column can lie."""
        return np.maximum(self.upper - origin, origin - self.lower)

    @property
    def radius(self) -> float:
        """Return the ℓ2 distance of the corners from the middle."""
        return math.sqrt(float((((self.upper - self.lower) / 2) ** 2).sum()))

    def clip(self, values: Reals) -> tuple[Reals, int]:
        """Clip values to the box, and count the rows outside it: an in-house number."""
        clipped = np.clip(values, self.lower, self.upper)
        moved = clipped != values
        return clipped, int(moved.any(axis=1).sum() if moved.ndim == 2 else moved.sum())


@dataclass(frozen=True)
class CertificateTerms:
    """What a certificate says besides the event, fixed at the fit, whatever is set later."""

    delta: float | None
    assumptions: tuple[str, ...]
    not_protected: tuple[str, ...]
    seeded: bool


class PrivateEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """Abstract base of the estimators. Each states its event, and how it is fitted.

    All have these parameters: `epsilon`, `delta`, `unit`, `ledger` and `account`, `rng`.
    """

    epsilon: float
    delta: float
    unit: str
    ledger: LedgerLike | None
    account: str | None
    rng: Randomness | None

    _stored: ClassVar[tuple[str, ...]]
    """Attributes that a fit releases. They are stored; nothing else that a fit leaves here is."""

    event_: Event
    clipped_: int
    """Number of rows outside the bounds. In-house only: it is computed without noise."""

    @abstractmethod
    def _event(self, rows: int, columns: int) -> Event:
        """Return the event of a fit, from parameters and shapes alone."""

    def _charge(self, rows: int, columns: int) -> Event:
        """Charge the event before any value of a row is read, and return it."""
        where = type(self).__name__
        self._forget()
        event = self._event(rows, columns)
        if delta := self._delta():
            errors.delta_in_range(where, delta, records=rows)
        guarantee_of(event, self._delta())
        pay(where, self.ledger, self.account, event, delta=self._delta())
        return event

    def _forget(self) -> None:
        """Become unfitted: columns and classes may already be those of another fit."""
        for name in ("event_", "certificate_"):
            self.__dict__.pop(name, None)

    def _keep(self, charged: Event, ran: Event) -> Self:
        """Keep the fit if what ran is what was charged; otherwise raise."""
        if ran != charged:
            raise errors.TacitError(f"{type(self).__name__}: what ran is not what was charged.")
        self.event_ = charged
        self._terms_ = CertificateTerms(
            self._delta(),
            (PUBLIC, *_numbers(charged), *_one_row(self.unit), *self._assumptions()),
            (UNFIT, *self._limits()),
            not source(self.rng).secure,
        )
        self.__dict__.pop("certificate_", None)
        return self

    def _delta(self) -> float | None:
        return self.delta or None

    @property
    def guarantee_(self) -> Guarantee:
        """Guarantee for each record."""
        return self.certificate_.guarantee

    @cached_property
    def certificate_(self) -> Certificate:
        """Certificate of the fit: guarantee and event, as a value to save."""
        self._fitted()
        terms = self._terms_
        return Certificate.issue(
            self.event_,
            guarantee=guarantee_of(self.event_, terms.delta),
            assumptions=terms.assumptions,
            not_protected=terms.not_protected,
            rng=Seeded(0) if terms.seeded else None,
        )

    @property
    def certificate(self) -> Certificate:
        """Certificate of the fit, under the name that all stored objects share."""
        return self.certificate_

    # --- storage -------------------------------------------------------------------------------

    kind: ClassVar[str] = storage.KIND

    def save(self, path: str | Path) -> Path:
        """Write a directory that `tacit.load` reads: what was released, and nothing in-house.

        `clipped_`, ledger, account and rng are not written. See `tacit.artifact`.
        """
        self._fitted()
        return artifact.save(self, path)

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return the model as JSON-ready parameters and arrays."""
        self._fitted()
        return storage.parts(self)

    @staticmethod
    def from_parts(parameters: dict[str, Any], arrays: artifact.Arrays) -> PrivateEstimator:
        """Rebuild the estimator, of whichever class, from its `parts`."""
        return storage.rebuilt(parameters, arrays)

    # --- for the classes -----------------------------------------------------------------------

    def _assumptions(self) -> tuple[str, ...]:
        return ()

    def _limits(self) -> tuple[str, ...]:
        return ()

    def _fitted(self) -> None:
        if not hasattr(self, "event_"):
            name = type(self).__name__
            raise NotFittedError(f"{name}: it must be fitted first. Call fit.")

    def _rows(self, X: Any) -> Reals:
        """Check new rows to predict, without clipping them."""
        self._fitted()
        return np.asarray(self._checked(X, reset=False))

    def _checked(self, *data: Any, **options: Any) -> Any:
        """Check data as scikit-learn does, with errors that quote none of it."""
        try:
            checked = validate_data(self, *data, dtype=np.float64, **options)
            if options.get("y_numeric"):
                return checked[0], np.asarray(checked[1], np.float64)
        except (ValueError, TypeError, OverflowError, AttributeError) as caught:
            raise unquoted(type(self).__name__, caught) from None
        return checked

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a pickle, which may be shared: without `clipped_` and open ledgers.

        The account stays, so that no copy is fitted without a charge: `pay` refuses an account
        without a ledger.
        """
        state = {key: value for key, value in super().__getstate__().items() if key != "clipped_"}
        return state | ({"ledger": None} if isinstance(self.ledger, Ledger) else {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy as a pickle does, but charge the same ledger: the copy stays in this process."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        copied.ledger = self.ledger
        return copied


def _numbers(event: Event) -> tuple[str, ...]:
    return (NUMBERS,) if scope_of(event)["adjacency"] is Adjacency.ADD_REMOVE else ()


def unquoted(where: str, caught: Exception) -> Exception:
    """Return the error unchanged if it quotes no data, else one that says what is wanted."""
    message = str(caught)
    if any(known in message for known in _UNQUOTED):
        return caught
    advice = next((advice for quoting, advice in _SAID.items() if quoting in message), _IRREGULAR)
    return errors.InvalidData(f"{where}: {advice}")


def _one_row(unit: str) -> tuple[str, ...]:
    return () if unit == Unit.RECORD else (f"Each {unit} has one row at most.",)


def warn_of_noise(where: str, signal: float, noise: float, remedy: str) -> None:
    """Warn where the result is noise. Warnings are in-house: they may state raw numbers."""
    if not signal > noise:
        warnings.warn(
            f"{where}: the noise that this ε requires ({noise:.3g}) is larger than the signal "
            f"({signal:.3g}): the result is noise. {remedy}",
            MostlyNoise,
            stacklevel=3,
        )
