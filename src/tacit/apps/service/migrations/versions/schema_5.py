"""Version 5: a log of answers that arrive in large numbers."""

import sqlalchemy as sql
from alembic import op

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Add the log."""
    column = sql.Column
    op.create_table(
        "arrivals",
        column("sequence", sql.Integer, primary_key=True),
        column("campaign", sql.Integer, nullable=False),
        column("kind", sql.SmallInteger, nullable=False),
        column("round", sql.SmallInteger, nullable=False),
        column("rows", sql.LargeBinary, nullable=False),
        column("contents", sql.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.execute("UPDATE tacit_schema SET version = 5")
