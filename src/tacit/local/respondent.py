"""One person's device in a survey of several rounds: keeps what was drawn, and what was sent.

Two draws of a permanent answer, or of one round's report, would cost twice. So each is a file that
is made once and never changed: it is on disk before a report leaves, and whoever comes second,
after a crash or in another process, gets what is there. No file holds a true answer. A ledger is
charged once for the whole series, at a price for the worst history, before the first report.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from tacit.privacy import canonical, errors, files, plain
from tacit.privacy.accounting.device_ledger import DeviceLedger
from tacit.privacy.mechanisms.memoized_response import MemoizedResponse
from tacit.privacy.randomness import SystemEntropy

_WHERE = "Respondent"
_OWN_FOLDER = 0o700


class Respondent:
    """Someone who answers the same question in several rounds, with a folder of their own.

    Parameters
    ----------
    mechanism : MemoizedResponse
        How reports are drawn, and how many there are at most.
    folder : path
        Where permanent answers and sent reports are kept; made if missing. One folder per person
        and question.
    ledger : DeviceLedger, optional
        The person's budget over all that their device sends. It is charged ε of `mechanism` once,
        for all rounds, and refuses a series that is beyond what is left.

    Notes
    -----
    Over all rounds a device has the guarantee of `mechanism`: permanent answers are drawn once, a
    round is reported once, and there are no more rounds than the mechanism has reports. That holds
    across restarts and for several processes at a time, unless the folder is deleted, copied to a
    second device or set back to an older copy. Randomness is the operating system's.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> monthly = MemoizedResponse(categories=2, epsilon=7.1, permanent_epsilon=1.0, reports=12)
    >>> with TemporaryDirectory() as folder:
    ...     person = Respondent(monthly, folder)
    ...     report = person.report(1, number=0)
    ...     again = Respondent(monthly, folder).report(0, number=0)
    >>> report == again  # a round is reported once
    True
    """

    def __init__(
        self,
        mechanism: MemoizedResponse,
        folder: str | os.PathLike[str],
        *,
        ledger: DeviceLedger | None = None,
    ) -> None:
        if not isinstance(mechanism, MemoizedResponse):
            errors.refuse(_WHERE, "mechanism", "a MemoizedResponse", type(mechanism).__name__)
        self.mechanism, self.folder = mechanism, Path(folder)
        self.folder.mkdir(mode=_OWN_FOLDER, exist_ok=True)
        stream = SystemEntropy()
        drawn = {
            "mechanism": self._declared(),
            "seed": int(mechanism.draw_seeds(1, stream)[0]),
            "permanent": mechanism.draw_permanent(1, stream)[0].tolist(),
            "series": secrets.token_hex(16),
        }
        kept = self._keep("permanent.json", drawn)
        if kept.get("mechanism") != drawn["mechanism"]:
            remedy = "Use another folder for another question."
            errors.refuse(_WHERE, "folder", "one of this mechanism", str(folder), remedy)
        self._seed = _whole(kept.get("seed"), 2**53 - 1)
        cells = mechanism.event.cells
        self._permanent = [_whole(one, cells - 1) for one in _list(kept.get("permanent"), cells)]
        if ledger is not None:
            # Permanent answers were drawn for every cell, without a look at the person's own.
            ledger.charge(mechanism.guarantee, key=self._series(kept.get("series")))

    @property
    def sent(self) -> list[int]:
        """The rounds that have been reported."""
        rounds = range(self.mechanism.reports)
        return [number for number in rounds if (self.folder / _name(number)).exists()]

    def report(self, category: int, *, number: int) -> int | tuple[int, int]:
        """Return the report of a round: a cell, or a seed and a cell if categories are hashed.

        A round that was reported before has the same report again, whatever the category is now.

        Parameters
        ----------
        category : int
            The true answer.
        number : int
            The round: 0, …, reports − 1.

        Raises
        ------
        BudgetExceeded
            If the mechanism has no such round.
        """
        number = errors.whole("Respondent.report", "number", number, least=0)
        if number >= self.mechanism.reports:
            raise errors.BudgetExceeded(
                f"Respondent.report: number must be below {self.mechanism.reports}, got {number}. "
                "The guarantee covers no more reports; a new series costs its ε again."
            )
        cell = self._cell(category)
        fresh = self.mechanism.draw_reports([self._permanent[cell]], SystemEntropy())
        kept = self._keep(_name(number), {"report": int(fresh[0])})
        report = _whole(kept.get("report"), self.mechanism.event.cells - 1)
        return (self._seed, report) if self.mechanism.hashed else report

    def _cell(self, category: Any) -> int:
        """Return the cell of a category; what is refused is not told by the message."""
        try:
            (cell,) = self.mechanism.cells_of(np.reshape(category, (1, 1)), [self._seed]).ravel()
        except (errors.InvalidData, ValueError, TypeError, OverflowError):
            most = self.mechanism.categories - 1
            raise errors.InvalidData(
                f"Respondent.report: category must be a whole number from 0 to {most}."
            ) from None
        return int(cell)

    def _series(self, name: Any) -> str:
        """Return the name that a ledger is charged under: another one if answers were redrawn."""
        declared = canonical.sha256(canonical.text(self._declared()))
        return f"series sha256 {declared} draw {_text(name)}"

    def _declared(self) -> dict[str, Any]:
        event = plain.to_plain(self.mechanism.event)
        return {"categories": self.mechanism.categories, "event": json.loads(json.dumps(event))}

    def _keep(self, name: str, drawn: dict[str, Any]) -> dict[str, Any]:
        """Write a file unless it exists; return what it holds."""
        content = files.keep_first(self.folder / name, canonical.lines(drawn))
        try:
            kept = json.loads(content)
        except ValueError:
            kept = None
        if not isinstance(kept, dict):
            raise errors.InvalidData(f"Respondent: {name} must be as it was written.")
        return kept

    def __repr__(self) -> str:
        """Show the mechanism, never what is kept."""
        return f"Respondent({self.mechanism!r})"


def _name(number: int) -> str:
    return f"round-{number}.json"


def _whole(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise errors.InvalidData("Respondent: the folder must hold what was written.")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isalnum():
        raise errors.InvalidData("Respondent: the folder must hold what was written.")
    return value


def _list(value: Any, length: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise errors.InvalidData("Respondent: the folder must hold what was written.")
    return value
