r"""Poisoning: how far fake participants can move an estimate.

A report names d of K symbols, its own with probability p and any other one with probability q. The
share of those whose symbol is in a group G of g symbols is estimated without bias by a mean over n
reports,

.. math:: \hat\pi = \frac{1}{n} \sum_{i=1}^n u(S_i), \qquad
          u(S) = \frac{|S \cap G| - g\,q}{p - q}

A fake does not run the channel. It may name any set, and one set contributes

.. math:: u^- = \frac{\max(0,\, d - (K - g)) - g\,q}{p - q} \le u(S) \le
          \frac{\min(d, g) - g\,q}{p - q} = u^+

If m of the n reports are fakes that replace people who are all outside of G, the estimate is on
average too large by :math:`m\,u^+/n`; in the place of people who are all in G, too
small by :math:`m\,(1 - u^-)/n`. These bounds are tight. People who lie about their own symbol and
then run the channel move the estimate on average by at most :math:`m/n`. So :math:`u^+` and
:math:`1 - u^-` tell how many liars one fake equals; they are large if ε is small.

References
----------
.. [CSU21] Cheu, Smith, Ullman. Manipulation attacks in local differential privacy. IEEE S&P 2021.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.local.inference.votes import Ballot, Law
from tacit.privacy import errors
from tacit.privacy.mechanisms import RandomizedResponse, SubsetSelection


class Shift(NamedTuple):
    """The largest shifts of an unbiased share: `down` is at most 0, `up` at least 0."""

    down: float
    up: float

    @property
    def worst(self) -> float:
        """The larger absolute value of the two."""
        return max(-self.down, self.up)


def law_of(channel: SubsetSelection | RandomizedResponse) -> Law:
    """Return the probabilities of a channel."""
    if isinstance(channel, SubsetSelection):
        return Law(channel.categories, channel.event.size, *channel.inclusion)
    own, other = np.exp(channel.log_prob([0, 1], [0, 0])).tolist()
    return Law(channel.categories, 1, own, other)


def reach(law: Law, group: int) -> tuple[float, float]:
    """Compute u⁻ and u⁺, the least and largest contribution of a report to a group's share."""
    group = errors.whole("reach", "group", group, least=1, most=law.symbols - 1)
    named = max(0, law.size - (law.symbols - group)), min(law.size, group)
    least, most = ((count - group * law.other) / (law.own - law.other) for count in named)
    return least, most


def share_shift(law: Law, group: int, reports: int, fakes: int) -> Shift:
    """Compute the shift of the share of a group of symbols by this many fakes."""
    part = _part(reports, fakes)
    least, most = reach(law, group)
    return Shift(part * (least - 1), part * most)


def lying_shift(reports: int, fakes: int) -> Shift:
    """Compute the mean shift of any share by this many who lie and then run the channel."""
    part = _part(reports, fakes)
    return Shift(-part, part)


def class_shift(channel: SubsetSelection, classes: int, reports: int, fakes: int) -> Shift:
    """Compute the shift of the share of a class, which has one symbol per codeword."""
    return share_shift(law_of(channel), channel.categories // classes, reports, fakes)


def codeword_shift(channel: SubsetSelection, classes: int, reports: int, fakes: int) -> Shift:
    """Compute the shift of a codeword's share; it has one symbol per class (one if unlabelled)."""
    return share_shift(law_of(channel), classes, reports, fakes)


def label_shift(flip: RandomizedResponse, reports: int, fakes: int) -> Shift:
    """Compute the shift of the share of a label that is flipped by itself."""
    return share_shift(law_of(flip), 1, reports, fakes)


def accuracy_shift(ballot: Ballot, votes: int, fakes: int) -> Shift:
    """Compute the shift of an accuracy by votes: half of the symbols mean "right"."""
    return share_shift(ballot.law, ballot.parts, votes, fakes)


def _part(reports: int, fakes: int) -> float:
    reports = errors.whole("poisoning", "reports", reports, least=1)
    return errors.whole("poisoning", "fakes", fakes, least=0, most=reports) / reports
