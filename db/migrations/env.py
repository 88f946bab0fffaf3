"""Alembic's entry: runs migrations on the connection it is handed, inside that connection's transaction."""

from alembic import context

from tuner.db.schema import Base

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
context.run_migrations()
