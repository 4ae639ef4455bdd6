"""A call of a WSGI application under the tracer: the call itself, each step of its iterable, and its ``close()``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kirsch.profile.tracer import BusyError, Tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    WsgiApplication = Callable[..., Iterable[bytes]]


@dataclass
class Run:
    """One traced request."""

    method: str
    path: str
    """With the mount's (SCRIPT_NAME), without the query."""
    started: float = field(default_factory=time.time)
    """Seconds since 1970."""
    tracer: Tracer = field(default_factory=Tracer)
    raised: str = ""
    """The name of the exception's class that the application raised."""

    @property
    def nanoseconds(self) -> int:
        """The nanoseconds in the application."""
        return self.tracer.total


def traced(
    app: WsgiApplication,
    environ: dict[str, Any],
    start_response: Any,
    done: Callable[[Run], None],
    tracer: Any = None,
) -> Any:
    """Call ``app``; return its iterable or a wrapper for it. ``done`` is called once, when the response has ended.
    Blocks are passed one by one. A list or tuple is returned unchanged, because the server uses its length, and so is a
    result of ``wsgi.file_wrapper``, because the server sends it without reading. ``tracer`` may be any object whose
    ``start()`` and ``stop()`` are called around the application's own time. Raises the application's exception, and
    BusyError before the call if :func:`kirsch.profile.tracer.is_free` is false.
    """
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    run = Run(environ.get("REQUEST_METHOD", ""), path, tracer=tracer or Tracer())
    tracer = run.tracer
    tracer.start()
    try:
        returned = app(environ, start_response)
    except BaseException as error:
        tracer.stop()
        run.raised = type(error).__name__
        done(run)
        raise
    tracer.stop()
    wrapper = environ.get("wsgi.file_wrapper")
    is_file = isinstance(wrapper, type) and isinstance(returned, wrapper)
    if type(returned) in (list, tuple) or is_file:
        done(run)
        return returned
    return _Traced(returned, run, done)


class _Traced:
    """A wrapper that traces the steps of an application's iterable."""

    def __init__(self, iterable: Iterable[bytes], run: Run, done: Callable[[Run], None]) -> None:
        self._iterable = iterable
        self._iterator: Iterator[bytes] | None = None
        self._run = run
        self._done: Callable[[Run], None] | None = done

    def __iter__(self) -> _Traced:
        if self._iterator is None:
            self._iterator = self._follow(partial(iter, self._iterable))
        return self

    def __next__(self) -> bytes:
        iterator = self._iterator
        if iterator is None:
            raise TypeError("the response is iterated before iter() was called on it")
        block: bytes = self._follow(iterator.__next__)
        return block

    def close(self) -> None:
        try:
            close = getattr(self._iterable, "close", None)
            if close is not None:
                self._follow(close)
        finally:
            if self._done is not None:
                done, self._done = self._done, None
                done(self._run)

    def _follow(self, act: Callable[[], Any]) -> Any:
        tracer = self._run.tracer
        try:
            tracer.start()
        except BusyError:
            return act()  # while another profiler is active, this step is not traced
        try:
            return act()
        except StopIteration:
            raise
        except BaseException as error:
            self._run.raised = type(error).__name__
            raise
        finally:
            tracer.stop()
