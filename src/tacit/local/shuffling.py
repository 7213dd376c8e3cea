"""What readers of results learn, who never see a report: the guarantee of shuffled reports.

A result that is a function of the multiset of reports reveals less than the reports: each person
hides among all others who sent one of the same kind.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.local.channels import PartitionedChannel, SymbolChannel
from tacit.local.outcome_channels import RoundedChannel
from tacit.privacy import errors
from tacit.privacy.accounting import blanket
from tacit.privacy.accounting.blanket import Hidden
from tacit.privacy.events import WEIGHT_BITS
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PureDP
from tacit.privacy.mechanisms import IntegerTable, RandomizedResponse, SubsetSelection

_TOTAL = 2**WEIGHT_BITS
_MOST_ROWS = 32
"""Rows of a table of which all pairs are compared; larger tables get the bound of any channel."""
_MOST_COLUMNS = 4096


def shuffled(channel: Any, people: int = 13_500, delta: float = 1e-6, fake: int = 0) -> Guarantee:
    r"""Compute the guarantee towards those who see results of reports, and no report.

    .. math:: \delta(\varepsilon) \le \frac1n E\Bigl[\Bigl(\sum_{i \le n} Z_i\Bigr)_+\Bigr],
              \qquad Z = \frac{R(y \mid x) - e^\varepsilon R(y \mid x')}{\mu(y)}
              \text{ with probability } \mu(y) = \min_z R(y \mid z), \text{ else } 0

    Parameters
    ----------
    channel : mechanism, channel or reports
        What each person ran. The law of randomized response, subset selection, and of a table for
        any two inputs is used as it is; of any other channel, its ε.
    people : int
        How many people sent a report of the same question, partition, channel and round. Rounds
        and partitions do not pool: give the number of the smallest.
    delta : float
        δ of the guarantee.
    fake : int
        How many of these reports may be made up by somebody who wants to learn about the others.

    Returns
    -------
    Guarantee
        Central, replace-one, with `epsilon` and `delta`, rounded up. Where shuffling gives
        nothing, the guarantee of a report.

    Notes
    -----
    (ε, δ)-DP for replacing one person's data, for readers of results, *if* the collector keeps the
    reports (`assumption` says this in words), *if* `people` − `fake` people answered honestly, and
    *if* what is published is a function of the multiset of reports of one batch that was closed
    once. Towards the collector the guarantee is the channel's own. The bound is the privacy blanket
    [BBGN19]_ of the channel's law, in rationals and with a proved rounding error; for channels
    other than those named, the bound for any channel [FMT21]_.

    References
    ----------
    .. [BBGN19] Balle, Bell, Gascón, Nissim. The privacy blanket of the shuffle model. CRYPTO 2019.
    .. [FMT21] Feldman, McMillan, Talwar. Hiding among the clones: a simple and nearly optimal
       analysis of privacy amplification by shuffling. FOCS 2021.

    Examples
    --------
    >>> import tacit
    >>> answer = tacit.RandomizedResponse(categories=2, epsilon=1.0)
    >>> print(f"{tacit.shuffled(answer, people=13_500).epsilon:.3f}")
    0.037
    """
    honest = _honest(people, fake)
    delta = errors.probability("shuffled", "delta", delta)
    channel = getattr(channel, "channel", channel)
    local = _local(channel)
    if not isinstance(local, PureDP | ApproxDP) or not delta > 0:
        return local
    pairs = _pairs(_law(channel), local)
    if pairs is None or not local.epsilon:
        return local
    epsilon = blanket.epsilon_of(pairs, honest, delta, local.epsilon)
    if not epsilon < local.epsilon:
        return local
    return ApproxDP(epsilon=epsilon, delta=delta, **local.scope)


def assumption(people: int) -> str:
    """Say in words what the guarantee of `shuffled` rests on."""
    return (
        "For readers of results, if the collector keeps the reports, publishes only what is "
        f"learned from one closed batch of them, and at least {people} people answered honestly."
    )


def smallest_group(reports: Any) -> int:
    """Count the reports of the same kind: all, or those of the rarest partition that has any."""
    assigned = reports.columns.get("partition")
    if assigned is None:
        return len(reports)
    counts = np.bincount(assigned)
    return int(counts[counts > 0].min(initial=len(reports)))


def _honest(people: int, fake: int) -> int:
    people = errors.whole("shuffled", "people", people, least=1, most=10**9)
    fake = errors.whole("shuffled", "fake", fake, least=0)
    if fake >= people:
        errors.refuse("shuffled", "fake", f"below the {people} people", fake)
    return people - fake


def _local(channel: Any) -> Guarantee:
    """Return the guarantee of one report, for those who see results."""
    stated = getattr(channel, "guarantee", None)
    if not isinstance(stated, Guarantee) or stated.adjacency is not Adjacency.ANY_TWO_INPUTS:
        got = type(channel).__name__
        remedy = "Pass the mechanism, or mechanism.channel()."
        errors.refuse("shuffled", "channel", "one that people run on their own data", got, remedy)
    return replace(stated, adjacency=Adjacency.REPLACE_ONE)


def _law(channel: Any) -> Any:
    if isinstance(channel, RoundedChannel):
        channel = channel.inner  # rounding mixes its inputs, which brings no two laws further apart
    # A partition is public, and drawn whatever the data are: it cancels.
    return channel.law if isinstance(channel, SymbolChannel | PartitionedChannel) else channel


def _pairs(law: Any, local: PureDP | ApproxDP) -> set[Hidden] | None:
    """Return all pairs of inputs behind the blanket, one of each kind; None if none is known."""
    if isinstance(law, RandomizedResponse):
        return {_of_response(law)}
    if isinstance(law, SubsetSelection):
        return {_of_subsets(law)}
    if isinstance(law, IntegerTable):
        rows, columns = len(law.rows), law.rows.columns
        if rows <= _MOST_ROWS and columns <= _MOST_COLUMNS:
            return blanket.pairs_of([_row(law, x) for x in range(rows)])
    return {blanket.clones(local.epsilon)} if isinstance(local, PureDP) else None


def _row(table: IntegerTable, x: int) -> list[Fraction]:
    total = table.rows.total(x)
    return [Fraction(int(weight), total) for weight in table.rows.weights(x)]


def _of_response(law: RandomizedResponse) -> Hidden:
    other, odds = Fraction(law.event.other, _TOTAL), Fraction(law.event.keep, law.event.other)
    one = Fraction(1)
    own = ((other, odds, one), (other, one, odds))
    rest = (law.categories - 2) * other
    return Hidden((*own, (rest, one, one)) if rest else own)


def _of_subsets(law: SubsetSelection) -> Hidden:
    """Group sets by whether they hold x and x'; every set misses some category and holds some."""
    k, d, p = law.categories, law.event.size, Fraction(law.event.inclusion, _TOTAL)
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
