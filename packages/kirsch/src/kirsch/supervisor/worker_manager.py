"""The worker manager: starts single workers, reads their messages, watches their deadlines, and handles their exit.

:func:`worker_plan.plan` decides which workers to start, replace or stop.
"""

from __future__ import annotations

import signal
import time
from functools import partial

from kirsch import bootstrap
from kirsch.monitor.scoreboard import DRAINING as SLOT_DRAINING
from kirsch.monitor.scoreboard import SERVING as SLOT_SERVING
from kirsch.monitor.scoreboard import STOPPING as SLOT_STOPPING
from kirsch.reports import CRITICAL, ERROR, INFO, WARNING
from kirsch.server import EXIT_STUCK
from kirsch.supervisor import control, worker_process
from kirsch.supervisor import service as services
from kirsch.supervisor.system import how_ended, kill, random_share, random_up_to
from kirsch.supervisor.worker_plan import DUMP_SECONDS, NEVER, READY, SERVES_ITSELF, STARTING, STOPPING, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from kirsch.monitor.scoreboard import Scoreboard
    from kirsch.supervisor.control import Channel, Message
    from kirsch.supervisor.event_loop import EventLoop
    from kirsch.supervisor.quarantine import Quarantine
    from kirsch.supervisor.service import Generation, Service
    from kirsch.supervisor.upgrade import State
    from kirsch.supervisor.zygote_pool import Zygote, ZygotePool

    class WorkerOwner(Protocol):
        """The interface of the supervisor for the worker manager."""

        def fork(self, main: Callable[[], int], *channels: Channel) -> int: ...

        def start_failed(self, failure: Message, otherwise: str, index: int | None, *, is_trial: bool) -> None:
            """Handle a worker, or a zygote (``index`` is None), that has failed before it was ready."""


# Ctrl-C reaches a worker and the supervisor, but at different moments within this many seconds.
_SAME_SIGNAL_SECONDS = 0.1

# The seconds until the next attempt, if a worker cannot be forked for lack of descriptors or processes.
_SHORTAGE_SECONDS = 1.0


