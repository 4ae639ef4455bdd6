"""Tools: hooks with options, which the configuration switches on path by path."""

from __future__ import annotations

import difflib
from typing import Any

from kirsch_cherrypy._cperror import NotFound
from kirsch_cherrypy._cphooks import Hook
from kirsch_cherrypy._helper import expose
from kirsch_cherrypy._local import current
from kirsch_cherrypy.lib import (
    auth_basic,
    auth_digest,
    caching,
    cptools,
    encoding,
    jsontools,
    reprconf,
    sessions,
    static,
    xmlrpcutil,
)

_ON = 'Tool.on must not be set. Use the config entry "tools.{}.on" or the tool as a decorator.'


class Tool:
    """A callable at a hook point.

    Args:
        point: the hook point.
        callable: called with the options that the configuration sets.
        name: the tool's name in the configuration; default: the attribute of the toolbox that it is set as.
        priority: of its hook.
    """

    namespace = "tools"

    def __init__(self, point: str | None, callable: Any, name: str | None = None, priority: int = 50) -> None:
        self.callable = callable
        self._name, self._point, self._priority = name, point, priority
        self.__doc__ = getattr(callable, "__doc__", None)

    def __setattr__(self, name: str, value: Any) -> None:
        reprconf.NamespaceSet.generation += 1  # plans that were compiled with the tool are made again
        object.__setattr__(self, name, value)

    def _no_on(self, *_value: Any) -> Any:
        raise AttributeError(_ON.format(self._name))

    on = property(_no_on, _no_on, doc="Not to be read or set: the configuration says where the tool is on.")

    def _merged_args(self, d: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the options that the configuration sets, over those in ``d``."""
        given = current().request.toolmaps.get(self.namespace, {}).get(self._name, {})
        return {name: value for name, value in {**(d or {}), **given}.items() if name != "on"}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Decorator: switch the tool on for a handler, with options."""
        if args:
            raise TypeError(f"the options of the tool {self._name} are keywords: @tools.{self._name}(option=value)")

        def tool_decorator(target: Any) -> Any:
            if not hasattr(target, "_cp_config"):
                target._cp_config = {}
            prefix = f"{self.namespace}.{self._name}."
            target._cp_config.update({prefix + name: value for name, value in {"on": True, **kwargs}.items()})
            return target

        return tool_decorator

    def _setup(self) -> None:
        """Attach the hook to the current request. Subclasses may attach others."""
        current().request.hooks[self._point].append(self._hook(self._merged_args()))

    def _hook(self, conf: dict[str, Any]) -> Hook:
        """Return a hook that calls the tool with the options ``conf``, but ``priority``, which orders the hook."""
        options = {name: value for name, value in conf.items() if name not in ("on", "priority")}
        priority = conf.get("priority")
        if priority is None:
            priority = getattr(self.callable, "priority", self._priority)
        return Hook(getattr(self, "_wrapper", self.callable), None, priority, **options)


class HandlerTool(Tool):
    """A tool that can answer instead of the handler: it has answered if the callable returns a true value."""

    def __init__(self, callable: Any, name: str | None = None) -> None:
        super().__init__("before_handler", callable, name)

    def handler(self, *args: Any, **kwargs: Any) -> Any:
        """Return a handler that calls this tool with options. The handler raises 404 if the tool does not answer."""

        @expose
        def handle_func(*_: Any, **__: Any) -> Any:
            if not self.callable(*args, **self._merged_args(kwargs)):
                raise NotFound
            return current().response.body

        return handle_func

    def _wrapper(self, **kwargs: Any) -> None:
        if self.callable(**kwargs):
            current().request.handler = None


class HandlerWrapperTool(Tool):
    """A tool around the handler: ``newhandler(next_handler, *args, **kwargs)``."""

    def __init__(
        self, newhandler: Any, point: str = "before_handler", name: str | None = None, priority: int = 50
    ) -> None:
        self.newhandler = newhandler
        super().__init__(point, self.callable, name, priority)
        self.__doc__ = newhandler.__doc__

    def callable(self, *args: Any, **kwargs: Any) -> None:
        """Wrap the current request's handler."""
        request = current().request
        inner = request.handler.callable

        def wrap(*values: Any, **named: Any) -> Any:
            return self.newhandler(inner, *values, **named)

        request.handler.callable = wrap


class ErrorTool(Tool):
    """A tool that answers unexpected errors: it replaces ``request.error_response``."""

    def __init__(self, callable: Any, name: str | None = None) -> None:
        super().__init__(None, callable, name)

    def _wrapper(self) -> None:
        self.callable(**self._merged_args())

    def _setup(self) -> None:
        current().request.error_response = self._wrapper


class Toolbox:
    """Tools as attributes; the namespace of their configuration."""

    def __init__(self, namespace: str) -> None:
        object.__setattr__(self, "namespace", namespace)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tool):
            value.namespace, value._name = self.namespace, value._name or name
        reprconf.NamespaceSet.generation += 1
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        near = difflib.get_close_matches(name, vars(self), 1)
        hint = f"; did you mean {self.namespace}.{near[0]}?" if near else ""
        raise AttributeError(f"there is no tool {self.namespace}.{name}{hint}")

    def _compile(self, values: dict[str, Any], toolmaps: dict[str, Any], hooks: dict[str, list[Hook]]) -> Any:
        """Fill ``toolmaps`` and ``hooks`` of a plan; returns the tools whose ``_setup`` each request must call."""
        toolmaps[self.namespace] = tools = reprconf.by_namespace(values)
        setups = []
        for name, options in tools.items():
            if options.get("on", False):
                tool = getattr(self, name)
                if getattr(type(tool), "_setup", None) is Tool._setup and tool._point and "_setup" not in vars(tool):
                    hooks.setdefault(tool._point, []).append(tool._hook(options))
                else:
                    setups.append(tool)
        return setups

    def register(self, point: str, **kwargs: Any) -> Any:
        """Decorator: make a function a tool of this box."""

        def decorator(func: Any) -> Any:
            name = kwargs.get("name", func.__name__)
            setattr(self, name, Tool(point, func, **kwargs))
            return func

        return decorator


