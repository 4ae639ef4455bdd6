"""Conditional requests (RFC 9110, 13): evaluation of If-Match and similar fields, and the tool ``etags``.

The conditions of a request with an unsafe method are evaluated before the handler runs, so that nothing changes if they
fail.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kirsch_web.errors import HTTPError
from kirsch_web.fields import parse_http_date
from kirsch_web.finalize import end
from kirsch_web.hooks import Hook, Tool, awaited
from kirsch_web.pipeline import handle, response_of
from kirsch_web.publishing import SAFE
from kirsch_web.request import NOTHING, current, reset_current, set_current
from kirsch_web.response import close

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from kirsch_web.interfaces import Application
    from kirsch_web.request import Request

FIELDS = ("HTTP_IF_MATCH", "HTTP_IF_UNMODIFIED_SINCE", "HTTP_IF_NONE_MATCH")
"""The keys in environ of the conditions that a request of any method may have."""

_FAILED = "the resource is not the one that the client means"
_TAG = re.compile(r'(W/)?"[\x21\x23-\x7e\x80-\xff]*"')


class Validators(NamedTuple):
    """The validators of a representation: its ETag with quotes, or an empty text, and the time of its last modification
    in seconds since 1970, or None."""

    etag: str = ""
    modified: float | None = None


def failed(request: Request, current: Validators | None) -> int | None:
    """Evaluate the request's conditions in the order of RFC 9110, 13.2.2. Return the status to answer, 304 or 412, or
    None if the request can proceed.

    Args:
        request: the request.
        current: the validators of the current representation; None if there is no representation.
    """
    headers = request.headers
    wanted = headers.get("If-Match")
    if wanted:
        if current is None or not matches(wanted, current.etag, strong=True):
            return 412
    elif current is not None and current.modified is not None:
        since = parse_http_date(headers.get("If-Unmodified-Since"))
        if since is not None and int(current.modified) > since:
            return 412
    if current is None:
        return None
    reads = request.method in ("GET", "HEAD")
    known = headers.get("If-None-Match")
    if known:
        if matches(known, current.etag, strong=False):
            return 304 if reads else 412
    elif reads and current.modified is not None:
        since = parse_http_date(headers.get("If-Modified-Since"))
        if since is not None and int(current.modified) <= since:
            return 304
    return None


def matches(field: str, etag: str, *, strong: bool) -> bool:
    """Return whether a list of entity tags contains ``etag``. ``*`` matches every tag, and a representation without."""
    if field.strip() == "*":
        return True
    if not etag or (strong and etag.startswith("W/")):
        return False
    opaque = etag.removeprefix("W/")
    return any(match[0].removeprefix("W/") == opaque and not (strong and match[1]) for match in _TAG.finditer(field))


def check_conditions(found: Validators | str | None, request: Request | None = None) -> None:
    """Raise 412 unless the request's conditions hold for the current representation.

    If two requests may arrive at the same time, call it between reading and changing, in one transaction.

    Args:
        found: the ETag of the current representation with its quotes, or its ``web.Validators``; None if there is none.
        request: the request; default: the current one.
    """
    request = current() if request is None else request
    if failed(request, _validators(found)) == 412:
        raise HTTPError(412, _FAILED)


def _validators(found: object) -> Validators | None:
    if isinstance(found, str):
        found = Validators(found)
    if found is not None and not (isinstance(found, Validators) and (not found.etag or _TAG.fullmatch(found.etag))):
        raise ValueError(f"""{found!r} is not an ETag such as '"7"', a web.Validators, or None""")
    return found


class EtagsTool(Tool):
    """The tool ``etags``: adds an ETag made from the body if a page has none, and evaluates conditions.

    Conditions of GET and HEAD are answered with 304 or 412 after the page is made. Those of unsafe methods (If-Match,
    If-Unmodified-Since, If-None-Match) are evaluated before the handler runs; if they fail, the answer is 412 and the
    handler does not run. The current representation is the one that ``current`` returns; without this option, the
    response to GET of the same path. If there is neither, the answer is 412, because the request could overwrite
    another change.

    Options:
        weak: whether tags are weak; If-Match never matches a weak tag. Default: false.
        current: a callable that takes the request and returns the ETag of the current representation (with its
            quotes), a `web.Validators`, or None if there is no representation.
    """

    types = {"weak": bool, "current": None}  # noqa: RUF012 - no one changes it

    def __init__(self, **options: Any) -> None:
        super().__init__("before_finalize", None, "etags", **options)

    def check(self, options: Mapping[str, Any]) -> Iterable[str]:
        if options.get("current") is not None and not callable(options["current"]):
            yield "current is a callable that takes the request and returns an ETag, or None if there is nothing"

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:
        given: Callable[[Request], object] | None = options.get("current")
        weak = options.get("weak", False)

        def decide(request: Request) -> None:
            environ = request.environ
            if request.method in SAFE or not any(environ.get(name) for name in FIELDS):
                return
            found = _of_get(app, request) if given is None else _validators(given(request))
            if failed(request, found) == 412:
                raise HTTPError(412, _FAILED)

        def answer(request: Request) -> None:
            response = request.response
            if request.method not in SAFE or not 200 <= response.status < 300:
                return
            etag = response.headers.get("ETag")
            if not etag and not response.streams:
                import hashlib

                assert isinstance(response.body, bytes)
                etag = f'{"W/" if weak else ""}"{hashlib.sha256(response.body).hexdigest()[:24]}"'
                response.headers["ETag"] = etag
            modified = parse_http_date(response.headers.get("Last-Modified"))
            if etag or modified is not None:
                _answer(request, failed(request, Validators(etag, modified)))

        yield Hook("before_handler", decide, priority=90, name="etags: decide")
        yield Hook(self.point, answer, priority=75, name="etags")


def _answer(request: Request, status: int | None) -> None:
    if status == 412:
        raise HTTPError(412, _FAILED)
    if status == 304:
        response = request.response
        close(response.body)
        response.status = 304
        response.body = b""
        for name in ("Content-Type", "Content-Encoding", "Content-Length"):
            response.headers.remove(name)


def _of_get(app: Any, request: Request) -> Validators | None:
    """Return the validators of the response to GET of the request's path; None if it answers 404 or 410."""
    from kirsch_web.internal_redirect import second_environ

    environ = second_environ(request.environ, request.environ.get("PATH_INFO", ""), request.query_string)
    environ.pop("HTTP_ACCEPT_ENCODING", None)  # because compression makes tags weak
    get = app.finder.request(environ)
    token = set_current(get)
    try:
        error, result = None, NOTHING
        try:
            result = handle(get) if get.plan.function is not None else NOTHING
            if hasattr(result, "__await__"):
                result = awaited(request, result)
        except Exception as failure:  # noqa: BLE001 - it becomes the status of the response
            error = failure
        if get.plan.function is not None:
            line, fields, body = response_of(get, error, result)
            close(body)
            if line.startswith(("404", "410")):
                return None
            if line.startswith("2"):
                named = {name.lower(): value for name, value in fields}
                return Validators(named.get("etag", ""), parse_http_date(named.get("last-modified", "")))
    finally:
        end(get)
        reset_current(token)
    raise HTTPError(412, "the state of the resource is not known, so the request's condition cannot be shown to hold")
