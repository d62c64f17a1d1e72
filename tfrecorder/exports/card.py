"""`card`: the files that say what a dataset is, for registries, reviews and people.

`croissant.json` is Croissant 1.1, `README.md` what the Hugging Face Hub shows, with pictures, and
`records.parquet` has a row for each record; `card.yaml` states what only people know.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.core.option import option, text
from tfrecorder.core.text import decoded, read_yaml, typed
from tfrecorder.core.threads import map_at_once
from tfrecorder.display.bars import Stage, is_shown, record_bar
from tfrecorder.display.tables import Report, counted, in_markdown
from tfrecorder.errors import DatasetError, OptionError, OutputError
from tfrecorder.exports.names import Names
from tfrecorder.format import layout
from tfrecorder.inspection.findings import find
from tfrecorder.inspection.gather import Gathered, gather
from tfrecorder.inspection.record_values import SMALL_SIDE, to_jpeg
from tfrecorder.options.keywords import CardKeywords, Path, Unpack
from tfrecorder.options.option import Options, refuse_unknown, takes
from tfrecorder.options.read import PreviewOptions
from tfrecorder.output.directory import claim
from tfrecorder.reading.commits import StoredCard, all_done, commits, newest_commit, stored_card
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame import table_of
from tfrecorder.reading.info import DatasetInfo, info, summed
from tfrecorder.reading.record_set import open_stored
from tfrecorder.schema.fields import of_kind
from tfrecorder.schema.kinds import Bytes, columns_of
from tfrecorder.version import __version__
from tfrecorder.writing.public_files import DATASET_NAME

#: The types of values in Arrow that are not texts.
_TYPES = {"int64": "cr:Int64", "float": "cr:Float32", "double": "cr:Float64", "bool": "sc:Boolean"}


def croissant(
    info: DatasetInfo,
    fields: CardFields,
    name: str,
    schema: pa.Schema,
    files: Mapping[str, tuple[int, str]],
    stated: Mapping[str, Any],
) -> dict[str, Any]:
    """The values of `croissant.json`.

    Args:
        info: of the dataset.
        fields: what people state.
        name: of the dataset.
        schema: of the table of records.
        files: the size and the SHA-256 of each file, by name.
        stated: the properties of the dataset that follow from its commit.
    """
    context = importlib.resources.files("tfrecorder.exports").joinpath("context.json")
    splits = {split.lower(): of.records for split, of in info.splits.items()}
    classes = summed(
        [dict.fromkeys(info.class_names or (), 0), *(info.class_counts or {}).values()]
    )
    sets = [_counts("splits", ["sc:Enumeration", "cr:Split"], splits)]
    if classes and info.class_counts is not None:
        sets.append(_counts("classes", ["sc:Enumeration"], classes))
    return {
        "@context": json.loads(context.read_text()),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": name,
        "description": fields.description or f"{info.records:,} records, as TFRecord files.",
        **fields.for_croissant,
        **stated,
        "variableMeasured": _measured(info),
        "distribution": [_file(file, *sums) for file, sums in files.items()],
        "recordSet": [*sets, _records(info, schema)],
    }


def made_by(
    commit: int,
    kind: str,
    digest: str,
) -> dict[str, Any]:
    """The provenance of a dataset: the operation that made it what it is, and its software."""
    agent = {"@type": "prov:SoftwareAgent", "prov:label": f"tfrecorder {__version__}"}
    label = f"commit {commit}, {kind}, plan {digest}"
    return {"@type": "prov:Activity", "prov:label": label, "prov:wasAssociatedWith": agent}


def _node(
    kind: str,
    name: str,
    **properties: Any,
) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": name, "name": name, **properties}


def _file(
    name: str,
    size: int,
    sha256: str,
) -> dict[str, Any]:
    form = "application/x-" + ("parquet" if name == layout.RECORDS else "tfrecord")
    sums = {"contentSize": f"{size} B", "sha256": sha256}
    return _node(
        "FileObject",
        name,
        contentUrl=name,
        encodingFormat=form,
        **sums,
    )


def _measured(info: DatasetInfo) -> list[dict[str, Any]]:
    """The statistics of numbers in each split."""
    return [
        {
            "@type": "PropertyValue",
            "name": f"{column}, {split.lower()}",
            "minValue": stats["min"],
            "maxValue": stats["max"],
            "description": f"mean {stats['mean']:.6g}, standard deviation {stats['std']:.6g}",
        }
        for column, of_splits in info.statistics.items()
        for split, stats in of_splits.items()
        if "mean" in stats
    ]


def _counts(
    name: str,
    kinds: list[str],
    counts: Mapping[str, int | None],
) -> dict[str, Any]:
    """A record set of names, and of how many records each has."""
    named = f"{name}/name"
    records = f"{name}/records"
    types = {named: "sc:Text", records: "cr:Int64"}
    fields = [_node("Field", field, dataType=kind) for field, kind in types.items()]
    rows = [{named: row, records: count} for row, count in counts.items()]
    key = {"@id": named}
    return _node(
        "RecordSet",
        name,
        dataType=kinds,
        key=key,
        field=fields,
        data=rows,
    )


def _records(info: DatasetInfo, schema: pa.Schema) -> dict[str, Any]:
    words = "A row for each record: where it is, and its values but for the pixels."
    fields = [_field(info, column) for column in schema]
    fields[0]["references"] = {"field": {"@id": "splits/name"}}
    key = [{"@id": "records/split"}, {"@id": "records/record"}]
    return _node(
        "RecordSet",
        "records",
        description=words,
        key=key,
        field=fields,
    )


def _field(info: DatasetInfo, column: pa.Field) -> dict[str, Any]:
    is_list = pa.types.is_list(column.type)
    stated = info.columns.get(column.name)
    sides = stated.shape if is_list and stated else (None,)
    shape = ",".join(str(-1 if side is None else side) for side in sides)
    array = {"isArray": True, "arrayShape": shape} if is_list else {}
    kind = _TYPES.get(str(column.type.value_type if is_list else column.type), "sc:Text")
    source = {"fileObject": {"@id": layout.RECORDS}, "extract": {"column": column.name}}
    # An identifier is a part of a uri.
    name = re.sub(r"[^\w./-]", lambda found: quote(found[0], safe=""), column.name)
    return _node(
        "Field",
        f"records/{name}",
        dataType=kind,
        source=source,
        **array,
    )


#: The responsible-AI fields of Croissant RAI 1.0, and what NeurIPS asks for besides.
RAI = (
    "annotationsPerItem",
    "annotatorDemographics",
    "dataAnnotationAnalysis",
    "dataAnnotationPlatform",
    "dataAnnotationProtocol",
    "dataBiases",
    "dataCollection",
    "dataCollectionMissingData",
    "dataCollectionRawData",
    "dataCollectionTimeframe",
    "dataCollectionType",
    "dataImputationProtocol",
    "dataLimitations",
    "dataSocialImpact",
    "dataManipulationProtocol",
    "dataPreprocessingProtocol",
    "dataReleaseMaintenancePlan",
    "dataUseCases",
    "hasSyntheticData",
    "machineAnnotationTools",
    "personalSensitiveInformation",
)


def _by_name(value: Any) -> str | None:
    return None if isinstance(value, Mapping) else "give names with values, one a line."


@dataclass(frozen=True, kw_only=True)
class CardFields(Options):
    """What `card.yaml` may state; `croissant` is any further properties of `croissant.json`.

    Raises:
        OptionError: a value has the wrong type.
    """

    name: str | None = option(None, text)
    description: str | None = option(None, text)
    license: str | None = option(None, text)
    citation: str | None = option(None, text)
    homepage: str | None = option(None, text)
    rai: Mapping[str, Any] | None = option(None, _by_name)
    croissant: Mapping[str, Any] | None = option(None, _by_name)

    @property
    def for_tfds(self) -> dict[str, Any]:
        """Those that `dataset_info.json` has a field for, as it has them."""
        made = {
            "description": self.description,
            "citation": self.citation,
            "location": self.homepage and {"urls": [self.homepage]},
            "redistributionInfo": self.license and {"license": self.license},
        }
        return {name: value for name, value in made.items() if value}

    @property
    def for_croissant(self) -> dict[str, Any]:
        """Those that Croissant has a property for, as it has them."""
        made = {"license": self.license, "citeAs": self.citation, "url": self.homepage}
        made |= {f"rai:{name}": said for name, said in (self.rai or {}).items()}
        stated = {name: value for name, value in made.items() if value is not None}
        return stated | dict(self.croissant or {})


def read_card_fields(directory: str) -> CardFields:
    """What the `card.yaml` of a dataset states; nothing if there is none.

    Raises:
        OptionError: it is not such a file; the message names the field and the remedy.
    """
    path = os.path.join(directory, layout.CARD_YAML)
    try:
        values = typed(read_yaml(decoded(storage.read_bytes(path)))) or {}
        if fault := _by_name(values):
            raise OptionError(fault)
        fields = CardFields.of(values)
        refuse_unknown(fields.rai or {}, RAI)
        return fields
    except storage.UnreadableError as error:
        if error.code == "not_found":
            return CardFields()
        raise OptionError(f"{path} cannot be read: {error}.") from error
    except ValueError as error:
        raise OptionError(f"{path}: {' '.join(str(error).split())}") from error


#: Where a record is: its split, its number in it, the file of its shard.
PLACES = ("split", "record", "shard")


def record_table(stored: StoredDataset) -> pa.Table:
    """`PLACES`, and the columns of the schema by their names or `renamed`; arrays are flat.

    Raises:
        DatasetError: as `table_of`.
    """
    without = {field.column for field in of_kind(stored.fields, Bytes)}
    new_names = renamed(stored)
    frames = []
    for split, shards in stored.splits.items():
        frame = table_of(stored, split)
        names = [os.path.basename(shard.path) for shard in shards]
        of_shards = np.repeat(np.array(names, object), [shard.records or 0 for shard in shards])
        others = frame.drop(columns=without, errors="ignore").rename(columns=new_names)
        numbers = np.arange(len(frame))
        frames.append(
            others.assign(
                split=split.lower(),
                record=numbers,
                shard=of_shards,
            )
        )
    whole = pd.concat(frames, ignore_index=True)
    for name, column in whole.items():
        if len(column) and isinstance(column.iloc[0], np.ndarray):
            whole[name] = column.map(np.ravel)
    order = [*PLACES, *(name for name in whole if name not in PLACES)]
    return pa.Table.from_pandas(whole[order], preserve_index=False).replace_schema_metadata()


def renamed(stored: StoredDataset) -> dict[str, str]:
    """The names in the table of the dataset's own columns that are called as one of `PLACES`."""
    own = [name for field in stored.fields for name in columns_of(field.column, field.kind)]
    names = Names(*own)
    return {name: names.choose(f"{name}_", f"{name}_{{}}") for name in PLACES if name in own}


