"""Make tables and manifests again that are damaged or gone, as far as the records say.

A table follows from its shard's records and the lists of rows, a manifest from the tables of its
shards.  What comes out is proved by the public files: made again from it, each must be the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import google_crc32c
import pandas as pd

from tfrecorder import storage
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import parse, seal
from tfrecorder.format.example import parse_example
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan_columns import BASE, POSITION_OF, RECORD_OF, REJECT_OF, source_of
from tfrecorder.format.tfrecord import frame, read_records
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.plan.next_commit import placed, rows_of
from tfrecorder.plan.plan import Plan, PlanKind, PlannedRow
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.row_lists import read_row_list
from tfrecorder.reading.shard_tables import opened_rows, read_columns
from tfrecorder.reading.tfds_features import tfds_keys
from tfrecorder.schema import kinds
from tfrecorder.schema.fields import Field, fields_of, primary_image
from tfrecorder.schema.keys import SOURCE_ID, Feature
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.validation.statistics import describe_columns
from tfrecorder.verification.expectation import LISTS, Expectation, common_files
from tfrecorder.writing.copying import loaded
from tfrecorder.writing.manifest import manifest_of, sums_of
from tfrecorder.writing.outcomes import COMMIT
from tfrecorder.writing.rows import planned_reject
from tfrecorder.writing.shards import Tally
from tfrecorder.writing.tfds import DATASET_NAME

_LOST_OF_TABLE = "{}: of rejects the values; positions in streams; sums of the images' files"
_LOST_OF_COMMIT = "commit {}: its source, its own options, how often images were read again"
_LOST_ALL = (
    "the columns' own names where the records have others: images, masks, boxes, an only label",
    "the commits before it, for `at=`, and the options, which `tfrecorder.append` takes over",
    "class names with white space at an end that no record has: they are as in the labels file",
)
_LOST_STREAMS = "how far streams were read: none can be continued in this directory"

_COLUMNS = {"image": "image_uri", "image/class": "label", "image/segmentation/class": "mask_uri"}
_BOXES = Field("boxes", kinds.Boxes(), "image/object")

#: A row of a table, by column.
Row = dict[str, Any]


@dataclass
class Remade:
    """What is made again, and what that takes.

    Attributes:
        expected: with the manifests as they are now.
        damaged: the shards whose tables are damaged.
        said: the commit that each of the other tables names.
        fields: the columns of the dataset.
        options: of the commits that lost theirs.
        rejects: the rows of `rejects.csv` that no table holds.
        warnings: of suspects, by the number of the row.
        files: the bytes of the tables, indexes and manifests, by name.
        lost: what is not known any more, in words.
    """

    expected: Expectation
    damaged: set[Shard]
    said: dict[Shard, int] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    rejects: list[Sequence[str]] = field(default_factory=list)
    warnings: dict[int, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def remake(expected: Expectation, damaged: Collection[Shard]) -> Remade:
    """Make damaged tables of sound shards again, and lost manifests, whose shards must be sound.

    Args:
        damaged: the shards whose tables are damaged.

    Raises:
        DatasetError, UnreadableError, LookupError, TypeError, ValueError: what is left does not
            say enough.
    """
    made = Remade(expected, {*damaged})
    if not damaged and not expected.lost:
        return made
    made.fields, made.options = _fields_and_options(expected)
    _read_tables(made)
    left = [shard for shard in expected.every_shard if shard not in expected.done]
    for number in expected.numbers:
        before, commit = made.expected.before(number), expected.commits.get(number)
        if commit is None:
            shards = _shards_of_lost(made, number, left)
            left = [shard for shard in left if shard not in shards]
            plan, done = _plan_and_done(made, number, shards)
            lists = {file: sums_of(expected.read_whole(file)) for file in LISTS}
        else:
            plan, lists = Plan.of(commit.manifest), commit.manifest["lists"]
            done = {s: expected.done[s] for s in commit.own_shards}
            for shard in made.damaged & {*done}:
                rows, tally = _tallied(made, shard, done[shard].rejects)
                beside = {
                    **done[shard].beside,
                    "table": _crc_of_table(made, plan, shard, rows, tally),
                }
                done[shard] = replace(done[shard], beside=beside)
        manifest = json.loads(json.dumps(manifest_of(plan, done, before, lists)))
        if commit is not None:
            manifest["abandoned"] = commit.manifest["abandoned"]
        commit = Commit(number, {**(commit.manifest if commit else {}), **manifest})
        made.expected = replace(
            made.expected,
            commits=dict(sorted({**made.expected.commits, number: commit}.items())),
            done={**made.expected.done, **done},
        )
        made.files[layout.manifest(number)] = seal(commit.manifest)
    for file, data in common_files(made.expected).items() if expected.lost else ():
        if (file != layout.COMMIT or expected.info) and expected.read(file) != data:
            raise ValueError(f"{file} says something else than the records")
    return made


def _shards_of_lost(made: Remade, number: int, left: Sequence[Shard]) -> list[Shard]:
    """The shards of a commit whose manifest is lost.

    Args:
        left: those of no commit before it, and of none whose manifest is sound.
    """
    after = _after(made.expected, number)
    ends = {split: count for split, (_, count) in after.get("splits", {}).items()}
    ends |= {split: first for split, (_, first, _) in after.get("own", {}).items()}
    return [
        shard
        for shard in left
        if shard.index < ends.get(shard.split, 0 if after else math.inf)
        and made.said.get(shard, 0) <= number
    ]


def _after(expected: Expectation, number: int) -> Mapping[str, Any]:
    """The next manifest that is sound; empty if there is none."""
    later = (commit.manifest for n, commit in expected.commits.items() if n > number)
    return next(later, {})


def _read_tables(made: Remade) -> None:
    """Find the tables that cannot be read, and the rows of the lists that these must have held."""
    directory, rejected = made.expected.directory, set[int]()
    columns = [SOURCE_ID, REJECT_OF.reason]
    for shard in {*made.expected.every_shard} - made.damaged:
        try:
            with opened_rows(directory, shard.table) as file:
                made.said[shard] = int((file.schema_arrow.metadata or {}).get(COMMIT.encode(), 0))
                pairs = zip(*file.read().select(columns).to_pydict().values(), strict=True)
                rejected.update(number for number, reason in pairs if reason)
        except DatasetError:
            made.damaged.add(shard)
    with contextlib.suppress(DatasetError):  # then these are lost too
        suspects = read_row_list(directory, layout.SUSPECTS)
        made.warnings = {int(row[0]): row[2] for row in suspects}
        listed = read_row_list(directory, layout.REJECTS)
        made.rejects = [row for row in listed if int(row[0]) not in rejected]


def _tallied(made: Remade, shard: Shard, rejects: int) -> tuple[list[Row], Tally]:
    """The rows of a shard, records first, and what became of them.

    Args:
        rejects: how many rejected rows a damaged table held.

    Raises:
        ValueError: a record is damaged, or of another row than in the table.
    """
    fields, stands = made.fields, shard not in made.damaged
    images = [field for field in fields if isinstance(field.kind, kinds.Image)]
    wanted, first = list(_planned_features(fields)), primary_image(fields)
    known: list[Row] = []
    if stands and (
        table := read_columns(made.expected.directory, shard.table, lambda schema: schema.names)
    ):
        known = table.to_pylist()
    rejected = [row for row in known if row[REJECT_OF.reason]]
    sound = iter([row for row in known if not row[REJECT_OF.reason]])
    other = ValueError(f"{shard.table} is not of the records of {shard.file}")
    tally, rows = Tally(fields, lambda rows: None, math.inf), []
    path = made.expected.path(shard.file)
    with storage.local_copy(path) as copy, open(copy, "rb") as file:
        for _, data in read_records(file):
            record = parse_example(data)
            number = int(bytes(record[SOURCE_ID][0]))
            row: Row = next(sound, {}) if stands else {SOURCE_ID: number}
            if row.get(SOURCE_ID) != number:
                raise other
            if not stands:
                row |= {key.key: _value_of(key, list(record[key.key])) for key in wanted}
                row[RECORD_OF.warning] = made.warnings.get(number, "")
            warning = row[RECORD_OF.warning]
            outcome = loaded(PlannedRow(number, "", row), frame([data]), record, images, warning)
            sizes = [row.get(source_of(field).bytes) or 0 for field in fields]
            tally.add_record(replace(outcome, input_bytes=sum(sizes) or outcome.input_bytes))
            rows.append(row)
    if next(sound, None) is not None:
        raise other
    if not stands:
        count = rejects or int(not rows)  # no shard was planned without a row
        for text, uri, stage, reason in made.rejects[:count]:
            row = {key.key: _empty_value(key) for key in wanted} | {SOURCE_ID: int(text)}
            row |= dict(zip(REJECT_OF, (stage, reason), strict=True))
            rejected.append(row | ({first.uri_key: uri} if first else {}))
        del made.rejects[:count]
    for row in rejected:
        outcome_of = planned_reject(PlannedRow(row[SOURCE_ID], "", row))
        assert outcome_of is not None
        tally.add_reject(outcome_of)
    return [*rows, *rejected], tally


def _crc_of_table(made: Remade, plan: Plan, shard: Shard, rows: Sequence[Row], tally: Tally) -> int:
    """The CRC32C of a shard's table, which is made again if it is damaged."""
    import pyarrow as pa

    if shard not in made.damaged:
        return google_crc32c.value(made.expected.read(shard.table))
    types = {SOURCE_ID: pa.int64()} | {
        key.key: _arrow_type(key) for key in _planned_features(made.fields)
    }
    types |= dict.fromkeys(POSITION_OF if plan.streams else (), pa.large_string())
    # A position that is not known is "": of each source, one row at least says so.
    for row, source in zip(rows, itertools.cycle(plan.streams or [""]), strict=False):
        row |= dict(zip(POSITION_OF, (source, ""), strict=True))
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    made.files[shard.table] = tally.outcomes.table(plan, pa.table(columns))
    made.lost.append(_LOST_OF_TABLE.format(shard.table))
    return google_crc32c.value(made.files[shard.table])


