"""The metrics of the scoreboard in two formats of Prometheus: its text format 0.0.4, and OpenMetrics 1.0 with
exemplars.

Values are sums over all workers, including those that have exited. Values of one worker are labelled with its slot
number, because a pid would begin a new series at each restart.

    https://prometheus.io/docs/instrumenting/exposition_formats/
    https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

from __future__ import annotations

import re

from kirsch.monitor.scoreboard import REASONS, STATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kirsch.monitor.exemplars import Exemplar
    from kirsch.monitor.histogram import Histogram
    from kirsch.monitor.scoreboard import Snapshot, WorkerState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# The engine's counters: (name in the engine, name of the metric, help).
COUNTERS = (
    ("requests", "kirsch_requests_total", "Requests given to the application."),
    ("http2_requests", "kirsch_http2_requests_total", "Of these, requests over HTTP/2."),
    ("accepted", "kirsch_connections_accepted_total", "Connections accepted."),
    ("bytes_in", "kirsch_received_bytes_total", "Bytes received from clients."),
    ("bytes_out", "kirsch_sent_bytes_total", "Bytes sent to clients."),
    (
        "websocket_messages_in",
        "kirsch_websocket_messages_received_total",
        "Messages that clients have sent on WebSockets.",
    ),
    ("websocket_messages_out", "kirsch_websocket_messages_sent_total", "Messages sent to clients on WebSockets."),
    ("refused", "kirsch_requests_refused_total", "Requests that the engine refused, such as malformed ones."),
    (
        "quarantined",
        "kirsch_requests_quarantined_total",
        "Requests refused because their route is in quarantine; kirsch_requests_refused_total includes them.",
    ),
    (
        "rate_limited",
        "kirsch_requests_rate_limited_total",
        "Requests refused because of --rate-limit; kirsch_requests_refused_total includes them.",
    ),
    ("health_checks", "kirsch_health_checks_total", "Requests for the health path."),
    ("static_files", "kirsch_static_files_total", "Requests answered from the directories of static files."),
    ("queue_timeouts", "kirsch_queue_timeouts_total", "Requests refused because they waited too long in the queue."),
    ("left", "kirsch_requests_left_total", "Requests whose client disconnected before the application was called."),
    ("overdue", "kirsch_requests_overdue_total", "Requests that missed their deadline in the application."),
    ("timeouts", "kirsch_timeouts_total", "Connections or responses aborted because the client was too slow."),
    ("cut", "kirsch_responses_cut_total", "Responses aborted after their first byte."),
    (
        "accept_pauses",
        "kirsch_accept_pauses_total",
        "How often accepting paused at the limit of connections or files.",
    ),
    ("handovers", "kirsch_thread_handovers_total", "How often another thread was woken to poll the engine."),
    (
        "log_lines_dropped",
        "kirsch_log_lines_dropped_total",
        "Log lines dropped because a log did not accept them.",
    ),
    ("panics", "kirsch_panics_total", "Contained faults of the engine itself. Please report them."),
)

STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")

# TLS handshakes: (family in the engine, name of the metric, label, help).
HANDSHAKES = (
    ("full", "kirsch_tls_handshakes_full_total", "version", "Handshakes that began a session, by the version of TLS."),
    ("resumed", "kirsch_tls_handshakes_resumed_total", "version", "Handshakes that resumed a session."),
    ("failed", "kirsch_tls_handshakes_failed_total", "reason", "Handshakes that failed, by the reason."),
    ("cipher", "kirsch_tls_ciphers_total", "cipher", "Handshakes by the cipher suite that was agreed on."),
    ("group", "kirsch_tls_groups_total", "group", "Handshakes by the group of the key exchange that was agreed on."),
)

# Gauges, summed over the current workers.
GAUGES = (
    ("connections", "kirsch_connections", "Connections open now."),
    ("http2_connections", "kirsch_http2_connections", "Connections that speak HTTP/2 now."),
    ("http2_streams", "kirsch_http2_streams", "Streams under way on connections of HTTP/2."),
    ("websockets", "kirsch_websockets", "Connections that are WebSockets now."),
    (
        "running",
        "kirsch_requests_running",
        "Requests in the application now, including those that wait for their client.",
    ),
    ("queued", "kirsch_requests_queued", "Requests that wait for the application to be called."),
    ("suspended", "kirsch_requests_suspended", "Responses that wait for a slow client and hold no thread."),
    ("threads", "kirsch_threads", "Threads started for the application."),
    ("threads_idle", "kirsch_threads_idle", "Threads that could start a request at once."),
    ("threads_most", "kirsch_threads_most", "Limit of concurrent application calls in threads; 0: no limit."),
)

HISTOGRAMS = (
    (
        "queue_wait",
        "kirsch_request_queue_seconds",
        "From a complete request to the call of the application; 0 where it did not wait.",
    ),
    (
        "service_time",
        "kirsch_request_service_seconds",
        "From the call of the application to the end of its response, including the time of slow clients.",
    ),
    ("interpreter_wait", "kirsch_interpreter_wait_seconds", "How long a thread waited for the GIL."),
)


def exposition(
    snapshot: Snapshot,
    *,
    version: str,
    python: str,
    certificate_ends: Iterable[tuple[str, int]] = (),
    is_openmetrics: bool = False,
) -> str:
    """Return all metrics as text, in Prometheus' own format or in OpenMetrics."""
    lines: list[str] = []

    def family(name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> None:
        of_all = name.removesuffix("_total") if is_openmetrics and kind == "counter" else name
        lines.append(f"# HELP {of_all} {text}")
        lines.append(f"# TYPE {of_all} {kind}")
        lines.extend(f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples)

    def of_workers(name: str, text: str, values: Iterable[tuple[WorkerState, float]]) -> None:
        family(name, "gauge", text, [({"worker": str(worker.index)}, value) for worker, value in values])

    build = {"version": version, "python": python}
    family("kirsch_build_info", "gauge", "Always 1; the labels say what serves.", [(build, 1)])
    family("kirsch_start_time_seconds", "gauge", "When these counters started.", [({}, snapshot.started)])
    family("kirsch_generation", "gauge", "How often the application was loaded.", [({}, snapshot.generation)])

    in_state = dict.fromkeys(STATES[1:], 0)
    for worker in snapshot.workers:
        in_state[worker.state] = in_state.get(worker.state, 0) + 1
    family("kirsch_workers", "gauge", "Worker processes by state.", [({"state": s}, n) for s, n in in_state.items()])
    # Export every reason from the start, with 0: Prometheus does not count a series that begins at 1 as an increase.
    restarts = dict.fromkeys(REASONS, 0) | snapshot.replacements
    by_reason = [({"reason": reason}, count) for reason, count in restarts.items()]
    family("kirsch_worker_restarts_total", "counter", "Workers that were replaced.", by_reason)

    for source, name, text in COUNTERS:
        if source in snapshot.counters:
            family(name, "counter", text, [({}, snapshot.counters[source])])
    responses = [({"status": each}, snapshot.counters.get(f"status_{each}", 0)) for each in STATUS_CLASSES]
    family("kirsch_responses_total", "counter", "Responses by class of status.", responses)
    for source, name, text in GAUGES:
        family(name, "gauge", text, [({}, snapshot.gauge(source))])
    text = "Clients that were forgotten before their rate limit was whole again, for lack of room."
    family("kirsch_rate_limit_evictions_total", "counter", text, [({}, snapshot.rate_limit_evictions)])
    text = "Messages sent to groups with a name."
    family("kirsch_group_messages_total", "counter", text, [({}, snapshot.group_messages)])
    dropped = [({"reason": reason}, number) for reason, number in snapshot.group_messages_dropped.items()]
    family("kirsch_group_messages_dropped_total", "counter", "Messages of groups that were dropped.", dropped)
    text = "Routes in quarantine now, because they crash workers."
    family("kirsch_routes_quarantined", "gauge", text, [({}, len(snapshot.quarantined))])
    if certificate_ends:
        text = "When a certificate expires."
        ends = [({"path": path}, end) for path, end in certificate_ends]
        family("kirsch_certificate_expiry_timestamp_seconds", "gauge", text, ends)
    counted = handshakes(snapshot)
    for source, name, label, text in HANDSHAKES if counted else ():
        family(name, "counter", text, [({label: each}, count) for each, count in counted[source].items()])
    for source, name, text in HISTOGRAMS:
        has_exemplars = is_openmetrics and source == "service_time"
        lines += _histogram(name, text, snapshot.histogram(source), snapshot.service_exemplars if has_exemplars else ())

    workers = snapshot.workers
    wall = snapshot.wall
    of_workers("kirsch_worker_memory_bytes", "Memory of the worker alone (USS).", [(w, w.memory) for w in workers])
    of_workers("kirsch_worker_start_time_seconds", "When a worker was started.", [(w, w.started) for w in workers])
    of_workers(
        "kirsch_worker_heartbeat_timestamp_seconds",
        "When a thread of the worker last held the GIL; long ago means stuck.",
        [(w, wall - w.silence) for w in workers],
    )
    of_workers(
        "kirsch_worker_requests_running",
        "Requests in the application, by worker.",
        [(w, w.values.get("running", 0)) for w in workers],
    )
    if is_openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def accepts_openmetrics(accept: str) -> bool:
    """Return whether an Accept field contains OpenMetrics, as sent by Prometheus, and does not exclude it with
    ``q=0``."""
    for each in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        if kind == "application/openmetrics-text":
            return not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
    return False


def handshakes(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return the numbers of TLS handshakes by family and name; empty if there were none."""
    families: dict[str, dict[str, int]] = {}
    for name, count in snapshot.counters.items():
        if name.startswith("tls:"):
            _, family, label = name.split(":")
            families.setdefault(family, {})[label] = count
    return families if any(count for family in families.values() for count in family.values()) else {}


def _histogram(name: str, text: str, histogram: Histogram, exemplars: Sequence[Exemplar | None]) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    bounds = [*map(_number, histogram.bounds), "+Inf"]
    counts = histogram.cumulative()
    for bound, count, exemplar in zip(bounds, counts, exemplars or [None] * len(counts), strict=True):
        shown = "" if exemplar is None else _exemplar(exemplar)
        lines.append(f'{name}_bucket{{le="{bound}"}} {count}{shown}')
    lines.append(f"{name}_sum {_number(histogram.sum)}")
    lines.append(f"{name}_count {counts[-1]}")
    return lines


def _exemplar(exemplar: Exemplar) -> str:
    labels = _labels({"trace_id": exemplar.trace_id, "span_id": exemplar.span_id})
    return f" # {labels} {_number(exemplar.seconds)} {exemplar.at:.3f}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
