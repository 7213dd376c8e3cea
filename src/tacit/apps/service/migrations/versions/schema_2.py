"""Version 2: rows name campaigns and kinds by numbers."""

import sqlalchemy as sql
from alembic import op

revision = "2"
down_revision = "1"

_SAME = (
    "id, title, purpose, fingerprint, labelled, {question}, vote_epsilon, vote_by_class, opens, "
    "closes, minimum, quota, owner, closed, reports, votes, model_sha256, model_reports, published"
)
_KIND = "CASE {}kind WHEN 'vote' THEN 1 ELSE 0 END"


def upgrade() -> None:
    """Number the campaigns, and copy their rows in the order of the hashes."""
    _campaigns()
    columns = {one["name"] for one in sql.inspect(op.get_bind()).get_columns("invitations")}
    _rows(first_layout="kind" in columns)
    for name in ("campaigns", "invitations", "answers"):
        op.drop_table(name)
        op.rename_table(f"{name}_2", name)
    op.execute("UPDATE tacit_schema SET version = 2")


def _campaigns() -> None:
    column, text = sql.Column, sql.Text
    op.create_table(
        "campaigns_2",
        column("number", sql.Integer, primary_key=True),
        column("id", sql.String(16), nullable=False, unique=True),
        column("title", text, nullable=False),
        column("purpose", text, nullable=False),
        column("fingerprint", sql.String(64), nullable=False),
        column("labelled", sql.Boolean, nullable=False),
        column("question", text),
        column("vote_epsilon", text),
        column("vote_by_class", sql.Boolean, nullable=False),
        column("opens", text),
        column("closes", text),
        column("minimum", sql.Integer, nullable=False),
        column("quota", sql.Integer),
        column("owner", sql.LargeBinary, nullable=False),
        column("closed", sql.Boolean, nullable=False),
        column("reports", sql.Integer, nullable=False),
        column("votes", sql.Integer, nullable=False),
        column("model_sha256", sql.String(64)),
        column("model_reports", sql.Integer),
        column("published", text),
    )
    columns = {one["name"] for one in sql.inspect(op.get_bind()).get_columns("campaigns")}
    question = "question" if "question" in columns else "NULL"
    op.execute(
        f"INSERT INTO campaigns_2 ({_SAME.format(question='question')}) "
        f"SELECT {_SAME.format(question=question)} FROM campaigns ORDER BY id"
    )


def _rows(first_layout: bool) -> None:
    column = sql.Column
    op.create_table(
        "invitations_2",
        column("row", sql.LargeBinary, primary_key=True),
        column("campaign", sql.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "answers_2",
        column("row", sql.LargeBinary, primary_key=True),
        column("campaign", sql.Integer, nullable=False),
        column("kind", sql.SmallInteger, nullable=False),
        column("content", sql.LargeBinary),
        sqlite_with_rowid=False,
    )
    # The first layout had one invitation for a person's report and another for the vote.
    people = "WHERE i.kind = 'report' " if first_layout else ""
    op.execute(
        'INSERT INTO invitations_2 ("row", campaign) SELECT i."row", c.number FROM invitations i '
        f'JOIN campaigns_2 c ON c.id = i.campaign {people}ORDER BY i."row"'
    )
    op.execute(
        'INSERT INTO answers_2 ("row", campaign, kind, content) '
        f'SELECT a."row", c.number, {_KIND.format("a.")}, a.content FROM answers a '
        'JOIN campaigns_2 c ON c.id = a.campaign ORDER BY a."row"'
    )
    if first_layout:  # a withdrawal was marked at the invitation
        op.execute(
            'INSERT INTO answers_2 ("row", campaign, kind, content) '
            f'SELECT i."row", c.number, {_KIND.format("i.")}, NULL FROM invitations i '
            "JOIN campaigns_2 c ON c.id = i.campaign WHERE i.withdrawn "
            'AND NOT EXISTS (SELECT 1 FROM answers a WHERE a."row" = i."row")'
        )
