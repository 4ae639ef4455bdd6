"""Measure one message to many WebSockets on several workers: Kirsch's groups beside other libraries' with Redis.

    pip install 'kirsch[redis]' python-socketio 'uvicorn[standard]' channels channels_redis granian fastapi
    python scripts/group_speed.py [--peers 5000] [--workers 4] [--messages 50] [NAME...]

Every server has the same number of workers, and the clients are spread over them as the kernel does. One client sends a
message, and the next one when all clients have it. Shown is, for a message to all clients: the processor time of the
server with all its processes and of its Redis, and the time until half and 99 % of the clients have it. The clients are
one process, which reads all of them, so these times include its own work, the same for every server. Processor time
hardly depends on what else the machine does; the other times do, so run this on a machine that does nothing else.

Needs Linux, redis-server, and for 5,000 peers ``ulimit -n 12000``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import termination

KIRSCH = """
import kirsch

async def app(scope, receive, send):
    if scope["type"] != "websocket":
        return
    group = kirsch.Group("room")
    await receive()
    await send({"type": "websocket.accept"})
    group.add(scope)
    while (event := await receive())["type"] == "websocket.receive":
        group.send_all(event["text"])
"""

SOCKETIO = """
import os
import socketio

server = socketio.AsyncServer(async_mode="asgi", client_manager=socketio.AsyncRedisManager(os.environ["REDIS_URL"]))

@server.event
async def say(sid, data):
    await server.emit("said", data)

app = socketio.ASGIApp(server)
"""

CHANNELS = """
import os
import django
from django.conf import settings

layer = {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [os.environ["REDIS_URL"]]}}
settings.configure(SECRET_KEY="x", CHANNEL_LAYERS={"default": layer})
django.setup()

from channels.generic.websocket import AsyncWebsocketConsumer

class Room(AsyncWebsocketConsumer):
    async def connect(self):
        await self.channel_layer.group_add("room", self.channel_name)
        await self.accept()

    async def receive(self, text_data):
        await self.channel_layer.group_send("room", {"type": "said", "text": text_data})

    async def said(self, event):
        await self.send(event["text"])

app = Room.as_asgi()
"""

# What an application does that has no library for groups.
FASTAPI = """
import asyncio
import contextlib
import os
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from redis.asyncio import from_url

redis = from_url(os.environ["REDIS_URL"])
members = set()

async def forward(channel):
    async for message in channel.listen():
        if message["type"] == "message":
            text = message["data"].decode()
            await asyncio.gather(*(member.send_text(text) for member in members), return_exceptions=True)

@contextlib.asynccontextmanager
async def lifespan(app):
    async with redis.pubsub() as channel:
        await channel.subscribe("room")
        forwarding = asyncio.create_task(forward(channel))
        yield
        forwarding.cancel()

app = FastAPI(lifespan=lifespan)

@app.websocket("/")
async def room(member: WebSocket):
    await member.accept()
    members.add(member)
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await redis.publish("room", await member.receive_text())
    members.discard(member)
