"""States that clients keep between rounds, in the app's context and on disk.

A state counts once the server has accepted the reply that came with it, which only the server
knows. So a client keeps two: the one that counts, and the one after its last reply. The next
message states which exchange counted last, and the client continues from the state after that
exchange. Whenever a client is killed, the state that it needs is on its disk.
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
class KeptStates:
    """The states after two exchanges of a run; exchange 0 is the start, without a state."""

    run: int
    counted: int = 0
    state: State = field(default_factory=dict)
    pending: int = 0
    after: State = field(default_factory=dict)

    def at(self, run: int, counted: int) -> KeptStates:
        """Select the state to continue from, if this exchange of this run counted last.

        Raises
        ------
        InvalidData
            If the state after it is not here. Any other would bias all later rounds.
        """
        if counted == 0:
            return KeptStates(run)
        if self.run == run and self.counted == counted:
            return self
        if self.run == run and self.pending == counted:
            return KeptStates(run, counted, self.after)
        raise errors.InvalidData(
            "client: its state must be the one after the exchange that counted last. "
            "Start it with the folder and the rows that it had before."
        )

    def then(self, exchange: int, state: State) -> KeptStates:
        """Add the state after a reply that may or may not count."""
        return replace(self, pending=exchange, after=state)


def digest(data: Data) -> str:
    """Compute SHA-256 over types, shapes and numbers of the rows.

    It is as private as the rows: whoever can guess them can check the guess. It is only used with
    a key.
    """
    hashed = hashlib.sha256()
    for array in (data.rows, data.labels):
        hashed.update(f"{array.dtype.str}{array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


class Keeper:
    """A store of states in the context and, with a folder, on disk; the disk takes precedence.

    Parameters
    ----------
    folder : Path, optional
        Folder with one file per client and data set, under a name that only the key in the same
        folder links to them. Without it a restart loses the states.

    Notes
    -----
    A state is computed from the client's rows. The folder must stay as private as they are; only
    its owner can read its files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def load(self, context: Context, name: str, data: Data) -> KeptStates:
        """Return what was kept last; empty before the first reply."""
        path = self._path(name, data)
        if path is not None and path.is_file():
            return _read(path)
        return _from_context(context)

    def save(self, context: Context, name: str, data: Data, kept: KeptStates) -> None:
        """Keep the states atomically, before the reply leaves."""
        _to_context(context, kept)
        if (path := self._path(name, data)) is not None:
            _write(path, kept)

    def _path(self, name: str, data: Data) -> Path | None:
        if self._folder is None:
            return None
        text = f"{name}\0{digest(data)}".encode()
        keyed = hmac.new(_key(self._folder), text, hashlib.sha256)
        return self._folder / f"client-{keyed.hexdigest()[:32]}.npz"


def _key(folder: Path) -> bytes:
    """Return the key of the file names, created once per folder by whichever process is first."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return files.keep_first(folder / _KEY, secrets.token_bytes(32))


def _to_context(context: Context, kept: KeptStates) -> None:
    context.state["kept"] = ConfigRecord(
        # As text: ids of runs have 64 bits, Flower's integers 63 and a sign.
        {"run": str(kept.run), "counted": kept.counted, "pending": kept.pending}
    )
    context.state["state"] = flower.array_record(kept.state)
    context.state["after"] = flower.array_record(kept.after)


def _from_context(context: Context) -> KeptStates:
    head = context.state.config_records.get("kept")
    if head is None:
        return KeptStates(0)
    states = [flower.read_arrays(context.state.array_records[n]) for n in ("state", "after")]
    run, counted, pending = (int(head[name]) for name in ("run", "counted", "pending"))  # type: ignore[arg-type]
    return KeptStates(run, counted, states[0], pending, states[1])  # type: ignore[arg-type]


def _write(path: Path, kept: KeptStates) -> None:
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


def _read(path: Path) -> KeptStates:
    try:
        # From bytes: numpy leaves a file open that it cannot read.
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        head = json.loads(arrays.pop("head").tobytes())
        parts = {
            part: {n.removeprefix(part): a for n, a in arrays.items() if n.startswith(part)}
            for part in ("state.", "after.")
        }
        return KeptStates(
            head["run"], head["counted"], parts["state."], head["pending"], parts["after."]
        )
    except (ValueError, KeyError, TypeError, EOFError, BadZipFile):
        raise errors.InvalidData(f"{path}: it must be a state that a client kept.") from None
