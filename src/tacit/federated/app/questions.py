"""What silos are asked besides training: moments of their rows, and how right a model is.

Each answer is noised and charged by the silo that gives it. What is made of them here is
post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from tacit.federated.app import wire
from tacit.federated.app.roster import Roster
from tacit.federated.record_level.normalisation import (
    EVERYTHING,
    Bounds,
    Moments,
    Normalisation,
    combine,
)
from tacit.federated.rounds import Server
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.federated.record_level.privacy import RecordPrivacy


class Scores(NamedTuple):
    """On rows that silos held out, from noisy counts; None where these leave nothing to divide by.

    Parameters
    ----------
    accuracy : float or None
        Share of right answers.
    mcc : float or None
        Matthews correlation coefficient, for any number of classes.
    silos : int
        How many answered.
    rows : int
        How many rows they held out together, about: it has the counts' noise.
    """

    accuracy: float | None
    mcc: float | None
    silos: int
    rows: int


@dataclass
class Questions:
    """What is asked, and what came of it.

    Parameters
    ----------
    statistics : bool
        Ask for moments before the first round.
    due : frozenset of int
        Rounds after which silos evaluate.
    classes : int
        How many there are, public.
    bounds : (float, float)
        Of rows, public.

    Attributes
    ----------
    normalisation : Normalisation or None
        Made of the moments; with every later message it goes to the silos.
    scores : dict of int to Scores
        By round.
    ended : set of int
        Silos whose last word was that their budgets do not allow what was asked.
    """

    statistics: bool = False
    due: frozenset[int] = frozenset()
    classes: int = 0
    bounds: Bounds = EVERYTHING
    normalisation: Normalisation | None = None
    scores: dict[int, Scores] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, privacy: RecordPrivacy | None, rounds: int, classes: int) -> Questions:
        """As a guarantee for records provides; evaluations evenly spaced, the last at the end."""
        if privacy is None:
            return cls()
        due = {
            math.ceil(k * rounds / privacy.evaluations) for k in range(1, privacy.evaluations + 1)
        }
        return cls(privacy.statistics > 0, frozenset(due), classes, privacy.bounds)

    def before(
        self, grid: Grid, roster: Roster, server: Server, timeout: float
    ) -> Normalisation | None:
        """Ask every silo for its moments; how all of them normalise their rows.

        Raises
        ------
        BudgetExceeded
            If none answered, and budgets were the cause.
        InvalidData
            If none answered with moments that rows within the bounds can have, or their rows do
            not have the same columns.
        """
        if not self.statistics or self.normalisation is not None:
            return self.normalisation
        found = self._moments(grid, roster, server, timeout)
        if not found and self.ended:
            raise errors.BudgetExceeded(
                f"federation: silos must have budgets that allow this job, got {len(self.ended)} "
                f"of {server.clients} that refused and no answer. Nothing was trained."
            )
        try:
            self.normalisation = combine(found, self.bounds)
        except errors.InvalidData:
            raise errors.InvalidData(
                "federation: silos must tell mean and deviation of rows with the same columns, "
                f"within the bounds, got {len(found)} answers from {server.clients} silos and none "
                "to go by. Nothing was trained."
            ) from None
        return self.normalisation

    def _moments(self, grid: Grid, roster: Roster, server: Server, timeout: float) -> list[Moments]:
        """What silos tell, in their order, as far as it can be read."""
        there = roster.there(grid, range(server.clients))
        asked = [Message(RecordDict(), node, wire.STATISTICS) for node in there.values()]
        found = {}
        for message in grid.send_and_receive(asked, timeout=timeout) if asked else ():
            client, moments = self._believed(message, roster, server), wire.read_moments(message)
            if client is not None and moments is not None:
                found[client] = moments
        return [found[client] for client in sorted(found)]

    def judged(
        self, number: int, roster: Roster, server: Server, replies: Iterable[Message]
    ) -> None:
        """Add up what silos counted after a round."""
        found = {}
        for message in replies:
            client = self._believed(message, roster, server)
            counts = wire.read_confusion(message, self.classes)
            if client is not None and counts is not None:
                found[client] = counts
        total = sum(found.values(), np.zeros((self.classes, self.classes), dtype=np.int64))
        self.scores[number] = scores(total, len(found))

    def heard(self, client: int, message: Message) -> None:
        """Whether a silo can still pay, by its last word."""
        if wire.spent(message):
            self.ended.add(client)
        elif message.has_content():
            self.ended.discard(client)

    def _believed(self, message: Message, roster: Roster, server: Server) -> int | None:
        """The silo behind an answer, once its statement of what it spent is taken down."""
        client = roster.client(message.metadata.src_node_id)
        remember: Any = getattr(server.coordinator, "state", None)
        if client is not None:
            self.heard(client, message)
        if client is None or remember is None or not message.has_content():
            return None
        return client if remember(client, wire.stated(message)) else None


def scores(confusion: npt.NDArray[np.int64], silos: int) -> Scores:
    r"""Accuracy and Matthews' coefficient of noisy counts, truth by prediction.

    .. math:: R = \frac{c s - \sum_k p_k t_k}
              {\sqrt{(s^2 - \sum_k p_k^2)(s^2 - \sum_k t_k^2)}}

    with s rows, c of them right, t_k of class k and p_k taken for it [1]_. Counts below 0, which
    noise alone makes, are taken as 0.

    References
    ----------
    .. [1] J. Gorodkin, "Comparing two K-category assignments by a K-category correlation
       coefficient", Computational Biology and Chemistry 28, 2004.

    Examples
    --------
    >>> found = scores(np.array([[40, 10], [5, 45]]), 3)
    >>> found.accuracy, round(found.mcc, 4), found.rows
    (0.85, 0.7035, 100)
    """
    counts = np.maximum(confusion, 0).astype(np.float64)
    total, right = counts.sum(), np.trace(counts)
    about = max(int(confusion.sum()), 0)  # with the counts below 0: their noise is 0 on average
    if not total > 0:
        return Scores(None, None, silos, about)
    truth, taken = counts.sum(axis=1), counts.sum(axis=0)
    spread = (total**2 - taken @ taken) * (total**2 - truth @ truth)
    mcc = float((right * total - truth @ taken) / math.sqrt(spread)) if spread > 0 else None
    return Scores(float(right / total), mcc, silos, about)
