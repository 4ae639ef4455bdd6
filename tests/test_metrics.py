"""``--metrics-bind``: what Prometheus, people and programs find there.

The numbers are those of workers that count what the test says (``family.py``). Whole servers are in
``test_metrics_servers.py``.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from family import DOCS, Family, code_blocks, get, is_alive, parse, scrape
from kirsch.monitor import metrics
from kirsch.monitor.scoreboard import NOT_COUNTED, Layout
from proc import uss, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


MiB = 1 << 20


@pytest.fixture
def family() -> Iterator[Family]:
    with Family() as family:
        yield family


def test_prometheus_parses_the_metrics(family: Family) -> None:
    family.do(
        "claim", requests=10, bytes_in=500, bytes_out=7000, running=2, threads_most=16, status_2xx=8, status_4xx=2
    )
    family.do("claim", requests=5, running=1, threads_most=16, status_2xx=5, memory=30 * MiB, state="draining")
    seen = scrape(family)
    assert seen["kirsch_requests_total", ""] == 15
    assert seen["kirsch_received_bytes_total", ""] == 500
    assert seen["kirsch_sent_bytes_total", ""] == 7000
    assert seen["kirsch_responses_total", "2xx"] == 13
    assert seen["kirsch_responses_total", "4xx"] == 2
    assert seen["kirsch_requests_running", ""] == 3
    assert seen["kirsch_threads_most", ""] == 32
    assert seen["kirsch_workers", "serving"] == 1
    assert seen["kirsch_workers", "draining"] == 1
    assert seen["kirsch_worker_memory_bytes", "1"] == 30 * MiB
    assert abs(seen["kirsch_start_time_seconds", ""] - time.time()) < 60


def test_histograms_are_cumulative_and_in_seconds(family: Family) -> None:
    family.do("claim", service_time_0=3, service_time_1=2, service_time_sum=1_500_000_000)
    family.do("claim", service_time_1=1)
    bounds = Layout.of_native().bounds
    seen = scrape(family)
    name = "kirsch_request_service_seconds"
    assert seen[f"{name}_bucket", str(bounds[0])] == 3
    assert seen[f"{name}_bucket", str(bounds[1])] == 6
    assert seen[f"{name}_bucket", "+Inf"] == seen[f"{name}_count", ""] == 6
    assert seen[f"{name}_sum", ""] == 1.5


def test_every_engine_counter_has_a_metric(family: Family) -> None:
    told = {source for source, _, _ in (*metrics.COUNTERS, *metrics.GAUGES)}
    told |= {f"status_{each}" for each in metrics.STATUS_CLASSES}
    handshakes = {name for name in Layout.of_native().fields if name.startswith("tls:")}
    assert {name.split(":")[1] for name in handshakes} == {source for source, _, _, _ in metrics.HANDSHAKES}
    buckets = {name for name in Layout.of_native().fields if re.fullmatch(r"(\w+)_(sum|\d+)", name)}
    assert {name.rpartition("_")[0] for name in buckets} == {source for source, _, _ in metrics.HISTOGRAMS}
    # When it was written down is no metric; the other two are the health path's.
    assert set(Layout.of_native().fields) - told - buckets - handshakes == {"published", "draining", "stalled"}
    assert {source for source, _, _ in metrics.COUNTERS}.isdisjoint(NOT_COUNTED)
    assert {source for source, _, _ in metrics.GAUGES} <= NOT_COUNTED
    names = {name for name, _ in scrape(family)}
    for _, name, _ in (*metrics.COUNTERS, *metrics.GAUGES):
        assert name in names


def test_counters_keep_values_of_exited_workers(family: Family) -> None:
    worker = family.do("claim", requests=10, running=4)
    assert scrape(family)["kirsch_worker_restarts_total", "crash"] == 0, (
        "increase() does not see the first one otherwise"
    )
    family.do("fold", worker)
    family.do("replaced", "crash", 'worker 4711: "killed" by\nsignal 9\\')
    family.do("replaced", 'an "odd"\nrea\\son')
    family.do("claim", requests=1, running=1)
    seen = scrape(family)
    assert (seen["kirsch_requests_total", ""], seen["kirsch_requests_running", ""]) == (11, 1)
    assert seen["kirsch_worker_restarts_total", "crash"] == 1
    assert seen["kirsch_worker_restarts_total", 'an "odd"\nrea\\son'] == 1
    assert family.status()["last_restart"]["text"] == 'an "odd"\nrea\\son'


def test_rates_and_latencies_are_those_of_the_last_seconds(family: Family) -> None:
    worker = family.do("claim", requests=100_000, service_time_0=100_000)
    wait_until(lambda: len(family.status()["history"]["requests_per_second"]) >= 1, "it has sampled once")
    family.do("add", worker, requests=30, queue_wait_1=10)
    wait_until(lambda: max(family.status()["history"]["requests_per_second"]) > 5, "the new requests are in a sample")
    now = family.status()
    assert 1 < now["recent"]["requests_per_second"] < 1e6
    assert now["recent"]["latency"]["queue_wait"]["count"] == 10
    low, high = Layout.of_native().bounds[:2]
    assert low <= now["recent"]["latency"]["queue_wait"]["p50"] <= high
    assert now["total"]["latency"]["service_time"]["count"] == 100_000
    assert now["recent"]["latency"]["interpreter_wait"] == {
        "p50": None,
        "p90": None,
        "p99": None,
        "count": 0,
        "mean": None,
    }


def test_worker_without_heartbeat_is_shown_as_stuck(family: Family) -> None:
    stuck, well = family.do("claim", silence=30), family.do("claim")
    workers = {worker["worker"]: worker for worker in family.status()["workers"]}
    assert (workers[stuck]["state"], workers[stuck]["condition"]) == ("serving", "stuck")
    assert workers[well]["condition"] == "serving"


def slow_request(**changes: object) -> dict[str, object]:
    return {
        "pid": 1,
        "number": 3,
        "id": "7f3a",
        "method": "GET",
        "path": "/report",
        "began": time.time() - 5,
        "began_monotonic": time.monotonic() - 5,
        "took": None,
        "state": "running",
        "thread": "kirsch-1",
        "stack": ["  File app.py, line 3, in app", "    wait()"],
        **changes,
    }


def test_slow_requests_are_listed_with_their_outcome(family: Family) -> None:
    worker = family.do("claim")
    family.do("slow", worker, **slow_request(number=1, took=2.5))
    family.do("slow", worker, **slow_request(number=2, pid=2**22))
    family.do("slow", worker, **slow_request(number=3, pid=family.pid))
    family.do("slow", worker, **slow_request(number=4, pid=family.pid, began_monotonic=time.monotonic() - 50))
    family.do("slow", worker, nonsense=1)
    found = family.status()["slow"]
    assert [(each["number"], each["condition"]) for each in found[:2]] == [(4, "running"), (3, "running")]
    assert {each["number"]: each["condition"] for each in found[2:]} == {1: "over", 2: "ended with its worker"}
    assert 50 <= found[0]["age"] < 80
    assert found[0]["stack"] == ["  File app.py, line 3, in app", "    wait()"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/status.json", "/metrics"])
def test_only_get_and_head_are_allowed(family: Family, method: str, path: str) -> None:
    code, headers, _ = family.get(path, method)
    assert (code, headers["allow"]) == (405, "GET, HEAD")


def test_unknown_paths_and_head_requests_are_answered(family: Family) -> None:
    assert family.get("/nothing")[0] == 404
    code, headers, body = family.get("/metrics", "HEAD")
    assert (code, body) == (200, "")
    assert int(headers["content-length"]) > 1000


class Outside(HTMLParser):
    """References of a page to other sites."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]


