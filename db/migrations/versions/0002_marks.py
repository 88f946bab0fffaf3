"""what to know of an answer's numbers."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("answers", sa.Column("marks", sa.JSON(), nullable=False, server_default="[]"))
