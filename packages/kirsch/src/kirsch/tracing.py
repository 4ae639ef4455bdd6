"""Spans of requests for OpenTelemetry (``--otel``): parents are read from W3C trace context, spans are exported by
OTLP.

The native server decides which requests are sampled (``crates/gateway/src/sampling.rs``), and no code here runs for the
others, unless they name a trace: their current span is a :class:`_NotSampled`, which is set in the contexts of requests
from the start.
``opentelemetry-sdk`` creates the spans; docs/tracing.md describes them.

The SDK's own ``BatchSpanProcessor`` is not used: it drops spans without counting them, and its thread does not exist in
children that the application forks.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from contextvars import ContextVar
from copy import copy

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kirsch._native import RequestCount, sampled
from kirsch.drivers.asyncio import application
from kirsch.monitor.scoreboard import put_exemplar
from kirsch.reports import WARNING, Seldom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.sampling import Sampler
    from opentelemetry.trace import Span, SpanContext

    from kirsch.reports import Report

_REPORT_SECONDS = 60.0

# The request counter of this context, if its thread or greenlet calls a WSGI application.
_count: ContextVar[RequestCount | None] = ContextVar("kirsch_request_count", default=None)

# The span context of the current unsampled request, with the request's number. If the request names a trace, it is made
# of these header fields when it is needed.
_not_sampled: ContextVar[tuple[int, SpanContext | dict[str, str]] | None] = ContextVar(
    "kirsch_not_sampled", default=None
)

_exemplar_lock = threading.Lock()

_propagator = TraceContextTextMapPropagator()


class Tracing:
    """The tracing of one process. ``report`` is called with the number of lost spans."""

    def __init__(self, report: Report) -> None:
        sampler, self.bound = _sampling()
        self._exporting: _Exporting | None = None
        self._follows = False
        # If the application has set up the SDK itself, its exporters and its sampler are used.
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            provider = TracerProvider(sampler=sampler)
            self._exporting = _Exporting(report)
            provider.add_span_processor(self._exporting)
            trace.set_tracer_provider(provider)
            self._follows = isinstance(sampler, ParentBased)
        elif provider.sampler.get_description() != sampler.get_description():
            self.bound = 1 << 64  # the sampler decides about every request
        # The provider returns one tracer for a name, so sampled requests use another tracer.
        self._tracer = provider.get_tracer("kirsch")
        self._tracer_of_drawn = copy(self._tracer)
        if self.bound < 1 << 64:
            self._tracer_of_drawn.id_generator = _SampledIds(self.bound)  # type: ignore[attr-defined]  # it is the SDK's
        # Replaced by Server.queue_wait when the server exists.
        self.queue_wait: Callable[[object], float | None] = lambda _request: None

    def wrapped(self, app: Callable[..., Any], interface: str) -> Callable[..., Any]:
        """Return an application that calls ``app`` with a span around each sampled request. Contexts of ASGI
        requests are copies of the current one."""
        seed = random.getrandbits(64)
        if interface == "asgi":
            app = application(app)
            if self.bound < 1 << 64 or self._follows:
                context.attach(_NotSampled(None, self.bound).as_context())
            followed = _followed_asgi(app) if self._follows else None
            return sampled(app, self._asgi(app), followed, self.bound, seed)
        followed = _followed_wsgi(app) if self._follows else None
        return sampled(app, self._wsgi(app), followed, self.bound, seed, (_count, self._enter))

    def _span(self, fields: dict[str, str], attributes: dict[str, Any], request: object) -> _RequestSpan:
        if fields.get("traceparent"):
            return _RequestSpan(self._tracer, _propagator.extract(fields), attributes, self.queue_wait(request))
        return _RequestSpan(self._tracer_of_drawn, context.Context(), attributes, self.queue_wait(request))

    def shutdown(self) -> None:
        """Export the remaining spans, for a few seconds at most."""
        if self._exporting is not None:
            self._exporting.shutdown()

    def _enter(self) -> RequestCount:
        """Prepare the context of a thread or greenlet for unsampled requests."""
        count = RequestCount()
        context.attach(_NotSampled(count, self.bound).as_context())
        _count.set(count)
        return count

    # ------------------------------------------------------------------------------------------------------------ WSGI

    def _wsgi(self, app: Callable[..., Any]) -> Callable[..., Any]:
        def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            return self._call_wsgi(app, environ, start_response)

        return call

    def _call_wsgi(
        self, app: Callable[..., Any], environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        fields = {"traceparent": environ.get("HTTP_TRACEPARENT", ""), "tracestate": environ.get("HTTP_TRACESTATE", "")}
        request = self._span(fields, _wsgi_attributes(environ), environ)
        environ["kirsch.traceparent"] = request.traceparent

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            request.status = int(status[:3])
            return start_response(status, headers, *rest)

        try:
            with request:
                body: Iterable[bytes] = app(environ, start)
        except BaseException as error:
            request.end(error)
            raise
        # The engine writes a list or a file after the call: do not wrap it in an iterator.
        if isinstance(body, (list, tuple, environ.get("wsgi.file_wrapper", list))):
            request.end()
            return body
        return _TracedBody(body, request)

    # ------------------------------------------------------------------------------------------------------------ ASGI

    def _asgi(self, app: Callable[..., Any]) -> Callable[..., Any]:
        async def call(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await self._call_asgi(app, scope, receive, send)
                return
            # A lifespan and a WebSocket are no requests. The contexts of requests are copies of that in which the
            # lifespan sends that it has started.
            of_requests = context.get_current()

            async def send_started(message: dict[str, Any]) -> None:
                token = context.attach(of_requests)
                try:
                    await send(message)
                finally:
                    context.detach(token)

            token = context.attach(context.Context())
            try:
                await app(scope, receive, send_started if scope["type"] == "lifespan" else send)
            finally:
                context.detach(token)

        return call

    async def _call_asgi(self, app: Callable[..., Any], scope: dict[str, Any], receive: Any, send: Any) -> None:
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request = self._span(fields, _asgi_attributes(scope, fields), scope)
        _give_traceparent(scope, request.traceparent)

        async def send_traced(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
            began = time.perf_counter_ns()
            try:
                await send(message)
            finally:
                request.writing += time.perf_counter_ns() - began

        try:
            with request:
                await app(scope, receive, send_traced)
        except BaseException as error:
            request.end(error)
            raise
        request.end()


class _RequestSpan:
    """The span of one request. While used as a context manager, it is the current span and measures the application's
    time. ``queued`` is how many seconds the request has waited in the queue, or None if that was not measured.
    """

    def __init__(
        self,
        tracer: trace.Tracer,
        parent: context.Context,
        attributes: dict[str, Any],
        queued: float | None,
    ) -> None:
        start = time.time_ns() - round((queued or 0) * 1e9)
        if queued is not None:
            attributes["kirsch.queue.seconds"] = queued
        # Attributes that are set together take a third of the time of attributes that are set one by one.
        self._span: Span = tracer.start_span(
            attributes["http.request.method"], parent, trace.SpanKind.SERVER, attributes, start_time=start
        )
        self._context = trace.set_span_in_context(self._span, parent)
        self.status = 0
        self.working = 0
        self.writing = 0

    @property
    def traceparent(self) -> str:
        """The value of the traceparent field for requests that the application sends."""
        found = self._span.get_span_context()
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def __enter__(self) -> None:
        self._token = context.attach(self._context)
        self._began = time.perf_counter_ns() - self.writing

    def __exit__(self, *_: object) -> None:
        self.working += time.perf_counter_ns() - self._began - self.writing
        context.detach(self._token)

    def end(self, error: BaseException | None = None) -> None:
        span = self._span
        if span.is_recording():
            attributes: dict[str, float | str] = {
                "kirsch.application.seconds": self.working / 1e9,
                "kirsch.write.seconds": self.writing / 1e9,
            }
            if self.status:
                attributes["http.response.status_code"] = self.status
            if error is not None:
                span.record_exception(error)
                attributes["error.type"] = type(error).__qualname__
            span.set_attributes(attributes)
            if error is not None or self.status >= 500:
                span.set_status(trace.StatusCode.ERROR)
        span.end()
        found = span.get_span_context()
        if found.trace_flags.sampled:
            with _exemplar_lock:
                put_exemplar((self.working + self.writing) / 1e9, found.trace_id, found.span_id)


class _TracedBody:
    """The iterable body of a WSGI response. The span ends when the body is closed."""

    def __init__(self, body: Iterable[bytes], request: _RequestSpan) -> None:
        self._body = body
        self._parts: Iterator[bytes] | None = None
        self._request = request
        self._error: BaseException | None = None
        self._paused_at = time.perf_counter_ns()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        request = self._request
        request.writing += time.perf_counter_ns() - self._paused_at
        try:
            with request:
                if self._parts is None:
                    self._parts = iter(self._body)
                return next(self._parts)
        except StopIteration:
            raise
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._paused_at = time.perf_counter_ns()

    def close(self) -> None:
        self._request.writing += time.perf_counter_ns() - self._paused_at
        try:
            if hasattr(self._body, "close"):
                self._body.close()
        finally:
            self._request.end(self._error)


def _followed_wsgi(app: Callable[..., Any]) -> Callable[..., Any]:
    """Return an application that calls ``app`` for requests of traces that their senders do not sample. The native
    server has counted them."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        fields = {"traceparent": environ["HTTP_TRACEPARENT"], "tracestate": environ.get("HTTP_TRACESTATE", "")}
        environ["kirsch.traceparent"] = fields["traceparent"]
        count = _count.get()
        assert count is not None
        _not_sampled.set((count.number, fields))
        return app(environ, start_response)

    return call


