"""the field's terms: roofline limits, interleaved comparison, improvement probability."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_RENAMED = {
    "settings": {"hope": "min_improvement_probability"},
    "seconds": {"duel": "comparison"},
}
"""Keys of the JSON columns of `runs`, old to new."""


def upgrade() -> None:
    op.alter_column("devices", "ceilings", new_column_name="roofline_limits")
    connection = op.get_bind()
    runs = sa.table("runs", sa.column("id"), *(sa.column(name, sa.JSON()) for name in _RENAMED))
    for run in connection.execute(sa.select(runs)).mappings().all():
        changed = {name: _renamed(run[name], keys) for name, keys in _RENAMED.items() if run[name]}
        if any(changed[name] != run[name] for name in changed):
            connection.execute(sa.update(runs).where(runs.c.id == run["id"]).values(changed))


def _renamed(document: dict[str, object] | str, keys: dict[str, str]) -> dict[str, object]:
    fields = json.loads(document) if isinstance(document, str) else document
    return {keys.get(name, name): value for name, value in fields.items()}
