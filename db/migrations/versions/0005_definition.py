"""the definition hash of a run: what decides its kernel's inputs, and which outputs are right."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("runs", sa.Column("definition", sa.String(), nullable=False, server_default=""))