def _followed_asgi(app: Callable[..., Any]) -> Callable[..., Any]:
    """Return an application that calls ``app`` for requests of traces that their senders do not sample."""

    async def call(scope: dict[str, Any], receive: Any, send: Any) -> None:
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        _give_traceparent(scope, fields["traceparent"])
        _not_sampled.set((0, fields))
        await app(scope, receive, send)

    return call


def _give_traceparent(scope: dict[str, Any], traceparent: str) -> None:
    scope.setdefault("extensions", {})["kirsch.trace"] = {"traceparent": traceparent}
    scope["kirsch.traceparent"] = traceparent  # for the access log, which reads the environ or scope


def _wsgi_attributes(environ: dict[str, Any]) -> dict[str, Any]:
    found = {
        "http.request.method": environ["REQUEST_METHOD"],
        "url.scheme": environ["wsgi.url_scheme"],
        "url.path": environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""),
        "url.query": environ.get("QUERY_STRING"),
        "client.address": environ.get("REMOTE_ADDR"),
        "server.address": environ.get("HTTP_HOST"),
        "user_agent.original": environ.get("HTTP_USER_AGENT"),
        "network.protocol.version": environ["SERVER_PROTOCOL"].removeprefix("HTTP/"),
    }
    return {name: value for name, value in found.items() if value}


