"""What a model of the user's says of records: `suspects`, and embeddings for the class sheets.

`suspects` finds labels that a model's probabilities contradict, by confident learning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.display.bars import bar_class, is_shown, stage_line
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError, OptionError, missing_explained
from tfrecorder.inspection.duplicates import Place
from tfrecorder.options.keywords import Path
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame import to_frame
from tfrecorder.reading.open import open_dataset
from tfrecorder.schema.fields import class_field
from tfrecorder.schema.kinds import Label

if TYPE_CHECKING:
    import numpy.typing as npt

#: The columns that a table of suspects has beside those of the dataset; `update` leaves them out.
OF_SUSPECTS = ("suggested", "score")

#: How far the probabilities of a record may be from 1 together.
_TOLERANCE = 0.01

#: Embeddings of more numbers are compared by their directions, as cleanlab does: their lengths
#: say little.
_FEW_NUMBERS = 3


def suspects(
    directory: Path,
    split: str | None,
    probabilities: npt.ArrayLike | pd.DataFrame,
    progress: bool | None = None,
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
        progress: show what is done; None shows it only in a terminal or a notebook.

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
    bar_class()  # cleanlab imports tqdm's too, which without ipywidgets warns at length
    with missing_explained():
        from cleanlab.filter import find_label_issues
    where = storage.given_path(directory)
    field = class_field(open_dataset(where).fields)
    names = field.class_names if field and isinstance(field.kind, Label) else None
    if field is None or names is None:
        raise DatasetError(f"{where} has no column with one label for each record.")
    with stage_line(is_shown(progress)) as say:
        say("reading labels")
        frame = to_frame(where, split, progress=False)
        given, is_given = _rows_of("probabilities", probabilities, frame.index, len(names))
        _refuse_unfit(given, is_given)
        labels = pd.Index(names).get_indexer(pd.Index(frame[field.column].astype(str)))
        is_judged = is_given & (labels >= 0)
        judged, given, labels = frame[is_judged], given[is_judged], labels[is_judged]
        say("judging labels")
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


def places_of(stored: StoredDataset, by_row: bool) -> dict[int, Place]:
    """The split of each record and its number in it, by its row in the source.

    Args:
        by_row: without it, and in datasets of other tools, by its place in all splits.
    """
    places = []
    for split in stored.splits:
        places += [(split, number) for number in range(stored.records(split) or 0)]
    rows: Iterable[int] = range(len(places))
    if by_row and stored.form == "tfrecorder":
        # Each record once, also where it has a row for each of its boxes.
        rows = to_frame(stored.directory, at=stored.commit, progress=False).index.unique()
    return dict(zip(rows, places, strict=True))


def embeddings_of(
    stored: StoredDataset,
    embeddings: npt.ArrayLike | pd.DataFrame,
    chosen: Collection[Place],
) -> dict[Place, np.ndarray]:
    """The embeddings of the chosen records that have one.

    Args:
        embeddings: as for `preview`.

    Raises:
        OptionError: they do not fit the records, or are no finite numbers.
    """
    places = places_of(stored, isinstance(embeddings, pd.DataFrame))
    given, is_given = _rows_of("embeddings", embeddings, pd.Index([*places]))
    found = {}
    for row, vector, has_one in zip(places, given, is_given, strict=True):
        if not has_one:
            continue
        if not np.isfinite(vector).all():
            words = f"row {row:,} has a number that is not finite."
            raise OptionError.of("embeddings", ..., words)
        if places[row] in chosen:
            length = np.linalg.norm(vector) if len(vector) > _FEW_NUMBERS else 1
            found[places[row]] = vector / (length or 1)
    return found


def _rows_of(
    name: str,
    given: Any,
    rows: pd.Index,
    columns: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """What an argument gives for each row, as numbers, and which rows it has.

    Args:
        columns: how many there must be, one for each class; 0 for any number.
    """
    is_given = np.ones(len(rows), bool)
    if isinstance(given, pd.DataFrame):
        keyed = given.set_index("row") if "row" in given else given
        unfit = ~keyed.index.isin(rows) | keyed.index.duplicated()
        if unfit.any():
            words = counted(int(unfit.sum()), "row is", "rows are")
            words += " not among these records, or given twice."
            raise OptionError.of(name, keyed.index[unfit].tolist()[0], words)
        is_given = rows.isin(keyed.index)
        given = keyed.reindex(rows)
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise OptionError.of(name, ..., f"give numbers: {error}.") from None
    if values.ndim != 2 or values.shape != (len(rows), columns or values.shape[1]):
        of_each = counted(columns, "class", "classes") if columns else "its numbers"
        words = f"give a row for each of {counted(len(rows), 'record')} and a column for each of "
        raise OptionError.of(name, values.shape, f"{words}{of_each}.")
    return values, is_given


def _refuse_unfit(given: np.ndarray, is_given: np.ndarray) -> None:
    sums = given.sum(axis=1)
    unsound = is_given & ~((given >= 0).all(axis=1) & (np.abs(sums - 1) <= _TOLERANCE))
    if unsound.any():
        place = int(unsound.argmax())
        raise OptionError.of(
            "probabilities",
            given[place].tolist(),
            f"row {place:,} is no probabilities, which are 0 or more and 1 together; a softmax "
            "makes them of logits.",
        )
