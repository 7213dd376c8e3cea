r"""The likelihood of a first round of reports in a world, through their channel.

In a world with label probabilities p(y | x), the share of people in cell k with label y is

.. math:: \theta_{k,y} = \frac1N \sum_{x \in D_k} p(y \mid x),

with D the in-house rows of a cell: people are assumed to look like the in-house rows. The law of a
report given θ is that of `tacit.inference.finite`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.local.channels import PartitionedChannel, SymbolChannel
from tacit.local.plan.worlds import Likelihood, Reals, softmax
from tacit.local.reports import Reports
from tacit.privacy import errors

MOST_REPORTS = 3000
"""Reports that are looked at: more make worlds more alike, and drawing them slower."""


def must_be_labelled(reports: Reports) -> None:
    """Refuse reports from which a collection does not learn."""
    fits = isinstance(reports, Reports) and isinstance(
        reports.channel, PartitionedChannel | SymbolChannel
    )
    if not fits or not reports.labelled:
        raise errors.InvalidData(
            "plan: reports must be labelled reports of a collection. Release with labels=…."
        )


def reported(reports: Reports, rows: Any, seed: int) -> Likelihood:
    """Return the likelihood of reports, as a function of the logits of these in-house rows."""
    from scipy.sparse import csr_array

    channel: Any = reports.channel
    law, classes = channel.law, channel.class_count
    cells = law.categories // classes
    encoded = reports.mechanism.encode(rows)
    encoded = encoded.reshape(len(encoded), -1)
    count, partitions = encoded.shape
    places = (encoded + cells * np.arange(partitions)).ravel("F")
    share = np.full(places.size, 1 / count)
    columns = np.tile(np.arange(count), partitions)
    average = csr_array((share, (places, columns)), shape=(cells * partitions, count))
    sets = _sets(reports, law.categories, seed)
    gain = math.expm1(law.log_odds)

    def likelihood(logits: Reals) -> float:
        theta = (average @ softmax(logits)).ravel()
        return float(np.log1p(gain * theta[sets].sum(axis=1)).sum())

    return likelihood


def _sets(reports: Reports, categories: int, seed: int) -> npt.NDArray[np.int64]:
    """Number the symbols across partitions; take some of the reports where there are many."""
    reports = reports.as_multiset()
    chosen = np.random.default_rng(seed).permutation(len(reports))[:MOST_REPORTS]
    symbols = reports.columns["symbols"][chosen].astype(np.int64)
    assigned = reports.columns.get("partition")
    return symbols if assigned is None else symbols + categories * assigned[chosen][:, None]
