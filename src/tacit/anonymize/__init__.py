"""Representations that keep the task and hide the person, and attackers that evaluate them.

An encoder is deterministic: what it releases has no differential privacy, however well it hides
people from the attackers that were tried. `tacit.anonymize.probes` trains fresh attackers. Only
noise on top of the encoder gives a guarantee, a local ε.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy import lazy

if TYPE_CHECKING:
    from tacit.anonymize.encoder import AnonymizingEncoder as AnonymizingEncoder
    from tacit.anonymize.probes import probe as probe

lazy.attach(__name__)
