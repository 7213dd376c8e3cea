"""Answers with intervals that cover the noise of reports and the sampling of people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from tacit.local import origins
from tacit.local.reports import Reports
from tacit.local.surveys import grammar, intervals, moments, statements
from tacit.local.surveys.intervals import Estimate
from tacit.local.surveys.targets import Quantile, Target
from tacit.privacy import errors
from tacit.privacy.accounting.readers import DELTA
from tacit.privacy.certificate import Certificate

NONE = "none: rows without noise"
COVERS = (
    "The interval covers the noise of the reports and the sampling of people, who are taken as a "
    "simple random sample of a large population, independent between rounds and between sheets. It "
    "is exact for a share that is reported by itself, on one sheet; else it is an approximation, "
    "which a few people whose numbers are far from everybody else's can break."
)
ROWS_COVER = (
    "The interval covers the sampling of people, who are taken as a simple random sample of a "
    "large population."
)
SEVERAL = " Several reports of one person are taken as those of different people."
SMOOTH = " Answers within a bin, a width of {:.3g}, are taken as smoothly distributed."


@dataclass(frozen=True)
class Answer:
    """The estimates that answer a question, what their intervals cover, and the guarantees.

    With a `first_date`, numbers are days after it; `said` gives them as dates.
    """

    question: str
    estimates: tuple[Estimate, ...]
    covers: str
    guarantee: str
    readers: str
    people: int
    first_date: str | None = None
    certificate: Certificate | None = field(default=None, repr=False, compare=False)
    """Local ε towards the collector, and (ε, δ) towards readers; None of rows without noise."""

    @property
    def value(self) -> float:
        """The number, where the answer is one."""
        return self._one.value

    @property
    def standard_error(self) -> float:
        """The standard error, where the answer is one number."""
        return self._one.standard_error

    @property
    def interval(self) -> tuple[float, float]:
        """The interval, where the answer is one number."""
        return self._one.interval

    def __str__(self) -> str:
        """Write one line per number: its value and its interval."""
        lines = [
            f"  {one.label}: {self.said(one.value)}, between {self.said(low)} and {self.said(high)}"
            for one in self.estimates
            for low, high in (one.interval,)
        ]
        return "\n".join([self.question, *lines])

    def said(self, number: float) -> str:
        """Return one of the numbers in four digits, or as a date if it is one."""
        return said(number, self.first_date)

    @property
    def _one(self) -> Estimate:
        if len(self.estimates) != 1:
            remedy = "Read estimates, or table()."
            errors.refuse("answer", "value", "asked of one number", len(self.estimates), remedy)
        return self.estimates[0]

    def table(self) -> list[dict[str, Any]]:
        """Return one row per estimate, as pandas.DataFrame and pyarrow take it."""
        return [
            {
                "question": self.question,
                "group": one.label,
                "value": one.value,
                "standard_error": one.standard_error,
                "lower": one.interval[0],
                "upper": one.interval[1],
                "people": self.people,
            }
            for one in self.estimates
        ]

    def write(self, path: str | Path) -> None:
        """Write the table to a .csv or .parquet file."""
        write([self], path)

    def to_plain(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        names = ("covers", "guarantee", "readers", "people")
        told: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.first_date is not None:
            told["days_after"] = self.first_date
        if len(self.estimates) == 1:
            one = self.estimates[0]
            spread = {"standard_error": _plain(one.standard_error), "interval": _ends(one)}
            return {"value": _plain(one.value), **spread, **told}
        return {
            "groups": {one.label: _plain(one.value) for one in self.estimates},
            "standard_error": {one.label: _plain(one.standard_error) for one in self.estimates},
            "interval": {one.label: _ends(one) for one in self.estimates},
            **told,
        }


def answer(
    survey: Any,
    reports: Any,
    question: str,
    *,
    confidence: float = 0.95,
    simultaneous: bool = False,
    delta: float = DELTA,
    fake: int = 0,
) -> Answer:
    """Answer a question from reports, or from rows without noise.

    With `simultaneous`, all intervals hold together (Bonferroni). `delta` is δ of the guarantee
    towards readers of the answer, and `fake` how many reports of a sheet may be made up.
    """
    confidence = errors.within("answer", "confidence", confidence, "(0, 1)")
    targets = grammar.targets(survey, question)
    alpha = (1 - confidence) / (len(targets) if simultaneous else 1)
    z = float(norm.ppf(1 - alpha / 2))
    private = isinstance(reports, Reports)
    made = Answer(
        question=question,
        estimates=tuple(estimates(survey, reports, question, targets, z)),
        covers=covered(targets, private, len(targets), confidence, simultaneous),
        guarantee=NONE,
        readers=NONE,
        people=people(survey, reports),
        first_date=grammar.first_date(survey, question),
    )
    return promised(made, [reports], delta, fake) if private else made


def estimates(
    survey: Any, reports: Any, question: str, targets: Sequence[Any], z: float
) -> list[Estimate]:
    """Estimate each number, from reports or from rows without noise."""
    if not isinstance(reports, Reports):
        return [_of_rows(survey, reports, one, z) for one in targets]
    _must_be_of(survey, reports)
    used = {one.moments for one in targets}
    where = f"answer: {question!r}"
    found = {some: moments.from_reports(reports, some, where) for some in used}
    return [one.estimate(found[one.moments], z) for one in targets]


def covered(
    targets: Sequence[Any], private: bool, count: int, confidence: float, simultaneous: bool
) -> str:
    """Say what the intervals of so many numbers cover."""
    covers = COVERS + _bins(targets) if private else ROWS_COVER
    return covers + _together(count, confidence, simultaneous)


def promised(made: Answer, rounds: Sequence[Reports], delta: float, fake: int) -> Answer:
    """Add what is promised to people, towards the collector and towards readers."""
    towards = statements.towards_readers(rounds, delta, fake)
    certificate = statements.certified(rounds, towards)
    several = any(one.per_person.most > 1 for one in rounds)
    return replace(
        made,
        covers=made.covers + (SEVERAL if several else ""),
        guarantee=str(certificate.guarantee),
        readers=str(towards),
        certificate=certificate,
    )


def people(survey: Any, reports: Any) -> int:
    """Count who answered."""
    return len(reports) if isinstance(reports, Reports) else len(survey.encode(reports))


def said(number: float, first_date: str | None = None) -> str:
    """Return a number in four digits, or the date that is so many days after the first."""
    if first_date is None or not math.isfinite(number):
        return f"{number:.4g}"
    return (date.fromisoformat(first_date) + timedelta(days=round(number))).isoformat()


def write(found: Sequence[Answer], path: str | Path) -> None:
    """Write the tables of several answers below each other, to a .csv or .parquet file."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.Table.from_pylist([row for one in found for row in one.table()])
    if errors.choice("answer", "file", Path(path).suffix, (".csv", ".parquet")) == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)


