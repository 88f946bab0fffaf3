"""the field's terms: roofline limits, interleaved comparison, improvement probability."""

from collections.abc import Mapping

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_RENAMED_KEYS = {
    "settings": {"hope": "min_improvement_probability"},
    "seconds": {"duel": "comparison"},
}
"""Keys of the JSON columns of `runs`, old to new."""


def upgrade() -> None:
    op.alter_column("devices", "ceilings", new_column_name="roofline_limits")
    connection = op.get_bind()
    trials = sa.table("trials", sa.column("stage", sa.String()))
    connection.execute(sa.update(trials).where(trials.c.stage == "duel").values(stage="comparison"))
    runs = sa.table("runs", sa.column("id"), *(sa.column(name, sa.JSON()) for name in _RENAMED_KEYS))
    for run in connection.execute(sa.select(runs)).mappings().all():
        with_old = {name: keys for name, keys in _RENAMED_KEYS.items() if _has_one_of(keys, run[name])}
        if with_old:
            changed = {name: _renamed(run[name], keys) for name, keys in with_old.items()}
            connection.execute(sa.update(runs).where(runs.c.id == run["id"]).values(changed))


def _has_one_of(keys: Mapping[str, str], document: object) -> bool:
    """Return whether a document is an object with one of these keys. Other documents stay as they are."""
    return isinstance(document, dict) and not keys.keys().isdisjoint(document)


def _renamed(document: Mapping[str, object], keys: Mapping[str, str]) -> dict[str, object]:
    return {keys.get(name, name): value for name, value in document.items()}
