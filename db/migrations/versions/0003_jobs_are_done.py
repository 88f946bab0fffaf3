"""what workers keep of jobs; and that no two unfinished ones are of the same problem and device."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_UNFINISHED = sa.text("status IN ('pending', 'running')")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("tries", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("error", sa.String(), nullable=True))
    op.add_column("jobs", sa.Column("ended_at", sa.String(), nullable=True))
    op.create_index(
        "uq_jobs_unfinished",
        "jobs",
        ["problem", "device"],
        unique=True,
        sqlite_where=_UNFINISHED,
        postgresql_where=_UNFINISHED,
    )
