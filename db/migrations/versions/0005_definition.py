"""the definition hash of a run, and an index of the answers that are about others."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("runs", sa.Column("definition", sa.String(), nullable=False, server_default=""))
    op.create_index("ix_answers_about_id", "answers", ["about_id"])
