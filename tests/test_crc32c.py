"""Checksums of joined data."""

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from tfrecorder.format.crc32c import combine


@given(st.binary(), st.binary())
def test_joined_data_have_the_combined_checksum(first, second):
    joined = combine(google_crc32c.value(first), google_crc32c.value(second), len(second))
    assert joined == google_crc32c.value(first + second)


@given(st.binary(max_size=50), st.integers(0, 3_000_000))
def test_sizes_beyond_a_megabyte(first, size):
    second = bytes(size)
    joined = combine(google_crc32c.value(first), google_crc32c.value(second), size)
    assert joined == google_crc32c.value(first + second)
