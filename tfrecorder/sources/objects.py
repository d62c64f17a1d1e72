"""Objects on images, and all rows of one image, as one row with a list for each column.

Files of annotations list objects one after the other; and several rows may say something about the
same image, such as a caption each.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.util import hash_pandas_object  # Datumaro puts a pandas without `util` in its place
from PIL import Image as Pictures

from tfrecorder import storage
from tfrecorder.core.text import NotTextError, decoded
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import OptionError, SourceError
from tfrecorder.format.layout import STATED_OF
from tfrecorder.images.boxes_and_masks import plane_of
from tfrecorder.images.header import Header, Reject
from tfrecorder.images.reencode import header_of
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import BOX_COLUMNS, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Schema
from tfrecorder.sources.automl import wide_fields
from tfrecorder.sources.finding import Finding, conflicts
from tfrecorder.sources.named_files import in_threads
from tfrecorder.sources.path_source import Pairs
from tfrecorder.sources.remarks import Remarks, some_of
from tfrecorder.sources.table import as_objects, in_lists, nearest_name

#: The column with the polygons or RLE of each object.
MASKS = "segmentation"

#: The column with the row of the image of each object.
ROW = "row"


def objects_of(
    rows: np.ndarray,
    labels: np.ndarray,
    edges: np.ndarray,
    beside: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """Objects one after the other, as a frame.

    Args:
        rows: the row of the image of each, int64.
        labels: the name of the class of each, objects.
        edges: left, upper, right and lower edge, float64 of [n, 4].
        beside: other values of each, by column.
    """
    columns = {LABEL_COLUMN: labels, **dict(zip(BOX_COLUMNS, edges.T, strict=True)), **beside}
    # Not as pandas' own text, which holds no bad text: validation reports it.
    of_types = {name: pd.Series(values, dtype=values.dtype) for name, values in columns.items()}
    return pd.DataFrame({ROW: rows, **of_types})


def image_columns(splits: Sequence[str], uris: Sequence[str]) -> dict[str, Any]:
    """The columns of images: their splits, if any is stated, and their uris."""
    columns: dict[str, Any] = {SPLIT_COLUMN: splits} if any(splits) else {}
    # Not as pandas' own text, which holds no bad text: validation reports it.
    return {**columns, URI_COLUMN: pd.Series(uris, dtype=object)}


#: So many pictures are looked at, to see whether a source states sizes of them upright.
_LOOKED_AT = 256


def stated_sizes(sizes: np.ndarray) -> pd.DataFrame:
    """The sizes that a source states of its images, as a plan has them; 0 for one that it does not.

    Args:
        sizes: width and height of each.
    """
    is_known = ((sizes >= 1) & (sizes < 2**31)).all(axis=1, keepdims=True)
    return pd.DataFrame(np.where(is_known, sizes, 0).astype(np.int64), columns=[*STATED_OF])


def sizes_shown(
    sizes: pd.DataFrame,
    uris: pd.Series,
    base: str,
) -> tuple[int, int]:
    """How many stated sizes are of a picture as one sees it, not as it is stored; of how many.

    If some are higher than wide, only these are looked at: cameras store pictures wide.

    Args:
        sizes: as `stated_sizes` gives them.
        uris: of the images.
        base: the folder that these start from.
    """
    width, height = sizes.to_numpy().T
    is_high = height > width
    rows = np.flatnonzero(is_high if is_high.any() else height < width)
    rows = rows[:: 1 + len(rows) // _LOOKED_AT]
    count = 0
    paths = [storage.resolve(str(uri), base) for uri in uris.iloc[rows]]
    headers = in_threads(header_at, paths)
    for header, stated in zip(headers, sizes.iloc[rows].to_numpy().tolist(), strict=True):
        with contextlib.suppress(Reject):
            count += bool(header and plane_of(header, None, tuple(stated)).orientation != 1)
    return count, len(rows)


def header_at(path: str) -> Header | None:
    """What the first bytes of an image say; None of one that is not read.

    Nor is one on the web, where each may have a host that does not answer.
    """
    if storage.is_web(path):
        return None
    try:
        with storage.open_seekable(path) as file:
            return header_of(file)
    except (OSError, ValueError, storage.UnreadableError, Pictures.DecompressionBombError):
        return None  # what is wrong with it, the conversion says


def has_masks(options: ConvertOptions) -> bool:
    """True if the schema asks for the mask of each object."""
    return options.schema is not None and MASKS in options.schema.source_columns()


#: What is wrong with a box, by the code of the finding.
_WORDS = {
    "bad_box": "is not four numbers",
    "box_outside": "is beyond",
    "empty_box": "has no area",
    "repeated_box": "is there twice; it is stored once",
}


def object_columns(
    objects: pd.DataFrame,
    uris: Sequence[str],
    sizes: np.ndarray,
    slack: float | np.ndarray,
    place_of: Callable[[Any], str],
) -> tuple[dict[str, pd.Series], list[Finding]]:
    """Columns with a list for each image, and what is wrong.

    Edges that are beyond the image by rounding are put on its edge.  Boxes without four numbers or
    an area are left out, and so is a box that is there again with the same values.

    Args:
        objects: as `objects_of` makes them; their index is what `place_of` takes.
        uris: of the images.
        sizes: width and height of each image in the unit of the edges, float64 of [n, 2]; NaN for
            one that is not known.
        slack: how far an edge may be beyond the image; or that of each image, by width and height.
        place_of: where an object stands, in words.
    """
    edges = objects[[*BOX_COLUMNS]].to_numpy()
    rows = objects[ROW].to_numpy()
    end = np.tile(sizes[rows], 2)
    margin = slack if isinstance(slack, float) else np.tile(slack[rows], 2)
    bad = np.isnan(edges).any(axis=1)
    far = ((edges < -margin) | (edges > end + margin)).any(axis=1)
    inner = np.fmin(np.maximum(edges, 0), end).astype(np.float32)
    shown = np.where(far.reshape(-1, 1), edges, inner)
    empty = (shown[:, :2] >= shown[:, 2:]).any(axis=1) & ~bad
    again = _repeated(objects) & ~bad & ~empty

    def found(code: str, mask: np.ndarray) -> Finding:
        boxes = objects.loc[mask, [ROW, LABEL_COLUMN, *BOX_COLUMNS]]
        values = []
        messages = []
        for number, row, label, *of_box in boxes.itertuples(name=None):
            values.append(", ".join(f"{edge:g}" for edge in of_box))
            words = _WORDS[code]
            if code == "box_outside":
                width, height = sizes[row].tolist()
                words += " the image" if width == height == 1 else f" its {width:g} x {height:g}"
            what = f"the box ({values[-1]}) of {cut(label)!r} on {cut(uris[row])!r}"
            messages.append(f"{place_of(number)}: {what} {words}")
        return Finding(code, boxes[ROW].tolist(), URI_COLUMN, values, messages)

    masks = (bad, far & ~bad & ~empty, empty, again)
    findings = [*map(found, _WORDS, masks)]
    stored = objects.assign(**dict(zip(BOX_COLUMNS, inner.T, strict=True)))
    return in_rows(stored[~(bad | empty | again)], len(uris)), findings


def in_rows(values: pd.DataFrame, count: int) -> dict[str, pd.Series]:
    """Columns with a list for each image, of values whose column `ROW` says of which they are.

    Args:
        count: how many images there are.
    """
    ordered = values.sort_values(ROW, kind="stable")
    sizes = np.bincount(ordered.pop(ROW), minlength=count)
    return {str(name): in_lists(column.to_numpy(), sizes) for name, column in ordered.items()}


def _repeated(objects: pd.DataFrame) -> np.ndarray:
    """Marks each object of which one before has all the values."""
    # To compare all columns of all objects takes twenty times as long.
    sums = hash_pandas_object(objects[[ROW, *BOX_COLUMNS]], index=False)
    again = sums.duplicated(keep=False).to_numpy(copy=True)
    again[again] = objects[again].duplicated()
    return again


def grouped(
    table: pd.DataFrame,
    schema: Schema,
    by: str,
) -> tuple[pd.DataFrame, np.ndarray, list[Finding]]:
    """One row for each value of a column, in the order in which they first come.

    Returns:
        The rows, with lists of the values that columns of lists have in the rows of a group; which
        of the given rows was the first of each; and where others differ within a group.

    Raises:
        OptionError: there is no such column, or its cells cannot be compared.
    """
    if by not in table:
        raise OptionError.of("group_by", by, f"give one of the columns {[*table.columns]}.")
    try:
        codes, _ = pd.factorize(as_objects(table[by]).fillna(""))
    except TypeError:
        raise OptionError.of("group_by", by, "its cells are neither texts nor numbers.") from None
    first = np.unique(codes, return_index=True)[1]
    order = np.argsort(codes, kind="stable")
    rows = table.iloc[first].reset_index(drop=True)
    findings = []
    for name in table.columns.drop(by):
        column = as_objects(table[name])
        if getattr(schema.columns.get(name), "shape", ()) == (None,):
            present = column.map(
                lambda cell: cell is not None and not (isinstance(cell, str) and not cell)
            )
            kept = order[present.to_numpy(dtype=bool)[order]]
            sizes = np.bincount(codes[kept], minlength=len(first))
            rows[name] = in_lists(column.to_numpy()[kept], sizes)
        else:
            findings.append(conflicts(column.set_axis(codes), codes, repr(by)))
    return rows, first, findings


def groups_beside(
    remarks: Remarks,
    options: ConvertOptions,
    folders: Iterable[str],
    columns: Mapping[str, Any],
) -> dict[str, Any]:
    """The column of `split_by`, if it is asked for: a CSV beside the annotations has it.

    Args:
        folders: where the CSV may be.
        columns: those of the annotations.

    Raises:
        OptionError: not one CSV has it beside names of files.
        SourceError: a CSV is not sound.
    """
    by = options.split_by
    if by is None or by in columns:
        return {}
    found = {}
    for path in [f"{one}/{name}" for one in dict.fromkeys(folders) for name in storage.names(one)]:
        if path.lower().endswith(".csv"):
            try:
                if pairs := _pairs_in(text_of(path) or "", by):
                    found[path] = pairs
            except csv.Error as error:
                raise SourceError(f"{path} is not sound CSV: {error}.") from None
    if len(found) != 1:
        words = "one CSV beside the annotations must have it, and a column of file names; it is in"
        raise OptionError.of("split_by", by, f"{words} {' and '.join(found) or 'none'}.")
    ((path, pairs),) = found.items()
    uris = [*columns[URI_COLUMN]]
    pictures = Pairs(uris)
    groups = defaultdict[str, set[str]](set)
    for name, group in pairs:
        uri = pictures.named(name)
        groups[uri].add(group if uri else name)
    if strange := sorted(groups.pop("", ())):
        names = counted(len(strange), "name")
        remarks.notes.append(f"{path} has {names} of no image: {some_of(strange)}")
    wrong = [row for row, uri in enumerate(uris) if len(groups[uri] - {""}) != 1]
    messages = []
    for row in wrong:
        said = f"the {by} {sorted(groups[uris[row]])}"
        messages.append(f"{path} gives {cut(uris[row])!r} {said}, where it must give one")
    values = [uris[row] for row in wrong]
    remarks.findings.append(Finding("bad_annotation", wrong, URI_COLUMN, values, messages))
    return {by: [max(groups[uri], default="") for uri in uris]}


def _pairs_in(text: str, by: str) -> list[tuple[str, str]]:
    """The name of a file and the value of a column in each row of a CSV; [] if it has not both."""
    with wide_fields():
        rows = csv.DictReader(io.StringIO(text))
        heading = [*(rows.fieldnames or ())]
        names = nearest_name(URI_COLUMN, [name for name in heading if name != by])
        if by not in heading or names is None:
            return []
        return [(row[names] or "", row[by] or "") for row in rows]


def files_of(paths: Sequence[str]) -> list[bytes | None]:
    """The bytes of small files; None for one that is not there."""
    return [
        *in_threads(lambda path: storage.unless_missing(lambda: storage.read_bytes(path)), paths)
    ]


def text_of(path: str) -> str | None:
    """The text of a file of names; None if it is not there.

    Raises:
        SourceError: it is neither UTF-8 nor marked as UTF-16.
    """
    (data,) = files_of([path])
    if data is not None and data.startswith(storage.LFS_POINTER):
        raise SourceError(f"{path} is {storage.LFS_WORDS}.")
    try:
        return None if data is None else decoded(data)
    except NotTextError as error:
        raise SourceError(f"{path}, {error}.") from error


def lines_in(text: str | None) -> list[str]:
    """The lines of a text that hold anything, without the blanks around them."""
    return [*filter(None, map(str.strip, (text or "").splitlines()))]


def as_numbers(values: Sequence[Any], *shape: int) -> np.ndarray:
    """Numbers, or lists of as many as the shape says, as float64; NaN for what is not one."""
    wanted = (len(values), *shape)
    try:
        made = np.array(values, np.float64)
        if made.shape == wanted:
            return made
    except (TypeError, ValueError, OverflowError):
        pass
    if len(values) < 2:
        return np.full(wanted, np.nan)
    return np.concatenate([as_numbers([value], *shape) for value in values])
