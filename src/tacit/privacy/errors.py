"""Exceptions and argument checks. Messages quote parameters, never people's data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

_SMALLEST, _LARGEST = Fraction(1, 10**300), Fraction(10**300)

_LARGEST_DELTA = 0.5

LARGEST_INTEGER = 2**53
"""Integers up to this are exact in float64, and sums with noise stay inside int64."""


class TacitError(Exception):
    """Base of every error that Tacit raises on purpose."""


class InvalidParameter(TacitError, ValueError):
    """A parameter is outside the range for which the guarantee is proved."""


class InvalidData(TacitError, ValueError):
    """Data do not have the shape, type or range that the mechanism was built for."""


class IncompatibleGuarantees(TacitError, ValueError):
    """Guarantees about different neighbours or units were combined."""


class BudgetExceeded(TacitError):
    """A charge would overdraw its account. Nothing was charged."""


class LedgerError(TacitError):
    """An account is missing, exists already, or a key was used for something else."""


class CertificateError(TacitError):
    """A certificate does not agree with its events or its artifact."""


class LargeDelta(UserWarning):
    """δ is so large that the guarantee would allow whole records to be published."""


def refuse(where: str, name: str, condition: str, value: object, remedy: str = "") -> NoReturn:
    """Raise `InvalidParameter` with a message in the standard form."""
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= 100 else f"{shown[:99]}…"
    end = f" {remedy}" if remedy else ""
    raise InvalidParameter(f"{where}: {name} must be {condition}, got {shown}.{end}")


def rational(where: str, name: str, value: Any) -> Fraction:
    """Read a number as the shortest decimal that denotes it: 0.1 means 1/10, exactly."""
    try:
        exact = isinstance(value, Fraction | int) or (isinstance(value, str) and "/" in value)
        number = Fraction(value) if exact else Fraction(repr(float(value)))
        # Everything downstream must be able to take this number as a float.
        if number and not _SMALLEST <= abs(number) <= _LARGEST:
            raise OverflowError
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        refuse(where, name, "a number from 1e-300 to 1e300, or 0", value)
    return number


def positive(where: str, name: str, value: Any) -> Fraction:
    """Check a finite number above zero, and return it exactly."""
    number = rational(where, name, value)
    if not number > 0:
        refuse(where, name, "above 0", value)
    return number


def clip_norm_in_range(where: str, value: Any) -> Fraction:
    """Check a clip norm: sums of float32 must not overflow, and noise must not vanish in them."""
    number = positive(where, "clip_norm", value)
    if not Fraction(1, 10**12) <= number <= 10**12:
        refuse(where, "clip_norm", "from 1e-12 to 1e12", value, "Scale the loss.")
    return number


def epsilon_in_range(
    where: str, value: Any, *, least: Fraction = Fraction(1, 10**9), name: str = "epsilon"
) -> Fraction:
    """Check ε. Below 1e-9 weights lose all precision; above 700, e^ε overflows."""
    number = positive(where, name, value)
    if number > 700:
        refuse(where, name, "at most 700", value, "Such an epsilon protects nobody.")
    if number < least:
        condition = f"at least {float(least):g}"
        refuse(where, name, condition, value, "With such an epsilon, the output is only noise.")
    return number


def probability(where: str, name: str, value: Any, *, zero: bool = True) -> float:
    """Check a number in [0, 1), or in (0, 1) if zero would make the statement empty."""
    return within(where, name, value, "[0, 1)" if zero else "(0, 1)")


def within(where: str, name: str, value: Any, interval: str) -> float:
    """Return a number in the interval, which is written as in mathematics: "(0, 1]"."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        refuse(where, name, "a number", value)
    lower, upper = _ends(interval)
    above = number >= lower if interval[0] == "[" else number > lower
    below = number <= upper if interval[-1] == "]" else number < upper
    if not (above and below):
        refuse(where, name, f"in {interval}", value)
    return number


@lru_cache(maxsize=64)
def _ends(interval: str) -> tuple[float, float]:
    lower, upper = interval[1:-1].split(",")
    return float(Fraction(lower)), float(Fraction(upper))


def delta_in_range(where: str, value: Any, *, records: int | None = None) -> float:
    """Check that δ is below one half, and warn if it is not below 1/records.

    Publishing each of n records with probability δ is (0, δ)-DP, and publishes nδ of them on
    average. With one half or more, a guess is right as often as without any guarantee. The warning
    is in-house: it may depend on the number of records, and is not stored with what is released.
    """
    delta = probability(where, "delta", value, zero=False)
    if not delta < _LARGEST_DELTA:
        remedy = "Such a large delta protects nobody: choose one below 1/(number of records)."
        refuse(where, "delta", f"below {_LARGEST_DELTA:g}", value, remedy)
    if records and delta * records >= 1:
        warnings.warn(
            f"{where}: delta should be far below 1/(number of records), got {delta:g}. Such a "
            "large delta would allow whole records to be published. Choose a smaller one.",
            LargeDelta,
            stacklevel=3,
        )
    return delta


