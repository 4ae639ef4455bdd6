"""The stages of a request inside the application, for a profiler: dispatch, body, tools, handler, finalize.

A profiler such as ``kirsch profile`` puts a callable into ``environ["kirsch.stage"]``. The application calls it with
the name of the stage that begins; the callable returns the name of the stage that ends. A request is in one stage at a
time, so the times of the stages add up to the time of the request.

``dispatch``
    finding the plan, and the code that runs between hooks
``body``
    reading and parsing the body
``tools``
    hooks and tools
``handler``
    converting the parameters, the handler, and each step of a streamed response
``finalize``
    making the response from the handler's result; error pages

Without the callable this module is not imported, and a request that is not profiled costs one branch more.
"""

from __future__ import annotations

import copy
from typing import Any

from kirsch_web.hooks import POINTS
from kirsch_web.pipeline import respond
from kirsch_web.request import Request, reset_current, set_current
from kirsch_web.streams import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kirsch_web.forms import Form
    from kirsch_web.interfaces import Application
    from kirsch_web.plan import Plan

KEY = "kirsch.stage"
"""The key of ``environ`` with the callable that receives each stage."""

STAGES = ("dispatch", "body", "tools", "handler", "finalize")


def answer(app: Application, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer one request as ``app`` does, and report each stage to the profiler."""
    mark = environ[KEY]
    mark("dispatch")
    request = marked(app._request(environ))
    token = set_current(request)
    try:
        body = respond(request, start_response)
        # A list is complete, so its steps cost no time in the application.
        return _Steps(body, mark) if isinstance(body, Stream) and type(body.body) is not list else body
    finally:
        reset_current(token)


def marked(request: Request) -> Request:
    """Return ``request``, changed so that it reports its stages from now on."""
    request.__class__ = _MarkedRequest
    plan: Any = request.plan
    if plan.marked is None:
        plan.marked = _marked_plan(plan)
    request.plan = plan.marked
    return request


def _marked_plan(plan: Plan) -> Plan:
    found = copy.copy(plan)
    found.run = _in_stage("handler", plan.run, after="finalize")
    found.points = copy.copy(plan.points)
    for point in POINTS:
        callback = getattr(plan.points, point)
        if callback is not None:
            setattr(found.points, point, _in_stage("tools", callback))
    found.marked = found
    return found


def _during(mark: Callable[[str], str], name: str, call: Callable[..., Any], *arguments: Any, after: str = "") -> Any:
    """Call ``call`` in the stage ``name``. The stage after it is ``after``, by default the one before it."""
    before = mark(name)
    try:
        return call(*arguments)
    finally:
        mark(after or before)


def _in_stage(name: str, callback: Callable[[Request], object], after: str = "") -> Callable[[Request], object]:
    return lambda request: _during(request.environ[KEY], name, callback, request, after=after)


class _MarkedRequest(Request):
    """A request that reports the stage in which its body is read."""

    def _continue_as(self, new: Request, cookies: Sequence[str]) -> None:
        super()._continue_as(marked(new), cookies)

    def _read(self, read: Callable[[], Any]) -> Any:
        return _during(self.environ[KEY], "body", read)

    def body(self) -> bytes:
        data: bytes = self._read(super().body)
        return data

    @property
    def form(self) -> Form:
        found: Form = self._read(lambda: Request.form.fget(self))  # type: ignore[attr-defined]
        return found

    def json(self) -> Any:
        return self._read(super().json)


class _Steps:
    """A streamed body. Making each part belongs to the stage ``handler``."""

    def __init__(self, stream: Stream, mark: Callable[[str], str]) -> None:
        self._stream = stream
        self._mark = mark

    def __iter__(self) -> _Steps:
        return self

    def __next__(self) -> bytes:
        return _during(self._mark, "handler", next, self._stream)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the body at the end of the response."""
        _during(self._mark, "handler", self._stream.close)