def _plan_and_done(
    made: Remade, number: int, shards: Sequence[Shard]
) -> tuple[Plan, dict[Shard, DoneRecord]]:
    """The plan of a commit whose manifest is lost, and its done-records, from its shards.

    It keeps the shards as they are: nothing says what was planned for each.
    """
    import pyarrow as pa

    expected, fields = made.expected, made.fields
    before, after = expected.before(number), _after(expected, number)
    # Nothing says which of several damaged tables held which reject; some know how many they had.
    known = [s for s in made.damaged if s in expected.done and s.table not in made.files]
    others = sum(expected.done[shard].rejects for shard in known)
    pending = {shard for shard in made.damaged if shard not in expected.done}
    tallied = {}
    for shard in shards:
        pending.discard(shard)
        tallied[shard] = _tallied(made, shard, 0 if pending else len(made.rejects) - others)
    rows = [(shard.split, row) for shard, (of, _) in tallied.items() for row in of]
    sound = [(split, row) for split, row in rows if not row.get(REJECT_OF.reason)]
    if expected.note[0] not in expected.commits:
        fields = tuple(_with_names(expected, field, [row for _, row in sound]) for field in fields)
    values = {
        key.key: pa.array([row[key.key] for _, row in sound], _arrow_type(key))
        for key in _planned_features(fields)
    }
    splits = pd.Series([split for split, _ in sound], dtype=SPLIT_TYPE)
    digest = expected.note[1] if number == expected.note[0] else ""
    digest = after["previous"] if after.get("commit") == number + 1 else digest
    first = 0 if before is None else rows_of(before)
    bases = {row.get(BASE, "") for _, row in rows}
    options = dict((before or after or {"options": made.options})["options"])
    if before is None:
        stated = after["stated"] if after else (expected.info or {})["version"]
        major, minor, _ = map(int, stated.split("."))
        left = (made.said.get(s, 0) for s in expected.every_shard if s not in expected.done)
        between = {said for said in left if number < said < after.get("commit", math.inf)}
        options["version"] = f"{major}.{minor - bool(after.get('own')) - len(between)}.0"
    plan = Plan(
        rows=len(rows),
        source_rows=max([first, *(row[SOURCE_ID] + 1 for _, row in rows)]) - first,
        split_rows={},
        split_shards={},
        fields=fields,
        statistics=describe_columns(fields, values, splits, missing={}),
        base=bases.pop() if len(bases) == 1 else "",
        fingerprint="",
        options=options,
        kind=PlanKind.CONVERSION if before is None else PlanKind.APPEND,
        streams=_streams(made, tallied),
        stands_for=digest,
    )
    plan = placed(plan, before, adds=True)
    indexes: dict[str, list[int]] = {}
    for shard in shards:
        indexes.setdefault(shard.split, []).append(shard.index)
    plan = replace(
        plan,
        commit=number,
        starts={split: kept[0] for split, kept in indexes.items() if kept[0]},
        kept={split: list(range(len(kept))) for split, kept in indexes.items()},
        revisions={s.split: s.revision for s in expected.every_shard if s.revision != 1},
    )
    done = {}
    for shard in layout.shards_of(plan.own):
        of_shard, tally = tallied[shard]
        made.files[shard.index_file] = index = tally.outcomes.index()
        table = _crc_of_table(made, plan, shard, of_shard, tally)
        beside = {"index": google_crc32c.value(index), "table": table}
        done[shard] = replace(tally.done_record(plan.digest, shard), beside=beside)
    made.lost.append(_LOST_OF_COMMIT.format(number))
    made.lost += [_LOST_STREAMS] if plan.streams and "" in plan.streams else []
    made.lost += _LOST_ALL if not expected.commits else ()
    return plan, done


