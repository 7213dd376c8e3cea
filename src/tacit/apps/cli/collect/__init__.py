"""`tacit collect`: learn from people who trust nobody, from the mechanism to the classifier."""

from __future__ import annotations

from tacit.apps.cli.collect import drafts, evaluation, mechanisms, plans, reports, search, votes
from tacit.apps.cli.groups import group

app = group(
    "Collect noised reports from people, and learn a classifier.",
    "tacit collect fit inhouse.parquet --epsilon 2 --people 10000 --classes 10 --label digit "
    "--out mechanism",
)
mechanisms.register(app)
drafts.register(app)
plans.register(app)
reports.register(app)
evaluation.register(app)
votes.register(app)
search.register(app)