"""

# Each worker notes its pid when it imports the application.
NOTE = "import os\nwith open('workers', 'a') as workers:\n    workers.write(f'{os.getpid()}\\n')\n"

UVICORN = "-m uvicorn --host 127.0.0.1 --port {port} --workers {workers} --log-level warning app:app"
SERVERS = {
    "kirsch": (KIRSCH, "-m kirsch --log-level error --bind 127.0.0.1:{port} --workers {workers} app:app"),
    "kirsch --groups redis": (
        KIRSCH,
        "-m kirsch --log-level error --bind 127.0.0.1:{port} --workers {workers} --groups {redis} app:app",
    ),
    "python-socketio": (SOCKETIO, UVICORN),
    "channels_redis": (CHANNELS, UVICORN),
    "granian with FastAPI": (
        FASTAPI,
        "-m granian --interface asgi --host 127.0.0.1 --port {port} --workers {workers} --log-level warning app:app",
    ),
}
CONNECTING = 100
"""The clients that connect at the same time."""
PATIENCE_SECONDS = 60.0
TICKS = os.sysconf("SC_CLK_TCK")


class Peer(asyncio.Protocol):
    """A WebSocket client that counts the messages of the group. ``is_socketio``: it speaks that protocol."""

    def __init__(self, room: Room, is_socketio: bool) -> None:
        self._room = room
        self._is_socketio = is_socketio
        self._data = b""
        self._is_open = False
        self.ready = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        path = "/socket.io/?EIO=4&transport=websocket" if self._is_socketio else "/"
        transport.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        if not self._is_open:
            head, end, data = data.partition(b"\r\n\r\n")
            if not end:
                self._data = head
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self._is_open = True
            if not self._is_socketio:
                self.ready.set_result(None)
        at = 0
        while len(data) >= at + 2:
            length, start = data[at + 1], at + 2
            if length == 126:
                if len(data) < at + 4:
                    break
                length, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            if len(data) < start + length:
                break
            self._take(data[at] & 15, data[start : start + length])
            at = start + length
        self._data = data[at:]

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == 9:
            self._write(10, payload)
        elif self._is_socketio and payload[:1] == b"0":
            self._write(1, b"40")  # connect to the namespace
        elif self._is_socketio and payload[:1] == b"2":
            self._write(1, b"3")  # pong
        elif self._is_socketio and payload[:2] == b"40":
            self.ready.set_result(None)
        elif kind == 1:
            self._room.count(payload)

    def say(self, text: str) -> None:
        self._write(1, f"42{json.dumps(['say', text])}".encode() if self._is_socketio else text.encode())

    def _write(self, kind: int, payload: bytes) -> None:
        assert len(payload) < 126
        self.transport.write(bytes((0x80 | kind, 0x80 | len(payload), 0, 0, 0, 0)) + payload)  # masked with zeros


class Room:
    """The arrivals of the message that was sent last, at all peers."""

    def __init__(self, peers: int) -> None:
        self.peers = peers
        self.arrived: list[float] = []
        self.complete = asyncio.Event()
        self._text = ""
        self._messages = 0

    async def send(self, client: Peer, patience: float) -> float:
        """Have a client send a new message. Return when it was sent; raises TimeoutError if not all clients get it."""
        self.arrived.clear()
        self.complete.clear()
        self._messages += 1
        self._text = f"message {self._messages} of this measurement".ljust(100, ".")
        began = time.perf_counter()
        client.say(self._text)
        await asyncio.wait_for(self.complete.wait(), patience)
        return began

    def count(self, payload: bytes) -> None:
        if self._text.encode() not in payload:
            return  # an earlier one, for which a peer was not in the group in time
        self.arrived.append(time.perf_counter())
        if len(self.arrived) == self.peers:
            self.complete.set()


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and its descendants."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(stat[11]) + int(stat[12])) / TICKS + sum(processor_seconds(int(child)) for child in children)


async def measure(port: int, pids: list[int], peers: int, messages: int, is_socketio: bool) -> list[float]:
    """Return for one message: processor seconds, and the seconds until half and 99 % of the clients have it."""
    loop = asyncio.get_running_loop()
    room = Room(peers)
    clients: list[Peer] = []
    for at in range(0, peers, CONNECTING):
        made = [
            loop.create_connection(lambda: Peer(room, is_socketio), "127.0.0.1", port)
            for _ in range(min(CONNECTING, peers - at))
        ]
        added = [peer for _, peer in await asyncio.gather(*made)]
        await asyncio.wait_for(asyncio.gather(*(peer.ready for peer in added)), PATIENCE_SECONDS)
        clients += added
    # The application may still be putting the last ones into the group.
    until = time.monotonic() + PATIENCE_SECONDS
    warm = 0
    while warm < 3:
        try:
            await room.send(clients[0], 10)
            warm += 1
        except TimeoutError:
            if time.monotonic() > until:
                raise
    halves, almost_all = [], []
    used = sum(map(processor_seconds, pids))
    for number in range(messages):
        began = await room.send(clients[number % peers], PATIENCE_SECONDS)
        halves.append(room.arrived[peers // 2] - began)
        almost_all.append(room.arrived[peers * 99 // 100] - began)
    used = sum(map(processor_seconds, pids)) - used
    for client in clients:
        client.transport.abort()
    return [used / messages, statistics.median(halves), statistics.median(almost_all)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as own:
        return int(own.getsockname()[1])


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def workers_in(path: Path) -> set[str]:
    return set(path.read_text().split()) if path.exists() else set()


@contextlib.contextmanager
def running(command: list[str], port: int, workers: Path | None = None, count: int = 0, **options: object):  # type: ignore[no-untyped-def]
    """Run a server until it listens, and ``count`` workers have written their pids into the file ``workers``."""
    process = subprocess.Popen(  # type: ignore[call-overload]  # noqa: S603 - commands of this file
        command, start_new_session=True, stdout=subprocess.DEVNULL, **options
    )
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not (listens(port) and (workers is None or len(workers_in(workers)) >= count)):
            if time.monotonic() > until or process.poll() is not None:
                sys.exit(f"{' '.join(command)} does not serve")
            time.sleep(0.05)  # between two looks
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SERVERS)}; all if there is none")
    parser.add_argument("--peers", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--messages", type=int, default=50)
    given = parser.parse_args()
    termination.end_servers_on_sigterm()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    redis = shutil.which("redis-server") or shutil.which("valkey-server")
    if redis is None:
        sys.exit("redis-server is not installed")
    title = f"{given.peers} peers, {given.workers} workers, {given.messages} messages; load {os.getloadavg()[0]:.1f}"
    sys.stdout.write(f"{title}\n{'':24}{'processor ms':>14}{'half ms':>10}{'99 % ms':>10}\n")
    for name in given.names or SERVERS:
        source, words = SERVERS[name]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "app.py").write_text(NOTE + source)
            broker_port, port = free_port(), free_port()
            url = f"redis://127.0.0.1:{broker_port}"
            command = words.format(port=port, workers=given.workers, redis=url).split()
            broker_command = [redis, "--port", str(broker_port), "--save", "", "--dir", folder]
            env = {**os.environ, "REDIS_URL": url}
            with (
                running(broker_command, broker_port) as broker,
                running(
                    [sys.executable, *command], port, Path(folder, "workers"), given.workers, cwd=folder, env=env
                ) as server,
            ):
                found = asyncio.run(
                    measure(port, [broker.pid, server.pid], given.peers, given.messages, name == "python-socketio")
                )
        line = "".join(f"{1000 * each:>{width}.1f}" for each, width in zip(found, (14, 10, 10), strict=True))
        sys.stdout.write(f"{name:24}{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
