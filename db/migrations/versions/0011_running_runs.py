"""an index of the runs without an end, which pages read each second."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    running = sa.text("status = 'running'")
    op.create_index("ix_runs_running", "runs", ["id"], sqlite_where=running, postgresql_where=running)
