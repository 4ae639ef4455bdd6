"""Check that the links between the project's pages lead to files and headings that exist.

Links to other hosts are not followed. Prints each broken link; the status is 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", re.M | re.S)
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]+)(?: \"[^\"]*\")?\)|^\[[^\]]+\]: (\S+)", re.M)


def text(page: Path) -> str:
    """Return a page without its blocks of code and without code in its lines."""
    return re.sub(r"`[^`\n]+`", "`", FENCED.sub("", page.read_text(encoding="utf-8")))


@cache
def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a page, and those that the page gives itself."""
    content = FENCED.sub("", page.read_text(encoding="utf-8"))
    found = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", content))
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.*?) *$", content, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    found = []
    for groups in LINK.findall(text(page)):
        link = "".join(groups)
        if re.match(r"[a-z][a-z+.-]*:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


def main() -> int:
    """Print the broken links of all pages."""
    status = 0
    hidden = {"target", "node_modules"}
    for page in sorted(ROOT.rglob("*.md")):
        parts = page.relative_to(ROOT).parts
        # A page that is a symbolic link is looked at where it is.
        if not page.is_symlink() and not hidden & set(parts) and not any(part.startswith(".") for part in parts):
            for link in broken(page):
                status = 1
                sys.stdout.write(f"{page.relative_to(ROOT).as_posix()}: {link} leads nowhere\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
