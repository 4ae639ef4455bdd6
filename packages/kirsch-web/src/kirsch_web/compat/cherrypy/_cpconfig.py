"""The configuration of the process, the decorator ``config``, and merging."""

from __future__ import annotations

from typing import Any

from kirsch_web.compat.cherrypy.lib import reprconf


def merge(base: dict[str, Any], other: Any) -> None:
    """Merge the sections of a dictionary or file into the configuration of an application, path by path."""
    for section, values in reprconf.Parser.load(other).items():
        if not isinstance(values, dict):
            raise ValueError(
                "Application config must include section headers, but the config you tried to merge doesn't have any "
                "sections. Wrap your config in another dict with paths as section headers, for example: {'/': config}."
            )
        base.setdefault(section, {}).update(values)


class Config(reprconf.Config):
    """``cherrypy.config``: the values that hold everywhere. Calling it decorates a handler or a class with its own."""

    def update(self, config: Any) -> None:  # type: ignore[override]
        """Add values; of a file with sections, those of ``[global]``."""
        loaded = reprconf.Parser.load(config)
        self._apply(loaded)

    def _apply(self, config: dict[str, Any]) -> None:
        if isinstance(config.get("global"), dict):
            if len(config) > 1:
                from kirsch_web.compat.cherrypy import log

                log("The configuration has sections beside [global], which belong to an application and are ignored: "
                    "give them to tree.mount() or quickstart().", "CONFIG")  # fmt: skip
            config = dict(config["global"])
        if "tools.staticdir.dir" in config:
            config["tools.staticdir.section"] = "global"
        super()._apply(config)

    @staticmethod
    def __call__(**kwargs: Any) -> Any:
        """Decorator: set configuration on a handler or class; the values beat those of the decorators beneath it."""

        def decorate(target: Any) -> Any:
            if "_cp_config" not in vars(target):
                target._cp_config = {}
            target._cp_config.update(kwargs)
            return target

        return decorate


config: Any = Config.__new__(Config)
"""``cherrypy.config``. The package fills it, because its handlers need all that the package has."""

Config.environments = {
    "staging": {
        "engine.autoreload.on": False, "checker.on": False, "tools.log_headers.on": False,
        "request.show_tracebacks": False, "request.show_mismatched_params": False,
    },
    "production": {
        "engine.autoreload.on": False, "checker.on": False, "tools.log_headers.on": False,
        "request.show_tracebacks": False, "request.show_mismatched_params": False, "log.screen": False,
    },
    "embedded": {
        "engine.autoreload.on": False, "checker.on": False, "tools.log_headers.on": False,
        "request.show_tracebacks": False, "request.show_mismatched_params": False, "log.screen": False,
        "engine.SIGHUP": None, "engine.SIGTERM": None,
    },
    "test_suite": {
        "engine.autoreload.on": False, "checker.on": False, "tools.log_headers.on": False,
        "request.show_tracebacks": True, "request.show_mismatched_params": True, "log.screen": False,
    },
}  # fmt: skip


def _server_namespace(key: str, value: Any) -> None:
    import kirsch_web.compat.cherrypy as cherrypy

    name, dot, attribute = key.rpartition(".")
    if not dot:
        setattr(cherrypy.server, key, value)
        return
    if name not in cherrypy.servers:
        from kirsch_web.compat.cherrypy import _cpserver

        cherrypy.servers[name] = _cpserver.Server()
        cherrypy.servers[name].subscribe()
    if attribute == "on":
        (cherrypy.servers[name].subscribe if value else cherrypy.servers[name].unsubscribe)()
    else:
        setattr(cherrypy.servers[name], "httpserver" if attribute == "instance" else attribute, value)


def _engine_namespace(key: str, value: Any) -> None:
    from kirsch_web.compat.cherrypy import engine

    if key in ("SIGHUP", "SIGTERM"):
        engine.subscribe(key, value)
    elif "." in key:
        plugin_name, attribute = key.split(".", 1)
        plugin = getattr(engine, plugin_name)
        if attribute == "on":
            operation = getattr(plugin, "subscribe" if value else "unsubscribe", None)
            if callable(operation):
                operation()
            return
        setattr(plugin, attribute, value)
    else:
        setattr(engine, key, value)


def _tree_namespace(_key: str, value: Any) -> None:
    import kirsch_web.compat.cherrypy as cherrypy

    apps = value if isinstance(value, dict) else {"": value}
    for path, app in apps.items():
        cherrypy.tree.graft(app, path)


def _log_namespace(key: str, value: Any) -> None:
    import kirsch_web.compat.cherrypy as cherrypy

    setattr(cherrypy.log, key, value)


def _checker_namespace(_key: str, _value: Any) -> None:
    """``checker.on``: this layer has no checker, because an unknown tool fails with its name."""


Config.namespaces["server"] = _server_namespace
Config.namespaces["engine"] = _engine_namespace
Config.namespaces["tree"] = _tree_namespace
Config.namespaces["log"] = _log_namespace
Config.namespaces["checker"] = _checker_namespace
