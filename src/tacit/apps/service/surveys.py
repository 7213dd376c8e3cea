"""Surveys as campaigns: what a person sends, what the owner reads, and whom it may be shown to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.apps.service import alarms, withdrawals
from tacit.apps.service.problems import Problem
from tacit.local.inference import poisoning
from tacit.local.inference.votes import Law
from tacit.local.reports import Reports
from tacit.local.surveys import statements
from tacit.local.surveys.answers import Answer
from tacit.local.surveys.questions import SeveralOf
from tacit.privacy import errors

KIND = "survey"
LONGEST_QUESTION = 300
FAKES = (1, 10, 100)

OPEN = (
    "none yet: the campaign is open. This answer is for you alone, because answers from before and "
    "after somebody's report reveal that report. Close the campaign, then publish answers."
)
WITHDRAWN = (
    "An answer stays as it was given first. Towards those who see answers to different questions, "
    "first asked before and after a withdrawal, the person who withdrew has the guarantee of a "
    "report alone."
)


def is_survey(mechanism: Any) -> bool:
    """Whether people answer declared questions, and owners ask about the answers."""
    return bool(getattr(mechanism, "kind", None) == KIND)


def together(survey: Any, rows: Any) -> tuple[Any, bool]:
    """Return answers as columns, and whether they are those of a single person.

    One person's answers are a mapping of questions to values; the value of a question with several
    answers may be a list.
    """
    if not isinstance(rows, Mapping):
        return rows, False
    several = {name for name, one in survey.questions.items() if isinstance(one, SeveralOf)}
    single = [value for name, value in rows.items() if name not in several]
    alone = all(np.ndim(value) == 0 for value in single)
    if not single:
        alone = all(isinstance(value, str) for value in rows.values())
    return ({name: [value] for name, value in rows.items()} if alone else rows), alone


def default_questions(survey: Any) -> dict[str, str]:
    """Return what the owner's page asks by itself: a share, a mean or a median of each question."""
    measured: dict[str, set[str]] = {}
    for parts in survey.channel().sheets:
        for measure in (one for part in parts for one in part.measures):
            measured.setdefault(measure.variable.partition("=")[0], set()).add(measure.kind)
            measured.setdefault(measure.variable, set()).add(measure.kind)
    asked = {}
    for name, one in survey.questions.items():
        if hasattr(one, "options") and name in measured:
            asked[name] = f"share of {name}"
        elif measured.get(name, set()) & {"mean", "moments"}:
            asked[name] = f"mean {name}"
        elif "bins" in measured.get(name, ()):
            asked[name] = f"median {name}"
    return asked


def summarize(reports: Reports, confidence: float, closed: bool) -> dict[str, Any]:
    """Compute what the owner's page shows: an answer about each question that was asked."""
    errors.probability("results", "confidence", confidence, zero=False)
    survey = reports.mechanism
    answers = [
        {"name": name, **_told(reports, question, closed, confidence=confidence)}
        for name, question in default_questions(survey).items()
    ]
    nothing: dict[str, Any] = {"classes": [], "codewords": [], "notes": []}
    return {
        "reports": len(reports),
        "votes": 0,
        "confidence": confidence,
        **nothing,
        **dict.fromkeys(("shift", "model", "accuracy")),
        "poisoning": _poisoning(reports),
        "forgery": alarms.forged_answers(reports),
        "answers": answers,
        "guarantee": str(survey.guarantee),
        "closed": closed,
        "readers": next((one["readers"] for one in answers if "readers" in one), OPEN),
    }


def answer(reports: Reports, question: str, closed: bool, **options: Any) -> dict[str, Any]:
    """Answer the owner's question, as `tacit ask --json` does."""
    if len(question) > LONGEST_QUESTION:
        detail = f"A question must have at most {LONGEST_QUESTION} characters."
        raise Problem("bad-request", detail)
    made = reports.mechanism.answer(reports, question, **options)
    found: dict[str, Any] = made.to_plain()
    found["readers"] = f"{found['readers']} {WITHDRAWN}" if closed else OPEN
    if closed:
        found["certificate"] = certificate_of([made])
    return found


def certificate_of(made: list[Answer]) -> str:
    """Return the certificate of a closed survey's answers, as text: every byte of it counts."""
    own = statements.of_answers(made)
    return replace(own, not_protected=(*own.not_protected, WITHDRAWN)).to_json()


def withdrawn(reports: Reports, gone: tuple[int, int]) -> dict[str, Any]:
    """Say how many reports are gone, and how far that may have bent a share of their sheet."""
    lost, _ = gone
    groups = _groups(reports) if lost else []
    shifts = [_forged(count + lost, law, symbols, lost) for count, law, symbols in groups]
    share = min(1.0, max(shifts)) if shifts else None
    return withdrawals.told(lost, 0, len(reports), share, None)


def _groups(reports: Reports) -> list[tuple[int, Law, int]]:
    """Return the shares that may be asked for: reports of their sheet, law, symbols counted."""
    channel: Any = reports.channel
    counts = np.bincount(reports.columns["sheet"], minlength=len(channel.sheets)).tolist()
    return [
        (count, *_named(part, measure))
        for count, parts in zip(counts, channel.sheets, strict=True)
        for part in parts
        for measure in part.measures
        if count and measure.kind == "option"
    ]


def _poisoning(reports: Reports) -> list[dict[str, Any]]:
    """Compute the largest shift of a share by fakes, who all choose the sheet that it is on."""
    groups = _groups(reports)
    smallest = min((count for count, *_ in groups), default=0)
    return [
        {
            "fakes": fakes,
            "lying": poisoning.lying_shift(smallest, fakes).worst,
            "share": min(1.0, max(_forged(*group, fakes) for group in groups)),
        }
        for fakes in FAKES
        if fakes <= smallest
    ]


def _named(part: Any, measure: Any) -> tuple[Law, int]:
    """Return the law of the groups that a report names, and how many of them hold one option."""
    if part.base is None:
        return poisoning.law_of(part.law), part.law.categories // measure.levels
    return Law(part.groups, 1, *part.law.inclusion), part.groups // measure.levels


def _forged(count: int, law: Law, symbols: int, fakes: int) -> float:
    return poisoning.share_shift(law, symbols, count, fakes).worst


def _told(reports: Reports, question: str, closed: bool, **options: Any) -> dict[str, Any]:
    """Answer a question, or say why it cannot be answered: of a sheet there may be no reports."""
    try:
        return {"question": question, **answer(reports, question, closed, **options)}
    except errors.TacitError as error:
        return {"question": question, "problem": str(error)}
