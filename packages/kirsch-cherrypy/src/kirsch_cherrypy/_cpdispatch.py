"""Dispatchers: callables that set the handler and the configuration of the current request for a path."""

from __future__ import annotations

import inspect
import string
from typing import Any

from kirsch_cherrypy import _cpconfig
from kirsch_cherrypy._cperror import CherryPyException, HTTPError, HTTPRedirect, NotFound
from kirsch_cherrypy._local import current
from kirsch_cherrypy.lib import httputil, xmlrpcutil


class PageHandler:
    """A handler and its arguments. Calling it calls the handler."""

    def __init__(self, callable: Any, *args: Any, **kwargs: Any) -> None:
        self.callable, self.args = callable, args
        self.kwargs = kwargs

    def __call__(self) -> Any:
        args, kwargs = self.args, self.kwargs
        try:
            return self.callable(*args, **kwargs)
        except TypeError:
            # The request's arguments may not fit the parameters; otherwise the handler itself raised the exception.
            test_callable_spec(self.callable, args, kwargs)
            raise


class LateParamPageHandler(PageHandler):
    """A handler whose keyword arguments are the request's parameters at the time of the call."""

    @property
    def kwargs(self) -> dict[str, Any]:
        """The parameters of the request, updated with the given keyword arguments."""
        return {**current().request.params, **self._given}

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._given = kwargs


def test_callable_spec(callable: Any, callable_args: Any, callable_kwargs: Any) -> None:
    """Raise HTTPError if the arguments do not fit the callable's parameters.

    The status is 404 for arguments from the path or the query string, and 400 for arguments from the body.
    """
    request = current().request
    parameters = inspect.signature(callable, follow_wrapped=False).parameters.values()
    kinds = {each.kind for each in parameters}
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    keywords = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    required = {each.name for each in parameters if each.default is each.empty}
    of_path = names[: len(callable_args)]
    of_body = set(getattr(request.body, "params", None) or ())
    missing = [n for n in (*names, *keywords) if n in required and n not in of_path and n not in callable_kwargs]
    multiple = [name for name in of_path if name in callable_kwargs]
    extra = [name for name in callable_kwargs if name not in names and name not in keywords]
    code = getattr(getattr(callable, "__func__", None), "__code__", None)
    taken = code.co_varnames[:1] if code is not None else ()  # self, which **kwargs cannot contain

    def refusal(status: int, what: str, which: list[str]) -> HTTPError:
        return HTTPError(status, f"{what} parameters: {', '.join(which)}" if request.show_mismatched_params else None)

    if missing:
        raise refusal(404, "Missing", missing)
    if len(callable_args) > len(names) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise HTTPError(404)
    if multiple:
        raise refusal(400 if of_body.intersection(multiple) else 404, "Multiple values for", multiple)
    if extra and (inspect.Parameter.VAR_KEYWORD not in kinds or set(taken).intersection(extra)):
        if of_query := [name for name in extra if name not in of_body]:
            raise refusal(404, "Unexpected query string", of_query)
        raise refusal(400, "Unexpected body", extra)


def validate_translator(translate: Any) -> None:
    """Raise ValueError unless ``translate`` is a table for ``str.translate``."""
    if isinstance(translate, str):
        if len(translate) != 256:
            raise ValueError("translate has the wrong length: a table that is text has 256 characters")
    elif not isinstance(translate, dict):
        raise ValueError(f"translate is a table for str.translate, not {translate!r}")


punctuation_to_underscores = str.maketrans(string.punctuation, "_" * len(string.punctuation))


