"""Representations that keep the task and lose the person, and attackers that judge them.

An encoder is deterministic: what it releases has no differential privacy, however well it hides
people from the attackers that were tried. `tacit.anonymize.probes` tries them afresh; a local ε is
bought by noise on top, and only then is anything promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy import lazy

if TYPE_CHECKING:
    from tacit.anonymize.encoder import AnonymizingEncoder as AnonymizingEncoder
    from tacit.anonymize.probes import probe as probe

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    {
        "encoder": ["AnonymizingEncoder"],
        "probes": ["probe"],
    },
)
