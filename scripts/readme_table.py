"""Write README.md's table of flags from the declarations in kirsch.settings; ``--check`` only compares (status 1)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN = "<!-- settings: written by scripts/readme_table.py -->\n"
END = "<!-- /settings -->\n"


def table() -> str:
    """One row for each setting: its flags, its default, and the first sentence of its prose."""
    sys.path.insert(0, str(ROOT / "python"))
    from kirsch.settings import SETTINGS

    rows = ["| flag | default | what it says |", "|---|---|---|"]
    for each in SETTINGS:
        # A bar ends a cell of a table, in code too.
        value = f" {each.metavar}".replace("|", r"\|") if each.metavar else ""
        flags = ", ".join(f"`{flag}`" for flag in each.flags[:-1]) + (", " if len(each.flags) > 1 else "")
        default = f"`{each.default}`" if each.default else ""
        sentence = each.prose.split(". ")[0].rstrip(".").replace("\n", " ").replace("|", r"\|")
        rows.append(f"| {flags}`{each.flags[-1]}{value}` | {default} | {sentence} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Write the table, or with ``--check`` say whether it is what would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if the table is not fresh")
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"README.md lacks the lines {BEGIN.strip()} and {END.strip()}")
    fresh = before + BEGIN + table() + END + after
    if not parser.parse_args().check:
        README.write_text(fresh, encoding="utf-8")
    elif fresh != text:
        sys.stderr.write("the table of flags in README.md is not fresh; run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
