"""The connection of a process to the relay of its server: one thread, or greenlet, that sends and receives frames. The
first use of a named group creates it. If the relay has ended, it reconnects and tells the new relay which groups this
process has. Messages that are sent meanwhile are queued, within the limits below.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
import time

from kirsch import reports
from kirsch.groups import connector
from kirsch.groups.bounded import BYTES_MAX, MESSAGES_MAX, BoundedQueue
from kirsch.groups.frames import (
    ANSWER,
    ASK,
    COUNT,
    HELLO,
    MESSAGE,
    VERSION,
    WELCOME,
    BrokenStreamError,
    Frames,
    encode,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from kirsch.groups.frames import Frame

    class Rooms(Protocol):
        """The rooms of this process."""

        def opening(self) -> Iterable[bytes]:
            """Return the frames that describe the rooms to a new relay."""

        def receive(self, frame: Frame) -> None: ...

        def tidy(self) -> None: ...


ASK_SECONDS = 1.0
"""How long an answer of the relay may take."""

_RETRY_SECONDS, _RETRY_MOST_SECONDS = 0.05, 2.0
_TIDY_SECONDS = 2.0
_REPORT_SECONDS = 10.0
_CHUNK = 1 << 18


class Question:
    """A question to the relay. ``call`` is called with the answer, or with None if there is none."""

    def __init__(self, call: Callable[[Any], None]) -> None:
        self.call = call


class Link:
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._lock = threading.RLock()
        self._out = BoundedQueue()
        self._socket: socket.socket | None = None
        self._is_welcome = False
        self._began = threading.Event()
        self._questions: dict[int, Question] = {}
        self._next_question = 0
        self._counts: dict[str, int] = {}
        self._reports = reports.Seldom(_REPORT_SECONDS)
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)
        self._wakened.setblocking(False)
        # The number of bytes of the first frame in `_out` that are written.
        self._sent = 0
        # True if the current relay has been told all rooms, and so must be told every change.
        self._knows_state = False
        self._is_behind = False
        threading.Thread(target=self._run, name="kirsch-groups", daemon=True).start()

    # For any thread

    def is_connected(self) -> bool:
        """Return whether the relay has answered. Waits for the first connection, for which the relay may have to be
        started."""
        return self._began.wait(ASK_SECONDS) and self._is_welcome

    def send(self, frame: bytes) -> bool:
        """Send or queue a message; return False if it was dropped because the queue is full."""
        with self._lock:
            if not self._put(frame):
                self.count("lost-relay")
                return False
        return True

    def tell(self, frame: bytes) -> None:
        """Send a frame about a change of the rooms of this process. Every new relay learns the whole state at first."""
        with self._lock:
            if self._knows_state and not self._put(frame):
                self._is_behind = True  # the queue is full: reconnect, which sends the whole state
                self._wake()

    def _put(self, frame: bytes) -> bool:
        if self._socket is not None and not self._out:
            self._sent = self._write(frame, 0)
            if self._sent == len(frame):
                self._sent = 0
                return True
        if not self._out.put(frame, len(frame)):
            return False
        self._wake()
        return True

    def ask(self, name: bytes, body: object, call: Callable[[Any], None]) -> Question:
        """Ask the relay a question about a group. ``call`` receives the answer in another thread."""
        question = Question(call)
        with self._lock:
            self._next_question += 1
            number = self._next_question
            self._questions[number] = question
            sent = self._is_welcome and self._put(encode(ASK, name, json.dumps([number, body]).encode()))
            if not sent:
                del self._questions[number]
        if not sent:
            call(None)
        return question

    def withdraw(self, question: Question) -> None:
        """Forget a question whose answer takes too long."""
        with self._lock:
            for number, other in list(self._questions.items()):
                if other is question:
                    del self._questions[number]

    def count(self, reason: str, number: int = 1) -> None:
        """Count messages that this process has lost, for the metrics, and report them in the error log."""
        with self._lock:
            self._counts[reason] = self._counts.get(reason, 0) + number
            if reason != "lost-relay" or not self._reports.is_due():
                return
        reports.write_stderr(
            f"kirsch: groups: messages are dropped, because the relay does not take them: {MESSAGES_MAX} messages or "
            f"{BYTES_MAX >> 20} MiB wait",
            reports.WARNING,
        )

    def abandon(self) -> None:
        """Close the sockets of the parent, in a forked child."""
        for each in (self._socket, self._waker, self._wakened):
            if each is not None:
                each.close()

    def _wake(self) -> None:
        try:
            self._waker.send(b"+")
        except OSError:
            pass  # the thread is already woken

    def _write(self, frame: bytes, start: int) -> int:
        """Write as much of a frame as the socket accepts; return the end of the part that is written. The caller
        holds the lock."""
        assert self._socket is not None
        try:
            return start + self._socket.send(memoryview(frame)[start:])
        except OSError:
            return start  # the socket is full, or the relay has ended, which the thread notices

    # The thread

    def _run(self) -> None:
        wait = _RETRY_SECONDS
        while True:
            try:
                own = connector.connect()
            except OSError:
                pass
            else:
                try:
                    if self._serve(own):
                        wait = _RETRY_SECONDS
                finally:
                    self._close(own)
            time.sleep(wait)
            wait = min(2 * wait, _RETRY_MOST_SECONDS)

    def _serve(self, own: socket.socket) -> bool:
        """Exchange frames until the relay ends; return whether it ever answered."""
        with self._lock:
            self._knows_state = True
        opening = [encode(HELLO, b"", json.dumps([VERSION, os.getpid()]).encode()), *self._rooms.opening()]
        with self._lock:
            self._out.put_first(opening)
            self._socket = own
        frames = Frames()
        tidy_at = time.monotonic() + _TIDY_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(own, selectors.EVENT_READ)
            selector.register(self._wakened, selectors.EVENT_READ)
            while True:
                wants = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
                if selector.get_key(own).events != wants:
                    selector.modify(own, wants)
                for key, events in selector.select(max(tidy_at - time.monotonic(), 0.0)):
                    if key.fileobj is self._wakened:
                        self._wakened.recv(4096)
                        continue
                    if events & selectors.EVENT_WRITE:
                        self._flush()
                    if events & selectors.EVENT_READ and not self._read(own, frames):
                        return self._is_welcome
                if self._is_behind:
                    return self._is_welcome
                if time.monotonic() >= tidy_at:
                    tidy_at = time.monotonic() + _TIDY_SECONDS
                    self._rooms.tidy()
                    self._send_counts()

    def _flush(self) -> None:
        with self._lock:
            while self._out:
                frame = self._out.first()
                self._sent = self._write(frame, self._sent)
                if self._sent < len(frame):
                    return
                self._forget_first()

    def _forget_first(self) -> None:
        self._out.take()
        self._sent = 0

    def _read(self, own: socket.socket, frames: Frames) -> bool:
        """Read and handle the received frames; return False if the relay has ended."""
        try:
            data = own.recv(_CHUNK)
            for frame in frames.feed(data):
                self._receive(frame)
        except BlockingIOError:
            return True
        except (OSError, BrokenStreamError):
            return False
        return bool(data)

    def _receive(self, frame: Frame) -> None:
        if frame.kind == MESSAGE:
            self._rooms.receive(frame)
        elif frame.kind == WELCOME:
            self._is_welcome = True
            self._began.set()
        elif frame.kind == ANSWER:
            number, answer = json.loads(frame.body)
            with self._lock:
                question = self._questions.pop(number, None)
            if question is not None:
                question.call(answer)

    def _send_counts(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, {}
        if counts:
            self.send(encode(COUNT, b"", json.dumps(counts).encode()))

    def _close(self, own: socket.socket) -> None:
        with self._lock:
            self._socket = None
            self._is_welcome = False
            self._knows_state = self._is_behind = False
            if self._sent:
                self._forget_first()  # the previous relay has received a part of it
            questions, self._questions = self._questions, {}
        own.close()
        for question in questions.values():
            question.call(None)
