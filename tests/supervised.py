"""The application of the tests of supervisors, and requests to it."""

from __future__ import annotations

import http.client
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running

    Write = Callable[[str], str]


APP = """
    import os, time

    def app(environ, start_response):
        path = environ["PATH_INFO"]
        if path == "/die":
            os._exit(9)
        if path == "/wait":
            print("waits", file=environ["wsgi.errors"], flush=True)
            time.sleep(float(environ["QUERY_STRING"]))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(os.getpid()).encode()]
"""


def in_background(site: Running, path: str) -> Callable[[], str]:
    """Request ``path`` in a thread. Return a function that waits for the answer, and returns it or the error."""
    answers: list[str] = []

    def ask() -> None:
        try:
            answers.append(site.page(path))
        except (OSError, http.client.HTTPException) as error:
            answers.append(repr(error))

    thread = threading.Thread(target=ask)
    thread.start()

    def answer() -> str:
        thread.join(10)
        return answers[0]

    return answer
