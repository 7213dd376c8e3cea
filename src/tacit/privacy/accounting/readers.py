"""The guarantee towards readers of results, who never see a report, as a certificate states it.

It follows from the event of one report and from how many people sent one of the same kind
(`tacit.privacy.accounting.blanket`), so whoever reads a certificate can derive it again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tacit.privacy import errors, events, plain
from tacit.privacy.accounting import blanket
from tacit.privacy.accounting.blanket import Hidden
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.decimals import above
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PureDP

DELTA = 1e-6
"""δ that certificates state towards readers."""
_TOTAL = 2**events.WEIGHT_BITS
_SAME = 2e-4
"""How much less than its events give a certificate may state: machines round the search for ε."""


@dataclass(frozen=True)
class Readers:
    """What readers of results learn about one person who reported, and what that rests on.

    Parameters
    ----------
    guarantee : Guarantee
        Central, for replacing one person's data. That of a report where shuffling adds nothing.
    people : int
        How many people sent a report of the same kind; where there are several kinds (partitions,
        sheets, rounds), in the smallest.
    fake : int
        How many of these may be made up by somebody who wants to learn about the others.
    """

    guarantee: Guarantee
    people: int
    fake: int = 0

    @property
    def words(self) -> str:
        """What it rests on, in words."""
        return assumption(self.people - self.fake)

    def __str__(self) -> str:
        return f"{self.guarantee}. {self.words}"

    def lines(self) -> list[str]:
        """Return the lines of an explanation."""
        stated = self.guarantee
        bounds = str(stated)
        if isinstance(stated, PureDP | ApproxDP):
            bounds = f"epsilon = {above(stated.epsilon)}, delta = {above(stated.delta, 3)}"
        return [
            f"{bounds}, for each {stated.unit} behind a report, compared with any other in its "
            "place, from readers of the result who never see a report.",
            self.words,
        ]

    def must_follow(self, event: events.Event) -> None:
        """Raise unless the events of one report give at most what is stated."""
        stated = self.guarantee
        if events.scope_of(event)["adjacency"] is not Adjacency.ANY_TWO_INPUTS:
            raise errors.CertificateError(
                "certificate: it states a guarantee towards readers of reports, but its events "
                "are not those of reports."
            )
        derived = of_event(event, self.people - self.fake, getattr(stated, "delta", 0.0))
        if derived != stated and not _covers(stated, derived):
            raise errors.CertificateError(
                f"certificate: it states {stated} towards readers, but its events give: {derived}"
            )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON values."""
        counts = {"people": self.people, "fake": self.fake}
        return {"guarantee": plain.to_plain(self.guarantee), **counts, "assumption": self.words}

    @classmethod
    def from_plain(cls, body: dict[str, Any]) -> Readers:
        """Read JSON values; the words are derived from the numbers."""
        people, fake = body["people"], body["fake"]
        if type(people) is not int or type(fake) is not int or not 0 <= fake < people <= 10**9:
            raise ValueError
        return cls(plain.guarantee_from_plain(body["guarantee"]), people, fake)


def assumption(people: int) -> str:
    """Say in words what a guarantee towards readers rests on."""
    return (
        "For readers of results, if the collector keeps the reports, publishes only what is "
        "learned from one closed batch of them, and in each partition, sheet and round at least "
        f"{people} people answered honestly."
    )


@lru_cache(maxsize=256)
def of_event(event: events.Event, people: int, delta: float) -> Guarantee:
    """Compute what readers learn from the results of this many honest people's reports.

    Of randomized response and subset selection the law is used as it is; of any other event, its ε.
    """
    if isinstance(event, events.Parallel):
        return weakest(set(event.events), people, delta)
    local = _local(event, delta)
    return bounded(pairs(event, local), local, people, delta)


def weakest(kinds: Iterable[events.Event], people: int, delta: float) -> Guarantee:
    """Compute what holds towards readers whichever report somebody sent, if so many sent each."""
    kinds = list(kinds)
    worst = max((of_event(one, people, delta) for one in kinds), key=_epsilon)
    if isinstance(worst, PureDP) and any(
        _epsilon(_local(one, delta)) > worst.epsilon for one in kinds
    ):
        return ApproxDP(epsilon=worst.epsilon, delta=delta, **worst.scope)
    return worst


