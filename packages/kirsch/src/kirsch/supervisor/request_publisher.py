"""The running requests of a worker, published on the scoreboard while ``kirsch top`` or the status page displays them.

A stack is taken of each request, which is too expensive to do without need. The reader therefore marks the scoreboard,
and for some seconds the control thread of each worker publishes its requests once a second.
"""

from __future__ import annotations

import os
import time

from kirsch.monitor.scoreboard import RUNNING_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.monitor.scoreboard import Slot
    from kirsch.server import Server

REQUESTS_MAX = 32
"""If more requests run, the oldest are published."""

_STACK_MAX = 12


def publish(slot: Slot, server: Server) -> None:
    """In the worker, from any thread, once a second: publish its running requests if a reader has asked for them."""
    if not slot.board.is_observed:
        return
    import json  # the control channel has imported it, so no thread waits for an import here

    requests = [
        {**exchange, "stack": exchange["stack"][-_STACK_MAX:], "thread": exchange["thread"][:100]}
        for exchange in server.running(REQUESTS_MAX)
    ]
    record = {"pid": os.getpid(), "at": time.monotonic(), "requests": requests}
    while len(data := json.dumps(record, separators=(",", ":")).encode()) > RUNNING_BYTES_MAX:
        del requests[-1 - len(requests) // 8 :]
    slot.publish_running(data)
