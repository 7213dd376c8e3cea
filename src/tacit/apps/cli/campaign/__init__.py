"""`tacit campaign`: collect over the web, as the owner of a campaign or as a participant."""

from __future__ import annotations

from tacit.apps.cli.campaign import databases, owner, participants
from tacit.apps.cli.groups import group

app = group(
    "Collect over the web: serve a campaign, or take part in one.",
    "tacit campaign serve for-people --title 'How people write digits'",
)
owner.register(app)
databases.register(app)
participants.register(app)
