"""The short way of a fixed path: no request is made unless the handler asks for one."""

from __future__ import annotations

from kirsch_web.pipeline import PLAIN, respond
from kirsch_web.request import current, reset_current, set_current
from kirsch_web.response import encode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from kirsch_web.interfaces import Application, RequestPlan
    from kirsch_web.pipeline import StartResponse


class Lengths(dict[int, "list[tuple[str, str]]"]):
    """Content-Length fields by number; those of small bodies are kept."""

    def __missing__(self, length: int) -> list[tuple[str, str]]:
        field = [("Content-Length", str(length))]
        if length < 4096:
            self[length] = field
        return field


lengths = Lengths()


def quick(app: Application, plan: RequestPlan, call: Callable[[], object]) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI callable of a plan without hooks, whose handler ``call`` has no parameters."""

    def serve(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        pending: list[Any] = [environ, app, plan]
        token = set_current(pending)
        try:
            try:
                result = call()
                kind = type(result)
                if len(pending) > 3 or (kind is not str and kind not in PLAIN):
                    body, fields = None, []
                elif kind is str:
                    body = result.encode()  # type: ignore[attr-defined]
                    fields = plan.html_fields + lengths[len(body)]
                else:
                    body = encode_json(result)
                    fields = plan.json_fields + lengths[len(body)]
            except Exception as error:  # noqa: BLE001 - whatever a handler raises becomes a response
                return respond(current(), start_response, error)
            if body is None:
                return respond(current(), start_response, None, result)
            start_response(plan.line, fields)
            return [body]
        finally:
            reset_current(token)

    return serve
