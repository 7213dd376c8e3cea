r"""Shadow models: how models answer on records that they were fitted to, and on others.

Shadows are fitted like the model under attack, to other random choices of members. The attacker
knows the members of each shadow, and learns from them how members differ:

- `classifier_scores` learns one classifier on the shadows' answers about members and non-members
  (Shokri et al. [SSSS17]_), with the class among its inputs.
- `likelihood_scores` treats each record separately (LiRA, Carlini et al. [CCN22]_): its logit has
  one normal law under shadows that saw it and another under those that did not, and the score is
  the log-ratio of these at the answer of the model under attack,

.. math:: \phi = \ln\frac{p_y}{1 - p_y}, \qquad
          s = \ln\frac{\mathcal N(\phi \mid \mu_{in}, \sigma_{in}^2)}
                      {\mathcal N(\phi \mid \mu_{out}, \sigma_{out}^2)}.

  Offline, only shadows that did not see the record are used, and the score is how far the model's
  answer is above theirs: :math:`s = (\phi - \mu_{out}) / \sigma_{out}`.

Notes
-----
With few shadows a separate variance for each record is mostly noise: below 64 shadows, one standard
deviation is estimated from all records together, as the authors advise. Shadows come in pairs, each
fitted to exactly those records that the other lacks, so every record is in half of them.

The scores belong to the attacker. `tacit.audit.membership` evaluates them. They release nothing by
themselves, but were computed with the records at hand, and stay in-house.

References
----------
.. [SSSS17] Shokri, Stronati, Song, Shmatikov. Membership inference attacks against machine learning
   models. S&P 2017.
.. [CCN22] Carlini, Chien, Nasr, Song, Terzis, Tramèr. Membership inference attacks from first
   principles. S&P 2022 (Section VI).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.audit.membership import right_class
from tacit.privacy import errors

Reals = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Fit = Callable[[Any, Any], Any]
"""Maps rows and labels to a model, with fresh noise at every call."""
Losses = Callable[[Any, Any, Any], Any]
"""Maps a model, rows and labels to one loss per row."""
Confidences = Callable[[Any, Any], Any]
"""Maps a model and rows to probabilities, one column per class in the order of `np.unique`."""

_MANY = 64
_LEAST, _FARTHEST = 1e-12, 1e12
_SPREAD = 1e-6  # prevents division by zero for a model whose answers never change


@dataclass(frozen=True)
class Answers:
    """The answers of one model about every candidate."""

    losses: Reals
    confidences: Reals | None

    @classmethod
    def of(
        cls,
        model: Any,
        rows: Any,
        labels: Any,
        losses: Losses,
        confidences: Confidences | None = None,
    ) -> Answers:
        """Query a model, and check the shapes of its answers."""
        count = len(labels)
        answered = np.asarray(losses(model, rows, labels), dtype=np.float64)
        if answered.shape != (count,):
            errors.refuse("play", "losses", f"of shape ({count},)", answered.shape)
        if bool(np.isnan(answered).any()):
            raise errors.InvalidData("play: losses must be numbers, without NaN.")
        answered = np.clip(answered, -_FARTHEST, _FARTHEST)
        if confidences is None:
            return cls(answered, None)
        table = np.asarray(confidences(model, rows), dtype=np.float64)
        wanted = (count, len(np.unique(labels)))
        if table.shape != wanted:
            remedy = "Give one column for each class among the labels, in sorted order."
            errors.refuse("play", "confidences", f"of shape {wanted}", table.shape, remedy)
        return cls(answered, np.nan_to_num(table))

    def evidence(self, labels: Any) -> Reals:
        """Return logits of the right class; without confidences, negated losses."""
        if self.confidences is None:
            return -self.losses
        right = right_class(self.confidences, labels, np.unique(labels))
        rest = self.confidences.sum(axis=1) - right
        return np.asarray(np.log(np.maximum(right, _LEAST)) - np.log(np.maximum(rest, _LEAST)))


def likelihood_scores(
    evidence: Any,
    shadow_evidence: Any,
    inside: Any,
    *,
    online: bool = True,
    each: bool | None = None,
) -> Reals:
    """Compute LiRA scores: how much likelier the answer is for a member than for a non-member.

    Parameters
    ----------
    evidence : array of shape (n,)
        Evidence of the model under attack, roughly normal: logits of the right class.
    shadow_evidence, inside : arrays of shape (k, n)
        Evidence of the shadows, and whether they saw the record. Each record needs at least one
        shadow that did not see it, and online one that did.
    online : bool
        Whether shadows that saw the record are used.
    each : bool, optional
        Whether to estimate a variance for each record; by default, with 64 or more shadows.
    """
    logits, known = np.asarray(evidence, dtype=np.float64), np.asarray(inside, dtype=np.bool_)
    shadow_logits = np.asarray(shadow_evidence, dtype=np.float64)
    if shadow_logits.shape != known.shape or shadow_logits.shape[1:] != logits.shape:
        errors.refuse(
            "likelihood_scores", "shadow_evidence", f"of shape {known.shape}", shadow_logits.shape
        )
    each = len(shadow_logits) >= _MANY if each is None else each
    without_record = _standardised(logits, shadow_logits, ~known, each)
    if not online:
        return without_record[0]
    with_record = _standardised(logits, shadow_logits, known, each)
    return np.asarray(
        (without_record[0] ** 2 - with_record[0] ** 2) / 2
        + np.log(without_record[1])
        - np.log(with_record[1])
    )


def _standardised(
    logits: Reals, shadow_logits: Reals, chosen: Booleans, each: bool
) -> tuple[Reals, Reals]:
    """Return the standardised distance from the mean of the chosen shadows, and their spread."""
    counts = chosen.sum(axis=0)
    if not bool(counts.all()):
        remedy = "Fit shadows in pairs, each to the records that the other lacks."
        errors.refuse("likelihood_scores", "shadows of a record", "at least 1", 0, remedy)
    means = np.where(chosen, shadow_logits, 0).sum(axis=0) / counts
    squares = np.where(chosen, (shadow_logits - means) ** 2, 0).sum(axis=0)
    # One mean was estimated per record, which costs that many degrees of freedom.
    free = np.maximum(counts - 1, 0)
    variance = squares / np.maximum(free, 1) if each else squares.sum() / max(free.sum(), 1)
    spread = np.sqrt(variance) + _SPREAD * (1 + np.abs(shadow_logits).max())
    return (logits - means) / spread, np.broadcast_to(spread, logits.shape)


def classifier_scores(answers: Answers, labels: Any, shadows: list[Answers], inside: Any) -> Reals:
    """Compute Shokri's scores: the log-odds of a member, by a classifier learned on the shadows.

    Its inputs are the class, the loss and, if available, the logit of the right class and all
    confidences. Boosted trees replace the attack network of the paper.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    known = np.asarray(inside, dtype=np.bool_)
    learner = HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=15, early_stopping=False, random_state=0
    )
    learner.fit(
        np.concatenate([_inputs(shadow, labels) for shadow in shadows]),
        known.ravel(),
    )
    return np.asarray(learner.decision_function(_inputs(answers, labels)), dtype=np.float64)


def _inputs(answers: Answers, labels: Any) -> Reals:
    """Build one row per record; a numeric target is an input like the others."""
    truth = np.asarray(labels)
    number = truth if truth.dtype.kind == "f" else np.unique(truth, return_inverse=True)[1]
    columns = [number.astype(np.float64), answers.losses]
    if answers.confidences is not None:
        columns += [answers.evidence(truth), *answers.confidences.T]
    return np.column_stack(columns)
