"""Attempts at a shard that overlap, and the commit's look at what stands: whose files count.

On a loopback bucket, which honours preconditions as the real one does; on the local disk by sizes.

The inner law: whoever writes a shard or commits may be replaced, a worker of Beam too.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apache_beam as beam
import google_crc32c
import pandas as pd
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from helpers.public_types import ConversionResult
from services.gcs.control import Gcs
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
from tfrecorder import storage
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.plan import Plan
from tfrecorder.output import staging
from tfrecorder.output.staging import StagedPlan, read_plan
from tfrecorder.output.status import ShardProgress
from tfrecorder.storage import gcs as gcs_store
from tfrecorder.writing import commit as commit_module, pipeline
from tfrecorder.writing.attempt import settled
from tfrecorder.writing.shards import Pool, ShardWriter
from tfrecorder.writing.worker import Task

pytest_plugins = ["services.gcs.fixtures"]


SHARDS = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}  # those of the fixture `dataset`
SOURCE = "gs://bkt/photos.csv"
OUT = "gs://bkt/sets/out"
SHARD = "train-00001.tfrecord"
DONE = "_tfrecorder/done/train-00001.json"
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


def convert() -> ConversionResult:
    return tfrecorder.convert(SOURCE, OUT, num_shards=SHARDS)


# ------------------------------------------------------------------- the commit looks once more


@pytest.fixture
def at_the_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Calls a function when all shards are done, before the commit looks at them."""

    def wait(act: Callable[[], None]) -> None:
        plain = commit_module.lists_of

        def lists_of(*args: Any) -> dict[str, bytes]:
            monkeypatch.setattr(commit_module, "lists_of", plain)
            act()
            return plain(*args)

        monkeypatch.setattr(commit_module, "lists_of", lists_of)

    return wait


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
    photos: Gcs, dataset: Path, at_the_commit: Callable[..., None], harm: str
) -> None:
    act, expected = HARMS[harm]
    at_the_commit(lambda: act(photos))
    words = error_of(OutputError, SOURCE, OUT, num_shards=SHARDS)
    assert words.startswith(f"{OUT}: {expected}"), words
    assert "run the same conversion again" in words
    assert "\n" not in words
    assert COMMIT not in photos.names(OUT)
    convert()
    assert photos.files(OUT) == public_files(dataset)
    assert tfrecorder.verify(OUT).ok


@pytest.mark.slow
def test_of_several_shards_the_first_is_named_and_the_others_counted(
    photos: Gcs, at_the_commit: Callable[..., None]
) -> None:
    def harm() -> None:
        for number in range(3):
            photos.put(f"{OUT}/train-0000{number}.tfrecord", b"")

    at_the_commit(harm)
    words = error_of(OutputError, SOURCE, OUT, num_shards=SHARDS)
    assert "train-00000.tfrecord has 0 bytes" in words
    assert "and 2 more shards are like it" in words


