"""What the command says on standard output when it is asked something: help, tables, one line."""

from __future__ import annotations

import os
import sys

from kirsch.assembly import EXIT_FAILED, AssemblyError
from kirsch.settings import SECTIONS, SETTINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def answer(text: str) -> None:
    """``text`` to stdout. A reader that has gone (``kirsch --help | head -1``) has seen what it wanted."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would be tried again, and complained about, at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise AssemblyError(EXIT_FAILED, f"cannot write to standard output: {error.strerror}") from None


def table(rows: Iterable[tuple[str, ...]], indent: str = "") -> str:
    """``rows`` as lines, in columns that are as wide as they must be."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        indent + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def help_text(commands: Mapping[str, str]) -> str:
    """What ``kirsch --help`` prints: ``commands``, and every setting by section, with its default and its variable."""
    import shutil
    import textwrap

    width = max(60, min(shutil.get_terminal_size().columns, 100))
    wrap = textwrap.TextWrapper(
        width, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False, break_long_words=False
    )
    lines = [
        "usage: kirsch [options] module:app",
        f"       kirsch {'|'.join(commands)} ...",
        "",
        "Serve the WSGI application `app` of `module` over HTTP/1.1.",
        "",
        "  kirsch hello:app                     the object app of hello.py, on 127.0.0.1:8000",
        "  kirsch hello                         the same: app, or else application",
        "  kirsch 'hello:create_app()'          what this function returns",
        "  kirsch -b :8000 -b unix:/run/h.sock --access-logfile - hello:app",
        "",
        *textwrap.wrap(
            "Each option has an environment variable, named in brackets, and a key of the same name in the settings "
            "file, kirsch.toml or [tool.kirsch] in pyproject.toml. Options win over variables, variables over the "
            "file.",
            width,
        ),
        "",
        "Commands (kirsch COMMAND --help tells more):",
        "",
    ]
    for name, prose in commands.items():
        lines += [f"  {name}", *wrap.wrap(prose)]
    for section, prose in SECTIONS.items():
        lines += ["", f"{section}:", *textwrap.wrap(prose, width, initial_indent="  ", subsequent_indent="  "), ""]
        for each in SETTINGS:
            if each.section == section:
                lines.append("  " + " ".join((", ".join(each.flags), each.metavar)).rstrip())
                default = "" if each.is_switch or not each.default else f"default {each.default}; "
                lines += wrap.wrap(f"{each.prose} [{default}{', '.join(each.variables)}]")
    lines += ["", "Help:", "", "  -h, --help", *wrap.wrap("Print this, and exit.")]
    lines += ["  --version", *wrap.wrap("Print the versions of Kirsch and Python, and exit.")]
    return "\n".join(lines)
