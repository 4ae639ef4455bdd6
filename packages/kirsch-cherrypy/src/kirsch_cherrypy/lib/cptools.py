"""The functions of the smaller tools, such as validators, proxies, slashes, redirects and log-in."""

from __future__ import annotations

import logging
import re
from hashlib import md5
from html import escape
from typing import Any

from kirsch_cherrypy._cperror import HTTPError, HTTPRedirect, InternalRedirect
from kirsch_cherrypy._helper import url as url_of
from kirsch_cherrypy._local import current, serving
from kirsch_cherrypy.lib import httputil, is_iterator
from kirsch_web.hooks import POINTS as hookpoints


def validate_etags(autotags: bool = False, debug: bool = False) -> None:
    """Check If-Match and If-None-Match against the response's ETag. Raises HTTPRedirect 304 or HTTPError 412.

    Args:
        autotags: whether to compute an ETag from the body if the response has none.
        debug: unused.
    """
    request, response = serving.request, serving.response
    if hasattr(response, "ETag"):
        return  # the tool has already run
    status, _, _ = httputil.valid_status(response.status)
    etag = response.headers.get("ETag")
    if not etag and autotags and status == 200:
        # MD5 suffices: an ETag needs no cryptographic security.
        etag = f'"{md5(response.collapse_body(), usedforsecurity=False).hexdigest()}"'
        response.headers["ETag"] = etag
    response.ETag = etag
    if not 200 <= status <= 299:
        return
    wanted = [str(each) for each in request.headers.elements("If-Match")]
    if wanted and not (wanted == ["*"] or etag in wanted):
        raise HTTPError(412, f"If-Match failed: ETag {etag!r} did not match {wanted!r}")
    unwanted = [str(each) for each in request.headers.elements("If-None-Match")]
    if unwanted == ["*"] or etag in unwanted:
        raise _not_modified(request, f"If-None-Match failed: ETag {etag!r} matched {unwanted!r}")


def _not_modified(request: Any, message: str | None = None) -> Exception:
    """Return the exception for a failed condition: 304 for GET and HEAD, and 412 for other methods."""
    return HTTPRedirect([], 304) if request.method in ("GET", "HEAD") else HTTPError(412, message)


def validate_since() -> None:
    """Check If-Modified-Since and If-Unmodified-Since against the response's Last-Modified."""
    request, response = serving.request, serving.response
    modified = response.headers.get("Last-Modified")
    if not modified:
        return
    status, _, _ = httputil.valid_status(response.status)
    since = request.headers.get("If-Unmodified-Since")
    if since and since != modified and (200 <= status <= 299 or status == 412):
        raise HTTPError(412)
    since = request.headers.get("If-Modified-Since")
    if since and since == modified and (200 <= status <= 299 or status == 304):
        raise _not_modified(request)


def allow(methods: Any = None, debug: bool = False) -> None:
    """Respond with 405 to methods that are not in ``methods`` (default: GET and HEAD)."""
    names = [methods] if isinstance(methods, str) else methods or ["GET", "HEAD"]
    allowed = [name.upper() for name in names if name]
    if "GET" in allowed and "HEAD" not in allowed:
        allowed.append("HEAD")
    serving.response.headers["Allow"] = ", ".join(allowed)
    if serving.request.method not in allowed:
        raise HTTPError(405)


def proxy(
    base: str | None = None,
    local: str = "X-Forwarded-Host",
    remote: str = "X-Forwarded-For",
    scheme: str = "X-Forwarded-Proto",
    debug: bool = False,
) -> None:
    """Set base URL and client address from the fields of a trusted proxy. Use it only behind one.

    Args:
        base: the base URL to use if no field has it.
        local: the name of the field with the host.
        remote: the name of the field with the client's address.
        scheme: the name of the field with the scheme.
        debug: unused.
    """
    request = serving.request
    if scheme:
        named = request.headers.get(scheme, None)
        if named == "on" and scheme == "X-Forwarded-Ssl":
            named = "https"
        scheme = (named or "").split(",")[0].strip()
    if scheme not in ("http", "https"):
        scheme = request.base[: request.base.find("://")]
    if local:
        forwarded = request.headers.get(local, None)
        base = forwarded.split(",")[0].strip() if forwarded else base
    if not base:
        base = request.headers.get("Host", "127.0.0.1")
    request.base = base if "://" in base else f"{scheme}://{base}"
    client = request.headers.get(remote) if remote else None
    if client:
        # The first address is the client's; the others are those of proxies.
        request.remote.ip = client.split(",")[0].strip()


