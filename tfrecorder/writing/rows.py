"""One row: its image is read and checked, and both become a record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import google_crc32c
import numpy as np

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.threads import Room
from tfrecorder.errors import OutputError, RunnerError
from tfrecorder.format.example import encode_parts
from tfrecorder.format.layout import BASE, REJECT_OF, is_fact
from tfrecorder.format.plan import Plan, PlannedRow
from tfrecorder.format.tfrecord import frame
from tfrecorder.images.boxes_and_masks import (
    Levels,
    Placed,
    Size,
    mask_plane,
    placed_boxes,
    plane_of,
    stored_mask,
    stored_object_masks,
)
from tfrecorder.images.check import CheckedImage, check_file, check_image, format_of, read_image
from tfrecorder.images.header import Reject
from tfrecorder.images.transform import transform_image, transform_of, without_metadata
from tfrecorder.output.status import ShardProgress
from tfrecorder.schema import keys
from tfrecorder.schema.fields import SPOOLED, Field, image_of, primary_file
from tfrecorder.schema.kinds import Boxes, File, Image, Mask
from tfrecorder.writing.outcomes import OfFile, Sources

#: The images of a record, by the keys of their columns.
KeyedImages = list[tuple[str, CheckedImage]]


class Loaded(NamedTuple):
    """A row that became a record.

    Attributes:
        images: by what their keys begin with, the first one first.
        parts: the framed record, in buffers to write one after the other.
        size: their bytes, together.
        input_bytes: the size of the images' files.
        retries: how many extra attempts reading them took.
        sources: of the files that were read.
        levels: of its masks, by their columns.
    """

    row: PlannedRow
    images: KeyedImages
    parts: list[bytes]
    size: int
    input_bytes: int
    retries: int = 0
    sources: Sources = MappingProxyType({})
    levels: Mapping[str, Levels] = MappingProxyType({})


class Rejected(NamedTuple):
    """A row that gave no record."""

    row: PlannedRow
    reject: Reject
    retries: int = 0
    sources: Sources = MappingProxyType({})


#: The values of a row under way, by the keys of its record.
Features = dict[str, object]

#: A file, and when it was written, as `storage.read_source` gives both.
Dated = tuple[bytes, int | None]


@dataclasses.dataclass(frozen=True)
class FileReader:
    """Reads the files of rows.

    Attributes:
        base: the folder that relative uris start from.
        spool: the folder of those that came as bytes.
        folders: those that files were read from.
        progress: of the shard, noted also while a file is waited for.
        stored: the bytes that are known already, by uri.
    """

    base: str
    spool: str
    folders: storage.FoldersRead
    progress: ShardProgress
    stored: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    def read(
        self,
        field: Field,
        uri: str,
        file: str,
        note_retry: Callable[[], None],
    ) -> Dated:
        """The file of a column in a row.

        Args:
            file: its name in the spool if it came as bytes, else "".
            note_retry: called before each further attempt.

        Raises:
            Reject: it cannot be read, now or later.
            OutputError: it is gone from the spool: the source still has it.
            UnreachableError: its store or disk is away.
        """
        if uri in self.stored:
            return self.stored[uri], None
        if not file:
            kind = field.kind if isinstance(field.kind, File) else None
            return read_image(uri, self.base, note_retry, self.folders, kind)
        path = storage.resolve(file, self.spool)
        try:
            return read_image(path, "", note_retry)[0], None
        except Reject as reject:
            if reject.code != "not_found":
                raise
            raise OutputError(
                f"{path}, the bytes of image {uri!r}, is gone. Run the same call again to write it "
                "again from the source; let only one write there at a time."
            ) from None


def planned_reject(row: PlannedRow) -> Rejected | None:
    """The reject that a row was planned as; None for a row to be loaded."""
    if not row.values.get(REJECT_OF.reason):
        return None
    code, _, detail = row.text(REJECT_OF.reason).partition(": ")
    return Rejected(row, Reject(row.text(REJECT_OF.stage), code, detail))


_DTYPES = {"float": np.float32, "int64": np.int64, "bool": np.int64, "label": np.int64}


class _Row:
    """A row on its way to a record.

    Attributes:
        features: of the record, so far; at first what the plan has for it.
        placed: its images, by the key of their columns.
        sources: of the files that were read.
        retries: how many extra attempts reading them took.
        levels: of its masks, by their columns.
    """

    def __init__(
        self,
        reader: FileReader,
        features: Features,
    ) -> None:
        self._reader = reader
        self.features = features
        self.placed: dict[str, Placed] = {}
        self.sources: dict[str, OfFile] = {}
        self.retries = 0
        self.levels: dict[str, Levels] = {}

    def read(self, field: Field) -> bytes:
        """The bytes of the file of a column.

        Args:
            features: of the row; that of the spooled file, which belongs to no record, is taken
                out.

        Raises:
            Reject: it cannot be read.
        """
        uri = str(self.features[field.uri_key])
        file = str(self.features.pop(field.spool_key, ""))
        data, modified = self._reader.read(field, uri, file, self._note_retry)
        self.sources[field.key] = OfFile(len(data), google_crc32c.value(data), modified)
        return data

    def note(self, key: str, words: tuple[str, ...]) -> None:
        """Note what is to be known of an image, as keys of `header.REDUCED`."""
        placed = self.placed[key]
        reduced = tuple(dict.fromkeys((*placed.image.reduced, *words)))
        self.placed[key] = dataclasses.replace(placed, image=placed.image._replace(reduced=reduced))

    def _note_retry(self) -> None:
        self.retries += 1
        self._reader.progress.note()


class RowLoader:
    """Does all the work of a row, in a thread of the pool.

    Everything that follows from the plan is worked out here, once: what is left for a row is 35 µs.

    Args:
        room: memory for pixels.
        reader: of the rows' files.
    """

    def __init__(
        self,
        plan: Plan,
        room: Room,
        reader: FileReader,
    ) -> None:
        fields = plan.fields
        self.reader = reader
        self._room = room
        self._options = plan.options
        self._transform = transform_of(plan.options)
        # The type of each planned key with an array of numbers that an Example takes from NumPy.
        self._arrays = {
            feature.key: _DTYPES[feature.kind]
            for field in fields
            for feature in field.features
            if feature.shape != ()
            and feature.kind in _DTYPES
            and feature.key != field.tfds_boxes_key
        }
        self._first = primary_file(fields)
        self._images = [field for field in fields if isinstance(field.kind, Image)]
        masks = [field for field in fields if isinstance(field.kind, Mask)]
        self._masks = [(field, image_of(field, fields)) for field in masks]
        self._files = [(field, field.kind) for field in fields if isinstance(field.kind, File)]
        self._boxes = [field for field in fields if isinstance(field.kind, Boxes)]
        of_boxes = [field.key for field in fields if field.of_boxes and field not in self._boxes]
        of_boxes += [field.masks_key for field in self._boxes if field.masks_key]
        self._of_each_box = of_boxes

    def load(self, planned: PlannedRow) -> Loaded | Rejected:
        """The record of a row, or why it gives none."""
        return self.load_from(self.reader, planned)

    def load_from(
        self,
        reader: FileReader,
        planned: PlannedRow,
    ) -> Loaded | Rejected:
        """As `load`, with another reader of files."""
        stated = planned.stated if self._boxes else (0, 0)
        if any(map(is_fact, planned.values)):
            reject = planned_reject(planned)
            if reject is not None:
                return reject
            values = planned.values
            if values.get(BASE):  # of a row that was there before
                reader = dataclasses.replace(reader, base=planned.text(BASE))
            of_record = (key for key in values if not is_fact(key) or key.startswith(SPOOLED))
            planned = planned._replace(values={key: values[key] for key in of_record})
        features = dict(planned.values)
        features[keys.SOURCE_ID] = str(planned.row)
        for key, dtype in self._arrays.items():
            features[key] = np.asarray(features[key], dtype)
        row = _Row(reader, features)
        try:
            self._add_images(row)
            self._add_masks(row)
            self._add_files(row)
            self._add_boxes(row, stated)
        except Reject as reject:
            return Rejected(planned, reject, row.retries, row.sources)
        except MemoryError as error:
            raise RunnerError(
                f"row {planned.row}, image {planned.image_uri!r}: this process's memory limit "
                "(ulimit -v) is too low to decode it. Raise that limit, or reject such images "
                f"with a smaller {spelled('max_pixels')}; then run the same conversion again to "
                "continue."
            ) from error
        parts = frame(encode_parts(features))
        return Loaded(
            row=planned,
            images=_stored(row.placed),
            parts=parts,
            size=sum(map(len, parts)),
            input_bytes=sum(size or 0 for size, *_ in row.sources.values()),
            retries=row.retries,
            sources=row.sources,
            levels=row.levels,
        )

    def _add_images(self, row: _Row) -> None:
        """Images are read, checked and transformed."""
        features = row.features
        for field in self._images:
            source = image = self._checked(field, row)
            geometry = None
            if self._transform is not None:
                try:
                    image, geometry = transform_image(source, self._transform, self._room)
                except Reject as reject:
                    raise self._of_column(reject, field, row) from None
            row.placed[field.key] = Placed(source, image, geometry)
            features[field.encoded_key] = image.data
            features[f"{field.key}/format"] = image.format
            height, width, channels = field.size_keys
            features[height] = image.height
            features[width] = image.width
            features[channels] = image.channels
            if field.depth == 16:
                features[f"{field.key}/depth"] = 16

    def _add_masks(self, row: _Row) -> None:
        """Masks are read and placed on their images."""
        for field, of in self._masks:
            mask = self._checked(field, row)
            placed = row.placed[of.key]
            plane = mask_plane(field, mask, placed.source)
            stored = stored_mask(field, mask, placed, plane, self._room)
            row.note(of.key, (*plane.words, "mask") if stored.is_of_colours else plane.words)
            row.levels[field.column] = stored.levels
            row.features[field.encoded_key] = stored.data
            row.features[f"{field.key}/format"] = "png"

    def _add_files(self, row: _Row) -> None:
        """Other files are read, and validated by their columns."""
        for field, kind in self._files:
            try:
                data = check_file(field.column, kind, row.read(field))
            except Reject as reject:
                raise self._of_column(reject, field, row) from None
            row.features[field.encoded_key] = data
            uri = str(row.features[field.uri_key])
            row.features[f"{field.key}/format"] = format_of(uri, data)

    def _add_boxes(
        self,
        row: _Row,
        stated: Size,
    ) -> None:
        """Boxes, and masks of objects, are placed on the image, of which a size may be stated."""
        features = row.features
        for field in self._boxes:
            [(key, image)] = row.placed.items()  # a schema with boxes has one
            edges = features[field.edges[0]]
            assert isinstance(edges, np.ndarray)
            plane = plane_of(image.source, getattr(field.kind, "upright", None), stated)
            row.note(key, plane.words if len(edges) else ())
            features.update(placed_boxes(field, features, plane, image.geometry, self._of_each_box))
            masks_key = field.masks_key
            if masks_key is not None:
                masks = features[masks_key]
                assert isinstance(masks, list)
                features[masks_key] = stored_object_masks(field, masks, image, plane, self._room)

    def _checked(
        self,
        field: Field,
        row: _Row,
    ) -> CheckedImage:
        """The image or mask of a column, read and checked.

        Raises:
            Reject: it cannot be used.
        """
        options = self._options
        try:
            image = check_image(
                row.read(field),
                options["check"],
                options["max_pixels"],
                self._room,
                fingerprints=options.get("fingerprints", False),
                depth=field.depth,
            )
            if options.get("strip_metadata", False):
                image = without_metadata(image)
        except Reject as reject:
            raise self._of_column(reject, field, row) from None
        row.sources[field.key] = row.sources[field.key]._replace(
            height=image.height,
            width=image.width,
            look=image.look,
        )
        return image

    def _of_column(
        self,
        reject: Reject,
        field: Field,
        row: _Row,
    ) -> Reject:
        """A reject that names its column; the list of rejects names the file of the first."""
        if field is self._first:
            return reject
        uri = row.features[field.uri_key]
        return Reject(reject.stage, reject.code, f"{field.column} {uri!r}: {reject.detail}")


def _stored(placed: Mapping[str, Placed]) -> KeyedImages:
    """The images as they are stored; the warnings of all of them go with the first."""
    stored = [(key, of_key.image) for key, of_key in placed.items()]
    further = [f"{key}: {image.warning}" for key, image in stored[1:] if image.warning]
    if further:
        key, first = stored[0]
        warnings = [*filter(None, [first.warning]), *further]
        stored[0] = key, first._replace(warning="; ".join(warnings))
    return stored
