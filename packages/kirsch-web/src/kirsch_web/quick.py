"""The fast path for handlers at fixed paths. A Request is created only if the handler asks for it."""

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
    """Content-Length fields by length. Those of lengths below 4096 are cached."""

    def __missing__(self, length: int) -> list[tuple[str, str]]:
        field = [("Content-Length", str(length))]
        if length < 4096:
            self[length] = field
        return field


lengths = Lengths()


def quick(app: Application, plan: RequestPlan, call: Callable[[], object]) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI callable for a plan that has no hooks, and whose handler ``call`` has no parameters."""

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
            except Exception as error:  # noqa: BLE001 - every exception of a handler becomes a response
                return respond(current(), start_response, error)
            if body is None:
                return respond(current(), start_response, None, result)
            start_response(plan.line, fields)
            return [body]
        finally:
            reset_current(token)

    return serve
