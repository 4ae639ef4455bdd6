"""``kirsch adopt PATH``: write kirsch.toml from the configuration of another server; compare both; undo it.

Exit status: 0 if the configuration was adopted, or both servers respond alike; 1 if there is a difference or manual
work; 2 if nothing can be adopted.
"""

from __future__ import annotations

import os

from kirsch import reports
from kirsch.adopt import readers, writing
from kirsch.adopt.adoption import AdoptError
from kirsch.commands.output import print_output, table
from kirsch.commands.top import Parser
from kirsch.config import sources
from kirsch.config.compat.conversion import LEFT_OUT
from kirsch.config.setting import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kirsch.adopt.adoption import Adoption


def main(argv: Sequence[str]) -> int:
    """Run the command, and return its exit status."""
    parser = _parser()
    try:
        chosen = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        if chosen.undo:
            for line in writing.undo(_directory(chosen.path, chosen.output)):
                print_output(line)
            return 0
        plan = readers.read(chosen.path)
        if chosen.print:
            print_output(writing.toml_text(plan).rstrip("\n"))
            _show(plan, quiet=True)
            return 1 if plan.by_hand else 0
        if not chosen.compare:
            return _adopt(plan, _directory(chosen.path, chosen.output), force=chosen.force)
        from kirsch.adopt import compare

        return compare.main(plan, chosen, _directory(chosen.path, chosen.output))
    except AdoptError as error:
        reports.write_stderr(f"kirsch adopt: {chosen.path}: {error}")
        return 2
    except OSError as error:
        reports.write_stderr(f"kirsch adopt: {error.filename or chosen.path}: {error.strerror}")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="kirsch adopt",
        description="Write kirsch.toml from the configuration of another server, with the origin of each line.",
        epilog="PATH is a Procfile, Dockerfile, compose file, systemd unit, supervisord or Apache configuration, "
        "gunicorn.conf.py, uwsgi.ini, a script that starts a server, or a directory with one of them; or a command in "
        "quotes. The files are not changed.",
    )
    parser.add_argument("path", metavar="PATH", nargs="?", default=".", help="the configuration (default: .)")
    parser.add_argument("-o", "--output", metavar="DIRECTORY", help="write there, and not beside PATH")
    parser.add_argument("--print", action="store_true", help="print kirsch.toml, and write nothing")
    parser.add_argument("--force", action="store_true", help="replace a kirsch.toml, and keep it beside the new one")
    parser.add_argument("--undo", action="store_true", help="remove what was written, and give back what was there")
    parser.add_argument("--compare", action="store_true", help="start both servers, send requests, show differences")
    parser.add_argument("--requests", metavar="FILE", help="a HAR file, an access log, or a list of METHOD PATH")
    parser.add_argument("--old", metavar="COMMAND", help="the command of the old server, with {port} for its port")
    parser.add_argument("--all-methods", action="store_true", help="send other requests than GET and HEAD too")
    parser.add_argument("--repeat", metavar="N", type=int, default=5, help="send each request N times (default: 5)")
    return parser


def _directory(path: str, output: str | None) -> str:
    """Return the directory in which kirsch.toml is written."""
    if output:
        return output
    return path if os.path.isdir(path) else os.path.dirname(path) or "."


def _adopt(plan: Adoption, directory: str, *, force: bool) -> int:
    written = writing.write(plan, directory, force=force)
    for path in written:
        print_output(f"wrote {path}")
    _show(plan)
    for line in problems(written[0]):
        reports.write_stderr(f"kirsch adopt: {line}")
        return 1
    return 1 if plan.by_hand else 0


def _show(plan: Adoption, *, quiet: bool = False) -> None:
    """Print the notes about options that did not become settings, and the command that starts the server."""
    rows = [(f"  {result}", note.option or "-", f"{note.say} ({origin})" if note.say else origin)
            for origin, note in plan.notes for result in [note.result]
            if not (quiet and note.result == LEFT_OUT)]  # fmt: skip
    if rows:
        text = table(rows)
        print_output(f"\n{text}" if not quiet else "\n".join(f"# {line.strip()}" for line in text.splitlines()))
    if not quiet:
        where = f" in {plan.directory}" if plan.directory else ""
        print_output(
            f"\nStart the server with `{plan.start_command()}`{where}. Before: {' '.join(plan.command) or plan.server}"
        )


def problems(path: str) -> list[str]:
    """Return the errors that Kirsch would report for the settings file at ``path``."""
    try:
        sources.read(["--config", os.path.abspath(path)], {}, os.path.dirname(os.path.abspath(path)))
    except UsageError as error:
        return [line for line in str(error).splitlines() if line != sources.NO_APPLICATION]
    return []
