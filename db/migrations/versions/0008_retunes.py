"""retunes with their findings, and pins."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "retunes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("planned", sa.JSON(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("started_at", sa.String(), nullable=False),
        sa.Column("ended_at", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_retunes"),
    )
    op.create_index("ix_retunes_device", "retunes", ["device"])
    op.create_table(
        "findings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("retune_id", sa.Integer(), nullable=False),
        sa.Column("answer_id", sa.Integer(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("new_answer_id", sa.Integer(), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_findings"),
        sa.UniqueConstraint("retune_id", "answer_id", name="uq_findings_retune_id_answer_id"),
        sa.ForeignKeyConstraint(["retune_id"], ["retunes.id"], name="fk_findings_retune_id"),
        sa.ForeignKeyConstraint(["answer_id"], ["answers.id"], name="fk_findings_answer_id"),
        sa.ForeignKeyConstraint(["new_answer_id"], ["answers.id"], name="fk_findings_new_answer_id"),
    )
    op.create_index("ix_findings_problem", "findings", ["problem"])
    op.create_table(
        "pins",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("answer_id", sa.Integer(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pins"),
        sa.UniqueConstraint("problem", "device", name="uq_pins_problem_device"),
        sa.ForeignKeyConstraint(["answer_id"], ["answers.id"], name="fk_pins_answer_id"),
    )
