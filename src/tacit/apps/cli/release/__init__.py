"""`tacit release`: what a curator publishes about records that are held in one place."""

from __future__ import annotations

from tacit.apps.cli.groups import group
from tacit.apps.cli.release import anonymize, posterior, query

app = group(
    "Publish noised answers, posteriors and representations.",
    "tacit release query data.parquet 'select count(*) from data' --epsilon 0.5",
)
query.register(app)
posterior.register(app)
anonymize.register(app)
