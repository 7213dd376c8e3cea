"""The report of `tacit train audit`: the results of the attacks, and what the claim allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.apps.cli.console import print_json, print_table, print_text
from tacit.privacy.decimals import above, below
from tacit.privacy.guarantees import Guarantee

if TYPE_CHECKING:
    from tacit.audit.attributes import AttributeReport
    from tacit.audit.membership import AttackReport

Line = tuple[str, str, str, str, str]

_LEGEND = (
    "TPR: share of members called members. FPR: share of others called members. "
    "Advantage: TPR minus FPR. Allowed: the most that any attack can reach if the claim is true, "
    "on average over fits; for a TPR, at the upper end of the interval of its FPR."
)


@dataclass(frozen=True)
class AuditResult:
    """The results of all attacks on one model."""

    name: str
    claim: Guarantee | None
    reports: Sequence[AttackReport]
    game: str | None = None
    attribute: tuple[str, AttributeReport] | None = None
    notes: tuple[str, ...] = ()

    @property
    def refuted(self) -> bool:
        """Check whether some attack refutes the claim."""
        return any(report.refuted for report in self.reports)

    @property
    def best(self) -> AttackReport:
        """Return the report with the largest proved ε, or else the largest estimate."""
        return max(self.reports, key=lambda one: (one.epsilon, one.estimated_epsilon))

    @property
    def _verdict(self) -> str:
        if not self.best.certified:
            return "no proof"
        if self.best.tested is None:
            return "nothing to refute"
        return "REFUTED" if self.refuted else "not refuted"

    def show(self, as_json: bool) -> None:
        """Print a table and its conclusions, or one JSON object."""
        if as_json:
            return print_json(self.to_dict())
        confidence = f"{self.best.confidence:.0%} interval".replace("%", " %")
        lines = [line for report in self.reports for line in self._lines(report)]
        if self.attribute is not None:
            lines += _attribute_lines(*self.attribute)
        title = f"{self.name}: {self._verdict}"
        print_table(title, ("", "", "measured", confidence, "allowed"), lines)
        print_text(_LEGEND)
        print_text(f"Claimed: {self.claim or 'nothing'}.")
        print_text(f"{self.best.attack}: {self.best.words}.")
        for note in self.notes:
            print_text(note)

    def _lines(self, report: AttackReport) -> Iterator[Line]:
        yield _line(report.attack, "advantage", report.advantage, report.ceiling)
        if report is not self.reports[0] and not report.certified:
            return  # the same scores at another threshold: all else is equal
        yield _line("", "AUC", report.auc, None)
        yield from _rates(report)
        limit = "" if report.tested is None else above(report.tested.epsilon, 4)
        if report.certified:
            yield "", "ε, proved", below(report.epsilon, 4), "", limit
        else:
            yield "", "ε, no proof", f"{report.estimated_epsilon:.4g}", "", limit

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        attribute = None
        if self.attribute is not None:
            attribute = {"column": self.attribute[0], **self.attribute[1].to_dict()}
        return {
            "model": self.name,
            "claim": None if self.claim is None else str(self.claim),
            "certified": self.best.certified,
            "refuted": self.refuted,
            "epsilon": self.best.epsilon,
            "words": f"{self.best.attack}: {self.best.words}",
            "game": self.game,
            "members": self.best.members,
            "others": self.best.others,
            "attacks": [report.to_dict() for report in self.reports],
            "attribute": attribute,
            "notes": list(self.notes),
        }


def _rates(report: AttackReport) -> Iterator[Line]:
    from tacit.audit.membership import true_positive_ceiling

    tested = report.tested
    for rate in report.rates:
        if rate.target * report.others < 2:  # too few others for such a rate
            continue
        allowed = None
        if tested is not None:
            # At the upper end of the interval of false positives.
            most = rate.false_positive.high
            allowed = true_positive_ceiling(most, tested.epsilon, tested.delta)
        yield _line("", f"TPR at FPR {rate.target:g}", rate.true_positive, allowed)


def _attribute_lines(column: str, report: AttributeReport) -> list[Line]:
    title = f"{column}, {report.values} values"
    return [
        _line(title, "advantage", report.advantage, report.ceiling),
        _line("", "accuracy, members", report.on_members, None),
        _line("", "accuracy, others", report.on_others, None),
        ("", "accuracy, commonest", f"{report.baseline:.3f}", "", ""),
    ]


def _line(what: str, name: str, interval: Any, allowed: float | None) -> Line:
    limit = "" if allowed is None else f"{allowed:.3f}"
    ends = f"{interval.low:.3f} to {interval.high:.3f}"
    return what, name, f"{interval.value:.3f}", ends, limit