def _local(event: events.Event, delta: float) -> Guarantee:
    """Return the guarantee of one report, for those who see results."""
    stated = guarantee_of(event)
    if not isinstance(stated, PureDP):
        stated = guarantee_of(event, delta)
    return replace(stated, adjacency=Adjacency.REPLACE_ONE)


def _epsilon(guarantee: Guarantee) -> float:
    return float(getattr(guarantee, "epsilon", math.inf))


def bounded(pairs: set[Hidden] | None, local: Guarantee, people: int, delta: float) -> Guarantee:
    """Return the guarantee behind the blanket of all pairs of inputs; `local` if it is no more."""
    if not pairs or not isinstance(local, PureDP | ApproxDP) or not delta > 0 or not local.epsilon:
        return local
    epsilon = blanket.epsilon_of(pairs, people, delta, local.epsilon)
    if not epsilon < local.epsilon:
        return local
    return ApproxDP(epsilon=epsilon, delta=delta, **local.scope)


def pairs(event: events.Event | None, local: Guarantee) -> set[Hidden] | None:
    """Return the pairs of inputs behind the blanket, one of each kind; None if none is known."""
    if isinstance(event, events.RandomizedResponse):
        return {_of_response(event)}
    if isinstance(event, events.SubsetSelection):
        return {_of_subsets(event)}
    if isinstance(event, events.ProjectiveGeometryResponse):
        return {_of_points(event)}
    if isinstance(event, events.Repeated):
        return None  # of the other reports, those of one person do not come in bundles of their own
    return {blanket.clones(local.epsilon)} if isinstance(local, PureDP) else None


def _of_response(event: events.RandomizedResponse) -> Hidden:
    other, odds = Fraction(event.other, _TOTAL), Fraction(event.keep, event.other)
    one = Fraction(1)
    own = ((other, odds, one), (other, one, odds))
    rest = (event.categories - 2) * other
    return Hidden((*own, (rest, one, one)) if rest else own)


def _of_subsets(event: events.SubsetSelection) -> Hidden:
    """Group sets by whether they hold x and x'; every set misses some category and holds some."""
    k, d, p = event.categories, event.size, Fraction(event.inclusion, _TOTAL)
    # P(S | x) for S that holds x, and that does not, times the number of sets over k.
    held, missed = p / d, (1 - p) / (k - d)
    least = min(held, missed)
    first, second = held / least, missed / least
    # How many sets of each kind there are, over the number of all sets, times k (k − 1).
    kinds = (
        (d * (k - d), first, second),
        (d * (k - d), second, first),
        (d * (d - 1), first, first),
        ((k - d) * (k - d - 1), second, second),
    )
    return Hidden(tuple((least * Fraction(sets, k - 1), a, b) for sets, a, b in kinds if sets))


def _of_points(event: events.ProjectiveGeometryResponse) -> Hidden:
    """Group points by the two hyperplanes; every point misses that of some category."""
    p = Fraction(event.inclusion, _TOTAL)
    n, h, both = event.points, event.held, (event.held - 1) // event.order
    held, missed = p / h, (1 - p) / (n - h)
    least = min(held, missed)
    first, second = held / least, missed / least
    kinds = (
        (h - both, first, second),
        (h - both, second, first),
        (both, first, first),
        (n - 2 * h + both, second, second),
    )
    return Hidden(tuple((least * points, a, b) for points, a, b in kinds if points))


def _covers(stated: Guarantee, derived: Guarantee) -> bool:
    """Check that one states what the other does, up to the tolerance of the search for ε."""
    if type(stated) is not type(derived) or not isinstance(stated, PureDP | ApproxDP):
        return False
    assert isinstance(derived, PureDP | ApproxDP)
    same = (stated.scope, stated.delta) == (derived.scope, derived.delta)
    return same and stated.epsilon >= derived.epsilon * (1 - _SAME)
