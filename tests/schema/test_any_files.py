"""Files of any kind: kept byte for byte, bounded, checked by the user's function, read as bytes."""

from __future__ import annotations

import io
import re
import wave
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import PHOTOS, error_of, public_files, records, rejects, schema_text, shards

import tfrecorder
from tfrecorder.errors import OptionError, RunnerError
from tfrecorder.schema import File, Image, Label, Number, Schema, Split


def sound(seed: int) -> bytes:
    """A tenth of a second of noise."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.random.default_rng(seed).integers(0, 255, 1600, np.uint8).tobytes())
    return out.getvalue()


def as_sound(data: bytes) -> None:
    with wave.open(io.BytesIO(data)) as file:
        if len(file.readframes(file.getnframes())) < 2 * file.getnframes():
            raise EOFError("it ends before 'its' last sample")


def schema(**settings: object) -> Schema:
    return Schema(split=Split(), sound_uri=File(**settings), label=Label())  # type: ignore[arg-type]


def sounds(rows: int = 8) -> pd.DataFrame:
    for row in range(rows):
        Path(f"{row}.wav").write_bytes(sound(row))
    names = [f"{row}.wav" for row in range(rows)]
    return pd.DataFrame({"split": "TRAIN", "sound_uri": names, "label": ["a", "b"] * (rows // 2)})


def test_files_are_kept_and_read_byte_for_byte_and_damage_is_a_named_reject() -> None:
    frame = sounds()
    Path("2.wav").write_bytes(sound(2)[:500])
    Path("3.wav").write_bytes(b"")
    Path("4.wav").write_bytes(sound(4) * 2)
    found = tfrecorder.validate(
        frame, check_images=True, schema=schema(max_bytes=3000, validator=as_sound)
    )
    reasons = [
        "invalid: it ends before",
        "empty: the file has no bytes",
        "too_large: 3,288 bytes, more than the 3,000 of `max_bytes`",
    ]
    assert found[found.code == "unusable_image"].message.str.partition(": ")[2].tolist() == reasons
    result = tfrecorder.convert(
        frame, "out", schema=schema(max_bytes=3000, validator=as_sound), max_reject_fraction=0.5
    )
    assert (result.records, sum(result.rejects.values())) == (5, 3)
    listed = rejects("out")
    assert listed.image_uri.tolist() == ["2.wav", "3.wav", "4.wav"]
    assert listed.reason.tolist() == reasons
    kept = {f"{row}.wav": sound(row) for row in (0, 1, 5, 6, 7)}
    made = records("out")
    assert {r["sound/filename"].decode(): r["sound/encoded"] for r in made} == kept
    assert {r["sound/format"] for r in made} == {b"wav"}
    whole = tfrecorder.to_frame("out", images="bytes")
    assert sorted(whole.sound_uri) == sorted(kept.values())
    assert sorted(tfrecorder.to_frame("out").sound_uri) == sorted(kept)
    pairs = [next(iter(tfrecorder.batches("out", "TRAIN", batch_size=5, shuffle=False)))]
    assert [*pairs[0][0]] == whole.sound_uri.tolist()
    assert pairs[0][1].tolist() == [0 if label == "a" else 1 for label in whole.label]
    assert tfrecorder.info("out").columns["sound_uri"].dtype == "string"
    page = tfrecorder.preview("out")
    assert "5.wav" in page.page
    assert "1.6 KiB" in page.page
    assert not page.undecodable
    assert "sound/encoded" not in tfrecorder.inspect("out")
    tfrecorder.export("out", "sounds", "folder")
    placed = [path.read_bytes() for path in Path("sounds").rglob("*.wav")]
    assert sorted(placed) == sorted(kept.values())


@pytest.mark.slow
def test_tensorflow_and_tfds_read_files_as_bytes() -> None:
    import tensorflow_datasets as tfds

    tfrecorder.convert(sounds(), "out", schema=schema(validator=as_sound))
    whole = tfrecorder.to_frame("out", images="bytes")
    (loaded, _), *_ = tfrecorder.load("out", "TRAIN", batch_size=8, shuffle=False)
    assert loaded.numpy().tolist() == whole.sound_uri.tolist()
    built = tfds.builder_from_directory("out").as_dataset(split="train")
    assert sorted(one["sound/encoded"].numpy() for one in built) == sorted(whole.sound_uri)


def test_a_damaged_shard_of_files_is_repaired_from_them() -> None:
    tfrecorder.convert(sounds(), "out", schema=schema(validator=as_sound), num_shards=2)
    before = public_files("out")
    shard = shards("out")[0]
    shard.write_bytes(bytes(len(shard.read_bytes())))
    assert len(tfrecorder.verify("out").faults)
    tfrecorder.repair("out")
    assert public_files("out") == before
    assert not len(tfrecorder.verify("out", sources=True).faults)


@pytest.mark.slow
def test_only_a_function_checks_files_and_a_dataset_has_only_its_name() -> None:
    frame = sounds()
    tfrecorder.convert(frame[:4], "out", schema=schema(validator=as_sound))
    name = f"{__name__}:as_sound"
    words = f"sound_uri=File(validator={name!r}): this is only the name of a function"
    with pytest.raises(OptionError, match=re.escape(words)):
        tfrecorder.append(frame, "out")
    tfrecorder.undo("out")
    tfrecorder.append(frame, "out", schema=schema(validator=as_sound))
    assert tfrecorder.info("out").records == 8
    # What reads no file needs no function.
    tfrecorder.update(frame[:4].assign(label="b"), "out")
    tfrecorder.remove("out", where={"sound_uri": ["5.wav"]})
    tfrecorder.compact("out", "compacted")
    assert set(tfrecorder.to_frame("compacted").label) == {"a", "b"}
    again = tfrecorder.append(frame[4:], "out", schema=schema(validator=as_sound))
    assert (again.records, again.removed) == (0, 1)  # what was removed does not come back
    Path("schema.yaml").write_text(schema_text(schema(validator=as_sound)))
    assert words in error_of(OptionError, frame, "other", schema="schema.yaml")
    with pytest.raises(OptionError, match="cannot reach other processes"):
        tfrecorder.parts.stage(frame, "third", schema=schema(validator=len))


def test_files_stand_beside_images_and_may_come_as_bytes() -> None:
    clouds = [np.full(3, row).tobytes() for row in range(4)]
    frame = pd.DataFrame(
        {
            "split": "TRAIN",
            "image_uri": [str(path) for path in PHOTOS[:4]],
            "cloud": [{"bytes": data, "path": f"{row}.PLY"} for row, data in enumerate(clouds)],
            "x": 0.5,
        }
    )
    both = Schema(split=Split(), image_uri=Image(), cloud=File(), x=Number())
    tfrecorder.convert(frame, "out", schema=both)
    made = sorted(records("out"), key=lambda record: record["image/source_id"])
    assert [record["cloud/encoded"] for record in made] == clouds
    assert {record["cloud/format"] for record in made} == {b"ply"}
    assert {*tfrecorder.to_frame("out")} >= {"image_uri", "cloud", "x"}
    images = next(iter(tfrecorder.batches("out", "TRAIN", batch_size=4, image_size=8)))
    assert images.shape == (4, 8, 8, 3)  # images are the default inputs
    options = {"inputs": ["image_uri", "cloud"], "batch_size": 1, "decode": False}
    pairs = [*tfrecorder.batches("out", "TRAIN", **options)]
    assert sorted(pair["cloud"][0] for pair in pairs) == sorted(clouds)


@pytest.mark.parametrize("size", [0, "2GiB", "large", True])
def test_sizes_that_no_record_holds_are_refused(size: object) -> None:
    with pytest.raises(OptionError, match=r"File\(max_bytes="):
        File(max_bytes=size)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="give a function"):
        File(validator=3)  # type: ignore[arg-type]


def test_a_validator_without_its_package_is_no_fault_of_the_files() -> None:
    def needs_a_package(data: bytes) -> None:
        import no_such_package  # noqa: F401

    error = error_of(RunnerError, sounds(2), schema=schema(validator=needs_a_package))
    assert "the validator of 'sound_uri' cannot run: No module named" in error