@pytest.mark.parametrize("harm", ["cut", "gone", "no index"])
def test_on_a_disk_too(
    dataset: Path, at_the_commit: Callable[..., None], tmp_path: Path, harm: str
) -> None:
    out = tmp_path / "out"

    def act() -> None:
        if harm == "cut":
            os.truncate(out / SHARD, 100)
        else:
            (out / (SHARD if harm == "gone" else INDEX)).unlink()

    at_the_commit(act)
    words = error_of(OutputError, CSV, str(out), num_shards=SHARDS)
    expected = {"cut": f"{SHARD} has 100 bytes", "gone": f"{SHARD} is missing", "no index": INDEX}
    assert expected[harm] in words
    assert not (out / "dataset_info.json").exists()
    tfrecorder.convert(CSV, out, num_shards=SHARDS)
    assert public_files(out) == public_files(dataset)
    assert tfrecorder.verify(out).ok


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, 64])
def test_many_shards_are_listed_and_few_are_asked_for(
    photos: Gcs, at_the_commit: Callable[..., None], monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(staging, "FEW_SHARDS", few)
    at_the_commit(photos.forget_requests)
    convert()
    folders = ("", "_tfrecorder/index/", "_tfrecorder/tables/")
    listed = [photos.count("list", f"bkt/sets/out/{folder}") for folder in folders]
    asked = photos.count("metadata", "*.tfrecord"), photos.count("metadata", "*.parquet")
    assert (listed, asked) == (([1, 1, 1], (0, 0)) if few == 0 else ([0, 0, 0], (12, 6)))


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


@pytest.mark.slow
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
    tfrecorder.parts.stage(SOURCE, OUT, num_shards=SHARDS)
    tfrecorder.parts.work(OUT)
    before = photos.count("upload", f"*/{SHARD}", "200")
    storage.remove(OUT, DONE)
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
    shard = f"{OUT}/train-00000.tfrecord"
    options = {"num_shards": 1, "check": "header"}
    tfrecorder.convert(frame, f"{OUT}-2", **options)
    data = gcs.get(shard.replace(OUT, f"{OUT}-2"))
    tfrecorder.parts.stage(frame, OUT, **options)
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
        shard = self.plan.layout.shards[0]
        names = (shard.file, *shard.beside.values(), shard.done)
        found = self.gcs.names(OUT)
        return {n: self.gcs.get(f"{OUT}/{n}") for n in names if f"sets/out/{n}" in found}

    def attempt(self, folder: Path) -> tuple[DoneRecord, dict[str, bytes]]:
        """An attempt, and what stands at its end."""
        plan = self.plan.with_rows(base=str(folder))
        shard = plan.layout.shards[0]
        writer = ShardWriter(plan, 0, self.pool, ShardProgress(OUT, shard, is_shown=False))
        done = settled(OUT, shard, plan.digest, writer.write)
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
        file = self.plan.layout.shards[0].file
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
    tfrecorder.parts.stage(folders[0] / "images.csv", OUT, num_shards=1)
    plan = read_plan(OUT)
    assert plan is not None
    with ThreadPoolExecutor(2) as executor:
        yield Race(gcs, plan, folders, Pool(executor, 2))


@pytest.mark.slow
def test_of_attempts_at_once_one_counts_and_the_others_take_it_for_theirs(race: Race) -> None:
    first, second, third = race.folders
    shard = race.plan.layout.shards[0]
    _, whole = race.attempt(first)
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


# --------------------------------------------------------------------- the pipeline as Beam runs it


@pytest.fixture
def staged(frame, tmp_path):
    """A staged plan, a missing image among its rows."""
    out = tmp_path / "out"
    frame.loc[0, "image_uri"] = "nowhere.jpg"
    tfrecorder.parts.stage(frame, out)
    return out


def run_pipeline(out, plan, **options):
    pipe = beam.Pipeline(FnApiRunner())
    task = Task.of(plan, str(out), threads=1)
    pipeline.build(pipe, len(plan.layout.shards), task, 0.1, **options)
    return pipe.run()


def test_counters_tell_rows_records_rejects_and_bytes(staged):
    plan = read_plan(str(staged))
    counters = run_pipeline(staged, plan).metrics().query()["counters"]
    found = {counter.key.metric.name: counter.committed for counter in counters}
    shards = sum(path.stat().st_size for path in staged.glob("*.tfrecord"))
    assert found["rows"] == plan.rows.count == found["records"] + found["rejects"]
    assert found["rejects"] == 1
    assert found["bytes"] == shards > found["input_bytes"] > 0


@pytest.mark.parametrize("together", [False, True])
def test_each_shard_goes_to_one_worker(staged, together):
    plan = read_plan(str(staged))
    counters = run_pipeline(staged, plan, together=together).metrics().query()["counters"]
    found = {counter.key.metric.name: counter.committed for counter in counters}
    assert found["rows"] == plan.rows.count
    assert (staged / layout.COMMIT).exists()


def test_a_worker_of_an_older_plan_stops(staged):
    plan = read_plan(str(staged))
    given = {"threads": 1, "progress": False}
    writer = pipeline.WriteShards(Task(str(staged), plan.digest, **given))
    writer.setup()
    newer = plan.with_rows(fingerprint="of other rows")
    storage.publish_bytes(str(staged), layout.PLAN, newer.to_json())
    with pytest.raises(OutputError, match="planned again"):
        list(writer.process((0,)))


def test_a_worker_goes_on_where_the_same_plan_was_staged_once_more(staged):
    """As by a launch that found the images in another folder."""
    plan = read_plan(str(staged))
    given = {"threads": 1, "progress": False}
    writer = pipeline.WriteShards(Task(str(staged), plan.digest, **given))
    writer.setup()
    moved = plan.with_rows(base=f"{plan.rows.base}/elsewhere")
    storage.publish_bytes(str(staged), layout.PLAN, moved.to_json())
    [written] = writer.process((0,))
    assert [done.shard for done in written] == [plan.layout.shards[0].name]


@pytest.mark.slow
def test_the_plan_is_read_as_often_for_many_shards_as_for_few(gcs, frame):
    """Of 100,000 classes each reading takes a tenth of a second."""
    reads = {}
    for shards in (2, 26):
        out = f"gs://bkt/sets/{shards}"
        gcs.forget_requests()
        frame.tensorflow.to_tfrecord(out, num_shards=shards, num_workers=2)
        assert gcs.count(object="*/done/*.json") > shards
        reads[shards] = gcs.count("download", "*/plan.json")
    assert 0 < reads[26] == reads[2]


@pytest.mark.slow
@pytest.mark.parametrize("out", ["out", "memory://staged/out", "gs://bkt/out"])
def test_a_staged_plan_is_read_again_only_where_its_file_was_replaced(out, gcs, frame):
    tfrecorder.parts.stage(frame, out)
    plan = read_plan(out)
    staged = StagedPlan(out, plan.digest)
    first = staged.read()
    assert first == plan
    assert staged.read() is first
    storage.publish_bytes(out, layout.PLAN, plan.to_json())  # as many bytes as before
    assert staged.read() == first
    assert staged.read() is not first
    storage.remove(out, layout.PLAN)
    with pytest.raises(OutputError, match="the staged plan is gone"):
        staged.read()


@pytest.mark.slow
def test_a_launch_never_works_by_the_plan_of_another(staged):
    """Two conversions that begin at once in a bucket, where nothing is locked."""
    plan = read_plan(str(staged))
    other = plan.with_rows(fingerprint="of other rows")
    storage.publish_bytes(str(staged), layout.PLAN, other.to_json())
    with pytest.raises(OutputError, match="by another conversion, so this one stops"):
        run_pipeline(staged, plan)
    with pytest.raises(OutputError, match="by another conversion, so this one stops"):
        pipeline.Commit(Task(str(staged), plan.digest), 0.1).process([])
    assert not (staged / layout.COMMIT).exists()


@pytest.mark.slow
def test_rows_that_another_launch_staged_are_not_taken_for_its_own(staged, frame, tmp_path):
    tfrecorder.parts.stage(frame, tmp_path / "other", seed=7)
    rows = (tmp_path / "other" / layout.PLAN_ROWS).read_bytes()
    (staged / layout.PLAN_ROWS).write_bytes(rows)
    with pytest.raises(OutputError, match="the rows of another conversion"):
        run_pipeline(staged, read_plan(str(staged)))
    assert not (staged / layout.COMMIT).exists()
