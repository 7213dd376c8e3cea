"""One person of the demonstration: the record, what left the device, and what a server sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.apps.demo.collection import Collection, DemoData
from tacit.local.reports import Reports

Picture = npt.NDArray[np.float64]
TITLES = {"codebook": "codebook", "vlm": "VLM", "direct": "direct noising"}
"""What the mechanisms are called for readers, in the order to show them in."""


@dataclass(frozen=True, eq=False)
class Person:
    """The first of those who report.

    Parameters
    ----------
    digit : int
        The label; a report hides it too.
    record : array
        The picture, from 0 to 1.
    seen : dict of str to array
        By mechanism, the picture that this person's report lets one expect.
    sent : bytes
        The codebook's report.
    symbols : list of (codeword, digit)
        The set of symbols that these bytes are.
    categories : int
        How many symbols there are.
    inclusion : float
        The chance that a set holds the true symbol.
    """

    digit: int
    record: Picture
    seen: dict[str, Picture]
    sent: bytes
    symbols: list[tuple[int, int]]
    categories: int
    inclusion: float

    @classmethod
    def of(cls, setting: DemoData, shown: Mapping[str, Collection]) -> Person:
        """With the reports that this person sent through each mechanism."""
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
        """Before and after, with titles."""
        after = [(f"{TITLES[name]}\nat ε = {epsilon:g}", seen) for name, seen in self.seen.items()]
        return [(f"one person's digit\na {self.digit}", self.record)], after


def _expected(report: Reports) -> Picture:
    """What the report lets one expect of the row, from 0 to 1."""
    mechanism, law = report.mechanism, report.channel.symbols
    if law is None:
        row = mechanism.released_features(report, level="feature")[0]
    else:
        # In-house shares of the codewords, all labels alike, times what the set of symbols tells.
        odds = np.repeat(mechanism.counts_ + 1.0, len(mechanism.classes))
        odds[report.columns["symbols"][0]] *= np.exp(law.log_odds)
        codewords = odds.reshape(mechanism.codewords_, -1).sum(axis=1)
        row = codewords / codewords.sum() @ mechanism.prototypes_
    return np.asarray(np.clip(row, 0, 1), np.float64)
