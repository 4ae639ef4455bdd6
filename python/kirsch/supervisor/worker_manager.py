"""Single workers: how one is started, what it says, what it is late with, and how it ends.

Which of them are to be started, replaced or stopped is none of its affairs: that is decided by :func:`worker_plan.plan`.
"""

from __future__ import annotations

import signal
import time
from functools import partial

from kirsch import bootstrap
from kirsch.reports import CRITICAL, ERROR, INFO, WARNING
from kirsch.scoreboard import DRAINING as SLOT_DRAINING
from kirsch.scoreboard import SERVING as SLOT_SERVING
from kirsch.scoreboard import STOPPING as SLOT_STOPPING
from kirsch.server import EXIT_STUCK
from kirsch.supervisor import control, worker_process
from kirsch.supervisor import service as services
from kirsch.supervisor.backoff import YOUNG_SECONDS
from kirsch.supervisor.system import how_ended, kill, random_share, random_up_to
from kirsch.supervisor.worker_plan import DUMP_SECONDS, NEVER, READY, STARTING, STOPPING, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from kirsch.scoreboard import Scoreboard
    from kirsch.supervisor.control import Channel, Message
    from kirsch.supervisor.event_loop import EventLoop
    from kirsch.supervisor.service import Generation, Service
    from kirsch.supervisor.upgrade import State
    from kirsch.supervisor.zygote_pool import Zygote, ZygotePool

    class WorkerOwner(Protocol):
        """The supervisor, as far as workers need it."""

        def fork(self, main: Callable[[], int], *channels: Channel) -> int: ...

        def start_failed(self, failure: Message, otherwise: str, index: int | None, *, is_trial: bool) -> None:
            """A worker, or a zygote (then there is no ``index``), did not get ready."""


# A Ctrl-C reaches a worker and the supervisor, but not at the very same moment.
_SAME_SIGNAL_SECONDS = 0.1

# Where no worker can be started for want of descriptors or processes, and none died: the next try.
_SHORTAGE_SECONDS = 1.0


