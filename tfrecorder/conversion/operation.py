"""What a call writes into a directory: a class each, in the file of its name.

`job.py` runs every one of them in the same way; a dry run plans, and says what would come of it.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from tfrecorder import storage
from tfrecorder.conversion.staged import Planned
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.result import ConversionResult
from tfrecorder.output.state import DatasetState

#: Shows what is being done, in a word or two.
Say = Callable[[str], None]


class Operation(ABC):
    """What a call writes into a directory.

    Attributes:
        verb: what is run again to continue, such as "append".
        adds: its rows depend on what the directory holds, so that is claimed first.
        path: the dataset directory, as the user gave it.
        options: as the user gave them.
        source: what the rows come from, as the user gave it.
    """

    verb: ClassVar[str]
    adds: bool = True
    path: str
    options: ConvertOptions
    source: object

    @property
    def where(self) -> str:
        """The directory as an absolute path."""
        return storage.absolute(self.path)

    def accessing(self) -> contextlib.AbstractContextManager[None]:
        """A block that reads files as the options say."""
        return storage.acting_as(self.options.account, self.options.private_hosts)

    def look(self) -> DatasetState:
        """What is there at its start.

        Raises:
            TfrecorderError: it cannot begin there.
        """
        return DatasetState.read(self.where)

    def prepare(self, state: DatasetState) -> None:
        """What may be written once the directory is claimed, before anything is planned."""
        return

    @abstractmethod
    def plan(self, state: DatasetState, say: Say) -> Planned | ConversionResult:
        """Plan its rows; writes nothing.

        Args:
            state: of the directory.

        Returns:
            The rows, or the result if there is nothing to write.
        """