def _streams(
    made: Remade, tallied: Mapping[Shard, tuple[list[Row], Tally]]
) -> dict[str, Any] | None:
    """How far the sources of streamed rows were read: up to the newest row of each.

    Where a table is lost, None stands for what nobody knows any more, and "" for every source.
    """
    if not made.damaged.isdisjoint(tallied):
        return {"": {"to": None}}
    rows = [row for of_shard, _ in tallied.values() for row in of_shard]
    streams: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: row[SOURCE_ID]):
        if source := row.get(POSITION_OF.source):
            position = row[POSITION_OF.position]
            with contextlib.suppress(ValueError):  # of a source without an order any value will do
                position = json.loads(position)
            streams[source] = {"to": position}
    return streams or None


def _fields_and_options(expected: Expectation) -> tuple[tuple[Field, ...], dict[str, Any]]:
    """The columns of the dataset, and the options of a commit that lost its own."""
    newest = max(expected.commits, default=-1)
    known = expected.commits[newest].manifest if newest >= 0 else {}
    if newest == expected.note[0]:
        return Plan.of(known).fields, known["options"]
    document = parse(expected.read_whole(layout.FEATURES))
    fields = _fields(document, layout.LABEL_MAP_CSV in storage.names(expected.directory))
    if not known:
        return fields, _options(document, expected.info or {})
    counts = {field.label_key: field.num_classes for field in fields}
    known_fields = (
        replace(field, num_classes=counts.get(field.label_key)) if field.label_key else field
        for field in Plan.of(known).fields
    )
    return tuple(known_fields), known["options"]


