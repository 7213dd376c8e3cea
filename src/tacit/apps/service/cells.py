"""Groups of campaigns with partitions: the share of each cell, and what sets a cell apart.

Each partition divides all people in another way, and is seen through the reports of those whom it
was assigned to. Its shares are shown from the campaign's minimum of such reports on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.schema import Rows, TableSchema
from tacit.local.inference import finite
from tacit.local.inference.finite import Evidence
from tacit.local.learned.features import Raw
from tacit.local.reports import Reports

PROBES = 8000
_BLOCK_ROWS = 1 << 16
_SEED = 0
"""Rows that probe cells are drawn from public declarations alone, always the same ones."""


def unbiased(evidence: Evidence) -> npt.NDArray[np.float64]:
    """Estimate the share of each codeword and class, (codewords, classes), without a bias."""
    p, q = evidence.channel.inclusion
    named = np.zeros(evidence.channel.categories)
    for start in range(0, len(evidence), _BLOCK_ROWS):
        block = evidence.sets[start : start + _BLOCK_ROWS]
        named += np.bincount(block.ravel(), minlength=named.size)
    shares = (named / len(evidence) - q) / (p - q)
    return np.asarray(shares.reshape(evidence.codewords, evidence.classes))


def shares(reports: Reports, confidence: float, minimum: int) -> list[dict[str, Any]]:
    """Return unbiased shares of the cells of each partition that has enough reports."""
    channel: Any = reports.channel
    assigned, sets = reports.columns["partition"], reports.columns["symbols"]
    found = []
    for index in range(channel.partitions):
        own = sets[assigned == index]
        if len(own) < minimum:
            continue
        evidence = Evidence(own, channel.law, channel.class_count)
        table = unbiased(evidence).sum(axis=1)
        ends = finite.share_interval(evidence, 1, confidence)
        cells = zip(np.clip(table, 0, 1).tolist(), ends.tolist(), strict=True)
        entries = [
            {"codeword": at, "share": share, "interval": interval}
            for at, (share, interval) in enumerate(cells)
        ]
        found.append({"partition": index, "reports": len(own), "codewords": entries})
    return found


def typical(mechanism: Any) -> list[npt.NDArray[np.float64]] | None:
    """Return the mean of the rows in each cell of each partition; None if nothing is known.

    Rows are those that the central guarantee covers or, for tables without it, rows spread evenly
    over the declared columns: neither is anybody's. A cell that none of them is in gets the mean of
    all.
    """
    rows = _probes(mechanism)
    if rows is None:
        return None
    values = Raw(mechanism.schema).transform(rows).astype(np.float64)
    found = mechanism.encode_rows(rows)
    return [_means(values, found[:, at], mechanism.codewords_) for at in range(found.shape[1])]


def _probes(mechanism: Any) -> Rows | None:
    if mechanism.synthetic_ is not None:
        rows: Rows = mechanism.synthetic_.draw(PROBES, _SEED)
        return rows
    schema = mechanism.schema
    if not isinstance(schema, TableSchema):
        return None
    drawn = np.random.default_rng(_SEED)
    numbers = drawn.random((PROBES, len(schema.continuous)), np.float32)
    counts = [len(one.categories) for one in schema.categorical]
    codes = drawn.integers(0, counts, (PROBES, len(counts))) if counts else np.zeros((PROBES, 0))
    return Rows(numbers, codes.astype(np.int64))


def _means(
    values: npt.NDArray[np.float64], cells: npt.NDArray[Any], count: int
) -> npt.NDArray[np.float64]:
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, cells, values)
    held = np.bincount(cells, minlength=count)[:, None]
    return np.where(held > 0, sums / np.maximum(held, 1), values.mean(axis=0))
