"""The scoreboard: the state of all workers, in anonymous shared memory that the supervisor creates and its children
inherit. It has no locks. A worker writes its own slot, the supervisor writes everything else, and any process may
read::

    header           the supervisor and its start; the epoch; how often workers were replaced, by reason
    totals, twice    the counters of workers that have exited; the epoch tells which copy is valid
    quarantine       the routes in quarantine (``supervisor/quarantine.py``)
    rate limits      the usage of each client (``crates/gateway/src/rate_limit/buckets.rs``)
    slot 0..N-1      a worker: its Python part, its native part, its running requests, a ring of slow requests, the
                     records of its engines for the engine group (``supervisor/engine_group.py``), the table of its
                     routes for the quarantine, and its exemplars (``monitor/exemplars.py``)

When a worker exits and its slot is reused, counters must not decrease or be counted twice. The epoch, one word, makes
that atomic. :meth:`Scoreboard.release` prepares epoch ``e + 1`` in words that readers of ``e`` ignore: it writes the
other copy of the totals, and marks the slot as folded *from* ``e + 1`` *on*. Then it stores the epoch, and only
afterwards clears the slot. A reader loads the epoch, copies the data, and loads the epoch again; if it has changed, the
reader starts again. The board is consistent at every moment, so a supervisor that is killed during a release blocks no
reader. The layout and all code that reads or writes it are in this file, so that they change together.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_left

from kirsch.monitor import exemplars
from kirsch.monitor.histogram import Histogram
from kirsch.monitor.shared_memory import RECORD_HEAD, WORD, SharedMemory, anonymous_file, fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FREE, STARTING, SERVING, DRAINING, STOPPING = range(5)
"""A slot without a worker; a worker that is not ready yet; a worker that serves; one that serves and asks clients to go
elsewhere; one that stops."""

STATES = ("free", "starting", "serving", "draining", "stopping")

REASONS = (
    "crash",
    "stuck",
    "deadlock",
    "reload",
    "upgrade",
    "max-requests",
    "max-lifetime",
    "max-memory",
    "inactivity",
    "other",
)
"""The usual reasons for which workers are replaced. Other words may be counted too."""

SLOW_REQUESTS_MAX = 8
"""The number of slow requests that a slot keeps: the newest."""

GROUP_DROPS = ("slow-client", "slow-worker", "lost-relay", "lost-broker")
"""The reasons for which messages of groups are dropped."""

_MAGIC = int.from_bytes(b"kirsch\0\1", sys.byteorder)
# Increase this with any change of the layout below. The layout of the native part is checked separately.
_VERSION = 7
_PAGE = 4096
_MASK = (1 << 64) - 1
# Workers publish their running requests for this many nanoseconds after a reader has asked for them.
_LOOK_NANOSECONDS = 10 * 10**9

# The words of the header.
(
    _H_MAGIC,
    _H_LAYOUT,
    _H_SLOTS,
    _H_EPOCH,
    _H_PID,
    _H_STARTED,
    _H_STARTED_WALL,
    _H_GENERATION,
    _H_REPLACED_AT,
    _H_LOOKED,
    _H_LOG_LINES_DROPPED,
    _H_LIFT,
    _H_GROUP_MESSAGES,
) = range(13)
# The words after _H_GROUP_MESSAGES count dropped messages of groups, by reason (GROUP_DROPS).
# The reasons of restarts: at most this many, each with a count and a text. Further ones are counted as "other".
_REASONS, _REASONS_AT, _REASON_SIZE = 30, 256, 64
# The text about the last replacement of a worker.
_LAST_AT, _LAST_SIZE = 2560, 512
# The name of the application.
_APPLICATION_AT, _APPLICATION_SIZE = 3072, 512

# The words of the Python part of a slot.
(
    _S_FOLDED,
    _S_PID,
    _S_GENERATION,
    _S_STATE,
    _S_STARTED,
    _S_STARTED_WALL,
    _S_HEARTBEAT,
    _S_MEMORY,
    _S_REQUESTS,
    _S_SLOW_NEXT,
    _S_HAS_EXEMPLARS,
) = range(11)
_REASON_AT, _REASON_TEXT = 128, 384
_NATIVE_AT = _REASON_AT + _REASON_TEXT
_NATIVE_MAX = _PAGE - _NATIVE_AT
# Records that contain JSON.
_RUNNING_AT, _RUNNING_SIZE = _PAGE, 4 * _PAGE
_SLOW_AT, _SLOW_SIZE = _RUNNING_AT + _RUNNING_SIZE, _PAGE
RUNNING_BYTES_MAX = _RUNNING_SIZE - RECORD_HEAD
SLOW_BYTES_MAX = _SLOW_SIZE - RECORD_HEAD
_GROUP_AT, _GROUP_SIZE = _SLOW_AT + SLOW_REQUESTS_MAX * _SLOW_SIZE, 2 * _PAGE
_TABLE_AT, _TABLE_SIZE = _GROUP_AT + _GROUP_SIZE, 4 * _PAGE
_EXEMPLARS_AT, _EXEMPLARS_SIZE = _TABLE_AT + _TABLE_SIZE, _PAGE
_SLOT_SIZE = _EXEMPLARS_AT + _EXEMPLARS_SIZE
_TOTALS_AT = _PAGE
_QUARANTINE_AT, _QUARANTINE_SIZE = _TOTALS_AT + 2 * _PAGE, _PAGE
# These pages exist only if there are rate limits.
_RATE_LIMITS_AT, _RATE_LIMITS_SIZE = _QUARANTINE_AT + _QUARANTINE_SIZE, 769 * _PAGE
_SLOTS_AT = _RATE_LIMITS_AT + _RATE_LIMITS_SIZE

# Values of the native part that are no counters: they are dropped when their worker exits.
NOT_COUNTED = frozenset(
    {
        "published",
        "draining",
        "stalled",
        "connections",
        "http2_connections",
        "http2_streams",
        "websockets",
        "running",
        "queued",
        "suspended",
        "threads",
        "threads_idle",
        "threads_most",
    }
)

HISTOGRAMS = ("queue_wait", "service_time", "interpreter_wait")

_occupied: Slot | None = None


def worker_number() -> int | None:
    """Return the number of this worker, from 0; None in a process that is no worker.

    Workers that run at the same time have different numbers, and the number of a worker that has exited is reused. So
    an application can name a resource by it, without a new name at each restart.
    """
    return None if _occupied is None else _occupied.index


def put_exemplar(seconds: float, trace_id: int, span_id: int) -> None:
    """Do the same as :meth:`Slot.put_exemplar`, in a worker; nothing in other processes, including its children."""
    if _occupied is not None and _occupied.pid == os.getpid():
        _occupied.put_exemplar(seconds, trace_id, span_id)


def worker_numbers() -> frozenset[int]:
    """In a worker: return the numbers of all running and starting workers, including this one."""
    return frozenset() if _occupied is None else _occupied.board.numbers()


class LayoutError(ValueError):
    """Raised if the board was created by another version of Kirsch and cannot be read. The caller creates a new one."""


class Layout:
    """The layout of the native part: the names of its words in order, the upper bounds of the histogram buckets (in
    seconds; one more bucket has none), and its size in bytes."""

    def __init__(self, fields: Sequence[str], bounds: Sequence[float], size: int) -> None:
        assert len(fields) * WORD <= size <= _NATIVE_MAX
        assert size % WORD == 0
        self.fields = tuple(fields)
        self.bounds = tuple(bounds)
        self.size = size
        self.counters = tuple(index for index, name in enumerate(self.fields) if name not in NOT_COUNTED)
        self.names = tuple(self.fields[index] for index in self.counters)

    @classmethod
    def of_native(cls) -> Layout:
        from kirsch import _native

        return cls(_native.SCOREBOARD_FIELDS, _native.SCOREBOARD_BOUNDS, _native.SCOREBOARD_SIZE)

    def identity(self) -> int:
        """Return a checksum that identifies the layout."""
        from binascii import crc32

        own = (_VERSION, _SLOT_SIZE, _NATIVE_AT, _TOTALS_AT, _SLOTS_AT)
        return crc32(repr((own, self.fields, self.bounds, self.size)).encode())


class Scoreboard:
    """Shared memory with a slot for each worker. The supervisor creates it, and forked children inherit it.

    ``fd`` is the descriptor, which children do not need. It is closed at an exec, unless the supervisor makes it
    inheritable for its successor, which calls :meth:`adopt`.
    """

    def __init__(self, fd: int, size: int, layout: Layout) -> None:
        self.fd = fd
        self.layout = layout
        self._memory = SharedMemory(fd, size)
        self._bytes = self._memory.bytes
        self._words = self._memory.words
        self._log_lines_dropped_before = self._words[_H_LOG_LINES_DROPPED]

    @classmethod
    def create(cls, slots: int, layout: Layout | None = None) -> Scoreboard:
        """Create a board with ``slots`` slots. Raises OSError if shared memory cannot be allocated. The system
        allocates a page at its first use. So a slot costs one page until running or slow requests are recorded.
        """
        assert slots >= 1
        layout = layout or Layout.of_native()
        size = _SLOTS_AT + slots * _SLOT_SIZE
        fd = anonymous_file()
        try:
            os.ftruncate(fd, size)
            board = cls(fd, size, layout)
        except OSError as error:
            os.close(fd)
            place = f"the workers' scoreboard, {size} bytes of shared memory"
            raise OSError(error.errno, error.strerror, place) from None
        except BaseException:
            os.close(fd)
            raise
        words = board._words
        words[_H_LAYOUT] = layout.identity()
        words[_H_SLOTS] = slots
        words[_H_PID] = os.getpid()
        words[_H_STARTED] = time.monotonic_ns()
        words[_H_STARTED_WALL] = time.time_ns()
        words[_H_MAGIC] = _MAGIC
        return board

    @classmethod
    def adopt(cls, fd: int, layout: Layout | None = None) -> Scoreboard:
        """Return the board of a descriptor that has survived an exec, with all counters and slots.

        Raises LayoutError, and leaves ``fd`` open, if another version has created the board; OSError if it is no file.
        """
        board = cls.attach(fd, layout)
        board._words[_H_PID] = os.getpid()
        return board

    @classmethod
    def attach(cls, fd: int, layout: Layout | None = None) -> Scoreboard:
        """Open the board of another process, to read it and to call :meth:`mark_observed`. Raises like
        :meth:`adopt`."""
        layout = layout or Layout.of_native()
        size = os.fstat(fd).st_size
        if size < _SLOTS_AT + _SLOT_SIZE:
            raise LayoutError("the file is not a scoreboard")
        board = cls(fd, size, layout)
        words = board._words
        if (words[_H_MAGIC], words[_H_LAYOUT]) != (_MAGIC, layout.identity()):
            raise LayoutError("the scoreboard has another version")
        if size != _SLOTS_AT + words[_H_SLOTS] * _SLOT_SIZE:
            raise LayoutError("the scoreboard is truncated")
        return board

    @property
    def slots(self) -> int:
        return self._words[_H_SLOTS]

    @property
    def pid(self) -> int:
        """The pid of the supervisor."""
        return self._words[_H_PID]

    @property
    def application(self) -> str:
        """The name of the application for people, such as ``module:app``."""
        return self._memory.text(_APPLICATION_AT, _APPLICATION_SIZE).decode("utf-8", "replace")

    @application.setter
    def application(self, name: str) -> None:
        self._memory.set_text(_APPLICATION_AT, _APPLICATION_SIZE, name.encode("utf-8", "replace"))

    @property
    def generation(self) -> int:
        """The number of times that the supervisor has loaded the application."""
        return self._words[_H_GENERATION]

    @generation.setter
    def generation(self, value: int) -> None:
        self._words[_H_GENERATION] = value

    def close_fd(self) -> None:
        """Close the descriptor, in a child. The memory stays mapped."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def slot(self, index: int) -> Slot:
        """Return the slot ``index``, for the supervisor or for its worker."""
        assert 0 <= index < self.slots
        return Slot(self, index)

    def native(self, index: int) -> memoryview:
        """Return the part of a slot that the engine writes: ``NativeServer(scoreboard=...)``."""
        return self.slot(index).native

    def group_records(self, count: int) -> tuple[memoryview, int]:
        """Return the memory from the group record of slot 0 to the end of that of slot ``count - 1``, and the
        distance between two records in bytes."""
        assert 0 < count <= self.slots
        start = _SLOTS_AT + _GROUP_AT
        return self._bytes[start : start + (count - 1) * _SLOT_SIZE + _GROUP_SIZE], _SLOT_SIZE

    @property
    def quarantine_list(self) -> memoryview:
        """The list of quarantined routes, as a buffer for the native module."""
        return self._bytes[_QUARANTINE_AT : _QUARANTINE_AT + _QUARANTINE_SIZE]

    def quarantined(self) -> list[Quarantined]:
        """Return the quarantined routes: name, start and end (seconds of ``time.monotonic()``)."""
        from kirsch import _native

        routes = _native.quarantined_routes(self.quarantine_list)
        return [(name, since / 1e9, until / 1e9) for _key, until, since, name in routes]

    @property
    def rate_limits(self) -> memoryview:
        """The usage of rate limits, as a buffer for the native module."""
        return self._bytes[_RATE_LIMITS_AT : _RATE_LIMITS_AT + _RATE_LIMITS_SIZE]

    def rate_limit_evictions(self) -> int:
        """Return how often a client's entry was evicted before its rate limit had fully recovered."""
        from kirsch import _native

        return _native.rate_limit_evictions(self.rate_limits)

    def request_lift(self) -> None:
        """Ask the supervisor to lift all quarantines. When it has, the list is empty."""
        self._words[_H_LIFT] = 1

    # Methods for the supervisor

    def take_lift_request(self) -> bool:
        """Return whether a process has called :meth:`request_lift` since the last call."""
        is_requested = self._words[_H_LIFT] != 0
        self._words[_H_LIFT] = 0
        return is_requested

    def claim(self, generation: int = 0, reason: str = "") -> Slot | None:
        """Claim a slot, in state STARTING, for a worker that is about to be forked; return None if all slots are taken.
        ``reason`` is a text for people about why this worker is started. The worker or the supervisor sets ``pid``
        later.
        """
        words = self._words
        for index in range(self.slots):
            slot = Slot(self, index)
            base = slot._base
            if words[base + _S_STATE] != FREE:
                continue
            slot._empty()
            words[base + _S_GENERATION] = generation
            words[base + _S_STARTED] = words[base + _S_HEARTBEAT] = time.monotonic_ns()
            words[base + _S_STARTED_WALL] = time.time_ns()
            slot.reason = reason
            fence()
            words[base + _S_FOLDED] = 0
            words[base + _S_STATE] = STARTING
            return slot
        return None

    def release(self, index: int) -> None:
        """Free the slot of a worker that has exited, and add its counters to the totals.

        Its slow requests stay readable until a new worker overwrites them.
        """
        words = self._words
        slot = Slot(self, index)
        base, native = slot._base, slot._base + _NATIVE_AT // WORD
        if words[base + _S_STATE] == FREE:
            return
        epoch = words[_H_EPOCH]
        now, then = _totals(epoch), _totals(epoch + 1)
        for each in self.layout.counters:
            words[then + each] = (words[now + each] + words[native + each]) & _MASK
        words[base + _S_FOLDED] = epoch + 1
        fence()
        words[_H_EPOCH] = epoch + 1
        fence()
        slot._empty()
        words[base + _S_STATE] = FREE

    def count_replacement(self, reason: str, text: str = "") -> None:
        """Count a replaced worker. ``reason`` is a label of the metric; ``text`` gives details."""
        words = self._words
        name = reason.encode("utf-8", "replace")[: _REASON_SIZE - 2 * WORD] or b"other"
        for number in range(_REASONS):
            at = _REASONS_AT + number * _REASON_SIZE
            known = self._memory.text(at + WORD, _REASON_SIZE - WORD)
            if number == _REASONS - 1:
                name = b"other"
            if not known:
                self._memory.set_text(at + WORD, _REASON_SIZE - WORD, name)
                fence()
            elif known != name:
                continue
            words[at // WORD] += 1
            break
        self._memory.set_text(_LAST_AT, _LAST_SIZE, (text or reason).encode("utf-8", "replace"))
        words[_H_REPLACED_AT] = time.time_ns()

    def count_dropped_log_lines(self, own: int) -> None:
        """Set the number of log lines that the supervisor has dropped: ``own`` in this image, plus those of earlier
        images."""
        self._words[_H_LOG_LINES_DROPPED] = self._log_lines_dropped_before + own

    # Methods for the relay of groups, which is one process at a time

    def count_group_messages(self, kind: str, number: int) -> None:
        """Add to a counter of group messages: ``messages`` (sent), or one of ``GROUP_DROPS`` (dropped)."""
        index = 0 if kind == "messages" else 1 + GROUP_DROPS.index(kind)
        self._words[_H_GROUP_MESSAGES + index] += number

    # Methods for all processes

    def read(self) -> Snapshot:
        """Return a consistent copy of the board."""
        words = self._words
        while True:
            epoch = words[_H_EPOCH]
            fence()
            snapshot = self._copy(epoch)
            fence()
            if words[_H_EPOCH] == epoch:
                return snapshot

    def mark_observed(self) -> None:
        """Ask the workers to publish their running requests for the next ten seconds."""
        self._words[_H_LOOKED] = time.monotonic_ns()

    @property
    def is_observed(self) -> bool:
        """Return whether a reader has asked for running requests in the last ten seconds."""
        return time.monotonic_ns() - self._words[_H_LOOKED] < _LOOK_NANOSECONDS

    def running(self) -> list[Record]:
        """Return the last published record of running requests of each worker."""
        found = []
        for index in sorted(self.numbers()):
            slot = Slot(self, index)
            number, record = self._memory.record(slot._at + _RUNNING_AT, RUNNING_BYTES_MAX)
            if number:
                found.append((index, number, record))
        return found

    def numbers(self) -> frozenset[int]:
        """Return the numbers of the claimed slots."""
        return frozenset(index for index in range(self.slots) if Slot(self, index).state != FREE)

    def _copy(self, epoch: int) -> Snapshot:
        words, layout = self._words, self.layout
        now = time.monotonic_ns()
        totals = _totals(epoch)
        total = words[totals : totals + len(layout.fields)].tolist()
        workers = []
        slow: list[Record] = []
        newest: list[exemplars.Exemplar | None] = [None] * (len(layout.bounds) + 1)
        for index in range(self.slots):
            slot = Slot(self, index)
            if words[slot._base + _S_SLOW_NEXT]:
                slow += slot._slow_records()
            if words[slot._base + _S_HAS_EXEMPLARS]:
                found = exemplars.read(self._memory, slot._at + _EXEMPLARS_AT, len(newest))
                newest = [exemplars.newer(*pair) for pair in zip(newest, found, strict=True)]
            part = words[slot._base : slot._base + _S_SLOW_NEXT].tolist()
            if part[_S_STATE] == FREE or 0 < part[_S_FOLDED] <= epoch:
                continue
            native = slot._base + _NATIVE_AT // WORD
            values = words[native : native + len(layout.fields)].tolist()
            for each in layout.counters:
                total[each] += values[each]
            workers.append(WorkerState(index, part, slot.reason, dict(zip(layout.fields, values, strict=True)), now))
        counters = {layout.fields[each]: total[each] for each in layout.counters}
        if "log_lines_dropped" in counters:
            counters["log_lines_dropped"] += words[_H_LOG_LINES_DROPPED]
        return Snapshot(self, now, tuple(workers), counters, slow, newest)

    def _replacements(self) -> dict[str, int]:
        found = {}
        for number in range(_REASONS):
            at = _REASONS_AT + number * _REASON_SIZE
            name = self._memory.text(at + WORD, _REASON_SIZE - WORD)
            if not name:
                break
            found[name.decode("utf-8", "replace")] = self._words[at // WORD]
        return found


class Slot:
    """The slot of one worker. Times are CLOCK_MONOTONIC, which is common to all processes of a machine."""

    def __init__(self, board: Scoreboard, index: int) -> None:
        self.board = board
        self.index = index
        self._at = _SLOTS_AT + index * _SLOT_SIZE
        self._base = self._at // WORD

    @property
    def native(self) -> memoryview:
        at = self._at + _NATIVE_AT
        return self.board._bytes[at : at + self.board.layout.size]

    @property
    def route_table(self) -> memoryview:
        """The table of the worker's routes. The engine writes it while routes are recorded, after a worker has
        crashed."""
        at = self._at + _TABLE_AT
        return self.board._bytes[at : at + _TABLE_SIZE]

    @property
    def values(self) -> dict[str, int]:
        """The values that the engine has published, by name."""
        fields = self.board.layout.fields
        native = self._base + _NATIVE_AT // WORD
        values = self.board._words[native : native + len(fields)].tolist()
        return dict(zip(fields, values, strict=True))

    def _get(self, word: int) -> int:
        return self.board._words[self._base + word]

    def _set(self, word: int, value: int) -> None:
        self.board._words[self._base + word] = value

    pid = property(lambda self: self._get(_S_PID), lambda self, value: self._set(_S_PID, value))
    generation = property(lambda self: self._get(_S_GENERATION), lambda self, value: self._set(_S_GENERATION, value))
    state = property(lambda self: self._get(_S_STATE), lambda self, value: self._set(_S_STATE, value))
    memory = property(lambda self: self._get(_S_MEMORY), lambda self, value: self._set(_S_MEMORY, value))
    requests = property(lambda self: self._get(_S_REQUESTS), lambda self, value: self._set(_S_REQUESTS, value))

    def occupy(self) -> None:
        """Make this process the worker of the slot: from now on :func:`worker_number` returns the slot's index."""
        global _occupied
        _occupied = self
        self.pid = os.getpid()

    @property
    def heartbeat(self) -> float:
        """The time at which the worker's control thread last held the GIL, in seconds of ``time.monotonic()``."""
        return self._get(_S_HEARTBEAT) / 1e9

    def beat(self) -> None:
        """In the worker: record that its control thread holds the GIL."""
        self._set(_S_HEARTBEAT, time.monotonic_ns())

    @property
    def started(self) -> float:
        """The time at which the slot was claimed, in seconds of ``time.monotonic()``."""
        return self._get(_S_STARTED) / 1e9

    @property
    def reason(self) -> str:
        """The reason why this worker was started or is replaced, in one line for people."""
        return self.board._memory.text(self._at + _REASON_AT, _REASON_TEXT).decode("utf-8", "replace")

    @reason.setter
    def reason(self, text: str) -> None:
        self.board._memory.set_text(self._at + _REASON_AT, _REASON_TEXT, text.encode("utf-8", "replace"))

    def publish_running(self, record: bytes) -> None:
        """In the worker: publish the running requests, at most ``RUNNING_BYTES_MAX`` bytes of JSON."""
        assert len(record) <= RUNNING_BYTES_MAX
        self.board._memory.set_record(self._at + _RUNNING_AT, 1, record)

    def add_slow(self, record: bytes) -> int:
        """In the worker: add a slow request, at most ``SLOW_BYTES_MAX`` bytes of JSON. Returns its number."""
        number = self._get(_S_SLOW_NEXT) + 1
        self._put_slow(number, record)
        self._set(_S_SLOW_NEXT, number)
        return number

    def update_slow(self, number: int, record: bytes) -> None:
        """In the worker: replace the record of a slow request, unless it has been overwritten."""
        if self.board._words[self._slow_at(number) // WORD] == number:
            self._put_slow(number, record)

    def _put_slow(self, number: int, record: bytes) -> None:
        assert len(record) <= SLOW_BYTES_MAX
        self.board._memory.set_record(self._slow_at(number), number, record)

    def put_exemplar(self, seconds: float, trace_id: int, span_id: int) -> None:
        """In the worker: store a request as the newest exemplar of its bucket. Only one thread may call this at a
        time."""
        bucket = bisect_left(self.board.layout.bounds, seconds)
        exemplars.write(self.board._memory, self._at + _EXEMPLARS_AT, bucket, seconds, trace_id, span_id)
        self._set(_S_HAS_EXEMPLARS, 1)

    def _slow_records(self) -> list[Record]:
        """Return the records of slow requests, the oldest first."""
        newest = self._get(_S_SLOW_NEXT)
        found = []
        for number in range(max(newest - SLOW_REQUESTS_MAX, 0) + 1, newest + 1):
            written, record = self.board._memory.record(self._slow_at(number), SLOW_BYTES_MAX)
            if written == number:
                found.append((self.index, number, record))
        return found

    def _slow_at(self, number: int) -> int:
        return self._at + _SLOW_AT + number % SLOW_REQUESTS_MAX * _SLOW_SIZE

    def _empty(self) -> None:
        """Clear all except the fold mark, the state, the exemplars, and the ring of slow requests with its count."""
        words = self.board._words
        for word in (_S_PID, _S_GENERATION, _S_STARTED, _S_STARTED_WALL, _S_HEARTBEAT, _S_MEMORY, _S_REQUESTS):
            words[self._base + word] = 0
        words[self._base + _REASON_AT // WORD] = 0
        words[(self._at + _RUNNING_AT) // WORD] = 0
        words[(self._at + _GROUP_AT) // WORD] = 0  # no engines
        if words[(self._at + _TABLE_AT) // WORD]:
            self.route_table[:] = bytes(_TABLE_SIZE)  # if it was never used, it has no page: do not allocate one
        at = self._at + _NATIVE_AT
        self.board._bytes[at : at + self.board.layout.size] = bytes(self.board.layout.size)


class Snapshot:
    """A consistent copy of the board. ``time`` is CLOCK_MONOTONIC in seconds, ``wall`` is in seconds since 1970.
    ``counters`` are sums over all workers since the start; ``workers`` are the running ones. ``started`` is when the
    board was created, in seconds since 1970; ``uptime`` the seconds since then. ``replacements`` counts replaced
    workers by reason. ``slow`` are records (slot, number, JSON). ``service_exemplars`` has one entry for each bucket of
    the service time. ``quarantined`` are routes as (name, since, until), in seconds of CLOCK_MONOTONIC.
    """

    def __init__(
        self,
        board: Scoreboard,
        now: int,
        workers: tuple[WorkerState, ...],
        counters: Mapping[str, int],
        slow: Sequence[Record],
        service_exemplars: Sequence[exemplars.Exemplar | None],
    ) -> None:
        words = board._words
        self.pid = words[_H_PID]
        self.generation = words[_H_GENERATION]
        self.time = now / 1e9
        self.wall = time.time()
        self.started = words[_H_STARTED_WALL] / 1e9
        self.uptime = (now - words[_H_STARTED]) / 1e9
        self.replacements = board._replacements()
        self.last_replacement = board._memory.text(_LAST_AT, _LAST_SIZE).decode("utf-8", "replace")
        self.last_replaced = words[_H_REPLACED_AT] / 1e9
        self.workers = workers
        self.counters = counters
        self.slow = tuple(slow)
        self.service_exemplars = service_exemplars
        self.quarantined = board.quarantined()
        self.rate_limit_evictions = board.rate_limit_evictions()
        self.group_messages = words[_H_GROUP_MESSAGES]
        dropped = words[_H_GROUP_MESSAGES + 1 : _H_GROUP_MESSAGES + 1 + len(GROUP_DROPS)]
        self.group_messages_dropped = dict(zip(GROUP_DROPS, dropped.tolist(), strict=True))
        self.bounds = board.layout.bounds

    def gauge(self, name: str) -> int:
        """Return the sum of a value over the running workers; 0 if the engine has no such value."""
        return sum(worker.values.get(name, 0) for worker in self.workers)

    def histogram(self, name: str) -> Histogram:
        """Return the histogram ``name``, one of ``HISTOGRAMS``."""
        counts = tuple(self.counters.get(f"{name}_{index}", 0) for index in range(len(self.bounds) + 1))
        return Histogram(self.bounds, counts, self.counters.get(f"{name}_sum", 0) / 1e9)


class WorkerState:
    """The state of a worker. Times are ages in seconds; ``values`` are the engine's values by name."""

    def __init__(self, index: int, part: Sequence[int], reason: str, values: Mapping[str, int], now: int) -> None:
        self.index = index
        self.pid = part[_S_PID]
        self.generation = part[_S_GENERATION]
        self.state = STATES[part[_S_STATE]] if part[_S_STATE] < len(STATES) else "unknown"
        self.age = max(now - part[_S_STARTED], 0) / 1e9
        self.started = part[_S_STARTED_WALL] / 1e9
        self.silence = max(now - part[_S_HEARTBEAT], 0) / 1e9
        self.memory = part[_S_MEMORY]
        self.reason = reason
        self.values = values


if TYPE_CHECKING:
    Record = tuple[int, int, bytes]
    Quarantined = tuple[str, float, float]


def _totals(epoch: int) -> int:
    """Return the index of the first word of the totals that are valid in ``epoch``."""
    return (_TOTALS_AT + epoch % 2 * _PAGE) // WORD