def askable(survey: Any, reports: Any) -> list[str]:
    """List one or two questions about each question of a survey, as far as the sheets allow."""
    asked = []
    for name, question in survey.questions.items():
        numeric = question.kind in ("number", "date")
        asked += [f"mean {name}", f"median {name}"] if numeric else [f"share of {name}"]
    if not isinstance(reports, Reports):
        return asked
    return [one for one in asked if _answerable(survey, reports, one)]


def _answerable(survey: Any, reports: Reports, question: str) -> bool:
    """Return whether some sheet with two reports or more states each moment."""
    sheets: Any = reports.channel.sheets  # type: ignore[attr-defined]
    people = np.bincount(reports.columns["sheet"], minlength=len(sheets)).tolist()
    wanted = {one for target in grammar.targets(survey, question) for one in target.moments}
    return all(
        any(
            count > 1 and moments.stated(parts, one)
            for parts, count in zip(sheets, people, strict=True)
        )
        for one in wanted
    )


def change(
    survey: Any,
    before: Any,
    after: Any,
    question: str,
    *,
    delta: float = DELTA,
    fake: int = 0,
    **options: Any,
) -> Answer:
    """Answer by how much each number has changed between two rounds of different people."""
    private = [one for one in (before, after) if isinstance(one, Reports)]
    origins.must_be_once("change", sum((one.releases for one in private), ()))
    first, second = (answer(survey, one, question, **options) for one in (before, after))
    pairs = zip(first.estimates, second.estimates, strict=True)
    changes = tuple(intervals.difference(a, b, a.label) for a, b in pairs)
    made = replace(
        second,
        question=f"change of {question}",
        estimates=changes,
        people=first.people + second.people,
        first_date=None,  # a change is a number of days
        certificate=None,
    )
    if len(private) < 2:
        return replace(made, guarantee=NONE, readers=NONE)
    return promised(made, private, delta, fake)


def _must_be_of(survey: Any, reports: Reports) -> None:
    if reports.mechanism.to_plain() != survey.to_plain():
        raise errors.InvalidData("answer: reports must be of this survey.")


def _of_rows(survey: Any, rows: Any, target: Any, z: float) -> Estimate:
    if not isinstance(target, Quantile):
        return target.estimate(moments.from_rows(survey, rows, target.moments), z)  # type: ignore[no-any-return]
    values = survey.variables[target.variable].values("answer", rows[target.variable])
    if target.group is not None:
        name, code = target.group
        values = values[survey.variables[name].encode("answer", rows[name]) == code]
    return target.exact(values, z)


def _bins(targets: Sequence[Target]) -> str:
    edges = [one.edges for one in targets if isinstance(one, Quantile)]
    return SMOOTH.format(edges[0][1] - edges[0][0]) if edges else ""


def _together(count: int, confidence: float, simultaneous: bool) -> str:
    if count == 1:
        return f" It holds with {confidence:.0%} confidence."
    if simultaneous:
        return f" All {count} hold together with {confidence:.0%} confidence (Bonferroni)."
    return f" Each holds by itself with {confidence:.0%} confidence, not all {count} together."


def _plain(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _ends(one: Estimate) -> list[float | None]:
    return [_plain(end) for end in one.interval]
