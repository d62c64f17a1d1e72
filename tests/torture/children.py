"""A process that answers questions and may die or hang at any of them, without us.

Questions and answers are pickled; the process is this Python, started anew.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any


class DiedError(Exception):
    """The process ended at a question: a crash of native code, as a rule."""


class FailedError(Exception):
    """The function raised an error; the process lives on."""


class HungError(Exception):
    """The process did not answer in time; it was killed."""


class Child:
    """A process that calls one function on each question.

    Args:
        work: "module:function"; the function takes a question and gives an answer.
        seconds: that an answer may take.

        >>> with Child("os.path:basename", seconds=60) as child:
        ...     child.ask("a/b")
        'b'
    """

    def __init__(self, work: str, seconds: float) -> None:
        self._work, self._seconds = work, seconds

    def __enter__(self) -> Child:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._work), daemon=True)
        self._process.start()
        theirs.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.join()
        self._line.close()

    def ask(self, question: Any) -> Any:
        """The answer; after a DiedError or HungError the next question meets a new process."""
        try:
            self._line.send(question)
            if not self._line.poll(self._seconds):
                self._restart()
                raise HungError(f"no answer within {self._seconds:g} s")
            answered, answer = self._line.recv()
        except (EOFError, ConnectionError) as error:
            self._process.join(10)
            words = f"the process ended with {self._process.exitcode}"
            self._restart()
            raise DiedError(words) from error
        if not answered:
            raise FailedError(answer)
        return answer

    def _restart(self) -> None:
        self.__exit__(None, None, None)
        self.__enter__()


def _serve(line: Connection, work: str) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # decoders write their complaints there
    module, _, name = work.partition(":")
    answer: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    while True:
        try:
            question = line.recv()
        except EOFError:
            return
        try:
            reply = True, answer(question)
        except Exception as error:
            reply = False, f"{type(error).__name__}: {error}"
        line.send(reply)
