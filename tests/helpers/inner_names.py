"""What a file of tests knows of the inside of the package, by import or by name in a string.

The inner law: the faces, which are all of the package that most tests know.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import tfrecorder

PACKAGE = Path(tfrecorder.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
}

#: What users import; all other modules are inner ones.
FACES = {
    "tfrecorder",
    "tfrecorder.errors",
    "tfrecorder.keras",
    "tfrecorder.parts",
    "tfrecorder.schema",
    "tfrecorder.streaming",
    "tfrecorder.torch",
}

_DOTTED = re.compile(r"\btfrecorder(?:\.\w+)+")
_IMPORTED = re.compile(r"\bfrom (tfrecorder[\w.]*) import (\w+(?:, \w+)*)")
_PRIVATE = re.compile(r"\._(?!_|fields\b)")  # any class has dunders, and a named tuple `_fields`

#: What a file has that knows one: most have none of these, and need not be parsed.
_BELOW = "|".join(sorted({name.rpartition(".")[2] for name in MODULES - FACES if name.count(".")}))
_NEXT = r"(?:\.|\s+import\s[\w\s,(]*\b)"
_FIRST = "|".join(sorted({name.split(".")[1] for name in MODULES - FACES if name.count(".") == 1}))
_LIKELY = re.compile(
    rf"\btfrecorder{_NEXT}(?:{_FIRST})\b"
    rf"|\btfrecorder\.(?:schema|streaming){_NEXT}(?:{_BELOW})\b"
    rf"|\btfrecorder[\w.]*{_NEXT}_[a-zA-Z]"
    r"|\btfrecorder[\w.]* as \w"
    r"|\b(?:errors|keras|parts|schema|streaming|torch)\._[a-zA-Z]"
)


def inner_names(code: str) -> set[str]:
    """Each name in the code that belongs to an inner module of the package."""
    return {name for name in _names(code) if _module_of(name) not in FACES}


def private_names(code: str) -> set[str]:
    """Each name in the code that a module of the package keeps to itself."""
    return {name for name in _names(code) if _PRIVATE.search(name)}


def _module_of(name: str) -> str:
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


@functools.cache
def _names(code: str) -> frozenset[str]:
    """Names within the package, with all dots from `tfrecorder` on."""
    return frozenset(_found(ast.parse(code)) if _LIKELY.search(code) else ())


def _dotted(node: ast.AST) -> str:
    """A name with its attributes as the code has it; "" for what is no such name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *parts]) if isinstance(node, ast.Name) else ""


def _found(tree: ast.AST) -> Iterator[str]:
    homes = {"tfrecorder": "tfrecorder"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "tfrecorder":
                    yield alias.name
                    if alias.asname:
                        homes[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.split(".")[0] == "tfrecorder":
                for alias in node.names:
                    homes[alias.asname or alias.name] = f"{module}.{alias.name}"
                    yield f"{module}.{alias.name}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _DOTTED.findall(node.value)
            for module, listed in _IMPORTED.findall(node.value):
                for name in listed.split(", "):
                    yield f"{module}.{name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, _, rest = _dotted(node).partition(".")
            if root in homes:
                yield f"{homes[root]}.{rest}"
        elif isinstance(node, ast.Call) and _dotted(node.func).endswith("setattr"):
            target, name = node.args[:2]
            if isinstance(name, ast.Constant) and _dotted(target) in homes:
                yield f"{homes[_dotted(target)]}.{name.value}"
