"""What readers of results learn, who never see a report: the guarantee of shuffled reports.

A result that is a function of the multiset of reports reveals less than the reports: each person
hides among all others who sent one of the same kind.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from tacit.local.channels import PartitionedChannel, SymbolChannel
from tacit.local.outcome_channels import RoundedChannel
from tacit.privacy import errors
from tacit.privacy.accounting import blanket
from tacit.privacy.accounting.blanket import Hidden
from tacit.privacy.accounting.readers import (
    DELTA,
    Readers,
    bounded,
    of_event,
    pairs,
    weakest,
)
from tacit.privacy.events import Parallel
from tacit.privacy.guarantees import Adjacency, ApproxDP, Guarantee, PureDP
from tacit.privacy.mechanisms import IntegerTable

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
    channel : mechanism, channel, survey or reports
        What each person ran. The law of randomized response, subset selection, and of a table for
        any two inputs is used as it is; of any other channel, its ε. Of a survey, the guarantee
        for the sheet where it is weakest.
    people : int
        How many people sent a report of the same sheet, partition, channel and round. Rounds,
        partitions and sheets do not pool: give the number of the smallest.
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
    reports (`readers(…).words` says this), *if* `people` − `fake` people answered honestly, and
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
    delta = _delta("shuffled", delta, people)
    channel = getattr(channel, "channel", channel)
    channel = channel() if callable(channel) else channel  # a mechanism makes its channel
    local = _local(channel)
    if not isinstance(local, PureDP | ApproxDP) or not delta > 0:
        return local
    if isinstance(channel.event, Parallel):
        return of_event(channel.event, honest, delta)
    return bounded(_pairs(_law(channel), local), local, honest, delta)


def readers(reports: Any, delta: float = DELTA, fake: int = 0) -> Readers:
    """Return what readers of results from these reports learn about one of the people.

    Parameters
    ----------
    reports : Reports or sequence of Reports
        All that the results are learned from: one batch, or one of each round.
    delta : float
        δ of the guarantee.
    fake : int
        How many reports of any kind may be made up by somebody who wants to learn about the others.

    Notes
    -----
    A person hides among those who sent a report of the same kind: of the same partition or sheet,
    which is public and does not depend on data, and of the same round. A later round runs a
    mechanism that is a function of the earlier rounds' multisets of reports, on the data of other
    people: towards the people of an earlier round it is post-processing. So the guarantee is the
    weakest one of all kinds and rounds, and nothing adds up. Of people with several reports only
    the local guarantee is stated.
    """
    rounds = reports if isinstance(reports, list | tuple) else [reports]
    counts = [count for one in rounds for _, count in one.channel.kinds(one.columns)]
    if not counts:
        errors.refuse("readers", "reports", "at least one", 0)
    people = min(counts)
    delta = _delta("readers", delta, sum(counts))
    _honest(people, fake)
    # What is stated follows from the number of the smallest kind, and from the events that a
    # certificate names: also those of a sheet that nobody got.
    kinds = {one.per_person.event(one.channel) for one in rounds if len(one)}
    return Readers(weakest(kinds, people - fake, delta), people, fake)


def _delta(where: str, delta: Any, people: int) -> float:
    """Check δ; with 0, readers are promised what holds for a report."""
    if isinstance(delta, int | float) and delta == 0:
        return 0.0
    return errors.delta_in_range(where, delta, records=people)


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


def _pairs(law: Any, local: Guarantee) -> set[Hidden] | None:
    """Return all pairs of inputs behind the blanket, one of each kind; None if none is known."""
    if isinstance(law, IntegerTable):
        rows, columns = len(law.rows), law.rows.columns
        if rows <= _MOST_ROWS and columns <= _MOST_COLUMNS:
            return blanket.pairs_of([_row(law, x) for x in range(rows)])
    return pairs(getattr(law, "event", None), local)


def _row(table: IntegerTable, x: int) -> list[Fraction]:
    total = table.rows.total(x)
    return [Fraction(int(weight), total) for weight in table.rows.weights(x)]
