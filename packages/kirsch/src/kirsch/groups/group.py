"""The class :class:`Group` for applications, and the delivery of its messages to the peers in this process.

In each process, groups with the same name share a *room*. A room has the peers in this process and their entries in the
list of members; the relay of the server has the whole list.

Lock order: a room's lock, then the lock of the link.
"""

from __future__ import annotations

import json
import os
import threading
from weakref import WeakSet, WeakValueDictionary

from kirsch._native import WebSocket, send_to_all
from kirsch.groups import connector
from kirsch.groups.frames import (
    JOIN,
    LEAVE,
    MESSAGE,
    MESSAGE_BYTES_MAX,
    NAME_BYTES_MAX,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Message,
    encode,
    message_body,
    message_of,
)
from kirsch.groups.link import ASK_SECONDS, Link
from kirsch.groups.subscription import Subscription

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator
    from typing import Any, Protocol

    from kirsch.groups.frames import Frame

    class Peer(Protocol):
        """A WebSocket of this process, in the form of the native module."""

        @property
        def closed(self) -> bool: ...
        def close(self, code: int, reason: str, /) -> object: ...


DATA_BYTES_MAX = 4096
"""The data of a member, as JSON."""

_KEY = "kirsch.websocket"
"""The entry of an ASGI scope's extensions through which a group sends."""


class Member:
    """A member of a group on any worker and host. ``data`` is the data that it was added with."""

    __slots__ = ("data", "id")

    def __init__(self, id: str, data: Any) -> None:  # noqa: A002 - the usual word
        self.id = id
        self.data = data

    def __repr__(self) -> str:
        return f"Member({self.id!r}, {self.data!r:.80})"


