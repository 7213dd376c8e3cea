"""Representations that keep the task and lose the person, and attackers that judge them.

An encoder is deterministic: what it releases has no differential privacy, however well it hides
people from the attackers that were tried. `tacit.anonymize.probes` tries them afresh; a local ε is
bought by noise on top, and only then is anything promised.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.anonymize.encoder import AnonymizingEncoder as AnonymizingEncoder
    from tacit.anonymize.probes import probe as probe

_HOMES = {"AnonymizingEncoder": "encoder", "probe": "probes"}

__all__ = ["AnonymizingEncoder", "probe"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"tacit.anonymize.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tacit.anonymize' has no attribute {name!r}")
