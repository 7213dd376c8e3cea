"""Shares that hold out against a number of forged reports, on the owner's request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.apps.service.problems import Problem
from tacit.apps.service.surveys import is_survey
from tacit.local.channels import PartitionedChannel
from tacit.local.inference import poisoning
from tacit.local.inference.robust import RobustShares, robust_shares
from tacit.local.reports import Reports
from tacit.privacy import errors

_NONE = "This mechanism's reports name no symbols whose shares could be counted."


def shares(rounds: Sequence[Reports], forged: int, confidence: float) -> dict[str, Any]:
    """Estimate shares with intervals that hold if at most so many reports are forged."""
    people = sum(map(len, rounds))
    errors.whole("results", "forged", forged, least=1, most=max(people - 1, 1))
    if is_survey(rounds[0].mechanism):
        found, usual = _of_survey(rounds[0], forged, confidence)
    else:
        found, usual = _of_symbols(rounds, forged, confidence)
    if not found:
        raise Problem("bad-request", _NONE)
    shift = max(one["shift"] for one in found)
    return {
        "forged": forged,
        "reports": people,
        "confidence": confidence,
        "shares": found,
        "shift": shift,
        "usual_shift": usual,
        "words": (
            f"Whatever {forged:,} forged reports name, they move these shares by up to "
            f"{_points(shift)} percentage points (the usual ones by up to {_points(usual)}). Each "
            f"interval covers the share among honest people with {confidence:.0%} confidence on "
            f"its own, if at most {forged:,} reports are forged. The price is wider intervals."
        ),
    }


def _of_symbols(
    rounds: Sequence[Reports], forged: int, confidence: float
) -> tuple[list[dict[str, Any]], float]:
    """Count labels, in all rounds and partitions alike, and groups where there is one codebook."""
    channel: Any = rounds[0].channel
    partitioned = isinstance(channel, PartitionedChannel)
    law = channel.law if partitioned else channel.symbols
    if law is None:
        return [], 0.0
    sets = np.concatenate([reports.columns["symbols"] for reports in rounds])
    if sets.ndim != 2:
        return [], 0.0
    symbols, classes = np.arange(law.categories), channel.class_count
    asked: list[tuple[str, Any, Any]] = []
    if rounds[0].labelled:
        asked.append(("label", symbols % classes, rounds[0].mechanism.classes))
    if not partitioned:
        codewords = symbols // classes
        asked.append(("group", codewords, [at + 1 for at in range(int(codewords.max()) + 1)]))
    found, usual = [], 0.0
    for what, group_of, names in asked:
        robust = robust_shares(law, sets, group_of, forged, confidence)
        found += _entries(what, names, robust)
        usual = max(usual, _usual(law, group_of, len(sets), forged))
    return found, usual


def _of_survey(
    reports: Reports, forged: int, confidence: float
) -> tuple[list[dict[str, Any]], float]:
    """Count the options of each question; all forgers may have chosen its sheet."""
    channel: Any = reports.channel
    found, usual = [], 0.0
    for number, parts in enumerate(channel.sheets):
        own = reports.columns["symbols"][reports.columns["sheet"] == number]
        for part, place in zip(parts, channel.places(number), strict=True):
            for at, measure in enumerate(part.measures):
                if measure.kind != "option" or len(own) <= forged:
                    continue
                group_of = np.unravel_index(np.arange(part.law.categories), part.shape)[at]
                robust = robust_shares(part.law, own[:, place], group_of, forged, confidence)
                name, _, option = measure.variable.partition("=")
                question = reports.mechanism.questions[name]
                levels = (f"not {option}", option) if option else question.options
                found += _entries(name, levels, robust)
                usual = max(usual, _usual(part.law, group_of, len(own), forged))
    return found, usual


def _entries(what: str, names: Any, robust: RobustShares) -> list[dict[str, Any]]:
    pairs = zip(names, robust.shares.tolist(), robust.intervals.tolist(), strict=True)
    return [
        {"what": what, "of": of, "share": share, "interval": ends, "shift": robust.shift}
        for of, share, ends in pairs
    ]


def _usual(law: Any, group_of: Any, reports: int, forged: int) -> float:
    size = int(np.bincount(group_of)[0])
    return min(poisoning.share_shift(poisoning.law_of(law), size, reports, forged).worst, 1.0)


def _points(shift: float) -> str:
    return f"{min(100 * shift, 100):.3g}"
