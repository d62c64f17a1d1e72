"""What stands in a dataset directory, as of one look; and which directory that is.

An operation looks at most three times: at its start, after its claim, and before its commit.  In
between what it saw is passed on.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tfrecorder import storage
from tfrecorder.errors import OptionError, OutputError, UnreachableError
from tfrecorder.format import layout
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.staging import read_plan
from tfrecorder.reading.commits import Commit, newest_commit, newest_versioned


@dataclass(frozen=True)
class DatasetState:
    """What a directory holds.

    Attributes:
        where: the directory.
        newest: its newest commit, which the pending plan may have set aside; None before the first.
        version: of `dataset_info.json`, as `storage.read_versioned` names it; "" for no file.
        pending: the plan of the operation under way, or of one that was interrupted; None if there
            is none.
        was_left: this operation did the rest after the newest commit, which may be its own.
        left: what of that rest, or of a clearing, cannot be done, in words; "" for nothing.
    """

    where: str
    newest: Commit | None
    version: str
    pending: Plan | None
    was_left: bool = False
    left: str = ""

    @classmethod
    def read(
        cls,
        where: str,
        known: Commit | None = None,
    ) -> DatasetState:
        """Look at a directory.

        Args:
            known: a commit whose manifest was read; it is not read again if it is still the newest.

        Raises:
            DatasetError: its newest commit has lost its manifest.
            OutputError: its plan cannot be read.
        """
        # The plan first: it goes after its commit.
        pending = read_plan(where)
        newest, version = newest_versioned(where, known=known)
        if newest is None and pending is not None and pending.rewrites:
            newest = newest_commit(where, name=layout.WAITING_COMMIT)
        return cls(where, newest, version, pending)

    def again(self) -> DatasetState:
        """Look once more at the same directory."""
        return DatasetState.read(self.where, self.newest)

    def unless_claimed(self) -> DatasetState:
        """It, or what is there now if another plan is pending by now.

        On a bucket nothing is locked while an operation is planned, and what its clearing removes
        may be what another one has begun meanwhile.
        """
        pending = read_plan(self.where)
        before = None if self.pending is None else self.pending.digest
        return self if (pending and pending.digest) == before else self.again()

    @property
    def is_empty(self) -> bool:
        """True if nothing was begun there."""
        return self.newest is None and self.pending is None

    @property
    def is_committed(self) -> bool:
        """True if the pending plan is committed, so that only its leftovers are still there."""
        if self.newest is None or self.pending is None:
            return False
        return self.newest.digest == self.pending.digest

    @property
    def undoes(self) -> bool:
        """True if something is being taken back."""
        return self.pending is not None and self.pending.kind is PlanKind.UNDO

    @property
    def is_overtaken(self) -> bool:
        """True if the pending plan can never be committed: another commit took its number."""
        if self.newest is None or self.pending is None:
            return False
        return self.newest.digest not in (self.pending.follows.previous, self.pending.digest)


class Outage(str):
    """What could not be done because a disk or a service was away, in words."""


def refuse_left(left: str) -> None:
    """Raise an error if what an operation left cannot be removed, in these words.

    Raises:
        UnreachableError: it may be possible later.
        OutputError: otherwise.
    """
    if left:
        error = UnreachableError if isinstance(left, Outage) else OutputError
        raise error(f"{left} Until then nothing new is written there.")


def output_path(
    output_dir: str | os.PathLike[str],
    options: ConvertOptions,
    argument: str = "output_dir",
) -> str:
    """The dataset directory: the only one that later steps know.

    Args:
        output_dir: as the user gave it.
        options: with a name, the dataset is below it, where TFDS looks.
        argument: what the caller calls it, for messages.

    Raises:
        OptionError: a dataset cannot be written there.
    """
    path = given_directory(argument, output_dir)
    refusal = storage.refusal(storage.scheme(path))
    if refusal is not None:
        raise OptionError.of(
            argument,
            storage.unsigned(path),
            f"a dataset cannot be written to {storage.scheme(path)}://: {refusal}.",
        )
    storage.check_locale(path)
    if not path.isprintable():  # a NUL, or bytes that are not Unicode
        raise OptionError.of(argument, path, "give a path of printable characters.")
    if re.match(r"[A-Za-z]:[\\/]", path):
        raise OptionError.of(argument, path, "it is a path of Windows; give one of this machine.")
    if options.name is not None:
        path = layout.tfds_directory(path, *options.name.split(":"))
    return path


def given_directory(name: str, directory: object) -> str:
    """The path of a directory as the user gave it; raises an OptionError if it is none."""
    if not isinstance(directory, (str, os.PathLike)) or not os.fspath(directory):
        raise OptionError.of(name, directory, "give the path of a directory.")
    return storage.given_path(directory)
