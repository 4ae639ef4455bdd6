"""Applications, and the tree of their mount points. Both are WSGI callables."""

from __future__ import annotations

import re
from typing import Any

from kirsch_cherrypy import _cpconfig, _cplogging, _cprequest, _cpwsgi, _globals, _local
from kirsch_cherrypy.lib import httputil, reprconf
from kirsch_cherrypy.process.wspbus import bus


class Application:
    """A WSGI callable that serves a tree of objects with a configuration.

    Args:
        root: the object for the path ``/``.
        script_name: the path at which it is mounted, or None to use SCRIPT_NAME of each request's environ.
        config: the sections of the configuration, by path.
    """

    root: Any = None
    config: dict[str, dict[str, Any]]
    relative_urls: Any = False
    toolboxes: dict[str, Any] = {}  # noqa: RUF012 - shared by all applications: libraries add theirs
    request_class: Any = _cprequest.Request
    response_class: Any = _cprequest.Response

    def __init__(self, root: Any, script_name: str | None = "", config: Any = None) -> None:
        self.log = _cplogging.LogManager(id(self), _globals.log.logger_root)
        self.wsgiapp = _cpwsgi.CPWSGIApp(self)
        self.root, self.script_name = root, script_name
        self.namespaces = reprconf.NamespaceSet()
        self.namespaces["log"] = lambda key, value: setattr(self.log, key, value)
        self.namespaces["wsgi"] = self.wsgiapp.namespace_handler
        self._plans: dict[Any, list[Any]] = {}
        self.config = {"/": {}}
        if config:
            self.merge(config)

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}({self.root!r}, {self.script_name!r})"

    @property
    def script_name(self) -> Any:
        """The mount point, without a trailing slash."""
        if self._script_name is None:
            # Another program mounts the application, so each request has the mount point.
            environ = _local.current().request.wsgi_environ
            return environ.get("SCRIPT_NAME", "").rstrip("/").encode("latin-1").decode("utf-8", "replace")
        return self._script_name

    @script_name.setter
    def script_name(self, value: str | None) -> None:
        self._script_name = value.rstrip("/") if value else value

    def merge(self, config: Any) -> None:
        """Merge a configuration, which is a dictionary of sections or a file, into that of the application."""
        _cpconfig.merge(self.config, config)
        self.namespaces(self.config.get("/", {}))

    def find_config(self, path: str, key: str, default: Any = None) -> Any:
        """Return the value of ``key`` from the most specific section for ``path`` that has it, or ``default``."""
        below = path + "/"
        found = [
            name for name, section in self.config.items()
            if key in section and (name == "/" or below.startswith(name + "/"))
        ]  # fmt: skip
        return self.config[max(found, key=len)][key] if found else default

    def get_serving(self, local: Any, remote: Any, scheme: str, sproto: str) -> Any:
        """Create a request and its response, make them the current ones in :data:`serving`, and return them."""
        request = self.request_class(local, remote, scheme, sproto)
        request.app = self
        for name, toolbox in self.toolboxes.items():
            if request.namespaces.get(name) is not toolbox:
                request.namespaces[name] = toolbox
        response = self.response_class()
        _local.serving.load(request, response)
        bus.publish("acquire_thread")
        bus.publish("before_request")
        return request, response

    def release_serving(self) -> None:
        """End the current request."""
        bus.publish("after_request")
        try:
            _local.current().request.close()
        except Exception:  # noqa: BLE001 - the response has already been sent
            self.log("The end of a request failed", traceback=True, severity=40)
        finally:
            _local.serving.clear()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        return self.wsgiapp(environ, start_response)


class Tree:
    """A WSGI callable that passes requests to other WSGI callables by their mount points."""

    def __init__(self) -> None:
        self.apps: dict[str, Any] = {}

    def mount(self, root: Any, script_name: str | None = "", config: Any = None) -> Any:
        """Mount an object as an application, and return the application."""
        if script_name is None:
            raise TypeError(
                "a tree mounts at a path, and None is none. Give Application(root, None), which takes its path from "
                "each request's environ, to a WSGI server without a tree"
            )
        name = script_name.rstrip("/")
        if isinstance(root, Application):
            if name not in ("", root.script_name):
                raise ValueError("Cannot specify a different script name and pass an Application instance to mount")
            app, name = root, root.script_name
        else:
            app = Application(root, name)
        self.apps[name] = app
        if config:
            app.merge(config)
        return app

    def graft(self, wsgi_callable: Any, script_name: str = "") -> None:
        """Mount a WSGI callable at ``script_name``."""
        self.apps[script_name.rstrip("/")] = wsgi_callable

    def script_name(self, path: str | None = None) -> Any:
        """Return the longest mount point that contains ``path`` (default: the current path), or None."""
        if path is None:
            request = _local.current().request
            path = httputil.urljoin(request.script_name, request.path_info)
        return self._mount(path)

    def _mount(self, path: str) -> str | None:
        """Return the longest mount point that contains ``path``, or None."""
        below = path + "/"
        return max([name for name in self.apps if below.startswith(name + "/")], key=len, default=None)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        # Collapse double slashes, so that a proxy and this server do not read ``//app`` as different paths.
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "") or "/"
        path = re.sub("//+", "/", path) if "//" in path else path
        # WSGI decodes paths as Latin-1; mount points are text.
        text = path if path.isascii() else path.encode("latin-1").decode("utf-8", "surrogateescape")
        name = self._mount(text)
        if name is None:
            start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return []
        script = name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("latin-1")
        environ = {**environ, "SCRIPT_NAME": script, "PATH_INFO": path[len(script) :]}
        return self.apps[name](environ, start_response)
