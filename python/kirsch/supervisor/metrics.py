"""The scoreboard as Prometheus reads it: text exposition format 0.0.4.

Everything is a sum over all workers, those included that have ended; what belongs to one worker is labelled with the
number of its slot, because a pid for a label makes a new series at each restart.

    https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from kirsch.scoreboard import REASONS, STATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kirsch.scoreboard import Histogram, Snapshot, WorkerState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Values of the engine's as counters: (name there, name here, help).
COUNTERS = (
    ("requests", "kirsch_requests_total", "Requests given to the application."),
    ("accepted", "kirsch_connections_accepted_total", "Connections accepted."),
    ("bytes_in", "kirsch_received_bytes_total", "Bytes received from peers."),
    ("bytes_out", "kirsch_sent_bytes_total", "Bytes sent to peers."),
    ("refused", "kirsch_requests_refused_total", "Requests that the engine answered by itself, as it does bad ones."),
    ("health_checks", "kirsch_health_checks_total", "Requests for the health path."),
    ("queue_timeouts", "kirsch_queue_timeouts_total", "Requests refused because they waited for too long."),
    ("left", "kirsch_requests_left_total", "Requests whose peer had left before the application was called."),
    ("overdue", "kirsch_requests_overdue_total", "Requests that passed their deadline in the application."),
    ("timeouts", "kirsch_timeouts_total", "Connections or responses cut because their peer was too slow."),
    ("cut", "kirsch_responses_cut_total", "Responses that broke off after their first byte."),
    (
        "accept_pauses",
        "kirsch_accept_pauses_total",
        "Times that accepting paused at the bound on connections or files.",
    ),
    ("handovers", "kirsch_thread_handovers_total", "Times that another thread was called to turn the engine."),
    (
        "log_lines_dropped",
        "kirsch_log_lines_dropped_total",
        "Log lines dropped because a log did not accept them, in workers.",
    ),
    ("panics", "kirsch_panics_total", "Faults of the engine's own that were contained. Please report them."),
)

STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")

# As gauges: summed over the workers that there are.
GAUGES = (
    ("connections", "kirsch_connections", "Connections open now."),
    ("running", "kirsch_requests_running", "Requests in the application now, those included that wait for their peer."),
    ("queued", "kirsch_requests_queued", "Requests that wait for the application to be called."),
    ("suspended", "kirsch_requests_suspended", "Responses that wait for a slow peer and hold no thread."),
    ("threads", "kirsch_threads", "Threads started for the application."),
    ("threads_idle", "kirsch_threads_idle", "Threads that could take a request at once."),
    (
        "threads_most",
        "kirsch_threads_most",
        "Requests that the application may have at a time in threads; 0: no bound.",
    ),
)

HISTOGRAMS = (
    (
        "queue_wait",
        "kirsch_request_queue_seconds",
        "From a whole request until the application was called; 0 where nobody waited.",
    ),
    (
        "service_time",
        "kirsch_request_service_seconds",
        "From the call of the application to the end of its response, slow peers' time included.",
    ),
    ("interpreter_wait", "kirsch_interpreter_wait_seconds", "How long a thread waited for the interpreter's lock."),
)


def exposition(snapshot: Snapshot, *, version: str, python: str) -> str:
    """All metrics as a text."""
    lines: list[str] = []

    def family(name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> None:
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples)

    def of_workers(name: str, text: str, values: Iterable[tuple[WorkerState, float]]) -> None:
        family(name, "gauge", text, [({"worker": str(worker.index)}, value) for worker, value in values])

    build = {"version": version, "python": python}
    family("kirsch_build_info", "gauge", "Always 1; the labels say what serves.", [(build, 1)])
    family("kirsch_start_time_seconds", "gauge", "Since when these counters count.", [({}, snapshot.started)])
    family("kirsch_generation", "gauge", "How often the code was loaded anew.", [({}, snapshot.generation)])

    in_state = dict.fromkeys(STATES[1:], 0)
    for worker in snapshot.workers:
        in_state[worker.state] = in_state.get(worker.state, 0) + 1
    family(
        "kirsch_workers", "gauge", "Worker processes by what they do.", [({"state": s}, n) for s, n in in_state.items()]
    )
    # Each from the beginning: of a series that begins at 1, Prometheus does not see that it has increased.
    restarts = dict.fromkeys(REASONS, 0) | snapshot.replacements
    by_reason = [({"reason": reason}, count) for reason, count in restarts.items()]
    family("kirsch_worker_restarts_total", "counter", "Workers that were replaced.", by_reason)

    for source, name, text in COUNTERS:
        if source in snapshot.counters:
            family(name, "counter", text, [({}, snapshot.counters[source])])
    responses = [({"status": each}, snapshot.counters.get(f"status_{each}", 0)) for each in STATUS_CLASSES]
    family("kirsch_responses_total", "counter", "Responses by class of their status.", responses)
    for source, name, text in GAUGES:
        family(name, "gauge", text, [({}, snapshot.gauge(source))])
    for source, name, text in HISTOGRAMS:
        lines += _histogram(name, text, snapshot.histogram(source))

    workers = snapshot.workers
    wall = snapshot.wall
    of_workers("kirsch_worker_memory_bytes", "Memory that is a worker's alone (USS).", [(w, w.memory) for w in workers])
    of_workers("kirsch_worker_start_time_seconds", "When a worker was started.", [(w, w.started) for w in workers])
    of_workers(
        "kirsch_worker_heartbeat_timestamp_seconds",
        "When a worker had its interpreter for itself last; long ago means stuck.",
        [(w, wall - w.silence) for w in workers],
    )
    of_workers(
        "kirsch_worker_requests_running",
        "Requests in the application, by worker.",
        [(w, w.values.get("running", 0)) for w in workers],
    )
    return "\n".join(lines) + "\n"


def _histogram(name: str, text: str, histogram: Histogram) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    bounds = [*map(_number, histogram.bounds), "+Inf"]
    counts = histogram.cumulative()
    lines += [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in zip(bounds, counts, strict=True)]
    lines.append(f"{name}_sum {_number(histogram.sum)}")
    lines.append(f"{name}_count {counts[-1]}")
    return lines


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