def ignore_headers(headers: Any = ("Range",), debug: bool = False) -> None:
    """Remove header fields from the request."""
    for name in headers:
        serving.request.headers.pop(name, None)


def response_headers(headers: Any = None, debug: bool = False) -> None:
    """Set header fields of the response."""
    for name, value in headers or []:
        serving.response.headers[name] = value


def referer(
    pattern: str, accept: bool = True, accept_missing: bool = False, error: int = 403,
    message: str = "Forbidden Referer header.", debug: bool = False,
) -> None:  # fmt: skip
    """Respond with ``error`` if the Referer does not match ``pattern``; if ``accept`` is False, if it matches."""
    given = serving.request.headers.get("Referer")
    passes = accept_missing if given is None else bool(re.match(pattern, given)) == bool(accept)
    if not passes:
        raise HTTPError(error, message)


class SessionAuth:
    """A log-in form that stores the user in the session. Options of the tool replace methods and attributes."""

    session_key = "username"
    debug = False

    def check_username_and_password(self, username: str, password: str) -> Any:
        """Return an error message, or None if the password is correct."""

    def anonymous(self) -> Any:
        """Return the user name for anonymous requests, or None if users must log in."""

    def on_login(self, username: str) -> None:
        """A callback after a log-in."""

    def on_logout(self, username: str) -> None:
        """A callback after a log-out."""

    def on_check(self, username: str) -> None:
        """A callback for each request of a logged-in or anonymous user."""

    def login_screen(self, from_page: str = "..", username: str = "", error_msg: str = "", **kwargs: Any) -> bytes:
        """Return the page with the log-in form."""
        message, name, back = (escape(str(each or "")) for each in (error_msg, username, from_page))
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<title>Log in</title>\n'
            f"<p>{message}</p>\n"
            '<form method="post" action="do_login">\n'
            f'<p><label>Name <input name="username" value="{name}" autocomplete="username"></label></p>\n'
            '<p><label>Password <input name="password" type="password" autocomplete="current-password"></label></p>\n'
            f'<button name="from_page" value="{back}">Log in</button>\n'
            "</form>\n</html>"
        ).encode()

    @staticmethod
    def _show(page: bytes) -> bool:
        serving.response.body = page
        serving.response.headers.pop("Content-Length", None)
        return True

    def do_login(self, username: str, password: str, from_page: str = "..", **kwargs: Any) -> bool:
        """Log the user in and redirect, or show the form with an error message."""
        error = self.check_username_and_password(username, password)
        if error:
            return self._show(self.login_screen(from_page, username, error))
        # Change the session ID: others may know the one from before the log-in (session fixation).
        serving.session.acquire_lock()
        serving.session.regenerate()
        serving.session[self.session_key] = serving.request.login = username
        self.on_login(username)
        raise HTTPRedirect(from_page or "/")

    def do_logout(self, from_page: str = "..", **kwargs: Any) -> Any:
        """Log the user out and redirect."""
        username = serving.session.get(self.session_key)
        serving.session[self.session_key] = None
        serving.request.login = None
        if username:
            self.on_logout(username)
        raise HTTPRedirect(from_page)

    def do_check(self) -> bool:
        """Set ``request.login`` and return False if the user is logged in; otherwise show the form."""
        request = serving.request
        username = serving.session.get(self.session_key)
        if not username:
            username = serving.session[self.session_key] = self.anonymous()
        if not username:
            # Use the session, not request.login, which may be the user of Basic authentication.
            return self._show(self.login_screen(url_of(qs=request.query_string)))
        request.login = username
        self.on_check(username)
        return False

    def run(self) -> bool:
        """Handle the request. Return whether the tool has set the response."""
        request, response = serving.request, serving.response
        path = request.path_info
        if path.endswith("login_screen"):
            response.body = self.login_screen(**request.params)
        elif path.endswith("do_login"):
            allow("POST")
            return self.do_login(**request.params)
        elif path.endswith("do_logout"):
            allow("POST")
            self.do_logout(**request.params)
        else:
            return self.do_check()
        return True


def session_auth(**kwargs: Any) -> bool:
    """Run a :class:`SessionAuth` with ``kwargs`` as its attributes."""
    auth = SessionAuth()
    for name, value in kwargs.items():
        setattr(auth, name, value)
    return auth.run()


