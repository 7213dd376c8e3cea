"""What was drawn, kept before it is sent, so that it is not drawn again.

A report that is lost on the way must be sent again as it is: a second draw of the same row would be
a second report, and cost ε again. So the bytes are on disk before they go out. The row never is.
Another folder knows nothing of it: there only the server can say that a token was used.
"""

from __future__ import annotations

import hmac
import json
import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.privacy import errors, files

FORMAT = "tacit-kept/1"
KINDS = ("report", "vote")
_FIELDS = ("format", "about", "body", "receipt")


@dataclass(frozen=True)
class Draw:
    """Something that was drawn.

    Parameters
    ----------
    about : str
        Fingerprint of the mechanism, or of the model that was voted on.
    body : str
        The very JSON text that is sent.
    receipt : str, optional
        The server's, once it has it.
    """

    about: str
    body: str
    receipt: str | None = None


class Kept:
    """A folder with one file for each draw, for the eyes of its owner alone.

    Parameters
    ----------
    folder : path, optional
        ``tacit`` in the user's folder for state (``$XDG_STATE_HOME``) if left out.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder is not None else state_folder()

    def path(self, campaign: str, token: str, kind: str) -> Path:
        """Of a draw: by a hash of the token, which is not written anywhere."""
        errors.choice("Kept", "kind", kind, KINDS)
        mark = hmac.digest(campaign.encode(), token.encode(), "sha256").hex()
        return self.folder / f"{campaign}-{mark[:32]}-{kind}.json"

    def find(self, campaign: str, token: str, kind: str) -> Draw | None:
        """What was drawn with this token, if anything was."""
        path = self.path(campaign, token, kind)
        try:
            body = json.loads(path.read_bytes())
            if set(body) != set(_FIELDS) or body["format"] != FORMAT:
                raise ValueError
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, RecursionError):
            # Drawing again would cost ε again: only its owner can decide that.
            raise errors.InvalidData(
                f"{path}: it must be an unchanged file of {FORMAT}. It held a draw that may have "
                "been sent: remove it only if nothing was."
            ) from None
        return Draw(body["about"], body["body"], body["receipt"])

    def keep(self, campaign: str, token: str, kind: str, draw: Draw) -> Draw:
        """Keep a draw, unless there is one already: the first one counts, and is returned."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.keep_first(self.path(campaign, token, kind), _content(draw))
        found = self.find(campaign, token, kind)
        assert found is not None
        return found

    def answered(self, campaign: str, token: str, kind: str, receipt: str) -> None:
        """Put the server's receipt beside the draw."""
        draw = self.find(campaign, token, kind)
        if draw is not None and draw.receipt != receipt:
            content = _content(replace(draw, receipt=receipt))
            files.replace(self.path(campaign, token, kind), content, files.OWN)


def _content(draw: Draw) -> bytes:
    values = (FORMAT, draw.about, draw.body, draw.receipt)
    body = json.dumps(dict(zip(_FIELDS, values, strict=True)), allow_nan=False)
    return (body + "\n").encode()


def state_folder() -> Path:
    """Where a user's draws are kept: a cache that anything may empty would not do."""
    if given := os.environ.get("XDG_STATE_HOME"):
        return Path(given) / "tacit"
    if platform.system() == "Windows":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "tacit"
    return Path.home() / ".local" / "state" / "tacit"
