"""What silos are asked besides training: moments of their rows, and confusion matrices.

Each reply is noised and charged by its silo. Everything that is computed from replies here is
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
    Normalisation,
    SiloMoments,
    combine,
)
from tacit.federated.rounds import Server
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.federated.record_level.privacy import RecordPrivacy


class HeldOutScores(NamedTuple):
    """Scores on rows that silos held out, from noisy counts; None if the denominator is zero.

    Parameters
    ----------
    accuracy : float or None
        Share of predictions that are right.
    mcc : float or None
        Matthews correlation coefficient, for any number of classes.
    silos : int
        Number of silos that replied.
    rows : int
        Noisy number of rows that they held out together.
    """

    accuracy: float | None
    mcc: float | None
    silos: int
    rows: int


@dataclass
class Questions:
    """The questions to silos, and their results.

    Parameters
    ----------
    statistics : bool
        Whether to ask for moments before the first round.
    due : frozenset of int
        Rounds after which silos evaluate.
    classes : int
        Number of classes, which is public.
    bounds : (float, float)
        Public bounds of the rows.

    Attributes
    ----------
    normalisation : Normalisation or None
        Computed from the moments, and sent to the silos with every later message.
    scores : dict of int to HeldOutScores
        Scores by round.
    ended : set of int
        Silos whose last reply was that their budget does not allow the exchange.
    """

    statistics: bool = False
    due: frozenset[int] = frozenset()
    classes: int = 0
    bounds: Bounds = EVERYTHING
    normalisation: Normalisation | None = None
    scores: dict[int, HeldOutScores] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, privacy: RecordPrivacy | None, rounds: int, classes: int) -> Questions:
        """Plan the questions of a guarantee for records, with evaluations evenly spaced.

        The last evaluation is after the last round.
        """
        if privacy is None:
            return cls()
        due = {
            math.ceil(k * rounds / privacy.evaluations) for k in range(1, privacy.evaluations + 1)
        }
        return cls(privacy.statistics > 0, frozenset(due), classes, privacy.bounds)

    def before(
        self, grid: Grid, roster: Roster, server: Server, timeout: float
    ) -> Normalisation | None:
        """Ask every silo for its moments, and return the normalisation for all of them.

        Raises
        ------
        BudgetExceeded
            If no silo replied because of their budgets.
        InvalidData
            If no silo replied with moments that rows within the bounds can have, or if their rows
            do not have the same columns.
        """
        if not self.statistics or self.normalisation is not None:
            return self.normalisation
        moments = self._moments(grid, roster, server, timeout)
        if not moments and self.ended:
            raise errors.BudgetExceeded(
                f"federation: silos must have budgets that allow this job, got {len(self.ended)} "
                f"of {server.clients} that refused and no reply. Nothing was trained."
            )
        try:
            self.normalisation = combine(moments, self.bounds)
        except errors.InvalidData:
            raise errors.InvalidData(
                "federation: silos must state mean and standard deviation of rows with the same "
                f"columns, within the bounds, got {len(moments)} replies from {server.clients} "
                "silos that cannot be combined. Nothing was trained."
            ) from None
        return self.normalisation

    def _moments(
        self, grid: Grid, roster: Roster, server: Server, timeout: float
    ) -> list[SiloMoments]:
        """Ask for moments, and return those that can be read, in the order of silos."""
        there = roster.there(grid, range(server.clients))
        requests = [Message(RecordDict(), node, wire.STATISTICS) for node in there.values()]
        by_client = {}
        for message in grid.send_and_receive(requests, timeout=timeout) if requests else ():
            client, moments = self._believed(message, roster, server), wire.read_moments(message)
            if client is not None and moments is not None:
                by_client[client] = moments
        return [by_client[client] for client in sorted(by_client)]

    def judged(
        self, number: int, roster: Roster, server: Server, replies: Iterable[Message]
    ) -> None:
        """Sum the confusion matrices of silos after a round, and score them."""
        by_client = {}
        for message in replies:
            client = self._believed(message, roster, server)
            counts = wire.read_confusion(message, self.classes)
            if client is not None and counts is not None:
                by_client[client] = counts
        total = sum(by_client.values(), np.zeros((self.classes, self.classes), dtype=np.int64))
        self.scores[number] = scores(total, len(by_client))

    def heard(self, client: int, message: Message) -> None:
        """Record from its last message whether a silo can still pay."""
        if wire.spent(message):
            self.ended.add(client)
        elif message.has_content():
            self.ended.discard(client)

    def _believed(self, message: Message, roster: Roster, server: Server) -> int | None:
        """Return the silo that sent a message, after recording its statement of cost."""
        client = roster.client(message.metadata.src_node_id)
        remember: Any = getattr(server.coordinator, "state", None)
        if client is not None:
            self.heard(client, message)
        if client is None or remember is None or not message.has_content():
            return None
        return client if remember(client, wire.stated(message)) else None


def scores(confusion: npt.NDArray[np.int64], silos: int) -> HeldOutScores:
    r"""Compute accuracy and Matthews correlation from noisy counts, true by predicted class.

    .. math:: R = \frac{c s - \sum_k p_k t_k}
              {\sqrt{(s^2 - \sum_k p_k^2)(s^2 - \sum_k t_k^2)}}

    with s rows, c of them classified correctly, t_k of class k and p_k predicted as class k [1]_.
    Counts below 0, which only noise can cause, are replaced by 0.

    References
    ----------
    .. [1] J. Gorodkin, "Comparing two K-category assignments by a K-category correlation
       coefficient", Computational Biology and Chemistry 28, 2004.

    Examples
    --------
    >>> scored = scores(np.array([[40, 10], [5, 45]]), 3)
    >>> scored.accuracy, round(scored.mcc, 4), scored.rows
    (0.85, 0.7035, 100)
    """
    counts = np.maximum(confusion, 0).astype(np.float64)
    total, right = counts.sum(), np.trace(counts)
    about = max(int(confusion.sum()), 0)  # includes counts below 0, so that the noise has mean 0
    if not total > 0:
        return HeldOutScores(None, None, silos, about)
    truth, taken = counts.sum(axis=1), counts.sum(axis=0)
    spread = (total**2 - taken @ taken) * (total**2 - truth @ truth)
    mcc = float((right * total - truth @ taken) / math.sqrt(spread)) if spread > 0 else None
    return HeldOutScores(float(right / total), mcc, silos, about)