def test_status_page_loads_nothing_external_and_runs_no_foreign_script(family: Family) -> None:
    worker = family.do("claim")
    bad = "</script><script>alert(1)</script>"
    family.do("slow", worker, **slow_request(path=bad, stack=[bad]))
    code, headers, text = family.get("/")
    assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert bad not in text
    page = Outside()
    page.feed(text)
    assert set(page.addresses) == {"status.json", "metrics"}
    assert page.scripts == 2
    policy = headers["content-security-policy"]
    nonce = re.search(r"script-src 'nonce-([0-9a-f]+)'", policy)
    assert nonce is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert text.count(f'nonce="{nonce[1]}"') == 3
    assert nonce[1] not in family.get("/")[2]
    first = re.search(r'<script id="first"[^>]*>(.*?)</script>', text, re.S)
    assert first is not None
    assert json.loads(first[1])["slow"][0]["stack"] == [bad]


BROWSER = """
// As much of a browser as the page asks for: elements with text, attributes and children.
class Node {
  constructor(tag) {
    this.tag = tag; this.children = []; this.attributes = {}; this.style = {}; this.hidden = false;
    this.classList = { add: (name) => { this.attributes.class = `${this.attributes.class || ""} ${name}`; } };
  }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  append(...nodes) { this.children.push(...nodes); }
  replaceChildren(...nodes) { this.children = nodes; }
  addEventListener() {}
  set textContent(text) { this.children = [String(text)]; }
  get textContent() { return this.children.map((child) => child.textContent ?? String(child)).join(" "); }
}
const source = require("fs").readFileSync(0, "utf8");
const nodes = {};
for (const [, id] of source.matchAll(/ id="([a-z-]+)"/g)) nodes[id] = new Node(id);
nodes.first.textContent = source.match(/<script id="first"[^>]*>([^]*?)<\\/script>/)[1];
globalThis.document = {
  hidden: false, title: "", getElementById: (id) => nodes[id],
  createElement: (tag) => new Node(tag), createElementNS: (_space, tag) => new Node(tag),
};
const due = [];
globalThis.setTimeout = (then) => due.push(then);
globalThis.fetch = async () => { throw new Error("refused"); };
new Function(source.match(/<script nonce[^>]*>([^]*?)<\\/script>/)[1])();
const shown = Object.fromEntries(Object.entries(nodes).map(([id, node]) => [id, node.textContent]));
shown.title = document.title;
due[0]().then(() => console.log(JSON.stringify({ ...shown, trouble: nodes.trouble.textContent })));
"""


