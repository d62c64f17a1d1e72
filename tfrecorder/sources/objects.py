"""Objects on images, and all rows of one image, as one row with a list for each column.

Files of annotations list objects one after the other; and several rows may say something about the
same image, such as a caption each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.text import NotTextError, decoded
from tfrecorder.display.tables import counted, cut, unused_words
from tfrecorder.errors import OptionError, SourceError
from tfrecorder.format.summary import NOT_STORED
from tfrecorder.schema.keys import BOX_COLUMNS, LABEL_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Schema
from tfrecorder.schema.splits import SPELLINGS
from tfrecorder.sources.finding import Finding, conflicts
from tfrecorder.sources.named_files import in_threads
from tfrecorder.sources.table import as_objects, in_lists

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


def object_columns(
    objects: pd.DataFrame,
    uris: Sequence[str],
    sizes: np.ndarray,
    slack: float | np.ndarray,
    place_of: Callable[[int], str],
) -> tuple[dict[str, pd.Series], list[Finding]]:
    """Columns with a list for each image, and what is wrong.

    Edges that are beyond the image by rounding are put on its edge.  Boxes without an area are left
    out, and so is a box that is there again with the same values.

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
    far = ((edges < -margin) | (edges > end + margin)).any(axis=1)
    inner = np.minimum(np.maximum(edges, 0), np.where(np.isnan(end), np.inf, end))
    inner = inner.astype(np.float32)
    empty = ~far & ((inner[:, 0] >= inner[:, 2]) | (inner[:, 1] >= inner[:, 3]))
    empty |= (edges[:, 0] >= edges[:, 2]) | (edges[:, 1] >= edges[:, 3])
    again = _repeated(objects, edges)

    def found(code: str, mask: np.ndarray) -> Finding:
        return _about_boxes(code, objects[mask], uris, sizes, place_of)

    findings = [
        found("box_outside", far & ~empty),
        found("empty_box", empty),
        found("repeated_box", again & ~empty),
    ]
    stored = objects.assign(**dict(zip(BOX_COLUMNS, inner.T, strict=True)))
    kept = stored[~(empty | again)].sort_values(ROW, kind="stable")
    counts = np.bincount(kept.pop(ROW), minlength=len(uris))
    return {str(name): in_lists(of.to_numpy(), counts) for name, of in kept.items()}, findings


#: An odd number whose bits are spread, to mix bits with.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def _repeated(objects: pd.DataFrame, edges: np.ndarray) -> np.ndarray:
    """Marks each object of which one before has all the values."""
    sums = objects[ROW].to_numpy().astype(np.uint64)
    for edge in edges.T:
        sums = (sums ^ np.ascontiguousarray(edge).view(np.uint64)) * _SPREAD
    ordered = np.sort(sums)  # a twentieth of the time of a comparison of all columns
    several = ordered[1:][ordered[1:] == ordered[:-1]]
    again = np.zeros(len(objects), bool)
    if len(several):
        places = np.flatnonzero(np.isin(sums, several))
        again[places] = objects.iloc[places].duplicated().to_numpy()
    return again


_WORDS = {
    "box_outside": "is beyond",
    "empty_box": "has no area",
    "repeated_box": "is there twice; it is stored once",
}


def _about_boxes(
    code: str,
    boxes: pd.DataFrame,
    uris: Sequence[str],
    sizes: np.ndarray,
    place_of: Callable[[int], str],
) -> Finding:
    values = []
    messages = []
    rows = boxes[ROW].tolist()
    cells = boxes[[LABEL_COLUMN, *BOX_COLUMNS]].itertuples(name=None)
    for row, (number, label, *edges) in zip(rows, cells, strict=True):
        shown = ", ".join(f"{edge:g}" for edge in edges)
        words = _WORDS[code]
        if code == "box_outside":
            width, height = sizes[row].tolist()
            words += " the image" if width == height == 1 else f" its {width:g} x {height:g}"
        values.append(shown)
        what = f"the box ({shown}) of {cut(label)!r} on {cut(uris[row])!r}"
        messages.append(f"{place_of(number)}: {what} {words}")
    return Finding(code, rows, URI_COLUMN, values, messages)


#: Above this share of missing files, a finding says so; else a note of the result.
_MANY = 0.2

#: How many files or classes a message names.
_NAMED = 5