def log_traceback(severity: int = logging.ERROR, debug: bool = False) -> None:
    """Write the traceback of the current exception to the error log."""
    serving.request.app.log("", "HTTP", severity=severity, traceback=True)


def log_request_headers(debug: bool = False) -> None:
    """Write the header fields of the request to the error log."""
    lines = [f"  {name}: {value}" for name, value in serving.request.header_list]
    serving.request.app.log("\nRequest Headers:\n" + "\n".join(lines), "HTTP")


def log_hooks(debug: bool = False) -> None:
    """Write the hooks of the request to the error log."""
    hooks = serving.request.hooks
    lines = [f"\nRequest Hooks for {url_of()}:"]
    for point in dict.fromkeys([*hookpoints, *hooks]):
        lines += [f"    {point}:", *(f"        {hook!r}" for hook in sorted(hooks.get(point, [])))]
    serving.request.app.log("\n".join(lines), "HTTP")


def redirect(url: str = "", internal: bool = True, debug: bool = False) -> None:
    """Raise InternalRedirect, or if not ``internal``, HTTPRedirect."""
    raise (InternalRedirect(url) if internal else HTTPRedirect(url))


def trailing_slash(missing: bool = True, extra: bool = False, status: Any = None, debug: bool = False) -> None:
    """Redirect an index without a trailing slash in its path, and with ``extra``, another page with one."""
    request = current().request
    path = request.path_info
    if request.is_index is True:
        if missing and not path.endswith("/"):
            raise HTTPRedirect(url_of(path + "/", request.query_string), status or 301)
    elif request.is_index is False and extra and path.endswith("/") and path != "/":
        raise HTTPRedirect(url_of(path[:-1], request.query_string), status or 301)


def flatten(debug: bool = False) -> None:
    """Flatten a body of nested iterators to one iterator of bytes."""

    def pieces(body: Any) -> Any:
        for each in body:
            if is_iterator(each):
                yield from pieces(each)
            else:
                yield each

    response = serving.response
    response.body = pieces(response.body)


def accept(media: Any = None, debug: bool = False) -> Any:
    """Return the media type in ``media`` that the client prefers. Raises HTTPError 406 if it accepts none."""
    if not media:
        return None
    offers = [media] if isinstance(media, str) else media
    ranges = serving.request.headers.elements("Accept")
    if not ranges:
        return offers[0]
    for each in ranges:
        fitting = [offer for offer in offers if each.value in (offer, offer.partition("/")[0] + "/*", "*/*")]
        if fitting and each.qvalue > 0:
            return fitting[0]
    raise HTTPError(
        406,
        f"Your client sent this Accept header: {serving.request.headers['Accept']}. But this resource only emits "
        f"these media types: {', '.join(offers)}.",
    )


class MonitoredHeaderMap(httputil.HeaderMap):
    """Header fields that record which of them were read."""

    def __init__(self) -> None:
        self.accessed_headers: set[str] = set()
        super().__init__()

    def _key(self, name: Any) -> str:
        self.accessed_headers.add(name)
        return httputil.titled(name)


def autovary(ignore: Any = None, debug: bool = False) -> None:
    """Add to Vary the request fields that the application read."""
    request = serving.request
    before, request.headers = request.headers, MonitoredHeaderMap()
    dict.update(request.headers, before)
    if ignore is None:
        ignore = {"Content-Disposition", "Content-Length", "Content-Type", "Cookie"}

    def set_response_header() -> None:
        response = serving.response
        varying = {each.value for each in response.headers.elements("Vary")}
        varying |= {each for each in request.headers.accessed_headers if each not in ignore}
        response.headers["Vary"] = ", ".join(sorted(varying))

    request.hooks.attach("before_finalize", set_response_header, priority=95)


def convert_params(exception: Any = ValueError, error: int = 400) -> None:
    """Convert parameters to the types in the handler's annotations. Raises HTTPError ``error`` if that fails."""
    import inspect

    request = serving.request
    handler = getattr(request.handler, "callable", None)
    if handler is None:
        return
    types = getattr(inspect.unwrap(handler), "__annotations__", {})
    if any(isinstance(kind, str) for kind in types.values()):  # from __future__ import annotations
        import typing

        types = typing.get_type_hints(inspect.unwrap(handler))
    with HTTPError.handle(exception, error):
        for name in set(types).intersection(request.params):
            if callable(types[name]):
                request.params[name] = types[name](request.params[name])
