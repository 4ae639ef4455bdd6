"""What runs in a worker, written on the scoreboard while somebody looks at it (``kirsch top``, the status page).

It costs a stack for each request, so nobody does it for nobody: whoever looks says so on the board, and the control
thread of each worker shows what there is, once a second, for some seconds.
"""

from __future__ import annotations

import os
import time

from kirsch.scoreboard import RUNNING_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.scoreboard import Slot
    from kirsch.server import Server

REQUESTS_MAX = 32
"""Of more, the oldest are shown."""

_STACK_MAX = 12


def publish(slot: Slot, server: Server) -> None:
    """In the worker, from any thread, once a second: show what runs, if somebody looks."""
    if not slot.board.is_observed:
        return
    import json  # the channel has loaded it, so that this waits for no import in a thread

    requests = [
        {**exchange, "stack": exchange["stack"][-_STACK_MAX:], "thread": exchange["thread"][:100]}
        for exchange in server.running(REQUESTS_MAX)
    ]
    record = {"pid": os.getpid(), "at": time.monotonic(), "requests": requests}
    while len(data := json.dumps(record, separators=(",", ":")).encode()) > RUNNING_BYTES_MAX:
        del requests[-1 - len(requests) // 8 :]
    slot.publish_running(data)
