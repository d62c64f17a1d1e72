"""What the page of the Python reference shows of calls that take options: all of them.

mkdocstrings reads the source, where these calls have `**options`.  Their signatures and help are
made when the package is imported (`tfrecorder/options/option.py`), so they are taken from there.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe


class ShownOptions(griffe.Extension):
    """Gives what `takes` decorates the parameters and the docstring that it has at run time."""

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        self._show(func)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        if "__init__" in cls.members:
            self._show(cls)

    def _show(self, shown: griffe.Function | griffe.Class) -> None:
        if not any("takes(" in str(one.value) for one in shown.decorators):
            return
        found: Any = importlib.import_module(shown.module.path)
        for name in shown.path.removeprefix(f"{shown.module.path}.").split("."):
            found = getattr(found, name)
        assert shown.docstring is not None
        shown.docstring.value = inspect.getdoc(found) or ""
        function = shown.members["__init__"] if isinstance(shown, griffe.Class) else shown
        parameters = [
            griffe.Parameter(
                one.name,
                annotation=_in_short(one.annotation),
                default=None if one.default is one.empty else repr(one.default),
                kind=getattr(griffe.ParameterKind, one.kind.name.lower()),
            )
            for one in inspect.signature(found).parameters.values()
        ]
        bound = [one for one in function.parameters if one.name == "self"]
        function.parameters = griffe.Parameters(*bound, *parameters)


def _in_short(annotation: Any) -> str:
    """A type as the source has it, without the modules of its names."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)
