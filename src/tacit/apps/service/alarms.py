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
_ON_ANSWERS = {
    forgery.LABEL: "name one answer",
    forgery.CELL: "name one answer",
    forgery.SET: "are equal, or nearly so,",
    forgery.RUN: "name neighbouring answers",
}
_UNSEEN = (
    "Forged reports cannot be told from honest ones in this campaign: each report could be an "
    "honest one. The table shows how far they can shift a share."
)
_NEVER = (
    "Fakes that imitate the mechanism, such as people who lie about their answer, are never "
    "noticed: each 1 % of them can shift a share by up to 1 percentage point."
)


def forged(rounds: Sequence[Reports]) -> dict[str, Any]:
    """Test whether the reports can have come from the mechanism, and say what that means."""
    samples = [one for one in map(_sample, rounds) if one is not None]
    test = forgery.forgery_test(samples)
    return _told(test, _words(test, rounds))


def forged_answers(reports: Reports) -> dict[str, Any]:
    """Test the reports of a survey, each part of each sheet by itself.

    How many people got each sheet is not tested: honest people may stop at the questions of one.
    Nor are numbers that are released by a law of their own: a release names a single symbol.
    """
    channel: Any = reports.channel
    parts, samples = [], []
    for number, own in enumerate(channel.sheets):
        sets = reports.columns["symbols"][reports.columns["sheet"] == number]
        for part, place in zip(own, channel.places(number), strict=True):
            if part.base is not None:
                continue
            parts.append(part)
            # A joint symbol is read as the level of the last measure, and that of the others.
            last = part.shape[-1] if len(part.shape) > 1 else 1
            samples.append(Sample(part.law, sets[:, place], last))
    test = forgery.forgery_test(samples)
    if not test.testable:
        return _told(test, _UNSEEN)
    return _told(test, _words_on_answers(test, parts[test.sample], samples[test.sample]))


def _told(test: ForgeryTest, words: str) -> dict[str, Any]:
    return {
        "testable": test.testable,
        "alarm": test.alarm,
        "false_alarm_rate": test.false_alarm_rate,
        "pattern": None if test.pattern is None or not test.alarm else test.pattern.kind,
        "excess": round(test.pattern.excess) if test.pattern and test.alarm else None,
        "seen_from": test.seen_from,
        "words": words,
    }


def _words_on_answers(test: ForgeryTest, part: Any, sample: Sample) -> str:
    names = " and ".join(f"“{one.variable.partition('=')[0]}”" for one in part.measures)
    shift = f"answers about {names} by up to {{}} percentage points"
    if test.alarm and test.pattern is not None:
        count = max(round(test.pattern.excess), 1)
        what = _ON_ANSWERS[test.pattern.kind]
        return (
            f"Alarm: about {count:,} reports about {names} {what} more often than the mechanism "
            f"does. If these are forged, they may have shifted "
            f"{shift.format(_points_of(part, len(sample.sets), count))}. {_rate(test)}"
        )
    least = test.seen_from[forgery.SET]
    if least is None:
        seen = "would not be noticed in this campaign."
    elif least == 1:
        seen = "would be noticed, even a single one."
    else:
        points = _points_of(part, len(sample.sets), least - 1)
        seen = f"would be noticed from about {least:,} on; fewer can shift {shift.format(points)}."
    return (
        f"No alarm: the reports agree with the mechanism. Forged reports about {names} that are "
        f"all equal {seen} {_NEVER}"
    )


def _rate(test: ForgeryTest) -> str:
    return (
        f"Honest reports cause this alarm with a probability of at most "
        f"{100 * test.false_alarm_rate:g} %, however often it is looked at."
    )


def _points_of(part: Any, people: int, fakes: int) -> str:
    """Return the largest shift of a share that a part of a sheet measures."""
    law = poisoning.law_of(part.law)
    groups = {part.law.categories // levels for levels in part.shape}
    shifts = [poisoning.share_shift(law, g, people, fakes).worst for g in groups]
    return f"{min(100 * max(shifts), 100):.3g}"


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
        return _UNSEEN
    people, channel = sum(map(len, rounds)), rounds[0].channel
    if test.alarm and test.pattern is not None:
        return _alarmed(test, test.pattern, rounds, people)
    return (
        f"No alarm: the reports agree with the mechanism. {_noticed(test, channel, people)} "
        f"{_NEVER}"
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
        f"{_points(rounds[0].channel, people, count)} percentage points. "
        f"{_rate(test)}"
    )


def _points(channel: ReportChannel, people: int, fakes: int) -> str:
    """Return the largest shift of the share of a label, or of a group, in percentage points."""
    law = channel.law if isinstance(channel, PartitionedChannel) else channel.symbols
    assert law is not None
    group = law.categories // channel.class_count if channel.labelled else 1
    shift = poisoning.share_shift(poisoning.law_of(law), group, people, fakes).worst
    return f"{min(100 * shift, 100):.3g}"
