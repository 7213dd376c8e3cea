"""Version 4: drafts, unlisted campaigns, who asks, withdrawals, and what happened on a day."""

import sqlalchemy as sql
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add the columns; count the withdrawals so far."""
    column = sql.Column
    for one in (
        column("draft", sql.Boolean, nullable=False, server_default=sql.false()),
        column("listed", sql.Boolean, nullable=False, server_default=sql.false()),
        column("about", sql.Text, nullable=False, server_default="{}"),
        column("withdrawn", sql.Integer, nullable=False, server_default="0"),
    ):
        op.add_column("campaigns", one)
    op.create_table(
        "days",
        column("campaign", sql.Integer, primary_key=True, autoincrement=False),
        column("day", sql.String(10), primary_key=True),
        column("what", sql.String(10), primary_key=True),
        column("people", sql.Integer, nullable=False),
    )
    op.execute(
        "UPDATE campaigns SET withdrawn = (SELECT count(*) FROM answers a "
        "WHERE a.campaign = campaigns.number AND a.kind = 0 AND a.content IS NULL)"
    )
    op.execute("UPDATE tacit_schema SET version = 4")
