"""Write a page of the documentation, or compare it: the common part of api_page.py and settings_page.py."""

from __future__ import annotations

import sys
from pathlib import Path


def write(page: Path, text: str, sources: str) -> int:
    """Write ``text`` into ``page``; with ``--check`` only compare them. ``sources`` says what the text is made of.

    Returns the exit status: 1 if the page differs.
    """
    if "--check" not in sys.argv[1:]:
        page.write_text(text, "utf-8")
    elif page.read_text("utf-8") != text:
        sys.stderr.write(f"{page} is not what the {sources} say: run python {Path(sys.argv[0]).name}\n")
        return 1
    return 0
