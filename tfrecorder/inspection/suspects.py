"""`suspects`: labels that a model's probabilities contradict, by confident learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError, OptionError, missing_explained
from tfrecorder.options.keywords import Path
from tfrecorder.reading.frame import to_frame
from tfrecorder.reading.open import open_dataset
from tfrecorder.schema.fields import Field, class_field
from tfrecorder.schema.kinds import Label

if TYPE_CHECKING:
    import numpy.typing as npt

#: The columns that a table of suspects has beside those of the dataset; `update` leaves them out.
OF_SUSPECTS = ("suggested", "score")

#: How far the probabilities of a record may be from 1 together.
_TOLERANCE = 0.01


def suspects(
    directory: Path,
    split: str | None,
    probabilities: npt.ArrayLike | pd.DataFrame,
) -> pd.DataFrame:
    """The labels that are likely wrong, by the word of a model that was not trained on them.

    cleanlab compares how sure the model is of each class (C. G. Northcutt, L. Jiang and I. L.
    Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", 2021).

    Args:
        directory: a dataset with one label for each record.
        split: the split that the probabilities are of; None for all, in the order of `to_frame`.
        probabilities: from 0 to 1, a row for each record in the order of `Records`, a column for
            each class in the order of `info(…).class_names`; out of fold, or of a model that was
            trained on other records.  Or a frame whose column or index `row` has the number of
            each row, as `to_frame` gives it; rows that it lacks are not judged.

    Returns:
        The rows of `to_frame` whose labels are doubted, the most doubtful first, with `suggested`,
        the likeliest class, and `score`, the model's probability of the label, 0 to 1.
        `preview(suspects=…)` shows them, and `update` takes them with a corrected label.

    Raises:
        OptionError: the probabilities do not fit the records and classes.
        DatasetError: the dataset has no label, or several.
        PackageError: cleanlab is not installed.

    Example:
        >>> found = tfrecorder.suspects("out", "TRAIN", model.predict(images))  # doctest: +SKIP
        >>> found["label"] = found["suggested"]  # doctest: +SKIP
        >>> tfrecorder.update(found, "out", dry_run=True)  # doctest: +SKIP
    """
    with missing_explained():
        from cleanlab.filter import find_label_issues
    where = storage.given_path(directory)
    field = class_field(open_dataset(where).fields)
    names = field.class_names if field and isinstance(field.kind, Label) else None
    if field is None or names is None:
        raise DatasetError(f"{where} has no column with one label for each record.")
    frame = to_frame(where, split)
    judged, given = _of_rows(frame, probabilities)
    labels = _labels_of(judged, field, names)
    _refuse_unfit(given, len(judged), len(names))
    is_labelled = labels >= 0
    judged, given, labels = judged[is_labelled], given[is_labelled], labels[is_labelled]
    places = find_label_issues(
        labels,
        given,
        return_indices_ranked_by="self_confidence",
        n_jobs=1,
    )
    found = judged.iloc[places].copy()
    found["suggested"] = [names[number] for number in given[places].argmax(axis=1)]
    found["score"] = given[places, labels[places]]
    return found


def _of_rows(frame: pd.DataFrame, probabilities: Any) -> tuple[pd.DataFrame, np.ndarray]:
    """The rows that are judged, and their probabilities."""
    if not isinstance(probabilities, pd.DataFrame):
        return frame, np.asarray(probabilities, np.float64)
    keyed = probabilities.set_index("row") if "row" in probabilities else probabilities
    unknown = ~keyed.index.isin(frame.index)
    if unknown.any():
        raise OptionError.of(
            "probabilities",
            int(keyed.index[unknown][0]),
            f"{counted(int(unknown.sum()), 'row is', 'rows are')} not in the split.",
        )
    judged = frame[frame.index.isin(keyed.index)]
    return judged, keyed.loc[judged.index].to_numpy(np.float64)


def _labels_of(
    frame: pd.DataFrame,
    field: Field,
    names: tuple[str, ...],
) -> np.ndarray:
    """The number of the class of each row; -1 for a row without a label."""
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers.get(str(name), -1) for name in frame[field.column]], np.int64)


def _refuse_unfit(
    given: np.ndarray,
    records: int,
    classes: int,
) -> None:
    if given.shape != (records, classes):
        raise OptionError.of(
            "probabilities",
            given.shape,
            f"give a row for each of {counted(records, 'record')} and a column for each of "
            f"{counted(classes, 'class', 'classes')}.",
        )
    sums = given.sum(axis=1)
    unsound = ~(np.isfinite(sums) & (given >= 0).all(axis=1) & (np.abs(sums - 1) <= _TOLERANCE))
    if unsound.any():
        place = int(unsound.argmax())
        raise OptionError.of(
            "probabilities",
            given[place].tolist(),
            f"row {place:,} is no probabilities, which are 0 or more and 1 together; a softmax "
            "makes them of logits.",
        )
