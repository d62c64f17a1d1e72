"""The message of a failure, left in the dataset directory: the same on every runner.

Beam's runners wrap a worker's exception in their own ways, down to a line in a log elsewhere.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from tfrecorder import errors, storage
from tfrecorder.errors import TfrecorderError
from tfrecorder.format import layout
from tfrecorder.format.documents import parse


@dataclass(frozen=True)
class Failure:
    """Why a worker or the commit stopped.

    Attributes:
        error: the name of the exception's class, one of ours.
        message: its text.
        launch: which launch the worker belongs to; workers outlive a killed launcher by some
            seconds.
        shard: the shard's name; "" for the commit.
    """

    error: str
    message: str
    launch: str = ""
    shard: str = ""

    def as_error(self) -> TfrecorderError:
        return _ERRORS.get(self.error, TfrecorderError)(self.message)


#: Our errors whose message is all they are made of, by their names.
_ERRORS: dict[str, type[TfrecorderError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TfrecorderError) and name != "ValidationError"
}


def note_failure(output_dir: str, failure: Failure) -> None:
    """Leave a failure in the directory, replacing an earlier one."""
    # The note may fail for the same reason as the output, a full disk or a bucket that is away: the
    # error itself is still raised, and at once.
    storage.overwrite(output_dir, layout.FAILURE, json.dumps(asdict(failure)))


def read_failure(output_dir: str) -> Failure | None:
    """The failure that was left last; None if there is none, or its shard was done since.

    Raises:
        UnreadableError: the directory cannot be read.
    """
    path = os.path.join(output_dir, layout.FAILURE)
    note = storage.unless_missing(lambda: storage.read_bytes(path))
    try:
        failure = Failure(**parse(note or b""))
    except (TypeError, ValueError):  # missing, or cut short by a full disk or a power failure
        return None
    if not all(isinstance(value, str) for value in asdict(failure).values()):
        return None
    done = os.path.join(output_dir, layout.DONE, f"{failure.shard}.json")
    return None if failure.shard and storage.exists(done) else failure
