"""The main function of the relay process of groups, a child of the supervisor."""

from __future__ import annotations

from kirsch.reports import CRITICAL
from kirsch.supervisor.metrics_process import set_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.monitor.scoreboard import Scoreboard
    from kirsch.reports import ErrorLog


def run(relay_end: int, url: str, report: ErrorLog, board: Scoreboard) -> int:
    """Run the relay until SIGTERM, or until the supervisor has exited. Return the exit status."""
    from kirsch.groups import relay

    set_signals()
    try:
        return relay.serve(relay_end, url, report, board.count_group_messages, board.rate_limits)
    except ImportError as error:
        report(CRITICAL, f"--groups {url.partition(':')[0]}: {error}")
        return 1
