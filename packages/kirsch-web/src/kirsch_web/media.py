"""Tools for the media types of bodies: ``json_in``, ``form_in`` and ``json_out``."""

from __future__ import annotations

from kirsch_web import bodies
from kirsch_web.fields import media_type
from kirsch_web.hooks import Hook, Tool, tool
from kirsch_web.publishing import WITH_BODY
from kirsch_web.request import Request  # noqa: TC001 - the types of a tool's parameters are read at mount
from kirsch_web.response import JSON, Response, encode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from kirsch_web.interfaces import Application


def _brings_body(request: Request) -> bool:
    """Return whether the body must be read: always for methods with a body, for DELETE only if it has one."""
    if request.method != "DELETE":
        return request.method in WITH_BODY
    length = bodies.length_of(request.environ)
    # Without a length, a Content-Type shows that there is a body.
    return bool(request.environ.get("CONTENT_TYPE")) if length is None else length > 0


@tool("before_request_body", priority=30)
def json_in(request: Request) -> None:
    """The tool ``json_in``: bodies must be JSON, and are read before the handler runs. ``request.json()`` is the value.

    Another media type is answered with 415, a body that is not JSON with 400.
    """
    if _brings_body(request):
        request.json()


@tool("before_request_body", priority=30)
def form_in(request: Request) -> None:
    """The tool ``form_in``: bodies must be forms, and are read before the handler runs. ``request.form`` is the form.

    Another media type is answered with 415, a malformed form with 400.
    """
    if _brings_body(request):
        assert request.form is not None


class JsonOutTool(Tool):
    """The tool ``json_out``: encodes the handler's result as JSON, text and None too. A Response is not changed.

    Options:
        type: the media type, such as `application/vnd.shop+json`; default: application/json.
    """

    types = {"type": str}  # noqa: RUF012 - no one changes it

    def __init__(self, **options: Any) -> None:
        super().__init__("before_handler", None, "json_out", priority=30, **options)

    def check(self, options: Mapping[str, Any]) -> Iterable[str]:
        kind = options.get("type", JSON)
        if not (isinstance(kind, str) and bodies.is_json(media_type(kind)[0])):
            yield f"type {kind!r} is no media type of JSON, such as application/json or application/vnd.shop+json"

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:  # noqa: ARG002 - as Tool has it
        kind = options.get("type", JSON)

        def wrap(request: Request) -> None:
            handler = request.handler
            if handler is None:
                return

            def respond(result: object) -> object:
                if isinstance(result, Response):
                    return result
                return Response(encode_json(result), request.response.status, type=kind)

            async def respond_later(result: Any) -> object:
                return respond(await result)

            def call() -> object:
                result = handler()
                return respond_later(result) if hasattr(result, "__await__") else respond(result)

            request.handler = call

        yield Hook(self.point, wrap, priority=self.priority, name=self.name)
