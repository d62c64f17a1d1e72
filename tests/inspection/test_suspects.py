"""`suspects`: what a model's probabilities say of labels, shown on the page and corrected by it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.growing_cases import QUIET
from helpers.planted_cases import planted
from PIL import Image
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier
from support import photo_frame

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError


def out_of_fold(pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probabilities by a small network, each for pictures that it was not trained on."""
    network = MLPClassifier((64,), alpha=1e-2, max_iter=200, random_state=0)
    return cross_val_predict(network, pixels, labels, cv=5, method="predict_proba")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_model_finds_all_wrong_labels_first(seed: int, tmp_path: Path) -> None:
    case = planted(tmp_path, seed)
    rows = []
    for number, row in enumerate(case.frame.itertuples()):
        with Image.open(row.image_uri) as picture:
            width, height = picture.size
            box = row.x_min[0] * width, row.y_min[0] * height
            part = picture.crop((*box, row.x_max[0] * width, row.y_max[0] * height))
        part.resize((64, 64)).save(tmp_path / f"part-{number}.png")
        rows.append((row.split, str(tmp_path / f"part-{number}.png"), row.label[0]))
    frame = pd.DataFrame(rows, columns=["split", "image_uri", "label"])
    out = tmp_path / "out"
    tfrecorder.convert(frame, out, **QUIET)
    names = tfrecorder.info(out).class_names
    stored = tfrecorder.to_frame(out)
    # Edges in any colour: what a small network can learn from 300 pictures.
    pixels = []
    for uri in stored["image_uri"]:
        with Image.open(uri) as picture:
            grey = np.asarray(picture.convert("L").resize((24, 24)), float)
        edges = np.hypot(*np.gradient(grey))
        pixels.append((edges / max(edges.max(), 1)).ravel())
    labels = stored["label"].map({name: at for at, name in enumerate(names)}).to_numpy()
    found = tfrecorder.suspects(out, None, out_of_fold(np.array(pixels), labels))
    first = [int(row) for row in found["row"][:10]]
    assert {*case.wrong} <= {*first}


def sure(out: Path, wrong: dict[int, str], split: str | None = None) -> np.ndarray:
    """The probabilities of a model that knows the label of each row, and of some another one."""
    names = [*tfrecorder.info(out).class_names]
    frame = tfrecorder.to_frame(out, split)
    probabilities = np.full((len(frame), len(names)), 0.02)
    for place, (row, label) in enumerate(zip(frame.index, frame["label"], strict=True)):
        probabilities[place, names.index(wrong.get(row, label))] = 1
    return probabilities / probabilities.sum(axis=1, keepdims=True)


WRONG = {3: "gravel", 30: "cat"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    tfrecorder.convert(photo_frame(), tmp_path / "out", **QUIET)
    return tmp_path / "out"


def test_what_is_doubted_is_shown_and_corrected(out: Path) -> None:
    found = tfrecorder.suspects(out, None, sure(out, WRONG))
    assert dict(zip(found["row"], found["suggested"], strict=True)) == WRONG
    assert (found["score"] < 0.1).all()
    page = tfrecorder.preview(out, suspects=found, progress=False).page
    section = re.search(r'<section id="suspects".*?</section>', page, re.S)
    assert section is not None
    assert re.findall(r"like <bdi>(.*?)</bdi>", section[0]) == found["suggested"].tolist()
    found["label"] = found["suggested"]
    result = tfrecorder.update(found, out, **QUIET)
    assert result.changes is not None
    assert result.changes.corrected == 2
    assert "suggested" not in str(result)
    labels = tfrecorder.to_frame(out)["label"]
    assert {row: labels[row] for row in WRONG} == WRONG


def test_rows_may_be_keyed_and_of_one_split(out: Path) -> None:
    names = tfrecorder.info(out).class_names
    given = pd.DataFrame(sure(out, WRONG), columns=names)
    given.insert(0, "row", tfrecorder.to_frame(out)["row"].to_numpy())
    shuffled = given.sample(frac=0.8, random_state=1)
    found = tfrecorder.suspects(out, None, shuffled)
    assert {*found["row"]} == {*WRONG} & {*shuffled["row"]}
    train = tfrecorder.suspects(out, "TRAIN", sure(out, WRONG, "TRAIN"))
    assert {*train["row"]} == {*WRONG} & {*tfrecorder.to_frame(out, "TRAIN")["row"]}


def test_what_does_not_fit_is_named(out: Path, tmp_path: Path) -> None:
    right = sure(out, WRONG)
    with pytest.raises(OptionError, match=r"\(52, 3\).*a row for each of 52 records and a column"):
        tfrecorder.suspects(out, None, right[:, :3])
    logits = right.copy()
    logits[7] *= 3
    with pytest.raises(OptionError, match=r"row 7 is no probabilities.*a softmax"):
        tfrecorder.suspects(out, None, logits)
    keyed = pd.DataFrame(right[:2], index=[0, 99])
    with pytest.raises(OptionError, match="probabilities=99: 1 row is not among these records"):
        tfrecorder.suspects(out, None, keyed)
    with pytest.raises(OptionError, match=r"probabilities=3: 1 row is not .* or given twice"):
        tfrecorder.suspects(out, None, keyed.set_axis([3, 3]))
    plain = photo_frame()[["split", "image_uri"]]
    tfrecorder.convert(plain, tmp_path / "plain", **QUIET)
    with pytest.raises(DatasetError, match="no column with one label"):
        tfrecorder.suspects(tmp_path / "plain", None, right)
    other = tfrecorder.suspects(out, None, right).assign(row=[98, 99])
    with pytest.raises(OptionError, match="the dataset has no such row"):
        tfrecorder.preview(out, suspects=other, progress=False)
    with pytest.raises(OptionError, match="no column 'suggested'; give what"):
        tfrecorder.preview(out, suspects=tfrecorder.to_frame(out), progress=False)
