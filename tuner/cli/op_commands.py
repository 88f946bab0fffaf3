"""Commands that take an op: the options of a problem are made from the op's signature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from typing import Any

import click

from tuner import catalog, recorded
from tuner.cli.ops import known_patterns, signature_of
from tuner.db.database import Database
from tuner.db.store import database_at
from tuner.errors import NoDevice, UsageError
from tuner.kernels.signature import MissingSize
from tuner.kernels.spec import Signature
from tuner.kernels.values import listed
from tuner.lookup.patterns import described
from tuner.suites.drawn import is_random

OP_HELP = "OP is one of the ops below, or a kernel file such as mine.py. Options may stand before or after it."
"""Paragraph of the help of every command that takes an op."""
_NEEDS_TRITON = "its options are known once triton is installed: pip install 'triton-tuner[gpu]'"
_HELP = ("-h", "--help")


class OptionOf(click.Option):
    """An option that the help of some ops shows. Other ops refuse it in a sentence of their own."""

    def __init__(self, names: Sequence[str], *, ops: Sequence[str], **settings: Any) -> None:
        super().__init__(names, **settings)
        self.ops = ops

    def shown_for(self, op: str) -> click.Option:
        """Return the option, hidden from the help of an op to which it does not apply."""
        other = copy(self)
        other.hidden = op not in self.ops
        return other


class OpCommands(click.Group):
    """A group with a subcommand for every op, made from the op's signature. Options may stand before the op.

    Args:
        action: called with the kernel's name or file, its signature, the problem, and the values of the options.
        options: the options besides those of the problem.
        asked: makes the third argument of the action from the signature and the values; the problem by default.
        params: options with which the command runs without an op.
    """

    def __init__(
        self,
        action: Callable[..., Any],
        options: list[click.Parameter],
        *,
        asked: Callable[[Signature, Mapping[str, str]], Any] = Signature.problem,
        params: Sequence[click.Parameter] = (),
        **settings: Any,
    ) -> None:
        super().__init__(subcommand_metavar="OP", params=[*params], no_args_is_help=False, **settings)
        self._action, self._options, self._asked = action, options, asked
        self._instead = [option for option in params if option not in options and option.name != "dtype"]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*catalog.names(), *(name.partition("-")[0] for name in recorded.names())})

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        signature = signature_of(name, ctx.obj)
        signatures = known_patterns(signature, ctx.obj)

        def run(**values: Any) -> Any:
            given = {each: values.pop(each) for each in parameters}
            stated = {each: value for each, value in given.items() if value is not None}
            try:
                meant, asked = described(signatures, stated, self._asked)
                return self._action(name, meant, asked, **values)
            except MissingSize as error:
                raise UsageError(f"{error.op} needs {error.dim}; give --{error.dim} SIZE") from None

        parameters = dict.fromkeys(each for one in signatures for each in one.parameters)

        return click.Command(
            name,
            params=[*_problem_options(signatures), *self._of(signature.op)],
            callback=run,
            help=f"{self.help}\n\n{signature.op}: {signature.summary}",
            short_help=signature.summary,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        op, others, unknown = self._split(args)
        if op is not None and self._instead and any(map(is_random, _values_of("--suite", others))):
            return self._parse_drawn(ctx, op, others)
        if op is not None:
            if instead := next((option for option in self._instead if {*option.opts} & _names(others)), None):
                raise UsageError(f"{instead.opts[0]} takes the place of OP; leave out {op} or {instead.opts[0]}")
            return super().parse_args(ctx, [op, *others])
        if not {*_HELP} & {*args} and not any({*option.opts} & _names(args) for option in self._instead):
            if unknown is not None:
                raise click.NoSuchOption(unknown, possibilities=self._alike(unknown), ctx=ctx)
            suite = ", or a suite with --suite" if self._instead else ""
            raise UsageError(f"name an OP ({', '.join(self.list_commands(ctx))}), or a kernel file.py{suite}")
        return super().parse_args(ctx, args)

    def _parse_drawn(self, ctx: click.Context, op: str, others: list[str]) -> list[str]:
        """Parse a random suite of one op."""
        try:
            return super().parse_args(ctx, [*others, "--only", f"op={op}"])
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-")
            raise UsageError(
                f"a random suite draws the values of its problems; select some with --only {name}=VALUE, not "
                f"with {error.option_name}"
            ) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.obj = _db_among(args)  # whose signatures may be needed before there are options to parse
        op, others = args[0], args[1:]
        try:
            return op, self.get_command(ctx, op), others
        except NoDevice:
            if not {*_HELP} & {*others}:
                raise
            return op, click.Command(op, params=self._of(op), help=f"{self.help}\n\n{op}: {_NEEDS_TRITON}"), others

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(
                f"{OP_HELP} `{ctx.command_path} OP --help` has the sizes and attributes of its problem."
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command without an op, and of every op."""
        suite_only = [option for option in self.params if option not in self._options]
        help_option = self.get_help_option(ctx)
        shown = [*suite_only, *self._options, *([] if help_option is None else [help_option])]
        rows = [row for option in shown if (row := option.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(rows)
        with formatter.section("Ops"):
            formatter.write_dl([(op, self._summary(ctx, op)) for op in self.list_commands(ctx)])

    def _summary(self, ctx: click.Context, op: str) -> str:
        try:
            return self.get_command(ctx, op).short_help or ""
        except NoDevice:
            return _NEEDS_TRITON

    def _split(self, args: Sequence[str]) -> tuple[str | None, list[str], str | None]:
        """Return the op, the other words, and an unknown option whose value would be an op if it took one.

        Each option of a problem takes a value, so an option that is not known here is one that does.
        """
        flags, known = {*_HELP}, {*_HELP}
        for option in (*self.params, *self._options):
            known |= {*option.opts, *option.secondary_opts}
            if isinstance(option, click.Option) and option.is_flag:
                flags |= {*option.opts, *option.secondary_opts}
        ops = catalog.names()
        words, unknown = iter(enumerate(args)), None
        for place, word in words:
            if word == "--":
                rest = args[place + 1 :]
                return (rest[0], [*args[:place], *rest[1:]], None) if rest else (None, [*args], unknown)
            if not word.startswith("-") or word == "-":
                return word, [*args[:place], *args[place + 1 :]], None
            if word not in flags and "=" not in word:
                _, value = next(words, (0, ""))
                if word not in known and (value in ops or value.endswith(".py")):
                    unknown = word
        return None, [*args], unknown

    def _of(self, op: str) -> list[click.Parameter]:
        """Return the options of an op besides those of its problem."""
        return [option.shown_for(op) if isinstance(option, OptionOf) else option for option in self._options]

    def _alike(self, name: str) -> list[str]:
        names = {text for option in (*self.params, *self._options) for text in option.opts}
        return get_close_matches(name, sorted(names))


def _names(args: Sequence[str]) -> set[str]:
    """Return the words of a command line as names of options."""
    return {word.partition("=")[0] for word in args}


def _values_of(option: str, args: list[str]) -> Iterator[str]:
    """Yield the values that a command line gives to an option, before it is parsed."""
    for word, following in zip(args, [*args, ""][1:], strict=True):
        if word == option or word.startswith(f"{option}="):
            yield word.partition("=")[2] or following


def _db_among(args: list[str]) -> Database | None:
    return next(map(database_at, _values_of("--db", args)), None)


def _problem_options(signatures: Sequence[Signature]) -> list[click.Parameter]:
    """Return the options of a problem of any of these signatures of one op."""
    options = {option.name: option for signature in reversed(signatures) for option in _options_of(signature)}
    return [*options.values()]


def _options_of(signature: Signature) -> list[click.Parameter]:
    """Return the options of a problem. Values stay text: the signature checks them, and words the refusal."""
    options: list[click.Parameter] = []
    for dim in signature.dims:
        default = "" if dim.default is None else f"  [default: {dim.default}]"
        options.append(click.Option([f"--{dim.name}", dim.name], metavar="SIZE", help=f"{dim.help}{default}"))
    shown = "|".join(signature.dtypes)
    options.append(click.Option(["--dtype"], metavar="DTYPE", help=f"{shown}  [default: {signature.dtypes[0]}]"))
    for attribute in signature.attributes:
        values = "any text" if attribute.choices is None else listed(attribute.choices, "|")
        metavar = "TEXT" if attribute.choices is None else "CHOICE"
        help = f"{values}{f': {attribute.help}' if attribute.help else ''}  [default: {attribute.default}]"
        options.append(click.Option([f"--{attribute.name}", attribute.name], metavar=metavar, help=help))
    return options
