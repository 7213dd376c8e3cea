"""The owner's results: shares with intervals, a model, its accuracy by votes, effects of fakes.

All of it is post-processing of reports and votes. The caller has checked that there are at least as
many reports as the campaign's minimum.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.apps.service import cells, withdrawals
from tacit.apps.service.alarms import forged
from tacit.local.channels import PartitionedChannel
from tacit.local.inference import finite, poisoning
from tacit.local.inference.decisions import ConstantAnswerWarning
from tacit.local.inference.default import model_for
from tacit.local.inference.finite import Evidence
from tacit.local.inference.noise_aware import evidence_of
from tacit.local.inference.proportions_classifier import pooled
from tacit.local.inference.validation import estimate, exact_interval
from tacit.local.inference.votes import Votes
from tacit.local.reports import Reports
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.apps.service.campaign import Campaign

Reals = npt.NDArray[np.float64]

SHIFTED = 0.001
"""The p-value below which the in-house counts are not used, as with `prior="auto"`."""

OTHERS_IN_CELLS = (
    "People's answers are distributed differently from the in-house rows, so the shares of cells "
    "that the model was learned with are estimated from the reports alone."
)

OTHERS = (
    "People's answers are distributed differently from the in-house rows, so the model is learned "
    "from the reports alone."
)


CONSTANT = (
    "The published model answers “{}” for everyone: its accuracy is the share of that label, and "
    "tells nothing about the others. Votes show the recall of each label in campaigns with "
    "--vote-by-class."
)


def summarize(
    campaign: Campaign,
    reports: Reports | Sequence[Reports],
    votes: Votes | None,
    model: dict[str, Any] | None,
    *,
    confidence: float = 0.95,
    shift: float | None = None,
    fakes: Sequence[int] = (1, 10, 100),
) -> dict[str, Any]:
    """Compute everything that the owner's page shows, JSON-ready.

    Parameters
    ----------
    campaign : Campaign
        The campaign.
    reports, votes
        The reports, at least one, in one table for each round; the votes, or None if nobody has
        voted.
    model : dict, optional
        Description of the published model: its hash and the number of reports it was learned from.
    confidence : float
        Confidence of every interval; each holds on its own.
    shift : float, optional
        The p-value that a model of partitions was learned with.
    fakes : sequence of int
        Numbers of fake participants for which to compute the largest shift.
    """
    confidence = errors.probability("results", "confidence", confidence, zero=False)
    rounds = [reports] if isinstance(reports, Reports) else list(reports)
    rounds = [one.as_multiset() for one in rounds]
    people = sum(map(len, rounds))
    if not people:
        errors.refuse("results", "reports", "at least one", 0)
    cast = 0 if votes is None else len(votes)
    if cast < campaign.minimum:
        votes = None  # too few votes give no results, like too few reports
    if campaign.adaptive:
        shares = _of_partitions(rounds, confidence, shift)
        shares["partitions"] = cells.shares(rounds[-1], confidence, campaign.minimum)
    else:
        by_symbols = rounds[0].channel.symbols is not None
        shares = (_of_codebook if by_symbols else _of_labels)(rounds[0], confidence)
    return {
        "reports": people,
        "votes": cast,
        "confidence": confidence,
        **shares,
        "model": model,
        "accuracy": None if votes is None else estimate(votes, confidence).to_dict(),
        "poisoning": _poisoning(campaign, people, votes, fakes),
        "forgery": forged(rounds),
    }


def learn(reports: Reports) -> Any:
    """Learn the classifier to publish; without a warning if people differ from in-house rows."""
    shifted = (
        reports.channel.symbols is not None
        and reports.labelled
        and _shift(evidence_of(reports), reports).p_value < SHIFTED
    )
    # Not "auto", which warns: nobody reads warnings on a server. The results say it instead.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantAnswerWarning)
        prior = "none" if shifted else "inhouse"
        return model_for(reports.mechanism, prior=prior).fit(reports)


def notes(model: Any) -> list[str]:
    """Say what the owner should know about a published model: that it always answers the same."""
    answer = getattr(model, "constant_answer", None)
    return [] if answer is None else [CONSTANT.format(answer)]


def _of_codebook(reports: Reports, confidence: float) -> dict[str, Any]:
    """Estimate unbiased shares, for which intervals and the effect of fakes are known exactly."""
    evidence = evidence_of(reports)
    shift, table = _shift(evidence, reports), cells.unbiased(evidence)
    by_class, by_codeword = (
        (np.clip(table.sum(axis=axis), 0, 1), finite.share_interval(evidence, axis, confidence))
        for axis in (0, 1)
    )
    classes = reports.mechanism.classes
    return {
        "classes": _entries("class", classes, *by_class) if reports.labelled else [],
        "codewords": _entries("codeword", range(evidence.codewords), *by_codeword),
        "shift": shift.p_value,
        "notes": [OTHERS] if shift.p_value < SHIFTED else [],
    }


def _of_partitions(
    rounds: Sequence[Reports], confidence: float, shift: float | None
) -> dict[str, Any]:
    """Estimate the shares of labels: all partitions and rounds agree on these, not on cells."""
    entries: list[dict[str, Any]] = []
    if rounds[0].labelled:
        evidence = pooled(rounds)
        shares = np.clip(cells.unbiased(evidence).sum(axis=0), 0, 1)
        ends = finite.share_interval(evidence, 0, confidence)
        entries = _entries("class", rounds[0].mechanism.classes, shares, ends)
    notes = [OTHERS_IN_CELLS] if shift is not None and shift < SHIFTED else []
    return {"classes": entries, "codewords": [], "shift": shift, "notes": notes}


def _shift(evidence: Evidence, reports: Reports) -> finite.ShiftTest:
    mechanism = reports.mechanism
    return finite.shift_test(evidence, mechanism.counts_, mechanism.count_variance_)


def _of_labels(reports: Reports, confidence: float) -> dict[str, Any]:
    """Estimate shares for mechanisms that flip the label separately; none without labels."""
    entries: list[dict[str, Any]] = []
    flip, people = reports.channel.flip, len(reports)
    if flip is not None:
        named = np.bincount(reports.columns["label"], minlength=flip.categories)
        law = poisoning.law_of(flip)
        share = np.clip((named / people - law.other) / (law.own - law.other), 0, 1)
        ends = np.array(
            [exact_interval(n, people, law.own, law.other, confidence) for n in named.tolist()]
        )
        entries = _entries("class", reports.mechanism.classes, share, ends)
    return {"classes": entries, "codewords": [], "shift": None, "notes": []}


def _entries(name: str, keys: Iterable[Any], shares: Reals, ends: Reals) -> list[dict[str, Any]]:
    return [
        {name: key, "share": share, "interval": interval}
        for key, share, interval in zip(keys, shares.tolist(), ends.tolist(), strict=True)
    ]


def withdrawn(
    campaign: Campaign, reports: int, votes: Votes | None, gone: tuple[int, int]
) -> dict[str, Any]:
    """Say how many reports and votes are gone, and how far that may have bent the estimates."""
    lost, unvoted = gone
    share = accuracy = None
    if lost:
        shifts = _share_shifts(campaign, reports + lost, lost).values()
        share = max((one for one in shifts if one is not None), default=None)
    if unvoted and votes is not None:
        shift = poisoning.accuracy_shift(votes.ballot, len(votes) + unvoted, unvoted)
        accuracy = min(shift.worst, 1.0)
    return withdrawals.told(lost, unvoted, reports, share, accuracy)


def _poisoning(
    campaign: Campaign, reports: int, votes: Votes | None, fakes: Sequence[int]
) -> list[dict[str, Any]]:
    """Compute the largest shift of each estimate, at most 1, for each number of fakes."""
    return [
        {
            "fakes": count,
            "lying": poisoning.lying_shift(reports, count).worst,
            **_share_shifts(campaign, reports, count),
            "accuracy": None
            if votes is None or count > len(votes)
            else min(poisoning.accuracy_shift(votes.ballot, len(votes), count).worst, 1.0),
        }
        for count in fakes
        if count <= reports
    ]


def _share_shifts(campaign: Campaign, reports: int, fakes: int) -> dict[str, float | None]:
    channel, by_class, by_codeword = campaign.channel, None, None
    if isinstance(channel, PartitionedChannel):
        if channel.labelled:
            by_class = poisoning.class_shift(channel.law, channel.class_count, reports, fakes)
    elif (law := channel.symbols) is not None:
        classes = channel.class_count
        by_codeword = poisoning.codeword_shift(law, classes, reports, fakes)
        if channel.labelled:
            by_class = poisoning.class_shift(law, classes, reports, fakes)
    elif channel.flip is not None:
        by_class = poisoning.label_shift(channel.flip, reports, fakes)
    return {
        "class_share": None if by_class is None else min(by_class.worst, 1.0),
        "codeword_share": None if by_codeword is None else min(by_codeword.worst, 1.0),
    }
