"""What a dataset of tf.data has in Python, for as long as the dataset is there.

TensorFlow keeps every function that its graphs call for the life of the process, and with it all
that the function holds: open files, indexes, orders of epochs.  So here it gets functions that hold
nothing, and find the real ones through the dataset.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfrecorder.errors import DatasetError


class PythonSide:
    """The functions that the graph of one dataset calls."""

    def __init__(self) -> None:
        self._functions: list[Any] = []
        self._found: Callable[[], PythonSide | None] = weakref.ref(self)
        if not tf.executing_eagerly():  # a graph keeps a dataset without its object in Python
            self._found = lambda: self

    def call(
        self,
        function: Callable[..., Any],
        values: Sequence[Any],
        dtype: tf.DType,
    ) -> tf.Tensor:
        """As `tf.numpy_function`."""
        return tf.numpy_function(self._found_again(function), values, dtype)

    def ask_unless(
        self,
        is_right: tf.Tensor,
        function: Callable[..., Any],
        values: Sequence[Any],
        dtype: tf.DType,
    ) -> tf.Tensor:
        """What a function answers, if something is not right; otherwise False, or an empty text."""
        return tf.cond(
            is_right,
            lambda: tf.zeros([], dtype),
            lambda: tf.ensure_shape(self.call(function, values, dtype), []),
        )

    def refuse_unless(
        self,
        is_right: tf.Tensor,
        words_of: Callable[..., str],
        values: Sequence[Any],
        kept: Any,
    ) -> Any:
        """What is kept, if something is right; otherwise the graph fails with words, if any."""
        words = self.ask_unless(is_right, words_of, values, tf.string)
        with tf.control_dependencies([tf.debugging.Assert(words == "", [words])]):
            return tf.nest.map_structure(tf.identity, kept, expand_composites=True)

    def generate(
        self,
        function: Callable[[], Any],
        signature: Any,
    ) -> tf.data.Dataset:
        """As `tf.data.Dataset.from_generator`."""
        found_again = self._found_again(function)
        return tf.data.Dataset.from_generator(found_again, output_signature=signature)

    def belong_to(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The dataset; from now on it has this, and so has all that is made of it."""
        vars(dataset)["_python_side"] = self
        return dataset

    def _found_again(self, function: Callable[..., Any]) -> Callable[..., Any]:
        at = len(self._functions)
        self._functions.append(function)
        found = self._found

        def call(*values: Any) -> Any:
            alive = found()
            if alive is None:
                raise DatasetError(
                    "the dataset that `load` gave was let go while it is read; keep it in a "
                    "variable."
                )
            return alive._functions[at](*values)

        return call
