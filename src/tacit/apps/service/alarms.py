"""The alarm on forged reports, in words for the owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit.local.channels import PartitionedChannel, ReportChannel
from tacit.local.inference import forgery, poisoning
from tacit.local.inference.forgery import ForgeryTest, Pattern, Sample
from tacit.local.reports import Reports

_PATTERNS = {
    forgery.LABEL: "name the label “{about}” more often than the mechanism does",
    forgery.CELL: "name the labels of group {about} together more often than the mechanism does",
    forgery.SET: "are equal, or nearly so, more often than the mechanism makes them",
    forgery.RUN: "name neighbouring symbols more often than the mechanism does",
    forgery.PARTITION: "name partition {about} more often than the mechanism does",
}


def forged(rounds: Sequence[Reports]) -> dict[str, Any]:
    """Test whether the reports can have come from the mechanism, and say what that means."""
    samples = [one for one in map(_sample, rounds) if one is not None]
    test = forgery.forgery_test(samples)
    return {
        "testable": test.testable,
        "alarm": test.alarm,
        "false_alarm_rate": test.false_alarm_rate,
        "pattern": None if test.pattern is None or not test.alarm else test.pattern.kind,
        "excess": round(test.pattern.excess) if test.pattern and test.alarm else None,
        "seen_from": test.seen_from,
        "words": _words(test, rounds),
    }


def _sample(reports: Reports) -> Sample | None:
    channel, columns = reports.channel, reports.columns
    if isinstance(channel, PartitionedChannel):
        places, sets = columns["partition"], columns["symbols"]
        return Sample(channel.law, sets, channel.class_count, places, channel.partitions)
    if channel.symbols is None:
        return None
    return Sample(channel.symbols, columns["symbols"], channel.class_count)


def _words(test: ForgeryTest, rounds: Sequence[Reports]) -> str:
    if not test.testable:
        return (
            "Forged reports cannot be told from honest ones in this campaign: each report could "
            "be an honest one. The table shows how far they can shift a share."
        )
    people, channel = sum(map(len, rounds)), rounds[0].channel
    if test.alarm and test.pattern is not None:
        return _alarmed(test, test.pattern, rounds, people)
    return (
        f"No alarm: the reports agree with the mechanism. {_noticed(test, channel, people)} Fakes "
        "that imitate the mechanism, such as people who lie about their row, are never noticed: "
        "each 1 % of them can shift a share by up to 1 percentage point."
    )


def _noticed(test: ForgeryTest, channel: ReportChannel, people: int) -> str:
    """Say from how many crude forgeries on the alarm is likely, and what fewer can do."""
    least = test.seen_from[forgery.LABEL if channel.labelled else forgery.SET]
    what = "name one label as often as they can" if channel.labelled else "are all equal"
    if least is None:
        return f"Forged reports that {what} would not be noticed in this campaign."
    if least == 1:
        return f"Forged reports that {what} would be noticed, even a single one."
    return (
        f"Forged reports that {what} would be noticed from about {least:,} on; fewer can shift a "
        f"share by up to {_points(channel, people, least - 1)} percentage points."
    )


def _alarmed(test: ForgeryTest, pattern: Pattern, rounds: Sequence[Reports], people: int) -> str:
    about = pattern.about
    if pattern.kind == forgery.LABEL:
        about = rounds[0].mechanism.classes[about]
    elif isinstance(about, int):
        about += 1
    count = max(round(pattern.excess), 1)
    return (
        f"Alarm: about {count:,} reports {_PATTERNS[pattern.kind].format(about=about)}. If these "
        f"are forged, they may have shifted a share by up to "
        f"{_points(rounds[0].channel, people, count)} percentage points. Honest reports cause "
        f"this alarm with a probability of at most {100 * test.false_alarm_rate:g} %, however "
        "often it is looked at."
    )


def _points(channel: ReportChannel, people: int, fakes: int) -> str:
    """Return the largest shift of the share of a label, or of a group, in percentage points."""
    law = channel.law if isinstance(channel, PartitionedChannel) else channel.symbols
    assert law is not None
    group = law.categories // channel.class_count if channel.labelled else 1
    shift = poisoning.share_shift(poisoning.law_of(law), group, people, fakes).worst
    return f"{min(100 * shift, 100):.3g}"
