"""Which columns are an element's inputs and targets."""

from __future__ import annotations

from collections.abc import Sequence

from tfrecorder.core.checks import did_you_mean
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.options.read import ReadOptions
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.schema.fields import Field, Fields, of_kind
from tfrecorder.schema.kinds import Boxes, File, Image, Label, Labels, Mask, Number, ValueKind

_CLASSES = (Label, Labels, Boxes, Mask)


def chosen_columns(stored: StoredDataset, options: ReadOptions) -> tuple[Fields, Fields]:
    """The input columns and the target columns.

    By default, inputs are the images; if there are none, the files; without these, all numbers,
    texts and bytes that are not targets.  Targets are labels, boxes, masks and the numbers that the
    schema marks as targets.

    Raises:
        OptionError: there is no such column.
        DatasetError: a label, boxes or a mask is not understood, and `targets` is not given.
    """
    refuse_empty(stored)
    if stored.unread and options.targets is None:
        raise DatasetError(unread_words(stored))
    fields = stored.fields
    images = of_kind(fields, Image)
    files = of_kind(fields, File)
    values = of_kind(fields, ValueKind)
    wanted = [field for field in values if isinstance(field.kind, Number) and field.kind.target]
    inputs = images or files or [field for field in values if field not in wanted]
    targets = [field for field in fields if isinstance(field.kind, _CLASSES) or field in wanted]
    if options.targets is not None:
        targets = _named(stored, "targets", options.targets)
        inputs = [field for field in inputs if field not in targets]
    if options.inputs is not None and not isinstance(options.inputs, str):
        inputs = _named(stored, "inputs", options.inputs)
    return tuple(inputs), tuple(targets)


def refuse_empty(stored: StoredDataset) -> None:
    """Refuse files of other tools without any record: we cannot know their columns."""
    if not stored.fields:
        raise DatasetError(
            "; ".join(stored.unread.values())
            or f"{stored.directory}: there is no record in any file, or none with a value."
            " Check the path."
        )


def unread_words(stored: StoredDataset) -> str:
    """What we do not understand in records of other tools, and how to read the rest."""
    targets = [field.column for field in of_kind(stored.fields, *_CLASSES)]
    others = [field.column for field in stored.fields if not isinstance(field.kind, Image)]
    name = (targets or others or ["…"])[0]
    return (
        f"{'; '.join(stored.unread.values())}. To read the other columns, name them, such as "
        f"`targets=[{name!r}]`; `inputs='all'` gives every key as it is stored."
    )


def _named(stored: StoredDataset, option: str, names: Sequence[str]) -> list[Field]:
    fields = {field.column: field for field in stored.fields}
    for name in names:
        if name not in fields:
            raise OptionError.of(
                option, list(names), f"there is no column {name!r}; {did_you_mean(name, fields)}"
            )
    return [fields[name] for name in names]
