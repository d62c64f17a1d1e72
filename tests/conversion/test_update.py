"""`update` makes a dataset what a table says, and every reader sees it."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow_datasets as tfds
from PIL import Image
from support import copied_photos, given_again, public_files

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError, SourceError


@pytest.fixture
def photos(tmp_path: Path) -> pd.DataFrame:
    """A row for each photograph, in a folder of its own."""
    return copied_photos(tmp_path)


def write(frame: pd.DataFrame, **options: object) -> None:
    tfrecorder.convert(frame, "out", num_shards=4, progress=False, **options)


def rows_of(directory: str = "out") -> dict[str, tuple[str, ...]]:
    """The values of each record by its uri, which every row here has its own of."""
    frame = given_again(directory)
    rows = {row.pop("image_uri"): tuple(row.values()) for row in frame.to_dict("records")}
    assert len(rows) == len(frame)
    return rows


def wanted(frame: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    return {row.pop("image_uri"): tuple(row.values()) for row in frame.to_dict("records")}


def check_all(frame: pd.DataFrame) -> None:
    """Every reader has what the table says."""
    assert rows_of() == wanted(frame)
    assert tfrecorder.verify("out", progress=False).ok
    builder = tfds.builder_from_directory("out")
    names = builder.info.features["image/class/label"]
    seen = {}
    for split in builder.info.splits:
        for record in tfds.as_numpy(builder.as_dataset(split)):
            uri = record["image/filename"].decode()
            seen[uri] = split.upper(), names.int2str(record["image/class/label"])
    assert seen == wanted(frame)


@pytest.mark.slow
def test_an_update_that_changes_nothing_describes_the_whole(photos: pd.DataFrame) -> None:
    write(photos[:30])
    tfrecorder.append(photos[30:], "out", progress=False)
    result = tfrecorder.update(photos, "out", progress=False)
    assert result.was_finished
    assert result.records == len(photos)


def test_labels_are_corrected_and_rows_added_in_one_commit(photos: pd.DataFrame) -> None:
    write(photos[:30])
    before = tfrecorder.to_frame("out", images="bytes")
    shards = {name: os.stat(f"out/{name}").st_ino for name in os.listdir("out")}
    photos.loc[3, "label"], photos.loc[5, "label"] = "dog", "gravel"
    said = tfrecorder.update(photos, "out", dry_run=True, progress=False)
    result = tfrecorder.update(photos, "out", progress=False)
    assert said.changes == result.changes
    assert result.changes.words in str(said)
    assert result.changes.words in str(result)
    assert result.changes.labels == {
        f"{before.label[3]} → dog": 1,
        f"{before.label[5]} → gravel": 1,
    }
    assert (result.changes.corrected, result.changes.added) == (2, len(photos) - 30)
    assert result.class_names[:3] == ("brick", "cat", "coffee")  # which keep their integers
    check_all(photos)
    after = tfrecorder.to_frame("out", images="bytes")
    old = dict(zip(before.index, before.image_uri, strict=True))
    new = dict(zip(after.index, after.image_uri, strict=True))
    assert all(new[row] == data for row, data in old.items())
    linked = {os.stat(f"out/{name}").st_ino for name in os.listdir("out")}
    kept = [n for n, inode in shards.items() if n.endswith(".tfrecord") and inode in linked]
    assert 8 - len(kept) == result.changes.shards <= 2
    again = tfrecorder.update(photos, "out", progress=False)
    assert again.was_finished
    assert again.changes.words == "nothing changes"


@pytest.mark.slow
def test_a_correction_needs_no_source_and_keeps_numbers_positions_and_generations(
    photos: pd.DataFrame,
) -> None:
    write(photos[:30])
    tfrecorder.append(photos[30:40], "out", progress=False)
    batches = tfrecorder.batches("out", "TRAIN", batch_size=4, seed=1, image_size=16)
    read = iter(batches)
    next(read)
    state = batches.state_dict()
    rest = list(read)
    order = list(tfrecorder.to_frame("out").index)
    shutil.rmtree("photos")
    frame = photos[:40].copy()
    frame.loc[7, "label"] = "moss"
    tfrecorder.update(frame, "out", progress=False)
    assert list(tfrecorder.to_frame("out").index) == order
    assert tfrecorder.generations("out") == [2, 1, 0]
    assert len(tfrecorder.to_frame("out", at=0)) == 30
    assert "moss" in set(tfrecorder.to_frame("out", at=0).label)  # with today's labels
    check_all(frame)
    again = tfrecorder.batches("out", "TRAIN", batch_size=4, seed=1, image_size=16)
    again.load_state_dict(state)
    for one, other in zip(rest, again, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.slow
def test_only_what_the_newest_update_replaced_is_kept_for_undo(photos: pd.DataFrame) -> None:
    write(photos)
    for row, label in ((1, "moss"), (2, "sand"), (40, "moss")):
        kept = photos.copy()
        photos.loc[row, "label"] = label
        changes = tfrecorder.update(photos, "out", progress=False).changes
        assert len(list(Path("out/_tfrecorder/before").glob("*.tfrecord"))) == changes.shards == 1
    tfrecorder.undo("out")
    check_all(kept)
    assert not list(Path("out/_tfrecorder/before").iterdir())


@pytest.mark.slow
def test_rows_that_are_gone_are_removed_only_if_asked(photos: pd.DataFrame) -> None:
    write(photos)
    fewer = photos.drop(index=[0, 9, 20])
    result = tfrecorder.update(fewer, "out", progress=False)
    assert result.was_finished
    tfrecorder.update(fewer, "out", missing="remove", progress=False)
    check_all(fewer)
    assert tfrecorder.generations("out") == [1]
    with pytest.raises(DatasetError, match="replaced what was there before"):
        tfrecorder.to_frame("out", at=0)
    # It sets no mark: what is in the table again comes back.
    tfrecorder.update(photos, "out", missing="remove", progress=False)
    check_all(photos)


@pytest.mark.slow
def test_a_row_keeps_its_split_unless_the_table_states_another(photos: pd.DataFrame) -> None:
    write(photos)
    unknown = photos.drop(columns="split")
    assert tfrecorder.update(unknown, "out", progress=False).was_finished
    row = photos.index[photos.split == "TRAIN"][4]
    photos.loc[row, ["split", "label"]] = ["TEST", "moss"]
    result = tfrecorder.update(photos, "out", progress=False)
    assert result.changes.moved == {"TRAIN → TEST": 1}
    check_all(photos)


@pytest.mark.slow
def test_only_rows_that_are_new_are_said_to_be_assigned_a_split(photos: pd.DataFrame) -> None:
    write(photos[:51])
    table = photos.drop(columns="split").assign(label=lambda rows: rows.label.replace("cat", "dog"))
    for rows, words in ((photos[:51].index, ""), (photos.index, "to the 1 of 1 row that had none")):
        options = {"progress": False, "new_classes": "allow"}
        would = tfrecorder.update(table.loc[rows], "out", dry_run=True, **options)
        result = tfrecorder.update(table.loc[rows], "out", **options)
        assert result.changes.added == len(rows) - 51
        for said in (str(would), str(result)):
            assert words in said
            assert ("splits: assigned" in said) == bool(words)


@pytest.mark.slow
def test_whoever_commits_an_update_says_what_it_changed(photos: pd.DataFrame) -> None:
    write(photos[:-2])
    row = photos.index[photos.split == "TRAIN"][4]
    photos.loc[row, "split"], photos.loc[3, "label"] = "TEST", "dog"
    said = tfrecorder.update(photos, "out", dry_run=True, progress=False)
    tfrecorder.update(photos, "out", stage_only=True, progress=False)
    tfrecorder.parts.work("out", progress=False)
    result = tfrecorder.parts.commit("out")
    assert (result.changes, result.warnings) == (said.changes, said.warnings)
    assert (result.changes.moved, result.changes.added) == ({"TRAIN → TEST": 1}, 2)
    values = json.loads(json.dumps(result.as_dict()))
    assert values["changes"]["labels"] == result.changes.labels
    check_all(photos)


@pytest.mark.slow
def test_an_image_that_was_replaced_is_read_again_if_asked(photos: pd.DataFrame) -> None:
    write(photos)
    path = Path(photos.image_uri[2])
    Image.new("RGB", (20, 10), "red").save(path)
    assert tfrecorder.update(photos, "out", progress=False).was_finished
    result = tfrecorder.update(photos, "out", reread=True, progress=False)
    assert result.changes.read_again == 1
    frame = tfrecorder.to_frame("out", images="bytes")
    assert frame.image_uri[2] == path.read_bytes()
    check_all(photos)


@pytest.mark.parametrize("options", [{}, {"image_size": 16}], ids=str)
def test_boxes_and_masks_are_corrected(options: dict[str, int]) -> None:
    """Around the image of the record; where images are resized, from their files."""
    kinds = tfrecorder.schema
    names = ["a.png", "b.png", "c.png"]
    for number, name in enumerate(names):
        Image.new("RGB", (40, 20), (number * 50, 9, 9)).save(name)
    for number in range(6):
        Image.fromarray(np.full((20, 40), number, np.uint8)).save(f"mask{number}.png")
    edges = {"x_min": 0.1, "y_min": 0.1, "x_max": 0.5, "y_max": 0.5}
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": names, "mask_uri": "", "label": "dog"})
    frame = frame.assign(mask_uri=[f"mask{n}.png" for n in range(3)], **edges)
    columns = kinds.Schema(
        split=kinds.Split(), image_uri=kinds.Image(), mask_uri=kinds.Mask(), boxes=kinds.Boxes()
    )
    tfrecorder.convert(frame, "out", schema=columns, progress=False, **options)
    before = tfrecorder.to_frame("out", images="bytes")
    for name in names if not options else ():
        os.remove(name)
    frame.loc[1, "mask_uri"] = "mask5.png"
    frame.loc[2, ["x_max", "label"]] = [0.9, "cat"]
    result = tfrecorder.update(frame, "out", progress=False)
    assert dict(result.changes.columns) == {"mask_uri": 1, "boxes": 1}
    assert tfrecorder.verify("out", progress=False).ok
    after = tfrecorder.to_frame("out", images="bytes").sort_index()
    assert list(after.image_uri) == list(before.sort_index().image_uri)
    assert list(after.x_max.round(3)) == [0.5, 0.5, 0.9]
    assert list(after.label) == ["dog", "dog", "cat"]
    masks = [np.asarray(Image.open(io.BytesIO(mask))).max() for mask in after.mask_uri]
    assert masks == [0, 5, 2]


@pytest.mark.slow
def test_the_frame_of_a_dataset_corrects_it_also_where_images_came_as_bytes(
    photos: pd.DataFrame,
) -> None:
    paths = map(Path, photos.image_uri)
    cells = [{"bytes": path.read_bytes(), "path": f"feed/{path.name}"} for path in paths]
    write(photos.assign(image_uri=cells))
    frame = tfrecorder.to_frame("out")
    frame.iloc[5, frame.columns.get_loc("label")] = "moss"
    result = tfrecorder.update(frame, "out", progress=False)
    assert (result.changes.corrected, result.changes.added) == (1, 0)
    assert tfrecorder.to_frame("out").label.tolist() == frame.label.tolist()
    again = photos.assign(image_uri=cells).drop(index=0)
    result = tfrecorder.update(again, "out", missing="remove", progress=False)
    assert (result.changes.corrected, result.changes.removed) == (1, 1)
    assert tfrecorder.verify("out", progress=False).ok


def test_what_cannot_be_an_update_is_refused(photos: pd.DataFrame) -> None:
    with pytest.raises(DatasetError):
        tfrecorder.update(photos, "out", progress=False)
    write(photos)
    before = public_files("out")
    with pytest.raises(OptionError, match="missing='drop'"):
        tfrecorder.update(photos, "out", missing="drop", progress=False)
    with pytest.raises(SourceError, match="there are no labels"):
        tfrecorder.update(photos.assign(width=3).drop(columns="label"), "out", progress=False)
    with pytest.raises(OptionError, match="without `update=True`"):
        photos.tensorflow.to_tfrecord("out", missing="remove")
    assert public_files("out") == before


@pytest.mark.slow
def test_a_frame_corrects_a_dataset_by_its_accessor(photos: pd.DataFrame) -> None:
    write(photos)
    photos.loc[1, "label"] = "moss"
    photos.tensorflow.to_tfrecord("out", update=True, progress=False)
    check_all(photos)


def test_a_frame_shows_what_would_be_written_before_it_writes(photos: pd.DataFrame) -> None:
    tfrecorder.convert(photos, "out", progress=False)
    more = photos.assign(label="moss")
    before = tfrecorder.generations("out")
    for options, words in [
        ({"update": True}, "1 new class 'moss'"),
        ({"append": True}, "nothing to append"),
        ({"overwrite": True}, "replaces"),
    ]:
        would = more.tensorflow.to_tfrecord("out", dry_run=True, progress=False, **options)
        assert words in str(would)
        assert str(would).startswith("dry run: ")
    assert not Path("new").exists()
    assert str(tfrecorder.convert(more, "new", dry_run=True)).startswith("dry run: ")
    assert not Path("new").exists()
    assert tfrecorder.generations("out") == before