class WorkerManager:
    """Whoever is in ``service.workers`` came and goes through here."""

    def __init__(self, service: Service, loop: EventLoop, zygotes: ZygotePool, owner: WorkerOwner) -> None:
        self._service = service
        self._loop = loop
        self._zygotes = zygotes
        self._owner = owner
        self._exiting_workers: list[
            tuple[float, str, str]
        ] = []  # workers that end by themselves: when to tell, what, why

    # Beginning

    def spawn_context(self, generation: Generation) -> worker_process.SpawnContext:
        """What workers of this generation are given."""
        service, resources = self._service, self._service.resources
        others = [each for each in (service.current, service.trial) if each is not None and each is not generation]
        directories = (generation.directory, *(each.directory for each in others))
        service.group.make_room(generation.chosen, service.wanted)
        return worker_process.SpawnContext(
            generation.chosen,
            directories,
            resources.errors,
            resources.identity,
            resources.listeners,
            service.board,
            service.group,
        )

    def adopt(self, exported: Iterable[State], board: Scoreboard | None) -> None:
        """Take over those of the image before this one."""
        for each in exported:
            worker = Worker.adopt(each, board)
            self._service.workers.append(worker)
            if worker.channel.fileno() >= 0:
                self._loop.add_reader(worker.channel.fileno(), partial(self._on_channel, worker))

    def start(self, number: int, now: float, reason: str) -> None:
        """A worker for seat ``number``, unless those before it died so young that it has to wait."""
        service = self._service
        if now < service.index_state(number).backoff.not_before:
            return
        try:
            self._spawn(number, service.current, now, reason)
        except OSError as error:
            wait = self.start_failed(number, at_least=_SHORTAGE_SECONDS)
            text = f"no worker can be started, the next try is in {wait:g} s: {bootstrap.reason(error)}"
            service.report(ERROR, text)

    def start_trial(self, generation: Generation, now: float, reason: str) -> Worker | None:
        """The first worker of a generation that a reload tries. None where it has to wait. Raises OSError."""
        return self._spawn(0, generation, now, reason)

    def start_failed(self, number: int, at_least: float = 0.5) -> float:
        """Note that no worker could be started for this seat; returns the seconds that the next try waits."""
        ready_at = [worker.ready_at for worker in self._service.workers if worker.index == number]
        backoff = self._service.index_state(number).backoff
        return backoff.failed(time.monotonic(), at_least=at_least, ready_at=ready_at)

    def _spawn(self, number: int, generation: Generation, now: float, reason: str) -> Worker | None:
        """Fork one, or have the zygote do it. None where the scoreboard has no room. Raises OSError."""
        service, chosen = self._service, generation.chosen
        slot = service.board.claim(generation.number, reason)
        if slot is None:
            return None  # as many workers linger as there are slots: the first of them to end makes room
        wanted = None if generation is service.current else generation.workers
        limit = chosen.max_requests
        values = {
            "index": number,
            "workers": service.wanted if wanted is None else wanted,
            "slot": slot.index,
            "request_limit": limit + random_up_to(chosen.max_requests_jitter) if limit else 0,
        }
        try:
            ours, theirs = control.pair()
        except OSError:
            service.board.release(slot.index)
            raise
        timeout = chosen.startup_timeout
        worker = Worker(number, slot, ours, generation.number, now, now + timeout if timeout else NEVER)
        try:
            if chosen.preload:
                zygote = self._zygote_of(generation)
                assert zygote is not None
                zygote.channel.send("fork", fd=theirs.fileno(), **values)
            else:
                context = self.spawn_context(generation)
                worker.pid = self._owner.fork(
                    lambda: worker_process.main(worker_process.WorkerArguments(context, theirs, **values)), ours
                )
        except OSError:
            ours.close()
            theirs.close()
            service.board.release(slot.index)
            raise
        theirs.close()  # not in a finally clause, through which the child comes too
        slot.pid = worker.pid
        service.workers.append(worker)
        self._loop.add_reader(ours.fileno(), partial(self._on_channel, worker))
        return worker

    def _zygote_of(self, generation: Generation) -> Zygote | None:
        return self._zygotes.current if generation is self._service.current else self._zygotes.trial

    def can_start(self, now: float) -> bool:
        """With ``--preload`` there has to be a zygote; where there is none and it is time for one, it is made."""
        if not self._service.chosen.preload:
            return True
        if self._zygotes.is_due(now):
            try:
                self._zygotes.start(self.spawn_context(self._service.current))
            except OSError as error:
                failure = {"text": f"no zygote could be forked: {bootstrap.reason(error)}"}
                self._owner.start_failed(failure, "", None, is_trial=False)
        return self._zygotes.current is not None

    # Time

    def due(self) -> float:
        """When :meth:`run_due` has something to do next."""
        due = [exiting[0] for exiting in self._exiting_workers]
        due += [min(worker.deadline, worker.expires, self._deadlocked_at(worker)) for worker in self._service.workers]
        return min(due, default=NEVER)

    def run_due(self, now: float) -> None:
        """See who is late with what, and who has lived for long enough."""
        while self._exiting_workers and now >= self._exiting_workers[0][0]:
            _due, text, reason = self._exiting_workers.pop(0)
            self._service.board.count_replacement(reason, text)
            self._service.report(INFO, f"{text}; another is started")
        for worker in self._service.workers.copy():
            self._check(worker, now)

    def _check(self, worker: Worker, now: float) -> None:
        if now >= worker.deadline:
            self._on_deadline(worker)
        if now >= worker.expires:
            worker.expires = NEVER
            self._replace(worker, "max-lifetime", "it has lived for as long as it may")
        if now >= self._deadlocked_at(worker):
            worker.why = "deadlock"
            limit = self._service.chosen.deadlock_timeout
            self._kill(worker, f"no thread of {worker} has got the interpreter for {limit:g} s", dump=True)

    def _deadlocked_at(self, worker: Worker) -> float:
        """When its silence will have lasted for too long: its control thread has to say something every second."""
        limit = self._service.chosen.deadlock_timeout
        if not limit or worker.slot is None or worker.state is STARTING or worker.killed:
            return NEVER
        return max(worker.slot.heartbeat, worker.ready_at, self._loop.awake_since) + limit

    def _on_deadline(self, worker: Worker) -> None:
        """What it is doing should be over by now."""
        if worker.killed:
            worker.deadline = NEVER
            kill(worker.pid, signal.SIGKILL)
        elif worker.state is not STARTING:
            self._kill(worker, f"{worker} has not ended in time")
        else:
            generation = self._service.generation_of(worker)
            limit = generation.chosen.startup_timeout
            worker.failure = {"text": f"the application was not ready within {limit:g} s (--startup-timeout)"}
            self._kill(worker, f"{worker} was not ready within {limit:g} s", dump=True)
            if not worker.pid:
                # It was never forked, so the zygote does not do what it should.
                zygote = self._zygote_of(generation)
                if zygote is not None:
                    kill(zygote.pid, signal.SIGKILL)
                self._on_gone(worker, None)

    # Ending one

    def retire(self, worker: Worker) -> None:
        """It is not needed any more: let it finish what it has, and answer once more on connections that rest."""
        why = worker.stale or "it is not needed"
        if worker.stale:
            self._service.board.count_replacement(worker.stale, f"{worker}: {why}")
        graceful = self._service.chosen.graceful_timeout
        self.stop(worker, why, graceful, graceful)

    def stop(self, worker: Worker, why: str, graceful: float, idle: float | None) -> None:
        if worker.state is STARTING:
            # It serves nobody; and if it has just begun to, the signal means nothing to it, and the message does.
            kill(worker.pid, worker_process.DISMISS_SIGNAL)
            worker.dismissed = True
        worker.channel.send("stop", why=why, graceful_timeout=graceful, idle_timeout=idle)
        self._mark_stopping(worker, graceful)

    def drain(self) -> None:
        """Let all serve on, and say that they will not for long."""
        for worker in self._service.workers:
            worker.channel.send("drain")
            if worker.slot is not None and worker.state is READY:
                worker.slot.state = SLOT_DRAINING

    def signal(self, number: int) -> None:
        for worker in self._service.workers:
            # One that is not ready yet has no handler, and opens its logs anew anyway.
            if worker.state is not STARTING:
                kill(worker.pid, number)

    def clear_exiting(self) -> None:
        """All end now: why some had ended before nobody needs to know."""
        self._exiting_workers.clear()

    def _mark_stopping(self, worker: Worker, graceful: float) -> None:
        worker.state = STOPPING
        worker.expires = NEVER
        if not worker.killed:
            worker.deadline = time.monotonic() + graceful + self._service.chosen.shutdown_timeout
        if worker.slot is not None:
            worker.slot.state = SLOT_STOPPING

    def _kill(self, worker: Worker, text: str, *, dump: bool = False) -> None:
        """It does not do what it should; with ``dump`` its stacks go to stderr first."""
        self._service.report(CRITICAL, f"{text}; it is killed")
        worker.killed = True
        if dump:
            kill(worker.pid, worker_process.DUMP_SIGNAL)
            worker.deadline = time.monotonic() + DUMP_SECONDS
        else:
            worker.deadline = NEVER
            kill(worker.pid, signal.SIGKILL)

    def _replace(self, worker: Worker, reason: str, text: str) -> None:
        """Find a successor for it; until that is ready it serves on."""
        if worker.state is READY and not worker.stale:
            worker.mark_stale(reason, time.monotonic())
            if worker.slot is not None:
                worker.slot.reason = text
            flag = "timeout" if reason == "stuck" else reason
            self._service.report(INFO, f"{worker} is to be replaced: {text} (--{flag})")

    # What they say

    def _on_channel(self, worker: Worker) -> None:
        if not self._read_messages(worker):
            # The end of its channel comes before its own, of which SIGCHLD tells; but where its process was never
            # known, there is nothing else to come.
            self._loop.close_channel(worker.channel)
            if not worker.pid:
                self._on_gone(worker, None)

    def _read_messages(self, worker: Worker) -> bool:
        """Take in what it has said; False where it will say no more."""
        handlers: dict[str, Callable[[Worker, Message], None]] = {
            "hello": self._on_hello,
            "ready": self._on_ready,
            "failed": self._on_failed,
            "leaving": self._on_leaving,
            "left": self._on_left,
            "stopping": self._on_stopping,
        }
        while message := worker.channel.receive():
            handler = handlers.get(str(message["message"]))
            if handler is not None:
                try:
                    handler(worker, message)
                except (KeyError, TypeError, ValueError):
                    # Workers may be another user's, and that user's code runs in them.
                    self._service.report(ERROR, f"{worker} says what nobody understands: {message!r:.200}")
        return message is not None

    def _on_hello(self, worker: Worker, message: Message) -> None:
        if not worker.pid:
            worker.pid = int(message["pid"])
            if worker.slot is not None:
                worker.slot.pid = worker.pid
        if worker.dismissed:
            kill(worker.pid, worker_process.DISMISS_SIGNAL)

    def _on_ready(self, worker: Worker, message: Message) -> None:
        if worker.state is not STARTING:
            return
        service, chosen = self._service, self._service.generation_of(worker).chosen
        worker.state = READY
        worker.deadline = NEVER
        worker.ready_at = time.monotonic()
        if chosen.max_lifetime:
            worker.expires = worker.ready_at + chosen.max_lifetime + chosen.max_lifetime_jitter * random_share()
        worker.name = str(message["name"])
        if not service.is_trial(worker):
            service.set_application(worker.name)
        service.served = True
        drains = service.ending == services.DRAINING
        if drains:
            worker.channel.send("drain")
        if worker.slot is not None:
            worker.slot.state = SLOT_DRAINING if drains else SLOT_SERVING

    def _on_failed(self, worker: Worker, message: Message) -> None:
        worker.failure = message

    def _on_leaving(self, worker: Worker, message: Message) -> None:
        self._replace(worker, str(message["reason"]), str(message["text"]))

    def _on_left(self, worker: Worker, _message: Message) -> None:
        worker.left = True

    def _on_stopping(self, worker: Worker, message: Message) -> None:
        """Somebody else has ended it, by a signal for instance; its seat is free."""
        if worker.state is READY:
            worker.why = str(message["reason"])
            self._mark_stopping(worker, self._service.chosen.graceful_timeout)
            # A signal to all of us at once may be on its way to us too; then there is nothing to tell or to start.
            due = time.monotonic() + _SAME_SIGNAL_SECONDS
            self._exiting_workers.append((due, f"{worker} ends: {message['why']}", worker.why))
            state = self._service.index_state(worker.index)
            state.reason = worker.why
            if worker.why == "other" and time.monotonic() < worker.ready_at + YOUNG_SECONDS:
                state.backoff.failed(time.monotonic())  # the application stops the server as soon as it serves
            state.backoff.not_before = max(state.backoff.not_before, due)

    # How they have ended

    def on_exit(self, pid: int, code: int) -> bool:
        """The process ``pid`` has ended with ``code`` (-N: by signal N); False where it was no worker."""
        worker = self._by_pid(pid)
        if worker is None:
            # One that a zygote has forked tells its pid itself, and that may not have been heard yet.
            for each in self._service.workers:
                if not each.pid:
                    self._read_messages(each)
            worker = self._by_pid(pid)
        if worker is not None:
            self._read_messages(worker)
            self._on_gone(worker, code)
        return worker is not None

    def _by_pid(self, pid: int) -> Worker | None:
        return next((each for each in self._service.workers if each.pid == pid), None)

    def _on_gone(self, worker: Worker, code: int | None) -> None:
        """It has ended; None: with what, nobody knows."""
        service = self._service
        service.workers.remove(worker)
        self._loop.close_channel(worker.channel)
        if worker.slot is not None:
            service.board.release(worker.slot.index)
        how = "ended because a request was stuck" if code == EXIT_STUCK else how_ended(code)
        if worker.state is STARTING:
            otherwise = f"{worker} {how} before it was ready"
            is_trial = service.is_trial(worker)
            self._owner.start_failed(worker.failure or {}, otherwise, worker.index, is_trial=is_trial)
            return
        if worker.state is READY:
            self._on_crash(worker, code, how)
        elif code == EXIT_STUCK and "stuck" in (worker.why, worker.stale):
            return  # it has said so
        elif not worker.killed and code != 0 and not worker.dismissed:
            service.report(WARNING, f"{worker} {how}, and was to end in order")
        if service.is_stopping and not worker.dismissed and (worker.killed or code != 0):
            service.exit_status = service.exit_status or 1

    def _on_crash(self, worker: Worker, code: int | None, how: str) -> None:
        """It served, and nobody had told it to end."""
        state = self._service.index_state(worker.index)
        state.reason = worker.why or ("stuck" if code == EXIT_STUCK else "crash")
        self._service.board.count_replacement(state.reason, f"{worker} {how}")
        wait, now = 0.0, time.monotonic()
        if now < worker.ready_at + YOUNG_SECONDS:
            wait = state.backoff.failed(now)
        else:
            state.backoff.reset()
        another = f"another is started in {wait:g} s" if wait else "another is started"
        self._service.report(ERROR, f"{worker} {how}; {another}")
