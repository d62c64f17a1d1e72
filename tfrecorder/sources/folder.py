"""A folder of images as a frame, with what stands in its table or in files beside the images."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.text import NotTextError, decoded, encoding_of, read_json
from tfrecorder.display.messages import command
from tfrecorder.errors import SourceError
from tfrecorder.format import layout
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import FILE_NAME, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Kind, Schema, Text
from tfrecorder.schema.splits import SPELLINGS
from tfrecorder.sources.annotated import (
    TEXT_ENDINGS,
    looked_at,
    read_annotated,
    refuse_unread,
    unread_words,
)
from tfrecorder.sources.arrow import read_parquet
from tfrecorder.sources.files import IMAGE_ENDINGS, read_files
from tfrecorder.sources.finding import bad_annotation
from tfrecorder.sources.objects import files_of
from tfrecorder.sources.path_source import (
    MASK_FOLDERS,
    PICTURE_FOLDERS,
    Listing,
    PathSource,
    refuse_pointer,
    refuse_table_options,
    split_of_folders,
    uri_below,
)
from tfrecorder.sources.table import MASK_COLUMN, RawTable
from tfrecorder.storage.uris import relative, stem_of

#: The folders of a path, and the name.
Parts = tuple[str, ...]

#: What Roboflow writes beside the images of a split, and its column of their names.
BESIDE = "_annotations.csv"
_ROBOFLOW = "filename"

#: The names of folders in which tools put smaller copies of the images.
_COPIES = ("thumbnail", "thumbnails", "thumbs")

#: The names of such tables.
TABLES = ("metadata.csv", "metadata.jsonl", "metadata.parquet", BESIDE)


def read_metadata(
    folder: str,
    tables: Sequence[str],
    images: Collection[str],
    passed_over: Mapping[str, int],
    options: ConvertOptions,
) -> RawTable | None:
    """The tables of a folder as one; None if none of them has a column `file_name`.

    Args:
        tables, images: their paths in the folder.
        passed_over: the other files.
    """
    raw_tables = []
    for name in tables:
        path = f"{folder}/{name}"
        raw = _read(PathSource(path, (path,)), options)
        if raw is not None:
            start = name.removesuffix(name.rpartition("/")[2])
            files = raw.frame[FILE_NAME].map(partial(uri_below, start), na_action="ignore")
            raw_tables.append(replace(raw, frame=raw.frame.assign(**{FILE_NAME: files})))
    if not raw_tables:
        return None
    frame = pd.concat([raw.frame for raw in raw_tables], ignore_index=True)
    without = len({*images}.difference(frame[FILE_NAME]))
    splits = [split_of_folders(str(file)) for file in frame[FILE_NAME]]
    if SPLIT_COLUMN not in frame and any(splits):
        frame = frame.assign(**{SPLIT_COLUMN: splits})
    return replace(
        raw_tables[0],
        frame=frame,
        base=folder,
        text=raw_tables[0].text if len(raw_tables) == 1 else None,
        typed=all(raw.typed for raw in raw_tables),
        passed_over={**passed_over, "images without a row": without},
    )


def _read(table: PathSource, options: ConvertOptions) -> RawTable | None:
    """A table; None if another tool's, of which nothing is read."""
    (path,) = table.files
    refuse_pointer(path)
    name = _ROBOFLOW if path.endswith(f"/{BESIDE}") else FILE_NAME
    if not path.endswith(".parquet"):
        with storage.open_seekable(path) as file:
            start = file.read(2**16)
        if name not in start.decode(encoding_of(start), errors="ignore").partition("\n")[0]:
            return None
    raw = read_parquet(table, options) or read_files(table, options)
    if raw is not None and name == _ROBOFLOW:
        raw = replace(raw, frame=raw.frame.rename(columns={_ROBOFLOW: FILE_NAME}))
    return raw if raw is not None and FILE_NAME in raw.frame else None


