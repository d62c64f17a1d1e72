"""The exceptions a user can meet.

    TfrecorderError
    ├── OptionError (ValueError)         an argument is wrong
    │   └── MissingFileError (FileNotFoundError)      it names a file that is not there
    ├── SourceError (ValueError)         a CSV, folder or frame cannot be read as images and labels
    │   └── MissingSourceError (FileNotFoundError)    it is not there, or a list that it names
    ├── ValidationError (ValueError)     the frame has faults; `.report` lists all of them
    ├── OutputError                      the output directory cannot be written as asked
    ├── UnreachableError                 a disk or a service failed for two minutes
    │   └── ImagesUnreachableError       the images are plainly not there (an unmounted disk, say)
    ├── RejectedError                    more rejects than `max_reject_fraction` allows
    ├── RunnerError                      the runner or its job failed for another reason
    ├── DatasetError                     a directory cannot be read as a dataset
    │   ├── SplitError (ValueError)      it has no split of this name
    │   └── MissingDatasetError (ValueError, FileNotFoundError)   it is not there
    └── PackageError (ImportError)       a package that this call needs is not installed

Every message names the argument, file or row, shows the value and says what to do.  All errors
survive pickling, because Beam passes them between processes.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfrecorder.core.option import spelled
from tfrecorder.core.threads import is_address_space_limited

if TYPE_CHECKING:
    from tfrecorder.validation.report import ValidationReport


#: Characters of a message, at most.
_LONGEST = 10_000


def _shortened(words: Any) -> Any:
    """Words that quote too much of a stranger, without their middle; a remedy stands at the end."""
    if isinstance(words, str) and len(words) > _LONGEST:
        return f"{words[:9_000]} … {words[-900:]}"
    return words


class TfrecorderError(Exception):
    """The base of all errors that this package raises on purpose."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*map(_shortened, args))


class OptionError(TfrecorderError, ValueError):
    """An argument has a wrong name, type or value.

    Of several faults, each is an argument of the exception, below what is said of all of them.

    Attributes:
        name: of the argument; None if the message is about something else.
        value: as it was given; `...` if it is not shown.
        remedy: what to give instead.
    """

    name: str | None = None
    value: Any = ...
    remedy: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        value: Any,
        remedy: str,
    ) -> OptionError:
        """The error for one argument."""
        error = cls(f"{spelled(name, value).strip('`')}: {remedy}")
        error.name = name
        error.value = value
        error.remedy = remedy
        return error

    def __str__(self) -> str:
        return "\n- ".join(map(str, self.args))

    def __reduce__(self) -> tuple[type, tuple[Any, ...], dict[str, Any]]:
        # Without the value, which may be a frame, or an open file.
        return type(self), self.args, {"name": self.name, "remedy": self.remedy}


class MissingFileError(FileNotFoundError, OptionError):
    """An argument names a file that is not there."""


class SourceError(TfrecorderError, ValueError):
    """The source cannot be read as a table of images."""


class MissingSourceError(FileNotFoundError, SourceError):
    """The source is not there, or a list of files that it names."""


class ValidationError(TfrecorderError, ValueError):
    """The frame has faults.

    Attributes:
        report: every fault and warning, a row each, with the columns of
            `tfrecorder.validation.report.REPORT_COLUMNS`.
    """

    def __init__(
        self,
        message: str,
        report: ValidationReport,
    ) -> None:
        super().__init__(message, report)
        self.report = report

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


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


class SplitError(DatasetError, ValueError):
    """The dataset has no split of this name."""


class MissingDatasetError(FileNotFoundError, DatasetError, ValueError):
    """There is no directory, or no file of records, of this name."""


class PackageError(TfrecorderError, ImportError):
    """A package that this call needs (most do not) is not installed."""


#: Packages that only some calls need, by the name to import: the extra that brings each.
_EXTRAS = {
    "apache_beam": "beam",
    "botocore": "s3",
    "cleanlab": "labels",
    "confluent_kafka": "kafka",
    "datumaro": "datumaro",
    "keras": "tensorflow",
    "obstore": "s3",
    "pycocotools": "coco",
    "tensorflow": "tensorflow",
    "torch": "torch",
}

#: What else can be done where an extra is not installed.
_OTHERWISE = {
    "beam": ", or leave out the runner and its options",
    "tensorflow": ", or read with Records or batches, which do not need it",
}


def refuse_missing(module: str, extra: str | None = None) -> None:
    """Raise a PackageError unless a package is installed; it is not imported.

    Args:
        extra: the one to name, of several that bring it.
    """
    if not is_installed(module):
        raise PackageError(_in_words(module, extra or _EXTRAS[module]))


def is_installed(module: str) -> bool:
    """True if a package can be imported; it is not."""
    if module in sys.modules:
        return sys.modules[module] is not None  # None is what keeps a package from being imported
    return importlib.util.find_spec(module) is not None


@contextlib.contextmanager
def missing_explained() -> Iterator[None]:
    """Turns the failed import of a missing package into a PackageError.

    Raises:
        PackageError: with the command that installs it; other errors pass.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        raise PackageError(_in_words(error.name, _EXTRAS[error.name])) from error


def install(extra: str) -> str:
    """The command that installs an extra.

    >>> install("beam")
    'pip install "tfrecorder-images[beam]"'
    """
    return f'pip install "tfrecorder-images[{extra}]"'


def _in_words(module: str, extra: str) -> str:
    name = module.replace("_", "-")  # as pip knows it
    more = _OTHERWISE.get(extra, "")
    return f"{name} is needed for this but is not installed; run `{install(extra)}`{more}."


@contextlib.contextmanager
def limits_explained() -> Iterator[None]:
    """Turns errors at a limit of the process's memory or threads into a RunnerError.

    Raises:
        RunnerError: says which limit to raise; other errors pass.
    """
    try:
        yield
    except Exception as error:
        if (message := limit_reached(error)) is None:
            raise
        raise RunnerError(message) from error


def limit_reached(error: BaseException | None) -> str | None:
    """A message for an error caused by a limit of the process; None for others.

    >>> limit_reached(RuntimeError("can't start new thread")).partition(";")[0]
    'this process cannot start the threads that it needs'
    >>> limit_reached(ValueError("something else"))
    """
    while error is not None:
        if isinstance(error, TfrecorderError):
            return None
        text = str(error)
        number = getattr(error, "errno", None)
        limited = is_address_space_limited()  # which keeps threads from starting too
        threads = "can't start new thread" in text or number == errno.EAGAIN
        if threads and not limited:
            return (
                "this process cannot start the threads that it needs; raise its limit "
                "(`ulimit -u`, or pids.max of its container) and run the same call again to "
                "continue."
            )
        mapped = isinstance(error, ImportError) and "failed to map" in text
        broken = threads or isinstance(error, SystemError) or "out of memory" in text
        short = isinstance(error, MemoryError) or number == errno.ENOMEM
        if short or mapped or (broken and limited):
            return (
                "this process cannot get the memory that it needs; raise its limit (`ulimit -v`, "
                "or the memory of its container) and run the same call again to continue."
            )
        context = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or context
    return None
