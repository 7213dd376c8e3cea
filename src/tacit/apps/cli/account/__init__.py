"""`tacit account`: what mechanisms cost, whether claims hold, certificates and budgets."""

from __future__ import annotations

from tacit.apps.cli.account import audit, certificates, ledger, noise
from tacit.apps.cli.groups import group

app = group(
    "Compose noise, audit mechanisms, check certificates, keep budgets.",
    "tacit account calibrate --epsilon 2 --delta 1e-5 --steps 1000",
)
noise.register(app)
audit.register(app)
certificates.register(app)
app.add_typer(ledger.app, name="ledger", rich_help_panel="Budgets")