def with_sidecar_files(raw: RawTable, schema: Schema) -> tuple[RawTable, int]:
    """A folder's images with the columns of the schema that its paths do not give.

    A JSON file has them by name.  A text file gives the only column of texts that no JSON file has:
    its text, or of a column of lists its lines.

    Returns:
        The table, with a finding for each JSON file that is not understood, and a reject for each
        text file of another encoding; and how many files were read.
    """
    frame = raw.frame
    wanted = [name for name in schema.source_columns() if name not in frame]
    if not wanted:
        return raw, 0
    uris = frame[URI_COLUMN].tolist()
    stems = [os.path.join(raw.base, os.path.splitext(uri)[0]) for uri in uris]
    read = 0
    findings = []
    documents: list[dict[str, Any]] = [{} for _ in uris]
    for row, data in enumerate(files_of([f"{stem}.json" for stem in stems])):
        if data is None:
            continue
        read += 1
        try:
            documents[row] = _document(data)
        except ValueError as error:
            words = f"{stems[row]}.json {error}"
            findings.append(bad_annotation(row, URI_COLUMN, uris[row], words))
    columns = {}
    for name in wanted:
        columns[name] = [document.get(name) for document in documents]
    empty = {name for name, cells in columns.items() if cells.count(None) == len(uris)}
    captions = empty.intersection(schema.of(Text))
    rejects = {}
    if len(captions) == 1:
        (name,) = captions
        kind = schema.columns[name]
        for row, data in enumerate(files_of([f"{stem}.txt" for stem in stems])):
            if data is None:
                continue
            read += 1
            try:
                columns[name][row] = _cell(kind, decoded(data))
            except NotTextError as error:
                columns[name][row] = _cell(kind, "no text")
                rejects[row] = f"not_decoded: {os.path.basename(stems[row])}.txt, {error}"
    made = {
        name: pd.Series(cells, frame.index, object)
        for name, cells in columns.items()
        if cells.count(None) < len(uris)
    }
    passed_over = {**raw.passed_over, "not images": raw.passed_over["not images"] - read}
    table = replace(
        raw,
        frame=frame.assign(**made),
        passed_over=passed_over,
        findings=findings,
        rejects=rejects,
    )
    return table, read


