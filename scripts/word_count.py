"""Fails if README and the pages of the site have more words than a person reads in an hour.

python scripts/word_count.py       # the words of each page; exit code 1 if they are too many

Counted is what a reader sees, code and tables too: not comments, and not docs/design/.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 33_000


def words(page: Path) -> int:
    """What stands between white space."""
    return len(re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL).split())


if __name__ == "__main__":
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    counted = sorted((words(page), page.name) for page in pages)
    total = sum(count for count, _ in counted)
    print(*(f"{count:6,} {name}" for count, name in counted), sep="\n")
    if total > LIMIT:
        sys.exit(f"{total:,} words, of {LIMIT:,}: say something once, or in docs/design/")
    print(f"{total:6,} words, of {LIMIT:,}")
