"""files that other systems keep of their own tuning."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "engine_files",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("content", sa.String(), nullable=False),
        sa.Column("written_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_engine_files"),
        sa.UniqueConstraint("engine", "key", name="uq_engine_files_engine_key"),
    )
