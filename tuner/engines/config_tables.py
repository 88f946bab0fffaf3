"""Tables of configs by M as vLLM and SGLang read them, with stored answers in place of the engine's configs.

The engine calls a function for the table of a layer and takes the config of the nearest M in it. A plug-in wraps that
function: the engine's own table stays, and each M with a stored answer gets the answer's config.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.client import Client, default_client
from tuner.client.environment import is_disabled
from tuner.client.settings import ClientSettings
from tuner.client.warn import WarnOnce
from tuner.errors import TunerError
from tuner.exchange.config_tables import layer_of, table_of
from tuner.exchange.knob_rules import knobs_fault
from tuner.kernels.spec import Value
from tuner.measure import device as cards

_log = logging.getLogger("tuner")
_OFF = ("", "0", "false", "no", "off")
_TILES = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
_LAUNCH = ("num_warps", "num_stages", "num_ctas")

Table = dict[int, Any]
"""Configs by M."""
Parts = Callable[..., Mapping[str, str] | None]
"""Return the parts of a table's file name, such as `{"E": "8", "N": "7168"}`, for the arguments of the engine's
function; or None if the engine must keep its own table. The part `down` is the ending `_down` of the name."""


@dataclass(frozen=True)
class Knobs:
    """Names of the knobs that a kernel of an engine takes."""

    needed: Sequence[str]
    others: Sequence[str] = ()

    def fault(self, config: Mapping[str, Value]) -> str:
        """Return the reason why the kernel cannot be launched with a config, or an empty text."""
        missing = [name for name in self.needed if name not in config]
        unknown = [name for name in config if name not in (*self.needed, *self.others)]
        if missing:
            return f"the engine's kernel needs {', '.join(missing)} beside {', '.join(config)}"
        return f"the engine's kernel takes no {', '.join(unknown)}" if unknown else knobs_fault(None, config)


KNOBS: Mapping[str, Knobs] = {
    "fused_moe": Knobs(_TILES, (*_LAUNCH, "SPLIT_K", "USE_TMA")),
    "block_scaled_mm": Knobs(_TILES, (*_LAUNCH, "SPLIT_K", "SWAP_AB")),
    "selective_state_update": Knobs(("BLOCK_SIZE_M", "num_warps")),
}
"""Knobs of the engines' kernels by op."""


def is_asked_for(switch: str, plugins: str) -> bool:
    """Return whether the environment asks for a plug-in: by its switch, or by `tuner` in the engine's list of plug-ins.

    Args:
        switch: name of our variable, such as `TUNER_VLLM`.
        plugins: name of the engine's variable, such as `VLLM_PLUGINS`.
    """
    if (given := os.environ.get(switch)) is not None:
        return given.strip().lower() not in _OFF
    return "tuner" in [name.strip() for name in os.environ.get(plugins, "").split(",")]


class ConfigTables:
    """The stored answers of an engine's layers as tables.

    Args:
        engine: name in log lines.
        client: source of the answers; None is the default client.
    """

    def __init__(self, engine: str, client: Client | None = None) -> None:
        self._engine = engine
        self._client = client or default_client()
        self._tables: dict[tuple[int, str], Table] = {}
        self._warn = WarnOnce(ClientSettings().max_warnings)
        self._client.on_refresh(lambda tables, in_background: None, self._tables.clear)

    def merged(self, own: Table | None, parts: Callable[[], Mapping[str, str] | None]) -> Table | None:
        """Return the engine's own table with the configs of stored answers; never raises.

        Args:
            own: the engine's table; None if it has none.
            parts: returns the parts of the table's name, or None if the engine keeps its own.
        """
        named = "a layer"
        try:
            stated = parts()
            if stated is None:
                return own
            named = " ".join(f"{name}={value}" for name, value in stated.items())
            place = (_device(), named)
            stored = self._tables.get(place)
            if stored is None:
                if len(self._tables) >= ClientSettings().max_tables:
                    self._tables.clear()
                self._tables[place] = {}  # which stays after an error, until a refresh
                stored = self._tables[place] = self._stored(place[0], stated, named)
        except Exception as error:  # noqa: BLE001  no error may stop a model
            why = str(error) if isinstance(error, TunerError) else f"{type(error).__name__}: {error}"
            self._warn(f"{self._engine} keeps its own configs of {named}: {why}")
            return own
        return {**(own or {}), **stored} if stored else own

    def _stored(self, device: int, parts: Mapping[str, str], named: str) -> Table:
        if is_disabled(self._warn):
            return {}
        layer = layer_of({name: value for name, value in parts.items() if name != "down"}, down="down" in parts)
        answers = self._client.answers(layer.op, device=device)
        block = str(layer.attributes.get("block_shape", ""))
        table = Table()
        for m, config in table_of(layer, answers, cards.environment(device).triton).items():
            fault = KNOBS[layer.op].fault(config) or _block_fault(layer.op, config, block)
            if fault:
                self._warn(f"{self._engine} keeps its own config of {layer.op} M={m} {named}: {fault}")
            else:
                table[m] = config
        if table:
            _log.info("%s: %s has stored configs of M=%s", self._engine, named, ", ".join(map(str, table)))
        return table


def around(tables: ConfigTables, parts: Parts) -> Callable[..., Any]:
    """Return a function that is called with the engine's function and its arguments, and returns the merged table."""
    is_compiling = sys.modules["torch"].compiler.is_compiling if "torch" in sys.modules else bool

    def call(original: Callable[..., Table | None], *args: Any, **kwargs: Any) -> Table | None:
        own = original(*args, **kwargs)
        if is_compiling():  # the lookup cannot be traced
            return own
        return tables.merged(own, lambda: parts(*args, **kwargs))

    return call


def _block_fault(op: str, config: Mapping[str, Any], block: str) -> str:
    """Return the fault of a tile that spans two blocks of scales, of which the kernel reads only one scale."""
    if op != "block_scaled_mm" or not block or int(block.split("x")[1]) % config["BLOCK_SIZE_K"] == 0:
        return ""
    return f"BLOCK_SIZE_K divides the block of scales, {block}, and is not {config['BLOCK_SIZE_K']}"


def _device() -> int:
    """Return the index of the current card, without making a CUDA context."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return int(cuda.current_device()) if cuda is not None and cuda.is_initialized() else 0
