"""Attempts at a shard that overlap, and the commit's look at what stands: whose files count.

On a loopback bucket, which honours preconditions as the real one does; on the local disk by sizes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import pandas as pd
import pytest
from gcs.control import Gcs
from support import (
    CSV,
    PHOTOS,
    SAMPLES,
    error_of,
    examples,
    public_files,
    shorten_pauses,
    start,
    wait_for,
)

import tfrecorder
from tfrecorder import OutputError, storage
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.output.staging import read_plan
from tfrecorder.plan.plan import Plan
from tfrecorder.storage import gcs as gcs_store
from tfrecorder.writing import commit as commit_module
from tfrecorder.writing.attempt import Attempt, settled
from tfrecorder.writing.shards import Pool, write_shard

pytest_plugins = ["gcs.fixtures"]

SHARDS = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}  # those of the fixture `dataset`
SOURCE = "gs://bkt/photos.csv"
OUT = "gs://bkt/sets/out"
SHARD = "train-00001-of-00003.tfrecord"
DONE = "_tfrecorder/done/train-00001-of-00003.json"
INDEX = f"_tfrecorder/index/{SHARD}.idx"
COMMIT = "sets/out/dataset_info.json"
CONVERT = f"import tfrecorder\ntfrecorder.convert({SOURCE!r}, {OUT!r}, num_shards={SHARDS})"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further attempts come at once; how many there are stays as it is."""
    shorten_pauses(monkeypatch)


@pytest.fixture
def photos(gcs: Gcs) -> Gcs:
    """A server that holds the bundled photographs with their CSV."""
    gcs.put(SOURCE, CSV.read_bytes())
    gcs.put_folder("gs://bkt/photos", SAMPLES / "photos")
    return gcs


def convert() -> tfrecorder.ConversionResult:
    return tfrecorder.convert(SOURCE, OUT, num_shards=SHARDS)


# ------------------------------------------------------------------- the commit looks once more


def at_the_commit(photos: Gcs, harm: Callable[[], None]) -> str:
    """The words of a conversion whose output is harmed when its shards are done."""
    photos.inject("stall", seconds=1.5, operation="upload", object="*/features.json", times=1)
    with ThreadPoolExecutor(1) as pool:
        words = pool.submit(error_of, OutputError, SOURCE, OUT, num_shards=SHARDS)
        wait_for(lambda: photos.count("upload", "*/features.json", "under way"))
        harm()
        return words.result()


