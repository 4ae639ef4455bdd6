"""Server-sent events: a page whose clock the server sets, until the reader leaves.

kirsch clock:app
"""

import time
from collections.abc import Iterator

import kirsch_web as web

PAGE = """<!DOCTYPE html><title>Clock</title><h1 id="now">...</h1>
<script>
new EventSource("/ticks").onmessage = event => document.getElementById("now").textContent = event.data
</script>"""


class Root:
    def index(self) -> str:
        return PAGE

    def ticks(self, count: int = 0) -> web.Response:
        """GET /ticks: an event each second; ``count`` of them, or without an end."""

        def tick() -> Iterator[web.Event]:
            number = 0
            while not count or number < count:
                number += 1
                yield web.Event(time.strftime("%H:%M:%S"), id=str(number))
                if number != count:
                    time.sleep(1)

        return web.events(tick())


app = web.App(Root())
