"""Reports and votes on disk: each is stored before it is sent, so that it is not drawn again.

A report that is lost in transit must be sent again unchanged: a second draw of the same row would
be a second report, and cost ε again. So the bytes are on disk before they are sent. The row never
is. Another folder knows nothing of this one: there, only the server can say that a token was used.

A draw has a name before it is made, under which a ledger is charged. A process that is stopped
between both leaves the name, so that the next one is not charged again; the name is gone before
the draw is sent, so that no second draw can use its charge.
"""

from __future__ import annotations

import hmac
import json
import os
import platform
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.privacy import errors, files

FORMAT = "tacit-kept/1"
KINDS = ("report", "vote")
_FIELDS = ("format", "about", "body", "receipt")


@dataclass(frozen=True)
class StoredDraw:
    """A report or vote that was drawn.

    Parameters
    ----------
    about : str
        Fingerprint of the mechanism, or of the model that the vote is about.
    body : str
        The JSON text that is sent.
    receipt : str, optional
        The server's receipt, once it has stored the answer.
    """

    about: str
    body: str
    receipt: str | None = None


class Kept:
    """A folder with one file per draw, readable by its owner only.

    Parameters
    ----------
    folder : path, optional
        By default ``tacit`` in the user's state directory (``$XDG_STATE_HOME``).
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder is not None else state_folder()

    def path(self, campaign: str, token: str, kind: str) -> Path:
        """Return a draw's path, with a hash of the token: the token is not written anywhere."""
        errors.choice("Kept", "kind", kind, KINDS)
        mark = hmac.digest(campaign.encode(), token.encode(), "sha256").hex()
        return self.folder / f"{campaign}-{mark[:32]}-{kind}.json"

    def find(self, campaign: str, token: str, kind: str) -> StoredDraw | None:
        """Return what was drawn with this token, or None."""
        path = self.path(campaign, token, kind)
        try:
            body = json.loads(path.read_bytes())
            if set(body) != set(_FIELDS) or body["format"] != FORMAT:
                raise ValueError
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, RecursionError):
            # Drawing again would cost ε again: only the person can decide that.
            raise errors.InvalidData(
                f"{path}: the file must be an unchanged file of format {FORMAT}. It held a "
                f"{kind} that may have been sent: delete the file only if nothing was sent."
            ) from None
        return StoredDraw(body["about"], body["body"], body["receipt"])

    def keep(self, campaign: str, token: str, kind: str, draw: StoredDraw) -> StoredDraw:
        """Store a draw unless one is stored already; return the one that is stored."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.keep_first(self.path(campaign, token, kind), _content(draw))
        stored = self.find(campaign, token, kind)
        assert stored is not None
        return stored

    def name(self, campaign: str, token: str, kind: str) -> str:
        """Return the name of the draw that is about to be made: the same until it is sent."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        drawn = secrets.token_hex(16).encode()
        return files.keep_first(self._name_path(campaign, token, kind), drawn).decode()

    def made(self, campaign: str, token: str, kind: str) -> None:
        """Forget the name of a draw that is stored, before it is sent."""
        files.remove(self._name_path(campaign, token, kind))

    def _name_path(self, campaign: str, token: str, kind: str) -> Path:
        return self.path(campaign, token, kind).with_suffix(".name")

    def answered(self, campaign: str, token: str, kind: str, receipt: str) -> None:
        """Store the server's receipt with the draw."""
        draw = self.find(campaign, token, kind)
        if draw is not None and draw.receipt != receipt:
            content = _content(replace(draw, receipt=receipt))
            files.replace(self.path(campaign, token, kind), content, files.OWN)


def _content(draw: StoredDraw) -> bytes:
    values = (FORMAT, draw.about, draw.body, draw.receipt)
    body = json.dumps(dict(zip(_FIELDS, values, strict=True)), allow_nan=False)
    return (body + "\n").encode()


def state_folder() -> Path:
    """Return the folder for a user's draws; not a cache, which any program may empty."""
    if given := os.environ.get("XDG_STATE_HOME"):
        return Path(given) / "tacit"
    if platform.system() == "Windows":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "tacit"
    return Path.home() / ".local" / "state" / "tacit"
