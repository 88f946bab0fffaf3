"""The file of `tuner bench --out`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.tuning.bench_file import BenchFile


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": 1}', '{"format": 1, "rows": [1]}', '{"format": 1, "rows": [{}]}', "[" * 100_000],
    ids=["empty", "list", "no format", "no rows", "numbers", "no problem", "deep"],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "rows.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"rows\.json is not what tuner bench --out wrote: "):
        BenchFile(file)