class Dispatcher:
    """Finds the handler by following the path through the tree of objects.

    Args:
        dispatch_method_name: the method that finds objects for segments without attributes; default: ``_cp_dispatch``.
        translate: the table that translates a segment to a name; default: punctuation becomes an underscore.
    """

    dispatch_method_name = "_cp_dispatch"

    def __init__(self, dispatch_method_name: str | None = None, translate: Any = punctuation_to_underscores) -> None:
        validate_translator(translate)
        self.dispatch_method_name = dispatch_method_name or type(self).dispatch_method_name
        self.translate = translate

    def __call__(self, path_info: str) -> None:
        """Set ``request.handler`` and ``request.config``."""
        func, vpath = self.find_handler(path_info)
        request = current().request
        if func is None:
            request.handler = NotFound()
        else:
            request.handler = LateParamPageHandler(func, *_decoded(vpath))

    def find_handler(self, path: str) -> tuple[Any, list[str]]:
        """Return the exposed object for a path, or None, and the remaining segments. Sets ``request.config``."""
        request = current().request
        sections = request.app.config
        root = request.app.root
        segments = [each for each in path.split("/") if each]
        full = [*segments, "index"]
        total = len(full)
        conf = {**_config_of(root), **sections.get("/", {})}
        # Each step: the name, the object or None, its configuration, and the number of remaining segments.
        trail: list[tuple[str, Any, dict[str, Any], int]] = [("root", root, conf, total)]
        node, left, at = root, full[:], ""
        longest = 1 if len(sections) == 1 and "/" in sections else max(map(len, sections), default=0)
        plain = self.translate is punctuation_to_underscores  # then alphanumeric names need no translation
        while left:
            name = left[0]
            before = len(left)
            if not (plain and (name.isalnum() or name.isidentifier())):
                name = name.translate(self.translate)
            found = getattr(node, name, None) if node is not None else None
            if found is None:
                found = self._ask(node, left)
            if len(left) > before:
                raise CherryPyException(
                    f"{self.dispatch_method_name} of {node!r} added segments to the path; it may remove some: {left}"
                )
            if len(left) == before:
                del left[0]
            node = found
            conf = _config_of(node)
            if len(at) < longest:  # else the path is longer than that of any section
                for each in full[total - before : total - len(left)]:
                    at = f"{at}/{each}"
                    if at in sections:
                        conf = {**conf, **sections[at]}
            trail.append((name, node, conf, len(left)))
        return self._handler_on(trail, full, path)

    def _ask(self, node: Any, left: list[str]) -> Any:
        """Call an object's dispatch method for segments that match no attribute. It may remove some of them."""
        ask = getattr(node, self.dispatch_method_name, None) if node is not None else None
        # The last item, "index", is not a segment of the path.
        if ask is None or not callable(ask) or getattr(ask, "exposed", False) or len(left) < 2:
            return None
        index = left.pop()
        found = ask(vpath=left)
        left.append(index)
        return found

    def _handler_on(self, trail: Any, full: list[str], path: str) -> tuple[Any, list[str]]:
        """Return the deepest exposed object, or exposed ``default`` method, of the trail, and the segments after it."""
        request = current().request
        total = len(full)
        for at in range(len(trail) - 1, -1, -1):
            _, candidate, _, left = trail[at]
            if candidate is None:
                continue
            default = getattr(candidate, "default", None)
            if default is not None and getattr(default, "exposed", False):
                trail.insert(at + 1, ("default", default, _config_of(default), left))
                request.config = _merged(trail, full)
                request.is_index = path.endswith("/")
                return default, full[total - left : -1]
            if getattr(candidate, "exposed", False):
                request.config = _merged(trail, full)
                # The last step is the added "index": its canonical URL ends with a slash.
                request.is_index = at == len(trail) - 1
                return candidate, full[total - left : -1]
        request.config = _merged(trail, full)
        return None, []


def _config_of(node: Any) -> dict[str, Any]:
    found: dict[str, Any] = getattr(node, "_cp_config", None) or {}
    return found


def _merged(trail: Any, full: list[str]) -> dict[str, Any]:
    base = dict(_cpconfig.config)
    for _, _, conf, left in trail:
        if conf:
            base.update(conf)
            if "tools.staticdir.dir" in conf:
                base["tools.staticdir.section"] = "/" + "/".join(full[: len(full) - left])
    return base


def _decoded(vpath: list[str]) -> list[str]:
    """Return the segments with %2F decoded to slashes."""
    return [each.replace("%2F", "/") for each in vpath] if vpath else vpath


class MethodDispatcher(Dispatcher):
    """Finds an exposed object. The handler is its method with the name of the HTTP method, such as ``GET``."""

    def __call__(self, path_info: str) -> None:
        request, response = current().request, current().response
        resource, vpath = self.find_handler(path_info)
        if resource is None:
            request.handler = NotFound()
            return
        available = {name for name in dir(resource) if name.isupper()}
        if "GET" in available:
            available.add("HEAD")
        response.headers["Allow"] = ", ".join(sorted(available))
        method = request.method.upper()
        func = getattr(resource, method, None) if method.isidentifier() else None
        if func is None and method == "HEAD":
            func = getattr(resource, "GET", None)
        if func is None:
            request.handler = HTTPError(405)
            return
        if hasattr(func, "_cp_config"):
            request.config.update(func._cp_config)
        request.handler = LateParamPageHandler(func, *_decoded(vpath))


