"""Spans of requests (``--otel``), as a collector receives them by OTLP over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import threading
import time
import urllib.request
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from interpreter import needs_gevent
from kirsch.monitor.metrics import OPENMETRICS_TYPE
from ports import free_port
from proc import wait_until
from waiting import HERE, ask, assert_answered, await_inside, await_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from running import Running, Serve

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-1] + "0"

every_interface = pytest.mark.parametrize("interface", ["wsgi", "asgi"])


class Collector:
    """A receiver of spans, with the protocol's own messages."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = trace_service.ExportTraceServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                with collector.changed:
                    for resource in request.resource_spans:
                        for scope in resource.scope_spans:
                            collector.spans += scope.spans
                    collector.changed.notify_all()
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def wait_for(self, count: int) -> list[Any]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.spans) >= count, 30), self.spans
            return list(self.spans)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with closing(Collector()) as collector:
        yield collector


def served(serve: Serve, interface: str, collector: Collector, *arguments: str, **environment: str) -> Running:
    env = {**collector.environment, **environment}
    return serve(f"tracing_app:{interface}", "--otel", "--pythonpath", HERE, *arguments, env=env)


def get(site: Running, path: str, **fields: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)) as connection:
        connection.request("GET", path, headers=fields)
        response = connection.getresponse()
        return response.status, response.read().decode()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@every_interface
def test_trace_is_continued_into_the_application(serve: Serve, interface: str, collector: Collector) -> None:
    site = served(serve, interface, collector)
    status, text = get(site, "/a?b=1", traceparent=PARENT, tracestate="vendor=x")
    assert (status, text) == (200, PARENT[3:35])
    spans = {span.name: span for span in collector.wait_for(2)}
    request, query = spans["GET"], spans["query"]
    assert request.trace_id.hex() == query.trace_id.hex() == PARENT[3:35]
    assert request.parent_span_id.hex() == PARENT[36:52]
    assert query.parent_span_id == request.span_id
    assert request.trace_state == "vendor=x"
    found = attributes(request)
    assert found["url.path"] == "/a"
    assert found["url.query"] == "b=1"
    assert found["http.response.status_code"] == 200
    assert found["kirsch.application.seconds"] > 0
    given = get(site, "/given", traceparent=PARENT)[1]
    assert given == f"{PARENT[:36]}{collector.wait_for(3)[2].span_id.hex()}-01"


@every_interface
@pytest.mark.parametrize("field", ["00-0-0-0", PARENT.replace("00-", "ff-", 1), "00-" + "0" * 32 + PARENT[35:]])
def test_invalid_traceparent_begins_a_new_trace(serve: Serve, interface: str, collector: Collector, field: str) -> None:
    site = served(serve, interface, collector)
    status, text = get(site, "/", traceparent=field)
    assert status == 200
    request = next(span for span in collector.wait_for(2) if span.name == "GET")
    assert (request.trace_id.hex(), request.parent_span_id) == (text, b"")


@every_interface
def test_request_that_is_not_sampled_has_no_spans(serve: Serve, interface: str, collector: Collector) -> None:
    site = served(serve, interface, collector, OTEL_TRACES_SAMPLER="parentbased_always_off")
    assert get(site, "/given")[1] == "-"
    first, second = get(site, "/trace")[1].split()
    assert first == second
    assert first.endswith("-00")
    assert get(site, "/trace")[1].split()[0][3:35] != first[3:35]
    assert get(site, "/given", traceparent=UNSAMPLED)[1].endswith("-00")
    get(site, "/", traceparent=UNSAMPLED)
    get(site, "/")
    get(site, "/sampled", traceparent=PARENT)
    assert site.stop() == 0
    assert {attributes(span).get("url.path", "/sampled") for span in collector.wait_for(2)} == {"/sampled"}
    assert len(collector.spans) == 2


@every_interface
@pytest.mark.parametrize("sampler", ["parentbased_always_on", "parentbased_always_off"])
def test_trace_that_its_sender_does_not_sample_is_passed_on(
    serve: Serve, interface: str, collector: Collector, sampler: str
) -> None:
    site = served(serve, interface, collector, OTEL_TRACES_SAMPLER=sampler)
    other = UNSAMPLED.replace("0af7", "1af7")
    for field in (UNSAMPLED, other):
        assert get(site, "/trace", traceparent=field, tracestate="vendor=x")[1] == f"{field} {field}"
        assert get(site, "/given", traceparent=field)[1] == field
    begun = get(site, "/trace")[1].split()[0]
    assert begun[3:35] not in (UNSAMPLED[3:35], other[3:35])
    get(site, "/sampled", traceparent=PARENT)
    assert site.stop() == 0
    expected = {PARENT[3:35], begun[3:35]} if sampler == "parentbased_always_on" else {PARENT[3:35]}
    assert {span.trace_id.hex() for span in collector.wait_for(2)} == expected


