"""Runs code written for CherryPy 18 on any WSGI server.

::

    import kirsch_cherrypy as cherrypy

    class Root:
        @cherrypy.expose
        def index(self):
            return "Hello"

    cherrypy.quickstart(Root())

A program of several files, or with libraries that import ``cherrypy``, calls :func:`install_as_cherrypy` first.
README.md lists the differences, and describes how to move a program to :mod:`kirsch_web` file by file.
"""

from __future__ import annotations

import sys as _sys
import threading as _threading
from types import ModuleType as _ModuleType
from types import SimpleNamespace as _SimpleNamespace
from typing import Any

# pip checks the version, but the package may also be imported from a folder.
if _sys.version_info < (3, 10):  # noqa: UP036
    raise ImportError(f"kirsch-cherrypy needs Python 3.10 or newer, and this is {_sys.version[:3]} ({_sys.executable})")

from kirsch_cherrypy import _cpconfig, _globals
from kirsch_cherrypy import _cpdispatch as _cpdispatch
from kirsch_cherrypy import _cperror as _cperror
from kirsch_cherrypy import _cprequest as _cprequest
from kirsch_cherrypy import _cpserver as _cpserver
from kirsch_cherrypy import _cptools as _cptools
from kirsch_cherrypy import _cptree as _cptree
from kirsch_cherrypy import _cpwsgi as _cpwsgi
from kirsch_cherrypy import _local as _local
from kirsch_cherrypy import lib as lib
from kirsch_cherrypy import process as process
from kirsch_cherrypy._cpconfig import config as config
from kirsch_cherrypy._cperror import CherryPyException as CherryPyException
from kirsch_cherrypy._cperror import HTTPError as HTTPError
from kirsch_cherrypy._cperror import HTTPRedirect as HTTPRedirect
from kirsch_cherrypy._cperror import InternalRedirect as InternalRedirect
from kirsch_cherrypy._cperror import NotFound as NotFound
from kirsch_cherrypy._cplogging import LogManager as _LogManager
from kirsch_cherrypy._cptools import Tool as Tool
from kirsch_cherrypy._cptree import Application as Application
from kirsch_cherrypy._globals import servers as servers
from kirsch_cherrypy._helper import expose as expose
from kirsch_cherrypy._helper import popargs as popargs
from kirsch_cherrypy._helper import url as url
from kirsch_cherrypy._install import install_as_cherrypy as install_as_cherrypy
from kirsch_cherrypy._local import serving as serving
from kirsch_cherrypy.process import plugins as _plugins
from kirsch_cherrypy.process.wspbus import bus as _bus

__version__ = _globals.version


class _GlobalLog(_LogManager):
    """``cherrypy.log``. During a request, it writes to the log of the request's application."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        app = _local.current().request.app
        (getattr(app, "log", None) or self).error(*args, **kwargs)

    def access(self) -> None:
        _local.current().request.app.log.access()


dispatch = _cpdispatch
engine: Any = _bus
request: Any = _local.Proxy("request")
response: Any = _local.Proxy("response")
checker = _SimpleNamespace(on=False)
"""A stand-in for CherryPy's configuration checker, so that programs can switch it off. It checks nothing."""
thread_data = _threading.local()
"""Thread-local attributes, usually set by callbacks of ``start_thread``."""


class _Package(_ModuleType):
    """The type of the package. Assigning to a global such as ``cherrypy.tree`` takes effect in its modules too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(_globals, name):
            setattr(_globals, name, value)
        super().__setattr__(name, value)


_globals.config = config
_globals.log = log = _GlobalLog()
_globals.tools = Application.toolboxes["tools"] = tools = _cptools.make_default()
_globals.tree = tree = _cptree.Tree()
_globals.server = server = _cpserver.Server()
_sys.modules[__name__].__class__ = _Package
server.subscribe()
_cprequest.Request.namespaces["tools"] = tools
_cprequest.Request.dispatch = _cpdispatch.default
_cprequest.fill_outside()

engine.thread_manager = _plugins.ThreadManager(engine)
engine.thread_manager.subscribe()
engine.signal_handler = _plugins.SignalHandler(engine)
engine.autoreload = _plugins.Autoreloader(engine)
engine.subscribe("log", lambda msg, level: log(msg, "ENGINE", severity=level))
engine.subscribe("graceful", log.reopen_files)

_cpconfig.Config.defaults = {
    f"tools.{name}.on": True for name in ("log_tracebacks", "log_headers", "trailing_slash", "encode")
}
config.namespaces = _cpconfig.Config.namespaces
config.reset()
config.namespaces(config)
log.screen = True


def quickstart(root: Any = None, script_name: str = "", config: Any = None) -> None:
    """Mount an object, start the engine and its HTTP server, and serve until it is stopped.

    Args:
        root: the root object, or an :class:`Application`.
        script_name: the path at which it is mounted.
        config: a dictionary or a file; its section ``[global]`` configures the process.
    """
    sections = lib.reprconf.Parser.load(config or {})
    _globals.config.update(sections.pop("global", {}))
    _globals.tree.mount(root, script_name, sections)
    engine.signal_handler.subscribe()
    engine.start()
    engine.block()


_session = _local.Proxy("session")


def __getattr__(name: str) -> Any:
    if name == "session":
        # hasattr(cherrypy, "session") is true once a first session has been created.
        if _globals.has_sessions:
            return _session
        raise AttributeError("there is no cherrypy.session: switch tools.sessions.on")
    if name == "_cache" and _globals.cache is not None:
        return _globals.cache
    raise AttributeError(f"kirsch_cherrypy has no attribute {name!r}")
