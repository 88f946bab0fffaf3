"""indexes for the claims of many workers at once, and 64-bit ids of trials and rounds."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("missed", sa.Integer(), nullable=False, server_default="0"))
    op.execute(
        "UPDATE jobs SET missed = coalesce((SELECT count FROM requests"
        " WHERE requests.problem = jobs.problem AND requests.device = jobs.device), 0)"
    )
    order: list[str | sa.TextClause] = ["device", sa.text("priority DESC"), "tries", sa.text("missed DESC"), "id"]
    pending, running = sa.text("status = 'pending'"), sa.text("status = 'running'")
    op.create_index("ix_jobs_pending", "jobs", order, sqlite_where=pending, postgresql_where=pending)
    op.create_index("ix_jobs_running", "jobs", ["lease_until"], sqlite_where=running, postgresql_where=running)
    if op.get_bind().dialect.name == "postgresql":  # ids of SQLite have 64 bits already
        for table in ("trials", "rounds"):
            op.execute(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
            op.execute(f"ALTER SEQUENCE {table}_id_seq AS BIGINT")
