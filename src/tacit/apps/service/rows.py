"""Campaigns and their rounds as rows of their tables, and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tacit.apps.service.campaign import Campaign
from tacit.apps.service.notice import Notice
from tacit.privacy import artifact


def of_campaign(campaign: Campaign) -> dict[str, Any]:
    """Return what people are told as columns of `campaigns`."""
    epsilon = campaign.vote_epsilon
    return {
        "id": campaign.id,
        "title": campaign.title,
        "purpose": campaign.purpose,
        "labelled": campaign.labelled,
        "question": campaign.question,
        "vote_epsilon": None if epsilon is None else repr(epsilon),
        "vote_by_class": campaign.vote_by_class,
        "opens": text_of(campaign.opens),
        "closes": text_of(campaign.closes),
        "minimum": campaign.minimum,
        "quota": campaign.quota,
        "about": json.dumps(campaign.about.to_plain()),
        "draft": campaign.draft,
    }


def of_round(campaign: Campaign) -> dict[str, Any]:
    """Return the row of a round: its mechanism, and the encoder for browsers if it has one."""
    mechanism = campaign.mechanism
    return {
        "campaign": campaign.id,
        "number": campaign.round,
        "fingerprint": campaign.fingerprint,
        "artifact": artifact.pack(mechanism),
        "encoder": mechanism.onnx() if hasattr(mechanism, "onnx") else None,
    }


def campaign_of(row: Any, mechanism: Any, number: int) -> Campaign:
    """Read a row of `campaigns`, with the mechanism of one of its rounds."""
    return Campaign(
        id=row.id,
        title=row.title,
        purpose=row.purpose,
        mechanism=mechanism,
        round=number,
        labelled=row.labelled,
        question=row.question,
        vote_epsilon=None if row.vote_epsilon is None else float(row.vote_epsilon),
        vote_by_class=row.vote_by_class,
        opens=_time_of(row.opens),
        closes=_time_of(row.closes),
        minimum=row.minimum,
        quota=row.quota,
        about=Notice.from_plain(json.loads(row.about)),
        draft=row.draft,
    )


def text_of(moment: datetime | None) -> str | None:
    """Write a time as the tables hold it: in UTC, to the second."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds")


def _time_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
