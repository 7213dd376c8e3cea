"""What a client keeps secret during a session, and erases after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Secrets:
    """Keys of a client, and the shares that it holds of others."""

    sealing: bytearray = field(default_factory=bytearray)
    masking: bytearray = field(default_factory=bytearray)
    own: bytearray = field(default_factory=bytearray)
    agreed: dict[int, bytes] = field(default_factory=dict)
    """Secrets that sealing keys are derived from, by neighbour."""
    shares: dict[int, tuple[bytes, bytes] | None] = field(default_factory=dict)
    """Shares of the pairwise key and the own seed, by owner; None if they were not authentic."""

    def erase(self) -> None:
        """Overwrite keys and forget shares; copies that the interpreter made are beyond reach."""
        for key in (self.sealing, self.masking, self.own):
            key[:] = bytes(len(key))
            key.clear()
        self.agreed.clear()
        self.shares.clear()

    def plain(self) -> dict[str, Any]:
        """Return JSON values, which are as secret."""
        return {
            "keys": [key.hex() for key in (self.sealing, self.masking, self.own)],
            "shares": {k: v and [v[0].hex(), v[1].hex()] for k, v in self.shares.items()},
        }

    def restore(self, plain: dict[str, Any]) -> None:
        """Read what `plain` returned; anything else raises one of the errors of conversions."""
        for key, content in zip((self.sealing, self.masking, self.own), plain["keys"], strict=True):
            key[:] = bytes.fromhex(content)
        self.shares = {
            int(k): None if v is None else (bytes.fromhex(v[0]), bytes.fromhex(v[1]))
            for k, v in plain["shares"].items()
        }