def _fields(document: Mapping[str, Any], background: bool) -> tuple[Field, ...]:
    """The columns that make these features, without the names of their classes."""
    forms = document["featuresDict"]["features"]
    features = {key.feature.key: key for key in tfds_keys(document)}
    boxes, taken, columns = f"{_BOXES.key}/bbox", {SOURCE_ID}, {}
    for key, tfds_key in features.items():
        if key in taken:
            continue
        stem, _, last = key.rpartition("/")
        column = stem
        kind: kinds.Kind
        if last == "encoded" and f"{stem}/format" in features:
            column = f"{stem}_uri"
            kind = (
                kinds.Mask() if "encodingFormat" in forms[key].get("image", {}) else kinds.Image()
            )
        elif last == "label" and f"{stem}/text" in features:
            kind = kinds.Labels() if tfds_key.feature.shape else kinds.Label()
        elif key in (boxes, *_BOXES.edges):
            stem, column = _BOXES.key, _BOXES.column
            label = "box_label" if f"{stem}/class/label" in features else None
            tfds = boxes in features
            kind = kinds.Boxes(label=label, background_class=background, tfds_features=tfds)
        else:
            column, stem, kind = key, key, _kind(tfds_key.feature, forms[key])
        column = _COLUMNS.get(stem, column)
        columns[column] = kind
        taken |= {feature.key for feature in Field(column, kind, stem).features}
    return tuple(
        replace(field, num_classes=features[field.label_key].classes or 0)
        if field.label_key
        else field
        for field in fields_of(kinds.Schema(columns))
    )