class _Entry:
    __slots__ = ("data", "id", "loop")

    def __init__(self, number: int, data: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.id = str(number)
        self.data = data
        self.loop = loop


class _Room:
    """The peers of a group in this process. ``name`` is empty if the group is local to this process."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.entries: dict[Peer, _Entry] = {}
        self.subscriptions: WeakSet[Subscription] = WeakSet()
        self.closes_slow = False
        self._next = 0
        self._is_subscribed = False
        self._tidy_at = 64
        # True if a message was delivered since the last tidying of all rooms. Delivery removes the closed peers too.
        self._was_delivered = False
        # The peers of `entries` by their event loop; None after `entries` has changed.
        self._by_loop: dict[asyncio.AbstractEventLoop | None, list[Peer]] | None = None

    # Members

    def add(self, peer: Peer, data: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        with self.lock:
            known = self.entries.get(peer)
            if known is not None and known.data == data:
                return
            self._next += 1
            entry = self.entries[peer] = _Entry(self._next if known is None else int(known.id), data, loop)
            self._by_loop = None
            self._changed()
            self._tell(self._join(entry))
            is_crowded = len(self.entries) >= self._tidy_at
        if is_crowded:
            self.tidy()  # closed WebSockets must not accumulate if nothing is sent

    def discard(self, peers: Iterable[Peer]) -> None:
        with self.lock:
            for peer in peers:
                entry = self.entries.pop(peer, None)
                if entry is not None:
                    self._by_loop = None
                    self._tell(encode(LEAVE, self.name, entry.id.encode()))
            self._changed()

    def tidy_if_quiet(self) -> None:
        """Remove the closed WebSockets, unless a message was delivered since the last call: to ask thousands of
        WebSockets takes milliseconds."""
        was_delivered, self._was_delivered = self._was_delivered, False
        if not was_delivered:
            self.tidy()

    def tidy(self) -> None:
        """Remove the closed WebSockets."""
        with self.lock:
            peers = list(self.entries)
        self.discard([peer for peer in peers if peer.closed])
        with self.lock:
            self._tidy_at = max(64, 2 * len(self.entries))

    def subscribe(self, idle: float | None) -> Subscription:
        subscription = Subscription(self._leave, idle)
        with self.lock:
            self.subscriptions.add(subscription)
            self._changed()
        return subscription

    def _leave(self, subscription: Subscription) -> None:
        with self.lock:
            self.subscriptions.discard(subscription)
            self._changed()

    def _changed(self) -> None:
        """Tell the relay whether this process wants the messages of the group. The caller holds the lock."""
        if not self.name:
            return
        wants = bool(self.entries or self.subscriptions)
        if wants:
            _active.add(self)
        else:
            _active.discard(self)
        if wants != self._is_subscribed:
            self._is_subscribed = wants
            self._tell(encode(SUBSCRIBE if wants else UNSUBSCRIBE, self.name))

    def _join(self, entry: _Entry) -> bytes:
        return encode(JOIN, self.name, f"{entry.id} {json.dumps(entry.data)}".encode())

    def _tell(self, frame: bytes) -> None:
        if self.name and (link := _link()) is not None:
            link.tell(frame)

    def opening(self) -> list[bytes]:
        """Return the frames that describe this room to a new relay."""
        with self.lock:
            if not self._is_subscribed:
                return []
            return [encode(SUBSCRIBE, self.name), *map(self._join, self.entries.values())]

    # Messages

    def deliver(self, message: Message) -> list[Peer]:
        """Deliver a message to the peers and subscriptions of this process. Return the peers that did not get it
        because their clients read too slowly. Peers of another event loop are never returned, because their result
        is not known yet."""
        with self.lock:
            self._was_delivered = True
            by_loop = self._by_loop
            if by_loop is None:
                by_loop = self._by_loop = {}
                for peer, entry in self.entries.items():
                    by_loop.setdefault(entry.loop, []).append(peer)
            readers = list(self.subscriptions)
            full = [] if not by_loop else self._deliver_by_loop(by_loop, message)
            lost = sum(reader.put(message) for reader in readers)
        if lost:
            _count("slow-client", lost)
        return full

    def _deliver_by_loop(
        self, by_loop: dict[asyncio.AbstractEventLoop | None, list[Peer]], message: Message
    ) -> list[Peer]:
        """Send to the peers of this process. The caller holds the lock, so that messages of two threads reach all
        peers in one order."""
        full: list[Peer] = []
        for loop, peers in by_loop.items():
            if loop is None or loop is _running_loop():
                full += self._send(peers, message)
                continue
            try:
                loop.call_soon_threadsafe(self._send, peers, message)
            except RuntimeError:
                pass  # the loop is closed, and so are its WebSockets
        return full

    def _send(self, peers: list[Peer], message: Message) -> list[Peer]:
        closed, full = send_to_all(peers, message.data)
        if closed:
            self.discard(closed)
        if full:
            _count("slow-client", len(full))
            if self.closes_slow:
                for peer in full:
                    peer.close(1013, "read faster")
        return full


class Group:
    """A set of WebSockets and other readers that receive the same messages. Any thread may use it. A group with a
    ``name`` spans all workers of the server, and with ``--groups`` all hosts: groups with the same name are one group.
    A group without a name is local to this process. Closed WebSockets are removed automatically.

    Each message reaches each peer at most once. The messages of one sender (a thread, or an event loop) arrive in the
    order in which they were sent. If a client has more than 64 KiB still to read, it does not get the message, or its
    WebSocket is closed with 1013 if ``close_slow`` is true.
    """

    def __init__(self, name: str = "", websockets: Iterable[Any] = (), *, close_slow: bool = False) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a group must be a str, not {type(name).__name__}: {name!r:.80}")
        encoded = name.encode()
        if len(encoded) > NAME_BYTES_MAX or "\0" in name:
            raise ValueError(f"the name of a group has at most {NAME_BYTES_MAX} bytes, and no NUL: {name!r:.80}")
        self.name = name
        with _rooms_lock:
            room = _rooms.get(encoded) if encoded else None
            if room is None:
                room = _Room(encoded)
                if encoded:
                    _rooms[encoded] = room
        self._room = room
        room.closes_slow |= close_slow
        for websocket in websockets:
            self.add(websocket)

    def add(self, websocket: Any, data: Any = None) -> None:
        """Add a WebSocket, unless it is in the group.

        ``websocket`` is a WSGI WebSocket, the scope of an ASGI WebSocket, or an object with that scope as its attribute
        ``scope``, as in Starlette and kirsch-web. An ASGI WebSocket must be added after it was accepted, by a coroutine
        of its own event loop. ``data`` is shown by :meth:`members`: JSON of at most 4 KiB.
        """
        peer = _peer_of(websocket)
        if data is not None and len(json.dumps(data)) > DATA_BYTES_MAX:
            raise ValueError(f"the data of a member has at most {DATA_BYTES_MAX} bytes as JSON")
        loop = None if isinstance(peer, WebSocket) else _running_loop()
        if loop is None and not isinstance(peer, WebSocket):
            raise RuntimeError("a coroutine of the WebSocket's event loop adds it to a group")
        self._room.add(peer, data, loop)

    def discard(self, websocket: Any) -> None:
        """Remove a WebSocket, if it is in the group."""
        self._room.discard([_peer_of(websocket)])

    def send_all(self, data: str | bytes | bytearray | memoryview) -> list[Any]:
        """Send a message to all members, without waiting: text for str, binary for bytes, at most 1 MiB if the group
        has a name. Each process frames and compresses it once.

        Returns the WebSockets of this process that did not get it, because their clients have more than 64 KiB still to
        read.
        """
        room = self._room
        if not isinstance(data, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"a message must be str (text) or bytes (binary), not {type(data).__name__}")
        message = Message(bytes(data) if isinstance(data, (bytearray, memoryview)) else data)
        if not room.name:
            return room.deliver(message)
        body = message_body(message)
        if len(body) > MESSAGE_BYTES_MAX:
            raise ValueError(
                f"a message for a group with a name has at most {MESSAGE_BYTES_MAX} bytes, not {len(body)}"
            )
        link = _link()
        with room.lock:  # so that the messages of two threads have one order here and elsewhere
            if link is not None:
                link.send(encode(MESSAGE, room.name, body))
                if connector.has_history():
                    return []  # the relay returns the message with its id
            return room.deliver(message)

    def messages(self, last_id: str = "", *, idle: float | None = None) -> Subscription:
        """Return an iterator over the :class:`Message` objects that are sent from now on, for ``for`` and ``async
        for``. ``last_id`` is the id of the last message that the reader has received: later messages of the history
        come first, if the groups have one (``--groups redis://...?history=N``). With ``idle`` the iterator returns None
        after that many seconds without a message, so that the reader can send a heartbeat.
        """
        subscription = self._room.subscribe(idle)
        if last_id and self._room.name and (link := _link()) is not None:
            subscription.resume(link, self._room.name, last_id)
        return subscription

    def close_all(self, code: int = 1000, reason: str = "") -> None:
        """Close all WebSockets of the group in this process, and remove them."""
        peers = list(self._room.entries)
        for peer in peers:
            peer.close(code, reason)
        self._room.discard(peers)

    def members(self) -> list[Member]:
        """Return the members on all workers and hosts. Waits for the relay, at most a second, and returns only the
        members in this process if it does not answer. In a coroutine, use :meth:`members_async`."""
        answer = self._ask("members")
        return self._own_members() if answer is None else [Member(*each) for each in answer]

    async def members_async(self) -> list[Member]:
        """Return the same as :meth:`members`, without blocking the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self.members)

    def __len__(self) -> int:
        """Return the number of members on all workers and hosts; see :meth:`members`."""
        self._room.tidy()
        answer = self._ask("count")
        return len(self._room.entries) if answer is None else int(answer)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the open WebSockets of the group in this process."""
        return iter([peer for peer in list(self._room.entries) if not peer.closed])

    def __aiter__(self) -> Subscription:
        return self.messages()

    def __contains__(self, websocket: object) -> bool:
        return _peer_of(websocket) in self._room.entries

    def _own_members(self) -> list[Member]:
        self._room.tidy()
        with self._room.lock:
            return [Member(each.id, each.data) for each in self._room.entries.values()]

    def _ask(self, what: str) -> Any:
        """Return the relay's answer, or None if this process has no relay or it does not answer within a second."""
        link = _link() if self._room.name else None
        if link is None or not link.is_connected():
            return None
        done = threading.Event()
        answers: list[Any] = []

        def receive(answer: Any) -> None:
            answers.append(answer)
            done.set()

        question = link.ask(self._room.name, what, receive)
        if not done.wait(ASK_SECONDS):
            link.withdraw(question)
        return answers[0] if answers else None


class _Rooms:
    """All rooms of this process, in the form that the link uses."""

    def opening(self) -> list[bytes]:
        return [frame for room in list(_active) for frame in room.opening()]

    def receive(self, frame: Frame) -> None:
        room = _rooms.get(frame.name)
        if room is not None:
            room.deliver(message_of(frame.body))

    def tidy(self) -> None:
        for room in list(_active):
            room.tidy_if_quiet()


_rooms: WeakValueDictionary[bytes, _Room] = WeakValueDictionary()
_rooms_lock = threading.RLock()
# The rooms that have a peer or a subscription. This reference keeps them alive.
_active: set[_Room] = set()
_only_link: Link | None = None


def _link() -> Link | None:
    """Return the link to the relay, which is created at the first call; None if the server has no relay."""
    global _only_link
    if _only_link is None and connector.can_connect():
        with _rooms_lock:
            if _only_link is None:
                _only_link = Link(_Rooms())
    return _only_link


def _count(reason: str, number: int) -> None:
    if _only_link is not None:
        _only_link.count(reason, number)


def _after_fork_in_child() -> None:
    """Forget the WebSockets and the link, which belong to the parent."""
    global _only_link, _rooms_lock
    link, _only_link = _only_link, None
    _rooms_lock = threading.RLock()
    _active.clear()
    _rooms.clear()
    if link is not None:
        link.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _peer_of(websocket: Any) -> Peer:
    """Return the object through which the native module sends to a WebSocket. Raises TypeError."""
    if isinstance(websocket, WebSocket):
        return websocket
    scope = websocket if isinstance(websocket, dict) else getattr(websocket, "scope", None)
    extensions = scope.get("extensions") if isinstance(scope, dict) else None
    peer: Peer | None = extensions.get(_KEY) if isinstance(extensions, dict) else None
    if peer is None:
        raise TypeError(
            f"a group is of WebSockets that Kirsch serves, not {type(websocket).__name__} {websocket!r:.80}"
        )
    return peer


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    import sys

    events = sys.modules.get("asyncio.events")
    if events is None:
        return None  # asyncio was never imported, so no loop runs
    loop: asyncio.AbstractEventLoop | None = events._get_running_loop()
    return loop
