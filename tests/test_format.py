"""The inner law of format/: what stands in a file, without a dataset around it.

TFRecord framing is byte for byte TensorFlow's, no damage goes unnoticed, and checksums can be
joined.  JSON that anybody may have written is taken only in the form wanted, and says where it is
not.
"""

import io
import json
import pickle
import struct
from typing import Any

import google_crc32c
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecorder import Image, Number, Schema
from tfrecorder.format.crc32c import combine
from tfrecorder.format.example import encode_parts
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
from tfrecorder.format.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    CorruptRecordError,
    frame,
    masked_crc,
    read_records,
)
from tfrecorder.plan.plan import Plan
from tfrecorder.schema.fields import fields_of, to_json

RECORDS = [b"first", b"", b"the third"]
OFFSETS = [0, 21, 37]
FILE = b"".join(part for record in RECORDS for part in frame([record]))


def write_with_tensorflow(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_the_bytes_are_those_of_tensorflows_writer(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    ours = b"".join(part for record in records for part in frame([record]))
    assert ours == write_with_tensorflow(path, records)


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_data_in_parts_is_framed_as_if_it_were_whole(parts):
    assert b"".join(frame(parts)) == b"".join(frame([b"".join(parts)]))


def test_tensorflow_reads_what_we_write(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(FILE)
    dataset = tf.data.TFRecordDataset(str(tmp_path / "a.tfrecord"))
    assert list(dataset.as_numpy_iterator()) == RECORDS


def test_we_read_what_tensorflow_writes(tmp_path):
    data = write_with_tensorflow(tmp_path / "a.tfrecord", RECORDS)
    assert list(read_records(io.BytesIO(data))) == list(zip(OFFSETS, RECORDS, strict=True))


def test_an_empty_file_has_no_records():
    assert list(read_records(io.BytesIO(b""))) == []


def test_every_flipped_bit_is_found_at_its_record():
    for bit in range(8 * len(FILE)):
        damaged = bytearray(FILE)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecordError) as found:
            list(read_records(io.BytesIO(damaged)))
        assert found.value.offset == max(offset for offset in OFFSETS if offset <= bit // 8)


def test_a_file_that_was_cut_is_found_at_its_record():
    for end in set(range(len(FILE))) - {0, *OFFSETS}:
        with pytest.raises(CorruptRecordError, match="the file ends inside") as found:
            list(read_records(io.BytesIO(FILE[:end])))
        assert found.value.offset == max(offset for offset in OFFSETS if offset < end)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0, "checksum of the length"),
        (8, "checksum of the length"),
        (HEADER_BYTES, "checksum of the data"),
        (HEADER_BYTES + 5 + FOOTER_BYTES - 1, "checksum of the data"),
    ],
)
def test_the_error_says_what_is_wrong_and_where(at, words):
    damaged = bytearray(FILE)
    damaged[at] ^= 1
    with pytest.raises(CorruptRecordError, match=f"record at byte 0: .*{words}"):
        list(read_records(io.BytesIO(damaged)))


def test_the_records_before_the_damage_are_read():
    damaged = bytearray(FILE)
    damaged[-1] ^= 1
    records = read_records(io.BytesIO(damaged))
    assert [next(records), next(records)] == [(0, b"first"), (21, b"")]
    with pytest.raises(CorruptRecordError):
        next(records)


@pytest.mark.parametrize("size", [2**31, 2**40, 2**64 - 1])
def test_a_length_beyond_any_example_is_refused_before_memory_is_asked_for(size):
    length = struct.pack("<Q", size)
    header = length + struct.pack("<I", masked_crc(google_crc32c.value(length)))
    with pytest.raises(CorruptRecordError, match=f"{size:,} bytes"):
        list(read_records(io.BytesIO(FILE + header + bytes(100))))


def test_a_file_of_zeroes_is_refused():
    with pytest.raises(CorruptRecordError, match="record at byte 0"):
        list(read_records(io.BytesIO(bytes(1000))))


def test_the_error_keeps_its_offset_across_processes():
    error = pickle.loads(pickle.dumps(CorruptRecordError(37, "the checksum of the data is wrong")))
    assert (error.offset, str(error)) == (
        37,
        "record at byte 37: the checksum of the data is wrong",
    )


@given(st.binary(), st.binary())
def test_joined_data_have_the_combined_checksum(first, second):
    joined = combine(google_crc32c.value(first), google_crc32c.value(second), len(second))
    assert joined == google_crc32c.value(first + second)


@given(st.binary(max_size=50), st.integers(0, 3_000_000))
def test_sizes_beyond_a_megabyte(first, size):
    second = bytes(size)
    joined = combine(google_crc32c.value(first), google_crc32c.value(second), size)
    assert joined == google_crc32c.value(first + second)


def test_an_image_is_passed_on_without_a_copy():
    image = bytes(100_000)
    assert any(part is image for part in encode_parts({"image/encoded": image, "label": 1}))


# ------------------------------------------------------------------------------------ forms of JSON

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
