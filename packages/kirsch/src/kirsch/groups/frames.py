"""The frames that workers and the relay exchange over a Unix socket.

A frame is a header, the name of a group, and a body. The header contains the length of the rest (4 bytes), the kind (1
byte) and the length of the name (2 bytes), all big-endian. The relay forwards the bytes of a message as received, so
both directions use the same kind.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 1
"""To be increased with any change of the frames. A relay of another version ends, and the supervisor starts another."""

HELLO, WELCOME, SUBSCRIBE, UNSUBSCRIBE, MESSAGE, JOIN, LEAVE, ASK, ANSWER, COUNT = range(1, 11)
"""HELLO, SUBSCRIBE, UNSUBSCRIBE, JOIN, LEAVE, ASK and COUNT go to the relay; WELCOME and ANSWER go to the worker."""

MESSAGE_BYTES_MAX = 1 << 20
"""The size of a message. gunicorn's and uvicorn's default for one WebSocket message is 16 MiB; a message for a whole
group is sent to each of its peers, so it is smaller."""

NAME_BYTES_MAX = 200
"""The length of a group's name in UTF-8. Redis and NATS have higher limits, and PostgreSQL gets a hash."""

FRAME_BYTES_MAX = 64 << 20
"""An answer of the relay may be longer than a message: it has the members of a group. More is a broken stream."""

_HEADER = struct.Struct("!IBH")
_TEXT = 1


class Message:
    """A message of a group. ``data`` is str or bytes. ``id`` is its position in the history of the group, for
    :meth:`Group.messages`; it is empty if there is no history."""

    __slots__ = ("data", "id")

    def __init__(self, data: str | bytes, id: str = "") -> None:  # noqa: A002 - as in server-sent events
        self.data = data
        self.id = id

    def __repr__(self) -> str:
        return f"Message({self.data!r:.80}, id={self.id!r})"


class Frame:
    """A frame: its kind, group name and body. ``raw`` is the whole frame."""

    __slots__ = ("body", "kind", "name", "raw")

    def __init__(self, kind: int, name: bytes, body: bytes, raw: bytes) -> None:
        self.kind = kind
        self.name = name
        self.body = body
        self.raw = raw


class BrokenStreamError(Exception):
    """Raised if the other side has sent bytes that are no frame."""


class Frames:
    """A parser of frames in a stream of bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete after ``data``. Raises BrokenStreamError."""
        buffer = self._rest + data if self._rest else data
        at, end = 0, len(buffer)
        while end - at >= _HEADER.size:
            length, kind, name_length = _HEADER.unpack_from(buffer, at)
            if length > FRAME_BYTES_MAX or name_length > length:
                raise BrokenStreamError
            stop = at + _HEADER.size + length
            if stop > end:
                break
            start = at + _HEADER.size
            name = buffer[start : start + name_length]
            yield Frame(kind, name, buffer[start + name_length : stop], buffer[at:stop])
            at = stop
        self._rest = buffer[at:] if at else buffer


def encode(kind: int, name: bytes = b"", body: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    return _HEADER.pack(len(name) + len(body), kind, len(name)) + name + body


def message_body(message: Message) -> bytes:
    """Encode a message as the body of a frame: its type and the length of its id, the id, the data."""
    data, mark = message.data, message.id.encode()
    is_text = isinstance(data, str)
    content = data.encode() if isinstance(data, str) else data
    return bytes((_TEXT if is_text else 0, len(mark))) + mark + content


def message_of(body: bytes) -> Message:
    """Decode the body of a frame. Raises BrokenStreamError."""
    try:
        start = 2 + body[1]
        content = body[start:]
        return Message(content.decode() if body[0] & _TEXT else content, body[2:start].decode())
    except (IndexError, UnicodeDecodeError):
        raise BrokenStreamError from None


def with_id(body: bytes, mark: str) -> bytes:
    """Return the body of a message with its id replaced by ``mark``."""
    return body[:1] + bytes((len(mark),)) + mark.encode() + body[2 + body[1] :]


def place_of(mark: str) -> tuple[int, int]:
    """Parse an id of a Redis stream into two numbers, which sort like the ids. An empty id sorts before all others."""
    first, _, second = mark.partition("-")
    return (int(first), int(second or 0)) if first.isdigit() else (0, 0)