def _document(data: bytes) -> dict[str, Any]:
    """The values in a JSON file.

    Raises:
        ValueError: it has none.
    """
    text = decoded(data)
    try:
        document = read_json(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not document:
        raise ValueError("is not a JSON object with values")
    return document


def _cell(kind: Kind, text: str) -> str | list[str]:
    if getattr(kind, "shape", ()) == ():
        return text.strip()
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_folder(source: Any, options: ConvertOptions) -> RawTable | None:
    """A folder of images, perhaps with a table of them; or of Parquet files."""
    if not isinstance(source, PathSource) or not source.folder:
        return None
    if storage.exists(os.path.join(source.folder, layout.COMMIT)):
        raise SourceError(
            f"source {source.path!r} is already a dataset; `{command('info', source.path)}` shows "
            f"it, and `tfrecorder.load({source.path!r})` reads it."
        )
    folder = source.folder
    form = options.form
    listing = listed(folder)
    _, files, tables, texts, passed_over = listing
    named = [name for name in tables if name.rpartition("/")[2] in TABLES]
    looks = [] if form == "folder" else looked_at(listing)
    # Where there are both, a table counts, but not beside the tree of Pascal VOC.
    is_tree = any(text.startswith("Annotations/") for text in texts)
    counts = is_tree or not named or form is not None
    if counts and (raw := read_annotated(source, listing, looks, options)):
        return raw
    if named and form in (None, "metadata"):
        images = [*map("/".join, files)]
        if raw := read_metadata(folder, named, images, passed_over, options):
            return raw
    if form not in (None, "masks", "folder"):
        return None
    if tables and not files:
        paths = tuple(f"{folder}/{name}" for name in tables if name.lower().endswith(".parquet"))
        if raw := read_parquet(PathSource(source.path, paths), options):
            return raw
    refuse_table_options(options, "a folder")
    passed_over["not images"] += len(tables)
    if not files:
        seen = sum(passed_over.values())
        raise SourceError(
            f"{folder}: no images found ({seen} other files skipped); expected split/label/file, "
            f"label/file or file, with endings {' '.join(IMAGE_ENDINGS)}."
        )
    if form is None and (copies := _folders_of_copies(files)):
        raise SourceError(
            f"{folder}/{'/'.join(copies[0])}: by its name, a folder of small copies and no class; "
            f"move it away, or give {spelled('form', 'folder')} if it is one."
        )
    try:
        frame = None if form == "folder" else _with_masks(folder, files)
        if frame is None:
            if form == "masks":
                return None
            frame = _images_in(folder, files, _places(files, is_asked=form == "folder"))
    except SourceError:
        refuse_unread(listing, looks)  # which says more
        raise
    read = 0
    raw = RawTable(frame, folder, passed_over)
    if options.schema is not None:
        raw, read = with_sidecar_files(raw, options.schema)
    if not read:
        refuse_unread(listing, looks)
        raw = replace(raw, notes=unread_words(listing, looks))
    return raw


def _folders_of_copies(files: Sequence[Parts]) -> list[Parts]:
    above = {parts[:-1] for parts in files}
    return sorted(parts for parts in above if parts and parts[-1].lower() in _COPIES)


def _places(files: Sequence[Parts], is_asked: bool) -> Sequence[Parts]:
    """Paths without a folder that says what kind of files all of them are, such as `images`.

    It is the only one at the top, or in each folder of a split.

    Args:
        is_asked: that the folders are read: such a one is a class if there is no other.
    """
    given = files
    for level in (0, 1):
        if len(files[0]) < level + 2 or files[0][level].lower() not in PICTURE_FOLDERS:
            continue
        in_splits = not level or _names_at(files, 0) <= SPELLINGS.keys()
        is_in_all = min(map(len, files)) > level + 1 and len(_names_at(files, level)) == 1
        if in_splits and is_in_all:
            files = [parts[:level] + parts[level + 1 :] for parts in files]
    has_classes = any(part.lower() not in SPELLINGS for parts in files for part in parts[:-1])
    return files if has_classes or not is_asked else given


def _names_at(files: Iterable[Parts], level: int) -> set[str]:
    """The names of the folders of a level, in lower case."""
    return {name.lower() for name in {parts[level] for parts in files if len(parts) > level + 1}}


def _with_masks(folder: str, files: Sequence[Parts]) -> pd.DataFrame | None:
    """Pictures and their masks, of equal paths in two folders such as `images` and `masks`.

    These are at the top, or in each folder of a split.

    Returns:
        None if there are no such folders.

    Raises:
        SourceError: a picture has no mask, or a mask no picture.
    """
    names = _names_at(files, 0)
    level = int(names <= SPELLINGS.keys())
    names = _names_at(files, 1) if level else names
    kinds = MASK_FOLDERS | {"annotations"}  # as in ADE20K
    if not names & PICTURE_FOLDERS or not names & kinds:
        return None
    pictures = []
    places = []
    masks = dict[Parts, str]()
    alone = []
    for parts in files:
        kind = parts[level].lower() if len(parts) > level + 1 else ""
        place = parts[:level] + parts[level + 1 :]
        if kind in kinds:
            path = "/".join(parts)
            if masks.setdefault((*place[:-1], stem_of(place[-1])), path) != path:
                alone.append(path)
        else:
            pictures.append(parts)
            places.append(place)
    found = [masks.pop((*place[:-1], stem_of(place[-1])), None) for place in places]
    alone += ["/".join(parts) for parts, mask in zip(pictures, found, strict=True) if not mask]
    alone += masks.values()
    if alone:
        raise SourceError(
            f"{folder} has folders of pictures and of masks, but {len(alone):,} of "
            f"{len(files):,} files have no other of the same name there, such as {alone[0]!r}. "
            "Name them alike, or list them in a CSV with the columns image_uri and mask_uri."
        )
    frame = _images_in(folder, pictures, places)
    return frame.assign(**{MASK_COLUMN: _texts(map(str, found))})


def _images_in(
    folder: str,
    files: Sequence[Parts],
    places: Sequence[Parts],
) -> pd.DataFrame:
    """A folder `split/label/file`, `label/file`, `split/file` or `file`, in the order of the paths.

    The first level is splits if every folder in it has a split's name.  Images directly in the
    folder, or in those of splits, have no labels; in that of TEST also where others have.  Folder
    names are class names, so they stay text even if they are digits, as in Keras and TFDS.  An
    image's uri is its path relative to the folder.

    Args:
        places: the paths without what says nothing of split and label.

    Raises:
        SourceError: an image is at another depth.
    """
    if nameless := next((parts for parts in files if "" in parts), None):
        raise SourceError(
            f"{folder}: image {'/'.join(nameless)!r} is in a folder without a name, between // in "
            "the bucket; move it, or list the images in a table with their whole uris."
        )
    data: dict[str, Any] = {URI_COLUMN: _texts(_uri_of(parts) for parts in files)}
    tops = {parts[0] for parts in places if len(parts) > 1}
    no_splits = sorted(top for top in tops if top.lower() not in SPELLINGS)
    with_split = bool(tops) and not no_splits
    if with_split:
        data = {SPLIT_COLUMN: _texts(parts[0] for parts in places), **data}
    depth = 3 if with_split else 2
    if {*map(len, places)} == {depth - 1}:
        return pd.DataFrame(data)
    # As makers publish them: a test set whose labels they keep.
    tests = {top for top in tops if with_split and SPELLINGS[top.lower()] == "TEST"}
    for parts, place in zip(files, places, strict=True):
        if len(place) == depth or (len(place) == 2 and place[0] in tests):
            continue
        hint = "put every image into the folder of its label"
        if len(place) == 3:
            hint = f"or, if that is split/label/file, name the folder {no_splits[0]!r} like a split"
        raise SourceError(
            f"{folder}: image {'/'.join(parts)!r} is not at "
            f"{'split/label/file' if with_split else 'label/file'}; {hint}. Where images have no "
            "label, list all in a metadata.csv with the columns file_name, split and label."
        )
    labels = (parts[-2] if len(parts) == depth else "" for parts in places)
    return pd.DataFrame({**data, LABEL_COLUMN: _texts(labels)})


def _uri_of(parts: Sequence[str]) -> str:
    path = "/".join(parts)
    return relative(path) if parts[0].endswith(":") else path


def _texts(names: Iterable[str]) -> pd.Series:
    """A column of texts in Arrow; of Python values where one is not UTF-8, which is reported."""
    values = list(names)
    try:
        return pa.chunked_array([pa.array(values, pa.large_string())]).to_pandas()
    except UnicodeError:
        return pd.Series(values, dtype=object)


def listed(folder: str) -> Listing:
    """What lies below a folder."""
    images = []
    tables = []
    texts = []
    hidden = others = astray = systems = 0
    is_local = storage.is_local(folder)
    for parts in walk(folder):
        name = parts[-1]
        if name in layout.SYSTEM_FOLDERS:
            systems += 1
        elif name.startswith(".") or name in layout.DESKTOP_FILES:
            hidden += 1
        elif (lower := name.lower()).endswith(IMAGE_ENDINGS):
            images.append(parts)
        elif name in TABLES or lower.endswith(".parquet"):
            tables.append("/".join(parts))
            texts += tables[-1:] if name.endswith((".csv", ".jsonl")) else []
        else:
            others += 1
            # A folder that is linked has no ending; to ask for each file takes time.
            if is_local and "." not in name:
                astray += not os.path.exists(os.path.join(folder, *parts))
            if lower.endswith(TEXT_ENDINGS):
                texts.append("/".join(parts))
    passed_over = {"hidden": hidden, "not images": others}
    if systems:
        passed_over["system folders"] = systems
    if astray:
        passed_over["not images"] -= astray
        passed_over["links astray"] = astray
    return Listing(folder, sorted(images), sorted(tables), sorted(texts), passed_over)


def walk(folder: str) -> Iterator[Parts]:
    """The path parts of all files below a folder; one that is hidden or of a system is one file.

    Links to folders are followed, except those that lead back up.
    """
    if not storage.is_local(folder):
        seen = set()
        for file in storage.files_below(folder):
            parts = tuple(file.split("/"))
            depth = next((at for at, part in enumerate(parts[:-1], 1) if _is_passed(part)), 0)
            if not depth:
                yield parts
            elif parts[:depth] not in seen:
                seen.add(parts[:depth])
                yield parts[:depth]
        return
    for where, folders, names in os.walk(folder, onerror=_refuse_unlisted, followlinks=True):
        above = Path(where).relative_to(folder).parts
        entered = []
        for name in sorted(folders):
            if _is_passed(name):
                yield (*above, name)
            elif not _leads_up(where, name):
                entered.append(name)
        folders[:] = entered
        for name in names:
            storage.check_locale(f"{where}/{name}")  # a join takes a tenth of the walk
            yield (*above, name)


def _is_passed(folder: str) -> bool:
    """True for a folder in which nobody puts images."""
    return folder.startswith(".") or folder in layout.SYSTEM_FOLDERS


def _leads_up(where: str, name: str) -> bool:
    """True for a link to a folder that contains it: a walk would never get out of it."""
    link = Path(where, name)
    return link.is_symlink() and any(link.samefile(above) for above in link.absolute().parents)


def _refuse_unlisted(error: OSError) -> None:
    raise SourceError(
        f"{error.filename}: the folder cannot be listed: {error.strerror}."
    ) from error
