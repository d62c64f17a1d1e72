"""Writes docs/cli.md, the reference of the command line, from what the commands say of themselves.

python scripts/cli_reference.py            # write it
python scripts/cli_reference.py --check    # exit code 1 if it is not what would be written
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import click

from tfrecorder.cli.main import main
from tfrecorder.cli.options import SharedOption, SharingCommand
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import names_of

PAGE = Path(__file__).resolve().parent.parent / "docs/cli.md"

HEAD = """# The command line

<!-- Made by scripts/cli_reference.py from the commands' own help: `make docs` writes it again. -->

`tfrecorder COMMAND --help` explains each option in full, with examples. The exit code is 0 if \
all is well, 1 if not (`validate` found errors, `verify` faults, a conversion failed), 2 if an \
argument or an option is wrong, 130 after Ctrl-C, and 143 after SIGTERM. Errors are one line on \
standard error, in colour in a terminal unless `NO_COLOR` is set. To continue an interrupted \
command, repeat it.

| command | |
|---|---|
{table}

## In a script

`-` reads a CSV from standard input, `--json` prints results for programs, and `--dry-run` writes \
nothing:

```sh
grep -v gravel photos.csv | tfrecorder convert - few --base . --json > out.json
tfrecorder convert photos.csv other --dry-run
```

## Completion

The Tab key completes commands, options and values after one line in your shell's start-up file:

<!-- not run: changes the shell that it is typed in -->
```sh
eval "$(_TFRECORDER_COMPLETE=bash_source tfrecorder)"  # ~/.bashrc (Bash 4.4+)
eval "$(_TFRECORDER_COMPLETE=zsh_source tfrecorder)"   # ~/.zshrc
_TFRECORDER_COMPLETE=fish_source tfrecorder | source   # ~/.config/fish/config.fish
```
"""

_SHARED = "## Options of several commands"
#: Where a sentence of a help text ends.
_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z0-9`']|[a-z]+: )|(?<=[a-z]): (?=DirectRunner)")
#: What the page keeps of a help text; the guides have the rest.
_KEPT = re.compile(r"CONDITION is .*|.*exit code.*")
_GUIDES = {
    "convert": "convert.md",
    "append": "append.md",
    "update": "correct.md",
    "remove": "correct.md#remove-a-picture",
    "compact": "append.md#many-small-shards",
    "undo": "correct.md#undo-an-append",
    "stream": "stream.md",
    "validate": "convert.md#validation",
    "stage": "machines.md",
    "work": "machines.md",
    "commit": "machines.md",
    "status": "runners.md#progress",
    "verify": "reliability.md#verify-a-dataset",
    "repair": "reliability.md#repair-a-dataset",
    "info": "look.md",
    "history": "correct.md#what-was-done",
    "benchmark": "read.md#speed",
    "cache": "train-from-a-bucket.md",
    "inspect": "look.md",
    "duplicates": "look.md#near-copies",
    "preview": "look.md",
    "card": "share.md",
    "export": "share.md",
    "schema": "schema.md",
}
_CONVERT_OPTIONS = frozenset(names_of(ConvertOptions))


def usage(name: str, command: click.Command) -> str:
    """The first line of the help: arguments in capitals."""
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    return " ".join(["tfrecorder", name, *map(_named, arguments)])


def _named(argument: click.Argument) -> str:
    name = argument.human_readable_name.upper()
    return name if argument.required or argument.metavar else f"[{name}]"


def _spelled(option: click.Option) -> str:
    """The option as it is written."""
    flags = ", ".join(option.opts)
    if option.secondary_opts:
        return f"{flags} / {', '.join(option.secondary_opts)}"
    if option.is_flag:
        return flags
    choices = option.type.choices if isinstance(option.type, click.Choice) else ()
    return f"{flags} {'|'.join(map(str, choices)) or option.metavar or option.type.name.upper()}"


def _row(option: click.Option) -> str:
    """A row of a table: the option, the first sentence of its help, and its default."""
    words, _, default = (option.help or "").partition(" Default: ")
    words = f"{_SENTENCE.split(words)[0].rstrip('.')}."
    if option.show_default:
        default = f"{option.default}."
    if default:
        words += f" Default: {_SENTENCE.split(default)[0]}"
    if option.multiple:
        words += " Repeatable."
    return "| `{}` | {} |".format(*(part.replace("|", "\\|") for part in (_spelled(option), words)))


def _table(rows: list[str]) -> str:
    return "\n".join(["| option | |", "|---|---|", *rows]) if rows else ""


def _options(command: click.Command) -> list[click.Option]:
    """The options that the help of a command explains."""
    every = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    return [one for one in every if not isinstance(one, SharedOption)]


def _rows(command: click.Command) -> list[str]:
    return list(map(_row, _options(command)))


def _paragraphs(command: click.Command) -> list[str]:
    """What its help says of conditions, and of its exit code."""
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")[1:]]
    kept = filter(_KEPT.fullmatch, paragraphs)
    return [part[max(part.find("The exit code"), 0) :] for part in kept]


def _repeated() -> list[str]:
    """The rows of options that several commands explain in the same words."""
    counted = Counter(row for command in main.commands.values() for row in _rows(command))
    return [row for row, count in counted.items() if count > 1]


def section(name: str, command: click.Command, repeated: list[str]) -> str:
    """What the help of one command says, as Markdown, without what other commands say too."""
    own, shared, of_convert = [], [], []
    for option in _options(command):
        if _row(option) in repeated:
            shared.append(f"`{option.opts[0]}`")
        elif name == "convert" and option.name in _CONVERT_OPTIONS:
            of_convert.append(f"`{_spelled(option)}`")
        else:
            own.append(_row(option))
    parts = [
        f"## tfrecorder {name}",
        f"`{usage(name, command)}` ([guide]({_GUIDES[name]}))",
        *_paragraphs(command),
        _table(own),
        of_convert and f"[As in Python](options.md): {', '.join(of_convert)}.",
        shared and f"[Shared](#options-of-several-commands): {', '.join(shared)}.",
        command.shared if isinstance(command, SharingCommand) else "",
    ]
    return "\n\n".join(part for part in parts if part)


def page() -> str:
    """The whole page."""
    commands = main.commands.items()
    rows = (
        f"| [`{name}`](#tfrecorder-{name}) | {command.get_short_help_str(200)} |"
        for name, command in commands
    )
    options = _repeated()
    shared = [_SHARED, _table(options)]
    sections = (section(name, command, options) for name, command in commands)
    head = HEAD.strip().format(table="\n".join(rows))
    return "\n\n".join([head, *shared, *sections]) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit(f"{PAGE.name} is not what the commands say; run `make docs`")
    else:
        PAGE.write_text(page())
