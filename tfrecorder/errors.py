"""The exceptions a user can meet.

    TfrecorderError
    ├── OptionError (ValueError)         an argument is wrong
    ├── SourceError (ValueError)         a CSV, folder or frame cannot be read as images and labels
    ├── ValidationError (ValueError)     the frame has faults; `.report` lists all of them
    ├── OutputError                      the output directory cannot be written as asked
    ├── ImagesUnreachableError           the images are plainly not there (an unmounted disk, say)
    ├── RejectedError                    a reject with on_error="raise", or too many of them
    ├── RunnerError                      the runner or its job failed for a reason of its own
    └── DatasetError                     a directory cannot be read as a dataset

Every message names the argument, file or row, shows the value and says the remedy.  All of them
survive pickling, because Beam carries them between processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class TfrecorderError(Exception):
    """The base of all errors that this package raises on purpose."""


class OptionError(TfrecorderError, ValueError):
    """An argument has a wrong name, type or value."""


class SourceError(TfrecorderError, ValueError):
    """The source cannot be read as a table of images."""


class ValidationError(TfrecorderError, ValueError):
    """The frame has faults.

    Attributes:
        report: every fault and warning, a row each, with the columns of
            `tfrecorder.validation.report.REPORT_COLUMNS`.
    """

    def __init__(self, message: str, report: pd.DataFrame) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[type, tuple[str, pd.DataFrame]]:
        return type(self), (str(self), self.report)


class OutputError(TfrecorderError):
    """The output directory is foreign, committed, locked or planned with other options."""


class ImagesUnreachableError(TfrecorderError):
    """Before launch, most of a sample of the images are not there, or their store fails."""


class RejectedError(TfrecorderError):
    """Rejected images stopped the conversion before its commit."""


class RunnerError(TfrecorderError):
    """The runner or its job failed for a reason of its own: lost workers, a cancelled job."""


class DatasetError(TfrecorderError):
    """A directory is not a committed dataset, or not a whole one."""
