"""Run revisions on the connection that `migrate` opened, inside its transaction."""

from __future__ import annotations

from alembic import context

if hasattr(context, "config"):  # Alembic runs this file; outside of it, importing does nothing
    context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()
