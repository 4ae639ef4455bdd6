"""Spans of requests for OpenTelemetry (``--otel``): read from and passed on by W3C trace context, exported by OTLP.

A request that is not sampled costs a random number and a context variable. Everything else happens for requests that
are sampled, or that name a trace themselves. ``opentelemetry-sdk`` makes the spans; docs/tracing.md describes them.

The SDK's own ``BatchSpanProcessor`` is not used: it drops spans without counting them, and its thread is lost in
children that the application forks.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from contextvars import ContextVar

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kirsch.monitor.scoreboard import put_exemplar
from kirsch.reports import WARNING, Seldom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span

    from kirsch.reports import Report

_REPORT_SECONDS = 60.0

# Whether the request of this context is sampled; None outside of requests.
_is_sampled: ContextVar[bool | None] = ContextVar("kirsch_is_sampled", default=None)

_exemplar_lock = threading.Lock()

_propagator = TraceContextTextMapPropagator()


class Tracing:
    """The tracing of one process. ``report`` receives how many spans were lost."""

    def __init__(self, report: Report) -> None:
        self.ratio, is_parent_based = _sampling()
        self._exporting: _Exporting | None = None
        # An application that has set up the SDK itself keeps its exporters.
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            root = _RootSampler(self.ratio)
            provider = TracerProvider(sampler=ParentBased(root) if is_parent_based else root)
            self._exporting = _Exporting(report)
            provider.add_span_processor(self._exporting)
            trace.set_tracer_provider(provider)
        self._tracer = provider.get_tracer("kirsch")
        # Server.queue_wait, once there is a server.
        self.queue_wait: Callable[[object], float | None] = lambda _request: None

    def wrapped(self, app: Callable[..., Any], interface: str) -> Callable[..., Any]:
        """Return ``app`` with a span around each sampled request."""
        return self._asgi(app) if interface == "asgi" else self._wsgi(app)

    def shutdown(self) -> None:
        """Export what is left, for a few seconds at most."""
        if self._exporting is not None:
            self._exporting.shutdown()

    # ------------------------------------------------------------------------------------------------------------ WSGI

    def _wsgi(self, app: Callable[..., Any]) -> Callable[..., Any]:
        ratio, draw, is_sampled, traced = self.ratio, random.random, _is_sampled, self._call_wsgi

        def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            if "HTTP_TRACEPARENT" in environ or draw() < ratio:
                return traced(app, environ, start_response)
            token = is_sampled.set(False)
            try:
                result: Iterable[bytes] = app(environ, start_response)
                return result
            finally:
                is_sampled.reset(token)

        return call

    def _call_wsgi(
        self, app: Callable[..., Any], environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        fields = {"traceparent": environ.get("HTTP_TRACEPARENT", ""), "tracestate": environ.get("HTTP_TRACESTATE", "")}
        request = _RequestSpan(self._tracer, fields, lambda: _wsgi_attributes(environ), self.queue_wait(environ))
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
        # A list is written by the engine afterwards, and so is a file: neither is to become an iterator.
        if isinstance(body, (list, tuple, environ.get("wsgi.file_wrapper", list))):
            request.end()
            return body
        return _TracedBody(body, request)

    # ------------------------------------------------------------------------------------------------------------ ASGI

    def _asgi(self, app: Callable[..., Any]) -> Callable[..., Any]:
        ratio, draw, is_sampled, traced = self.ratio, random.random, _is_sampled, self._call_asgi

        async def call(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            if draw() < ratio or any(name == b"traceparent" for name, _ in scope["headers"]):
                await traced(app, scope, receive, send)
                return
            token = is_sampled.set(False)
            try:
                await app(scope, receive, send)
            finally:
                is_sampled.reset(token)

        return call

    async def _call_asgi(self, app: Callable[..., Any], scope: dict[str, Any], receive: Any, send: Any) -> None:
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request = _RequestSpan(self._tracer, fields, lambda: _asgi_attributes(scope, fields), self.queue_wait(scope))
        scope.setdefault("extensions", {})["kirsch.trace"] = {"traceparent": request.traceparent}
        scope["kirsch.traceparent"] = request.traceparent  # for the access log, as in an environ

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
    """The span of one request. As a context manager it is the current span, and its time is the application's.

    ``queued`` is how many seconds the request has waited in the queue; None: that was not measured.
    """

    def __init__(
        self,
        tracer: trace.Tracer,
        fields: dict[str, str],
        attributes: Callable[[], dict[str, Any]],
        queued: float | None,
    ) -> None:
        parent = _propagator.extract(fields)
        start = time.time_ns() - round((queued or 0) * 1e9)
        token = _is_sampled.set(True)
        try:
            self._span: Span = tracer.start_span("request", parent, kind=trace.SpanKind.SERVER, start_time=start)
        finally:
            _is_sampled.reset(token)
        if self._span.is_recording():
            found = attributes()
            self._span.update_name(found["http.request.method"])
            self._span.set_attributes(found)
            if queued is not None:
                self._span.set_attribute("kirsch.queue.seconds", queued)
        self._context = trace.set_span_in_context(self._span, parent)
        self.status = 0
        self.working = 0
        self.writing = 0

    @property
    def traceparent(self) -> str:
        """The value of a traceparent field for requests that the application makes."""
        fields: dict[str, str] = {}
        _propagator.inject(fields, self._context)
        return fields.get("traceparent", "")

    def __enter__(self) -> None:
        self._token = context.attach(self._context)
        self._began = time.perf_counter_ns() - self.writing

    def __exit__(self, *_: object) -> None:
        self.working += time.perf_counter_ns() - self._began - self.writing
        context.detach(self._token)

    def end(self, error: BaseException | None = None) -> None:
        span = self._span
        if span.is_recording():
            span.set_attribute("kirsch.application.seconds", self.working / 1e9)
            span.set_attribute("kirsch.write.seconds", self.writing / 1e9)
            if self.status:
                span.set_attribute("http.response.status_code", self.status)
            if error is not None:
                span.record_exception(error)
                span.set_attribute("error.type", type(error).__qualname__)
            if error is not None or self.status >= 500:
                span.set_status(trace.StatusCode.ERROR)
        span.end()
        found = span.get_span_context()
        if found.trace_flags.sampled:
            with _exemplar_lock:
                put_exemplar((self.working + self.writing) / 1e9, found.trace_id, found.span_id)


class _TracedBody:
    """The body of a WSGI response that is made part by part. The span ends when it is closed."""

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


def _sampling() -> tuple[float, bool]:
    """Return the share of requests that are sampled, and whether the sampling of a request's sender counts.

    Raises ValueError for variables that are wrong.
    """
    name = os.environ.get("OTEL_TRACES_SAMPLER", "parentbased_always_on").strip().lower()
    kind = name.removeprefix("parentbased_")
    if kind not in ("always_on", "always_off", "traceidratio"):
        raise ValueError(
            f"OTEL_TRACES_SAMPLER: {name!r} is none of always_on, always_off, traceidratio, parentbased_..."
        )
    ratio = {"always_on": 1.0, "always_off": 0.0}.get(kind)
    if ratio is None:
        text = os.environ.get("OTEL_TRACES_SAMPLER_ARG", "1")
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            raise ValueError(f"OTEL_TRACES_SAMPLER_ARG: {text!r} is no share from 0 to 1")
    return ratio, kind != name


class _RootSampler(Sampler):
    """Samples spans without a parent: in a request as the request, and elsewhere by their trace id."""

    def __init__(self, ratio: float) -> None:
        self._elsewhere = TraceIdRatioBased(ratio)

    def should_sample(self, parent_context: Any, trace_id: int, name: str, *args: Any, **named: Any) -> SamplingResult:
        is_sampled = _is_sampled.get()
        if is_sampled is None:
            return self._elsewhere.should_sample(parent_context, trace_id, name, *args, **named)
        return SamplingResult(Decision.RECORD_AND_SAMPLE if is_sampled else Decision.DROP)

    def get_description(self) -> str:
        return "KirschRootSampler"


class _Exporting(SpanProcessor):
    """Exports spans in a thread of its own, which no request waits for. Spans that find no room are dropped."""

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
            # A child that the application has forked has neither this thread nor its spans.
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
        # Libraries that are instrumented make no spans of the export itself.
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
        """Wait for spans. Return them, and whether they are the last ones."""
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
