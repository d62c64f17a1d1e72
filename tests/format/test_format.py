"""The inner law of format/: what stands in a file, without a dataset around it.

TFRecord framing is byte for byte TensorFlow's, and no damage goes unnoticed.  A JSON document of
ours is taken only with its own checksum.
"""

import io
import pickle
import struct

import google_crc32c
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tfrecorder.format.documents import seal, unseal
from tfrecorder.format.example import encode_parts
from tfrecorder.format.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    CorruptRecordError,
    frame,
    masked_crc,
    read_records,
)

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
    assert list(read_records(io.BytesIO(data))) == RECORDS


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
    assert [next(records), next(records)] == [b"first", b""]
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


def test_an_image_is_passed_on_without_a_copy():
    image = bytes(100_000)
    assert any(part is image for part in encode_parts({"image/encoded": image, "label": 1}))


# ------------------------------------------------------------------------------------ documents


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b"[" * 200_000, b'{"a":' * 200_000])
def test_what_is_no_document_is_one_kind_of_error(data):
    with pytest.raises(ValueError):
        unseal(data)


def test_a_document_is_given_back_unless_a_byte_has_changed():
    document = {"a": 1, "b": ["\ud800", {"crc32c": 2}]}
    data = seal(document)
    assert unseal(data) == document
    for place in range(len(data)):
        with pytest.raises(ValueError):
            unseal(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
