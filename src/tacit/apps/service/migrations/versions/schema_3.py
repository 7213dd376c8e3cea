"""Version 3: mechanisms by round, and the published model in a table of its own."""

import sqlalchemy as sql
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Make the mechanism of each campaign that of its first round."""
    column = sql.Column
    op.create_table(
        "rounds",
        column("campaign", sql.String(16), primary_key=True),
        column("number", sql.SmallInteger, primary_key=True),
        column("fingerprint", sql.String(64), nullable=False),
        column("artifact", sql.LargeBinary, nullable=False),
        column("encoder", sql.LargeBinary),
        sql.UniqueConstraint("campaign", "fingerprint"),
    )
    op.create_table(
        "models",
        column("campaign", sql.String(16), primary_key=True),
        column("content", sql.LargeBinary, nullable=False),
    )
    op.execute(
        "INSERT INTO rounds (campaign, number, fingerprint, artifact, encoder) "
        "SELECT c.id, 1, c.fingerprint, a.content, e.content FROM campaigns c "
        "JOIN files a ON a.campaign = c.id AND a.name = 'artifact' "
        "LEFT JOIN files e ON e.campaign = c.id AND e.name = 'encoder'"
    )
    op.execute(
        "INSERT INTO models (campaign, content) "
        "SELECT campaign, content FROM files WHERE name = 'model'"
    )
    op.drop_table("files")
    op.drop_column("campaigns", "fingerprint")
    first = sql.text("1")
    op.add_column(
        "campaigns", column("round", sql.SmallInteger, nullable=False, server_default=first)
    )
    op.add_column(
        "answers", column("round", sql.SmallInteger, nullable=False, server_default=first)
    )
    op.execute("UPDATE answers SET round = 0 WHERE kind = 1")  # votes have no round
    op.execute("UPDATE tacit_schema SET version = 3")
