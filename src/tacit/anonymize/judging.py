"""Evaluation of a fitted encoder: accuracy of the task, and of every attacker.

What is evaluated is what is released: with ε each representation is drawn once, with its noise,
and all attackers see that draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.anonymize import bounds
from tacit.anonymize.bounds import ErrorBound
from tacit.anonymize.linkage import Linked, linkage
from tacit.anonymize.probes import AttackResult, Probed, probe
from tacit.anonymize.released import people_among
from tacit.local import ceilings
from tacit.local.inference.validation import exact_interval
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.anonymize.encoder import AnonymizingEncoder

Integers = npt.NDArray[np.int64]

ONE_REPRESENTATION = f"{bounds.FOR_EVERY_ATTACKER} on one representation"


@dataclass(frozen=True)
class Judgement:
    """The evaluation of one private label.

    Attributes
    ----------
    name : str
        Name of the label.
    adversary : AttackResult, optional
        The branch that the encoder was trained against, which is the weakest attacker; None if the
        encoder was not fitted on this label, or not on all of its values.
    probes : Probed
        Freshly trained attackers.
    linkage : Linked
        Linkage of rows to people by reference rows of everybody.
    bound : ErrorBound, optional
        Upper bound on accuracy, and for which attackers it holds; see `bounds`.
    """

    name: str
    adversary: AttackResult | None
    probes: Probed
    linkage: Linked
    bound: ErrorBound | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        probed = self.probes.to_dict()
        return {
            "name": self.name,
            "adversary": None if self.adversary is None else self.adversary.to_dict(),
            "probes": probed["results"],
            "strongest_probe": probed["strongest"],
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
) -> Judgement:
    """Run all attackers on what an encoder released.

    Parameters
    ----------
    encoder : AnonymizingEncoder
        A fitted encoder.
    name : str
        Name of a private label that it was fitted with, or of any other label.
    known : (array, array)
        Representations and labels on which attackers are trained.
    tried : (array, array)
        Representations and labels on which they are tested. The encoder must not have been fitted
        on these rows.
    attackers, seed, confidence
        As for `probe`.
    together : int
        As for `linkage`.
    """
    shown, labels = tried
    probed = probe(*known, *tried, attackers=attackers, seed=seed, confidence=confidence)
    linked = linkage(*known, *tried, together=together, seed=seed, confidence=confidence)
    codes = _known(encoder, name, labels)
    chances = None if codes is None else encoder.adversary(shown)[name]
    adversary = loss = None
    if codes is not None and chances is not None:
        adversary = share("adversary", chances.argmax(axis=1) == codes, confidence)
        loss = _loss(chances, codes)
    bound = _bound(encoder, shown, labels, loss, probed.people, confidence)
    return Judgement(name, adversary, probed, linked, bound)


def task(
    encoder: AnonymizingEncoder, name: str, shown: Any, labels: Any, confidence: float = 0.95
) -> AttackResult:
    """Compute the accuracy of the regular label; unknown labels are refused."""
    classes = np.array(encoder.classes_.regular)
    truth = encoder.classes_.regular_codes(f"label {name!r}", labels)
    return share(name, encoder.predict_from(shown) == classes[truth], confidence)


def share(name: str, right: npt.NDArray[np.bool_], confidence: float = 0.95) -> AttackResult:
    """Compute the accuracy, with the interval of Clopper and Pearson."""
    count, rows = int(right.sum()), len(right)
    return AttackResult(name, count / rows, exact_interval(count, rows, 1.0, 0.0, confidence))


def _known(encoder: AnonymizingEncoder, name: str, labels: Any) -> Integers | None:
    """Return the codes of labels that the encoder was fitted on; None if any is unknown."""
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
) -> ErrorBound | None:
    """Return the best known bound: proved with ε, counted for codes, else from the adversary.

    With ε it holds for every ε-local channel from people, with their shares here, to
    representations: one row of a person, whichever it is, goes through the channel.
    """
    if encoder.local_ is not None:
        shares = np.unique(labels, return_counts=True)[1] / len(labels)
        most = ceilings.of_shares(shares, float(encoder.local_.epsilon))
        return ErrorBound(1 - most, ONE_REPRESENTATION)
    if encoder.training == "robust":
        return bounds.code_ceiling(shown, labels, confidence=confidence)
    return None if loss is None else bounds.error_bound_from_adversary(loss, people)
