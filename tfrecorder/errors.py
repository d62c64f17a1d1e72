"""The exceptions a user can meet.

    TfrecorderError
    ├── OptionError (ValueError)         an argument is wrong
    ├── SourceError (ValueError)         a CSV, folder or frame cannot be read as images and labels
    ├── ValidationError (ValueError)     the frame has faults; `.report` lists all of them
    ├── OutputError                      the output directory cannot be written as asked
    ├── UnreachableError                 a disk or a service failed for two minutes
    │   └── ImagesUnreachableError       the images are plainly not there (an unmounted disk, say)
    ├── RejectedError                    more rejects than `max_reject_fraction` allows
    ├── RunnerError                      the runner or its job failed for another reason
    ├── DatasetError                     a directory cannot be read as a dataset
    └── PackageError (ImportError)       a package that this call needs is not installed

Every message names the argument, file or row, shows the value and says what to do.  All errors
survive pickling, because Beam passes them between processes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfrecorder.validation.report import ValidationReport


class TfrecorderError(Exception):
    """The base of all errors that this package raises on purpose."""


class OptionError(TfrecorderError, ValueError):
    """An argument has a wrong name, type or value.

    Attributes:
        name: of the argument; None if the message is about something else.
        value: as it was given.
        remedy: what to give instead.
    """

    name: str | None = None
    value: Any = None
    remedy: str = ""

    @classmethod
    def of(cls, name: str | None, value: Any, remedy: str) -> OptionError:
        """The error for one argument; without a name, the remedy says what it is about."""
        error = cls(remedy if name is None else f"{name}={value!r}: {remedy}")
        error.name, error.value, error.remedy = name, value, remedy
        return error

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (str(self),)  # the value may be a frame, or an open file


class SourceError(TfrecorderError, ValueError):
    """The source cannot be read as a table of images."""


class ValidationError(TfrecorderError, ValueError):
    """The frame has faults.

    Attributes:
        report: every fault and warning, a row each, with the columns of
            `tfrecorder.validation.report.REPORT_COLUMNS`.
    """

    def __init__(self, message: str, report: ValidationReport) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[type, tuple[str, ValidationReport]]:
        return type(self), (str(self), self.report)


class OutputError(TfrecorderError):
    """The output directory is foreign, committed, locked or planned with other options."""


class UnreachableError(TfrecorderError):
    """A disk or a service kept failing for two minutes; it may answer later."""


class ImagesUnreachableError(UnreachableError):
    """Before launch, most of a sample of the images are not there, or their store fails."""


class RejectedError(TfrecorderError):
    """Rejected images stopped the conversion before its commit."""


class RunnerError(TfrecorderError):
    """The runner or its job failed for another reason: lost workers, a cancelled job."""


class DatasetError(TfrecorderError):
    """A directory is not a committed dataset, or not a whole one."""


class PackageError(TfrecorderError, ImportError):
    """A package that this call needs (most do not) is not installed."""


#: Packages that only some calls need, by the name to import: the requirement for pip, and what
#: else can be done.
_PACKAGES = {
    "tensorflow": ("tensorflow>=2.18", "or read with Records or batches, which do not need it"),
    "apache_beam": (
        "apache-beam[gcp]>=2.70,<2.78",
        "or call stage, work and commit, which write the same files without it",
    ),
    "google.cloud.storage": ("google-cloud-storage>=2.18", ""),
    "google.auth": ("google-cloud-storage>=2.18", ""),
    "torch": ("torch", ""),
    "confluent_kafka": ("confluent-kafka>=2.6", ""),
}
# Keras comes with TensorFlow, and `google` is a folder that several packages share.
_PACKAGES |= {"keras": _PACKAGES["tensorflow"]}
_PACKAGES |= dict.fromkeys(("google", "google.cloud"), _PACKAGES["google.cloud.storage"])


def refuse_missing(module: str) -> None:
    """Raise a PackageError unless a package is installed; it is not imported."""
    if not is_installed(module):
        raise PackageError(_in_words(module))


def is_installed(module: str) -> bool:
    """True if a package can be imported; it is not."""
    return module in sys.modules or importlib.util.find_spec(module) is not None


@contextlib.contextmanager
def missing_explained() -> Iterator[None]:
    """Turns the failed import of a missing package into a PackageError.

    Raises:
        PackageError: with the command that installs it; other errors pass.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise PackageError(_in_words(error.name)) from error


def _in_words(module: str) -> str:
    requirement, otherwise = _PACKAGES[module]
    name = re.split(r"[>=\[]", requirement)[0]
    more = f", {otherwise}" if otherwise else ""
    return (
        f'{name} is needed for this but is not installed; run `pip install "{requirement}"`{more}.'
    )
