"""The forms that AutoML Vision and Vertex AI import: CSV without a header, and JSON Lines.

Each row has one label, or several, or boxes: one row per box (CSV) or a list (JSON Lines).
"""

from __future__ import annotations

import contextlib
import csv
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd

from tfrecorder.core.text import distinct, encoding_of, read_json
from tfrecorder.display.tables import cut
from tfrecorder.errors import SourceError
from tfrecorder.options.convert_values import TextForm
from tfrecorder.schema.keys import BOX_COLUMNS, FILE_NAME, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Labels, Schema, Split
from tfrecorder.schema.splits import SPELLINGS

_ML_USE = "aiplatform.googleapis.com/ml_use"

#: What an object of JSON Lines calls its image: Vertex AI's name, and those of columns.
_IMAGE = "imageGcsUri"
_NAMES = {_IMAGE, FILE_NAME, URI_COLUMN}

#: How many values follow the label in a row with a box: two or four corners, x before y.
_BOX_VALUES = (6, 8)


_DETECTION = Schema({SPLIT_COLUMN: Split(), URI_COLUMN: Image(), "boxes": Boxes()})
_SEVERAL_LABELS = Schema({SPLIT_COLUMN: Split(), URI_COLUMN: Image(), LABEL_COLUMN: Labels()})


#: Characters of a cell that holds an image itself: more than a reader accepts by default.
_WIDEST = 2**30


