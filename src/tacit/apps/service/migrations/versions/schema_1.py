"""Version 1: the first tables, in three layouts that all state this version."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Do nothing: databases of version 1 are where migrations begin."""
