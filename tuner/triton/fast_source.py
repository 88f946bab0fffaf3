"""Source of the functions that repeat calls of an autotuned function, as Triton generates that of its binder.

Calls of one form have the same number of positional arguments, the same named ones, and the same kind of each. The
source made for a form compares types, makes a key of what Triton specializes on and of the autotuner's key, and calls
the launcher in C. Arguments are named by their positions, so the only text of the caller's in the code is the names of
parameters, as string literals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["tensor", "descriptor", "number", "passed", "value", "object", "none"]
"""Kind of an argument's key: a tensor by dtype and alignment; a descriptor by dtype and block shape; a number by its
class, as it is passed through; a float or bool by its type alone; a value by itself; an object by its identity; None by
being None."""

_FOUND = ("launch", "held", "config", "only", "hook", "settled", "compiled", "_")
"""Names of the values kept for a launch, before the fixed arguments of the launcher."""


@dataclass(frozen=True)
class Given:
    """An argument of a call."""

    name: str
    kind: Kind
    type: type
    """Its type; calls with another type have another form."""
    is_option: bool = False
    """True for a launch option, such as `num_ctas`, which is no parameter of the function."""


@dataclass(frozen=True)
class Form:
    """Properties that calls of one kind have in common."""

    positional: tuple[Given, ...]
    named: tuple[Given, ...]

    @property
    def given(self) -> tuple[Given, ...]:
        """All arguments, in the order of the call."""
        return self.positional + self.named


@dataclass(frozen=True)
class Layout:
    """Properties of the function that the source depends on, beside the form."""

    parameters: tuple[str, ...]
    """Parameters of the jit function, in their order."""
    heuristics: tuple[str, ...] = ()
    """Parameters that `@triton.heuristics` sets, in the order in which they are computed."""
    runs_on: str = "cuda"
    """Type of the devices whose memory the kernel can use."""
    one_by_one: bool = False
    """True if the launcher in C takes the kernel's arguments one by one, not as a tuple."""
    fixed: int = 0
    """Number of arguments of the launcher between the stream and those of the kernel."""
    configs: int = 2
    """Number of configs of the autotuner; with one, Triton does not look in the cache."""
    reads_globals: bool = False
    """True if the jit function reads global variables, whose values Triton compares at each launch."""


def missing(form: Form, layout: Layout) -> tuple[str, ...]:
    """Return the parameters that the caller does not set, or that a heuristic sets after it."""
    given = {each.name for each in form.given} - set(layout.heuristics)
    return tuple(name for name in layout.parameters if name not in given)


def source(form: Form, layout: Layout) -> str:
    """Return the source of `key_of(args, kwargs)` and of `call(grid, /, *args, **kwargs)`.

    `key_of` is for a call of this form. `call` also compares the form, and passes calls that it does not know to
    `otherwise`. The names that both read are set by `tuner.triton.fast`.
    """
    unpacked = _unpacked(form)
    key = _key(form, layout)
    lines = [
        "def key_of(args, kwargs):",
        *_indented(1, unpacked, _addresses(form), f"device = current_device()\nreturn {key}"),
        "",
        "def call(grid, /, *args, **kwargs):",
        *_indented(1, f"if {_same_shape(form, layout)}:"),
        *_indented(2, "try:"),
        *_indented(3, unpacked or "pass"),
        *_indented(2, "except KeyError:"),
        *_indented(3, "return otherwise(grid, *args, **kwargs)"),
        *_indented(2, f"if {' and '.join(_types(form)) or 'True'}:"),
        *_indented(3, _addresses(form), "device = current_device()", f"found = kept.get({key})"),
        *_indented(3, "if found is not None:"),
        *_indented(4, _heuristics(form, layout)),
        *_indented(4, _launch(form, layout)),
        *_indented(1, "return otherwise(grid, *args, **kwargs)"),
    ]
    return "\n".join(lines) + "\n"


def _indented(depth: int, *texts: str) -> list[str]:
    return ["    " * depth + line for text in texts if text for line in text.splitlines()]


def _same_shape(form: Form, layout: Layout) -> str:
    """Return an expression that is true if a call has the form and no setting changes launches."""
    return " and ".join(
        (
            f"len(args) == {len(form.positional)} and len(kwargs) == {len(form.named)}",
            f"tuner.cache is cache and tuner.configs is configs and len(configs) == {layout.configs}",
            "runtime == runtime_before and compilation == compilation_before and not enter.calls and not leave.calls",
            "not fn.pre_run_hooks and Function.run is its_run and environment.get(variable) == setting",
        )
    )


