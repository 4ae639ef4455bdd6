"""Groups that span the workers of a server: every way to receive, order, presence, slow clients, lost relays."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from websockets.exceptions import ConnectionClosed

import kirsch
from kirsch.groups.frames import Frames, Message, encode, message_body, message_of
from proc import listening, wait_until
from running import descendants, title
from test_websocket import connect, serve_app, upgraded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from websockets.sync.connection import Connection

    from running import Running, Serve

WORKERS = 3
RELAY = re.compile("kirsch: groups")
KINDS = {
    "wsgi": ("groups_app:app",),
    "gevent": ("groups_app:app", "--driver", "gevent"),
    "asgi": ("groups_app:asgi",),
}


def serve_groups(serve: Serve, kind: str, *args: str, workers: int = WORKERS) -> Running:
    app, *driver = KINDS[kind]
    return serve_app(serve, *driver, "--workers", str(workers), *args, app=app)


def get(site: Running, path: str, **headers: str) -> str:
    connection = http.client.HTTPConnection(site.host, site.port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        return connection.getresponse().read().decode()


@contextlib.contextmanager
def joined(site: Running, path: str, workers: int = WORKERS, each: int = 1) -> Iterator[dict[str, list[Connection]]]:
    """Clients of a room, by the pid of their worker: at least ``each`` on every worker."""
    with contextlib.ExitStack() as stack:
        found: dict[str, list[Connection]] = {}
        for _ in range(200):
            # A client with unread messages does not see the server's answer to its close.
            client = stack.enter_context(connect(site, path, close_timeout=1))
            found.setdefault(str(client.recv(timeout=20)), []).append(client)
            if len(found) == workers and all(len(clients) >= each for clients in found.values()):
                break
        else:
            raise AssertionError(f"all clients reach {set(found)}")
        name = path.partition("?")[0].rpartition("/")[2]
        total = sum(map(len, found.values()))
        wait_until(lambda: get(site, f"/count/{name}") == str(total), "the relay knows all members")
        yield found


def relay_pid(site: Running) -> int:
    def found() -> list[int]:
        return [pid for pid in descendants(site.pid) if RELAY.match(title(pid))]

    wait_until(lambda: bool(found()), "the relay runs")
    return found()[0]


@pytest.mark.parametrize("kind", KINDS)
def test_message_reaches_every_worker_once_and_in_order(serve: Serve, kind: str) -> None:
    site = serve_groups(serve, kind)
    with joined(site, "/room/seven", each=2) as clients:
        sender = next(iter(clients.values()))[0]
        sent = [f"héllo {number}" if number % 2 else bytes([number]) * 3000 for number in range(100)]
        for message in sent:
            sender.send(message)
        for client in (client for group in clients.values() for client in group):
            assert [client.recv(timeout=20) for _ in sent] == sent
        get(site, "/send/eight?not-here")
        get(site, "/send/seven?last")
        for client in (client for group in clients.values() for client in group):
            assert client.recv(timeout=20) == "last"
    assert "Traceback" not in site.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_events_come_from_every_worker_and_end_when_the_server_stops(serve: Serve, kind: str) -> None:
    site = serve_groups(serve, kind, "--graceful-timeout", "20")
    with socket.create_connection((site.host, site.port), timeout=20) as peer:
        peer.sendall(b"GET /events/seven HTTP/1.1\r\nHost: a\r\n\r\n")
        stream = peer.makefile("rb")
        pids: set[str] = set()
        with repeated(lambda: get(site, "/send-pid/seven")):
            while len(pids) < WORKERS:  # the first ones are lost until the workers know of each other
                line = next(line for line in stream if line.startswith(b"data: "))
                pids.add(line.split()[1].decode())
        site.send(signal.SIGTERM)
        assert b"0\r\n" in stream.read().splitlines(keepends=True)
    assert site.stop() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_members_of_all_workers_are_known_until_they_leave_or_their_worker_dies(serve: Serve, kind: str) -> None:
    site = serve_groups(serve, kind)
    with joined(site, "/room/seven?ann") as clients:
        count = sum(map(len, clients.values()))
        assert json.loads(get(site, "/members/seven")) == ["ann"] * count
        pid, killed = next(iter(clients.items()))
        other = next(group for other, group in clients.items() if other != pid)[0]
        os.kill(int(pid), signal.SIGKILL)
        for client in killed:
            with pytest.raises(ConnectionClosed):
                client.recv(timeout=20)
        left = count - len(killed)
        wait_until(lambda: get(site, "/count/seven") == str(left), "the dead worker's members are gone")
        other.close()
        wait_until(lambda: get(site, "/count/seven") == str(left - 1), "the client that left is gone")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2])
def test_reload_and_upgrade_join_old_and_new_workers(serve: Serve, tmp_path: Path, number: signal.Signals) -> None:
    site = serve_groups(serve, "wsgi", "--graceful-timeout", "30")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    before = {str(pid) for pid in site.worker_pids()}
    with concurrent.futures.ThreadPoolExecutor() as pool, joined(site, "/room/seven"):
        late = pool.submit(get, site, f"/late/seven?{gate}")
        writer = gate.open("w")  # once the old worker reads
        relay = relay_pid(site)
        site.send(number)
        wait_until(lambda: get(site, "/pid/seven") not in before, "a new worker answers")
        with connected_to_other(site, before) as client:
            writer.write("from the old one")
            writer.close()
            assert late.result() in before
            assert client.recv(timeout=20) == "from the old one"
    site.wait_for(f"{number.name}: done")
    assert relay_pid(site) == relay, "the relay has gone on"


def wait_for_member(site: Running, name: str) -> None:
    wait_until(lambda: name in json.loads(get(site, "/members/seven")), "the relay knows the new member")


@contextlib.contextmanager
def connected_to_other(site: Running, pids: set[str]) -> Iterator[Connection]:
    """A client whose worker is none of these, and the relay knows that."""
    for number in itertools.count():
        name = f"new {number}"
        with connect(site, f"/room/seven?{quote(name)}") as client:
            try:
                pid = client.recv(timeout=20)
            except ConnectionClosed:  # by a worker that was about to stop
                continue
            if pid not in pids:
                wait_for_member(site, name)
                yield client
                return


def test_relay_that_dies_is_replaced_and_knows_the_members_again(serve: Serve) -> None:
    site = serve_groups(serve, "wsgi")
    with joined(site, "/room/seven?ann") as clients:
        count = sum(map(len, clients.values()))
        os.kill(relay_pid(site), signal.SIGKILL)
        site.wait_for("the relay of groups was killed by SIGKILL|the relay of groups .*SIGKILL")
        wait_until(lambda: get(site, "/count/seven") == str(count), "the new relay knows the members")
        wait_until(lambda: json.loads(get(site, "/members/seven")) == ["ann"] * count, "and their data")
        get(site, "/send/seven?after")
        for client in (client for group in clients.values() for client in group):
            assert client.recv(timeout=20) == "after"


def test_client_that_does_not_read_misses_messages_or_is_closed(serve: Serve) -> None:
    site = serve_groups(serve, "wsgi", "--metrics-bind", "127.0.0.1:0", workers=2)
    with joined(site, "/room/seven", workers=2) as clients, upgraded(site, "/slow/seven") as slow:
        reader = next(iter(clients.values()))[0]
        big = b"x" * 100_000
        for number in range(60):
            reader.send(big)
            assert reader.recv(timeout=20) == big, number
        wait_until(lambda: dropped(site, "slow-client") > 0, "the metric counts the messages that were dropped")
        data = slow.read_until_closed()
        assert data[-15:-11] == b"\x88\x0d\x03\xf5", "closed with 1013"


def dropped(site: Running, reason: str) -> int:
    """Return how many messages were dropped, as ``--metrics-bind`` counts them."""
    metrics = site.wait_for(r"metrics on http://([^:]+):(\d+)")
    connection = http.client.HTTPConnection(metrics[1], int(metrics[2]), timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    line = next(each for each in text.splitlines() if f'messages_dropped_total{{reason="{reason}"}}' in each)
    return int(float(line.split()[1]))


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def send_numbers(client: Connection, count: int) -> None:
    """Send large messages, one after the other: each has to come back to its sender."""
    for number in range(count):
        client.send(f"{number} ".ljust(100_000, "x"))
        assert str(client.recv(timeout=20)).startswith(f"{number} ")


def numbers_until_end(client: Connection, sender: Connection) -> list[int]:
    """Return the numbers that have arrived when a message arrives that ``sender`` sends now."""
    found = []
    with repeated(lambda: sender.send("end")):
        while (message := str(client.recv(timeout=20))) != "end":
            found.append(int(message.split()[0]))
    return found


def test_worker_that_does_not_run_misses_messages_alone(serve: Serve) -> None:
    site = serve_groups(serve, "wsgi", "--metrics-bind", "127.0.0.1:0", workers=2)
    with joined(site, "/room/seven", workers=2) as clients:
        (_, [sender, *_]), (pid, [reader, *_]) = clients.items()
        with stopped(int(pid)):
            send_numbers(sender, 110)
            site.wait_for(
                rf"groups: worker {pid} does not take the messages of its groups: \d+ wait, and others are dropped"
            )
            wait_until(lambda: dropped(site, "slow-worker") > 0, "they are counted")
        found = numbers_until_end(reader, sender)
        assert found[:1] == [0]
        assert found == sorted(set(found)), "each once, and in the order in which they were sent"
        assert len(found) < 110


def test_relay_that_does_not_run_loses_messages_beyond_the_bound(serve: Serve) -> None:
    site = serve_groups(serve, "wsgi", "--metrics-bind", "127.0.0.1:0", workers=2)
    with joined(site, "/room/seven", workers=2) as clients:
        (_, [sender, *_]), (_, [reader, *_]) = clients.items()
        with stopped(relay_pid(site)):
            send_numbers(sender, 110)
            site.wait_for(
                "groups: messages are dropped, because the relay does not take them: 10000 messages or 8 MiB wait"
            )
        found = numbers_until_end(reader, sender)
        assert found[:1] == [0]
        assert found == sorted(set(found)), "each once, and in the order in which they were sent"
        wait_until(lambda: dropped(site, "lost-relay") > 0, "the others are counted")


def test_group_works_without_supervisor(serve: Serve) -> None:
    site = serve_groups(serve, "wsgi", workers=0)
    with connect(site, "/room/seven?ann") as client, connect(site, "/room/seven?bob") as other:
        client.recv(timeout=20)
        other.recv(timeout=20)
        wait_until(lambda: get(site, "/members/seven") == '["ann", "bob"]', "both have joined")
        client.send("hello")
        assert client.recv(timeout=20) == other.recv(timeout=20) == "hello"
        assert get(site, "/count/seven") == "2"


def test_relay_and_metrics_process_have_no_sockets_of_others(serve: Serve) -> None:
    site = serve_groups(serve, "wsgi", "--metrics-bind", "127.0.0.1:0", workers=1)
    with joined(site, "/room/a", workers=1):
        metrics = next(pid for pid in descendants(site.pid) if "kirsch: metrics" in title(pid))
        wait_until(lambda: len(listening(metrics)) == 1, "the metrics process has its own socket alone")
        assert listening(relay_pid(site)) == set()


def test_server_without_named_groups_has_no_relay(serve: Serve) -> None:
    site = serve_app(serve, "--workers", "2", app="websocket_wsgi_app:app")
    site.page()
    assert not [pid for pid in descendants(site.pid) if RELAY.match(title(pid))]


MISUSES: dict[str, Callable[[], object]] = {
    "the name of a group must be a str": lambda: kirsch.Group([]),  # type: ignore[arg-type]
    "at most 200 bytes": lambda: kirsch.Group("x" * 201),
    "no NUL": lambda: kirsch.Group("\0"),
    "WebSockets that Kirsch serves": lambda: kirsch.Group("a").add({}),
    "at most 1048576 bytes": lambda: kirsch.Group("a").send_all(bytes(1 << 20)),
}


@pytest.mark.parametrize("text", MISUSES)
def test_misuse_says_what_is_allowed(text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        MISUSES[text]()


def test_frames_are_found_wherever_the_stream_is_cut() -> None:
    messages = [Message("héllo"), Message(b"\0\xff" * 100, "1-2"), Message(""), Message(b"")]
    stream = b"".join(encode(5, b"room", message_body(each)) for each in messages)
    for size in (1, 2, 3, 7, 50, len(stream)):
        frames = Frames()
        found = []
        for at in range(0, len(stream), size):
            found += [message_of(each.body) for each in frames.feed(stream[at : at + size])]
        assert [(each.data, each.id) for each in found] == [(each.data, each.id) for each in messages]


# The page of each example that speaks WebSocket, by its file.
EXAMPLES = {"chat": "/lobby", "chat_asgi": "/lobby", "chat_web": "/room/lobby"}


def write_examples(folder: Path) -> None:
    text = (Path(__file__).resolve().parent.parent / "docs" / "groups.md").read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        name = re.match(r"# (\w+)\.py\n", code)
        assert name is not None
        (folder / f"{name[1]}.py").write_text(code, encoding="utf-8")


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_chats_on_the_page_run(serve: Serve, tmp_path: Path, example: str) -> None:
    write_examples(tmp_path)
    site = serve(f"{example}:app", "--workers", "2", cwd=tmp_path)
    with contextlib.ExitStack() as stack:
        sender, *readers = [stack.enter_context(connect(site, EXAMPLES[example])) for _ in range(6)]
        with repeated(lambda: sender.send("hello")):  # until the workers know of each other
            for reader in readers:
                assert reader.recv(timeout=20) == "hello"


@contextlib.contextmanager
def repeated(act: Callable[[], object]) -> Iterator[None]:
    """Do it again and again meanwhile."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.05):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_example_of_events_on_the_page_runs(serve: Serve, tmp_path: Path) -> None:
    write_examples(tmp_path)
    site = serve("news:app", "--workers", "2", cwd=tmp_path)
    with socket.create_connection((site.host, site.port), timeout=20) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

        def post() -> None:
            request = urllib.request.Request(site.url, data=b"news", method="POST")
            urllib.request.urlopen(request, timeout=20).close()

        with repeated(post):
            assert b"data: news\n" in peer.makefile("rb")
