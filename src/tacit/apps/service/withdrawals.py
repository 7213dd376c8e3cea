r"""Withdrawals: how many there were, and how far they may have bent the estimates.

Whoever withdraws after seeing their report may do so because of its noise, and then the reports
that are left do not follow the mechanism's law. Let n reports be left of n + w honest ones. A share
estimated from the n and the one from all n + w differ by :math:`w/(n + w)` times the difference of
two numbers: the estimate from the n, and a mean of what the w reports contribute, each from u⁻ to
u⁺ (`poisoning.reach`). With estimates cut to [0, 1] that is at most
:math:`w/(n + w) \max(u^+, 1 - u^-)`, the bound on w forged reports of n + w.
"""

from __future__ import annotations

from typing import Any


def told(
    reports: int, votes: int, left: int, share: float | None, accuracy: float | None
) -> dict[str, Any]:
    """Say how many withdrew before the results were computed, and what that may have done.

    `left` reports are left; `share` and `accuracy` are the largest shifts, None if there is none
    or no bound.
    """
    found = {"reports": reports, "votes": votes, "share": share, "accuracy": accuracy}
    return {**found, "words": _words(reports, votes, left, share, accuracy)}


def since_closing(reports: int, votes: int) -> str:
    """Say how many withdrew after the results were computed for good; "" if nobody did."""
    if not reports and not votes:
        return ""
    what = _and(_counted(reports, "report"), _counted(votes, "vote"))
    return (
        f"Since the campaign closed, {what} were withdrawn and are deleted. The results stay as "
        "they were computed before."
    )


def _words(reports: int, votes: int, left: int, share: float | None, accuracy: float | None) -> str:
    if not reports and not votes:
        return "Nobody has withdrawn an answer."
    parts = []
    if reports:
        of = f"{_counted(reports, 'report')} of {reports + left:,}"
        parts.append(f"{of} {_were(reports)} withdrawn and deleted.")
    if votes:
        parts.append(f"{_counted(votes, 'vote')} {_were(votes)} withdrawn and deleted.")
    moved = [
        f"{what} by up to {_points(shift)}"
        for what, shift in (("a share", share), ("the accuracy", accuracy))
        if shift is not None
    ]
    if moved:
        parts.append(
            "If people withdrew because of what the noise had made of their answer, that may have "
            f"moved {_and(*moved)} percentage points."
        )
    else:
        parts.append("If people withdrew because of the noise, the estimates are bent.")
    return " ".join(parts)


def _points(shift: float) -> str:
    return f"{min(100 * shift, 100):.3g}"


def _counted(count: int, what: str) -> str:
    return "" if not count else f"{count:,} {what}{'s' if count > 1 else ''}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _and(*parts: str) -> str:
    return " and ".join(part for part in parts if part)