class WorkerManager:
    """Starts and stops workers, and maintains ``service.workers``."""

    def __init__(
        self, service: Service, loop: EventLoop, zygotes: ZygotePool, quarantine: Quarantine, owner: WorkerOwner
    ) -> None:
        self._service = service
        self._loop = loop
        self._zygotes = zygotes
        self._quarantine = quarantine
        self._owner = owner
        # Workers that exit without an order of the supervisor: (time to report, text, reason).
        self._exiting_workers: list[tuple[float, str, str]] = []

    # Starting workers

    def spawn_context(self, generation: Generation) -> worker_process.SpawnContext:
        """Return the context that all workers of ``generation`` receive."""
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
            service.certificates.shared,
            service.connector,
        )

    def adopt(self, exported: Iterable[State], board: Scoreboard | None) -> None:
        """Take over the workers of the previous image of this program."""
        for each in exported:
            worker = Worker.adopt(each, board)
            self._service.workers.append(worker)
            if worker.channel.fileno() >= 0:
                self._loop.add_reader(worker.channel.fileno(), partial(self._on_channel, worker))

    def start(self, number: int, now: float, reason: str) -> None:
        """Start a worker for index ``number``, unless its backoff delays that."""
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
        """Start the first worker of a generation that a reload tries. None if there is no free slot. Raises OSError."""
        return self._spawn(0, generation, now, reason)

    def start_failed(self, number: int, at_least: float = 0.5) -> float:
        """Record that no worker could be started for this index; return the seconds until the next attempt."""
        ready_at = [worker.ready_at for worker in self._service.workers if worker.index == number]
        backoff = self._service.index_state(number).backoff
        return backoff.failed(time.monotonic(), at_least=at_least, ready_at=ready_at)

    def _spawn(self, number: int, generation: Generation, now: float, reason: str) -> Worker | None:
        """Fork a worker, directly or by the zygote. None if the scoreboard has no free slot. Raises OSError."""
        service, chosen = self._service, generation.chosen
        slot = service.board.claim(generation.number, reason)
        if slot is None:
            return None  # stopping workers occupy all slots; the next one that exits frees one
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
        theirs.close()  # not in a finally clause, which the child would run too
        slot.pid = worker.pid
        service.workers.append(worker)
        self._loop.add_reader(ours.fileno(), partial(self._on_channel, worker))
        return worker

    def _zygote_of(self, generation: Generation) -> Zygote | None:
        return self._zygotes.current if generation is self._service.current else self._zygotes.trial

    def can_start(self, now: float) -> bool:
        """Return whether a worker can be started. With ``--preload`` that needs a zygote, which is started here if
        due."""
        if not self._service.chosen.preload:
            return True
        if self._zygotes.is_due(now):
            try:
                self._zygotes.start(self.spawn_context(self._service.current))
            except OSError as error:
                failure = {"text": f"no zygote could be forked: {bootstrap.reason(error)}"}
                self._owner.start_failed(failure, "", None, is_trial=False)
        return self._zygotes.current is not None

    # Deadlines of workers

    def due(self) -> float:
        """Return the time at which :meth:`run_due` must be called."""
        due = [exiting[0] for exiting in self._exiting_workers]
        due += [min(worker.deadline, worker.expires, self._deadlocked_at(worker)) for worker in self._service.workers]
        return min(due, default=NEVER)

    def run_due(self, now: float) -> None:
        """Handle the workers that missed a deadline or reached their maximum lifetime."""
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
            self._replace(worker, "max-lifetime", "it has reached its maximum lifetime")
        if now >= self._deadlocked_at(worker):
            worker.why = "deadlock"
            limit = self._service.chosen.deadlock_timeout
            self._kill(worker, f"no thread of {worker} has held the GIL for {limit:g} s", dump=True)

    def _deadlocked_at(self, worker: Worker) -> float:
        """Return the time at which the last heartbeat of a worker is too old. Its control thread beats once a
        second."""
        limit = self._service.chosen.deadlock_timeout
        if not limit or worker.slot is None or worker.state is STARTING or worker.killed:
            return NEVER
        return max(worker.slot.heartbeat, worker.ready_at, self._loop.awake_since) + limit

    def _on_deadline(self, worker: Worker) -> None:
        """End a worker whose current state has lasted longer than allowed."""
        if worker.killed:
            worker.deadline = NEVER
            kill(worker.pid, signal.SIGKILL)
        elif worker.state is not STARTING:
            self._kill(worker, f"{worker} has not ended in time")
        else:
            generation = self._service.generation_of(worker)
            limit = generation.chosen.startup_timeout
            text = f"the application was not ready within {limit:g} s (--startup-timeout){SERVES_ITSELF}"
            worker.failure = {"text": text}
            self._kill(worker, f"{worker} was not ready within {limit:g} s", dump=True)
            if not worker.pid:
                # The zygote has not forked the worker.
                zygote = self._zygote_of(generation)
                if zygote is not None:
                    kill(zygote.pid, signal.SIGKILL)
                self._on_gone(worker, None)

    # Stopping workers

    def retire(self, worker: Worker) -> None:
        """Stop a worker that is no longer needed. It completes its requests, and idle connections may send one more."""
        why = worker.stale or "it is no longer needed"
        if worker.stale:
            self._service.board.count_replacement(worker.stale, f"{worker}: {why}")
        graceful = self._service.chosen.graceful_timeout
        self.stop(worker, why, graceful, graceful)

    def stop(self, worker: Worker, why: str, graceful: float, idle: float | None) -> None:
        if worker.state is STARTING:
            # The signal ends a worker that does not serve yet. A worker that has just begun to serve ignores the signal
            # and reads the message.
            kill(worker.pid, worker_process.DISMISS_SIGNAL)
            worker.dismissed = True
        worker.channel.send("stop", why=why, graceful_timeout=graceful, idle_timeout=idle)
        self._mark_stopping(worker, graceful)

    def drain(self) -> None:
        """Tell all workers to continue to serve, but to announce in each response that they will stop."""
        for worker in self._service.workers:
            worker.channel.send("drain")
            if worker.slot is not None and worker.state is READY:
                worker.slot.state = SLOT_DRAINING

    def announce_certificates(self) -> None:
        """Tell all workers to reread the certificates. A starting worker reads them later anyway."""
        for worker in self._service.workers:
            worker.channel.send("certificates")

    def signal(self, number: int) -> None:
        for worker in self._service.workers:
            # A worker that is not ready has no handler yet, and will open the new logs anyway.
            if worker.state is not STARTING:
                kill(worker.pid, number)

    def clear_exiting(self) -> None:
        """Do not report workers that have exited, because the whole service stops."""
        self._exiting_workers.clear()

    def _mark_stopping(self, worker: Worker, graceful: float) -> None:
        worker.state = STOPPING
        worker.expires = NEVER
        if not worker.killed:
            worker.deadline = time.monotonic() + graceful + self._service.chosen.shutdown_timeout
        if worker.slot is not None:
            worker.slot.state = SLOT_STOPPING

    def _kill(self, worker: Worker, text: str, *, dump: bool = False) -> None:
        """Kill a worker; with ``dump``, let it write its stacks to stderr first."""
        self._service.report(CRITICAL, f"{text}; it is killed")
        worker.killed = True
        if dump:
            kill(worker.pid, worker_process.DUMP_SIGNAL)
            worker.deadline = time.monotonic() + DUMP_SECONDS
        else:
            worker.deadline = NEVER
            kill(worker.pid, signal.SIGKILL)

    def _replace(self, worker: Worker, reason: str, text: str) -> None:
        """Mark a ready worker as stale. It serves until its successor is ready."""
        if worker.state is READY and not worker.stale:
            worker.mark_stale(reason, time.monotonic())
            if worker.slot is not None:
                worker.slot.reason = text
            flag = "" if reason == "broken" else " (--timeout)" if reason == "stuck" else f" (--{reason})"
            self._service.report(INFO, f"replacing {worker}: {text}{flag}")

    # Messages of workers

    def _on_channel(self, worker: Worker) -> None:
        if not self._read_messages(worker):
            # The end of the channel comes before the exit of the process, which SIGCHLD reports. If the pid was never
            # known, no SIGCHLD can be matched to the worker: remove it now.
            self._loop.close_channel(worker.channel)
            if not worker.pid:
                self._on_gone(worker, None)

    def _read_messages(self, worker: Worker) -> bool:
        """Handle the messages that have arrived; return False at the end of the channel."""
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
                    # A worker may run as another user, and its code may send anything.
                    self._service.report(ERROR, f"{worker} sent an invalid message: {message!r:.200}")
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
        """Record that the worker stops without an order of the supervisor, for example because of a signal."""
        if worker.state is READY:
            worker.why = str(message["reason"])
            self._mark_stopping(worker, self._service.chosen.graceful_timeout)
            # The supervisor may receive the same signal; then nothing is reported or started.
            due = time.monotonic() + _SAME_SIGNAL_SECONDS
            self._exiting_workers.append((due, f"{worker} ends: {message['why']}", worker.why))
            state = self._service.index_state(worker.index)
            state.reason = worker.why
            if worker.why == "other":
                state.backoff.ended(time.monotonic(), worker.ready_at)  # the application may do so at each start
            state.backoff.not_before = max(state.backoff.not_before, due)

    # Exit of workers

    def on_exit(self, pid: int, code: int) -> bool:
        """Handle the exit of process ``pid`` with ``code`` (-N: killed by signal N); False if it is no worker."""
        worker = self._by_pid(pid)
        if worker is None:
            # A worker that a zygote has forked sends its pid itself; that message may not have been read yet.
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
        """Remove a worker that has exited. ``code`` is None if its exit status is unknown."""
        service = self._service
        service.workers.remove(worker)
        self._loop.close_channel(worker.channel)
        if code is not None and not service.is_stopping and _is_crash(worker, code):
            self._quarantine.on_crash(worker, code)
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
            return  # the worker has reported it itself
        elif not worker.killed and code != 0 and not worker.dismissed:
            service.report(WARNING, f"{worker} {how} while it was stopping")
        if service.is_stopping and not worker.dismissed and (worker.killed or code != 0):
            service.exit_status = service.exit_status or 1

    def _on_crash(self, worker: Worker, code: int | None, how: str) -> None:
        """Report a worker that exited while it was serving, and schedule the start of another one."""
        state = self._service.index_state(worker.index)
        state.reason = worker.why or ("stuck" if code == EXIT_STUCK else "crash")
        self._service.board.count_replacement(state.reason, f"{worker} {how}")
        wait = state.backoff.ended(time.monotonic(), worker.ready_at)
        another = f"another is started in {wait:g} s" if wait else "another is started"
        self._service.report(ERROR, f"{worker} {how}; {another}")


def _is_crash(worker: Worker, code: int) -> bool:
    """Return whether a request may have ended the worker, and not the supervisor, a limit or a failed start."""
    if worker.state is STARTING or worker.killed or worker.dismissed or code == EXIT_STUCK:
        return False
    return worker.state is READY or code != 0