HARMS: dict[str, tuple[Callable[[Gcs], None], str]] = {
    "other bytes": (
        lambda gcs: gcs.put(f"{OUT}/{SHARD}", gcs.get(f"{OUT}/{SHARD}")[:-1] + b"x"),
        f"{SHARD} has the CRC32C ",
    ),
    "shorter": (lambda gcs: gcs.put(f"{OUT}/{SHARD}", b"short"), f"{SHARD} has 5 bytes, but "),
    "gone": (lambda gcs: storage.remove(OUT, SHARD), f"{SHARD} is missing"),
    "no index": (lambda gcs: storage.remove(OUT, INDEX), f"{INDEX} is missing"),
    "no done-record": (lambda gcs: storage.remove(OUT, DONE), f"{DONE} differs from what was wr"),
    "a claim": (lambda gcs: gcs.put(f"{OUT}/{DONE}", b'{"claimed": "x"}'), f"{DONE} differs from"),
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
def test_what_is_replaced_behind_the_commit_is_not_committed(
    photos: Gcs, dataset: Path, harm: str
) -> None:
    act, expected = HARMS[harm]
    words = at_the_commit(photos, lambda: act(photos))
    assert words.startswith(f"{OUT}: {expected}"), words
    assert "run the same conversion again" in words
    assert "\n" not in words
    assert COMMIT not in photos.names(OUT)
    convert()
    assert photos.files(OUT) == public_files(dataset)
    assert tfrecorder.verify(OUT).ok


@pytest.mark.slow
def test_of_several_shards_the_first_is_named_and_the_others_counted(photos: Gcs) -> None:
    def harm() -> None:
        for number in range(3):
            photos.put(f"{OUT}/train-0000{number}-of-00003.tfrecord", b"")

    words = at_the_commit(photos, harm)
    assert "train-00000-of-00003.tfrecord has 0 bytes" in words
    assert "and 2 more shards are like it" in words


@pytest.mark.parametrize("harm", ["cut", "gone", "no index"])
def test_on_a_disk_too(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, harm: str
) -> None:
    out = tmp_path / "out"
    features = commit_module.features_json

    def harmed(*args: object) -> bytes:
        monkeypatch.setattr(commit_module, "features_json", features)
        if harm == "cut":
            os.truncate(out / SHARD, 100)
        else:
            (out / (SHARD if harm == "gone" else INDEX)).unlink()
        return features(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(commit_module, "features_json", harmed)
    words = error_of(OutputError, CSV, str(out), num_shards=SHARDS)
    expected = {"cut": f"{SHARD} has 100 bytes", "gone": f"{SHARD} is missing", "no index": INDEX}
    assert expected[harm] in words
    assert not (out / "dataset_info.json").exists()
    tfrecorder.convert(CSV, out, num_shards=SHARDS)
    assert public_files(out) == public_files(dataset)
    assert tfrecorder.verify(out).ok


@pytest.mark.slow
def test_the_look_is_a_request_for_a_thousand_files(photos: Gcs) -> None:
    photos.inject("stall", seconds=1, operation="upload", object="*/features.json", times=1)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(convert)
        wait_for(lambda: photos.count("upload", "*/features.json", "under way"))
        photos.forget_requests()
        result.result()
    for folder in ("", "_tfrecorder/index/", "_tfrecorder/done/"):
        assert photos.count("list", f"bkt/sets/out/{folder}") == 1
    assert photos.count("metadata", "*.tfrecord") == 0


# --------------------------------------------------------- a worker that was given up, and goes on


def change_images(photos: Gcs, dataset: Path) -> None:
    """Give the images of one shard other bytes, behind their ends."""
    for record in examples(dataset / SHARD):
        name = record["image/filename"][0].decode()
        photos.put(f"gs://bkt/{name}", (SAMPLES / name).read_bytes() + b"changed")


@pytest.mark.slow
def test_a_late_upload_after_the_commit_changes_nothing(photos: Gcs, dataset: Path) -> None:
    change_images(photos, dataset)
    photos.inject("stall", seconds=8, operation="upload", object=f"*{SHARD}", times=1)
    late = start(CONVERT)
    wait_for(lambda: photos.count("upload", f"*{SHARD}", "under way"))
    photos.put_folder("gs://bkt/photos", SAMPLES / "photos")
    convert()
    before = {name: photos.get(f"gs://bkt/{name}") for name in photos.names(OUT)}
    assert photos.count("upload", f"*{SHARD}", "under way") == 1, "it is not late at all"
    _, words = late.communicate(timeout=60)
    assert late.returncode == 0, words
    assert photos.count("upload", f"*{SHARD}", "412") == 1
    assert {name: photos.get(f"gs://bkt/{name}") for name in photos.names(OUT)} == before
    assert photos.files(OUT) == public_files(dataset)
    assert tfrecorder.verify(OUT).ok


@pytest.mark.parametrize("what", [SHARD, INDEX, DONE])
def test_an_answer_that_is_lost_is_no_other_attempt(photos: Gcs, dataset: Path, what: str) -> None:
    photos.inject("reset", operation="upload", object=f"*/{what}", after=True, times=1)
    convert()
    assert photos.files(OUT) == public_files(dataset)
    assert photos.count("upload", f"*/{what}") == 2, "the second finds the same bytes"
    assert not photos.count("upload", f"*/{what}", "200")
    assert tfrecorder.verify(OUT).ok


@pytest.mark.slow
def test_a_shard_of_a_conversion_that_ended_is_not_uploaded_over_itself(
    photos: Gcs, dataset: Path
) -> None:
    convert()
    before = photos.count("upload", f"*/{SHARD}", "200")
    for name in ("dataset_info.json", DONE):
        storage.remove(OUT, name)
    convert()
    assert photos.count("upload", f"*/{SHARD}", "200") == before
    assert photos.count("upload", f"*/{DONE}", "200") == 2
    assert photos.files(OUT) == public_files(dataset)


@pytest.mark.slow
def test_a_large_shard_goes_up_in_pieces_under_a_claim(gcs: Gcs, tmp_path: Path) -> None:
    """With room for a piece of 16 MiB: the first answer says whether another object stands."""
    image = tmp_path / "large.jpg"
    image.write_bytes(PHOTOS[0].read_bytes() + bytes(gcs_store.PIECE))
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [str(image)], "label": "a"})
    shard = f"{OUT}/train-00000-of-00001.tfrecord"
    options = {"num_shards": 1, "verify": "header"}
    tfrecorder.convert(frame, OUT, **options)
    data = gcs.get(shard)
    storage.remove(OUT, "dataset_info.json")
    storage.remove(OUT, "_tfrecorder/done")
    gcs.put(shard, b"what another attempt left")
    tfrecorder.convert(frame, OUT, **options)
    assert gcs.get(shard) == data
    assert gcs.count("start", "*.tfrecord", "412") == 1
    assert tfrecorder.verify(OUT).ok