def share(where: str, name: str, value: Any) -> float:
    """Check a number in [0, 1], both ends included."""
    try:
        return within(where, name, value, "[0, 1]")
    except InvalidParameter:
        refuse(where, name, "in [0, 1]", value)


def whole(where: str, name: str, value: Any, *, least: int, most: int = LARGEST_INTEGER) -> int:
    """Check an integer in [least, most]; booleans and fractions are refused."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer and isinstance(value, float) and math.isfinite(value):
        is_integer = value == int(value)
    if not is_integer or not least <= int(value) <= most:
        refuse(where, name, f"an integer from {least} to {most}", value)
    return int(value)


def choice(where: str, name: str, value: object, allowed: Sequence[str]) -> str:
    """Check that a value is one of the allowed words."""
    if str(value) not in allowed:
        refuse(where, name, "one of " + ", ".join(allowed), value)
    return str(value)


def integers(
    where: str, raw: Any, *, lower: int = -LARGEST_INTEGER, upper: int = LARGEST_INTEGER
) -> npt.NDArray[np.int64]:
    """Read data as int64 within [lower, upper]; floats are allowed only if all are whole."""
    array = _whole_numbers(where, _array(where, raw))
    if bool(np.any((array < lower) | (array > upper))):
        raise InvalidData(f"{where}: data must lie in [{lower}, {upper}]. Clip or recode them.")
    return array.astype(np.int64)


def held_integers(where: str, raw: Any) -> npt.NDArray[np.int64]:
    """Read data as int64, clipped to [−2^53, 2^53]; floats are allowed only if all are whole.

    This is for mechanisms with a stated sensitivity. Neighbouring integers may lie on both sides of
    a limit, so a refusal beyond it would distinguish them with certainty. Clipping each entry moves
    no two data sets apart, in any norm. An entry that is not an integer (a fraction, NaN, infinity)
    is refused: no sensitivity is stated for it.
    """
    return _held(_whole_numbers(where, _array(where, _within(raw)))).astype(np.int64)


def reals(where: str, raw: Any) -> npt.NDArray[np.float64]:
    """Read data as finite float64."""
    array = _array(where, raw)
    if array.dtype.kind in "iu" and bool(
        np.any((array > LARGEST_INTEGER) | (array < -LARGEST_INTEGER))
    ):
        raise InvalidData(f"{where}: whole numbers must be within 2^53 to be exact. Scale them.")
    return _finite(where, array)


def held_reals(where: str, raw: Any) -> npt.NDArray[np.float64]:
    """Read data as finite float64, with integers clipped to [−2^53, 2^53] as in `held_integers`.

    Beyond that, rounding them to floats could move neighbours further apart.
    """
    array = _array(where, _within(raw))
    return _finite(where, _held(array) if array.dtype.kind in "iu" else array)


def _whole_numbers(where: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise InvalidData(
            f"{where}: data must be integers, got {array.dtype.type.__name__}. Convert them first."
        )
    if array.dtype.kind == "b":
        return array.astype(np.int64)
    if array.dtype.kind == "f" and array.dtype.itemsize < 8:
        array = array.astype(np.float64)  # narrower floats cannot represent the bounds
    if array.dtype.kind == "f" and not bool(np.all(np.isfinite(array) & (array == np.rint(array)))):
        raise InvalidData(
            f"{where}: data must be whole numbers without NaN or infinity. Quantise them first."
        )
    return array


def _finite(where: str, array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if array.dtype.kind not in "iuf":
        kind = array.dtype.type.__name__
        raise InvalidData(f"{where}: data must be numbers, got {kind}.")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise InvalidData(f"{where}: data must fit float64. Round them first, in your own way.")
    converted = array.astype(np.float64)
    if not bool(np.all(np.isfinite(converted))):
        raise InvalidData(f"{where}: data must be finite, without NaN or infinity.")
    return converted


def _held(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Clip each entry to [−2^53, 2^53], in a type that can represent these limits."""
    if array.dtype.kind == "u":
        return np.minimum(array.astype(np.uint64), np.uint64(LARGEST_INTEGER))
    wide = array.astype(np.int64) if array.dtype.kind == "i" else array
    return np.asarray(np.clip(wide, -LARGEST_INTEGER, LARGEST_INTEGER))


def _within(raw: Any) -> Any:
    """Clip Python integers of any size, because numpy has no type for some of them."""
    if isinstance(raw, list | tuple):
        return [_within(one) for one in raw]
    if isinstance(raw, int) and not isinstance(raw, bool):
        return min(max(raw, -LARGEST_INTEGER), LARGEST_INTEGER)
    return raw


def _array(where: str, raw: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(raw)
    except (ValueError, TypeError, OverflowError):
        # `from None`: the original message may quote the data.
        raise InvalidData(f"{where}: data must form a regular array.") from None
    if array.size == 0:
        raise InvalidData(f"{where}: data must not be empty.")
    return array
