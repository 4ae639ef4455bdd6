"""Publication of a worker's running requests on the scoreboard, while ``kirsch top`` or the status page displays them.
Each request is published with its stack, which is too expensive to do all the time. So the reader marks the scoreboard,
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
    """Publish the running requests of this worker, if a reader has asked for them. Called once a second, in any
    thread."""
    if not slot.board.is_observed:
        return
    import json  # already imported by the control channel, so no thread waits for the import

    requests = [
        {**exchange, "stack": exchange["stack"][-_STACK_MAX:], "thread": exchange["thread"][:100]}
        for exchange in server.running(REQUESTS_MAX)
    ]
    record = {"pid": os.getpid(), "at": time.monotonic(), "requests": requests}
    while len(data := json.dumps(record, separators=(",", ":")).encode()) > RUNNING_BYTES_MAX:
        del requests[-1 - len(requests) // 8 :]
    slot.publish_running(data)