class Said(NamedTuple):
    """What there is to say of a source beyond what its table shows: findings, and notes."""

    findings: list[Finding]
    notes: list[str]


def say_missing(
    said: Said,
    what: str,
    missing: Sequence[int],
    splits: Sequence[str],
    uris: Sequence[str],
    looked: Callable[[int], str],
) -> None:
    """Say for which images a file of annotations is missing.

    Args:
        said: gets an error for a split without any (but TEST, which is often published so), a
            warning above a fifth of the others, else a note.
        what: the file, in words.
        missing: the rows of these images.
        splits, uris: of all images.
        looked: what was looked for, for a row.
    """
    lost = Counter(splits[row] for row in missing)
    of_all = Counter(splits)
    whole = {split for split, count in lost.items() if count == of_all[split]}
    is_everything = len(missing) == len(splits)
    parts = [("", [*missing])] if is_everything else []
    for split in of_all if not is_everything else ():
        if split in whole:
            parts.append((split, [row for row in missing if splits[row] == split]))
    rest = [row for row in missing if splits[row] not in whole]
    of_rest = sum(count for split, count in of_all.items() if split not in whole)

    def words(rows: Sequence[int], of: int) -> str:
        names = [uris[row] for row in rows]
        return f"no {what} for {len(rows):,} of {counted(of, 'image')} ({some_of(names)})"

    for split, rows in parts:
        is_error = is_everything or SPELLINGS.get(split.lower()) != "TEST"
        code = "no_annotations" if is_error else "missing_annotations"
        where = f" of {SPELLINGS.get(split.lower(), split)}" if split else ""
        message = f"{words(rows, len(rows))}{where}; looked for {looked(rows[0])}"
        said.findings.append(Finding(code, [None], URI_COLUMN, [len(rows)], message))
    if len(rest) > _MANY * of_rest:
        message = f"{words(rest, of_rest)}; looked for {looked(rest[0])}"
        said.findings.append(
            Finding("missing_annotations", [None], URI_COLUMN, [len(rest)], message)
        )
    elif rest:
        said.notes.append(f"{words(rest, of_rest)}: they are without objects")


def say_without_image(
    said: Said,
    what: str,
    files: Sequence[str],
    of: int,
) -> None:
    """Say which files of annotations are of no image: a warning if many are, else a note.

    Args:
        of: how many files there are.
    """
    if not files:
        return
    verb = "has" if len(files) == 1 else "have"
    message = f"{len(files):,} of {counted(of, what)} {verb} no image: {some_of(files)}"
    if len(files) > _MANY * of:
        finding = Finding("annotations_without_image", [None], URI_COLUMN, [len(files)], message)
        said.findings.append(finding)
    else:
        said.notes.append(message)


def some_of(names: Sequence[str]) -> str:
    shown = ", ".join(cut(name) for name in names[:_NAMED])
    return shown + (", …" if len(names) > _NAMED else "")


def say_unused(
    said: Said,
    names: Sequence[str],
    labels: Iterable[str],
) -> None:
    """Say which classes no image has."""
    used = {*labels}
    unused = [name for name in names if name not in used]
    if unused:
        said.notes.append(unused_words(unused))


def say_not_stored(
    said: Said,
    counts: Mapping[str, int],
    remedies: Mapping[str, str],
) -> None:
    """Say what of the objects is not stored.

    Args:
        counts: of how many objects each is.
        remedies: how it would be stored, for what can be.
    """
    parts = []
    for what, count in counts.items():
        if not count:
            continue
        remedy = f" ({remedies[what]})" if what in remedies else ""
        parts.append(f"{what} of {counted(count, 'object')}{remedy}")
    if parts:
        said.notes.append(f"{NOT_STORED}{', '.join(parts)}")


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


def as_numbers(values: Sequence[Any], *shape: int) -> np.ndarray:
    """Numbers, or lists of as many as the shape says, as float64; NaN for what is not one."""
    try:
        made = np.array(values, np.float64)
        if made.shape == (len(values), *shape):
            return made
    except (TypeError, ValueError, OverflowError):
        pass
    nothing = np.full(shape, np.nan)
    return np.array([_numbers_of(value, nothing) for value in values]).reshape(-1, *shape)


def _numbers_of(value: Any, nothing: np.ndarray) -> np.ndarray:
    try:
        made = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        return nothing
    return made if made.shape == nothing.shape and np.isfinite(made).all() else nothing
