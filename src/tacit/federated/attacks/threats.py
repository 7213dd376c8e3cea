r"""Attacks by clients on a federated run, for simulations only.

A client may change the rows on which it trains (label flip, backdoor) or the reply that it sends
(model replacement, Byzantine noise, sign flip); one attacker may appear under many names (Sybil
clones). An `Attack` is a value that describes one of these. `Attackers` are the clients that run
it. They are refused wherever clients are real: they serve to test defences.

References
----------
.. [BVH20] Bagdasaryan et al. How to backdoor federated learning. AISTATS 2020: backdoor and model
   replacement.
.. [BMG17] Blanchard et al. Machine learning with adversaries: Byzantine tolerant gradient descent.
   NeurIPS 2017: noise and reversed gradients.
.. [FYB20] Fung, Yoon, Beschastnikh. The limitations of federated learning in Sybil settings.
   RAID 2020: label flips by clones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.federated.model import Data, Model
from tacit.federated.payload import Vector
from tacit.federated.rounds import Reply
from tacit.privacy import errors

SIMULATIONS = ("local", "ray")
"""Engines whose clients are simulated."""

Poison = Callable[[Data, np.random.Generator], Data]
Forge = Callable[[Reply, np.random.Generator], Reply]


@dataclass(frozen=True)
class Attack:
    """The behaviour of an attacker in place of an honest client.

    Parameters
    ----------
    name : str
        Name in records.
    poison : callable, optional
        `(data, rng)` returns the data on which the attacker trains.
    forge : callable, optional
        `(reply, rng)` returns the reply that the attacker sends.
    clones : bool
        Whether all attackers are one: each sends what the first of them sends.
    """

    name: str
    poison: Poison | None = None
    forge: Forge | None = None
    clones: bool = False


@dataclass(frozen=True)
class Trigger:
    """A pattern that activates a backdoor.

    Parameters
    ----------
    pixels : tuple of int
        Positions in a flattened row.
    value : float
        Value at these positions.

    Examples
    --------
    >>> Trigger((0, 3), 1.0).stamp(np.zeros((1, 2, 2)))
    array([[[1., 0.],
            [0., 1.]]])
    """

    pixels: tuple[int, ...]
    value: float = 1.0

    def stamp(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy of the rows with the pattern on each."""
        flat = rows.reshape(len(rows), -1).copy()
        if not self.pixels or not all(0 <= place < flat.shape[1] for place in self.pixels):
            condition = f"positions from 0 to {flat.shape[1] - 1}, at least one"
            errors.refuse("Trigger", "pixels", condition, self.pixels)
        flat[:, list(self.pixels)] = self.value
        return flat.reshape(rows.shape)


def label_flip(classes: int) -> Attack:
    """Replace every label y by K − 1 − y."""
    errors.whole("label_flip", "classes", classes, least=2)

    def poison(data: Data, rng: np.random.Generator) -> Data:
        return Data(data.rows, classes - 1 - data.labels)

    return Attack("label-flip", poison)


def backdoor(trigger: Trigger, target: int, share: float = 0.5) -> Attack:
    """Put the trigger and the target label on a fraction of the attacker's rows [BVH20]_."""
    errors.whole("backdoor", "target", target, least=0)
    errors.within("backdoor", "share", share, "(0, 1]")

    def poison(data: Data, rng: np.random.Generator) -> Data:
        chosen = rng.permutation(len(data))[: max(1, round(share * len(data)))]
        rows, labels = data.rows.copy(), data.labels.copy()
        rows[chosen], labels[chosen] = trigger.stamp(rows[chosen]), target
        return Data(rows, labels)

    return Attack("backdoor", poison)


def replacement(attack: Attack, boost: float) -> Attack:
    r"""Replace the model: send a poisoned update :math:`\gamma` times as long [BVH20]_.

    With :math:`\gamma = n / f`, n clients of equal weight and f attackers, the mean of all updates
    is near the attackers' own once honest updates are small: the global model becomes theirs.
    """
    errors.positive("replacement", "boost", boost)
    return replace(attack, name="model-replacement", forge=_scaled(boost))


def sign_flip(scale: float = 1.0) -> Attack:
    """Send the reply in the opposite direction, `scale` times as long [BMG17]_."""
    errors.positive("sign_flip", "scale", scale)
    return Attack("sign-flip", forge=_scaled(-scale))


