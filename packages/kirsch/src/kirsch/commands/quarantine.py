"""``kirsch quarantine``: list the quarantined routes of a running server, or lift the quarantine.

It reads the scoreboard of a supervisor on this machine. A user who may send the supervisor signals may also do this.
"""

from __future__ import annotations

import argparse
import time

from kirsch import reports
from kirsch.commands import top
from kirsch.commands.output import print_output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# How many seconds the command waits for the supervisor, which checks for requests a few times a second.
_PATIENCE_SECONDS = 10.0
_STEP_SECONDS = 0.05


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0, 1 if no server responds, or 2 for a wrong command line."""
    parser = top.Parser(
        prog="kirsch quarantine",
        description="List the routes that a server answers with 503 because they have crashed workers; lift them.",
        epilog="Without a pid it takes the only supervisor that this user may read.",
    )
    parser.add_argument("pid", nargs="?", type=_pid, metavar="PID", help="the supervisor's pid")
    parser.add_argument("-p", "--pid-file", metavar="FILE", help="the server's --pid-file")
    parser.add_argument("--lift", action="store_true", help="call the application for all routes again")
    try:
        chosen = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        if chosen.pid and chosen.pid_file:
            raise top.TopError("PID or --pid-file, not both")
        pid = chosen.pid or (top.pid_in(chosen.pid_file) if chosen.pid_file else top.only_supervisor())
        board = top.board_of(pid)
    except top.TopError as trouble:
        reports.write_stderr(f"kirsch quarantine: {trouble.problem}")
        return 1
    routes = board.quarantined()
    now = time.monotonic()
    for name, _since, until in routes:
        what = "lifted" if chosen.lift else f"for another {max(until - now, 0.0):.0f} s"
        print_output(f"{name}: {what}")
    if not routes:
        print_output("no route is in quarantine")
    elif chosen.lift:
        board.request_lift()
        while board.quarantined():
            if time.monotonic() >= now + _PATIENCE_SECONDS:
                reports.write_stderr(f"kirsch quarantine: the supervisor, pid {pid}, does not answer")
                return 1
            time.sleep(_STEP_SECONDS)
    return 0


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no pid")
    return int(text)
