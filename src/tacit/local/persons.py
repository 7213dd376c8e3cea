"""How many reports a person sends: what limits it, and the guarantee of all of them together.

A guarantee for persons covers all reports of one person: m reports of ε each are mε. Where a table
has several rows of a person, at most m of them are reported. Which ones is drawn from names alone,
without a look at other columns: for every such choice, and so for the mixture of all choices, a
person's reports have a law within mε of that for any other content of their rows. Rows without a
name are not reported: they may be of somebody whose other rows have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.privacy import errors
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.events import Event, Repeated, scope_of
from tacit.privacy.guarantees import Guarantee, Unit
from tacit.privacy.randomness import Randomness, source

MOST = 1000
ONE_EACH = "Each report is that of another person. Nothing here has checked it."


@dataclass(frozen=True)
class PerPerson:
    """The largest number of reports of a person, and whether names have enforced it."""

    most: int = 1
    enforced: bool = False

    def __post_init__(self) -> None:
        most = errors.whole("reports", "most", self.most, least=1, most=MOST)
        object.__setattr__(self, "most", most)

    def event(self, channel: Any) -> Event:
        """Return the event of all reports of a person, or of one report of another unit."""
        return self.event_of(channel.event)

    def event_of(self, event: Event) -> Event:
        """Return the event of all reports of a person, from that of one."""
        return event if self.most == 1 else Repeated(event, self.most)

    def guarantee(self, channel: Any) -> Guarantee:
        """Return the guarantee of all reports of a person."""
        guarantee: Guarantee = channel.guarantee
        return guarantee if self.most == 1 else guarantee_of(self.event(channel), channel.delta)

    def assumptions(self, channel: Any) -> tuple[str, ...]:
        """Return what a certificate assumes; a channel for records assumes nothing of people."""
        if scope_of(channel.event)["unit"] is not Unit.PERSON:
            return ()
        if self.enforced:
            return (
                "The names in the table are right: all rows of a person have the same one, or none."
                f" At most {self.most} {_rows(self.most)} of each were drawn at random, without a "
                "look at other columns; rows without a name were left out.",
            )
        if self.most == 1:
            return (ONE_EACH,)
        return (
            f"At most {self.most} reports are of one person: nobody is in more than one of the "
            "releases that were joined. Nothing here has checked it.",
        )

    @property
    def not_protected(self) -> tuple[str, ...]:
        """Sentences on what several reports of a person show."""
        if self.most == 1:
            return ()
        return (f"How many rows a person has, up to {self.most}: as many reports are sent.",)


ASSUMED_ONE = PerPerson()
"""One report of each person, which nothing has checked."""


def joined(parts: Sequence[PerPerson]) -> PerPerson:
    """Return what holds for several releases together: a person may be in two of them."""
    if len(parts) == 1:
        return parts[0]
    return PerPerson(max(one.most for one in parts))


def chosen(
    people: Any, most: int = 1, rng: Randomness | None = None, *, where: str = "persons"
) -> npt.NDArray[np.bool_]:
    """Draw at most `most` rows of each person, uniformly; rows without a name are never drawn.

    Parameters
    ----------
    people : sequence
        The name of whoever each row is of: words or numbers. None, NaN and blank are no name.
    most : int
        The largest number of rows of a person.

    Examples
    --------
    >>> chosen(["Ada", "Ada", "Ada", None, "Grace"], most=2).sum()
    np.int64(3)
    """
    most = PerPerson(most).most
    codes = _codes(people, where)
    keys = source(rng).words(len(codes))
    order = np.lexsort((keys, codes))
    ranked = codes[order]
    first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if ranked.size else ranked
    starts = np.repeat(first, np.diff(np.append(first, ranked.size)))
    kept = np.zeros(len(codes), bool)
    kept[order] = (np.arange(ranked.size) - starts < most) & (ranked >= 0)
    return kept


def _codes(people: Any, where: str) -> npt.NDArray[np.int64]:
    """Number the names; −1 where there is none. Names that compare equal are one person."""
    numbers: dict[Any, int] = {}
    codes = []
    for name in people.tolist() if hasattr(people, "tolist") else people:
        name = name.strip() if isinstance(name, str) else name
        if _missing(name):
            codes.append(-1)
            continue
        if not isinstance(name, str | Real):
            raise errors.InvalidData(f"{where}: persons must be words or numbers, one per row.")
        codes.append(numbers.setdefault(name, len(numbers)))
    return np.array(codes, np.int64)


def _missing(name: Any) -> bool:
    """Say whether this is no name; NaN and pandas' NA and NaT are not equal to themselves."""
    same = name == name
    return name is None or name == "" if isinstance(same, bool | np.bool_) and same else True


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"
