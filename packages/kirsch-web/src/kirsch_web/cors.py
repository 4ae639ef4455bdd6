"""Cross-origin resource sharing (the Fetch standard, 3.3), as the tool ``cors``."""

from __future__ import annotations

import re

from kirsch_web.errors import Finished
from kirsch_web.hooks import Hook, Tool
from kirsch_web.response import Response

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from kirsch_web.interfaces import Application
    from kirsch_web.request import Request

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s\x00-\x20,*]+", re.IGNORECASE).fullmatch
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch


class CorsTool(Tool):
    """The tool ``cors``: lets pages of other origins read the responses, and send requests that need a preflight.

    A preflight request (OPTIONS with Access-Control-Request-Method) is answered before any other hook runs. It names a
    path and not a handler, so switch the tool on for the application, a class or a section, not for a handler. All
    responses have the CORS fields, including those of errors. If an origin is not allowed, they are left out, and the
    browser hides the response from the page. The tool does not prevent forged requests: see the tool ``csrf``.

    Options:
        origins: a list of origins such as `https://shop.example`, or `["*"]` for all; required.
        credentials: whether requests may carry cookies and other credentials of this site; default: False. Not allowed
            with `*`.
        methods: a list of allowed methods; default: the methods of the path.
        headers: a list of allowed request fields beyond the CORS-safelisted ones; default: Content-Type.
        expose: a list of response fields that pages may read beyond the CORS-safelisted ones; default: none.
        max_age: how many seconds a browser may cache the response to a preflight request; default: 600.
    """

    types = {  # noqa: RUF012 - no one changes it
        "origins": list, "credentials": bool, "methods": list, "headers": list, "expose": list, "max_age": int,
    }  # fmt: skip

    def __init__(self, **options: Any) -> None:
        super().__init__("before_finalize", None, "cors", **options)

    def check(self, options: Mapping[str, Any]) -> Iterable[str]:
        origins = options.get("origins")
        if not origins:
            yield "it needs origins, a list such as ['https://shop.example'], or ['*'] for all"
            return
        for origin in origins:
            if origin != "*" and not _ORIGIN(str(origin)):
                yield f"origins has {origin!r}, which is not an origin such as https://shop.example"
        if "*" in origins and len(origins) > 1:
            yield "origins has '*' and others, and '*' means all"
        if "*" in origins and options.get("credentials"):
            yield "credentials cannot be shared with every origin: name the origins"
        for option in ("methods", "headers", "expose"):
            for name in options.get(option) or ():
                if not _TOKEN(str(name)):
                    yield f"{option} has {name!r}, which is not a name of HTTP"

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:  # noqa: ARG002 - as Tool has it
        everyone = "*" in options["origins"]
        origins = frozenset(each.lower() for each in options["origins"])
        shared = [("Access-Control-Allow-Credentials", "true")] if options.get("credentials") else []
        exposed = [("Access-Control-Expose-Headers", ", ".join(options["expose"]))] if options.get("expose") else []
        methods = tuple(each.upper() for each in options.get("methods") or ())
        headers = ", ".join(options.get("headers", ("Content-Type",)))
        max_age = str(options.get("max_age", 600))

        def is_allowed(request: Request) -> bool:
            origin = request.headers.get("Origin").lower()
            return bool(origin) and (everyone or origin in origins)

        def preflight(request: Request) -> None:
            if request.method != "OPTIONS" or not request.headers.get("Access-Control-Request-Method"):
                return
            # ``allow`` is empty with a custom dispatcher, which does not know the methods of a path.
            allow = methods or request.plan.allow
            if allow and is_allowed(request):
                fields = [("Access-Control-Allow-Methods", ", ".join(allow)), ("Access-Control-Max-Age", max_age)]
                if headers:
                    fields.append(("Access-Control-Allow-Headers", headers))
                raise Finished(Response(b"", 204, headers=fields))

        def share(request: Request) -> None:
            fields = request.response.headers
            if not everyone:  # the response depends on the origin
                fields.vary("Origin")
            if is_allowed(request):
                fields["Access-Control-Allow-Origin"] = "*" if everyone else request.headers.get("Origin")
                for name, value in shared + exposed:
                    fields[name] = value

        yield Hook("on_start_resource", preflight, priority=0, name="cors: preflight")
        yield Hook(self.point, share, priority=71, name="cors", always=True)


def cors(origins: list[str], **options: Any) -> CorsTool:
    """Return the tool ``cors`` for all paths: it lets pages of ``origins`` read the responses.

    Options: ``credentials``, ``methods``, ``headers``, ``expose``, ``max_age``; the [settings](settings.md#cors)
    describe them.
    """
    return CorsTool(origins=origins, **options)
