"""Runs code written for CherryPy 18 on any WSGI server.

::

    import kirsch_web.compat.cherrypy as cherrypy

    class Root:
        @cherrypy.expose
        def index(self):
            return "Hello"

    cherrypy.quickstart(Root())

What is different, and how to move a program file by file to :mod:`kirsch_web` itself, is told in docs/cherrypy.md.
"""

from __future__ import annotations

import threading as _threading
from typing import Any

from kirsch_web.compat.cherrypy._cpconfig import Config as _Config
from kirsch_web.compat.cherrypy._cpconfig import config as config
from kirsch_web.compat.cherrypy._cperror import (
    CherryPyException as CherryPyException,
)
from kirsch_web.compat.cherrypy._cperror import (
    HTTPError as HTTPError,
)
from kirsch_web.compat.cherrypy._cperror import (
    HTTPRedirect as HTTPRedirect,
)
from kirsch_web.compat.cherrypy._cperror import (
    InternalRedirect as InternalRedirect,
)
from kirsch_web.compat.cherrypy._cperror import (
    NotFound as NotFound,
)
from kirsch_web.compat.cherrypy._cplogging import LogManager as _LogManager
from kirsch_web.compat.cherrypy._helper import expose as expose
from kirsch_web.compat.cherrypy._helper import popargs as popargs
from kirsch_web.compat.cherrypy._helper import url as url
from kirsch_web.compat.cherrypy._local import Proxy as _Proxy
from kirsch_web.compat.cherrypy._local import current as _current
from kirsch_web.compat.cherrypy._local import serving as serving
from kirsch_web.compat.cherrypy.process import plugins as _plugins
from kirsch_web.compat.cherrypy.process.wspbus import bus as _bus

__version__ = "18.10.0"
"""The release of CherryPy whose behaviour this layer has."""


class _GlobalLog(_LogManager):
    """``cherrypy.log``: inside a request it writes to the log of the request's application."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        app = _current().request.app
        log = getattr(app, "log", None) or self
        log.error(*args, **kwargs)

    def access(self) -> None:
        _current().request.app.log.access()


log = _GlobalLog()
engine: Any = _bus
request: Any = _Proxy("request")
response: Any = _Proxy("response")
thread_data = _threading.local()
"""What belongs to a thread; a callback of ``start_thread`` fills it."""

servers: dict[str, Any] = {}

from kirsch_web.compat.cherrypy import _cpdispatch as _cpdispatch  # noqa: E402
from kirsch_web.compat.cherrypy import _cperror as _cperror  # noqa: E402
from kirsch_web.compat.cherrypy import _cprequest as _cprequest  # noqa: E402

_cprequest.fill_outside()
_cprequest.Request.dispatch = _cpdispatch.default

from kirsch_web.compat.cherrypy import _cpserver as _cpserver  # noqa: E402
from kirsch_web.compat.cherrypy import _cptools as _cptools  # noqa: E402
from kirsch_web.compat.cherrypy import _cptree as _cptree  # noqa: E402
from kirsch_web.compat.cherrypy import _cpwsgi as _cpwsgi  # noqa: E402
from kirsch_web.compat.cherrypy import lib as lib  # noqa: E402
from kirsch_web.compat.cherrypy import process as process  # noqa: E402
from kirsch_web.compat.cherrypy._cptools import Tool as Tool  # noqa: E402
from kirsch_web.compat.cherrypy._cptree import Application as Application  # noqa: E402

dispatch = _cpdispatch
tools: Any = _cptools.make_default()
_cprequest.Request.namespaces["tools"] = tools
tree: Any = _cptree.Tree()
server: Any = _cpserver.Server()
server.subscribe()

engine.thread_manager = _plugins.ThreadManager(engine)
engine.thread_manager.subscribe()
engine.signal_handler = _plugins.SignalHandler(engine)
engine.autoreload = _plugins.Autoreloader(engine)
engine.subscribe("log", lambda msg, level: log(msg, "ENGINE", severity=level))
engine.subscribe("graceful", log.reopen_files)


def quickstart(root: Any = None, script_name: str = "", config: Any = None) -> None:
    """Mount an object, start the engine and its HTTP server, and serve until it is stopped.

    Args:
        root: the object, or an :class:`Application`.
        script_name: the path that it is mounted at.
        config: a dictionary or a file; its section ``[global]`` is for the process.
    """
    if config:
        _global_config.update(lib.reprconf.Parser.load(config).get("global", {}))
    sections = {path: values for path, values in lib.reprconf.Parser.load(config or {}).items() if path != "global"}
    tree.mount(root, script_name, sections)
    engine.signal_handler.subscribe()
    engine.start()
    engine.block()


_global_config = config

_Config.defaults = {
    "tools.log_tracebacks.on": True,
    "tools.log_headers.on": True,
    "tools.trailing_slash.on": True,
    "tools.encode.on": True,
}

config.namespaces = _Config.namespaces
config.reset()
config.namespaces(config)
log.screen = True


def __getattr__(name: str) -> Any:
    if name == "session":
        # The tool makes the proxy when the first session begins; until then a program may ask whether there is one.
        raise AttributeError("there is no cherrypy.session: switch tools.sessions.on")
    raise AttributeError(f"kirsch_web.compat.cherrypy has no attribute {name!r}")
