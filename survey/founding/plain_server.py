"""wsgiref as the document starts it, with its own listening queue: ``python plain_server.py HOST PORT MODULE:APP``.

With ``--patched`` the standard library is patched by gevent before, which changes nothing: the server is the one that
would have to go on with somebody else while the application sleeps.
"""

from __future__ import annotations

import importlib
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    """No line for each request: nobody else writes one."""

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    """Serve until killed."""
    words = sys.argv[1:]
    if "--patched" in words:
        words.remove("--patched")
        importlib.import_module("gevent.monkey").patch_all()
    host, port, target = words
    module, _, name = target.partition(":")
    application = getattr(importlib.import_module(module), name)
    make_server(host, int(port), application, handler_class=Quiet).serve_forever()


if __name__ == "__main__":
    main()