def test_status_page_contains_the_status(family: Family) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    worker = family.do(
        "claim", reason="start", requests=1234, running=3, threads=4, threads_most=16, status_5xx=7, memory=30 * MiB
    )
    family.do("claim", reason="crash: killed by signal 9", state="starting")
    family.do("replaced", "crash", "worker 12 was killed by signal 9")
    family.do("slow", worker, **slow_request(pid=family.pid))
    page = family.get("/")[2]
    shown = json.loads(
        subprocess.run([node, "-e", BROWSER], input=page, text=True, capture_output=True, check=True).stdout
    )
    assert shown["name"] == "shop.wsgi:app"
    assert f"pid {family.pid}" in shown["about"]
    assert shown["title"].endswith("/s · shop.wsgi:app")
    assert "3 / 16" in shown["tiles"]
    assert "5xx 7" in shown["tiles"]
    assert "1234" in shown["workers"]
    assert "30 MiB" in shown["workers"]
    assert "starting" in shown["workers"]
    assert "crash 1" in shown["restarts"]
    assert "worker 12 was killed by signal 9" in shown["restarts"]
    assert "running: GET /report" in shown["slow"]
    assert shown["running"] == ""
    assert "wait()" in shown["slow"]
    assert "No worker runs" not in shown["workers"]
    assert "what you see is old" in shown["trouble"]  # this browser cannot reach the server


def test_metrics_are_served_on_a_unix_socket(tmp_path: Path) -> None:
    with Family(f"unix:{tmp_path}/metrics.sock") as family:
        assert family.url == f"unix:{tmp_path}/metrics.sock"
        assert scrape(family)["kirsch_requests_total", ""] == 0


def test_metrics_process_serves_while_supervisor_is_stopped_and_exits_with_it(family: Family) -> None:
    os.kill(family.pid, signal.SIGSTOP)
    assert family.get("/metrics")[0] == 200
    os.kill(family.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(family.child), "the child has left")
    with pytest.raises(OSError):
        get(family.url, "/metrics")


def test_metrics_process_ignores_signals_for_the_supervisor(family: Family) -> None:
    """``pkill -HUP kirsch`` reaches the whole family."""
    assert family.get("/metrics")[0] == 200
    for name in ("SIGHUP", "SIGTTIN", "SIGTTOU", "SIGUSR1", "SIGUSR2", "SIGWINCH"):
        os.kill(family.child, getattr(signal, name))
    assert family.get("/metrics")[0] == 200


def test_metrics_process_uses_little_memory(family: Family) -> None:
    for path in ("/", "/status.json", "/metrics") * 20:
        family.get(path)
    assert uss(family.child) < 12 * MiB


# The page about metrics


def test_every_metric_is_on_the_page(family: Family) -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    for name in parse(family.get("/metrics")[2]):
        assert re.search(rf"`{name}(_total)?\b", page), name


def test_queries_on_the_page_name_existing_metrics(family: Family) -> None:
    family.do("claim")
    there_is = {name for name, _ in scrape(family)}
    (questions,) = code_blocks("metrics.md", "promql")
    asked = set(re.findall(r"kirsch_\w+", questions))
    assert asked
    assert asked <= there_is


@pytest.mark.parametrize("count", [128, 1000, 3000])
def test_scrape_is_answered_promptly_while_idle_clients_are_connected(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the hard limit of open files is {hard}, and {wanted} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    silent: list[socket.socket] = []
    try:
        with Family() as family:
            host, port = family.url.removeprefix("http://").split(":")
            # Each takes the place of one that was closed, as long as this goes on.
            silent += [socket.create_connection((host, int(port)), timeout=30) for _ in range(count)]
            took = []
            for _ in range(5):
                began = time.monotonic()
                assert get(family.url, "/metrics")[0] == 200
                took.append(time.monotonic() - began)
                silent += [socket.create_connection((host, int(port)), timeout=30) for _ in range(50)]
            # The machine may be busy with other tests; those that kept others out did so for five seconds each time.
            assert min(took) < 0.5, took
            assert max(took) < 4.0, took
    finally:
        for each in silent:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