def noise(sigma: float) -> Attack:
    """Send Gaussian noise in place of a reply [BMG17]_."""
    errors.positive("noise", "sigma", sigma)

    def forge(reply: Reply, rng: np.random.Generator) -> Reply:
        return _changed(reply, lambda array: sigma * rng.standard_normal(array.shape))

    return Attack("noise", forge=forge)


def sybil(attack: Attack) -> Attack:
    """Let one attacker act as all of them: the same rows and the same reply from each [FYB20]_."""
    return replace(attack, name="sybil", clones=True)


class Attackers:
    """The attacking clients of a simulation.

    Parameters
    ----------
    attack : Attack
        Their behaviour.
    who : collection of int
        Numbers of the attacking clients.
    engine : str
        Engine that runs the clients. Only simulations can be attacked.
    seed : int
        Seed of the attackers' draws.

    Notes
    -----
    `run(…, attackers.poisoned(clients), intercept=attackers.intercept)` is a run under attack, of
    `tacit.federated.rounds` or of the Flower engines in `tacit.federated.app`. Clients are asked in
    increasing order, so the first of the clones replies first; on Ray clones are refused.

    Examples
    --------
    >>> attackers = Attackers(sign_flip(), [0], engine="local")
    >>> reply = Reply({"update/w": np.ones(2, np.float32)}, 1.0)
    >>> attackers.intercept(1, 0, reply).record["update/w"]
    array([-1., -1.], dtype=float32)
    >>> attackers.intercept(1, 1, reply) is reply
    True
    """

    def __init__(self, attack: Attack, who: Collection[int], *, engine: str, seed: int = 0) -> None:
        if engine not in SIMULATIONS:
            remedy = "Attacks are for simulations: clients of a deployment are real."
            errors.refuse("Attackers", "engine", "one of " + ", ".join(SIMULATIONS), engine, remedy)
        errors.whole("Attackers", "seed", seed, least=0)
        if not who:
            errors.refuse("Attackers", "who", "at least one client", list(who))
        self.attack, self.who, self.seed = attack, frozenset(who), seed
        self._first: tuple[int, int, Reply] | None = None

    def poisoned(self, clients: Sequence[Data]) -> list[Data]:
        """Return the clients' data, with that of attackers poisoned."""
        if max(self.who) >= len(clients) or min(self.who) < 0:
            condition = f"clients from 0 to {len(clients) - 1}"
            errors.refuse("Attackers", "who", condition, sorted(self.who))
        return [self._rows(clients, client) for client in range(len(clients))]

    def intercept(self, number: int, client: int, reply: Reply) -> Reply:
        """Return what arrives in place of a reply; for `rounds.run`."""
        if client not in self.who:
            return reply
        if not self.attack.clones:
            return self._forged(number, client, reply)
        first = self._first
        if first is None or first[0] != number or client <= first[1]:  # a new round or phase
            first = self._first = (number, client, self._forged(number, client, reply))
        return first[2]

    def _rows(self, clients: Sequence[Data], client: int) -> Data:
        if client not in self.who:
            return clients[client]
        own = min(self.who) if self.attack.clones else client
        poison = self.attack.poison
        return clients[own] if poison is None else poison(clients[own], self._rng(0, own))

    def _forged(self, number: int, client: int, reply: Reply) -> Reply:
        forge = self.attack.forge
        return reply if forge is None else forge(reply, self._rng(number, client))

    def _rng(self, number: int, client: int) -> np.random.Generator:
        sequence = np.random.SeedSequence(self.seed, spawn_key=(number, client))
        return np.random.default_rng(sequence)


def success(model: Model, weights: Vector, test: Data, trigger: Trigger, target: int) -> float:
    """Compute how often a row of another class is classified as the target with the trigger."""
    others = test.labels != target
    rows = trigger.stamp(test.rows[others])
    return model.evaluate(weights, rows, np.full(len(rows), target)).accuracy


def _scaled(factor: float) -> Forge:
    return lambda reply, rng: _changed(reply, lambda array: factor * array)


def _changed(reply: Reply, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Reply:
    """Change the numbers of a reply; masks stay, since only bits would be accepted."""
    record = {
        name: change(array).astype(array.dtype) if array.dtype.kind == "f" else array
        for name, array in reply.record.items()
    }
    return reply._replace(record=record)
