"""Responses for exceptions: for those that end a request on purpose, and for unexpected ones."""

from __future__ import annotations

from kirsch_web.errors import Finished, HTTPError, HTTPRedirect, status_line
from kirsch_web.finalize import accept, finalize
from kirsch_web.response import TEXT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch_web.finalize import Parts
    from kirsch_web.request import Request


def set_stopped(request: Request, stop: BaseException) -> None:
    """Set the response for an exception that ends a request on purpose. Cookies that were set are kept."""
    if isinstance(stop, Finished):
        request.discard()
        accept(request, stop.response)
        return
    from kirsch_web import pages

    cookies = [] if request._response is None else request._response.headers.get_all("Set-Cookie")
    request.discard()
    if isinstance(stop, HTTPRedirect):
        pages.redirect(request, stop)
    elif isinstance(stop, HTTPError):
        pages.error(request, stop)
    for cookie in cookies:
        request.response.headers.add("Set-Cookie", cookie)


def run_always(request: Request) -> None:
    """Run the hooks of ``before_finalize`` that run for every response, if an exception has ended the point early."""
    for hook in request.plan.hooks.get("before_finalize", ()):
        if hook.always:
            hook.callback(request)


def unexpected(request: Request, error: Exception) -> Parts:
    """Report an unexpected exception, and return a response with status 500."""
    from kirsch_web import pages

    points = request.plan.points
    request.error = error
    try:
        if points.before_error_response is not None:
            points.before_error_response(request)
        pages.unexpected(request, error)
        run_always(request)
        if points.after_error_response is not None:
            points.after_error_response(request)
        return finalize(request)
    except Exception as second:  # noqa: BLE001 - the last resort
        pages.report(request, second)
        return _last_resort(request)


def _last_resort(request: Request) -> Parts:
    """Return a response of fixed text, with the fields of the hooks that run for every response, unless these raise."""
    from kirsch_web import pages

    request.discard()
    body = b"500 Internal Server Error\n"
    try:
        run_always(request)
    except Exception as error:  # noqa: BLE001 - send the response without their fields
        pages.report(request, error)
        request._response = None
    own = [each for each in request.response.headers if not each[0].lower().startswith("content-")]
    csp = [each for each in request.response.headers if each[0].lower() == "content-security-policy"]
    fields = [*own, *csp, ("Content-Type", TEXT), ("Content-Length", str(len(body)))]
    return status_line(500), fields, [b"" if request.method == "HEAD" else body]
