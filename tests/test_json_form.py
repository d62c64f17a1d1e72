"""JSON that anybody may have written is taken only in the form wanted, and says where it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfrecorder import Image, Number, Schema
from tfrecorder.format.forms import DONE, plan_form
from tfrecorder.format.json_form import (
    each,
    either,
    null,
    parse,
    record,
    row,
    table,
    text,
    whole,
    word,
)
from tfrecorder.plan.plan import Plan
from tfrecorder.schema.fields import fields_of, to_json

PLAN: dict[str, Any] = {
    "version": 2,
    "rows": 5,
    "source_rows": 5,
    "split_rows": {"TRAIN": 3, "TEST": 2},
    "split_shards": {"TRAIN": 2, "TEST": 1},
    "fields": to_json(fields_of(Schema(image_uri=Image(), age=Number()))),
    "statistics": {},
    "base": "/x",
    "fingerprint": "f",
    "options": {"verify": "decode", "max_pixels": 9},
}

SHARD = record({"file": text, "rows": whole(1, 9)}, {"kind": word("a", "b")})
FORM = record({"shards": each(SHARD), "sides": either(null, row(whole(), whole()))})


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"shards": []}, "there is no 'sides'"),
        ({"shards": {}, "sides": None}, "shards: a dict is not a list"),
        ({"shards": [7], "sides": None}, "shards: 0: 7 is not an object"),
        ({"shards": [{"file": "x", "rows": 0}], "sides": None}, "rows: 0 is not a whole number"),
        (
            {"shards": [{"file": "x", "rows": True}], "sides": None},
            "rows: True is not a whole number",
        ),
        ({"shards": [{"file": 7, "rows": 1}], "sides": None}, "file: 7 is not text"),
        ({"shards": [{"file": "\ud800", "rows": 1}], "sides": None}, r"'\ud800' is not text"),
        ({"shards": [{"file": "", "rows": 1, "kind": "c"}], "sides": None}, "'c' is not one of"),
        ({"shards": [], "sides": [1]}, "sides: a list is not a list of 2"),
        ([], "a list is not an object"),
    ],
)
def test_another_form_is_named_with_its_place(document: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(json.dumps(document).encode(), FORM)
    assert words in str(caught.value)


def test_what_has_the_form_is_given_back() -> None:
    document = {"shards": [{"file": "x", "rows": 9, "kind": "a", "more": {}}], "sides": [0, 1]}
    assert parse(json.dumps(document).encode(), FORM) == document


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 200_000, b'{"a":' * 200_000])
def test_what_is_no_json_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse(data, table(text))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"split_rows": {"../../x": 5}, "split_shards": {"../../x": 1}}, "not one of TRAIN"),
        ({"split_shards": {"TRAIN": 10**12, "TEST": 1}}, "not a whole number"),
        ({"split_shards": {"TRAIN": 4, "TEST": 1}}, "TRAIN has more shards than rows"),
        ({"split_shards": {"TRAIN": 1}}, "other splits"),
        ({"rows": 6}, "6 is not the sum"),
        ({"options": {"verify": "x", "max_pixels": 9}}, "verify: 'x' is not one of"),
        ({"fields": "abc"}, "fields: 'abc' is not a list"),
        ({"fields": to_json(fields_of(Schema(age=Number())))[:0]}, "no column makes a feature"),
        ({"source_rows": 4}, "source_rows is less than rows"),
        ({"version": 3}, "it is of version 3; this is 2"),
    ],
)
def test_a_plan_that_leads_astray_is_not_followed(changes: dict[str, Any], words: str) -> None:
    assert plan_form(PLAN) is None
    with pytest.raises(ValueError, match=words):
        Plan.from_json(json.dumps({**PLAN, **changes}).encode())


def test_a_done_record_counts_in_whole_numbers() -> None:
    names = ("rows", "records", "suspects", "oriented", "input_bytes", "bytes", "crc32c")
    sound = {"plan": "p", "shard": "s", "reasons": {}, "formats": {}, **dict.fromkeys(names, 1)}
    sound |= {"shapes": [], "sides": [], "retries": 0, "further": {}}
    sound |= {"beside": dict.fromkeys(("index", "rejects", "suspects"), 0)}
    assert DONE(sound) is None
    for name in names:
        assert DONE({**sound, name: -1}), name
        assert DONE({**sound, name: "1"}), name
