"""Mods between a client's computation and the wire, in the only sound order.

The order, outermost first, is privacy, compression, attack. Noise must come after everything that
reads the data; a simulated attacker sits where a real one does, inside the client. Secure sums are
no mod: they take several messages (`secure_client`).
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.clientapp.typing import Mod

from tacit.privacy import errors


@dataclass(frozen=True)
class Mods:
    """The optional Flower mods of a client app.

    Parameters
    ----------
    privacy, compression : callable, optional
        `mod(message, context, call_next)`.
    attack : callable, optional
        A mod of the same form, for a simulated attacker.
    """

    privacy: Mod | None = None
    compression: Mod | None = None
    attack: Mod | None = None

    def ordered(self, *, simulated: bool) -> list[Mod]:
        """Return the mods, outermost first.

        Raises
        ------
        InvalidParameter
            For an attack outside a simulation.
        """
        if self.attack is not None and not simulated:
            errors.refuse("Mods", "attack", "left out", "a mod", "Attacks are for simulations.")
        order = (self.privacy, self.compression, self.attack)
        return [mod for mod in order if mod is not None]
