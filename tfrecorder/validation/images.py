"""What a look at every file finds before a conversion: what it would reject, and near copies."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import pandas as pd
from PIL import Image as Picture

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.threads import DECODING_BYTES, Budget, ThreadPool, map_ahead, spare_bytes
from tfrecorder.display.bars import Advance, counting
from tfrecorder.errors import TfrecorderError
from tfrecorder.images.boxes_and_masks import (
    Placed,
    Plane,
    as_segmentation,
    boxes_outside,
    mask_plane,
    plane_of,
    segmentation_faults,
    stored_mask,
)
from tfrecorder.images.check import CheckedImage, check_file, check_image, read_image
from tfrecorder.images.fingerprint import UNKNOWN, Fingerprint, fingerprints_of
from tfrecorder.images.header import REDUCED, Reject
from tfrecorder.images.near_copies import (
    TOO_ALIKE,
    Copies,
    Read,
    content_of,
    find_copies,
    groups_of,
    picture_of,
    unseen_in_words,
)
from tfrecorder.images.pixels import decode
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.fields import fields_of
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, File, Image, Mask, columns_of
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.table import Source
from tfrecorder.validation.boxes import gather, shown_edges, sound_edges
from tfrecorder.validation.rows import describe_assigned
from tfrecorder.validation.rules import Checked

#: So many thumbnails a report has at most, of so many pixels a side.
_THUMBNAILS = 30
_THUMBNAIL = (96, 96)

#: How many rows are under way at once.
ROWS_AHEAD = 64

#: The findings for what is to be known of an image, by the words of `header.REDUCED` and two more.
_NOTED = {
    **{word: ("not_seen", f"{{!r}} is {words}") for word, words in REDUCED.items()},
    "oriented": ("not_seen", "{!r} has an EXIF orientation, which TensorFlow does not apply"),
    "suspect": ("suspect_image", "{!r} decodes, but with a warning"),
    "turned": (
        "orientation_unsaid",
        "{!r} has an EXIF orientation, its boxes or masks are taken to be of the stored pixels",
    ),
    "scaled": ("scaled_boxes", "{!r}: stated {} x {}, is {} x {}"),
}


class _Outcome(NamedTuple):
    """What a look at the files of a row finds.

    Attributes:
        faults: what is wrong with them, by column.
        plane: what coordinates on its first image are of; None if that cannot be used.
        look: what that looks like.
        content: of its bytes, as `content_of` gives it; None if it cannot be used.
        words: what is to be known of its images and masks, as keys of `_NOTED`.
    """

    faults: dict[str, Reject]
    plane: Plane | None
    look: Fingerprint
    content: int | None
    words: tuple[str, ...]


#: The bytes of a file in a column, of the row with this number, whose cell is this uri.
_ReadFile = Callable[[str, int, str], bytes]


class KnownImages(NamedTuple):
    """The images of a dataset.

    Attributes:
        looks: of each, as for `find_copies`, `split`, and `row`, its number in the source; the
            places are below 0.
        uris: of each.
        read: reads some, as for `find_copies`.
    """

    looks: pd.DataFrame
    uris: pd.Series[str]
    read: Read


def look_at_files(
    table: Source,
    checked: Checked,
    options: ConvertOptions,
    advance: Advance,
    dataset: KnownImages | None = None,
) -> tuple[Checked, Copies | None]:
    """What was checked, with what a look at every file finds, and how many records are copies.

    It finds what would make a row a reject, the file in a column of files or a box, and which of
    the first images are copies.  With `group_copies`, those without a split share one.

    Args:
        advance: counts rows.
        dataset: the images of the dataset to which the table is added.
    """
    uris = _sound_uris(checked)
    if uris.empty:
        return checked, None

    read = _reader(table)
    with ThreadPool() as pool:
        # Only messages and sizes are kept, so that no image outlives the check of its row.
        check = _row_check(table, list(uris.columns), options, read)
        checks = map_ahead(pool, check, uris.itertuples(name=None), ahead=ROWS_AHEAD)
        outcomes = list(counting(checks, advance))
    faults_of_rows, planes, fingerprints, contents, of_masks = zip(*outcomes, strict=True)
    faults = pd.DataFrame([*faults_of_rows], uris.index, uris.columns, object)
    findings = []
    beside = storage.Beside(table.base, IMAGE_ENDINGS)
    for name in map(str, uris.columns):
        reasons = faults[name].dropna()
        rows = list(reasons.index)
        values = uris[name][reasons.index].tolist()
        messages = []
        for uri, reject in zip(values, reasons, strict=True):
            # A report on several columns is also read line by line, as messages.
            shown = repr(uri) if len(uris.columns) == 1 else f"{name} {uri!r}"
            path = storage.resolve(uri, table.base)
            hint = beside.hint(path, reject.code) if reject.stage == "read" else ""
            if reject.code == "not_found" and not hint and path != storage.resolve(uri, ""):
                hint = f"; relative paths start at {table.base!r}, or at {spelled('base')}"
            messages.append(f"{shown}: {reject}{hint}")
        findings.append(Finding("unusable_image", rows, name, values, messages))
    noted = [*of_masks]
    findings += _outside(table, uris, planes, noted)
    looks = pd.DataFrame([*fingerprints], uris.index, dtype="Int64")
    first = next(iter(table.schema.of(Image)), None)
    counts = None
    if first is not None and first in uris:
        for word, (code, form) in _NOTED.items():
            rows = list[int]()
            messages = list[str]()
            for row, plane, known in zip(uris.index, planes, noted, strict=True):
                if word in known and plane is not None:
                    rows.append(row)
                    messages.append(form.format(uris.at[row, first], *plane.size, *plane.pixels))
            if word != "alpha" or len(rows) < len(planes) - planes.count(None):  # else it is read
                findings.append(Finding(code, rows, first, uris[first][rows].tolist(), messages))
        was_open = checked.unassigned
        splits = checked.frame[SPLIT_COLUMN].astype(object)
        looks = looks.assign(split=splits, open=was_open, content=pd.array(contents, "Int64"))
        if dataset is not None:
            looks = pd.concat([dataset.looks.assign(open=False), looks])
        unseen = int(looks["hash"].isna().sum()) - planes.count(None)  # which are rejects
        if unseen:
            words = unseen_in_words(unseen)
            findings.append(Finding("not_compared", [None], first, [None], words))
        copies, counts = _copies(uris[first], looks, read, dataset)
        if options.group_copies:
            groups = [] if table.groups is None else [table.groups.loc[uris.index]]
            pairs = np.stack([copies["first"], copies.index], 1)
            looks["split"] = _one_split(looks, pairs, [uris[first], *groups])
            splits = looks["split"].loc[uris.index]
            checked = dataclasses.replace(
                checked,
                frame=checked.frame.assign(**{SPLIT_COLUMN: splits.astype(SPLIT_TYPE)}),
                assigned=describe_assigned(splits, was_open, options.division, table.groups),
            )
        if counts.near is None:
            findings.append(Finding("too_alike", [None], first, [None], TOO_ALIKE))
        findings += _of_copies(uris[first], looks, copies, checked.findings, dataset)
    return checked.with_findings(findings), counts


def _reader(table: Source) -> _ReadFile:
    """The function that reads the files of a table."""

    def read(
        name: str,
        number: int,
        uri: str,
    ) -> bytes:
        contents = table.contents.get(name)
        if contents is not None and contents.holds(number):
            return contents.file(number)
        kind = table.schema.columns[name]
        return read_image(uri, table.base, file=kind if isinstance(kind, File) else None)[0]

    return read


def thumbnails(
    table: Source,
    checked: Checked,
    rows: Sequence[int],
) -> dict[int, bytes]:
    """Small JPEGs of the first images of some rows, but of those with a fault, for a notebook."""
    read = _reader(table)
    small = dict[int, bytes]()
    for name, uris in _sound_uris(checked).iloc[:, :1].items():
        cells = uris[uris.index.isin(rows)].dropna()[:_THUMBNAILS]
        for row, uri in zip(cells.index.tolist(), cells, strict=True):
            with contextlib.suppress(Reject, ValueError, TfrecorderError):
                pixels = decode(read(str(name), row, uri), 3, least=_THUMBNAIL)
                picture = Picture.fromarray(pixels)
                picture.thumbnail(_THUMBNAIL)
                data = io.BytesIO()
                picture.save(data, "JPEG")
                small[row] = data.getvalue()
    return small


def _sound_uris(checked: Checked) -> pd.DataFrame:
    """The uris of files by column, None for faulty ones; a row for each record."""
    rows = checked.frame.index
    uris = pd.DataFrame({files.name: files for files in checked.files}, index=rows, dtype=object)
    for finding in checked.findings:
        if finding.column in uris and finding.is_error:
            sound = ~rows.isin([row for row in finding.rows if row is not None])
            uris[finding.column] = uris[finding.column].where(sound, None)
    return uris


def _outside(
    table: Source,
    uris: pd.DataFrame,
    planes: Sequence[Plane | None],
    noted: list[tuple[str, ...]],
) -> Iterator[Finding]:
    """The boxes in pixels that reach outside their images, and masks of another size, by row.

    Args:
        planes: what the coordinates of each row are of; None if its image cannot be used.
        noted: of each row, what is to be known of it, to which that of its boxes is added.
    """
    given = {*table.frame}
    for name in table.schema.of(Boxes):
        kind = table.schema.columns[name]
        (image,) = table.schema.of(Image)
        assert isinstance(kind, Boxes)
        pixels = kind.unit == "pixel"
        if not given.issuperset([image, *columns_of(name, kind)]):
            continue
        others, rows, _ = gather(table.frame, kind, image)
        if not others.index.equals(uris.index):  # if the whole table has a fault
            continue
        edges = sound_edges(kind, rows.frame).astype(np.float64)
        masks = [*rows.frame[kind.masks].map(as_segmentation)] if kind.masks else []
        places = list[int]()
        messages = list[str]()
        start = 0
        for at, (uri, plane, count) in enumerate(
            zip(uris[image], planes, rows.sizes.tolist(), strict=True)
        ):
            if plane is not None and count:
                noted[at] += plane.words
                of_image = slice(start, start + count)
                faults = list(boxes_outside(edges[of_image], plane.size)) if pixels else []
                faults += segmentation_faults(masks[of_image], plane, kind.unit)
                places += (start + number for number, _ in faults)
                messages += (f"{uri!r}: {reason}" for _, reason in faults)
            start += count
        shown = shown_edges(kind, rows.frame).iloc[places]
        yield Finding("box_outside", list(shown.index), str(shown.name), shown.tolist(), messages)


def _copies(
    uris: pd.Series,
    looks: pd.DataFrame,
    read_file: _ReadFile,
    dataset: KnownImages | None,
) -> tuple[pd.DataFrame, Copies]:
    """The copies among the first images of rows, and of known images, by `find_copies`.

    Args:
        uris: of the images; the name is that of their column.
        looks: of each, after those that are known.
        read_file: reads one of the images.
    """
    name = str(uris.name)

    def read(places: Sequence[int]) -> Iterator[np.ndarray | None]:
        if dataset is not None:
            yield from dataset.read([place for place in places if place < 0])
        for row in (place for place in places if place >= 0):
            try:
                yield picture_of(read_file(name, row, uris[row]))
            except Reject:  # it was there when it was checked
                yield None

    return find_copies(looks, read)


def _one_split(
    looks: pd.DataFrame,
    pairs: np.ndarray,
    keys: Iterable[pd.Series],
) -> pd.Series:
    """The splits of images, of which near copies that came without one have one together.

    It is that of the first of them that came with one, or else that of the first.

    Args:
        looks: as for `_of_copies`.
        keys: what rows have in common that share a split in any case.
    """
    linked = [pairs]
    splits = looks["split"].copy()
    for key in keys:
        rows = pd.Series(key.index, key.index)
        first = rows.groupby(key).transform("first")
        both = pd.concat([first, rows], axis=1)
        linked.append(both[first < rows].to_numpy(np.int64))
    groups = groups_of(np.concatenate(linked), looks)["group"].sort_index()
    copies = looks.loc[groups.index].sort_values("open", kind="stable")
    moved = groups[looks["open"][groups.index]]
    splits[moved.index] = moved.map(copies.groupby(groups)["split"].first())
    return splits


#: The codes of copies that are no leakage.
_IN_ONE_SPLIT = {"exact": "exact_copy", "near": "near_copy", "near_there": "near_there"}


def _of_copies(
    uris: pd.Series,
    looks: pd.DataFrame,
    groups: pd.DataFrame,
    others: Iterable[Finding],
    dataset: KnownImages | None,
) -> Iterator[Finding]:
    """The images that are copies of an earlier one, or of a known one, if they are other files.

    Args:
        uris, looks: as for `_copies`; with the `split` of each image, whether that was `open`, and
            the `row` of a known one.
        groups: as `_copies` gives them.
        others: what is known to have the same bytes is said there.
    """
    name = str(uris.name)
    splits = looks["split"]
    said = {*uris.index[uris.duplicated()]}
    for finding in others:
        if finding.code.startswith("same_bytes"):
            said.update(finding.rows)
    groups = groups[(groups.index >= 0) & ~groups.index.isin([*said])].sort_index()
    exact = groups["same"] < groups.index
    again = groups["same"].where(exact, groups["first"])
    again = again[again < again.index]
    leaks = splits[again.index].to_numpy() != splits[again].to_numpy()

    def named(place: int) -> str:
        if dataset is None or place >= 0:
            return repr(uris[place])
        return f"{dataset.uris[place]!r} (row {looks['row'][place]} there)"

    kinds = np.where(again < 0, "near_there", np.where(exact[again.index], "exact", "near"))
    for (kind, leak), copies in again.groupby([kinds, leaks]):
        code = f"{kind}_leakage" if leak else _IN_ONE_SPLIT[str(kind)]
        rows = copies.index.tolist()
        others_of = copies.tolist()
        messages = []
        for row, other in zip(rows, others_of, strict=True):
            words = "has the bytes of" if exact[row] else "looks like"
            of = f"{named(other)} in {splits[other]}"
            messages.append(f"{uris[row]!r} in {splits[row]} {words} {of}")
        earlier = [] if kind == "near_there" else others_of
        yield Finding(code, rows, name, uris[rows].tolist(), messages, earlier)


def _row_check(
    table: Source,
    columns: Sequence[str],
    options: ConvertOptions,
    read_file: _ReadFile,
) -> Callable[[Any], _Outcome]:
    """The function that opens the files of a row, its number and their uris, and judges them."""
    images = table.schema.of(Image)
    fields = {field.column: field for field in fields_of(table.schema)}
    image_by_mask = {
        name: field.kind.of or images[0]
        for name, field in fields.items()
        if isinstance(field.kind, Mask)
    }
    files = {name: field.kind for name, field in fields.items() if isinstance(field.kind, File)}
    budget = Budget(spare_bytes(DECODING_BYTES))
    boxes = [table.schema.columns[name] for name in table.schema.of(Boxes)]
    upright = next((kind.upright for kind in boxes if isinstance(kind, Boxes)), None)
    sizes = table.sizes

    def check(row: tuple[Any, ...]) -> _Outcome:
        number, *cells = row
        faults = {}
        read: dict[str, CheckedImage] = {}
        content = None
        words = tuple[str, ...]()
        uris = dict(zip(columns, cells, strict=True))
        for name in sorted(uris, key=image_by_mask.__contains__):  # after its image comes a mask
            uri = uris[name]
            if not isinstance(uri, str):
                continue
            try:
                data = read_file(name, number, uri)
                if name in files:
                    check_file(name, files[name], data)
                    continue
                is_first = name == images[0]
                depth = fields[name].depth
                file = check_image(
                    data,
                    options.check,
                    options.max_pixels,
                    budget.room,
                    is_first,
                    depth,
                )
                words += file.reduced
                if file.orientation != 1 and name in images:
                    words += ("oriented",)
                if file.warning is not None:
                    words += ("suspect",)
                if is_first:
                    content = content_of(len(data), google_crc32c.value(data))
                if (of := read.get(image_by_mask.get(name, ""))) is not None:
                    mask = mask_plane(fields[name], file, of)
                    stored = stored_mask(
                        fields[name], file, Placed(of, of, None), mask, budget.room
                    )
                    words += mask.words
                    if stored.is_of_colours:
                        words += ("mask",)
                read[name] = file
            except Reject as reject:
                faults[name] = reject
        plane = look = None
        if images and (first := read.get(images[0])) is not None:
            try:
                stated = (0, 0) if sizes is None else tuple(sizes.loc[number].tolist())
                plane = plane_of(first, upright, stated)
                look = first.look
            except Reject as reject:
                faults[images[0]] = reject
        seen_as = fingerprints_of([look])[0] if look else UNKNOWN
        return _Outcome(faults, plane, seen_as, content if plane else None, words)

    return check
