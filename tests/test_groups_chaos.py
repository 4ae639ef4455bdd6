"""Groups of three hosts behind HAProxy while workers, relays and the broker are killed and paused, and hosts cut off.

``KIRSCH_CHAOS_SECONDS=600`` makes it last ten minutes. It prints what was lost; no promise forbids that while something
is broken. It fails if a client gets a message twice, or those of one connection out of order; if a client misses a
message when nothing is broken any more; or if a relay grows beyond its bounds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from machines import MACHINES, Machine, Network
from proc import rss, wait_until
from running import descendants, title

SECONDS = int(os.environ.get("KIRSCH_CHAOS_SECONDS", "60"))
SHOPS = ("shop1", "shop2", "shop3")
BALANCER = MACHINES["balancer"]
# A relay with asyncio and a client library has 30 MB; its queues are bounded to 8 MiB each.
RELAY_BYTES_MAX = 120 << 20

PROXY = f"""
defaults
    mode http
    timeout connect 1s
    timeout client 30s
    timeout server 30s
    timeout tunnel 1h
    retries 0
frontend front
    bind {BALANCER}:80
    default_backend shops
backend shops
    balance roundrobin
    option redispatch
""" + "".join(f"    server {name} {MACHINES[name]}:8000 check inter 500ms fall 2 rise 1\n" for name in SHOPS)


class Reader(threading.Thread):
    """A client of the group that connects again whenever its WebSocket ends."""

    def __init__(self, network: Network, stop: threading.Event) -> None:
        super().__init__()
        self._network = network
        self._stop_reading = stop
        self.got: set[int] = set()
        self.faults: list[str] = []

    def run(self) -> None:
        self._network.enter("client")
        while not self._stop_reading.is_set():
            try:
                with connect(f"ws://{BALANCER}/room/seven", open_timeout=5, close_timeout=1, proxy=None) as client:
                    self._read(client)
            except (OSError, WebSocketException):
                self._stop_reading.wait(0.1)

    def _read(self, client: object) -> None:
        last: dict[str, int] = {}
        while not self._stop_reading.is_set():
            try:
                message = client.recv(timeout=1)  # type: ignore[attr-defined]
            except TimeoutError:
                continue
            if not message.startswith("m"):
                continue  # the pid of the worker
            sender, _, digits = message.partition(" ")
            number = int(digits)
            if number <= last.get(sender, 0):
                self.faults.append(f"{message} behind {last[sender]}")
            last[sender] = number
            self.got.add(number)


class Sender(threading.Thread):
    """A client that sends numbers until it is stopped, each with the name of the WebSocket through which it is sent."""

    def __init__(self, network: Network, stop: threading.Event) -> None:
        super().__init__()
        self._network = network
        self._stop_sending = stop
        self.sent = 0

    def run(self) -> None:
        self._network.enter("client")
        for connection in itertools.count():
            if self._stop_sending.is_set():
                break
            try:
                with connect(f"ws://{BALANCER}/room/seven", open_timeout=5, close_timeout=1, proxy=None) as client:
                    while not self._stop_sending.wait(0.01):
                        self.sent += 1
                        client.send(f"m{connection} {self.sent}")
                        with contextlib.suppress(TimeoutError):  # otherwise it would be a slow client
                            while True:
                                client.recv(timeout=0)
            except (OSError, WebSocketException):
                self._stop_sending.wait(0.1)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 180)
def test_chaos_duplicates_nothing_and_heals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("redis") is None or not (shutil.which("redis-server") and shutil.which("haproxy")):
        pytest.skip("redis-server, haproxy or pip install 'kirsch[redis]' is missing: make test-system")
    network = Network()
    if network.why_not:
        pytest.skip(f"no network namespaces: {network.why_not}")
    (tmp_path / "haproxy.cfg").write_text(PROXY)
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    stop, stop_sending = threading.Event(), threading.Event()
    own: list[subprocess.Popen[bytes]] = []
    machines: list[Machine] = []
    readers = [Reader(network, stop) for _ in range(9)]
    sender = Sender(network, stop_sending)
    peak = 0

    def run(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            network.command("balancer", words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        own.append(process)
        return process

    def redis() -> subprocess.Popen[bytes]:
        return run("redis-server", "--bind", BALANCER, "--save", "", "--protected-mode", "no", "--dir", str(tmp_path))

    try:
        broker = redis()
        run("haproxy", "-f", str(tmp_path / "haproxy.cfg"))
        words = f"{sys.executable} -m kirsch groups_app:app --bind {MACHINES['shop1']}:8000 --workers 2"
        command = [*words.split(), "--groups", f"redis://{BALANCER}"]
        machines += [Machine(network, name, command, dict(os.environ), Path(__file__).parent) for name in SHOPS]
        for machine in machines:
            machine.running.wait_for("serving")
        for thread in (*readers, sender):
            thread.start()
        wait_until(lambda: all(reader.got for reader in readers), "all clients get messages")
        done: list[str] = []
        pause = threading.Event()
        for _ in range(SECONDS // 5):
            shop = chance.choice(machines)
            relays = [pid for pid in descendants(shop.running.pid) if title(pid).startswith("kirsch: groups")]
            peak = max([peak, *(rss(pid) for pid in relays)])
            act = chance.choice(["worker", "relay", "kill broker", "pause broker", "pause relay", "cut"])
            done.append(act)
            if act == "worker":
                os.kill(chance.choice(shop.running.worker_pids()), signal.SIGKILL)
                pause.wait(5)
            elif act == "kill broker":
                broker.kill()
                broker.wait()
                pause.wait(2)
                broker = redis()
                pause.wait(3)
            elif act == "cut":
                network.unplug(shop.name)
                pause.wait(3)
                network.unplug(shop.name, back=True)
                pause.wait(2)
            elif act == "relay" and relays:
                os.kill(relays[0], signal.SIGKILL)
                pause.wait(5)
            else:
                pid = broker.pid if act == "pause broker" or not relays else relays[0]
                os.kill(pid, signal.SIGSTOP)
                pause.wait(3)
                os.kill(pid, signal.SIGCONT)
                pause.wait(2)
        first = sender.sent
        wait_until(
            lambda: all(max(reader.got, default=0) > first for reader in readers), "all clients get messages again", 60
        )
        healed = range(sender.sent + 1, sender.sent + 501)
        wait_until(lambda: all(healed[-1] in reader.got for reader in readers), "and the last one", 60)
        stop_sending.set()
        missed = [number for reader in readers for number in healed if number not in reader.got]
        lost = [1 - len(reader.got) / sender.sent for reader in readers]
        with capsys.disabled():
            print(
                f"\nchaos, seed {seed}, {SECONDS} s: {', '.join(done)}; {sender.sent} sent to {len(readers)} clients, "
                f"lost {min(lost):.1%} to {max(lost):.1%}, and {len(missed)} of the last 500; "
                f"relays have {peak >> 20} MiB at most"
            )
        assert not list(itertools.chain.from_iterable(reader.faults for reader in readers)), f"seed {seed}"
        assert not missed, f"seed {seed}"
        assert peak < RELAY_BYTES_MAX, f"seed {seed}"
    finally:
        stop_sending.set()
        stop.set()
        for thread in (*readers, sender):
            if thread.ident is not None:
                thread.join()
        for machine in machines:
            machine.kill()
            machine.running.finish()
        for process in own:
            process.kill()
            process.wait()
        network.remove()
