"""`tacit train`: models that were trained on records."""

from __future__ import annotations

from tacit.apps.cli.groups import group
from tacit.apps.cli.train import audit

app = group(
    "Audit a trained model: attack it, and test its guarantee.",
    "tacit train audit model --members train.csv --others test.csv --label income",
)
audit.register(app)
