"""Tools for security: CSRF, security headers, basic authentication, proxies; and slashes, gzip and expiry."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence  # noqa: TC003 - the types of options are read at mount
from typing import Literal

from kirsch_web.errors import HTTPError, HTTPRedirect
from kirsch_web.hooks import Hook, Tool, tool
from kirsch_web.publishing import SAFE
from kirsch_web.request import Request  # noqa: TC001 - a tool's parameter types are read at mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from kirsch_web.interfaces import Application

CSRF_COOKIE = "csrf"
CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"


class CsrfTool(Tool):
    """The tool ``csrf``: a request with an unsafe method must come from this site's own pages.

    Browsers name the site that a request comes from in Sec-Fetch-Site, older ones in Origin. A request with cookies but
    neither field must have the token of :func:`csrf_token`. A request without cookies has no user's rights, and passes.

    Options:
        trusted: a list of other origins whose pages may send requests here, such as `https://shop.example`.
    """

    types = {"trusted": list}  # noqa: RUF012 - no one changes it

    def __init__(self, **options: Any) -> None:
        super().__init__("before_request_body", None, "csrf", **options)

    def check(self, options: Mapping[str, Any]) -> Iterable[str]:
        for origin in options.get("trusted", ()):
            if not re.fullmatch(r"https?://[^/?#]+", str(origin)):
                yield f"trusted has {origin!r}, which is not an origin such as https://shop.example"

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:  # noqa: ARG002 - as Tool has it
        trusted = frozenset(each.lower() for each in options.get("trusted", ()))

        def check(request: Request) -> None:
            # A WebSocket handshake is a GET, but pages of every site can read what the WebSocket sends.
            if request.method in SAFE and request.headers.get("Upgrade").lower() != "websocket":
                return
            origin = request.headers.get("Origin").lower()
            if origin in trusted:
                return
            site = request.headers.get("Sec-Fetch-Site")
            if site:
                if site in ("same-origin", "none"):
                    return
                raise HTTPError(403, f"this request comes from another site (Sec-Fetch-Site: {site})")
            if origin:
                if origin == request.origin.lower():
                    return
                raise HTTPError(403, "this request comes from another site (Origin)")
            if not request.cookies or request.method in SAFE:
                return
            expected = request.cookies.get(CSRF_COOKIE, "")
            given = request.headers.get(CSRF_HEADER)
            if not given and request.headers.get("Content-Type").partition(";")[0].strip().lower() in (
                "application/x-www-form-urlencoded",
                "multipart/form-data",
            ):
                given = request.form.get(CSRF_FIELD)
            if not expected or not hmac.compare_digest(expected.encode(), given.encode()):
                raise HTTPError(403, f"the CSRF token is missing or not this client's (field {CSRF_FIELD})")

        yield Hook(self.point, check, priority=20, name="csrf")


def csrf(**options: Any) -> CsrfTool:
    """Return the tool ``csrf`` for all paths. ``trusted`` is a list of other origins whose pages may send requests."""
    return CsrfTool(**options)


def csrf_token(request: Request) -> str:
    """Return the token for a form's field ``csrf`` or the header field X-CSRF-Token. Set its cookie if the client has
    none."""
    request.varies_by_cookie()
    token = request.cookies.get(CSRF_COOKIE, "")
    if not re.fullmatch(r"[A-Za-z0-9_-]{43}", token):
        import secrets

        token = secrets.token_urlsafe(32)
        request.response.set_cookie(CSRF_COOKIE, token, same_site="Strict", secure=request.scheme == "https")
        request._cookies = {**request.cookies, CSRF_COOKIE: token}
    return token


class SecurityHeadersTool(Tool):
    """The tool ``security_headers``: adds header fields that restrict browsers to every response, errors included.

    Fields that the handler sets are kept. The built-in error pages have a stricter Content-Security-Policy.

    Options:
        csp: the Content-Security-Policy; default: only content from the site itself. An empty text leaves the field
            out.
        hsts: seconds of Strict-Transport-Security, sent over HTTPS only; default: 0, not sent.
        referrer: the Referrer-Policy; default: strict-origin-when-cross-origin. An empty text leaves the field out.
        frames: X-Frame-Options; default: SAMEORIGIN. An empty text leaves the field out.
    """

    types = {"csp": str, "hsts": int, "referrer": str, "frames": str}  # noqa: RUF012 - no one changes it

    def __init__(self, **options: Any) -> None:
        super().__init__("before_finalize", None, "security_headers", **options)

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:  # noqa: ARG002 - as Tool has it
        fields = {
            "Content-Security-Policy": options.get(
                "csp", "default-src 'self'; object-src 'none'; base-uri 'self'; frame-ancestors 'self'"
            ),
            "Referrer-Policy": options.get("referrer", "strict-origin-when-cross-origin"),
            "X-Frame-Options": options.get("frames", "SAMEORIGIN"),
            "Cross-Origin-Opener-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
        }
        wanted = [(name, value) for name, value in fields.items() if value]
        hsts = options.get("hsts", 0)

        def add(request: Request) -> None:
            headers = request.response.headers
            for name, value in wanted:
                headers.setdefault(name, value)
            if hsts and request.scheme == "https":
                headers.setdefault("Strict-Transport-Security", f"max-age={hsts}")

        yield Hook(self.point, add, priority=70, name="security_headers", always=True)


def security_headers(**options: Any) -> SecurityHeadersTool:
    """Return the tool ``security_headers`` for all paths.

    Options: ``csp``, the Content-Security-Policy; ``hsts``, seconds of Strict-Transport-Security (0: not sent);
    ``referrer``; ``frames``. An empty text leaves a field out.
    """
    return SecurityHeadersTool(**options)


class BasicAuthTool(Tool):
    """The tool ``basic_auth`` (RFC 7617): asks for name and password; ``request.user`` is then the name.

    Options:
        check: a callable that takes name and password and returns whether they are right. Required.
        realm: the name of the protected area, which browsers may show; default: site.
    """

    types = {"realm": str, "check": None}  # noqa: RUF012 - no one changes it

    def __init__(self, **options: Any) -> None:
        super().__init__("before_request_body", None, "basic_auth", **options)

    def check(self, options: Mapping[str, Any]) -> Iterable[str]:
        if not callable(options.get("check")):
            yield "it needs check, a callable that takes name and password and returns whether they are right"
        realm = options.get("realm", "site")
        if not isinstance(realm, str) or not re.fullmatch(r'[^"\\\x00-\x1f\x7f-\uffff]*', realm):
            yield f"realm {realm!r} has a character that the field cannot hold"

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:  # noqa: ARG002 - as Tool has it
        realm = options.get("realm", "site")
        allowed: Callable[[str, str], bool] = options["check"]
        challenge = ("WWW-Authenticate", f'Basic realm="{realm}", charset="UTF-8"')

        def check(request: Request) -> None:
            given = credentials(request.headers.get("Authorization"))
            if given is None or not allowed(*given):
                raise HTTPError(401, "name and password are needed", headers=[challenge])
            request.user = given[0]

        yield Hook(self.point, check, priority=5, name="basic_auth")


def credentials(value: str) -> tuple[str, str] | None:
    """Return the name and the password in an Authorization field of the scheme Basic; None for anything else."""
    import base64
    import binascii

    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(" "), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (name, password) if colon else None


def basic_auth(check: Callable[[str, str], bool], **options: Any) -> BasicAuthTool:
    """Return the tool ``basic_auth`` for all paths. ``check(name, password)`` returns whether they are right; it should
    compare with ``hmac.compare_digest``."""
    return BasicAuthTool(check=check, **options)


class ProxyTool(Tool):
    """The tool ``proxy``: takes scheme, host and client address from the fields that a proxy in front has set.

    Each of the ``hops`` proxies appends its value to a field. Earlier values come from the client and are not trusted.
    Do not use the tool if the server does the same, as Kirsch does.

    Options:
        hops: the number of proxies in front; default: 1.
        scheme: the field with the scheme; default: X-Forwarded-Proto.
        host: the field with the host; default: X-Forwarded-Host.
        remote: the field with the client address; default: X-Forwarded-For.
    """

    types = {"hops": int, "scheme": str, "host": str, "remote": str}  # noqa: RUF012 - no one changes it

    def __init__(self, **options: Any) -> None:
        super().__init__("on_start_resource", None, "proxy", **options)

    def check(self, options: Mapping[str, Any]) -> Iterable[str]:
        if options.get("hops", 1) < 1:
            yield "hops is the number of proxies in front, 1 or more"

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:  # noqa: ARG002 - as Tool has it
        hops = options.get("hops", 1)
        scheme_name = options.get("scheme", "X-Forwarded-Proto")
        host_name = options.get("host", "X-Forwarded-Host")
        remote_name = options.get("remote", "X-Forwarded-For")

        def read(request: Request) -> None:
            environ = request.environ
            scheme = _hop(request, scheme_name, hops).lower()
            if scheme in ("http", "https"):
                environ["wsgi.url_scheme"] = scheme
            host = _hop(request, host_name, hops)
            if host and re.fullmatch(r"[A-Za-z0-9._-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?", host):
                environ["HTTP_HOST"] = host
            remote = _hop(request, remote_name, hops)
            if remote:
                environ["REMOTE_ADDR"] = remote

        yield Hook(self.point, read, priority=1, name="proxy")


def _hop(request: Request, name: str, hops: int) -> str:
    """Return the value that the outermost trusted proxy has added; empty if the field has fewer than ``hops``
    values."""
    values = [each.strip() for each in request.headers.get(name).split(",") if each.strip()]
    return values[-hops] if len(values) >= hops else ""


@tool("before_handler", priority=60)
def trailing_slash(request: Request, *, missing: bool = True, extra: bool = True) -> None:
    """The tool ``trailing_slash``: redirects to the one URL of a page: ``index`` ends with a slash, others do not.

    Options:
        missing: whether a missing slash is added, by a redirect with 308; default: true.
        extra: whether a slash too many is removed, by a redirect with 308; default: true.
    """
    path = request.path
    if request.plan.function is None or request.method not in ("GET", "HEAD"):
        return
    has_slash = path.endswith("/")
    if request.plan.is_index and not has_slash and missing:
        path += "/"
    elif not request.plan.is_index and has_slash and extra:
        path = path.rstrip("/")
    else:
        return
    query = f"?{request.query_string}" if request.query_string else ""
    # Exactly one slash at the beginning, because two would begin the name of another host.
    raise HTTPRedirect("/" + request.url(path)[len(request.origin) :].lstrip("/") + query, 308)


_COMPRESSED = ("text/*", "application/json", "application/problem+json", "application/javascript", "image/svg+xml")


@tool("before_finalize", priority=80)
def gzip(
    request: Request,
    *,
    level: Literal[1, 2, 3, 4, 5, 6, 7, 8, 9] = 5,
    least: int = 500,
    types: Sequence[str] = _COMPRESSED,
) -> None:
    """The tool ``gzip``: compresses text if the client accepts it, with zstd if client and server support it.

    Do not compress a page that has both a secret and text that the client chose, because its length then reveals the
    secret (the attack BREACH). Streams are compressed part by part.

    Options:
        level: the level of gzip, 1 (fast) to 9 (small); default: 5.
        least: the smallest body that is compressed, in bytes; default: 500.
        types: the media types that are compressed; `text/*` is a group. Default: text, JSON, JavaScript, SVG.
    """
    from kirsch_web.compress import compress_response

    compress_response(request, level, least, tuple(types))


@tool("before_finalize")
def expires(request: Request, *, seconds: int = 0, public: bool = False) -> None:
    """The tool ``expires``: sets Cache-Control: how long a client may use a response without a new request.

    Options:
        seconds: that time; default: 0, the client asks again each time.
        public: whether shared caches between server and clients may store the response; default: false.
    """
    if request.response.status < 400:
        fresh = f"{'public' if public else 'private'}, max-age={seconds}"
        request.response.headers.setdefault("Cache-Control", fresh if seconds else "no-cache")
