"""A schema to edit, inferred from what a table holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import IO, Any

import numpy as np
import pandas as pd

from tfrecorder.display.messages import warn
from tfrecorder.errors import SourceError
from tfrecorder.images.reencode import is_picture
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import Frame, Path
from tfrecorder.schema.keys import (
    BOX_COLUMNS,
    LABEL_COLUMN,
    SPLIT_COLUMN,
    URI_COLUMN,
    number_column,
)
from tfrecorder.schema.kinds import (
    BEYOND_FLOAT32,
    DEFAULT_SCHEMA,
    Bytes,
    Ignore,
    Image,
    Kind,
    Label,
    Labels,
    Mask,
    Number,
    Schema,
    Split,
    Text,
    ValueKind,
)
from tfrecorder.sources.cells import is_data_uri
from tfrecorder.sources.files import looks_like_image
from tfrecorder.sources.hugging_face import is_hugging_face
from tfrecorder.sources.source import (
    holds_splits,
    read_raw,
    stated_numbers,
    with_integers,
    with_orientation,
)
from tfrecorder.sources.table import (
    as_objects,
    is_list,
    is_time,
    kinds_by_name,
    nearest_name,
    refuse_twice,
    with_classes,
)

_NUMBERED_LABEL = re.compile(r"label_?\d+")
_TRUTHS = frozenset({"true", "false"})


def infer_schema(
    source: Frame | Path | IO[Any],
    form: str | None = None,
) -> Schema:
    """The schema that the columns of a source suggest, for you to check and correct.

    `split`, `image_uri`, `label`, `mask_uri`, `x_min`, `y_min`, `x_max` and `y_max` are recognised
    by their names, other columns by what they hold.  Columns that a record cannot hold are ignored,
    and so is `row`, the number that `to_frame` gives each row.

    Args:
        source: a frame; the path of a CSV, of JSON Lines, of Parquet, of COCO's JSON or of a
            folder; or an open file.
        form: what a folder is read as, as for `tfrecorder.convert`.

    Raises:
        SourceError: the source cannot be read, or no column could make a feature.

    >>> import pandas as pd
    >>> print(infer_schema(pd.DataFrame({"image_uri": ["a.jpg"], "age": [3.5]})))
    Schema(image_uri=Image(), age=Number())
    """
    return inferred(source, ConvertOptions(form=form))


def inferred(source: Any, options: ConvertOptions) -> Schema:
    """What `infer_schema` returns; of the options, those about a CSV's text and the form count.

    Raises:
        SourceError: as for `infer_schema`.
    """
    if is_hugging_face(source):
        raise SourceError(
            "a dataset of Hugging Face names the types of its columns itself: give it to "
            "`tfrecorder.validate` as it is, or some of its rows as a frame: `source.to_pandas()`."
        )
    raw = read_raw(source, options)
    names = [str(raw.columns.get(name, name)) for name in raw.frame.columns]
    refuse_twice(names)
    table = raw.frame.set_axis(names, axis=1)
    if raw.schema is not None:
        schema = with_classes(raw.schema, raw.classes)
        return with_orientation(schema, raw, (), table, raw.base)[0]
    table = table if raw.typed else with_integers(table, DEFAULT_SCHEMA)
    made: dict[str, Kind] = {}
    numbered = [name for name in names if _NUMBERED_LABEL.fullmatch(name)]
    by_name = kinds_by_name(table)
    number = number_column((), beside=names)
    likely = {wanted: nearest_name(wanted, names) for wanted in (SPLIT_COLUMN, LABEL_COLUMN)}
    of_splits = [name for name in names if holds_splits(table[name])]
    if likely[SPLIT_COLUMN] not in of_splits:
        likely[SPLIT_COLUMN] = next(iter(of_splits), None)
    for name in names:
        column = as_objects(table[name])
        if name == number and stated_numbers(table[name]) is not None:
            made[name] = Ignore()
        elif "boxes" in by_name and name in (*BOX_COLUMNS, LABEL_COLUMN):
            made["boxes"] = by_name["boxes"]
        elif name in numbered and len(numbered) > 1:
            made.setdefault("labels", Labels(columns=tuple(numbered)))
        elif name in raw.cells:
            made[name] = Image()
        elif name in (LABEL_COLUMN, "labels"):
            made[name] = Labels() if column.dropna().map(is_list).any() else Label()
        elif name == likely[SPLIT_COLUMN] and SPLIT_COLUMN not in names:
            made[name] = Split()
        else:
            made[name] = by_name.get(name) or _with_default(_guess(column), column)
        is_label = name == likely[LABEL_COLUMN] and LABEL_COLUMN not in names
        if is_label and name in made and _may_be_classes(made[name]):
            made[name] = Label()
        if made.get(name) == Ignore() and column.map(is_time).any():
            warn(
                f"column {name!r} is ignored: a record holds no dates and times; "
                f"`frame[{name!r}].astype(str)` makes texts of them"
            )
    if all(isinstance(kind, (Ignore, Split)) for kind in made.values()):
        raise SourceError(f"no column could make a feature; the columns are {names}.")
    masks = [name for name, kind in made.items() if isinstance(kind, Mask)]
    images = [name for name, kind in made.items() if isinstance(kind, Image)]
    if "boxes" in made and not images:
        likely_image = nearest_name(URI_COLUMN, names)
        if likely_image not in made:
            raise SourceError(
                f"there are boxes, but no column {URI_COLUMN!r} with their images; the columns are "
                f"{names}. Rename the one that has them."
            )
        made[likely_image] = Image()
    if masks and len(images) > 1:
        made |= {name: Mask(of=images[0]) for name in masks}
    return with_classes(Schema(made), raw.classes)


def _may_be_classes(kind: Kind) -> bool:
    """True for a kind of texts or of integers, one a row."""
    is_whole = isinstance(kind, Number) and kind.dtype == "int64"
    return (isinstance(kind, Text) or is_whole) and getattr(kind, "shape", None) == ()


def _guess(column: pd.Series) -> Kind:
    cells = column.dropna()
    if not len(cells):
        return Ignore()
    if cells.map(is_list).all():
        try:
            return _guess_lists([np.asarray(cell) for cell in cells])
        except ValueError:  # lists of different lengths in a list
            return Ignore()
    if cells.map(_holds_image).all():
        return Image()

    def are(*types: type) -> bool:
        return bool(cells.map(lambda cell: isinstance(cell, types)).all())

    if are(bytes, bytearray):
        return Bytes()
    if are(str):
        return _guess_texts(cells)
    if are(bool, np.bool_):
        return Number(dtype="bool")
    if are(int, np.integer) or (are(Decimal) and not (cells % 1).any()):
        return _numbers(cells, "int64")
    if are(int, float, np.integer, np.floating, Decimal):
        return _numbers(cells, "float32")
    return Ignore()


def _numbers(
    values: Any,
    dtype: str,
    shape: Any = (),
) -> Kind:
    try:
        sizes = np.abs(np.asarray(values, np.float64))
    except OverflowError:  # an integer of more than 308 digits
        return Ignore()
    beyond = (sizes >= (BEYOND_FLOAT32 if dtype == "float32" else 2.0**63)) & np.isfinite(sizes)
    return Ignore() if beyond.any() else Number(dtype=dtype, shape=shape)


#: What stands in a cell that is missing, by the type of its column.
_FILLED = {"text": "", "bytes": b"", "bool": False, "int64": -1, "float32": -1.0}


def _with_default(kind: Kind, column: pd.Series) -> Kind:
    """The kind, with a value for missing cells if there are any, for the user to change."""
    missing = column.isna()
    if isinstance(kind, Number):
        missing |= column.map(lambda cell: isinstance(cell, str) and not cell.strip())
    if not isinstance(kind, ValueKind) or not missing.any():
        return kind
    cell = _FILLED[kind.dtype if isinstance(kind, Number) else kind.word]
    shape: Any = kind.shape
    value = [] if shape == (None,) else np.full(shape, cell, dtype="O").tolist()
    return replace(kind, default=value)


def _holds_image(cell: Any) -> bool:
    """True for what can only be an image; bytes can be anything."""
    if isinstance(cell, str):
        return is_data_uri(cell)
    return is_picture(cell) or (isinstance(cell, Mapping) and {*cell} == {"bytes", "path"})


def _guess_texts(cells: pd.Series) -> Kind:
    if cells.map(looks_like_image).all():
        return Image()
    filled = cells[cells != ""]
    if len(filled) and filled.str.lower().isin(_TRUTHS).all():
        return Number(dtype="bool")
    numbers = pd.to_numeric(filled, errors="coerce")
    beyond = np.isinf(numbers) & filled.str.contains("[0-9]")  # a number of too many digits
    if not len(filled) or (numbers.isna() | beyond).any():
        return Text()
    whole = filled.str.fullmatch(r"-?[0-9]{1,18}").all()
    kind = _numbers(numbers, "int64" if whole else "float32")
    return Text() if isinstance(kind, Ignore) else kind


def _guess_lists(arrays: Sequence[np.ndarray]) -> Kind:
    shapes = {array.shape for array in arrays}
    filled = [array for array in arrays if array.size]
    types = {array.dtype.kind for array in filled}
    fixed = len(shapes) == 1 and len(filled) == len(arrays)
    # Lists of one length may be a coincidence; several of numbers, or with several axes, are not.
    several_numbers = len(arrays) > 1 and types <= {"f", "i", "u", "b"}
    alike = arrays[0].ndim > 1 or several_numbers
    shape: Any = shapes.pop() if fixed and alike else (None,)
    if shape == (None,) and any(array.ndim != 1 for array in arrays):
        return Ignore()
    if types == {"U"}:
        return Text(shape=shape)
    if types == {"S"}:
        return Bytes(shape=shape)
    if types == {"b"}:
        return Number(dtype="bool", shape=shape)
    whole = bool(types) and types <= {"i", "u", "b"}
    if not whole and not types <= {"f", "i", "u"}:
        return Ignore()
    values = np.concatenate([np.empty(0), *(array.ravel() for array in filled)])
    return _numbers(values, "int64" if whole else "float32", shape)
