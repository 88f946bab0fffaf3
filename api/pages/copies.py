"""Texts of an answer to copy: requests, code and files of other tools."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from shlex import quote
from urllib.parse import urlencode

from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.links import Links
from tuner.exchange.config_tables import to_tables
from tuner.kernels.spec import Config, Problem, Value
from tuner.records import StoredAnswer

_USUAL_SERVICE = "http://127.0.0.1:8000"
"""Address of `tuner serve` without options. A script puts the page's own in its place."""
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Knobs that are arguments of `triton.Config`; all others are the kernel's own."""


@dataclass(frozen=True)
class Copy:
    """A text to copy."""

    name: str
    text: str
    about: str = ""
    usual: str = ""
    """Part of the text that a script replaces by the address of `api`."""
    api: str = ""


def copies(stored: StoredAnswer, links: Links) -> Iterator[Copy]:
    """Yield the texts of an answer."""
    problem, device = stored.answer.problem, stored.provenance.device.id
    if links.is_live:
        yield curl(problem, device, links)
    yield Copy("Python", python(problem, device), "Reads the database, or the source that TUNER_SNAPSHOT names.")
    yield Copy("triton.Config", triton_config(stored.answer.config), "For a kernel of your own with the same knobs.")
    tables, skipped = to_tables([stored], "vllm")
    for path, document in tables.items():
        yield Copy("vLLM JSON", json.dumps(document, indent=4), f"In the file {path}, one entry for each M.")
    for each in skipped:
        yield Copy("vLLM JSON", "", f"Not possible: {each.reason}.")


def curl(problem: Problem, device: str, links: Links) -> Copy:
    """Return the request of the API for a problem."""
    return request_of(address_of(problem, device), links)


def request_of(query: Mapping[str, object], links: Links) -> Copy:
    """Return the request of the API with a query, as a command line of curl."""
    usual = f"{_USUAL_SERVICE}/best-config?{urlencode(query)}"
    return Copy("curl", f"curl -s {quote(usual)}", "", usual, links.api("best-config", **query))


def python(problem: Problem, device: str) -> str:
    """Return Python code that gets the config of a problem."""
    values = ", ".join(f"{name}={_literal(value)}" for name, value in problem.stated.items())
    lines = [
        "import tuner",
        "",
        f'best = tuner.best_config("{problem.op}", {values}, device={_literal(device)})',
        "best.config",
    ]
    if files("tuner.kernels").joinpath(problem.op, "call.py").is_file():
        lines += ["", f"tuner.ops.{problem.op}(...)  # or launch it: the tensors give the problem"]
    return "\n".join(lines)


def triton_config(config: Config) -> str:
    """Return the `triton.Config` of a config. Knobs that are None are left to the compiler."""
    stated = {name: value for name, value in config.items() if value is not None}
    own = ", ".join(f'"{name}": {_literal(value)}' for name, value in stated.items() if name not in _OPTIONS)
    options = "".join(f", {name}={_literal(stated[name])}" for name in _OPTIONS if name in stated)
    return f"triton.Config({{{own}}}{options})"


def _literal(value: Value) -> str:
    """Return a value as Python code. A string has double quotes and only ASCII."""
    return json.dumps(value) if isinstance(value, str) else repr(value)