def _kind(feature: Feature, form: Mapping[str, Any]) -> kinds.Kind:
    """The kind of a column with one key."""
    inner = form.get("sequence", {}).get("feature", form)
    if feature.kind == "text":
        kind = kinds.Text if inner["pythonClassName"].endswith(".Text") else kinds.Bytes
        return kind(shape=feature.shape)
    dtype = feature.kind if feature.kind in ("int64", "bool") else "float32"
    return kinds.Number(dtype=dtype, shape=feature.shape)


def _planned_features(fields: Sequence[Field]) -> Iterator[Feature]:
    """The keys of a record that come from the table."""
    for column in fields:
        is_image = isinstance(column.kind, (kinds.Image, kinds.Mask))
        for feature in column.features:
            if feature.key == column.uri_key if is_image else feature.key != column.tfds_boxes_key:
                yield feature


def _arrow_type(feature: Feature) -> Any:
    import pyarrow as pa

    of_kind = {"float": pa.float32(), "text": pa.large_string(), "bytes": pa.large_binary()}
    plain = of_kind.get(feature.kind, pa.int64())
    return plain if feature.shape == () else pa.large_list(plain)


def _value_of(feature: Feature, values: list[Any]) -> Any:
    """What a table holds of the values of a record."""
    if feature.kind == "text":
        values = [bytes(value).decode() for value in values]
    return values if feature.shape else values[0]


def _empty_value(feature: Feature) -> Any:
    """What a table holds for a row whose value is lost."""
    return [] if feature.shape else {"text": "", "bytes": b""}.get(feature.kind, 0)


def _with_names(expected: Expectation, field: Field, rows: Iterable[Mapping[str, Any]]) -> Field:
    """A column with the names of its classes: those that it has or records have, else TFDS's.

    Args:
        rows: of records, by key.
    """
    if field.label_key is None or field.text_key is None or not field.num_classes:
        return field
    file = layout.labels_file(field.label_key)
    if file not in storage.names(expected.directory):
        return replace(field, integer=True)
    lines = expected.read(file).decode().split("\n")[:-1]
    lines[: len(field.names or ())] = field.names or ()
    for row in rows:
        labels, texts = row[field.label_key], row[field.text_key]
        pairs = zip(labels, texts, strict=True) if field.features[-1].shape else [(labels, texts)]
        for label, text in pairs:
            if text and 0 <= label < len(lines):
                lines[label] = text
    return replace(field, names=tuple(lines), num_classes=len(lines))


def _options(document: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    forms = document["featuresDict"]["features"].values()
    options = ConvertOptions().content_options()
    if info["name"] != DATASET_NAME:
        options |= {"name": info["name"], "version": info["version"]}
    if any(form.get("tensor", {}).get("encoding") == "bytes" for form in forms):
        options["image_format"] = "raw"
    if any("boundingBox" in str(form) or "useColormap" in str(form) for form in forms):
        options["tfds_features"] = True
    return options
