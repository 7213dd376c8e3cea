"""Drafts: what people will be told may be changed until the campaign opens, never later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tacit.apps.service import rows, tables
from tacit.apps.service.database import named_errors
from tacit.apps.service.notice import Notice
from tacit.apps.service.problems import Problem
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.apps.service.campaign import Campaign
    from tacit.apps.service.store import Store

EDITABLE = ("title", "purpose", "question", "opens", "closes", "minimum", "quota", "about")
"""What may be changed; the mechanism, the labels and the votes decide the guarantee."""
_REMEDY = "Create another campaign."


def edit(store: Store, name: str, changes: Mapping[str, Any]) -> Campaign:
    """Change a draft; return it. Refuse a campaign that is open, or was."""
    draft = store.campaign(name)
    made = replace(draft, **_settings(draft, changes))
    values = rows.of_campaign(made)
    _update(store, name, {one: values[one] for one in EDITABLE})
    return store.campaign(name)


def begin(store: Store, name: str) -> None:
    """Open a draft: from now on it takes answers. Opening it again changes nothing."""
    if store.campaign(name).draft:
        _update(store, name, {"draft": False})


def _update(store: Store, name: str, values: dict[str, Any]) -> None:
    c = tables.campaigns.c
    update = tables.campaigns.update().where(c.id == name, c.draft)
    with named_errors(), store.engine.begin() as connection:
        if connection.execute(update.values(**values)).rowcount != 1:
            raise Problem("not-draft")


def _settings(draft: Campaign, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Read changes from JSON values; statements that are left out of `about` stay."""
    for name in set(changes) - set(EDITABLE):
        errors.refuse("draft", "a change", f"one of {', '.join(EDITABLE)}", name, _REMEDY)
    made = dict(changes)
    for name in {"opens", "closes"} & set(made):
        made[name] = _moment(name, made[name])
    if "about" in made:
        if not isinstance(made["about"], Mapping):
            errors.refuse("draft", "about", "an object", type(made["about"]).__name__)
        made["about"] = Notice.from_plain({**draft.about.to_plain(), **made["about"]})
    return made


def _moment(name: str, text: Any) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except (TypeError, ValueError):
        errors.refuse("draft", name, "a time like 2026-12-01T08:00Z", text)
