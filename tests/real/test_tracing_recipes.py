"""The recipes of docs/tracing.md: structlog and Sentry find the trace that the server has continued."""

from __future__ import annotations

import gzip
import json
import queue
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from test_doc_examples import blocks
from test_tracing import PARENT, Collector, get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Serve

pytest.importorskip("opentelemetry.sdk")

STRUCTLOG, SENTRY = blocks("docs/tracing.md", "python")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with closing(Collector()) as collector:
        yield collector


class ErrorReceiver:
    """Receives the events of Sentry's SDK: envelopes, which are lines of JSON."""

    def __init__(self) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                for line in body.splitlines():
                    found = json.loads(line)
                    if "exception" in found:
                        receiver.events.put(found)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.dsn = f"http://key@127.0.0.1:{self.server.server_port}/1"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def flask(recipe: str, body: str) -> str:
    return f"{recipe}\nimport flask\napp = flask.Flask(__name__)\n@app.route('/')\ndef page():\n    {body}\n"


@pytest.mark.slow
def test_structlog_writes_the_trace(serve: Serve, write_app: Callable[[str], str], collector: Collector) -> None:
    pytest.importorskip("structlog")
    app = write_app(flask(STRUCTLOG, "structlog.get_logger().info('sold'); return 'sold'"))
    site = serve(f"{app}:app", "--otel", env=collector.environment)
    assert get(site, "/", traceparent=PARENT) == (200, "sold")
    (span,) = collector.wait_for(1)
    assert site.stop() == 0
    (line,) = [json.loads(line) for line in site.stdout.splitlines() if "sold" in line]
    assert (line["trace_id"], line["span_id"]) == (PARENT[3:35], span.span_id.hex())


@pytest.mark.slow
def test_error_in_sentry_has_the_trace(serve: Serve, write_app: Callable[[str], str], collector: Collector) -> None:
    pytest.importorskip("sentry_sdk")
    app = write_app(flask(SENTRY, "raise LookupError('no such book')"))
    with closing(ErrorReceiver()) as receiver:
        site = serve(f"{app}:app", "--otel", env={**collector.environment, "SENTRY_DSN": receiver.dsn})
        assert get(site, "/", traceparent=PARENT)[0] == 500
        event = receiver.events.get(timeout=30)
    (span,) = collector.wait_for(1)
    found = event["contexts"]["trace"]
    assert (found["trace_id"], found["span_id"]) == (PARENT[3:35], span.span_id.hex())
    assert event["exception"]["values"][-1]["type"] == "LookupError"