def _asgi_attributes(scope: dict[str, Any], fields: dict[str, str]) -> dict[str, Any]:
    client = scope.get("client")
    found = {
        "http.request.method": scope["method"],
        "url.scheme": scope["scheme"],
        "url.path": scope["path"],
        "url.query": scope["query_string"].decode("latin-1"),
        "client.address": client[0] if client else None,
        "server.address": fields.get("host"),
        "user_agent.original": fields.get("user-agent"),
        "network.protocol.version": scope["http_version"],
    }
    return {name: value for name, value in found.items() if value}


def _sampling() -> tuple[Sampler, int]:
    """Return OpenTelemetry's sampler, and how many of 2^64 draws are sampled if a request names no trace.

    Raises ValueError if an environment variable is wrong.
    """
    name = os.environ.get("OTEL_TRACES_SAMPLER", "parentbased_always_on").strip().lower()
    kind = name.removeprefix("parentbased_")
    roots: dict[str, tuple[Sampler, int]] = {"always_on": (ALWAYS_ON, 1 << 64), "always_off": (ALWAYS_OFF, 0)}
    if kind == "traceidratio":
        text = os.environ.get("OTEL_TRACES_SAMPLER_ARG", "1")
        try:
            root = TraceIdRatioBased(float(text))
        except ValueError:
            raise ValueError(f"OTEL_TRACES_SAMPLER_ARG: {text!r} is no share from 0 to 1") from None
        roots[kind] = (root, root.bound)
    if kind not in roots:
        raise ValueError(
            f"OTEL_TRACES_SAMPLER: {name!r} is none of always_on, always_off, traceidratio, parentbased_..."
        )
    sampler, bound = roots[kind]
    return (sampler if kind == name else ParentBased(sampler)), bound


