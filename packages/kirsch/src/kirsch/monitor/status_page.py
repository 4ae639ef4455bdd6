"""The state of the server, for people and programs: ``/`` (a page), ``/status.json`` and ``/metrics``.

All data comes from the scoreboard, so the pages work even while every thread of every worker is stuck. They are
read-only.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import deque

from kirsch.monitor import metrics
from kirsch.monitor.scoreboard import HISTOGRAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from kirsch.monitor.histogram import Histogram
    from kirsch.monitor.scoreboard import Record, Scoreboard, Snapshot, WorkerState
    from kirsch.monitor.shared_value import SharedValue

SAMPLE_SECONDS = 1.0
RECENT_SAMPLES = 10
"""Rates and latencies are averages over this many samples: enough to be steady, and few enough to be current."""

HISTORY_SAMPLES = 120

# The control thread of a worker beats once a second. A worker whose last beat is this many seconds old is stuck.
STUCK_SECONDS = 5.0

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

_SLOW_MAX = 50
_RUNNING_MAX = 100
# Workers publish their running requests once a second. An older record was published for an earlier reader.
_SHOWN_SECONDS = 3.0

_TEXT = "text/plain; charset=utf-8"
_NOT_FOUND = "The pages here are /, /status.json and /metrics.\n"
_GET_ONLY = "Only GET and HEAD are allowed here.\n"


class History:
    """The last samples of a scoreboard: a few complete ones, and the request rates of more."""

    def __init__(self, first: Snapshot) -> None:
        self._samples: deque[Snapshot] = deque([first], maxlen=RECENT_SAMPLES + 1)
        self._rates: deque[float] = deque(maxlen=HISTORY_SAMPLES)

    def add(self, snapshot: Snapshot) -> None:
        """Add a sample. Called every ``SAMPLE_SECONDS``."""
        self._rates.append(_rate(snapshot, self._samples[-1]))
        self._samples.append(snapshot)

    @property
    def is_empty(self) -> bool:
        return not self._rates

    @property
    def rates(self) -> list[float]:
        """Return the requests per second, the oldest first."""
        return [round(rate, 1) for rate in self._rates]

    def before(self, now: Snapshot) -> Snapshot:
        """Return the oldest kept sample, some seconds old, to compare ``now`` with."""
        earlier = [sample for sample in list(self._samples) if sample.time < now.time]
        return earlier[0] if earlier else now


class Status:
    """The content of ``/status.json``."""

    def __init__(self, board: Scoreboard, certificate_ends: SharedValue | None = None) -> None:
        """``certificate_ends`` contains the path and the expiry of each certificate, in seconds of Unix time."""
        from kirsch import _native

        self._version = _native.__version__
        implementation = {"cpython": "CPython"}.get(sys.implementation.name, sys.implementation.name)
        self._python = f"{implementation} {sys.version.split()[0]}"
        self._board = board
        self._certificate_ends = certificate_ends
        self._history = History(board.read())
        # Without a GIL, the count of slices of a memoryview is not thread-safe (CPython 3.14), and the memory is
        # released while a slice is in use. So only one thread at a time reads the board.
        self._lock = threading.Lock()

    def sample(self) -> None:
        with self._lock:
            self._history.add(self._board.read())

    @property
    def has_history(self) -> bool:
        """Return whether there is an earlier sample for comparison."""
        return not self._history.is_empty

    def metrics(self, *, is_openmetrics: bool = False) -> str:
        with self._lock:
            now = self._board.read()
        ends = [] if self._certificate_ends is None else self._certificate_ends.read() or []
        return metrics.exposition(
            now,
            version=self._version,
            python=self._python,
            certificate_ends=ends,
            is_openmetrics=is_openmetrics,
        )

    def now(self) -> dict[str, Any]:
        """Return the state of the server; docs/metrics.md describes its fields."""
        with self._lock:
            return self._now()

    def _now(self) -> dict[str, Any]:
        was_looked_at = self._board.is_observed
        self._board.mark_observed()
        now = self._board.read()
        before = self._history.before(now)
        gauges = {source: now.gauge(source) for source, _, _ in metrics.GAUGES}
        return {
            "application": self._board.application,
            "version": self._version,
            "python": self._python,
            "pid": now.pid,
            "generation": now.generation,
            "time": now.wall,
            "started": now.started,
            "uptime": now.uptime,
            "workers": [_worker(worker, now, before) for worker in now.workers],
            "restarts": now.replacements,
            "last_restart": {"at": now.last_replaced, "text": now.last_replacement} if now.last_replaced else None,
            "quarantined": [
                {"route": name, "for": round(now.time - since, 3), "left": round(max(until - now.time, 0.0), 3)}
                for name, since, until in now.quarantined
            ],
            "gauges": gauges,
            "counters": {source: now.counters.get(source, 0) for source, _, _ in metrics.COUNTERS},
            "tls": metrics.handshakes(now),
            "responses": {each: now.counters.get(f"status_{each}", 0) for each in metrics.STATUS_CLASSES},
            "recent": {
                "seconds": round(now.time - before.time, 3),
                "requests_per_second": _rate(now, before),
                "latency": {name: _latency(now.histogram(name).since(before.histogram(name))) for name in HISTOGRAMS},
            },
            # The bounds of the first and the last bucket. Quantiles below the first bound cannot be distinguished.
            "measured": [now.bounds[0], now.bounds[-1]],
            "total": {"latency": {name: _latency(now.histogram(name)) for name in HISTOGRAMS}},
            "history": {"seconds": SAMPLE_SECONDS, "requests_per_second": self._history.rates},
            "running": _running(self._board.running(), now) if was_looked_at else None,
            "slow": _slow(now),
        }


def _rate(now: Snapshot, before: Snapshot) -> float:
    seconds = now.time - before.time
    requests = now.counters.get("requests", 0) - before.counters.get("requests", 0)
    return round(requests / seconds, 2) if seconds > 0 else 0.0


def _latency(histogram: Histogram) -> dict[str, Any]:
    """Return the mean and an upper bound of each quantile in seconds; None if nothing was measured."""
    found: dict[str, Any] = {name: histogram.at_most(share) for name, share in QUANTILES.items()}
    found["count"] = histogram.count
    found["mean"] = histogram.sum / histogram.count if histogram.count else None
    return found


def _worker(worker: WorkerState, now: Snapshot, before: Snapshot) -> dict[str, Any]:
    requests = worker.values.get("requests", 0)
    then = 0
    for each in before.workers:
        if (each.index, each.pid) == (worker.index, worker.pid):
            then = each.values.get("requests", 0)
    seconds = min(now.time - before.time, worker.age)
    stuck = worker.state not in ("starting", "stopping") and worker.silence > STUCK_SECONDS
    gauges = {source: worker.values.get(source, 0) for source, _, _ in metrics.GAUGES}
    return {
        "worker": worker.index,
        "pid": worker.pid,
        "state": worker.state,
        "condition": "stuck" if stuck else worker.state,
        "generation": worker.generation,
        "age": worker.age,
        "silence": worker.silence,
        "memory": worker.memory,
        "reason": worker.reason,
        "requests": requests,
        "requests_per_second": round(max(requests - then, 0) / seconds, 2) if seconds > 0 else 0.0,
        **gauges,
    }


def _running(shown: Iterable[Record], now: Snapshot) -> list[dict[str, Any]]:
    """Return the running requests, the longest-running first."""
    found: list[dict[str, Any]] = []
    for index, _number, text in shown:
        try:
            record = json.loads(text)
            since = now.time - record["at"]
            place = {"worker": index, "pid": record["pid"]}
            requests = [{**each, **place, "age": round(each["age"] + since, 3)} for each in record["requests"]]
            if since < _SHOWN_SECONDS:
                found += requests
        except (ValueError, TypeError, KeyError):
            continue  # the worker has another version
    found.sort(key=lambda each: -each["age"])
    return found[:_RUNNING_MAX]


def _slow(now: Snapshot) -> list[dict[str, Any]]:
    """Return the slow requests: the running ones, the longest-running first; then the ended ones, the newest first."""
    alive = {worker.pid for worker in now.workers}
    found = []
    for index, _number, text in now.slow:
        try:
            record = json.loads(text)
            began, took = float(record.pop("began_monotonic")), record["took"]
            if took is not None:
                condition, age = "over", float(took)
            elif record["pid"] in alive:
                condition, age = record["state"], now.time - began
            else:
                condition, age = "ended with its worker", 0.0
        except (ValueError, TypeError, KeyError):
            continue  # the worker has another version
        found.append({**record, "worker": index, "condition": condition, "age": round(age, 3)})
    over = [each for each in found if each["took"] is not None or each["age"] == 0.0]
    running = [each for each in found if each not in over]
    running.sort(key=lambda each: -each["age"])
    over.sort(key=lambda each: -each["began"])
    return (running + over)[:_SLOW_MAX]


class Pages:
    """The WSGI application of ``--metrics-bind``."""

    def __init__(self, status: Status) -> None:
        self._status = status
        # Read at the start, because an upgrade may replace the file later.
        with open(os.path.join(os.path.dirname(__file__), "status.html"), encoding="utf-8") as page:
            self._page = page.read()
        self._answers: dict[str, Callable[[str], tuple[str, str, dict[str, str]]]] = {
            "/": self._html,
            "/status.json": self._json,
            "/metrics": self._metrics,
        }

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        answer = self._answers.get(environ["PATH_INFO"])
        status, headers = "200 OK", {}
        if answer is None:
            status, content_type, text = "404 Not Found", _TEXT, _NOT_FOUND
        elif environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            status, content_type, text = "405 Method Not Allowed", _TEXT, _GET_ONLY
            headers = {"Allow": "GET, HEAD"}
        else:
            content_type, text, headers = answer(environ.get("HTTP_ACCEPT", ""))
        body = text.encode()
        headers |= {
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        start_response(status, list(headers.items()))
        return [body]

    def _metrics(self, accept: str) -> tuple[str, str, dict[str, str]]:
        is_openmetrics = metrics.accepts_openmetrics(accept)
        content_type = metrics.OPENMETRICS_TYPE if is_openmetrics else metrics.CONTENT_TYPE
        return content_type, self._status.metrics(is_openmetrics=is_openmetrics), {}

    def _json(self, _accept: str) -> tuple[str, str, dict[str, str]]:
        return "application/json", json.dumps(self._status.now()) + "\n", {}

    def _html(self, _accept: str) -> tuple[str, str, dict[str, str]]:
        nonce = os.urandom(16).hex()
        # Escape `<`, so that the JSON cannot end the script element.
        status = json.dumps(self._status.now()).replace("<", "\\u003c")
        page = self._page.replace("@NONCE@", nonce).replace("@STATUS@", status)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return "text/html; charset=utf-8", page, {"Content-Security-Policy": policy}