# ------------------------------------------------------------- attempts at once, in any order


@dataclasses.dataclass(frozen=True)
class Race:
    """A staged plan of one shard, and folders with other bytes of the same images."""

    gcs: Gcs
    plan: Plan
    folders: tuple[Path, ...]
    pool: Pool

    def files(self) -> dict[str, bytes]:
        """What belongs to the shard, and stands."""
        shard = self.plan.shards[0]
        names = (shard.file, shard.index_file, shard.rejects, shard.suspects, shard.done)
        found = self.gcs.names(OUT)
        return {n: self.gcs.get(f"{OUT}/{n}") for n in names if f"sets/out/{n}" in found}

    def attempt(self, folder: Path) -> tuple[DoneRecord, dict[str, bytes]]:
        """An attempt, and what stands at its end."""
        plan = dataclasses.replace(self.plan, base=str(folder))

        def write(attempt: Attempt) -> DoneRecord:
            return write_shard(plan, 0, OUT, self.pool, attempt=attempt)

        done = settled(OUT, plan.shards[0], plan.digest, write)
        return done, self.files()

    def run(self, folders: Sequence[Path], left: Mapping[str, bytes], seed: int) -> None:
        """Attempts at once, in a directory with what earlier ones left, slowed by a seed."""
        for name in self.files():
            storage.remove(OUT, name)
        for name, data in left.items():
            self.gcs.put(f"{OUT}/{name}", data)
        for number, seconds in enumerate((0.005, 0.02, 0.06)):
            self.gcs.inject("stall", seconds=seconds, probability=0.2, seed=seed * 3 + number)
        with ThreadPoolExecutor(len(folders)) as pool:
            ended = list(pool.map(self.attempt, folders))
        self.gcs.mend()
        stands = self.files()
        for done, files in ended:
            assert files == stands, "what stood when an attempt was done was changed later"
            assert done == ended[0][0], "two attempts wrote the shard"
        file = self.plan.shards[0].file
        assert google_crc32c.value(stands[file]) == ended[0][0].crc32c


@pytest.fixture
def race(gcs: Gcs, tmp_path: Path) -> Iterator[Race]:
    """Three folders: the same images, with other bytes behind their end."""
    folders = tuple(tmp_path / name for name in "abc")
    for number, folder in enumerate(folders):
        folder.mkdir()
        for path in PHOTOS[:3]:
            (folder / path.name).write_bytes(path.read_bytes() + bytes([number] * (number + 1)))
    table = pd.DataFrame({"image_uri": [path.name for path in PHOTOS[:3]], "label": "a"})
    table.assign(split="TRAIN").to_csv(folders[0] / "images.csv", index=False)
    tfrecorder.convert(folders[0] / "images.csv", OUT, num_shards=1)
    storage.remove(OUT, "dataset_info.json")
    plan = read_plan(OUT)
    assert plan is not None
    with ThreadPoolExecutor(2) as executor:
        yield Race(gcs, plan, folders, Pool(executor, 2))


@pytest.mark.slow
def test_of_attempts_at_once_one_counts_and_the_others_take_it_for_theirs(race: Race) -> None:
    first, second, third = race.folders
    shard = race.plan.shards[0]
    whole = race.files()
    undone = {name: data for name, data in whole.items() if name != shard.done}
    states = {
        "nothing": {},
        "a shard": {shard.file: b"other bytes"},
        "all but the done-record": undone,
        "a claim": {shard.done: b'{"claimed": "x"}', shard.file: b"other bytes"},
        "a done-record of another shard": {**whole, shard.file: b"other bytes"},
    }
    rounds = int(os.environ.get("TFRECORDER_RACES", "2"))
    for number in range(rounds):
        for left in states.values():
            for folders in ((first, first), (first, second), (first, second, third)):
                race.run(folders, left, number)
