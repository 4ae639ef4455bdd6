"""``kirsch man``: the manual page, generated from the settings. The wheel has it as share/man/man1/kirsch.1 too."""

from __future__ import annotations

from kirsch import commands
from kirsch.commands.output import print_output
from kirsch.config.schema import SETTINGS
from kirsch.config.sections import SECTIONS
from kirsch.config.setting import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch.commands import Command

HELP = """\
usage: kirsch man

Prints the manual page, as troff: kirsch man | man -l -"""

_HEAD = r"""'\" t
.\" Generated from packages/kirsch/src/kirsch/config/schema.py by scripts/settings_page.py.
.TH KIRSCH 1
.SH NAME
kirsch \- serve a Python web application (WSGI or ASGI) over HTTP/1.1
.SH SYNOPSIS
.B kirsch
.RI [ options ]
.I application
.br
.B kirsch
.I command
\&...
.SH DESCRIPTION
Serves a WSGI application (PEP 3333) or an ASGI 3 application.
The
.I application
is
.BR module:object ,
.B module
alone (its app or application, or what its create_app() or make_app() returns),
.BR path/to/file.py ,
or a call of a factory such as
.BR "'shop:create_app(\(dqprod\(dq)'" .
.PP
Each option has an environment variable, and a key in
.I kirsch.toml
or in the table [tool.kirsch] of
.IR pyproject.toml .
Options win over variables, variables over the file, the file over the default."""

_TAIL = r""".SH SIGNALS
.TP
.B TERM
Stop, and let requests in flight finish for \-\-graceful\-timeout. A second one cuts them.
.TP
.BR INT ", " QUIT
Stop, and leave one second to requests in flight.
.TP
.B HUP
Read the settings file again, and replace the workers one by one.
.TP
.B USR1
Open the logs again, after a rotation.
.TP
.B USR2
Execute the installed version of Kirsch in this process, and replace the workers.
.TP
.BR TTIN ", " TTOU
One worker more, one less.
.SH EXIT STATUS
.TP
.B 0
It served, or did what was asked.
.TP
.B 1
An address, a file or a driver is not available.
.TP
.B 2
The command line, the environment or the settings file is wrong.
.TP
.B 3
The application cannot be loaded.
.TP
.B 75
A server without a supervisor ended because a request did not end after its deadline.
.SH FILES
.TP
.IR kirsch.toml ", " pyproject.toml
Settings, looked for in the current directory."""


def main(argv: Sequence[str]) -> int:
    """Run the subcommand with the words after its name; return its exit status. Raises UsageError."""
    if "-h" in argv or "--help" in argv:
        print_output(HELP)
        return 0
    if argv:
        is_command = argv[0] in commands.names()
        hint = f"kirsch help {argv[0]} tells about the command" if is_command else "write kirsch man alone"
        raise UsageError(f"kirsch man takes no arguments, and there is {argv[0]!r}; {hint}")
    print_output(page(commands.installed()))
    return 0


def page(present: dict[str, Command]) -> str:
    """Return the page in troff with man(7) macros, with the commands ``present``."""
    lines = [_HEAD, ".SH COMMANDS"]
    for name, command in present.items():
        lines += [".TP", f".B kirsch {name}", _text(command.summary)]
    if missing := commands.not_installed(present):
        lines += [".PP", _text(missing)]
    lines += [
        ".SH OPTIONS",
        ".TP",
        r"\fB\-h\fR, \fB\-\-help\fR",
        "Print the most needed of this.",
        ".TP",
        r".B \-\-help\-all",
        "Print all settings.",
        ".TP",
        r"\fB\-v\fR, \fB\-\-version\fR",
        "Print the versions of Kirsch and Python.",
    ]
    for section, prose in SECTIONS.items():
        lines += [f".SS {_text(section)}", _text(prose)]
        for each in SETTINGS:
            if each.section == section:
                flags = ", ".join(rf"\fB{_escaped(flag)}\fR" for flag in (*each.flags, *each.negations))
                value = rf" \fI{_escaped(each.metavar)}\fR" if each.metavar else ""
                lines += [".TP", f"{flags}{value}", _text(each.prose)]
                default = f"Default: {each.default_and_bounds}. " if each.default_and_bounds else ""
                lines += [".br", _text(f"{default}Environment: {', '.join(each.variables)}.")]
    return "\n".join([*lines, _TAIL])


def _text(prose: str) -> str:
    """Return a troff paragraph with one sentence per line; no line can be taken for a macro."""
    lines = _escaped(prose).replace(". ", ".\n").split("\n")
    return "\n".join(rf"\&{line}" if line.startswith((".", "'")) else line for line in lines)


def _escaped(text: str) -> str:
    return (
        text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("^", r"\(ha").replace("`", r"\(ga")
    )
