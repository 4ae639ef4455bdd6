"""The fast path for handlers at fixed paths. A Request is created only if the handler asks for it."""

from __future__ import annotations

from kirsch_web.pipeline import PLAIN, respond
from kirsch_web.request import current, reset_current, set_current
from kirsch_web.response import encode_json, length_fields, lengths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from kirsch_web.interfaces import Application, RequestPlan
    from kirsch_web.pipeline import StartResponse


def quick(app: Application, plan: RequestPlan, call: Callable[[], object]) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI callable for a plan that has no hooks, and whose handler ``call`` has no parameters."""
    line, html_fields, json_fields, kept_lengths = plan.line, plan.html_fields, plan.json_fields, lengths.get

    def serve(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        pending: list[Any] = [environ, app, plan]
        token = set_current(pending)
        try:
            try:
                result = call()
                kind = type(result)
                if pending[0] is not environ:  # the handler has asked for the request
                    body, fields = None, html_fields
                elif kind is str:
                    body, fields = result.encode(), html_fields  # type: ignore[attr-defined]
                elif kind in PLAIN:
                    body, fields = encode_json(result), json_fields
                else:
                    body, fields = None, html_fields
            except Exception as error:  # noqa: BLE001 - every exception of a handler becomes a response
                return respond(current(), start_response, error)
            if body is None:
                return respond(current(), start_response, None, result)
            start_response(line, fields + (kept_lengths(len(body)) or length_fields(len(body)))[0])
            return [body]
        finally:
            reset_current(token)

    return serve
