"""The virtual environment of another Python on this machine: its versions, and the kernels as it sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner import catalog
from tuner.errors import TunerError, UsageError
from tuner.measure import device
from tuner.records import Environment
from tuner.report.text import first_line
from tuner.version import __version__

_LONGEST_S = 120.0
"""Time to import torch and Triton from a cold disk, in seconds."""


@dataclass(frozen=True)
class OtherEnvironment:
    """Another Python with Triton and this version of the tuner."""

    python: str
    """Its interpreter."""
    environment: Environment
    sources: Mapping[str, str]
    """Source hash of each kernel by its reference, or the text of the error that loading it raised."""


def other_environment(python: str, references: Sequence[str]) -> OtherEnvironment:
    """Return the environment of an interpreter.

    Args:
        python: path of the interpreter, or a command on the path.
        references: kernels to load there, as for `catalog.resolve`.

    Raises:
        UsageError: there is no such interpreter, it lacks the tuner or Triton, or has another version of the tuner.
    """
    words = [python, "-P", "-m", __spec__.name if __spec__ else __name__, *references]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"another environment is the path of its python, and {python} does not run: {error}") from None
    found = _described(done.stdout) if done.returncode == 0 else None
    if found is None:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UsageError(f"{python} does not load triton-tuner: {lines[-1][:200]}; {_install(python)}")
    if found["version"] != __version__:
        raise UsageError(f"{python} has triton-tuner {found['version']}, and this is {__version__}; {_install(python)}")
    if not found["environment"]["triton"]:
        raise UsageError(f"{python} has no Triton; {python} -m pip install triton")
    return OtherEnvironment(python, Environment(**found["environment"]), found["sources"])


def _described(text: str) -> dict[str, Any] | None:
    """Return what `main` printed there; None if another program printed the text."""
    try:
        found = json.loads(text.splitlines()[-1])
    except (IndexError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _install(python: str) -> str:
    return f"{python} -m pip install 'triton-tuner[search,gpu]=={__version__}'"


def _source(reference: str) -> str:
    try:
        return catalog.resolve(reference).source
    except TunerError as error:
        return f"error: {first_line(str(error), 300)}"


def main() -> None:
    """Print the environment of this interpreter as JSON, with the source hash of each kernel that is named."""
    described = {
        "version": __version__,
        "environment": asdict(device.environment()),
        "sources": {reference: _source(reference) for reference in sys.argv[1:]},
    }
    sys.stdout.write(json.dumps(described) + "\n")


if __name__ == "__main__":
    main()
