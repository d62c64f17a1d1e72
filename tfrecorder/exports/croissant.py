"""Croissant 1.1 of a dataset: its files, its columns and what people state of it, as JSON-LD."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tfrecorder.exports.card_fields import CardFields
from tfrecorder.format import layout
from tfrecorder.reading.info import DatasetInfo, summed
from tfrecorder.version import __version__

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


def made_by(commit: int, kind: str, digest: str) -> dict[str, Any]:
    """The provenance of a dataset: the operation that made it what it is, and its software."""
    agent = {"@type": "prov:SoftwareAgent", "prov:label": f"tfrecorder {__version__}"}
    label = f"commit {commit}, {kind}, plan {digest}"
    return {"@type": "prov:Activity", "prov:label": label, "prov:wasAssociatedWith": agent}


def _node(kind: str, name: str, **properties: Any) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": name, "name": name, **properties}


def _file(name: str, size: int, sha256: str) -> dict[str, Any]:
    form = "application/x-" + ("parquet" if name == layout.RECORDS else "tfrecord")
    sums = {"contentSize": f"{size} B", "sha256": sha256}
    return _node("FileObject", name, contentUrl=name, encodingFormat=form, **sums)


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


def _counts(name: str, kinds: list[str], counts: Mapping[str, int | None]) -> dict[str, Any]:
    """A record set of names, and of how many records each has."""
    named = f"{name}/name"
    records = f"{name}/records"
    types = {named: "sc:Text", records: "cr:Int64"}
    fields = [_node("Field", field, dataType=kind) for field, kind in types.items()]
    rows = [{named: row, records: count} for row, count in counts.items()]
    key = {"@id": named}
    return _node("RecordSet", name, dataType=kinds, key=key, field=fields, data=rows)


def _records(info: DatasetInfo, schema: pa.Schema) -> dict[str, Any]:
    words = "A row for each record: where it is, and its values but for the pixels."
    fields = [_field(info, column) for column in schema]
    fields[0]["references"] = {"field": {"@id": "splits/name"}}
    key = [{"@id": "records/split"}, {"@id": "records/record"}]
    return _node("RecordSet", "records", description=words, key=key, field=fields)


def _field(info: DatasetInfo, column: pa.Field) -> dict[str, Any]:
    is_list = pa.types.is_list(column.type)
    stated = info.columns.get(column.name)
    sides = stated.shape if is_list and stated else (None,)
    shape = ",".join(str(-1 if side is None else side) for side in sides)
    array = {"isArray": True, "arrayShape": shape} if is_list else {}
    kind = _TYPES.get(str(column.type.value_type if is_list else column.type), "sc:Text")
    source = {"fileObject": {"@id": layout.RECORDS}, "extract": {"column": column.name}}
    return _node("Field", f"records/{column.name}", dataType=kind, source=source, **array)
