"""What `stream` reads from: rows that keep coming, each with its position.

A source must have the methods of `StreamSource`; any object with these methods will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

#: A row: a cell for each of its columns.
Cells = Mapping[str, Any]

#: A row, and the position behind it.
RowAt = tuple[Cells, Any]


class StreamSource(Protocol):
    """Rows without end, which can be read again from any position.

    A position is a JSON value: the source makes it, and gets it back after a restart.  It is saved
    with each batch, under the name of the source.

    A source whose rows have no order, like files in a folder, sets `ordered = False`.  The position
    of each of its rows is then a text that no other row has, and `rows` receives all positions that
    were taken, as a frozenset.

    A source may also have:

        behind(position) -> int     rows that are there but not taken yet, for the progress bar
        pending() -> bool           True while rows are known that `rows` cannot give yet, so that
                                    `until_idle` does not end the stream
        replaced(position) -> bool  without order: True if what a row was made of has changed since;
                                    the row is then left out, for `rows` to give again
        close() -> None             called once at the end
        base: str                   the folder that relative image uris start from

    Example:
        A database table whose rows are numbered from 1:

        >>> class Table:
        ...     name = "shop.photos"
        ...     def rows(self, position):
        ...         for number, uri, label in select_after(position or 0):
        ...             yield {"image_uri": uri, "label": label}, number
        ...     def wait(self, seconds):
        ...         time.sleep(min(seconds, 1))
    """

    #: The name under which the position is saved: the same after each restart, different for other
    #: rows.
    name: str

    def rows(self, position: Any) -> Iterator[RowAt]:
        """The rows after a position that are available now, each with the position after it.

        It ends when there are no more rows for now; it is called again, with the last position,
        once `wait` has returned.  After a restart the same position must give the same rows.

        Args:
            position: the one that came with the last row taken; None at the very beginning.

        Yields:
            The columns of a row, by their names.  An image column holds a uri, the bytes of an
            image file, or {"bytes": …, "path": a name for them}.  A row that cannot be understood
            is `Unusable`.
        """
        ...

    def wait(self, seconds: float) -> bool | None:
        """Return once there may be more rows, or after this many seconds at the latest.

        Returns:
            False if it is too early to ask for rows: then `rows` is called only once `wait` has
            returned something else, or before the stream ends.
        """
        ...


class OpenedSource:
    """A source, with what it leaves out of `StreamSource` filled in.

    Attributes:
        base: the folder of relative uris; None if uris are made absolute as they come.
        behind: how many rows are there and not taken yet; None if the source does not say.
    """

    def __init__(self, source: StreamSource) -> None:
        self.name = source.name
        self.rows = source.rows
        self.wait = source.wait
        self.ordered: bool = getattr(source, "ordered", True)
        self.base: str | None = getattr(source, "base", None)
        self.behind: Callable[[Any], int | None] = getattr(source, "behind", lambda position: None)
        self.pending: Callable[[], bool] = getattr(source, "pending", bool)
        self.replaced: Callable[[str], bool] = getattr(source, "replaced", lambda position: False)
        self.close: Callable[[], object] = getattr(source, "close", lambda: None)


class Unusable(dict[str, Any]):
    """A row that its source cannot make sense of: it becomes a reject, and the stream continues.

    Args:
        name: the message's name, such as its place in the source; the reject is listed under it.
        reason: a code in snake_case, a colon, and a message: "bad_json: the value is not JSON".
    """

    def __init__(
        self,
        name: str,
        reason: str,
    ) -> None:
        super().__init__()
        self.name = str(name)
        self.reason = str(reason)