def _unpacked(form: Form) -> str:
    """Return the assignments of the arguments to `a0`, `a1` and so on; they raise KeyError if one has another name."""
    places = range(len(form.positional))
    lines = [f"{', '.join(f'a{place}' for place in places)}, = args"] if places else []
    lines += [f"a{place} = kwargs[{each.name!r}]" for place, each in enumerate(form.named, len(form.positional))]
    return "\n".join(lines)


def _types(form: Form) -> list[str]:
    tests = []
    for place, each in enumerate(form.given):
        if each.kind == "none":
            tests.append(f"a{place} is None")
        elif each.kind == "tensor":
            tests.append(f"(type(a{place}) is Tensor or type(a{place}) is Parameter)")
        elif each.kind != "object":
            tests.append(f"type(a{place}) is t{place}")
    return tests


def _addresses(form: Form) -> str:
    return "\n".join(
        f"p{place} = a{place}.data_ptr()" for place, each in enumerate(form.given) if each.kind == "tensor"
    )


def _key(form: Form, layout: Layout) -> str:
    """Return the key as an expression: at least as fine as Triton's specialization of the same arguments.

    A number is 1, a multiple of 16 or another, as it is passed with these properties. Numbers of 32 bits, which are not
    negative, need no more; if there are others, all widths are part of the key.
    """
    parts, numbers = ["device"], []
    for place, each in enumerate(form.given):
        if each.kind == "tensor":
            parts += [f"a{place}.dtype", f"not p{place} & 15", f"a{place}.is_{layout.runs_on}"]
        elif each.kind == "descriptor":
            parts += [f"a{place}.base.dtype", f"tuple(a{place}.block_shape)", f"a{place}.base.is_{layout.runs_on}"]
        elif each.kind == "number":
            parts.append(f"a{place} & 15 and (a{place} == 1 or 2)")
            numbers.append(f"a{place}")
        elif each.kind == "value":
            parts.append(f"a{place}")
        elif each.kind == "object":
            parts.append(f"id(a{place})")
    if numbers:
        parts.append(f"({' | '.join(numbers)}) >> 31 and widths({', '.join(numbers)})")
    return f"({', '.join(parts)},)"


def _heuristics(form: Form, layout: Layout) -> str:
    """Return the lines that compute the values of heuristics and find the launch for them."""
    if not layout.heuristics:
        return ""
    lines = ["settled, variants = found", f"named = {_named(form)}"]
    for number, name in enumerate(layout.heuristics):
        lines.append(f"h{number} = named[{name!r}] = heuristic{number}(named)")
    values = ", ".join(f"type(h{number}), h{number}" for number in range(len(layout.heuristics)))
    lines += [
        "try:",
        f"    found = variants.get(({values},))",
        "except TypeError:",
        "    found = None",
        "if found is None:",
        "    return otherwise(grid, *args, **kwargs)",
    ]
    return "\n".join(lines)


def _named(form: Form) -> str:
    """Return an expression for the dict that Triton passes to a hook or a heuristic."""
    given = [f"{each.name!r}: a{place}" for place, each in enumerate(form.given)]
    return f"{{{', '.join([*given, repr('grid') + ': grid', repr('warmup') + ': False', '**settled'])}}}"


def _launch(form: Form, layout: Layout) -> str:
    """Return the lines that launch what was found."""
    absent = missing(form, layout)
    places = {each.name: place for place, each in enumerate(form.given) if not each.is_option}
    kinds = {each.name: each.kind for each in form.given}
    named, passed = [], []
    for name in layout.parameters:
        if name in absent:
            value = address = f"c{absent.index(name)}"
        else:
            value = f"a{places[name]}"
            address = f"p{places[name]}" if kinds[name] == "tensor" else value
        named.append(f"{name!r}: {value}")
        passed.append(address)
    fixed = [f"f{number}" for number in range(layout.fixed)]
    own = [f"c{number}" for number in range(len(absent))]
    arguments = ", ".join(passed) if layout.one_by_one else f"({', '.join(passed)},)"
    unchanged = "device_caches.get(device) is held"
    if layout.configs == 1:
        unchanged += " and configs[0] is only"
    if layout.reads_globals:
        unchanged += " and not changed(fn)"
    return "\n".join(
        (
            f"{', '.join([*_FOUND, *fixed, *own])} = found",
            "if launch is None:",
            "    return ordinary(*args, grid=grid, warmup=False, **kwargs)",
            f"if {unchanged}:",
            "    state['best_config'] = config",
            "    if hook is not None:",
            f"        hook({_named(form)})",
            "    if type(grid) is not tuple and callable(grid):",
            f"        grid = evaluated(grid, {{{', '.join(named)}}})",
            "    sizes = len(grid)",
            "    launch(",
            "        grid[0], grid[1] if sizes > 1 else 1, grid[2] if sizes > 2 else 1, stream_of(device),",
            f"        {', '.join([*fixed, arguments])}",
            "    )",
            "    return compiled",
        )
    )