# The hook point that locks the session; "early" is before the body is read, and after the session is there.
_LOCKING: dict[str, Any] = {
    "implicit": ("before_handler", None),
    "early": ("before_request_body", 60),
    "explicit": None,
}


class SessionTool(Tool):
    """Sessions; see :mod:`kirsch_cherrypy.lib.sessions`."""

    def __init__(self) -> None:
        super().__init__("before_request_body", sessions.init)

    def _lock_session(self) -> None:
        current().session.acquire_lock()  # type: ignore[attr-defined]

    def _setup(self) -> None:
        super()._setup()
        hooks = current().request.hooks
        locking = self._merged_args().get("locking", "implicit")
        if locking not in _LOCKING:
            raise ValueError(f"tools.sessions.locking is implicit, early or explicit, not {locking!r}")
        if _LOCKING[locking] is not None:
            point, priority = _LOCKING[locking]
            hooks.attach(point, self._lock_session, priority=priority)
        hooks.attach("before_finalize", sessions.save)
        hooks.attach("on_end_request", sessions.close, priority=90)

    def regenerate(self) -> None:
        """Give the session a new id and remove the old one."""
        session = current().session  # type: ignore[attr-defined]
        session.regenerate()
        options = ("path", "path_header", "name", "timeout", "domain", "secure", "httponly", "persistent", "samesite")
        conf = {name: value for name, value in self._merged_args().items() if name in options}
        sessions.set_response_cookie(**conf)


class XMLRPCController:
    """Publishes its exposed methods to XML-RPC clients. A subclass is mounted with tools.xmlrpc on."""

    _cp_config = {"tools.xmlrpc.on": True}  # noqa: RUF012

    @expose
    def default(self, *vpath: str, **params: Any) -> Any:
        """Call the method that the request's body names."""
        rpcparams, rpcmethod = xmlrpcutil.process_body()
        subhandler: Any = self
        for name in str(rpcmethod).split("."):
            # An unexposed object on the way is passed through, as in a path; names with underscores are never entered.
            subhandler = None if name.startswith("_") else getattr(subhandler, name, None)
        if subhandler is None or not getattr(subhandler, "exposed", False):
            raise Exception(f'method "{rpcmethod}" is not supported')
        body = subhandler(*(vpath + rpcparams), **params)
        conf = current().request.toolmaps["tools"].get("xmlrpc", {})
        xmlrpcutil.respond(body, conf.get("encoding", "utf-8"), conf.get("allow_none", 0))
        return current().response.body


class CachingTool(Tool):
    """Answers GET from the cache, and stores the responses of handlers."""

    def _wrapper(self, **kwargs: Any) -> None:
        request = current().request
        if caching.get(**kwargs):
            request.handler = None
        elif request.cacheable:
            request.hooks.attach("before_finalize", caching.tee_output, priority=100)


def make_default() -> Toolbox:
    """Return the tools of ``cherrypy.tools``."""
    box = Toolbox("tools")
    box.session_auth = HandlerTool(cptools.session_auth)
    box.allow = Tool("on_start_resource", cptools.allow)
    box.proxy = Tool("before_request_body", cptools.proxy, priority=30)
    box.response_headers = Tool("on_start_resource", cptools.response_headers)
    cptools.response_headers.failsafe = True  # type: ignore[attr-defined]
    box.log_tracebacks = Tool("before_error_response", cptools.log_traceback)
    box.log_headers = Tool("before_error_response", cptools.log_request_headers)
    box.log_hooks = Tool("on_end_request", cptools.log_hooks, priority=100)
    box.err_redirect = ErrorTool(cptools.redirect)
    box.etags = Tool("before_finalize", cptools.validate_etags, priority=75)
    box.decode = Tool("before_request_body", encoding.decode)
    box.encode = Tool("before_handler", encoding.ResponseEncoder, priority=70)
    box.gzip = Tool("before_finalize", encoding.gzip, priority=80)
    box.staticdir = HandlerTool(static.staticdir)
    box.staticfile = HandlerTool(static.staticfile)
    box.sessions = SessionTool()
    box.xmlrpc = ErrorTool(xmlrpcutil.on_error)
    box.caching = CachingTool("before_handler", caching.get, "caching", priority=90)
    box.expires = Tool("before_finalize", caching.expires)
    box.ignore_headers = Tool("before_request_body", cptools.ignore_headers)
    box.referer = Tool("before_request_body", cptools.referer)
    box.trailing_slash = Tool("before_handler", cptools.trailing_slash, priority=60)
    box.flatten = Tool("before_finalize", cptools.flatten)
    box.accept = Tool("on_start_resource", cptools.accept)
    box.redirect = Tool("on_start_resource", cptools.redirect)
    box.autovary = Tool("on_start_resource", cptools.autovary, priority=0)
    box.json_in = Tool("before_request_body", jsontools.json_in, priority=30)
    box.json_out = Tool("before_handler", jsontools.json_out, priority=30)
    box.auth_basic = Tool("before_handler", auth_basic.basic_auth, priority=1)
    box.auth_digest = Tool("before_handler", auth_digest.digest_auth, priority=1)
    box.params = Tool("before_handler", cptools.convert_params, priority=15)
    return box
