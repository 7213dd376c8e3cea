"""One person of the demonstration: the raw record, the report, and what a server can see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.apps.demo.collection import DemoCollection, DemoData
from tacit.local.reports import Reports

Picture = npt.NDArray[np.float64]
TITLES = {"codebook": "codebook", "vlm": "VLM", "direct": "direct noising"}
"""Titles of the mechanisms, in the order in which they are shown."""


@dataclass(frozen=True, eq=False)
class Person:
    """The first person who reports.

    Parameters
    ----------
    digit : int
        The label; a report hides it too.
    record : array
        The image, with values from 0 to 1.
    seen : dict of str to array
        The expected image given this person's report, by mechanism.
    sent : bytes
        The codebook's report.
    symbols : list of (codeword, digit)
        The set of symbols that these bytes encode.
    categories : int
        Number of symbols.
    inclusion : float
        Probability that a set contains the true symbol.
    """

    digit: int
    record: Picture
    seen: dict[str, Picture]
    sent: bytes
    symbols: list[tuple[int, int]]
    categories: int
    inclusion: float

    @classmethod
    def of(cls, setting: DemoData, shown: Mapping[str, DemoCollection]) -> Person:
        """Describe the first person, with the reports that each mechanism released."""
        rows, digits = setting.rows("people")
        first = {name: shown[name].reports[:1] for name in TITLES if name in shown}
        report = first["codebook"]
        channel = report.channel.symbols
        assert channel is not None
        symbols = report.columns["symbols"][0].astype(np.int64)
        classes = len(report.mechanism.classes)
        return cls(
            digit=int(digits[0]),
            record=setting.data.schema.rows(rows[:1]).numbers.reshape(rows[0].shape).astype(float),
            seen={name: _expected(one).reshape(rows[0].shape) for name, one in first.items()},
            sent=channel.to_bytes(symbols).tobytes(),
            symbols=[divmod(int(symbol), classes) for symbol in symbols],
            categories=channel.categories,
            inclusion=channel.inclusion[0],
        )

    def pictures(self, epsilon: float) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
        """Return the images before and after, with titles."""
        after = [(f"{TITLES[name]}\nat ε = {epsilon:g}", seen) for name, seen in self.seen.items()]
        return [(f"one person's digit\na {self.digit}", self.record)], after


def _expected(report: Reports) -> Picture:
    """Compute the expected row given the report, clipped to [0, 1]."""
    mechanism, law = report.mechanism, report.channel.symbols
    if law is None:
        row = mechanism.released_features(report, level="feature")[0]
    else:
        # In-house shares of the codewords, equal for all labels, times the likelihood of the set.
        odds = np.repeat(mechanism.counts_ + 1.0, len(mechanism.classes))
        odds[report.columns["symbols"][0]] *= np.exp(law.log_odds)
        codewords = odds.reshape(mechanism.codewords_, -1).sum(axis=1)
        row = codewords / codewords.sum() @ mechanism.prototypes_
    return np.asarray(np.clip(row, 0, 1), np.float64)
