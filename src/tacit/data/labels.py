"""Labels: the classes that were declared, their codes, and the flip that hides one.

A labelled report spends λε on the row and (1 − λ)ε on the label. Both shares are decimals with few
digits, so that they add up exactly, to ε or slightly less, without any rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors
from tacit.privacy.guarantees import Unit
from tacit.privacy.mechanisms import RandomizedResponse

Label = int | str

_FEWEST, _MOST = 2, 2**16

_DIGITS = 12
"""Significant digits of a part of ε, as a decimal."""


def declare(where: str, classes: int | Sequence[Label]) -> tuple[Label, ...]:
    """Return the label values in order: 0, …, C − 1 for a number C, or the given list."""
    if not isinstance(classes, Sequence | np.ndarray) or isinstance(classes, str):
        return tuple(range(errors.whole(where, "classes", classes, least=_FEWEST, most=_MOST)))
    values = [value.item() if isinstance(value, np.generic) else value for value in classes]
    kinds = {type(value) for value in values}
    if not kinds <= {int, str} or len(kinds) != 1:
        remedy = "Recode the labels first."
        errors.refuse(where, "classes", "all whole numbers or all words", classes, remedy)
    if kinds == {int} and max(abs(int(one)) for one in values) > errors.LARGEST_INTEGER:
        # Beyond, one label that is a float would change how numpy reads the others.
        errors.refuse(where, "classes", "within 2^53", classes, "Recode the labels first.")
    if len(set(values)) != len(values) or not _FEWEST <= len(values) <= _MOST:
        errors.refuse(where, "classes", "distinct, and at least two", classes)
    return tuple(values)


def codes(where: str, labels: Any, classes: tuple[Label, ...] | None) -> npt.NDArray[np.int64]:
    """Return the index of each label among the declared classes; refuse undeclared labels."""
    if classes is None:
        refuse_undeclared(where)
    try:
        given = np.asarray(labels)
    except ValueError:  # rows of unequal length
        given = np.empty((0, 0))
    declared = np.asarray(classes)
    if given.ndim != 1 or given.size == 0:
        raise errors.InvalidData(f"{where}: labels must be one column with at least one row.")
    if given.dtype.kind == "O" and declared.dtype.kind == "U":
        words = all(isinstance(label, str) for label in given)
        given = given.astype(str) if words else given
    comparable = "U" if declared.dtype.kind == "U" else "biuf"
    if given.dtype.kind not in comparable:
        kind = "words" if comparable == "U" else "whole numbers"
        raise errors.InvalidData(
            f"{where}: labels must be {kind}, as the declared classes are. Declare their values: "
            "classes=['no', 'yes']."
        )
    order = np.argsort(declared)
    place = np.searchsorted(declared[order], given).clip(max=declared.size - 1)
    places = order[place]
    unknown = declared[places] != given
    if bool(np.any(unknown)):
        raise errors.InvalidData(
            f"{where}: labels must be among the {declared.size} declared classes; row "
            f"{int(np.argmax(unknown))} is not. Declare every class when the mechanism is made."
        )
    return np.asarray(places, dtype=np.int64)


def refuse_undeclared(where: str) -> NoReturn:
    """Refuse labels for a mechanism without declared classes."""
    remedy = "Give the number of classes, or their values, when the mechanism is made."
    errors.refuse(where, "classes", "declared for labelled reports", None, remedy)


def part(epsilon: Fraction, count: int = 1) -> Fraction:
    """Return ε/count as a decimal with few digits, or slightly less: sums of parts stay exact.

    A report that costs 4 must not be stated to cost 4.00001.

    Examples
    --------
    >>> part(Fraction(4), 5), part(Fraction(4), 3) * 3 < 4
    (Fraction(4, 5), True)
    """
    each = epsilon / count
    unit = Fraction(10) ** (_DIGITS - math.ceil(math.log10(each)))
    return math.floor(each * unit) / unit


def split(where: str, epsilon: Any, label_share: Any) -> tuple[Fraction, Fraction]:
    """Split ε between the row and the label; the two parts add up to ε, or to slightly less."""
    total = errors.epsilon_in_range(where, epsilon)
    share = errors.rational(where, "label_share", label_share)
    if not 0 < share < 1:
        errors.refuse(where, "label_share", "between 0 and 1", label_share)
    return part(total * (1 - share)), part(total * share)


def flip(
    classes: tuple[Label, ...] | None, epsilon: Any, where: str, unit: Unit = Unit.RECORD
) -> RandomizedResponse:
    """Return K-ary randomized response on the codes of the classes."""
    if classes is None:
        refuse_undeclared(where)
    return RandomizedResponse(categories=len(classes), epsilon=epsilon, unit=unit)