@contextlib.contextmanager
def wide_fields() -> Iterator[None]:
    """A block in which a cell of a CSV may hold a whole image, as a `data:` uri."""
    before = csv.field_size_limit(_WIDEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def read_headerless(
    path: str,
    copy: str,
    is_image: Callable[[str], bool],
    form: TextForm,
) -> tuple[pd.DataFrame, Schema | None]:
    """A CSV in the order `[split,]uri[,label,…]` or `[split,]uri,label,x,y,x,y,x,y,x,y`.

    Args:
        path: the name the user gave.
        copy: where it can be opened.
        is_image: True for a cell that can only be an image.
        form: how the text is written.

    Returns:
        The table, and its schema if its form has one.
    """
    splits = []
    uris = []
    given = []
    with open(copy, newline="", encoding=form.codec) as file, wide_fields():
        for cells in csv.reader(file, strict=True, **form.dialect):
            if not any(cells):
                continue
            # Also a word that is no split, if the image comes next: validation will name it.
            is_before_image = any(map(is_image, cells[1:2])) and not is_image(cells[0])
            if cells[0].strip().lower() not in SPELLINGS and not is_before_image:
                cells.insert(0, "")
            while cells and not cells[-1]:
                cells.pop()
            splits.append(cells[0])
            uris.append("".join(cells[1:2]))
            given.append(cells[2:])
    table = pd.DataFrame({SPLIT_COLUMN: splits, URI_COLUMN: uris}, dtype=str)
    if any(len(values) - 1 in _BOX_VALUES and _are_numbers(values[1:]) for values in given):
        return _with_boxes(path, table, given), _DETECTION
    _refuse_numbers(path, [values for values in given if values], any(splits))
    if max(map(len, given), default=0) > 1:
        return table.assign(label=pd.Series(given, dtype=object)), _SEVERAL_LABELS
    if any(given):
        table[LABEL_COLUMN] = pd.Series(["".join(values) for values in given], dtype=str)
    return table, None


def _refuse_numbers(
    path: str,
    rows: list[list[str]],
    has_splits: bool,
) -> None:
    """Raise a SourceError if what follows the images are no classes, or not all of them.

    Args:
        rows: what follows, if anything does.
    """
    if len({*map(len, rows)}) != 1 or len(rows[0]) < 2:
        return
    columns = zip(*rows, strict=True)
    numbers = [at for at, cells in enumerate(columns) if any(cells) and _are_numbers(cells)]
    are_boxes = len(numbers) == len(BOX_COLUMNS)
    are_classes = all(cell.isdecimal() for row in rows for cell in row)
    if not numbers or (are_classes and not are_boxes):
        return
    of_numbers = iter(
        BOX_COLUMNS if are_boxes else [f"value_{at + 1}" for at in range(len(numbers))]
    )
    labels = iter([LABEL_COLUMN])
    names = [SPLIT_COLUMN, URI_COLUMN] if has_splits else [URI_COLUMN]
    for at in range(len(rows[0])):
        names.append(next(of_numbers if at in numbers else labels, ""))
    heading = cut(",".join(names))
    raise SourceError(
        f"{path}: {cut(', '.join(rows[0]))} after the first image are not all classes, and no "
        f"heading says what they are. Write one as the first line, such as {heading}"
    )


def _are_numbers(cells: Iterable[str]) -> bool:
    """True if each is a number, or empty."""
    try:
        return not any(math.isnan(float(cell)) for cell in cells if cell)
    except ValueError:
        return False


def _with_boxes(
    path: str,
    table: pd.DataFrame,
    given: list[list[str]],
) -> pd.DataFrame:
    rows = []
    for number, values in enumerate(given):
        corners = values[1:]
        if not _are_numbers(corners) or (values and not corners):
            raise SourceError(
                f"{path}: row {number} has {cut(', '.join(values))} after its image; in a file "
                "with boxes a row is [split,]uri,label,x_min,y_min,,,x_max,y_max,,"
            )
        xs = [float(cell) for cell in corners[0::2] if cell]
        ys = [float(cell) for cell in corners[1::2] if cell]
        edges: list[float | None] = [None] * 4
        if xs and ys:
            edges = [min(xs), min(ys), max(xs), max(ys)]
        rows.append(["".join(values[:1]) or None, *edges])
    boxes = pd.DataFrame(rows, columns=[LABEL_COLUMN, *BOX_COLUMNS], dtype=object)
    return pd.concat([table, boxes], axis=1)


def read_json_lines(path: str, copy: str) -> tuple[pd.DataFrame, Schema | None]:
    """JSON Lines: Vertex AI's, an image per line with one class, several, or boxes; or of columns.

    Returns:
        The table, and its schema if its form has one.

    Raises:
        SourceError: a line is not JSON of this form.
    """
    lines = list(_json_lines(path, copy))
    if not any(_IMAGE in line for _, line in lines):
        return pd.DataFrame([line for _, line in lines], dtype=object), None
    stated = [_stated(path, *line) for line in lines]
    splits = [split for split, _ in stated]
    uris = [line.get(_IMAGE, "") for _, line in lines]
    table = pd.DataFrame({SPLIT_COLUMN: splits, URI_COLUMN: uris}, dtype=object)
    if any("boundingBoxAnnotations" in line for _, line in lines):
        keys = ("displayName", "xMin", "yMin", "xMax", "yMax")
        names = (LABEL_COLUMN, *BOX_COLUMNS)
        boxes = [_boxes(path, *line) for line in lines]
        for key, name in zip(keys, names, strict=True):
            cells = [[box.get(key) for box in of_line] for of_line in boxes]
            table[name] = pd.Series(cells, dtype=object)
        return table, _DETECTION
    labels = [names for _, names in stated]
    if any("classificationAnnotations" in line for _, line in lines):
        table[LABEL_COLUMN] = pd.Series(labels, dtype=object)
        return table, _SEVERAL_LABELS
    if any(labels):
        singles = [names[0] if names else None for names in labels]
        table[LABEL_COLUMN] = pd.Series(singles, dtype=object)
    return table, None


def _json_lines(path: str, copy: str) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(copy, "rb") as file:
        encoding = encoding_of(file.read(4))
    with open(copy, encoding=encoding) as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                line = read_json(text, object_pairs_hook=distinct)
            except ValueError as error:
                raise SourceError(f"{path}: line {number} is not sound JSON: {error}.") from error
            if not isinstance(line, dict) or _NAMES.isdisjoint(line):
                raise SourceError(
                    f"{path}: line {number} has neither imageGcsUri, as Vertex AI's JSON Lines, "
                    "nor file_name or image_uri; read any other with pandas, and convert the frame."
                )
            yield number, line


def _boxes(
    path: str,
    number: int,
    line: dict[str, Any],
) -> list[dict[str, Any]]:
    boxes = line.get("boundingBoxAnnotations", [])
    if not isinstance(boxes, list) or not all(isinstance(box, dict) for box in boxes):
        raise SourceError(f"{path}: line {number}: boundingBoxAnnotations is not a list of boxes.")
    return boxes


def _stated(
    path: str,
    number: int,
    line: dict[str, Any],
) -> tuple[str, list[Any]]:
    """The split of a line, and the names of its classes."""
    try:
        split = str(line.get("dataItemResourceLabels", {}).get(_ML_USE, ""))
        names = [label.get("displayName") for label in line.get("classificationAnnotations", [])]
        single = line.get("classificationAnnotation", {}).get("displayName")
    except (AttributeError, TypeError) as error:
        words = "its labels and annotations are not objects, as Vertex AI's"
        raise SourceError(f"{path}: line {number}: {words}.") from error
    return split, names if single is None else [*names, single]
