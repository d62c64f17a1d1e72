"""Options of commands, made from the fields of the classes of options: help, defaults and types."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
from collections.abc import Callable, Container
from typing import Any

import click
from click.core import ParameterSource

from tfrecorder.cli.output import image_size, is_quiet
from tfrecorder.core.option import OneOf, Whole, above_zero, flag as is_flag, seconds
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import Options, names_of
from tfrecorder.options.read import ReadOptions, RecordOptions

#: The callback of an option: what was typed, as the library takes it.
Typed = Callable[[click.Context, click.Parameter, Any], Any]

#: What adds options to a command.
Decorator = Callable[[Any], Any]


def pairs(
    ctx: click.Context,
    param: click.Parameter,
    values: tuple[str, ...],
) -> Any:
    """NAME=VALUE arguments as a dict; a name given twice has both values; None without any.

    For the options of a runner, a bare name is True.
    """
    named: dict[str, Any] = {}
    for argument in values:
        name, equals, text = argument.partition("=")
        if not name.strip("-") or not (equals or param.name == "runner_options"):
            raise click.BadParameter(f"{argument!r}; write NAME=VALUE.")
        value: Any = text if equals else True
        if name in named:
            before = named[name]
            value = [*before, value] if isinstance(before, list) else [before, value]
        named[name] = value
    return named or None


def _by_split(number: type, example: str) -> Typed:
    """ "TRAIN=8,TEST=2" as a dict; for whole numbers also "8" as one number."""

    def typed(
        ctx: click.Context,
        param: click.Parameter,
        value: str | None,
    ) -> Any:
        if value is None or (number is int and value.isdecimal()):
            return None if value is None else int(value)
        parts = [part.partition("=") for part in value.split(",")]
        try:
            return {split: number(count) for split, _, count in parts}
        except ValueError:
            raise click.BadParameter(f"{value!r}; write, for example, {example}.") from None

    return typed


def _codes(
    ctx: click.Context,
    param: click.Parameter,
    value: str | None,
) -> Any:
    """ "leakage,no_train" as a list."""
    return value if value in ("show", "error", None) else value.split(",")


#: The callbacks of options that are typed in another form than Python has.
_TYPED: dict[str, Typed] = {
    "columns": pairs,
    "features": pairs,
    # A tab is hard to type in a shell.
    "sep": lambda ctx, param, value: "\t" if value == r"\t" else value,
    "num_shards": _by_split(int, "8 or TRAIN=8,TEST=2"),
    "splits": _by_split(float, "TRAIN=0.7,VALIDATION=0.3"),
    "image_size": image_size,
    "warnings": _codes,
    "runner_options": pairs,
    "progress": lambda ctx, param, value: False if is_quiet() else value,
}

#: The flags of options that are repeated, one value at a time.
_REPEATED = {"columns": "--column", "features": "--feature", "runner_options": "--runner-option"}


class SharedOption(click.Option):
    """An option that `convert` has too: the help of another command only names it."""

    def get_help_record(self, ctx: click.Context) -> None:
        return None


class SharingCommand(click.Command):
    """A command that shares options with `convert`; its help names them in one paragraph."""

    def invoke(self, ctx: click.Context) -> Any:
        """Leave out the shared options that were not typed: a dataset keeps its own for these."""
        for shared in (option for option in self.params if isinstance(option, SharedOption)):
            name = shared.name or ""
            is_typed = ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
            # The value of `progress` may be that of `--quiet`.
            if not is_typed and ctx.params.get(name) == shared.get_default(ctx):
                ctx.params.pop(name, None)
        return super().invoke(ctx)

    def format_options(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        super().format_options(ctx, formatter)
        formatter.write_paragraph()
        # Click would break lines at the hyphens of flags.
        lines = textwrap.wrap(self.shared, formatter.width - 2, break_on_hyphens=False)
        formatter.write("".join(f"  {line}\n" for line in lines))

    @property
    def shared(self) -> str:
        """What its help says of these options."""
        flags = [option.opts[0] for option in self.params if isinstance(option, SharedOption)]
        others = [flag for flag in _flags_of_convert() if flag not in flags]
        if len(others) < len(flags):
            return f"And the options of `tfrecorder convert`, except {', '.join(others)}."
        return f"And these options of `tfrecorder convert`: {', '.join(flags)}."


#: The headings of the options of a conversion, by the first option below each.
_GROUPS = {
    "columns": "The source",
    "num_shards": "Shards",
    "splits": "Splits",
    "check": "Images",
    "name": "The run",
    "runner": "Where it runs",
    "progress": "Output",
}


class GroupedCommand(click.Command):
    """`convert`: its options stand below headings."""

    def format_options(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        groups = dict[str, list[tuple[str, str]]]()
        heading = ""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for param in options:
            heading = _GROUPS.get(param.name or "", heading)
            if (record := param.get_help_record(ctx)) is not None:
                groups.setdefault(heading, []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def options_of(
    options: type[Options],
    without: Container[str] = (),
    shared: bool = False,
) -> Decorator:
    """An option for each field, except those in `without`.

    Args:
        shared: they are those of `convert`: see `SharingCommand`.
    """
    cls = SharedOption if shared else click.Option

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        for item in reversed(dataclasses.fields(options)):
            if item.name not in without:
                command = _field_option(item, cls)(command)
        return command

    return with_options


#: `--at`, `--image`, `--label` and `--feature`; and each for a command without the other.
record_options = options_of(RecordOptions)
at_option = options_of(RecordOptions, ("image", "label", "features"))
key_options = options_of(RecordOptions, ("at",))

_CACHE = ("local_cache", "cache_bytes")

#: `--local-cache` and `--cache-bytes`.
cache_options = options_of(ReadOptions, {*names_of(ReadOptions)} - {*_CACHE})


def option_of(name: str) -> Decorator:
    """The option of `convert` with this name."""
    fields = {item.name: item for item in dataclasses.fields(ConvertOptions)}
    return _field_option(fields[name])


@functools.cache
def _flags_of_convert() -> list[str]:
    """The flags of all options of a conversion, of which `overwrite` has two."""
    every = click.command()(options_of(ConvertOptions)(lambda **_: None))
    return [option.opts[0] for option in every.params]


def _field_option(
    item: dataclasses.Field[Any], cls: type[click.Option] = click.Option
) -> Decorator:
    flag = _REPEATED.get(item.name, f"--{item.name.replace('_', '-')}")
    check = item.metadata["check"]
    metavar = item.metadata["metavar"] or ("N" if isinstance(check, Whole) else None)
    settings: dict[str, Any] = {
        "default": item.default,
        "help": item.metadata["help"],
        "cls": cls,
        "callback": _TYPED.get(item.name),
    }
    if item.name in _REPEATED:
        settings |= {"metavar": metavar, "help": f"{settings['help']} Repeatable."}
        return click.option(flag, item.name, multiple=True, **settings)
    if item.name == "progress" or item.default is True:
        return click.option(f"{flag}/--no-{flag[2:]}", show_default=item.default, **settings)
    if check is is_flag:
        return click.option(flag, is_flag=True, **settings)
    if isinstance(check, OneOf) and True in check.words:
        # A flag for True, and `--flag-word` for a word: a value may be taken for what stands next.
        word = str(check.words[-1])
        text, _, more = settings.pop("help").partition(f" {word}: ")
        settings |= {"type": click.UNPROCESSED, "default": False}
        plain = click.option(
            flag,
            item.name,
            flag_value=True,
            help=text,
            **settings,
        )
        other = click.option(
            f"{flag}-{word}",
            item.name,
            flag_value=word,
            help=f"{flag}, {more}",
            **settings,
        )
        return lambda command: plain(other(command))
    shown = item.default is not None
    return click.option(
        flag,
        metavar=metavar,
        type=_type_of(item),
        show_default=shown,
        **settings,
    )


def _type_of(item: dataclasses.Field[Any]) -> Any:
    """What Click makes of the text that is typed; the callbacks of `_TYPED` get it as it is."""
    check = item.metadata["check"]
    if isinstance(check, OneOf):
        return click.Choice([str(word) for word in check.words])
    if isinstance(check, Whole):
        return int
    return float if check in (seconds, above_zero) or isinstance(item.default, float) else str
