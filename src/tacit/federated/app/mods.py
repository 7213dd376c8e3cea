"""What stands between a client's work and the wire, in the one order that is sound.

Outermost first: secure aggregation, privacy, compression, attack. What is hidden in a sum must be
what was bounded and noised; noise must come after everything that reads the data; a simulated
attacker sits where a real one does, inside the client.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.clientapp.typing import Mod

from tacit.privacy import errors


@dataclass(frozen=True)
class Mods:
    """Flower mods of a client app, each optional.

    Parameters
    ----------
    secure_aggregation, privacy, compression : callable, optional
        `mod(message, context, call_next)`.
    attack : callable, optional
        The same, for an attacker that is simulated.
    """

    secure_aggregation: Mod | None = None
    privacy: Mod | None = None
    compression: Mod | None = None
    attack: Mod | None = None

    def ordered(self, *, simulated: bool) -> list[Mod]:
        """Outermost first.

        Raises
        ------
        InvalidParameter
            For an attack outside a simulation.
        """
        if self.attack is not None and not simulated:
            errors.refuse("Mods", "attack", "left out", "a mod", "Attacks are for simulations.")
        given = (self.secure_aggregation, self.privacy, self.compression, self.attack)
        return [mod for mod in given if mod is not None]