class RoutesDispatcher:
    """Dispatches with the package Routes, which must be installed.

    Args:
        full_result: whether the handler also receives the route's controller and action.
        **mapper_options: options of ``routes.Mapper``.
    """

    def __init__(self, full_result: bool = False, **mapper_options: Any) -> None:
        try:
            import routes  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise ImportError(
                "RoutesDispatcher needs the package Routes: pip install routes; "
                "or use kirsch_web.Routes, which needs nothing"
            ) from None
        self.controllers: dict[str, Any] = {}
        self.mapper = routes.Mapper(**{"controller_scan": self.controllers.keys, **mapper_options})
        self.full_result = full_result

    def connect(self, name: str, route: str, controller: Any, **kwargs: Any) -> None:
        """Add a route to a controller."""
        self.controllers[name] = controller
        self.mapper.connect(name, route, controller=name, **kwargs)

    def redirect(self, url: str) -> None:
        """Raise HTTPRedirect. Routes calls this for redirects."""
        raise HTTPRedirect(url)

    def __call__(self, path_info: str) -> None:
        """Set ``request.handler`` and ``request.config``."""
        func = self.find_handler(path_info)
        current().request.handler = NotFound() if func is None else LateParamPageHandler(func)

    def find_handler(self, path_info: str) -> Any:
        """Return the action for the path, or None. Adds the route's parameters to the request's."""
        import routes  # type: ignore[import-not-found, import-untyped, unused-ignore]

        request = current().request
        # Routes uses these to match conditions and to generate URLs and redirects.
        known = {
            "mapper": self.mapper, "environ": request.wsgi_environ, "redirect": self.redirect,
            "host": request.headers.get("Host"), "protocol": request.scheme,
        }  # fmt: skip
        config = routes.request_config()
        for name, value in known.items():
            setattr(config, name, value)
        config.mapper_dict = result = self.mapper.match(path_info)
        hidden = () if self.full_result else ("controller", "action")
        request.params.update({name: value for name, value in (result or {}).items() if name not in hidden})
        controller = self.controllers.get(result.get("controller")) if result else None
        if isinstance(controller, type):
            controller = controller()
        action = getattr(controller, result.get("action", "index"), None) if controller is not None else None
        sections, root = request.app.config, getattr(request.app, "root", None)
        segments = path_info.strip("/").split("/")
        count = len(segments)
        trail = [("", root, {**_config_of(root), **sections.get("/", {})}, count)]
        trail += [("", node, _config_of(node), count) for node in (controller, action)]
        for left in reversed(range(count if segments[0] else 0)):
            trail.append(("", None, sections.get("/" + "/".join(segments[: count - left]), {}), left))
        request.config = _merged(trail, segments)
        return action


def XMLRPCDispatcher(next_dispatcher: Any = None) -> Any:
    """Return a dispatcher for XML-RPC, whose clients may put /RPC2 before the path."""
    following = Dispatcher() if next_dispatcher is None else next_dispatcher

    def xmlrpc_dispatch(path_info: str) -> Any:
        return following(xmlrpcutil.patched_path(path_info))

    return xmlrpc_dispatch


def VirtualHost(next_dispatcher: Any = None, use_x_forwarded_host: bool = True, **domains: str) -> Any:
    """Return a dispatcher that prepends to the path a prefix selected by the request's host.

    Args:
        next_dispatcher: the dispatcher that receives the resulting path.
        use_x_forwarded_host: whether X-Forwarded-Host takes precedence over Host.
        **domains: prefixes by host.
    """
    following = Dispatcher() if next_dispatcher is None else next_dispatcher

    def vhost_dispatch(path_info: str) -> Any:
        request = current().request
        domain = request.headers.get("Host", "")
        if use_x_forwarded_host:
            domain = request.headers.get("X-Forwarded-Host", domain)
        prefix = domains.get(domain, "")
        if prefix:
            path_info = httputil.urljoin(prefix, path_info)
        result = following(path_info)
        # Remove the prefix from staticdir's section, because the client's path has none.
        section = request.config.get("tools.staticdir.section")
        if section and prefix:
            request.config["tools.staticdir.section"] = section[len(prefix) :]
        return result

    return vhost_dispatch


default = Dispatcher()