def as_parquet(rows: pa.Table) -> bytes:
    """A table as a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return sink.getvalue().to_pybytes()


#: Pictures in a row of the sheet.
_ACROSS = 8


def readme(
    gathered: Gathered,
    fields: CardFields,
    name: str,
    findings: Sequence[str],
    pictures: bool,
) -> str:
    """The page, with the values at its head that the Hub reads.

    Args:
        gathered: what is known of the dataset.
        fields: what people state.
        name: of the dataset.
        findings: what deserves a look.
        pictures: whether there is a sheet of them.
    """
    import yaml

    license = {"license": fields.license} if fields.license else {}
    rows = [{"config_name": "records", "data_files": layout.RECORDS}]
    head = {"pretty_name": name, **license, "tags": ["tfrecord", "croissant"], "configs": rows}
    stated = {"Licence": fields.license, "Homepage": fields.homepage, **(fields.rai or {})}
    stated["Cite"] = fields.citation
    said = []
    for heading, words in stated.items():
        if isinstance(words, list):
            words = "; ".join(words)
        if words is not None:
            said.append(f"{heading}: {words}")
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---",
        f"# {in_markdown(name)}",
    ]
    if fields.description:
        parts.append(in_markdown(fields.description))
    if pictures:
        parts.append(f"![Random records of each split]({layout.PICTURES})")
    parts += [
        "\n".join(f"- {in_markdown(remark)}" for remark in (*said, *findings)),
        gathered.info.as_markdown(),
        f"[A row a record]({layout.RECORDS}), and [the sum of each file]({layout.CROISSANT}).",
    ]
    return "\n\n".join(parts) + "\n"


def sheet(gathered: Gathered) -> bytes:
    """Random pictures of each split in rows, as one JPEG; empty if there are none."""
    from PIL import Image, ImageOps

    views = [view for of_split in gathered.sheet.values() for view in of_split if view.jpeg]
    if not views:
        return b""
    side = SMALL_SIDE
    across = min(_ACROSS, len(views))
    down = -(-len(views) // across)
    made = Image.new("RGB", (across * side, down * side), "white")
    for place, view in enumerate(views):
        row, column = divmod(place, across)
        with Image.open(io.BytesIO(view.jpeg)) as picture:
            small = ImageOps.fit(picture, (side, side))
            made.paste(small, (column * side, row * side))
    return to_jpeg(made)


#: Options of `preview` that a card does not have.
NOT_OF_A_CARD = dict.fromkeys(
    ("at", "image", "label", "features"),
    "leave it out: a card is of the newest commit of our own records",
)

#: Bytes of a file that are hashed at a time.
_PIECE = 2**20


@dataclass(frozen=True, repr=False)
class Card(Report):
    """What `card` wrote.

    Attributes:
        directory: of the dataset.
        commit: the number of the commit that the card describes.
        files: the names of its files.
        hashed: how many shards were hashed; the sums of the others were kept.
        shards: how many there are.
        findings: what deserves a look, in sentences.
    """

    directory: str
    commit: int
    files: tuple[str, ...]
    hashed: int
    shards: int
    findings: tuple[str, ...]

    def _headline(self) -> str:
        return f"{', '.join(self.files)} in {self.directory}"

    def _notes(self) -> list[str]:
        hashed = f"hashed: {self.hashed:,} of {counted(self.shards, 'shard')}"
        return [f"describes commit {self.commit}", hashed, *self.findings]


@takes(CardKeywords, PreviewOptions)
def card(directory: Path, **options: Unpack[CardKeywords]) -> Card:
    """Write the card of a dataset into its directory: for registries, reviews and people.

    It is `croissant.json` (Croissant 1.1: every shard with its SHA-256, splits, classes, columns,
    statistics, provenance), `records.parquet` (a row for each record, without pixels), and
    `README.md` in the form of the Hugging Face Hub, with `card.jpg`, random pictures.  What only
    people know is taken from `card.yaml` in the directory, if it is there: name, description,
    license, citation, homepage, rai (fields of responsible AI) and croissant (any further
    properties of `croissant.json`).  The next commit puts into `dataset_info.json` what that has a
    field for.

    Commits do not write it again: `info` says when it is older than the dataset, and what removes
    records removes it.  Only shards that were added since are hashed again.

    Args:
        directory: what `convert` wrote.
        **options: what its pictures and findings look at, as for `preview`.

    Raises:
        OptionError: an argument, or a field of `card.yaml`, is wrong.
        OutputError: a file of its names is there that no card wrote or that was changed since, or
            another operation writes there.
        DatasetError: there is no whole dataset written by this package.

    Example:
        >>> tfrecorder.card("out")  # doctest: +SKIP
    """
    chosen = PreviewOptions.of(options, NOT_OF_A_CARD)
    where = storage.given_path(directory)
    with storage.failing_as(DatasetError, where):
        if newest_commit(where) is None:
            raise DatasetError(f"{where} is not a finished dataset that tfrecorder wrote.")
        kept = stored_card(where)
        _refuse_others(where, kept.files if kept else {})
        fields = read_card_fields(where)
    with claim(where), record_bar(is_shown(chosen.progress)) as stage:
        return _write(where, kept, fields, chosen, stage)


def _write(
    where: str,
    kept: StoredCard | None,
    fields: CardFields,
    options: PreviewOptions,
    stage: Stage,
) -> Card:
    newest = newest_commit(where)
    assert newest is not None
    stored = open_stored(where, newest.number)
    gathered = gather(stored, info(where, newest.number), options, stage)
    done = {shard.file: record for shard, record in all_done(commits(where, newest)).items()}
    sums = {}
    for file, stated_sums in (kept.shards if kept else {}).items():
        # Names may come again, for other bytes.
        if file in done and done[file].crc32c == stated_sums[0]:
            sums[file] = stated_sums
    others = [file for file in done if file not in sums]
    for file, sha256 in zip(others, _sha256s(where, others), strict=True):
        sums[file] = (done[file].crc32c, sha256)
    rows = record_table(stored)
    records = as_parquet(rows)
    listed = {}
    for file, record in done.items():
        _, sha256 = sums[file]
        listed[file] = (record.bytes, sha256)
    listed[layout.RECORDS] = len(records), hashlib.sha256(records).hexdigest()
    own = str(newest.info["name"])
    folder = os.path.basename(storage.absolute(where).rstrip("/"))
    name = fields.name or (own if own != DATASET_NAME else folder)
    provenance = made_by(newest.number, newest.plan.kind.value, newest.digest)
    stated = {"version": newest.info["version"], "prov:wasGeneratedBy": provenance}
    document = croissant(gathered.info, fields, name, rows.schema, listed, stated)
    findings = ["".join(text for text, _ in remark.parts) for remark in find(gathered)]
    for old, new in renamed(stored).items():
        findings.append(f"The column {old!r} is {new!r} in {layout.RECORDS}.")
    pictures = sheet(gathered)
    files = {
        layout.CROISSANT: (json.dumps(document, indent=2, default=str) + "\n").encode(),
        layout.README: readme(gathered, fields, name, findings, bool(pictures)).encode(),
        **({layout.PICTURES: pictures} if pictures else {}),
        layout.RECORDS: records,
    }
    of_files = {file: hashlib.sha256(data).hexdigest() for file, data in files.items()}
    made = StoredCard(newest.number, of_files, sums, fields.for_tfds)
    now = newest_commit(where)
    if now is None or now.digest != newest.digest:  # on a bucket, where nothing is locked
        raise OutputError(f"{where} was changed while its card was made; make it again.")
    # An interruption leaves no file that `card.json` does not list, or lists with another sum.
    storage.remove_files(where, kept.files if kept else ())
    for file, data in {layout.CARD: made.to_json(), **files}.items():
        storage.publish_bytes(where, file, data)
    return Card(
        directory=where,
        commit=newest.number,
        files=tuple(files),
        hashed=len(others),
        shards=len(done),
        findings=tuple(findings),
    )


def _refuse_others(where: str, written: dict[str, str]) -> None:
    """Raise an OutputError if a file that the card would replace is not as a card wrote it."""
    for name in sorted({*storage.names(where)} & {*layout.CARD_FILES}):
        path = os.path.join(where, name)
        if name not in written:
            raise OutputError(f"{path} is there, and no card wrote it; move it away.")
        is_text = name in (layout.README, layout.CROISSANT)
        if is_text and _sha256s(where, [name]) != [written[name]]:
            raise OutputError(
                f"{path} was changed since it was written; move it away, and state what it says "
                f"in {layout.CARD_YAML}."
            )


def _sha256s(where: str, names: Sequence[str]) -> list[str]:
    """The SHA-256 of each of these files of a dataset."""

    def sha256(name: str) -> str:
        digest = hashlib.sha256()
        with storage.open_seekable(os.path.join(where, name)) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        return digest.hexdigest()

    return map_at_once(sha256, names, storage.REMOTE_THREADS)
