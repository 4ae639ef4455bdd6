"""Count the phrases that CONTRIBUTING.md ("Comments") advises against, in the comments and docstrings of the project.

Each phrase has a ceiling, the count on the day when it was last lowered. A higher count is refused (status 1), and each
place is printed. A lower count prints the number to write here. ``--list`` prints every place of every phrase.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("crates", "fuzz/src", "fuzz/fuzz_targets", "packages", "prototypes/http3/src", "scripts", "tests")

# Phrase -> (the pattern of a comment that contains it, the number that may be left).
PHRASES = {
    "begins with What": (r"^(What|Whom?) ", 0),
    "begins with Until it, None where, Those that": (r"^(Until it|None where|Those (that|who|which))\b", 0),
    "is told": (r"\b(is|are|was|were) told\b", 0),
    "but for": (r"\bbut for\b", 0),
    "has its turn": (r"\b(has|have|had) (its|their) turn\b", 0),
}

# The first line of a comment or of a docstring; the other lines of both.
FIRST = {".rs": re.compile(r"^\s*//[/!]?\s+(.*)$"), ".py": re.compile(r'^\s*(?:r?"""|#)\s*(.*)$')}


def comments(path: Path) -> list[tuple[int, bool, str]]:
    """Return (line number, whether a comment begins there, text) for each comment line of a file."""
    found = []
    first = FIRST[".rs" if path.suffix == ".rs" else ".py"]
    before = in_docstring = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if in_docstring:
            found.append((number, False, line.strip()))
            in_docstring = '"""' not in line
            continue
        match = first.match(line)
        if match is not None:
            is_docstring = '"""' in line
            found.append((number, is_docstring or not before, match[1]))
            in_docstring = is_docstring and line.count('"""') == 1
        before = match is not None
    return found


def places() -> dict[str, list[str]]:
    """Return where each phrase is found, as ``path:line: text``."""
    files = [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".rs", ".py", ".pyi"}
    ]
    found: dict[str, list[str]] = {phrase: [] for phrase in PHRASES}
    for path in files:
        if path == Path(__file__).resolve() or {"target", "__pycache__", "node_modules"} & set(path.parts):
            continue
        for number, begins, text in comments(path):
            for phrase, (pattern, _ceiling) in PHRASES.items():
                if (begins or not pattern.startswith("^")) and re.search(pattern, text):
                    found[phrase].append(f"{path.relative_to(ROOT)}:{number}: {text}")
    return found


def main() -> int:
    """Print the counts; return 1 if one is above its ceiling."""
    status = 0
    lines = []
    for phrase, found in places().items():
        ceiling = PHRASES[phrase][1]
        lines.append(f"{phrase}: {len(found)} of at most {ceiling}")
        if len(found) > ceiling:
            status = 1
            lines.append("  too many: name the thing and the actor instead (CONTRIBUTING.md, Comments)")
        elif len(found) < ceiling:
            lines.append(f"  lower its ceiling in scripts/prose.py to {len(found)}")
        if len(found) > ceiling or "--list" in sys.argv[1:]:
            lines += [f"  {place}" for place in found]
    sys.stdout.write("\n".join(lines) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
