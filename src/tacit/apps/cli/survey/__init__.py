"""`tacit survey`: questions, what people are asked, what it will give, and their reports."""

from __future__ import annotations

from tacit.apps.cli.groups import group
from tacit.apps.cli.survey import drafts, plans, reports

app = group(
    "Ask questions, so that nobody learns a person's answers.",
    "tacit survey draft example.csv --epsilon 1 --out survey.json",
)
drafts.register(app)
plans.register(app)
reports.register(app)
