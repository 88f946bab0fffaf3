"""`tuner.tune` in a cell of a notebook, run by a real kernel."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

CELL = """
import tuner

answer = tuner.tune("softmax", {"M": 8192, "N": 8192}, trials=10)
answer.config
"""


@pytest.mark.filterwarnings("default")
def test_a_cell_shows_bars_notes_and_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(tmp_path))
    outputs = notebook.cells[0].outputs
    assert any("application/vnd.jupyter.widget-view+json" in output.get("data", {}) for output in outputs)  # the bars
    shown = "\n".join(output.get("text", "") or output["data"].get("text/plain", "") for output in outputs)
    assert "No GPU here: replaying softmax-8192x8192-fp32-nvidia-h200" in shown
    result = next(output for output in outputs if output.output_type == "execute_result")
    assert result["data"]["text/plain"].startswith("Config(BLOCK_N=8192, ")
