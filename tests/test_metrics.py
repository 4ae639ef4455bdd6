"""``--metrics-bind``: what Prometheus, people and programs find there, and that it is there whatever the workers do.

What the numbers mean is shown with workers that count what the test says (``family.py``); the last part is about whole
servers. The file is long because each number has its case.
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
import sys
import threading
import time
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from family import Family, get, is_alive
from kirsch.commands import top
from kirsch.monitor import metrics
from kirsch.monitor.scoreboard import NOT_COUNTED, Layout, Scoreboard
from proc import uss, wait_until
from waiting import HERE, ask, assert_answered, await_inside, every_concurrent_driver, flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Running, Serve

MiB = 1 << 20


@pytest.fixture
def family() -> Iterator[Family]:
    with Family() as family:
        yield family


DOCS = Path(__file__).resolve().parent.parent / "docs"


def parse(text: str) -> dict[str, Any]:
    """Families by name, as Prometheus's own client for Python reads them; each name and each series once."""
    parser = pytest.importorskip("prometheus_client.parser", reason="pyproject.toml names prometheus_client")
    families = list(parser.text_string_to_metric_families(text))
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for each in families for sample in each.samples]
    assert len(set(series)) == len(series)
    assert len({each.name for each in families}) == len(families)
    assert all(each.documentation for each in families)
    assert all(each.type in ("counter", "gauge", "histogram") for each in families)
    return {each.name: each for each in families}


def scrape(family: Family | str) -> dict[tuple[str, str], float]:
    """Values by name and by the labels' values."""
    code, headers, text = get(family if isinstance(family, str) else family.url, "/metrics")
    assert (code, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for each in parse(text).values()
        for sample in each.samples
    }


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


# Whole servers


@pytest.fixture
def supervised(serve: Serve) -> Callable[..., tuple[Running, str]]:
    """Serve ``waiting_app`` by workers; returns the server and where its metrics are."""

    def supervised(*args: str) -> tuple[Running, str]:
        path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")]))
        site = serve("waiting_app:app", "--metrics-bind=127.0.0.1:0", *args, env={"PYTHONPATH": path})
        return site, metrics_url(site)

    return supervised


PROJECT = Path(__file__).resolve().parent.parent


def metrics_url(site: Running) -> str:
    return site.wait_for(r"^metrics on (http://\S+)$")[1]


def status(url: str) -> Any:
    return json.loads(get(url, "/status.json")[2])


def board_of(site: Running) -> Scoreboard:
    return top.board_of(site.pid)


