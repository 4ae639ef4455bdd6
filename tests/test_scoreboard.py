"""The scoreboard: counters that processes share, which never go back and never count twice."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
import traceback
from typing import TYPE_CHECKING

import pytest

import kirsch
from kirsch.monitor.histogram import Histogram
from kirsch.monitor.scoreboard import (
    DRAINING,
    SERVING,
    SLOW_BYTES_MAX,
    SLOW_REQUESTS_MAX,
    Layout,
    LayoutError,
    Scoreboard,
    Slot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FIELDS = (
    "published",
    "requests",
    "running",
    *("queue_wait_sum", "queue_wait_0", "queue_wait_1", "queue_wait_2"),
    "bytes_out",
)
LAYOUT = Layout(FIELDS, (0.1, 1.0), 128)


@pytest.fixture
def board() -> Iterator[Scoreboard]:
    board = Scoreboard.create(4, LAYOUT)
    yield board
    board.close_fd()


def claim(board: Scoreboard, **values: int) -> Slot:
    """A worker has a slot and has counted this."""
    slot = board.claim()
    assert slot is not None
    count(slot, **values)
    return slot


def count(slot: Slot, **values: int) -> None:
    """Writes values as the engine does, with relaxed stores of whole words."""
    words = slot.native.cast("Q")
    for name, value in values.items():
        words[FIELDS.index(name)] = value


def in_child(work: Callable[[], object]) -> int:
    """Fork, do ``work`` and leave with status 0, or 1 and a traceback where it raised. Returns the child's pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - it must not go on as a second pytest
            traceback.print_exc()
            os._exit(1)
    return pid


