"""Write what is generated from the declarations in kirsch.config.schema and kirsch.config.compat:
docs/reference/settings.md, the static types of what a program passes (kirsch.config.options), the tables of
docs/migrating.md, and the manual page that the wheel installs. ``--check`` only compares (status 1)."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = ROOT / "packages" / "kirsch" / "src" / "kirsch" / "config" / "options.py"
PAGE = ROOT / "docs" / "reference" / "settings.md"
MIGRATING = ROOT / "docs" / "migrating.md"
MANUAL = ROOT / "packages" / "kirsch" / "kirsch.data" / "data" / "share" / "man" / "man1" / "kirsch.1"

HEAD = """\
# Settings

<!-- Written by scripts/settings_page.py from packages/kirsch/src/kirsch/config/schema.py; edit that. -->

`kirsch [options] module:app` takes each setting as a flag, from an environment variable, or from a settings file under
the flag's name. Flags win over variables, variables over the file, the file over the default; `kirsch check` shows
which it was. [Configuration](../configuration.md) describes the file and reloading. In a program, `kirsch.Server` and
`kirsch.serve` take those marked *also in programs* as keyword arguments, as numbers in the unit that is named, or as
text; `kirsch.run` takes all of them.

A reload (SIGHUP) applies a setting unless it is marked *not by a reload*; those marked *supervised* have no meaning
with `--workers 0`, and are refused there.

A mistake is one line on stderr and exit status 2; an address, a file or a driver that cannot be had, status 1; an
application that cannot be had, status 3.
"""


def page() -> str:
    """The whole page, from the package beside this script."""
    sys.path.insert(0, str(ROOT / "packages" / "kirsch" / "src"))
    from kirsch.config.schema import SETTINGS
    from kirsch.config.sections import SECTIONS

    lines = [HEAD]
    for section, prose in SECTIONS.items():
        lines += [f"## {section}", "", prose, ""]
        for each in SETTINGS:
            if each.section == section:
                value = f" {each.metavar}" if each.metavar else ""
                flags = ", ".join(f"`{flag}{value}`" for flag in each.flags + each.negations)
                default = "empty" if not each.default else f"`{each.default}`"
                variables = ", ".join(f"`{variable}`" for variable in each.variables)
                unit = f" ({each.kind.unit})" if each.kind.unit else ""
                marks = [
                    *([each.bounds] if each.bounds else []),
                    *([f"also in programs{unit}"] if each.in_programs else []),
                    *(["not by a reload"] if each.fixed else []),
                    *(["supervised"] if each.supervised else []),
                ]
                also = "".join(f"; {mark}" for mark in marks)
                lines += [f"### {each.name}", "", f"{flags}; {variables}; default {default}{also}", ""]
                lines += [each.prose, ""]
    return "\n".join(lines).rstrip() + "\n"


OPTIONS_HEAD = '''\
"""The static types of the keyword arguments of ``kirsch.Server`` and ``kirsch.serve``.

Written by scripts/settings_page.py from kirsch.config.schema; edit that. Only type checkers and editors read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kirsch.reports import Report


class Options(TypedDict, total=False):
    """Times are numbers of seconds (0: no limit), sizes numbers of bytes, or both text as on the command line: "90s".

    What is not given keeps its default.
    """
'''


def options_module() -> str:
    """``kirsch.config.options``: each setting of a program with its type, and its prose for editors to show."""
    sys.path.insert(0, str(ROOT / "packages" / "kirsch" / "src"))
    from kirsch.config.schema import SETTINGS

    lines = [OPTIONS_HEAD]
    for each in SETTINGS:
        if each.in_programs:
            default = f"Default: {each.default_and_bounds}. " if each.default_and_bounds else ""
            lines += [f"    {each.name}: {each.kind.annotation}", *_docstring(f"{default}{each.prose}"), ""]
    lines += ["    report: Report", *_docstring("Called with level, message and exception; default: logger kirsch.")]
    return "\n".join(lines) + "\n"


def _docstring(text: str) -> list[str]:
    return textwrap.wrap(f'"""{text}"""', 120, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def migrating() -> str:
    """The page about other servers with its tables, each between two comments, written anew."""
    from kirsch.config import compat
    from kirsch.config.compat import gunicorn, hypercorn

    text = MIGRATING.read_text(encoding="utf-8")
    tables = {server: _table("option", compat.grouped(server)) for server in compat.SERVERS}
    tables["gunicorn hooks"] = _table("hook", gunicorn.HOOKS.items())
    tables["gunicorn names"] = _table("name", gunicorn.NAMES.items())
    tables["hypercorn names"] = _table("name", hypercorn.NAMES.items())
    for name, table in tables.items():
        begin, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        if begin not in text:
            raise SystemExit(f"{MIGRATING.relative_to(ROOT)} has no place for the table {name}: write {begin!r}")
        before, _, after = text.partition(begin)
        text = before + begin + table + end + after.partition(end)[2]
    return text


def _table(heading: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {heading} | in Kirsch |", "|---|---|"]
    for spellings, answer in rows:
        shown = ", ".join(f"`{spelling}`" for spelling in spellings.split())
        lines.append(f"| {shown} | {_cell(answer)} |")
    return "\n".join(lines) + "\n"


def _cell(answer: str) -> str:
    """An answer of ``kirsch.config.compat`` in Markdown, with flags and the like as code."""
    from kirsch.config.compat import VALUE

    if answer.startswith("="):
        answer = "the same" + answer[1:]
    answer = answer.replace("{systemd}", "see [systemd](deploy/systemd.md)").replace("|", "\\|")
    code = (
        rf"--[a-z][a-z0-9-]*(?:[ =]{VALUE}|=(?= with))?|-b [\d.]+:PORT|kirsch\.toml|worker-st\w+"
        r"|(?:before|after)-fork|kirsch --help-all|kirsch (?:check|top|profile)(?: module:app)?(?: /path)?"
        r"|kirsch (?:module:\w+|path/to/app\.py)|kirsch '[^']+'"
    )
    return re.sub(rf"(?<![\w`-])(?:{code})", lambda match: f"`{match[0]}`", answer)


def pages() -> dict[Path, str]:
    """Return the content of each generated file."""
    sys.path.insert(0, str(ROOT / "packages" / "kirsch" / "src"))
    from kirsch import commands
    from kirsch.commands import man

    # The page that the wheel holds has the wheel's own commands, whatever is installed here.
    manual = f"{man.page(commands.COMMANDS)}\n"
    return {OPTIONS: options_module(), PAGE: page(), MANUAL: manual, MIGRATING: migrating()}


def main() -> int:
    """Write the pages, or with ``--check`` say whether they are what would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a page is not fresh")
    check = parser.parse_args().check
    status = 0
    for path, fresh in pages().items():
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fresh, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != fresh:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not fresh; run `python scripts/settings_page.py`\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
