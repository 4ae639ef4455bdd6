"""``expose``, ``popargs`` and ``url``."""

from __future__ import annotations

import sys
import urllib.parse
from typing import Any

from kirsch_cherrypy import _globals
from kirsch_cherrypy._cpcompat import text_or_bytes
from kirsch_cherrypy._local import current, serving
from kirsch_web.internal_redirect import without_dots

_PUNCTUATION = str.maketrans(".", "_")


def expose(func: Any = None, alias: Any = None) -> Any:
    """Publish a method or a class: ``@expose``, ``@expose()``, ``@expose("other_name")``, ``@expose(alias=[...])``."""

    def decorate(target: Any) -> Any:
        target.exposed = True
        names = [alias] if isinstance(alias, text_or_bytes) else alias or ()
        for name in names:
            parents[str(name).translate(_PUNCTUATION)] = target
        return target

    parents = sys._getframe(1).f_locals
    if func is None or (not callable(func) and not isinstance(func, (*text_or_bytes, list, tuple))):
        return decorate
    if callable(func):
        return decorate(func)
    alias = func
    return decorate


def popargs(*args: str, handler: Any = None) -> Any:
    """Convert path segments to parameters. Use it as a class decorator, or as the value of ``_cp_dispatch``.

    Args:
        *args: the names of the parameters.
        handler: an object that serves the rest of the path, or a callable that creates one from the parameters.
    """

    def decorated(cls_or_self: Any = None, vpath: Any = None) -> Any:
        if isinstance(cls_or_self, type):
            cls_or_self._cp_dispatch = decorated  # type: ignore[attr-defined]
            return cls_or_self
        if vpath is None:  # called as a plain function, without self
            raise TypeError("popargs() needs the path of the request")
        parms: dict[str, str] = {}
        for name in args:
            if not vpath:
                break
            parms[name] = vpath.pop(0)
        if callable(handler):
            return handler(**parms)
        serving.request.params.update(parms)
        if handler is not None:
            return handler
        # Resolve the next segment, if any, on the object itself, so that popargs is not applied twice.
        return getattr(cls_or_self, vpath.pop(0), None) if vpath else cls_or_self

    return decorated


def url(
    path: str = "", qs: Any = "", script_name: str | None = None, base: str | None = None, relative: Any = None
) -> str:
    """Return an absolute URL of the application.

    Args:
        path: relative to the application's mount point if it begins with a slash, else to the current path.
        qs: the query string, or names and values for it.
        script_name: the application's mount point; default: that of the current request.
        base: scheme and host; default: those of the current request.
        relative: True for a URL relative to the current path, "server" for an absolute path.
    """
    if isinstance(qs, (tuple, list, dict)):
        qs = urllib.parse.urlencode(qs, doseq=True)
    if qs:
        qs = "?" + qs
    request = current().request
    if request.app:
        if not path.startswith("/"):
            info = request.path_info
            # Use the path to which the trailing_slash tool would redirect.
            if request.is_index is True:
                if not info.endswith("/"):
                    info += "/"
            elif request.is_index is False and info.endswith("/") and info != "/":
                info = info[:-1]
            path = info if path == "" else urllib.parse.urljoin(info, path)
        if script_name is None:
            script_name = request.script_name
        if base is None:
            base = request.base
    elif base is None:
        base = _globals.server.base()
    new = f"{base}{script_name or ''}{without_dots(path)}{qs}"
    if relative is None:
        relative = getattr(request.app, "relative_urls", False)
    if relative == "server":
        return "/" + "/".join(new.split("/", 3)[3:])
    if relative:
        old = url(relative=False).split("/")[:-1]
        pieces = new.split("/")
        while old and pieces and old[0] == pieces[0]:
            del old[0], pieces[0]
        return "/".join([".."] * len(old) + pieces)
    return new
