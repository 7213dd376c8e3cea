"""What a fitted encoder is worth: the task off its representations, and every attacker on them.

What is judged is what is released: with ε each representation is drawn once, with its noise, and
all attackers see that draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.anonymize import bounds
from tacit.anonymize.bounds import Bound
from tacit.anonymize.linkage import Linked, linkage
from tacit.anonymize.probes import Attack, Probed, probe
from tacit.anonymize.released import people_among
from tacit.local import ceilings
from tacit.local.inference.validation import exact_interval
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.anonymize.encoder import AnonymizingEncoder

Integers = npt.NDArray[np.int64]

ONE_REPRESENTATION = f"{bounds.FOR_EVERY_ATTACKER} on one representation"


@dataclass(frozen=True)
class Judged:
    """What was found about one private label.

    Attributes
    ----------
    name : str
        Of the label.
    adversary : Attack, optional
        The branch that the encoder was trained against, the weakest judge there is; None where the
        label, or a value of it, is not one that the encoder was fitted on.
    probes : Probed
        Attackers that were trained afresh.
    linkage : Linked
        Whose row it is, by reference rows of everybody.
    bound : Bound, optional
        The most that attackers can get right, and which of them: `bounds` says when it is proved.
    """

    name: str
    adversary: Attack | None
    probes: Probed
    linkage: Linked
    bound: Bound | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        found = self.probes.to_dict()
        return {
            "name": self.name,
            "adversary": None if self.adversary is None else self.adversary.to_dict(),
            "probes": found["results"],
            "strongest_probe": found["strongest"],
            "chance": self.probes.chance,
            "people": self.probes.people,
            "linkage": self.linkage.to_dict(),
            "bound": None if self.bound is None else self.bound.to_dict(),
        }


def judge(
    encoder: AnonymizingEncoder,
    name: str,
    known: tuple[Any, Any],
    tried: tuple[Any, Any],
    *,
    attackers: Sequence[str] | None = None,
    together: int = 1,
    seed: int = 0,
    confidence: float = 0.95,
) -> Judged:
    """Try everything on what an encoder released of some rows.

    Parameters
    ----------
    encoder : AnonymizingEncoder
        Fitted.
    name : str
        A private label, by the name that it was fitted with, or any other label.
    known : (array, array)
        Representations and their labels: what attackers learn from.
    tried : (array, array)
        Those on which all are tried. The encoder must not have been fitted on these rows.
    attackers, seed, confidence
        As for `probe`.
    together : int
        As for `linkage`.
    """
    shown, labels = tried
    found = probe(*known, *tried, attackers=attackers, seed=seed, confidence=confidence)
    linked = linkage(*known, *tried, together=together, seed=seed, confidence=confidence)
    codes = _known(encoder, name, labels)
    chances = None if codes is None else encoder.adversary(shown)[name]
    adversary = loss = None
    if codes is not None and chances is not None:
        adversary = share("adversary", chances.argmax(axis=1) == codes, confidence)
        loss = _loss(chances, codes)
    bound = _bound(encoder, shown, labels, loss, found.people, confidence)
    return Judged(name, adversary, found, linked, bound)


def task(
    encoder: AnonymizingEncoder, name: str, shown: Any, labels: Any, confidence: float = 0.95
) -> Attack:
    """How often the regular label is read right off representations; unknown ones are refused."""
    classes = np.array(encoder.classes_.regular)
    truth = encoder.classes_.regular_codes(f"label {name!r}", labels)
    return share(name, encoder.predict_from(shown) == classes[truth], confidence)


def share(name: str, right: npt.NDArray[np.bool_], confidence: float = 0.95) -> Attack:
    """The share of right answers, with the interval of Clopper and Pearson."""
    count, rows = int(right.sum()), len(right)
    return Attack(name, count / rows, exact_interval(count, rows, 1.0, 0.0, confidence))


def _known(encoder: AnonymizingEncoder, name: str, labels: Any) -> Integers | None:
    """Codes of labels that the encoder was fitted on; None where any is another."""
    if name not in encoder.classes_.private:
        return None
    classes = np.array(encoder.classes_.private[name])
    order = np.argsort(classes)
    try:
        return np.asarray(order[people_among("judge", classes[order], labels, len(labels))])
    except errors.InvalidData:
        return None


def _loss(chances: npt.NDArray[np.float32], codes: Integers) -> float:
    own = chances[np.arange(len(codes)), codes].astype(np.float64)
    return float(-np.log(np.maximum(own, np.finfo(np.float32).tiny)).mean())


def _bound(
    encoder: AnonymizingEncoder,
    shown: Any,
    labels: Any,
    loss: float | None,
    people: int,
    confidence: float,
) -> Bound | None:
    """The best that is known: proved with ε, counted for codes, else as good as the adversary.

    With ε it is that of every ε-local channel from people, in the shares that they have here, to
    representations: one row of a person, whichever it is, goes through the channel.
    """
    if encoder.local_ is not None:
        shares = np.unique(labels, return_counts=True)[1] / len(labels)
        most = ceilings.of_shares(shares, float(encoder.local_.epsilon))
        return Bound(1 - most, ONE_REPRESENTATION)
    if encoder.training == "robust":
        return bounds.code_ceiling(shown, labels, confidence=confidence)
    return None if loss is None else bounds.error_bound_from_adversary(loss, people)