def test_greenlets_have_traces_of_their_own(serve: Serve, collector: Collector) -> None:
    needs_gevent()
    ratio = {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}
    site = served(serve, "wsgi", collector, "--driver", "gevent", **ratio)
    fields = [f"00-{number:032x}-b7ad6b7169203331-{number % 2:02x}" for number in range(1, 9)]
    with contextlib.ExitStack() as stack:
        connections = []
        for field in fields:  # all of them wait in their greenlets before the first answer is read
            connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
            connections.append(stack.enter_context(closing(connection)))
            connection.request("GET", "/parts", headers={"traceparent": field})
        for connection, field in zip(connections, fields, strict=True):
            assert connection.getresponse().read().decode() == 3 * field[3:35]
    begun = [get(site, "/trace")[1].split() for _ in range(2)]
    assert all(first == second for first, second in begun)
    assert begun[0] != begun[1]
    assert site.stop() == 0
    sampled = [field[3:35] for field in fields if field.endswith("1")]
    assert sorted(span.trace_id.hex() for span in collector.wait_for(16)) == sorted(4 * sampled)


@every_interface
def test_share_of_requests_is_that_of_the_sampler_for_trace_ids(
    serve: Serve, interface: str, collector: Collector
) -> None:
    ratio = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    site = served(serve, interface, collector, **ratio)
    found = [get(site, "/trace")[1].split() for _ in range(64)]
    assert all(first == second for first, second in found)
    decisions = {(int(first[19:35], 16) < 1 << 63, int(first[-2:], 16) & 1) for first, _ in found}
    assert decisions == {(True, 1), (False, 0)}  # one of them is missing once in 2^63 runs
    assert len({first[3:35] for first, _ in found}) == 64
    assert site.stop() == 0
    sampled = {first[3:35] for first, _ in found if int(first[-2:], 16) & 1}
    assert {span.trace_id.hex() for span in collector.wait_for(len(sampled))} == sampled


@every_interface
@pytest.mark.parametrize(("low", "is_sampled"), [("7fffffffffffffff", True), ("8000000000000000", False)])
def test_sampler_without_parents_decides_by_the_id_that_a_request_names(
    serve: Serve, interface: str, collector: Collector, low: str, is_sampled: bool
) -> None:
    ratio = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    site = served(serve, interface, collector, **ratio)
    given = get(site, "/given", traceparent=f"00-0af7651916cd43dd{low}-b7ad6b7169203331-0{1 - is_sampled}")[1]
    assert (given[3:35], int(given[-2:], 16) & 1) == (f"0af7651916cd43dd{low}", is_sampled)


def test_start_up_of_an_application_is_no_request(serve: Serve, collector: Collector) -> None:
    site = served(serve, "asgi", collector, OTEL_TRACES_SAMPLER="always_off")
    assert get(site, "/lifespan")[1] == "- -"
    assert get(site, "/trace")[1].endswith("-00")


@every_interface
def test_failures_are_errors_and_all_is_exported_at_the_stop(
    serve: Serve, interface: str, collector: Collector
) -> None:
    site = served(serve, interface, collector, OTEL_BSP_SCHEDULE_DELAY="600000")
    assert get(site, "/busy")[0] == 503
    assert get(site, "/error")[0] == 500
    site.wait_for("LookupError")
    assert site.stop() == 0
    spans = {attributes(span).get("url.path"): span for span in collector.wait_for(3)}
    assert spans["/busy"].status.code == spans["/error"].status.code == 2
    assert attributes(spans["/error"])["error.type"] == "LookupError"
    assert [event.name for event in spans["/error"].events] == ["exception"]


def test_body_in_parts_belongs_to_the_span(serve: Serve, collector: Collector) -> None:
    site = served(serve, "wsgi", collector)
    get(site, "/parts", traceparent=PARENT)
    spans = collector.wait_for(4)
    request = next(span for span in spans if span.name == "GET")
    assert {span.parent_span_id for span in spans if span.name == "query"} == {request.span_id}
    assert attributes(request)["kirsch.application.seconds"] >= 0.06
    assert request.end_time_unix_nano - request.start_time_unix_nano >= 60_000_000


