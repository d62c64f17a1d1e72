"""How the text of a CSV is written: its separator and its encoding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextForm:
    """How the text of a CSV is written.

    Attributes:
        sep: the character between two values.
        encoding: as Python names it; None for UTF-8, with or without a byte order mark.
    """

    sep: str | None = None
    encoding: str | None = None

    @property
    def separator(self) -> str:
        return self.sep or ","

    @property
    def codec(self) -> str:
        return self.encoding or "utf-8-sig"

    @property
    def stated(self) -> str | None:
        """The name of an option that was given; None if none was."""
        return "sep" if self.sep else "encoding" if self.encoding else None