def assert_ended_well(pid: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_counters_of_worker_are_visible_in_another_process(board: Scoreboard) -> None:
    slot = claim(board)

    def work() -> None:
        mine = board.slot(slot.index)
        mine.pid = os.getpid()
        mine.state = SERVING
        mine.memory = 5 << 20
        count(mine, requests=7, running=2, queue_wait_sum=3_500_000_000, queue_wait_1=4)

    pid = in_child(work)
    assert_ended_well(pid)
    seen = board.read()
    (worker,) = seen.workers
    assert (worker.pid, worker.state, worker.memory) == (pid, "serving", 5 << 20)
    assert seen.counters["requests"] == 7
    assert seen.gauge("running") == 2
    waits = seen.histogram("queue_wait")
    assert (waits.count, waits.sum, waits.cumulative()) == (4, 3.5, [0, 4, 4])


def test_exited_worker_stays_in_counters_and_leaves_gauges(board: Scoreboard) -> None:
    first, second = claim(board, requests=10, running=3), claim(board, requests=5, running=1)
    board.release(first.index)
    board.release(first.index)  # once is enough
    seen = board.read()
    assert [worker.index for worker in seen.workers] == [second.index]
    assert (seen.counters["requests"], seen.gauge("running")) == (15, 1)
    again = claim(board)
    assert again.index == first.index
    assert set(again.values.values()) == {0}
    count(again, requests=1)
    assert board.read().counters["requests"] == 16


def test_a_full_board_has_no_slot(board: Scoreboard) -> None:
    slots = [claim(board) for _ in range(board.slots)]
    assert board.claim() is None
    board.release(slots[2].index)
    assert claim(board).index == 2


def test_times_and_words_of_a_slot(board: Scoreboard) -> None:
    slot = board.claim(3, "after a crash: killed by signal 9")
    assert slot is not None
    assert abs(slot.started - time.monotonic()) < 5
    slot.beat()
    assert slot.heartbeat >= slot.started
    slot.state = DRAINING
    (worker,) = board.read().workers
    assert (worker.generation, worker.state, worker.reason) == (3, "draining", "after a crash: killed by signal 9")
    assert 0 <= worker.silence <= worker.age < 5
    slot.reason = "é" * 1000  # what is too long is cut, in the middle of a letter too
    assert board.read().workers[0].reason.startswith("éé")


def test_a_worker_knows_its_number_and_those_of_the_others(board: Scoreboard) -> None:
    assert (kirsch.worker_number(), kirsch.worker_numbers()) == (None, frozenset())
    claim(board)
    slot, gone = claim(board), claim(board)
    board.release(gone.index)

    def work() -> None:
        board.slot(slot.index).occupy()
        assert kirsch.worker_number() == 1
        assert kirsch.worker_numbers() == {0, 1}

    pid = in_child(work)
    assert_ended_well(pid)
    assert slot.pid == pid


def test_replacements_by_reason(board: Scoreboard) -> None:
    for reason in ("crash", "max-requests", "crash"):
        board.count_replacement(reason, f"worker 4711 left: {reason}")
    seen = board.read()
    assert seen.replacements == {"crash": 2, "max-requests": 1}
    assert seen.last_replacement == "worker 4711 left: crash"
    assert abs(seen.last_replaced - time.time()) < 5
    for number in range(100):
        board.count_replacement(f"reason {number}")
    seen = board.read()
    assert sum(seen.replacements.values()) == 103
    assert seen.replacements["other"] > 50
    assert seen.replacements["crash"] == 2


def histogram_of(times: Sequence[float]) -> Histogram:
    """As the engine counts them."""
    bounds = Layout.of_native().bounds
    counts = [0] * (len(bounds) + 1)
    for each in times:
        counts[next((place for place, bound in enumerate(bounds) if each <= bound), len(bounds))] += 1
    return Histogram(bounds, counts, math.fsum(times))


def test_a_quantile_is_bounded_by_its_bucket(board: Scoreboard) -> None:
    claim(board, queue_wait_0=50, queue_wait_1=40, queue_wait_2=10, queue_wait_sum=50_000_000_000)
    before = board.read().histogram("queue_wait")
    assert before.at_most(0.25) == pytest.approx(0.1)
    assert before.at_most(0.7) == pytest.approx(1.0)
    count(board.slot(0), queue_wait_0=60)
    assert board.read().histogram("queue_wait").since(before).counts == (10, 0, 0)
    assert before.since(before).at_most(0.5) is None


def test_a_quantile_is_never_below_the_true_one_and_tight_where_times_are_alike() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(300):
        times = sorted(chance.lognormvariate(-5, chance.uniform(0.01, 4)) for _ in range(chance.randint(1, 60)))
        found = histogram_of(times)
        for share in (0.5, 0.9, 0.99):
            bound = found.at_most(share)
            assert bound is not None
            assert bound >= times[math.ceil(share * len(times)) - 1] * (1 - 1e-9)
    # The longest took 2.5 s and a little: an interpolation in its bucket, which ends at 5 s, would say 4.9 s.
    alike = histogram_of([2.51] * 100)
    for share in (0.5, 0.9, 0.99):
        bound = alike.at_most(share)
        assert bound is not None
        assert bound < 3.6
    assert histogram_of([2.4]).at_most(0.99) == pytest.approx(2.4)
    # Beyond the last bucket's bound the sum is the only one.
    assert histogram_of([0.001, 40.0]).at_most(0.99) == pytest.approx(40.0, abs=0.01)


def test_a_sum_that_contradicts_the_counts_bounds_nothing() -> None:
    """They are not read at one moment."""
    bounds = Layout.of_native().bounds
    counts = [0] * (len(bounds) + 1)
    counts[5] = 3
    assert Histogram(bounds, counts, 0.0).at_most(0.5) == bounds[5]
    counts = [0] * len(bounds) + [1]
    assert Histogram(bounds, counts, 0.0).at_most(0.5) is None


def test_a_successor_adopts_the_board_over_exec(board: Scoreboard) -> None:
    claim(board, requests=3)
    board.release(0)
    claim(board, requests=4)
    program = f"""
from kirsch.monitor.scoreboard import Layout, Scoreboard
board = Scoreboard.adopt({board.fd}, Layout({FIELDS!r}, {LAYOUT.bounds!r}, {LAYOUT.size}))
seen = board.read()
print(seen.counters["requests"], len(seen.workers), board.slots)
board.release(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True, pass_fds=[board.fd]
    )
    assert done.stdout.split() == ["7", "1", "4"]
    assert board.read().counters["requests"] == 7
    assert board.read().workers == ()


def test_a_board_of_another_version_is_refused(board: Scoreboard, tmp_path: object) -> None:
    for other in (
        Layout((*FIELDS, "more"), LAYOUT.bounds, LAYOUT.size),
        Layout(FIELDS, (0.2, 1.0), LAYOUT.size),
        Layout(FIELDS, LAYOUT.bounds, 256),
    ):
        with pytest.raises(LayoutError, match="another version"):
            Scoreboard.adopt(board.fd, other)
    assert Scoreboard.adopt(board.fd, LAYOUT).slots == 4
    os.ftruncate(board.fd, os.fstat(board.fd).st_size - 4096)
    with pytest.raises(LayoutError, match="truncated"):
        Scoreboard.adopt(board.fd, LAYOUT)
    os.ftruncate(board.fd, 0)
    with pytest.raises(LayoutError, match="not a scoreboard"):
        Scoreboard.adopt(board.fd, LAYOUT)


def test_memory_is_taken_only_by_slots_in_use() -> None:
    board = Scoreboard.create(256, LAYOUT)
    claim(board, requests=1)
    board.read()
    assert os.fstat(board.fd).st_blocks * 512 <= 2 << 20
    board.close_fd()


def test_slow_requests_outlast_their_worker(board: Scoreboard) -> None:
    slot = claim(board)
    numbers = [slot.add_slow(json.dumps({"number": number}).encode()) for number in range(SLOW_REQUESTS_MAX + 3)]
    slot.update_slow(numbers[-1], b'{"number": "the last"}')
    slot.update_slow(numbers[0], b'{"number": "forgotten long ago"}')
    board.release(slot.index)
    claim(board)
    found = [json.loads(record)["number"] for _, _, record in board.read().slow]
    assert found == [*range(3, SLOW_REQUESTS_MAX + 2), "the last"]


def test_running_requests_are_published_to_readers_and_removed_with_their_worker(board: Scoreboard) -> None:
    slot = claim(board)
    looked_at = [board.is_observed]
    Scoreboard.attach(board.fd, LAYOUT).mark_observed()
    looked_at.append(board.is_observed)
    assert looked_at == [False, True]
    assert board.running() == []
    slot.publish_running(b"[]")
    slot.publish_running(b"[1]")
    assert board.running() == [(slot.index, 1, b"[1]")]
    board.release(slot.index)
    claim(board)
    assert board.running() == []


def test_a_slow_request_is_read_whole_or_not_at_all(board: Scoreboard) -> None:
    slot = claim(board)
    done, tell = os.pipe()

    def read() -> None:
        os.close(tell)
        os.set_blocking(done, False)
        while True:
            for _, _, record in board.read().slow:
                assert len(set(record)) == 1, record
                assert len(record) == SLOW_BYTES_MAX
            try:
                os.read(done, 1)
            except BlockingIOError:
                continue
            return

    reader = in_child(read)
    end = time.monotonic() + 0.5
    number = 0
    while time.monotonic() < end:
        number = slot.add_slow(bytes([97 + number % 26]) * SLOW_BYTES_MAX)
        slot.update_slow(number, b"z" * SLOW_BYTES_MAX)
    os.close(tell)
    assert_ended_well(reader)
    os.close(done)


@pytest.mark.slow
def test_counters_never_go_back_and_never_count_twice_while_workers_come_and_go(board: Scoreboard) -> None:
    """Two readers and a worker at full speed, and a supervisor that folds nearly as fast."""
    done, tell = os.pipe()
    enough, seen_enough = os.pipe()

    def is_over() -> bool:
        try:
            return not os.read(done, 1)
        except BlockingIOError:
            return False

    def read() -> None:
        os.close(tell)
        os.set_blocking(done, False)
        last = board.read()
        changes = 0
        while not is_over():
            seen = board.read()
            for name in LAYOUT.names:
                assert seen.counters[name] >= last.counters[name], (name, last.counters, seen.counters)
            # A worker counts 1000 at a time, and one that is folded half would show.
            assert seen.counters["bytes_out"] % 1000 == 0
            if seen.counters["bytes_out"] != last.counters["bytes_out"]:
                changes += 1
                if changes == 200:
                    os.write(seen_enough, b"x")
            last = seen
        # Twice counted and never taken back would show in the end.
        assert board.read().counters["bytes_out"] == 1000 * board.generation

    def work() -> None:
        os.close(tell)
        os.set_blocking(done, False)
        words = steady.native.cast("Q")
        while not is_over():
            words[FIELDS.index("requests")] += 1

    steady = claim(board)
    children = [in_child(read), in_child(read), in_child(work)]
    os.close(seen_enough)
    os.set_blocking(enough, False)
    end = time.monotonic() + 30
    folds, waiting = 0, 2
    while waiting and time.monotonic() < end:
        for _ in range(20):
            board.release(claim(board, bytes_out=1000).index)
            folds += 1
        time.sleep(0.0002)  # two readers and a worker want the two processors as well
        try:
            told = os.read(enough, 2)
        except BlockingIOError:
            continue
        assert told, "a reader has ended too soon"
        waiting -= len(told)
    board.generation = folds
    os.close(tell)
    for child in children:
        assert_ended_well(child)
    os.close(done)
    os.close(enough)
    assert not waiting
    assert board.read().counters["bytes_out"] == 1000 * folds