class _SampledIds(RandomIdGenerator):
    """A generator of trace ids that ``TraceIdRatioBased`` samples, because the request was already selected."""

    def __init__(self, bound: int) -> None:
        self._bound = bound

    def generate_trace_id(self) -> int:
        return random.getrandbits(64) << 64 | random.randrange(max(self._bound, 1)) or 1  # noqa: S311 - no secret


class _NotSampled(trace.NonRecordingSpan):
    """The current span of all unsampled requests. Its span context has the ids of the current request, which are
    created when they are read, for example for a request that the application sends.
    """

    def __init__(self, count: RequestCount | None, bound: int) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self._count = count
        self._bound = bound

    def as_context(self) -> context.Context:
        return trace.set_span_in_context(self, context.Context())

    def get_span_context(self) -> SpanContext:
        number = 0 if self._count is None else self._count.number
        known = _not_sampled.get()
        if known is None or known[0] != number:
            low = random.randrange(min(self._bound, (1 << 64) - 1), 1 << 64)  # noqa: S311 - no secret
            trace_id = random.getrandbits(64) << 64 | low
            found = trace.SpanContext(trace_id, random.getrandbits(64) or 1, is_remote=False)
        elif isinstance(known[1], dict):
            parent = trace.get_current_span(_propagator.extract(known[1])).get_span_context()
            found = trace.SpanContext(parent.trace_id, parent.span_id, is_remote=False, trace_state=parent.trace_state)
        else:
            return known[1]
        _not_sampled.set((number, found))
        return found


class _Exporting(SpanProcessor):
    """A span processor that exports in its own thread, so that no request waits. Spans are dropped if its queue is
    full."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._most = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "2048"))
        self._batch = int(os.environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512"))
        self._delay = int(os.environ.get("OTEL_BSP_SCHEDULE_DELAY", "5000")) / 1000
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._dropped = 0
        self._reports = Seldom(_REPORT_SECONDS)
        self._queue: queue.Queue[ReadableSpan | None] = queue.Queue(self._most)
        self._exporter = OTLPSpanExporter()
        self._thread = threading.Thread(target=self._run, name="kirsch-otel", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        if not span.context.trace_flags.sampled:
            return
        if self._pid != os.getpid():
            # This is a child that the application has forked: it has no exporting thread, and the queued spans are the
            # parent's.
            self._start()
        try:
            self._queue.put_nowait(span)
        except queue.Full:
            self._dropped += 1

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        return True

    def shutdown(self) -> None:
        if self._pid == os.getpid() and self._thread.is_alive():
            try:
                self._queue.put(None, timeout=1)
                self._thread.join(5)
            except queue.Full:
                pass
            self._report_dropped()

    def _run(self) -> None:
        # Instrumented libraries must not create spans for the export itself.
        context.attach(context.set_value("suppress_instrumentation", True))
        has_ended = False
        while not has_ended:
            batch, has_ended = self._next_batch()
            if batch:
                try:
                    is_exported = self._exporter.export(batch) is SpanExportResult.SUCCESS
                except Exception:  # noqa: BLE001 - whatever it raises, the spans are lost and the server goes on
                    is_exported = False
                self._dropped += 0 if is_exported else len(batch)
            if self._dropped and self._reports.is_due():
                self._report_dropped()
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # so it is in the library

    def _next_batch(self) -> tuple[list[ReadableSpan], bool]:
        """Wait for spans. Return them, and whether they are the last batch."""
        batch: list[ReadableSpan] = []
        deadline = None
        while len(batch) < self._batch:
            try:
                span = self._queue.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0))
            except queue.Empty:
                break
            if span is None:
                return batch, True
            batch.append(span)
            deadline = deadline or time.monotonic() + self._delay
        return batch, False

    def _report_dropped(self) -> None:
        if self._dropped:
            count, self._dropped = self._dropped, 0
            self._report(WARNING, f"--otel: {count} spans were lost: the collector is slow or cannot be reached", None)
