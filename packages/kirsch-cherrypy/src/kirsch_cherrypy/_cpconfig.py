"""The configuration of the process, the decorator ``config``, and merging."""

from __future__ import annotations

from typing import Any

from kirsch_cherrypy import _globals
from kirsch_cherrypy._cpserver import Server
from kirsch_cherrypy.lib import reprconf
from kirsch_cherrypy.process.wspbus import bus


def merge(base: dict[str, Any], other: Any) -> None:
    """Merge the sections of a dictionary or file into an application's configuration, key by key in each section."""
    for section, values in reprconf.Parser.load(other).items():
        if not isinstance(values, dict):
            raise ValueError(
                f"{section!r} is a value outside of a section: an application's configuration has sections by path, as "
                "in {'/': {'tools.gzip.on': True}}"
            )
        base.setdefault(section, {}).update(values)


class ProcessConfig(reprconf.Config):
    """``cherrypy.config``, the global values. Calling it returns a decorator that configures a handler or class."""

    def _apply(self, config: dict[str, Any]) -> None:
        if isinstance(config.get("global"), dict):
            if len(config) > 1:
                _globals.log(
                    "The configuration has sections beside [global], which belong to an application and are ignored: "
                    "give them to tree.mount() or quickstart().",
                    "CONFIG",
                )
            config = dict(config["global"])
        if "tools.staticdir.dir" in config:
            config["tools.staticdir.section"] = "global"
        super()._apply(config)

    @staticmethod
    def __call__(**kwargs: Any) -> Any:
        """Return a decorator that configures a handler or class. It overrides the values of decorators below it."""

        def decorate(target: Any) -> Any:
            if "_cp_config" not in vars(target):
                target._cp_config = {}
            target._cp_config.update(kwargs)
            return target

        return decorate


Config = ProcessConfig  # CherryPy's name
config: Any = ProcessConfig.__new__(ProcessConfig)
"""``cherrypy.config``. The package initializes it last, because its handlers need the whole package."""

_OFF = dict.fromkeys(("engine.autoreload.on", "checker.on", "tools.log_headers.on"), False)
_SHOWN = ("request.show_tracebacks", "request.show_mismatched_params")
_STAGING = {**_OFF, **dict.fromkeys(_SHOWN, False)}
_PRODUCTION = {**_STAGING, "log.screen": False}
Config.environments = {
    "staging": _STAGING,
    "production": _PRODUCTION,
    "embedded": {**_PRODUCTION, "engine.SIGHUP": None, "engine.SIGTERM": None},
    "test_suite": {**_OFF, **dict.fromkeys(_SHOWN, True), "log.screen": False},
}


def _server_namespace(key: str, value: Any) -> None:
    """Set ``server.OPTION``, or ``server.NAME.OPTION`` of an additional server, which is created if necessary."""
    name, dot, option = key.rpartition(".")
    server = _globals.server
    if dot:
        if name not in _globals.servers:
            _globals.servers[name] = Server()
            _globals.servers[name].subscribe()
        server = _globals.servers[name]
        if option == "on":
            (server.subscribe if value else server.unsubscribe)()
            return
        option = {"instance": "httpserver"}.get(option, option)
    setattr(server, option, value)


def _engine_namespace(key: str, value: Any) -> None:
    """Set ``engine.OPTION``, ``engine.PLUGIN.on``, ``engine.PLUGIN.OPTION``, or the callback of a signal."""
    plugin, dot, option = key.rpartition(".")
    target = getattr(bus, plugin) if dot else bus
    if key in ("SIGHUP", "SIGTERM"):
        bus.subscribe(key, value)
    elif dot and option == "on":
        # An object that a program put on the engine need not be a plugin.
        getattr(target, "subscribe" if value else "unsubscribe", lambda: None)()
    else:
        setattr(target, option, value)


def _tree_namespace(_key: str, value: Any) -> None:
    """Mount the value of ``tree.NAME``: a WSGI callable, or a dictionary of them by path."""
    for path, app in (value if isinstance(value, dict) else {"": value}).items():
        _globals.tree.graft(app, path)


Config.namespaces["server"] = _server_namespace
Config.namespaces["engine"] = _engine_namespace
Config.namespaces["tree"] = _tree_namespace
Config.namespaces["log"] = lambda key, value: setattr(_globals.log, key, value)
Config.namespaces["checker"] = lambda _key, _value: None  # no checks needed: unknown tools raise
