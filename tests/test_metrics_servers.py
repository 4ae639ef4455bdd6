"""``--metrics-bind`` of whole servers: the metrics stay right and reachable whatever the workers do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from family import code_blocks, get, is_alive, scrape
from kirsch.commands import top
from proc import wait_until
from waiting import HERE, ask, assert_answered, await_inside, every_concurrent_driver, flags

if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.monitor.scoreboard import Scoreboard
    from running import Running, Serve

MiB = 1 << 20


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
