"""The relay of a server's groups: a process that forwards each message to the workers that subscribe to its group. It
communicates with the workers over Unix sockets, with a broker (``--groups``) to which the relays of other hosts are
connected, and with the scoreboard, which has its counters. It stores the subscribers and the members of each group, and
removes those of a worker when the connection ends. It stores no messages except those that wait for a worker or for the
broker.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from base64 import b64encode

from kirsch import _native
from kirsch.groups import connector
from kirsch.groups.bounded import BoundedQueue
from kirsch.groups.frames import (
    ANSWER,
    ASK,
    COUNT,
    HELLO,
    JOIN,
    LEAVE,
    MESSAGE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    VERSION,
    WELCOME,
    BrokenStreamError,
    Frames,
    encode,
    with_id,
)
from kirsch.reports import ERROR, INFO, WARNING, Seldom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.groups.brokers import Broker
    from kirsch.groups.frames import Frame
    from kirsch.reports import ErrorLog

MEMBERS_BYTES_MAX = 64 << 20
"""The data of all members of all groups on this host. Members beyond it are counted, and have no data."""

HOSTS_SECONDS = 5.0
"""How often a host tells the others that it is there; one that is silent for three times as long has gone."""

ASK_SECONDS = 0.5
"""How long the relays of other hosts have for an answer."""

_CONTROL = b"\0control"
_RATES = b"\0rates"
_RATES_BYTES_MAX = 1 << 16
_RATES_SECONDS, _RATES_IDLE_SECONDS = 0.1, 1.0
_REPORT_SECONDS = 10.0
_END_SECONDS = 1.0
_LOOK_SECONDS = 1.0


class _Members:
    """The members of a group: their data as JSON, by connection and by the number that the worker gave them."""

    __slots__ = ("by_worker", "subscribers")

    def __init__(self) -> None:
        self.subscribers: set[_Worker] = set()
        self.by_worker: dict[_Worker, dict[str, str]] = {}


class _Worker(asyncio.Protocol):
    """The relay's connection to a worker."""

    _transport: asyncio.Transport

    def __init__(self, relay: Relay, number: int) -> None:
        self._relay = relay
        self.number = number
        self.pid = 0
        self.groups: set[bytes] = set()
        self._frames = Frames()
        self._is_full = False
        self._waiting = BoundedQueue()
        self._reports = Seldom(_REPORT_SECONDS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        outputs: dict[_Worker, list[bytes]] = {}
        try:
            for frame in self._frames.feed(data):
                self._relay.receive(self, frame, outputs)
        except (BrokenStreamError, ValueError, KeyError, TypeError):
            # A worker may run as another user, and its code may send anything: disconnect it.
            self._relay.report(ERROR, f"groups: worker {self.pid} sent what is no frame; it is disconnected")
            self._transport.abort()
        for worker, frames in outputs.items():
            worker.put(frames)

    def put(self, frames: list[bytes]) -> None:
        """Send or queue frames; drop those that exceed the limits."""
        if not self._is_full:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
            return
        dropped = sum(not self._waiting.put(frame, len(frame)) for frame in frames)
        if dropped:
            self._relay.count("slow-worker", dropped)
            if self._reports.is_due():
                self._relay.report(
                    WARNING,
                    f"groups: worker {self.pid} does not take the messages of its groups: {len(self._waiting)} wait, "
                    "and others are dropped",
                )

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        while self._waiting and not self._is_full:
            self._transport.write(self._waiting.take())

    @property
    def is_idle(self) -> bool:
        """True if everything has been sent."""
        return not self._waiting and not self._transport.get_write_buffer_size()

    def stop_reading(self) -> None:
        self._transport.pause_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._relay.forget(self)


class Relay:
    """The state of the relay. ``report`` is the error log; ``count`` counts by name, for the metrics; ``rates`` is
    the buffer of the rate limits, which are shared with other hosts."""

    def __init__(
        self, report: ErrorLog, count: Callable[[str, int], None], broker: Broker | None, rates: memoryview | None
    ) -> None:
        self.report = report
        self.count = count
        self._broker = broker
        self._rates = rates
        self._host = secrets.token_bytes(8)
        self._workers: set[_Worker] = set()
        self._groups: dict[bytes, _Members] = {}
        self._members_bytes = 0
        self._is_crowded = False
        self._next_worker = 0
        self._hosts: dict[str, float] = {}
        self._asked: dict[int, tuple[asyncio.Future[None], set[str], list[Any]]] = {}
        self._next_question = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._must_end = asyncio.Event()

    # Workers

    def end(self) -> None:
        self._must_end.set()

    async def run(self, relay_end: int, is_orphan: Callable[[], bool]) -> None:
        """Relay until :meth:`end` is called or ``is_orphan`` returns true. Then send what is queued, for at most a
        second."""
        loop = asyncio.get_running_loop()
        loop.add_reader(relay_end, self._accept, relay_end)
        if self._broker is not None:
            self._start(self._broker.run(self._receive_from_broker))
            self._broker.subscribe(_CONTROL)
            self._start(self._announce())
            if self._rates is not None:
                self._broker.subscribe(_RATES)
                self._start(self._share_rates(self._rates))
        while not self._must_end.is_set() and not is_orphan():
            try:
                await asyncio.wait_for(self._must_end.wait(), _LOOK_SECONDS)
            except asyncio.TimeoutError:
                pass
        loop.remove_reader(relay_end)
        for worker in self._workers:
            worker.stop_reading()
        until = loop.time() + _END_SECONDS
        while loop.time() < until and not self._is_idle():
            await asyncio.sleep(0.01)

    def _is_idle(self) -> bool:
        return all(worker.is_idle for worker in self._workers) and (self._broker is None or self._broker.is_idle)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self, relay_end: int) -> None:
        while (own := connector.accept(relay_end)) is not None:
            own.setblocking(False)
            self._next_worker += 1
            worker = _Worker(self, self._next_worker)
            self._workers.add(worker)
            loop = asyncio.get_running_loop()
            self._start(loop.create_connection(lambda worker=worker: worker, sock=own))  # type: ignore[misc]

    def forget(self, worker: _Worker) -> None:
        """Forget the groups and members of a worker whose connection has ended."""
        self._workers.discard(worker)
        for name in list(worker.groups):
            self._unsubscribe(worker, name)

    def receive(self, worker: _Worker, frame: Frame, outputs: dict[_Worker, list[bytes]]) -> None:
        """Handle a frame of a worker; add the resulting frames to ``outputs``, by worker."""
        kind, name = frame.kind, frame.name
        if kind == MESSAGE:
            self.count("messages", 1)
            if self._broker is not None:
                self._broker.publish(name, self._host + frame.body, keeps=True)
                if self._broker.has_history:
                    return  # the broker returns the message with its id
            group = self._groups.get(name)
            for other in () if group is None else group.subscribers:
                if other is not worker:
                    outputs.setdefault(other, []).append(frame.raw)
        elif kind == SUBSCRIBE:
            self._subscribe(worker, name)
        elif kind == UNSUBSCRIBE:
            self._unsubscribe(worker, name)
        elif kind == JOIN:
            number, _, data = frame.body.decode().partition(" ")
            self._join(worker, name, number, data)
        elif kind == LEAVE:
            group = self._groups.get(name)
            if group is not None:
                self._members_bytes -= len(group.by_worker.get(worker, {}).pop(frame.body.decode(), ""))
        elif kind == ASK:
            self._start(self._answer(worker, name, *json.loads(frame.body)))
        elif kind == COUNT:
            for reason, number in json.loads(frame.body).items():
                self.count(str(reason), int(number))
        elif kind == HELLO:
            version, worker.pid = json.loads(frame.body)
            if version == VERSION:
                outputs.setdefault(worker, []).append(encode(WELCOME))
            else:
                self.report(INFO, f"groups: worker {worker.pid} has another version of Kirsch; the relay starts anew")
                self.end()

    def _subscribe(self, worker: _Worker, name: bytes) -> None:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Members()
            if self._broker is not None:
                self._broker.subscribe(name)
        group.subscribers.add(worker)
        worker.groups.add(name)

    def _unsubscribe(self, worker: _Worker, name: bytes) -> None:
        worker.groups.discard(name)
        group = self._groups.get(name)
        if group is None:
            return
        group.subscribers.discard(worker)
        self._members_bytes -= sum(map(len, group.by_worker.pop(worker, {}).values()))
        if not group.subscribers:
            del self._groups[name]
            if self._broker is not None:
                self._broker.unsubscribe(name)

    def _join(self, worker: _Worker, name: bytes, number: str, data: str) -> None:
        group = self._groups[name]
        if self._members_bytes + len(data) > MEMBERS_BYTES_MAX:
            data = ""
            if not self._is_crowded:
                self._is_crowded = True
                self.report(WARNING, f"groups: the data of the members exceeds {MEMBERS_BYTES_MAX >> 20} MiB; not kept")
        members = group.by_worker.setdefault(worker, {})
        self._members_bytes += len(data) - len(members.get(number, ""))
        members[number] = data

    # Questions

    async def _answer(self, worker: _Worker, name: bytes, number: int, question: Any) -> None:
        answer: Any
        if isinstance(question, list):
            bodies = await self._broker.history_of(name, str(question[1])) if self._broker is not None else []
            answer = [b64encode(with_id(body[len(self._host) :], mark)).decode() for mark, body in bodies]
        else:
            answer = self._own(name, question)
            if self._broker is not None:
                for other in await self._ask_hosts(name, question):
                    answer += other
        worker.put([encode(ANSWER, name, json.dumps([number, answer]).encode())])

    def _own(self, name: bytes, question: str) -> Any:
        """Return the answer for this host: the number of members, or a list of their ids and data."""
        group = self._groups.get(name)
        by_worker = {} if group is None else group.by_worker
        if question == "count":
            return sum(map(len, by_worker.values()))
        host = self._host.hex()[:4]
        return [
            [f"{host}-{worker.number}-{number}", json.loads(data) if data else None]
            for worker, members in by_worker.items()
            for number, data in members.items()
        ]

    async def _ask_hosts(self, name: bytes, question: str) -> list[Any]:
        """Return the answers of the relays of other hosts that arrive in time."""
        now = time.monotonic()
        self._hosts = {host: seen for host, seen in self._hosts.items() if now - seen < 3 * HOSTS_SECONDS}
        if not self._hosts:
            return []
        self._next_question += 1
        number = self._next_question
        future = asyncio.get_running_loop().create_future()
        answers: list[Any] = []
        self._asked[number] = (future, set(self._hosts), answers)
        try:
            self._tell_hosts({"ask": question, "name": name.decode(), "number": number})
            await asyncio.wait_for(future, ASK_SECONDS)
        except asyncio.TimeoutError:
            pass
        finally:
            del self._asked[number]
        return answers

    def _tell_hosts(self, message: dict[str, Any]) -> None:
        assert self._broker is not None
        self._broker.publish(_CONTROL, self._host + json.dumps(message).encode(), keeps=False)

    async def _announce(self) -> None:
        while True:
            self._tell_hosts({})
            await asyncio.sleep(HOSTS_SECONDS)

    async def _share_rates(self, memory: memoryview) -> None:
        """Send the usage of the rate limits on this host to other hosts."""
        _native.take_rate_limit_debts(memory)  # discard usage from before this relay
        wait = _RATES_IDLE_SECONDS
        while True:
            await asyncio.sleep(wait)
            debts = _native.take_rate_limit_debts(memory)
            wait = _RATES_SECONDS if debts else min(2 * wait, _RATES_IDLE_SECONDS)
            # If the broker is not connected, drop the usage: it would be too old later.
            if self._broker is not None and self._broker.is_idle:
                for at in range(0, len(debts), _RATES_BYTES_MAX):
                    self._broker.publish(_RATES, self._host + debts[at : at + _RATES_BYTES_MAX], keeps=False)

    # The broker

    def _receive_from_broker(self, name: bytes, mark: str, content: bytes) -> None:
        host, body = content[: len(self._host)], content[len(self._host) :]
        if name == _CONTROL:
            if host != self._host:
                self._receive_control(host.hex(), json.loads(body))
            return
        if name == _RATES:
            if host != self._host and self._rates is not None:
                _native.add_rate_limit_debts(self._rates, body)
            return
        if host == self._host and not mark:
            return  # the workers have the message already
        group = self._groups.get(name)
        if group is not None and len(body) >= 2:
            frame = encode(MESSAGE, name, with_id(body, mark) if mark else body)
            for worker in group.subscribers:
                worker.put([frame])

    def _receive_control(self, host: str, message: dict[str, Any]) -> None:
        is_new = host not in self._hosts
        self._hosts[host] = time.monotonic()
        if is_new:
            self._tell_hosts({})
        if "ask" in message:
            answer = self._own(message["name"].encode(), message["ask"])
            self._tell_hosts({"to": host, "number": message["number"], "answer": answer})
        elif message.get("to") == self._host.hex() and message["number"] in self._asked:
            future, hosts, answers = self._asked[message["number"]]
            answers.append(message["answer"])
            hosts.discard(host)
            if not hosts and not future.done():
                future.set_result(None)


def serve(
    relay_end: int, url: str, report: ErrorLog, count: Callable[[str, int], None], rates: memoryview | None = None
) -> int:
    """Run the relay until SIGTERM, or until the parent process has exited. Return the exit status."""
    from kirsch.groups.brokers import make

    parent = os.getppid()

    async def main() -> None:
        relay = Relay(report, count, make(url, report, count) if url else None, rates)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, relay.end)
        await relay.run(relay_end, lambda: os.getppid() != parent)

    asyncio.run(main())
    return 0
