r"""A journal of one training: which noisy gradients were drawn, so that it resumes at its price.

The event of a training has T gradients, and T are paid for. A training that is killed at step t and
resumes from a checkpoint at step c < t draws the steps after c again, with fresh coins and noise:
the gradients between c and t are *lost*. Training goes on along one *path* of T gradients, and lost
ones are off the path. The journal knows how many there are.

- If nothing of the lost gradients was shown to anybody, what is released depends on the path alone:
  it is the training that was stated, and costs nothing more.
- Otherwise they are a release of their own, and are charged.

Nobody can see from a checkpoint what was shown, so whoever resumes says it. A checkpoint resumes
once: if it is resumed again, what the first continuation drew counts as shown, whatever is said.

A gradient is in the journal, on disk, before it is drawn: steps are reserved some at a time, and
after a kill all that were reserved count as drawn. Every resume starts a new branch; a process of
an older branch that is still alive is refused its next reservation.

Notes
-----
The journal cannot know of copies of itself: keep one for a training, with its checkpoints.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.privacy import errors

AHEAD = 16
"""Steps that are reserved at a time: writing to disk takes as long as a small step."""

_APPLICATION_ID = 0x54614A6F  # "TaJo"
_VERSION = 1
_SCHEMA = (
    "CREATE TABLE training (id TEXT NOT NULL, event TEXT NOT NULL, account TEXT,"
    " steps INTEGER NOT NULL, drawn INTEGER NOT NULL)",
    # Where a branch left its parent; the newest is the one that may draw.
    "CREATE TABLE branches (number INTEGER PRIMARY KEY, parent INTEGER, start INTEGER NOT NULL,"
    " lost INTEGER NOT NULL, charged INTEGER NOT NULL)",
    "CREATE TABLE checkpoints (id TEXT PRIMARY KEY, branch INTEGER NOT NULL, step INTEGER NOT NULL,"
    " resumed INTEGER NOT NULL)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_VERSION}",
)
_WHERE = "journal"


@dataclass(frozen=True)
class Resumption:
    """What a resume from a checkpoint means."""

    id: str
    """That of the training."""
    checkpoint: str
    parent: int
    branch: int
    step: int
    drawn: int
    """The last gradient of the newest branch that was drawn."""
    lost: int
    """Gradients that were drawn since, and are not on the path any more."""
    again: bool
    """Whether the checkpoint was resumed before."""
    earlier: tuple[tuple[int, bool], ...]
    """The lost gradients of earlier resumes, and whether they were charged."""


class Journal:
    """The journal of a training in one SQLite file, written by one process at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(Path(path)))
        if not self.path.parent.is_dir():
            errors.refuse(_WHERE, "path", "in a folder that exists", str(self.path))
        self.branch = -1
        self._reserved = 0

    def begin(self, event: str, account: str | None, steps: int) -> str:
        """Start the journal of a new training; return the training's name."""
        name = uuid.uuid4().hex
        with self._writing() as db:
            if db.execute("SELECT 1 FROM training").fetchone():
                remedy = "Resume the training that it is of, or choose another path."
                errors.refuse(_WHERE, "path", "new for a new training", str(self.path), remedy)
            db.execute("INSERT INTO training VALUES (?, ?, ?, ?, 0)", (name, event, account, steps))
            db.execute("INSERT INTO branches VALUES (0, NULL, 0, 0, 0)")
        self.branch = 0
        return name

    def forget(self) -> None:
        """Undo `begin`, if the training cannot be paid for."""
        with self._writing() as db:
            for table in ("training", "branches"):
                db.execute(f"DELETE FROM {table}")
        self.branch = -1

    @property
    def steps(self) -> int:
        """The number of steps of the training."""
        with self._writing() as db:
            row = db.execute("SELECT steps FROM training").fetchone()
        if row is None:
            errors.refuse(_WHERE, "path", "the journal of a training", str(self.path))
        steps: int = row[0]
        return steps

    def reserve(self, step: int) -> None:
        """Write down that gradients up to this one, or some more, are drawn."""
        if step <= self._reserved:
            return
        with self._writing() as db:
            self._own(db)
            (steps,) = db.execute("SELECT steps FROM training").fetchone()
            reserved = min(step + AHEAD - 1, steps)
            db.execute("UPDATE training SET drawn = ?", (reserved,))
        self._reserved = reserved

    def checkpoint(self, step: int) -> dict[str, Any]:
        """Write down a checkpoint after this step, and return what it must say of itself."""
        name = uuid.uuid4().hex
        with self._writing() as db:
            self._own(db)
            db.execute("UPDATE training SET drawn = ?", (step,))
            db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, 0)", (name, self.branch, step))
            (training,) = db.execute("SELECT id FROM training").fetchone()
        self._reserved = step
        return {"training": training, "checkpoint": name, "step": step}

    def look(self, state: dict[str, Any], event: str, account: str | None) -> Resumption:
        """Find what resuming from this checkpoint means; nothing is written."""
        with self._writing() as db:
            known = db.execute("SELECT id, event, account, drawn FROM training").fetchone()
            found = db.execute(
                "SELECT branch, step, resumed FROM checkpoints WHERE id = ?",
                (str(state.get("checkpoint")),),
            ).fetchone()
            rows = db.execute(
                "SELECT number, parent, start, lost, charged FROM branches"
            ).fetchall()
        if known is None or found is None or known[0] != state.get("training"):
            remedy = "Pass the journal that its training wrote."
            errors.refuse(_WHERE, "state", "a checkpoint of this journal", str(self.path), remedy)
        if known[1] != event:
            remedy = "Build the loop with the settings and the number of records that it had."
            errors.refuse(_WHERE, "settings", "those of the checkpoint's training", event, remedy)
        if known[2] != account:
            remedy = "Pass the ledger and the account that paid for the training."
            errors.refuse(_WHERE, "account", f"{known[2]!r}, as it was", account, remedy)
        branch, step, resumed = found
        starts = {number: (parent, start) for number, parent, start, _, _ in rows}
        newest = max(starts)
        shared = _shared(starts, (branch, step), (newest, known[3]))
        earlier = tuple((lost, bool(charged)) for *_, lost, charged in sorted(rows) if lost)
        return Resumption(
            known[0], str(state["checkpoint"]), branch, newest + 1, step, known[3],
            known[3] - shared, bool(resumed), earlier,
        )  # fmt: skip

    def resume(self, found: Resumption, charged: bool) -> None:
        """Start the branch of a resume, unless the training has gone on since it was looked at."""
        with self._writing() as db:
            (newest,) = db.execute("SELECT max(number) FROM branches").fetchone()
            if newest + 1 != found.branch:
                self._refuse_second()
            if db.execute("SELECT drawn FROM training").fetchone() != (found.drawn,):
                raise errors.TacitError(
                    f"TrainingLoop: journal {str(self.path)!r} must have one process, got another, "
                    "which still draws. Stop it, and resume again."
                )
            row = (found.branch, found.parent, found.step, found.lost, charged)
            db.execute("INSERT INTO branches VALUES (?, ?, ?, ?, ?)", row)
            db.execute("UPDATE training SET drawn = ?", (found.step,))
            db.execute("UPDATE checkpoints SET resumed = 1 WHERE id = ?", (found.checkpoint,))
        self.branch, self._reserved = found.branch, found.step

    def _own(self, db: sqlite3.Connection) -> None:
        """Refuse to go on if another process has resumed this training."""
        (newest,) = db.execute("SELECT max(number) FROM branches").fetchone()
        if newest != self.branch:
            self._refuse_second()

    def _refuse_second(self) -> None:
        raise errors.TacitError(
            f"TrainingLoop: journal {str(self.path)!r} must have one process, got a second one, "
            "which has resumed the training since. Stop this one."
        )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction: all of it is on disk afterwards, or nothing."""
        db = None
        try:
            db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            self._prepare(db)
            yield db
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise errors.TacitError(
                f"TrainingLoop: journal must be a file that can be written, got "
                f"{str(self.path)!r} ({error})."
            ) from None
        finally:
            if db is not None:
                db.close()  # what was not committed is undone

    def _prepare(self, db: sqlite3.Connection) -> None:
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == version == tables == 0:
            for statement in _SCHEMA:
                db.execute(statement)
        elif (application, version) != (_APPLICATION_ID, _VERSION):
            remedy = "Choose another path."
            errors.refuse(
                _WHERE, "path", "a journal of this version, or new", str(self.path), remedy
            )


def _shared(
    starts: dict[int, tuple[int | None, int]], one: tuple[int, int], other: tuple[int, int]
) -> int:
    """Return how many gradients two places have in common, each a branch and a step on it."""

    def chain(branch: int | None, step: int) -> dict[int, int]:
        made = {}
        while branch is not None:
            made[branch] = step
            branch, start = starts[branch]
            step = min(step, start)
        return made

    first, second = chain(*one), chain(*other)
    return max(min(first[branch], second[branch]) for branch in first.keys() & second.keys())