def children(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def pids(url: str) -> set[int]:
    return {worker["pid"] for worker in status(url)["workers"] if worker["state"] == "serving"}


def await_requests(url: str, count: int) -> None:
    wait_until(lambda: scrape(url)["kirsch_requests_total", ""] == count, f"{count} requests are counted")


def await_newcomers(url: str, before: set[int], count: int) -> None:
    wait_until(lambda: len(pids(url) - before) == count, f"{count} workers serve that were not there before", 30)


def fetch(site: Running, path: str = "/hello") -> bytes:
    with urllib.request.urlopen(site.url + path, timeout=20) as response:
        return bytes(response.read())


def saturation(seen: dict[tuple[str, str], float]) -> float:
    """The formula of docs/metrics.md for autoscaling."""
    page = (PROJECT / "docs" / "metrics.md").read_text(encoding="utf-8")
    formula = re.search(r"metricsQuery: >-\n(.*?)```", page, re.DOTALL)
    assert formula is not None
    text = formula[1].replace("{<<.LabelMatchers>>}", "").replace(") by (<<.GroupBy>>)", ")")
    for name in re.findall(r"sum\((\w+)\)", text):
        text = text.replace(f"sum({name})", repr(seen[name, ""]))
    value: float = eval(" ".join(text.split()), {"clamp_min": max})
    return value


@every_concurrent_driver
def test_autoscaling_formula_of_the_page_holds_for_each_driver(
    supervised: Callable[..., tuple[Running, str]], driver: str, tmp_path: Path
) -> None:
    site, url = supervised("--workers=2", *flags(driver))
    gate = tmp_path / "gate"
    waiting = [ask(site, f"/wait?{gate}") for _ in range(3)]
    await_inside(site, gate, 3)
    # Two workers with 4 threads each; greenlets have no bound, and the number of requests is what one scales by.
    wanted = 3 / 8 if driver == "threads" else 3.0
    wait_until(lambda: saturation(scrape(url)) == wanted, f"saturation is {wanted}")
    gate.touch()
    for peer in waiting:
        assert_answered(peer, b"waited")
        peer.close()


def test_all_workers_together_are_counted(supervised: Callable[..., tuple[Running, str]]) -> None:
    site, url = supervised("--workers=2", "--threads=4")
    for _ in range(50):
        fetch(site)
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(site, "/hello?" + "x" * 10_000)
    refused.value.close()
    await_requests(url, 50)
    # The client has the refusal before the worker counts it.
    refusal = [("kirsch_responses_total", "4xx"), ("kirsch_requests_refused_total", "")]
    wait_until(lambda: [scrape(url)[key] for key in refusal] == [1, 1], "the refusal is counted")
    seen = scrape(url)
    assert seen["kirsch_responses_total", "2xx"] == 50
    assert seen["kirsch_request_service_seconds_count", ""] == 50
    assert seen["kirsch_request_queue_seconds_count", ""] == 50
    assert seen["kirsch_threads_most", ""] == 8
    assert seen["kirsch_workers", "serving"] == 2
    now = status(url)
    assert now["application"] == "waiting_app:app"
    assert sum(worker["requests"] for worker in now["workers"]) == 50
    assert now["pid"] == site.pid


def test_counters_continue_when_workers_are_replaced(supervised: Callable[..., tuple[Running, str]]) -> None:
    """Reloads, a ``kill -9``, and a scraper that looks all the time."""
    site, url = supervised("--workers=2")
    over = threading.Event()
    went_back: list[str] = []

    def watch() -> None:
        last: dict[tuple[str, str], float] = {}
        while not over.is_set():
            seen = scrape(url)
            for key, value in last.items():
                if re.search("_(total|count|sum|bucket)$", key[0]) and seen.get(key, 0) < value:
                    went_back.append(f"{key}: {value}, then {seen.get(key)}")
            last = seen

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for turn in range(3):
            requests = 30 * (turn + 1)
            before = pids(url)
            for _ in range(30):
                fetch(site)
            await_requests(url, requests)
            if turn == 1:
                os.kill(min(before), signal.SIGKILL)
                await_newcomers(url, before, 1)
            else:
                os.kill(site.pid, signal.SIGHUP)
                await_newcomers(url, before, 2)
            wait_until(lambda: len(status(url)["workers"]) == 2, "who is to go has gone")
    finally:
        over.set()
        watcher.join()
    assert went_back == []
    seen = scrape(url)
    assert seen["kirsch_requests_total", ""] == seen["kirsch_request_service_seconds_count", ""] == 90
    restarts = {reason: value for (name, reason), value in seen.items() if name == "kirsch_worker_restarts_total"}
    assert restarts["reload"] == 4
    assert restarts["crash"] == 1
    assert sum(restarts.values()) == 5


@pytest.mark.slow
def test_metrics_are_served_while_every_worker_is_stuck(serve: Serve, write_app: Callable[[str], str]) -> None:
    module = write_app(
        """
        import ctypes, os

        def app(environ, start_response):
            os.write(2, b"stuck\\n")
            ctypes.PyDLL(None).sleep(3)  # without letting go of the interpreter
            start_response("200 OK", [])
            return [b"over"]
        """
    )
    site = serve(f"{module}:app", "--workers=2", "--metrics-bind=127.0.0.1:0")
    url = metrics_url(site)
    peers = []
    # The test cannot choose the worker of a connection; a stuck worker accepts no more.
    while site.stderr.count("stuck\n") < 2:
        told = site.stderr.count("stuck\n")
        peers.append(ask(site, "/"))
        wait_until(lambda told=told: site.stderr.count("stuck\n") > told, "another one is stuck")  # type: ignore[misc]
    began = time.monotonic()
    for path in ("/metrics", "/status.json", "/"):
        assert get(url, path)[0] == 200
    assert status(url)["gauges"]["running"] <= 2
    assert time.monotonic() - began < 2.5, "the scrape waited for a worker"
    for peer in peers:
        assert_answered(peer, b"over")
        peer.close()


@every_concurrent_driver
def test_slow_request_is_in_the_status(
    supervised: Callable[..., tuple[Running, str]], driver: str, tmp_path: Path
) -> None:
    site, url = supervised("--workers=2", *flags(driver), "--slow-request=200ms")
    gate = tmp_path / "gate"
    with ask(site, f"/wait?{gate}", headers={"X-Request-ID": "abc-123"}) as peer:
        wait_until(lambda: bool(status(url)["slow"]), "it is listed")
        (slow,) = status(url)["slow"]
        assert (slow["id"], slow["method"], slow["path"]) == ("abc-123", "GET", "/wait")
        assert (slow["condition"], slow["took"]) == ("running", None)
        assert slow["pid"] in pids(url)
        assert any(line.endswith("in wait_for_gate") for line in slow["stack"])
        gate.touch()
        assert_answered(peer, b"waited")
    wait_until(lambda: status(url)["slow"][0]["condition"] == "over", "its end is recorded")
    assert status(url)["slow"][0]["took"] >= 0.2


@every_concurrent_driver
@pytest.mark.slow
def test_running_requests_are_published_while_a_client_reads_them(
    supervised: Callable[..., tuple[Running, str]], driver: str, tmp_path: Path
) -> None:
    site, url = supervised("--workers=2", *flags(driver))
    gate = tmp_path / "gate"
    peers = [ask(site, f"/wait?{gate}", headers={"X-Request-ID": f"waiter-{number}"}) for number in range(3)]
    await_inside(site, gate, 3)
    # Each worker weighs itself on its first round, which is the one on which it would show something.
    wait_until(lambda: all(worker.memory for worker in board_of(site).read().workers), "a round has passed")
    assert board_of(site).running() == [], "no reader has asked"
    assert status(url)["running"] is None, "not known yet"
    wait_until(lambda: len(status(url)["running"]) == 3, "all are shown")
    found = status(url)["running"]
    assert {each["id"] for each in found} == {f"waiter-{number}" for number in range(3)}
    assert {each["pid"] for each in found} <= pids(url)
    for each in found:
        assert (each["method"], each["path"], each["state"]) == ("GET", "/wait", "running")
        assert any(line.endswith("in wait_for_gate") for line in each["stack"])
    assert [each["age"] for each in found] == sorted((each["age"] for each in found), reverse=True)
    done = subprocess.run(
        [sys.executable, "-m", "kirsch", "top", url, "--once"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "RUNNING NOW" in done.stdout
    assert "GET /wait (id waiter-2" in done.stdout
    gate.touch()
    for peer in peers:
        assert_answered(peer, b"waited")
        peer.close()
    wait_until(lambda: status(url)["running"] == [], "it is over")


def test_slow_requests_of_killed_worker_stay_in_the_status(
    supervised: Callable[..., tuple[Running, str]], tmp_path: Path
) -> None:
    site, url = supervised("--workers=1", "--slow-request=200ms")
    with ask(site, f"/wait?{tmp_path}/gate") as peer:
        wait_until(lambda: bool(status(url)["slow"]), "it is listed")
        (old,) = pids(url)
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: pids(url) not in (set(), {old}), "another worker has come")
        (slow,) = status(url)["slow"]
        assert (slow["pid"], slow["condition"]) == (old, "ended with its worker")
        assert any(line.endswith("in wait_for_gate") for line in slow["stack"])
        peer.close()


@pytest.mark.slow
def test_kirsch_top_finds_a_real_server(supervised: Callable[..., tuple[Running, str]]) -> None:
    site, url = supervised("--workers=2")
    for address in (url, str(site.pid)):
        done = subprocess.run(
            [sys.executable, "-m", "kirsch", "top", address, "--once"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert "waiting_app:app" in done.stdout
        assert len(re.findall(r"^ +\d+ serving ", done.stdout, re.MULTILINE)) == 2


def test_killed_metrics_process_is_replaced(supervised: Callable[..., tuple[Running, str]]) -> None:
    site, url = supervised("--workers=1")
    fetch(site)
    await_requests(url, 1)
    (worker,) = pids(url)
    (child,) = children(site.pid) - {worker}
    wait_until(lambda: len(status(url)["history"]["requests_per_second"]) >= 2, "it has lived for a while")
    os.kill(child, signal.SIGKILL)
    site.wait_for("the metrics process was killed")
    assert scrape(url)["kirsch_requests_total", ""] == 1
    assert children(site.pid) - {worker, child}


def test_metrics_process_exits_when_supervisor_is_killed(supervised: Callable[..., tuple[Running, str]]) -> None:
    site, url = supervised("--workers=1")
    await_requests(url, 0)
    family = children(site.pid)
    site.process.kill()
    site.process.wait()
    wait_until(lambda: not any(is_alive(pid) for pid in family), "all have left")
    with pytest.raises(OSError):
        get(url, "/metrics")


def test_counters_continue_over_an_upgrade(supervised: Callable[..., tuple[Running, str]]) -> None:
    site, url = supervised("--workers=1")
    for _ in range(20):
        fetch(site)
    await_requests(url, 20)
    before = pids(url)
    os.kill(site.pid, signal.SIGUSR2)

    def is_new() -> bool:
        try:
            return bool(pids(url)) and not pids(url) & before
        except OSError:
            return False  # the process behind the address is being replaced as well

    wait_until(is_new, "the new version's worker serves", 30)
    assert scrape(url)["kirsch_requests_total", ""] == 20


# The page about metrics


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("preload", [False, True])
@pytest.mark.slow
def test_the_recipe_for_prometheus_client_works(serve: Serve, tmp_path: Path, preload: bool) -> None:
    pytest.importorskip("prometheus_client", reason="pyproject.toml names prometheus_client")
    for block in code_blocks("metrics.md", "python"):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name is not None
        (tmp_path / name[1]).write_text(block)
    files = tmp_path / "prometheus"
    files.mkdir()
    args = ["--workers=2", "--max-requests=8", "--metrics-bind=127.0.0.1:0", "--chdir", str(tmp_path)]
    args += ["--env", f"PROMETHEUS_MULTIPROC_DIR={files}", *(["--preload"] if preload else [])]
    site = serve("shop:app", *args)
    url = metrics_url(site)

    def told(name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", fetch(site, "/metrics").decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def order(times: int) -> int:
        for _ in range(times):
            fetch(site, "/order")
        return times

    orders = 0
    end = time.monotonic() + 30
    while status(url)["restarts"].get("max-requests", 0) < 10:
        assert time.monotonic() < end
        orders += order(5)
        assert told("shop_orders_total") == orders, "an order is counted by whichever worker, once and for good"
    victim = min(pids(url))
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in pids(url) and len(pids(url)) >= 2, "another worker has come")
    orders += order(10)
    assert told("shop_orders_total") == orders
    workers = 2 + sum(status(url)["restarts"].values())
    assert len(list(files.glob("counter_worker*"))) < workers - 2, "successors go on with their predecessors' files"
    wait_until(lambda: told("shop_baskets") in (2, 4), "what was said of now has ended with the workers that said it")


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