def test_span_begins_when_the_request_enters_the_queue(serve: Serve, collector: Collector, tmp_path: Path) -> None:
    arguments = ("--otel", "--threads", "2", "--pythonpath", HERE)
    site = serve("waiting_app:app", *arguments, env=collector.environment)
    gate = tmp_path / "gate"
    blockers = [ask(site, f"/wait?{gate}") for _ in range(2)]
    await_inside(site, gate, 2)
    with ask(site, "/echo", "POST", body=b"late") as queued:
        await_turns(site)  # now it is in the queue
        then = time.time_ns()
        gate.touch()
        assert_answered(queued, b"late")
    for peer in blockers:
        assert_answered(peer, b"waited")
        peer.close()
    found = {span.span_id: attributes(span) for span in collector.wait_for(3)}
    (late,) = [span for span in collector.spans if found[span.span_id]["url.path"] == "/echo"]
    assert late.start_time_unix_nano <= then
    assert late.start_time_unix_nano + found[late.span_id]["kirsch.queue.seconds"] * 1e9 >= then
    assert [each["kirsch.queue.seconds"] for each in found.values() if each["url.path"] == "/wait"] == [0, 0]


@every_interface
def test_metrics_have_the_trace_as_an_exemplar(serve: Serve, interface: str, collector: Collector) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="pyproject.toml names it")
    arguments = ("--otel", "--pythonpath", HERE, "--metrics-bind", "127.0.0.1:0")
    unsampled = {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}
    site = serve(f"tracing_app:{interface}", *arguments, env={**collector.environment, **unsampled})
    url = site.wait_for(r"metrics on (http://\S+)")[1]
    get(site, "/")
    get(site, "/", traceparent=PARENT)
    request = next(span for span in collector.wait_for(2) if span.name == "GET")
    accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3"
    with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers={"Accept": accept})) as response:
        assert response.headers["Content-Type"] == OPENMETRICS_TYPE
        families = list(parser.text_string_to_metric_families(response.read().decode()))
    samples = [sample for family in families for sample in family.samples if sample.exemplar]
    ((exemplar, name, bound),) = [(each.exemplar, each.name, each.labels["le"]) for each in samples]
    assert name == "kirsch_request_service_seconds_bucket"
    assert exemplar.labels == {"trace_id": PARENT[3:35], "span_id": request.span_id.hex()}
    assert 0 < exemplar.value <= float(bound)


@every_interface
def test_access_log_has_the_trace_that_begins_here(
    serve: Serve, interface: str, collector: Collector, tmp_path: Path
) -> None:
    log = tmp_path / "access"
    arguments = ("--otel", "--pythonpath", HERE, "--access-logfile", str(log), "--access-logformat", "json")
    site = serve(f"tracing_app:{interface}", *arguments, env=collector.environment)
    _, trace_id = get(site, "/")
    assert site.stop() == 0
    assert json.loads(log.read_text())["trace_id"] == trace_id


def test_collector_that_cannot_be_reached_is_reported_and_delays_nothing(serve: Serve, collector: Collector) -> None:
    nowhere = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    site = served(serve, "wsgi", collector, **nowhere, OTEL_BSP_MAX_QUEUE_SIZE="2")
    for _ in range(50):
        assert get(site, "/")[0] == 200
    site.wait_for(r"--otel: \d+ spans were lost: the collector is slow or cannot be reached")


@pytest.mark.slow
def test_opentelemetrys_collector_takes_the_spans(serve: Serve, collector: Collector, tmp_path: Path) -> None:
    program = Path(HERE).parent / "target" / "otel-collector" / "collector"
    if not program.exists():
        pytest.skip(f"{program} is missing; make otel-collector builds it with Go")
    port = free_port()
    receiver = {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}
    sender = {"endpoint": collector.environment["OTEL_EXPORTER_OTLP_ENDPOINT"], "compression": "none"}
    service = {
        "telemetry": {"metrics": {"level": "none"}},
        "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlp_http"]}},
    }
    config = tmp_path / "collector.yaml"  # JSON is YAML
    config.write_text(
        json.dumps({"receivers": {"otlp": receiver}, "exporters": {"otlp_http": sender}, "service": service})
    )
    log = tmp_path / "collector.log"
    with log.open("wb") as output, subprocess.Popen([program, "--config", config], stderr=output) as process:
        try:
            wait_until(lambda: b"Everything is ready" in log.read_bytes(), "the collector is ready")
            site = served(serve, "wsgi", collector, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}")
            get(site, "/a?b=1", traceparent=PARENT)
            assert get(site, "/error")[0] == 500
            spans = collector.wait_for(3)
        finally:
            process.terminate()
    request = next(span for span in spans if attributes(span).get("url.query") == "b=1")
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (PARENT[3:35], PARENT[36:52])
    assert attributes(request)["http.response.status_code"] == 200
    error = next(span for span in spans if attributes(span).get("url.path") == "/error")
    assert (error.status.code, [event.name for event in error.events]) == (2, ["exception"])


def test_sampler_that_does_not_exist_is_named(serve: Serve, collector: Collector) -> None:
    with pytest.raises(AssertionError, match=r"OTEL_TRACES_SAMPLER: 'often' is none of"):
        served(serve, "wsgi", collector, OTEL_TRACES_SAMPLER="often")
