"""The pipeline of a request: hooks and handler in CherryPy's order, internal redirects, then the response.

WSGI (:mod:`kirsch_web.app`) and ASGI (:mod:`kirsch_web.asgi`) both use these functions.
"""

from __future__ import annotations

from kirsch_web.errors import Finished, HTTPError, HTTPRedirect, InternalRedirect
from kirsch_web.failures import run_always, set_stopped, unexpected
from kirsch_web.finalize import accept, end, ending, finalize, with_earlier_cookies
from kirsch_web.request import NOTHING, reset_current, set_current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from kirsch_web.finalize import Parts
    from kirsch_web.request import Request

    StartResponse = Callable[..., Any]

MAX_INTERNAL_REDIRECTS = 10
PLAIN = frozenset((str, dict, list))
"""The types of results that need no :class:`~kirsch_web.response.Response` unless a hook asks for it."""


def respond(
    request: Request, start_response: StartResponse, error: BaseException | None = None, result: Any = NOTHING
) -> Iterable[bytes]:
    """Answer the current WSGI request with the ``error`` that its handler raised or the ``result`` that it returned.

    Without either, the hooks and the handler run first.
    """
    outer = None
    try:
        for _ in range(MAX_INTERNAL_REDIRECTS + 1):
            try:
                line, fields, body = response_of(request, error, result)
                break
            except InternalRedirect as redirect:
                error, result = None, NOTHING
                try:
                    request, token = redirected(request, redirect)
                except Exception as failure:  # noqa: BLE001 - saving the session failed: the error becomes the response
                    error = failure
                    continue
                outer = outer or token
        else:
            line, fields, body = too_many_redirects(request)
        start_response(line, with_earlier_cookies(request, fields))
        return ending(request, body)
    except BaseException:
        end(request)
        raise
    finally:
        if outer is not None:
            reset_current(outer)


def redirected(request: Request, redirect: InternalRedirect) -> tuple[Request, Any]:
    """End ``request``, and begin a request for the redirect's path, which becomes the current one.

    Cookies that ``request`` has set and changes of its session are kept. Exceptions of saving the session propagate.
    Returns the new request and the token that makes the old one current again.
    """
    from kirsch_web.internal_redirect import second_environ

    if request._session is not None:
        request._session.save(request)
    cookies = [] if request._response is None else request._response.headers.get_all("Set-Cookie")
    end(request)
    request.discard()
    finder = request.app.finder
    path = redirect.path.encode().decode("latin-1")
    new: Request = finder.request(second_environ(request.environ, path, redirect.query, cookies))
    earlier: Request | None = request
    while earlier is not None:
        if (earlier.environ.get("PATH_INFO", ""), earlier.query_string) == (path, redirect.query):
            new.plan = finder.refusal(RuntimeError(f"an internal redirect came back to {redirect.path}"))
            break
        earlier = earlier.previous
    request._continue_as(new, cookies)
    return new, set_current(new)


def too_many_redirects(request: Request) -> Parts:
    """Return the response to a request with too many internal redirects."""
    return unexpected(request, RuntimeError(f"more than {MAX_INTERNAL_REDIRECTS} internal redirects"))


def handle(request: Request) -> Any:
    """Run the hooks that come before the handler, then the handler. Return the handler's result."""
    plan = request.plan
    points = plan.points
    if plan.checks_host:
        _check_host(request)
    if points.on_start_resource is not None:
        points.on_start_resource(request)
    if points.before_request_body is not None:
        points.before_request_body(request)
    if points.before_handler is not None:
        points.before_handler(request)
    request.stage = "handler"
    handler = request._handler
    if handler is NOTHING:
        return plan.run(request)
    return request.response if handler is None else handler()


def response_of(request: Request, error: BaseException | None, result: Any) -> Parts:
    """Return the response for the handler's ``error`` or ``result``. Without either, the handler runs first.

    Raises no exception but InternalRedirect.
    """
    try:
        try:
            try:
                if error is not None:
                    raise error
                if result is NOTHING:
                    result = handle(request)
                if type(result) in PLAIN and request._response is None:
                    request._result = result  # becomes the response's body if a hook reads request.response
                else:
                    accept(request, result)
                return _finish(request)
            except (HTTPError, HTTPRedirect, Finished) as stop:
                set_stopped(request, stop)
                return _finish(request)
        finally:
            points = request.plan.points
            if points.on_end_resource is not None:
                points.on_end_resource(request)
    except InternalRedirect:
        raise
    except (HTTPError, HTTPRedirect, Finished) as stop:  # raised by a hook after the handler
        set_stopped(request, stop)
        run_always(request)
        return finalize(request)
    except Exception as failure:  # noqa: BLE001 - becomes a response of status 500
        return unexpected(request, failure)


def _finish(request: Request) -> Parts:
    before_finalize = request.plan.points.before_finalize
    if before_finalize is not None:
        before_finalize(request)
    return finalize(request)


def _check_host(request: Request) -> None:
    """Raise 421 if the host is not in ``hosts``. The entry ``.shop.example`` allows every name below it."""
    host = request.host.lower()
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
    for allowed in request.plan.config["hosts"]:
        allowed = allowed.lower()
        if allowed in (host, name, "*") or (allowed.startswith(".") and name.endswith(allowed)):
            return
    raise HTTPError(421, "this host is not served here")
