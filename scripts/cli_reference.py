"""Writes docs/cli.md, the reference of the command line, from what the commands say of themselves.

python scripts/cli_reference.py            # write it
python scripts/cli_reference.py --check    # exit code 1 if it is not what would be written
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tfrecorder.cli.main import main
from tfrecorder.cli.options import SharedOption, SharingCommand

PAGE = Path(__file__).resolve().parent.parent / "docs/cli.md"

HEAD = """# The command line

<!-- Made by scripts/cli_reference.py from the commands' own help: `make docs` writes it again. -->

`tfrecorder COMMAND --help` shows what is on this page. The exit code is 0 if all is well, 1 if \
not (`validate` found errors, `verify` faults, a conversion failed), 2 if an \
argument or an option is wrong, and 130 after Ctrl-C. Errors are one line on standard error, in \
colour in a terminal unless `NO_COLOR` is set.

| command | |
|---|---|
{table}

The options of `convert` in more detail: [Every option of convert](options.md).

## In a script

`-` reads a CSV from standard input, `--json` prints results for programs, `--quiet` prints only \
errors, and `--dry-run` checks everything and writes nothing:

```sh
grep -v gravel flowers.csv | tfrecorder convert - no_gravel --base . --json > result.json
tfrecorder convert flowers.csv other --dry-run
```

## Completion

To complete commands, options and their values with the Tab key, add one line to your shell's \
start-up file.

Bash (4.4 or newer), in `~/.bashrc`:

<!-- not run: changes the shell that it is typed in -->
```sh
eval "$(_TFRECORDER_COMPLETE=bash_source tfrecorder)"
```

Zsh, in `~/.zshrc`:

<!-- not run: changes the shell that it is typed in -->
```sh
eval "$(_TFRECORDER_COMPLETE=zsh_source tfrecorder)"
```

Fish, in `~/.config/fish/completions/tfrecorder.fish`:

<!-- not run: changes the shell that it is typed in -->
```sh
_TFRECORDER_COMPLETE=fish_source tfrecorder | source
```

Each line starts `tfrecorder` once, which takes half a second. To save it, write the script that \
it prints to a file and source that file.
"""


def usage(name: str, command: click.Command) -> str:
    """The first line of the help: arguments in capitals."""
    arguments = [one.human_readable_name for one in command.params if _is_argument(one)]
    return " ".join(["tfrecorder", name, "[OPTIONS]", *(word.upper() for word in arguments)])


def _is_argument(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Argument)


def option_row(option: click.Option) -> str:
    """A row of the table: the option as it is written, what it does, and its default."""
    flags = ", ".join(option.opts)
    if option.secondary_opts:
        flags += f" / {', '.join(option.secondary_opts)}"
    elif not option.is_flag:
        choices = option.type.choices if isinstance(option.type, click.Choice) else ()
        flags += f" {'|'.join(map(str, choices)) or option.metavar or option.type.name.upper()}"
    words = option.help or ""
    if option.show_default:
        words += f" Default: {option.default}."
    return f"| `{_cell(flags)}` | {_cell(words)} |"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def section(name: str, command: click.Command) -> str:
    """What the help of one command says, as Markdown."""
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    every = [one for one in command.params if isinstance(one, click.Option)]
    options = [one for one in every if not isinstance(one, SharedOption)]
    table = ["| option | |", "|---|---|", *map(option_row, options)] if options else []
    example = (command.epilog or "").removeprefix("Example: ")
    return "\n\n".join(
        [
            f"## tfrecorder {name}",
            f"```text\n{usage(name, command)}\n```",
            *paragraphs,
            "\n".join(table),
            *([command.shared] if isinstance(command, SharingCommand) else []),
            f"Example: `{example}`",
        ]
    )


def page() -> str:
    """The whole page."""
    commands = main.commands.items()
    rows = (
        f"| [`{name}`](#tfrecorder-{name}) | {command.get_short_help_str(200)} |"
        for name, command in commands
    )
    sections = (section(name, command) for name, command in commands)
    return "\n\n".join([HEAD.strip().format(table="\n".join(rows)), *sections]) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit(f"{PAGE.name} is not what the commands say; run `make docs`")
    else:
        PAGE.write_text(page())
