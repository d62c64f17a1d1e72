"""Several texts an image: kept as lists, of which a batch gives one by seed, epoch and record."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import photo_frame

import tfrecorder
from tfrecorder.errors import OptionError
from tfrecorder.schema import Image, Number, Schema, Split, Text

SCHEMA = Schema(split=Split(), image_uri=Image(), captions=Text(shape=(None,)))
OPTIONS: dict[str, Any] = {"inputs": ["image_uri", "captions"], "image_size": 8}


@pytest.fixture(scope="module")
def captioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("captions") / "out"
    frame = photo_frame(12)[["split", "image_uri"]]
    frame["captions"] = [[f"{row} {n}" for n in range(row % 4)] for row in range(12)]
    tfrecorder.convert(frame, out, schema=SCHEMA, num_shards=2)
    return out


def captions(out: Path, **options: Any) -> list[bytes]:
    chosen = {**OPTIONS, "batch_size": 5, "choose": "random", "seed": 3, **options}
    return [
        text for batch in tfrecorder.batches(out, "TRAIN", **chosen) for text in batch["captions"]
    ]


@pytest.mark.slow
def test_each_record_gives_one_of_its_captions_by_seed_and_epoch(captioned: Path) -> None:
    lists = {tuple(texts) for texts in tfrecorder.to_frame(captioned).captions}
    first = captions(captioned)
    for text in filter(None, first):
        assert sum(text.decode() in texts for texts in lists) == 1
    assert first.count(b"") == 3  # images without a caption
    assert captions(captioned) == first
    assert captions(captioned, seed=4) != first
    # In any order, batch and share, a record gives the same one.
    assert sorted(captions(captioned, shuffle=False, batch_size=1)) == sorted(first)
    halves = [captions(captioned, shard=(part, 2), drop_remainder=False) for part in range(2)]
    assert sorted(halves[0] + halves[1]) == sorted(first)
    batches = tfrecorder.batches(
        captioned, "TRAIN", batch_size=12, choose="random", seed=3, **OPTIONS
    )
    seen = Counter(text for _ in range(60) for batch in batches for text in batch["captions"])
    of_three = [count for text, count in seen.items() if text.startswith((b"3 ", b"7 ", b"11 "))]
    assert len(of_three) == 9
    assert 8 <= min(of_three) <= max(of_three) <= 36  # 20 are expected


def test_a_map_gets_the_chosen_caption_or_all(captioned: Path) -> None:
    def length(element: Any) -> Any:
        return np.int64(len(element["captions"]))

    options = {**OPTIONS, "batch_size": 12, "map_fn": length, "shuffle": False}
    (lengths,) = tfrecorder.batches(captioned, "TRAIN", choose="random", **options)
    assert set(lengths.tolist()) <= {0, 3, 4}
    (counts,) = tfrecorder.batches(captioned, "TRAIN", **options)
    assert counts.tolist() == [len(texts) for texts in tfrecorder.to_frame(captioned).captions]
    with pytest.raises(OptionError, match="`choose='random'` for texts"):
        captions(captioned, choose=None)
    with pytest.raises(OptionError, match="holds lists of texts; leave it out"):
        captions(captioned, inputs=["image_uri"])
    with pytest.raises(OptionError, match="give one of 'random', None"):
        captions(captioned, choose="first")


@pytest.mark.slow
def test_lists_of_numbers_are_not_chosen_from() -> None:
    frame = photo_frame(4)[["split", "image_uri"]]
    frame["captions"], frame["x"] = [["a", "b"]] * 4, [[1.0], [], [2.0], []]
    schema = Schema({**SCHEMA.columns, "x": Number(shape=(None,))})
    tfrecorder.convert(frame, "out", schema=schema)
    with pytest.raises(OptionError, match="lists of different lengths"):
        captions(Path("out"), inputs=["captions", "x"])


@pytest.mark.slow
def test_load_gives_all_captions_ragged(captioned: Path) -> None:
    (batch,) = tfrecorder.load(captioned, "TRAIN", batch_size=12, shuffle=False, **OPTIONS)
    texts = [[text.decode() for text in row] for row in batch["captions"].to_list()]
    assert texts == [list(row) for row in tfrecorder.to_frame(captioned).captions]
