"""What a file of tests knows of the inside of the package, by import or by name in a string.

The inner law: the faces, which are all of the package that most tests know.
"""

from __future__ import annotations

import ast
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
_PRIVATE = re.compile(r"\._(?!_|fields\b)")  # any class has dunders, and a named tuple `_fields`
_IMPORTED = re.compile(r"\bfrom (tfrecorder[\w.]*) import (\w+(?:, \w+)*)")


def inner_names(code: str) -> set[str]:
    """Each name in the code that belongs to an inner module of the package."""
    return {name for name in _names(ast.parse(code)) if _module_of(name) not in FACES}


def private_names(code: str) -> set[str]:
    """Each name in the code that a module of the package keeps to itself."""
    return {name for name in _names(ast.parse(code)) if _PRIVATE.search(name)}


def _module_of(name: str) -> str:
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def _names(tree: ast.AST) -> Iterator[str]:
    """Names within the package, with all dots from `tfrecorder` on."""
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
            root, _, rest = ast.unparse(node).partition(".")
            if root in homes and "(" not in rest:
                yield f"{homes[root]}.{rest}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            target, name = node.args[:2]
            if isinstance(name, ast.Constant) and ast.unparse(target) in homes:
                yield f"{homes[ast.unparse(target)]}.{name.value}"
