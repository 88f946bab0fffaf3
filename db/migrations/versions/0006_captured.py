"""captured calls, and the basis of an answer."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "captured",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("op", sa.String(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("call", sa.JSON(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("first_at", sa.String(), nullable=False),
        sa.Column("last_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_captured_device_id"),
        sa.PrimaryKeyConstraint("id", name="pk_captured"),
        sa.UniqueConstraint("problem", "device_id", name="uq_captured_problem_device_id"),
    )
    op.create_index("ix_captured_op", "captured", ["op"])
    op.add_column("answers", sa.Column("basis", sa.String(), nullable=False, server_default="reference"))
