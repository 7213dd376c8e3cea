"""What a client keeps between rounds, in the app's context and on disk.

A state counts once the server has taken the answer that came with it, and only the server knows.
So a client keeps two: the one that counts, and the one after its last answer. The next message
says which exchange counted last, and the client goes on from the state after that one. Killed at
any moment and started again it finds one of the two on its disk.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from flwr.app import ConfigRecord, Context

from tacit.federated import flower
from tacit.federated.algorithms.client_updates import State
from tacit.federated.model import Data
from tacit.privacy import errors, files

_KEY = ".key"


@dataclass(frozen=True, eq=False)
class Kept:
    """States after two exchanges of a run; exchange 0 is the start, without a state."""

    run: int
    counted: int = 0
    state: State = field(default_factory=dict)
    pending: int = 0
    after: State = field(default_factory=dict)

    def at(self, run: int, counted: int) -> Kept:
        """What to go on from, where this exchange of this run counted last.

        Raises
        ------
        InvalidData
            If the state after it is not here. To go on from another would bias all later rounds.
        """
        if counted == 0:
            return Kept(run)
        if self.run == run and self.counted == counted:
            return self
        if self.run == run and self.pending == counted:
            return Kept(run, counted, self.after)
        raise errors.InvalidData(
            "client: its state must be the one after the exchange that counted last. "
            "Start it with the folder and the rows that it had."
        )

    def then(self, exchange: int, state: State) -> Kept:
        """With the state after an answer that may or may not count."""
        return replace(self, pending=exchange, after=state)


def digest(data: Data) -> str:
    """Which rows these are: SHA-256 over types, shapes and numbers.

    As private as the rows: whoever can guess them can check the guess. It leaves only keyed.
    """
    found = hashlib.sha256()
    for array in (data.rows, data.labels):
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


class Keeper:
    """Keeps states in the context and, with a folder, on disk; the disk is believed first.

    Parameters
    ----------
    folder : Path, optional
        One file for every client and data set, under a name that only the key in the same folder
        links to them. Without it a restart loses the states.

    Notes
    -----
    A state is made from the client's rows. The folder must stay as private as they are; its files
    can be read by their owner alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def load(self, context: Context, name: str, data: Data) -> Kept:
        """What was kept last; nothing at all before the first answer."""
        path = self._path(name, data)
        if path is not None and path.is_file():
            return _read(path)
        return _from_context(context)

    def save(self, context: Context, name: str, data: Data, kept: Kept) -> None:
        """Keep, all or nothing, before the answer leaves."""
        _to_context(context, kept)
        if (path := self._path(name, data)) is not None:
            _write(path, kept)

    def _path(self, name: str, data: Data) -> Path | None:
        if self._folder is None:
            return None
        told = f"{name}\0{digest(data)}".encode()
        found = hmac.new(_key(self._folder), told, hashlib.sha256)
        return self._folder / f"client-{found.hexdigest()[:32]}.npz"


def _key(folder: Path) -> bytes:
    """Of the names of files: made once in a folder, whoever comes first."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return files.keep_first(folder / _KEY, secrets.token_bytes(32))


def _to_context(context: Context, kept: Kept) -> None:
    context.state["kept"] = ConfigRecord(
        # As text: Flower's runs have 64 bits, its integers 63 and a sign.
        {"run": str(kept.run), "counted": kept.counted, "pending": kept.pending}
    )
    context.state["state"] = flower.array_record(kept.state)
    context.state["after"] = flower.array_record(kept.after)


def _from_context(context: Context) -> Kept:
    head = context.state.config_records.get("kept")
    if head is None:
        return Kept(0)
    states = [flower.read_arrays(context.state.array_records[n]) for n in ("state", "after")]
    run, counted, pending = (int(head[name]) for name in ("run", "counted", "pending"))  # type: ignore[arg-type]
    return Kept(run, counted, states[0], pending, states[1])  # type: ignore[arg-type]


def _write(path: Path, kept: Kept) -> None:
    head = {"run": kept.run, "counted": kept.counted, "pending": kept.pending}
    content = BytesIO()
    np.savez(
        content,
        allow_pickle=False,
        head=np.frombuffer(json.dumps(head).encode(), np.uint8),
        **{f"state.{name}": array for name, array in kept.state.items()},
        **{f"after.{name}": array for name, array in kept.after.items()},
    )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.replace(path, content.getvalue(), files.OWN)


def _read(path: Path) -> Kept:
    try:
        # From bytes: numpy leaves a file open that it cannot read.
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        head = json.loads(arrays.pop("head").tobytes())
        parts = {
            part: {n.removeprefix(part): a for n, a in arrays.items() if n.startswith(part)}
            for part in ("state.", "after.")
        }
        return Kept(head["run"], head["counted"], parts["state."], head["pending"], parts["after."])
    except (ValueError, KeyError, TypeError, EOFError, BadZipFile):
        raise errors.InvalidData(f"{path}: it must be a state that a client kept.") from None
