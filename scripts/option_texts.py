"""Writes below each option of `options/keywords.py` what `help` says of it, for editors to show.

python scripts/option_texts.py            # write it
python scripts/option_texts.py --check    # exit code 1 if it is not what would be written

Pylance and pyright show the text of a field of a TypedDict where its option is typed.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tfrecorder
import tfrecorder.torch
from tfrecorder.options import keywords

FILE = Path(keywords.__file__)

#: The calls that take options, by the class of their options.
CALLS: dict[str, Callable[..., Any]] = {
    "ConvertKeywords": tfrecorder.convert,
    "AppendKeywords": tfrecorder.append,
    "UpdateKeywords": tfrecorder.update,
    "StageKeywords": tfrecorder.parts.stage,
    "StreamKeywords": tfrecorder.stream,
    "RemoveKeywords": tfrecorder.remove,
    "CompactKeywords": tfrecorder.compact,
    "ValidateKeywords": tfrecorder.validate,
    "PreviewKeywords": tfrecorder.preview,
    "CardKeywords": tfrecorder.card,
    "BatchKeywords": tfrecorder.batches,
    "LoadKeywords": tfrecorder.load,
    "BenchmarkKeywords": tfrecorder.benchmark,
    "TensorKeywords": tfrecorder.torch.batches,
}


def classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """The classes of options by name."""
    return {
        one.name: one
        for one in tree.body
        if isinstance(one, ast.ClassDef) and one.name != "ArrowTable"
    }


def with_its_bases(
    name: str,
    every: dict[str, ast.ClassDef],
) -> Iterator[str]:
    yield name
    for base in every[name].bases:
        if isinstance(base, ast.Name) and base.id in every:
            yield from with_its_bases(base.id, every)


def said(call: Callable[..., Any], name: str) -> str | None:
    """What the help of a call says of an option."""
    found = re.search(rf"^    {name}: (.*\n(?: {{8}}.*\n)*)", f"{inspect.getdoc(call)}\n", re.M)
    return " ".join(found[1].split()) if found else None


def text_of(
    owner: str,
    name: str,
    every: dict[str, ast.ClassDef],
) -> str:
    """What the first call that takes the option says of it."""
    for cls, call in CALLS.items():
        if owner in with_its_bases(cls, every) and (text := said(call, name)):
            return text
    raise SystemExit(f"no call says what {owner}.{name} is")


def written(source: str) -> str:
    """The file with the text of each option below it."""
    tree = ast.parse(source)
    every = classes(tree)
    lines = source.splitlines()
    for cls in reversed(every.values()):
        for place in reversed(range(len(cls.body))):
            field = cls.body[place]
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            after = cls.body[place + 1] if place + 1 < len(cls.body) else None
            if isinstance(after, ast.Expr):  # the text of before
                del lines[after.lineno - 1 : after.end_lineno]
            text = text_of(cls.name, field.target.id, every).replace("\\", "\\\\")
            shown = textwrap.wrap(f'"""{text}"""', 96)
            lines[field.end_lineno : field.end_lineno] = [f"    {line}" for line in shown]
    return "\n".join(lines) + "\n"


def main() -> None:
    before = FILE.read_text()
    after = written(before)
    if "--check" in sys.argv[1:]:
        sys.exit(f"run scripts/option_texts.py: {FILE.name} is old" if after != before else 0)
    FILE.write_text(after)


if __name__ == "__main__":
    main()
