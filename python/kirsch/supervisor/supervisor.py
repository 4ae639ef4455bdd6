"""The loop of the parent process, and what each event leads to.

It waits in one place (:meth:`Supervisor._wait`) for signals, for messages and ends of children, for listening sockets
while nobody serves, and for moments of CLOCK_MONOTONIC, so that a clock that is set does not matter. Each event changes
what is *wanted* (how many workers, which of them are stale) or what *is*; what has to be done about the difference is
decided in one place too (:meth:`Supervisor._reconcile`, with :func:`crew.plan`).

    signal or event               wanted from then on
    TERM                          no worker, gracefully; after --drain-delay, if there is one
    INT, QUIT                     no worker, within a second; a second one: at once
    HUP, --reload, --touch-reload every worker is stale; the settings are read again; what WINCH sent away comes back
    USR1                          logs are opened again, here and in the workers
    USR2                          another image of this program goes on with the sockets and the workers (upgrade.py)
    TTIN, TTOU                    one worker more, one less
    WINCH                         no worker, gracefully; the supervisor stays (not where a terminal was resized)
    PWR                           every worker writes what it does to stderr
    a worker asks to leave        it is stale
    a worker has died             a seat is free
    no request for a long time    no worker, until somebody knocks
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from functools import partial

from kirsch import assembly, configuration, reports
from kirsch.reports import CRITICAL, ERROR, INFO, WARNING
from kirsch.scoreboard import DRAINING, SERVING, Scoreboard
from kirsch.scoreboard import STOPPING as SLOT_STOPPING
from kirsch.server import EXIT_STUCK, FAST_TIMEOUT
from kirsch.settings import UsageError
from kirsch.supervisor import control, forking, privileges, titles, upgrade, zygote
from kirsch.supervisor import worker as workers
from kirsch.supervisor.activity import Activity
from kirsch.supervisor.backoff import YOUNG_SECONDS
from kirsch.supervisor.crew import DUMP_SECONDS, NEVER, READY, STARTING, STOPPING, Seat, Worker, plan
from kirsch.supervisor.holdings import Holdings
from kirsch.supervisor.notify import Notifier
from kirsch.supervisor.nursery import Nest, Nursery
from kirsch.supervisor.scaling import LOOK_SECONDS, Scaler
from kirsch.supervisor.system import has_terminal, how_ended, kill, random_share, random_up_to
from kirsch.supervisor.wakeup import Wakeup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.settings import Settings
    from kirsch.supervisor.control import Channel, Message
    from kirsch.supervisor.watching import Touches, Watch

# A second INT or QUIT ends workers at once; one that does not even manage that is killed after this.
_AT_ONCE_SECONDS = 1.0

# An end that comes sooner needs no explanation.
_SILENCE_SECONDS = 1.0

# A Ctrl-C reaches a worker and the supervisor, but not at the very same moment.
_SAME_SIGNAL_SECONDS = 0.1

# The loop was held up for so long beyond what it meant to wait: the machine slept, or somebody stopped us. The workers
# were probably stopped too, so what they have not done meanwhile is not held against them.
_HELD_UP_SECONDS = 2.0

# On the scoreboard each seat has two workers for the time of a replacement, and some more linger.
_SLOTS_SPARE = 64

# Where no worker can be started for want of descriptors or processes, and none died: the next try.
_SHORTAGE_SECONDS = 1.0

# How the end goes on; each may be followed by those after it.
_SERVING, _DRAINING, _STOPPING, _STOPPING_FAST, _STOPPING_AT_ONCE = range(5)


class _Reload:
    """A reload or an upgrade that is under way. ``why`` is for people, ``reason`` the word for which workers are stale;
    ``chosen`` and ``nest`` are what to go back to. It is ``rolling`` when there is something to make new workers of."""

    def __init__(self, why: str, reason: str, chosen: Settings, nest: Nest | None) -> None:
        self.why = why
        self.reason = reason
        self.chosen = chosen
        self.nest = nest
        self.rolling = False


def supervise(chosen: Settings, version: str) -> int:
    """Serve under a supervisor until a signal ends it; returns the exit status. To be called by :func:`forking.run`.

    Raises AssemblyError and UsageError for what can be refused before there is a worker.
    """
    return Supervisor(chosen, version).run()


class Supervisor:
    def __init__(self, chosen: Settings, version: str) -> None:
        self._chosen = chosen
        self._version = version
        self._name = chosen.target or ""
        self._selector = selectors.DefaultSelector()
        # What is there
        self._workers: list[Worker] = []
        self._seats: dict[int, Seat] = {}
        self._nursery = Nursery(self)
        self._served = False  # a worker has been ready
        self._announced = False
        # What is wanted
        self._wanted = chosen.workers
        self._generation = 1
        self._reload: _Reload | None = None
        self._asleep = False  # nobody has asked for long
        self._withdrawn = False  # WINCH
        self._ending = _SERVING
        self._exit_status = 0
        # When to do what next
        self._drained_at = NEVER
        self._look_at = NEVER
        self._watchdog_at = NEVER
        self._awake_since = 0.0
        self._explained_at = NEVER
        self._explanation = ""
        self._leavers: list[tuple[float, str, str]] = []  # workers that end by themselves: when to tell, what, why
        # What else is watched
        self._activity = Activity(time.monotonic())
        self._scaler = Scaler()
        self._sees_knocks = False
        self._watch: Watch | None = None
        self._touches: Touches | None = None
        self._check: upgrade.Check | None = None
        self._metrics_pid = 0
        self._metrics_at = 0.0
        self._open()

    # The beginning

    def _open(self) -> None:
        """Have all that can be refused. Raises AssemblyError or UsageError."""
        state = upgrade.receive()
        if self._chosen.preload:
            try:
                zygote.adopt_orphans()
            except OSError as error:
                raise assembly.AssemblyError(assembly.EXIT_FAILED, assembly.reason(error)) from None
        self._holdings = Holdings(self._chosen, state)
        try:
            self._board = _scoreboard(self._chosen, state)
            self._start_watching()
        except BaseException as error:
            self._holdings.discard()
            if isinstance(error, OSError):
                raise assembly.AssemblyError(assembly.EXIT_FAILED, assembly.reason(error)) from None
            raise
        self._notifier = Notifier()
        self._wakeup = Wakeup()
        self.attend(self._wakeup.fileno(), self._on_signals)
        if state is not None:
            self._adopt(state)

    def _adopt(self, state: upgrade.State) -> None:
        """Go on where the image before this one has left off."""
        self._generation = state["generation"]
        self._served = state["served"]
        self._wanted = state["wanted"] or self._wanted
        board = None if state["board"] is None else self._board
        for each in state["workers"]:
            worker = Worker.adopt(each, board)
            self._workers.append(worker)
            if worker.channel.fileno() >= 0:
                self.attend(worker.channel.fileno(), partial(self._on_worker, worker))

    def run(self) -> int:
        reports.say(self._version)
        titles.supervisor(self._chosen.process_name or self._name)
        self._board.generation = self._generation
        self._import_what_workers_need()
        if self._notifier.watchdog_interval:
            self._watchdog_at = 0.0
        if self._workers:
            self._begin_replacing("SIGUSR2", "upgrade", self._chosen)
        self._plan_look()
        while True:
            self._do_what_is_due(time.monotonic())
            self._reconcile(time.monotonic())
            if self._ending >= _STOPPING and not self._workers:
                return self._finish()
            self._wait()

    def _import_what_workers_need(self) -> None:
        """Here, once, instead of in each of them; and so that a reload after the package has been replaced does not
        mix two versions of it."""
        if self._chosen.driver == "threads":
            from kirsch.drivers import threads  # noqa: F401

    def _announce(self) -> None:
        """Say what is served, once all first workers are ready."""
        if sum(worker.state is READY for worker in self._workers) < self._wanted:
            return
        self._announced = True
        several = f", {self._wanted} workers" if self._wanted > 1 else ""
        if self._generation == 1:
            urls = dict.fromkeys(listener.url for listener in self._holdings.listeners)
            reports.say(f"serving {self._name}{several}\non {', '.join(urls)}")
            if self._holdings.metrics:
                reports.say(f"metrics on {', '.join(listener.url for listener in self._holdings.metrics)}")
        self._notifier.ready(f"serving {self._name}{several}")
        self._start_metrics()

    def _report(self, level: int, message: str) -> None:
        self._holdings.errors(level, message)

    # Waiting

    def attend(self, fd: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` when ``fd`` is readable."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def forget(self, channel: Channel) -> None:
        """Close a channel. May be called again."""
        if channel.fileno() >= 0:
            if channel.fileno() in self._selector.get_map():
                self._selector.unregister(channel.fileno())
            channel.close()

    def _wait(self) -> None:
        began = time.monotonic()
        due = self._next_due(began)
        seconds = None if due == NEVER else max(due - began, 0.0)
        events = self._selector.select(seconds)
        if seconds is not None and time.monotonic() - began > seconds + _HELD_UP_SECONDS:
            self._awake_since = time.monotonic()
        # Signals first: they may explain what else there is. What they have closed is no event any more.
        for key, _ in sorted(events, key=lambda event: event[0].fd != self._wakeup.fileno()):
            if self._selector.get_map().get(key.fd) is key:
                key.data()

    def _next_due(self, now: float) -> float:
        due = [self._drained_at, self._look_at, self._watchdog_at, self._explained_at]
        due.append(self._nursery.check_time(now)[0])
        due += [leaver[0] for leaver in self._leavers]
        due += [min(worker.deadline, worker.expires, self._deadlocked_at(worker)) for worker in self._workers]
        due += [seat.not_before for seat in self._seats.values() if seat.not_before > now]
        if self._check is not None:
            due.append(self._check.deadline)
        return min(due)

    def _do_what_is_due(self, now: float) -> None:
        if now >= self._watchdog_at:
            self._notifier.watchdog()
            self._watchdog_at = now + self._notifier.watchdog_interval
        if now >= self._drained_at:
            self._end("SIGTERM", _STOPPING, self._chosen.graceful_timeout)
        if now >= self._look_at:
            self._look(now)
            self._plan_look()
        if now >= self._explained_at:
            self._explained_at = NEVER
            self._report(INFO, self._explanation)
        while self._leavers and now >= self._leavers[0][0]:
            _due, text, reason = self._leavers.pop(0)
            self._board.count_replacement(reason, text)
            self._report(INFO, f"{text}; another is started")
        for worker in self._workers.copy():
            self._check_worker(worker, now)
        for nest in self._nursery.check_time(now)[1]:
            limit = self._chosen.startup_timeout
            nest.failure = {"text": f"the application was not imported within {limit:g} s (--startup-timeout)"}
            self._report(CRITICAL, f"the zygote (pid {nest.pid}) was not ready within {limit:g} s; it is killed")
        if self._check is not None and now >= self._check.deadline:
            self._check.give_up()

    def _check_worker(self, worker: Worker, now: float) -> None:
        if now >= worker.deadline:
            self._is_late(worker)
        if now >= worker.expires:
            worker.expires = NEVER
            self._replace(worker, "max-lifetime", "it has lived for as long as it may")
        if now >= self._deadlocked_at(worker):
            worker.why = "deadlock"
            limit = self._chosen.deadlock_timeout
            self._kill(worker, f"no thread of {worker} has got the interpreter for {limit:g} s", dump=True)
        if worker.state is READY and now >= worker.ready_at + YOUNG_SECONDS:
            self._seat(worker.seat).deaths = 0

    def _deadlocked_at(self, worker: Worker) -> float:
        """When its silence will have lasted for too long: its control thread has to say something every second."""
        if not self._chosen.deadlock_timeout or worker.slot is None or worker.state is STARTING or worker.killed:
            return NEVER
        last = max(worker.slot.heartbeat, worker.ready_at, self._awake_since)
        return last + self._chosen.deadlock_timeout

    def _is_late(self, worker: Worker) -> None:
        """What it is doing should be over by now."""
        if worker.killed:
            worker.deadline = NEVER
            kill(worker.pid, signal.SIGKILL)
        elif worker.state is not STARTING:
            self._kill(worker, f"{worker} has not ended in time")
        else:
            limit = self._chosen.startup_timeout
            worker.failure = {"text": f"the application was not ready within {limit:g} s (--startup-timeout)"}
            self._kill(worker, f"{worker} was not ready within {limit:g} s", dump=True)
            if not worker.pid:
                # It was never forked, so the zygote does not do what it should.
                if self._nursery.current is not None:
                    kill(self._nursery.current.pid, signal.SIGKILL)
                self._gone(worker, None)

    # What is wanted, and what is

    def _reconcile(self, now: float) -> None:
        """Start, replace and stop workers until what is there is what is wanted; one step of it."""
        if self._ending >= _STOPPING:
            return
        steps = plan(self._workers, 0 if self._asleep or self._withdrawn else self._wanted)
        for worker in steps.stop:
            self._retire(worker)
        if (steps.start or steps.replace is not None) and self._can_fork(now):
            for number in steps.start:
                self._start(number, now, self._seat(number).reason)
            if steps.replace is not None:
                old = next(each for each in self._workers if each.seat == steps.replace and each.stale)
                self._start(steps.replace, now, old.stale)
        if self._reload is not None:
            self._check_reload(self._reload)
        elif not self._announced:
            self._announce()

    def _can_fork(self, now: float) -> bool:
        """With ``--preload`` there has to be a zygote; where there is none and it is time for one, it is made."""
        if not self._chosen.preload:
            return True
        if self._nursery.is_due(now):
            self._make_zygote("a worker is missing", "")
        return self._nursery.current is not None

    def _seat(self, number: int) -> Seat:
        return self._seats.setdefault(number, Seat())

    def _outfit(self) -> workers.Outfit:
        held = self._holdings
        return workers.Outfit(self._chosen, held.errors, held.identity, held.listeners, self._board)

    def _start(self, number: int, now: float, reason: str) -> None:
        """A worker for seat ``number``, unless those before it died so young that it has to wait."""
        seat = self._seat(number)
        if now < seat.not_before:
            return
        slot = self._board.claim(self._generation, reason)
        if slot is None:
            return  # as many workers linger as there are slots: the first of them to end makes room
        limit = self._chosen.max_requests
        place = {
            "seat": number,
            "seats": self._wanted,
            "slot": slot.index,
            "request_limit": limit + random_up_to(self._chosen.max_requests_jitter) if limit else 0,
        }
        try:
            ours, theirs = control.pair()
        except OSError as error:
            self._board.fold(slot.index)
            self._cannot_start(seat, error)
            return
        timeout = self._chosen.startup_timeout
        worker = Worker(number, slot, ours, self._generation, now, now + timeout if timeout else NEVER)
        try:
            if self._chosen.preload:
                assert self._nursery.current is not None
                self._nursery.current.channel.send("fork", fd=theirs.fileno(), **place)
            else:
                outfit = self._outfit()
                worker.pid = self.fork(lambda: workers.main(workers.Post(outfit, theirs, **place)), ours)
        except OSError as error:
            ours.close()
            theirs.close()
            self._board.fold(slot.index)
            self._cannot_start(seat, error)
            return
        theirs.close()  # not in a finally clause, through which the child comes too
        slot.pid = worker.pid
        self._workers.append(worker)
        self.attend(ours.fileno(), partial(self._on_worker, worker))

    def _cannot_start(self, seat: Seat, error: OSError) -> None:
        wait = seat.died_young(at_least=_SHORTAGE_SECONDS)
        self._report(ERROR, f"no worker can be started, the next try is in {wait:g} s: {assembly.reason(error)}")

    def fork(self, main: Callable[[], int], *channels: Channel) -> int:
        """Fork a child that closes ``channels`` and does ``main``; returns its pid. Raises OSError."""
        return forking.fork(main, partial(self._leave, channels))

    def _leave(self, channels: tuple[Channel, ...]) -> None:
        """In a new child: close what is the supervisor's alone. The rest is freed with the stack."""
        workers.set_signals()
        self._selector.close()
        self._wakeup.close()
        for worker in self._workers:
            worker.channel.close()
        for nest in self._nursery.all():
            nest.channel.close()
        for channel in channels:
            channel.close()
        self._board.close_fd()
        if self._watch is not None:
            self._watch.close()
        if self._check is not None:
            self._check.close()

    def _retire(self, worker: Worker) -> None:
        """It is not needed any more: let it finish what it has, and answer once more on connections that rest."""
        why = worker.stale or "it is not needed"
        if worker.stale:
            self._board.count_replacement(worker.stale, f"{worker}: {why}")
        graceful = self._chosen.graceful_timeout
        self._tell_to_stop(worker, why, graceful, graceful)

    def _tell_to_stop(self, worker: Worker, why: str, graceful: float, idle: float | None) -> None:
        if worker.state is STARTING:
            # It serves nobody; and if it has just begun to, the signal means nothing to it, and the message does.
            kill(worker.pid, workers.DISMISS_SIGNAL)
            worker.dismissed = True
        worker.channel.send("stop", why=why, graceful_timeout=graceful, idle_timeout=idle)
        self._is_stopping(worker, graceful)

    def _is_stopping(self, worker: Worker, graceful: float) -> None:
        worker.state = STOPPING
        worker.expires = NEVER
        if not worker.killed:
            worker.deadline = time.monotonic() + graceful + self._chosen.shutdown_timeout
        if worker.slot is not None:
            worker.slot.state = SLOT_STOPPING

    def _kill(self, worker: Worker, text: str, *, dump: bool = False) -> None:
        """It does not do what it should; with ``dump`` its stacks go to stderr first."""
        self._report(CRITICAL, f"{text}; it is killed")
        worker.killed = True
        if dump:
            kill(worker.pid, workers.DUMP_SIGNAL)
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
            self._report(INFO, f"{worker} is to be replaced: {text} (--{reason})")

    # What workers say

    def _on_worker(self, worker: Worker) -> None:
        if not self._hear(worker):
            # The end of its channel comes before its own, of which SIGCHLD tells; but where its process was never
            # known, there is nothing else to come.
            self.forget(worker.channel)
            if not worker.pid:
                self._gone(worker, None)

    def _hear(self, worker: Worker) -> bool:
        """Take in what it has said; False where it will say no more."""
        heard: dict[str, Callable[[Worker, Message], None]] = {
            "hello": self._hear_hello,
            "ready": self._hear_ready,
            "failed": self._hear_failed,
            "leaving": self._hear_leaving,
            "left": self._hear_left,
            "stopping": self._hear_stopping,
        }
        while message := worker.channel.receive():
            handler = heard.get(str(message["message"]))
            if handler is not None:
                try:
                    handler(worker, message)
                except (KeyError, TypeError, ValueError):
                    # Workers may be another user's, and that user's code runs in them.
                    self._report(ERROR, f"{worker} says what nobody understands: {message!r:.200}")
        return message is not None

    def _hear_hello(self, worker: Worker, message: Message) -> None:
        if not worker.pid:
            worker.pid = int(message["pid"])
            if worker.slot is not None:
                worker.slot.pid = worker.pid
        if worker.dismissed:
            kill(worker.pid, workers.DISMISS_SIGNAL)

    def _hear_ready(self, worker: Worker, message: Message) -> None:
        if worker.state is not STARTING:
            return
        worker.state = READY
        worker.deadline = NEVER
        worker.ready_at = time.monotonic()
        if self._chosen.max_lifetime:
            jitter = self._chosen.max_lifetime_jitter * random_share()
            worker.expires = worker.ready_at + self._chosen.max_lifetime + jitter
        self._is_called(str(message["name"]))
        self._served = True
        self._activity.idle_since = worker.ready_at
        if self._ending == _DRAINING:
            worker.channel.send("drain")
        if worker.slot is not None:
            worker.slot.state = DRAINING if self._ending == _DRAINING else SERVING

    def _is_called(self, name: str) -> None:
        """The application's full name is known."""
        if name != self._name:
            self._name = name
            titles.supervisor(self._chosen.process_name or name)
        self._board.application = name

    def _hear_failed(self, worker: Worker, message: Message) -> None:
        worker.failure = message

    def _hear_leaving(self, worker: Worker, message: Message) -> None:
        self._replace(worker, str(message["reason"]), str(message["text"]))

    def _hear_left(self, worker: Worker, _message: Message) -> None:
        worker.left = True

    def _hear_stopping(self, worker: Worker, message: Message) -> None:
        """Somebody else has ended it, by a signal for instance; its seat is free."""
        if worker.state is READY:
            worker.why = str(message["reason"])
            self._is_stopping(worker, self._chosen.graceful_timeout)
            # A signal to all of us at once may be on its way to us too; then there is nothing to tell or to start.
            due = time.monotonic() + _SAME_SIGNAL_SECONDS
            self._leavers.append((due, f"{worker} ends: {message['why']}", worker.why))
            seat = self._seat(worker.seat)
            seat.reason, seat.not_before = worker.why, due

    # Ends of children

    def _reap(self) -> None:
        """Wait for every child that has ended; those that we do not know were orphans, or are of an image before."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            worker = next((each for each in self._workers if each.pid == pid), None)
            if worker is not None:
                self._hear(worker)
                self._gone(worker, code)
            elif self._check is not None and self._check.pid == pid:
                self._checked(self._check, code)
            elif pid == self._metrics_pid:
                self._metrics_pid = 0
                if self._ending < _STOPPING:
                    self._report(ERROR, f"the process that serves metrics {how_ended(code)}")
                    if time.monotonic() > self._metrics_at + 1.0:  # else another would hardly live longer
                        self._start_metrics()
            else:
                self._nursery.gone(pid, code)

    def _gone(self, worker: Worker, code: int | None) -> None:
        """It has ended, with ``code`` (-N: by signal N), where that is known."""
        self._workers.remove(worker)
        self.forget(worker.channel)
        if worker.slot is not None:
            self._board.fold(worker.slot.index)
        how = "ended because a request was stuck" if code == EXIT_STUCK else how_ended(code)
        if worker.state is STARTING:
            self._could_not_start(worker.failure or {}, f"{worker} {how} before it was ready", self._seat(worker.seat))
            return
        if worker.state is READY:
            self._crashed(worker, code, how)
        elif worker.why == "stuck" and code == EXIT_STUCK:
            return  # it has said so
        elif not worker.killed and code != 0 and not worker.dismissed:
            self._report(WARNING, f"{worker} {how}, and was to end in order")
        if self._ending >= _STOPPING and not worker.dismissed and (worker.killed or code != 0):
            self._exit_status = self._exit_status or 1

    def _crashed(self, worker: Worker, code: int | None, how: str) -> None:
        """It served, and nobody had told it to end."""
        seat = self._seat(worker.seat)
        seat.reason = worker.why or ("stuck" if code == EXIT_STUCK else "crash")
        self._board.count_replacement(seat.reason, f"{worker} {how}")
        young = time.monotonic() < worker.ready_at + YOUNG_SECONDS
        wait = seat.died_young() if young else 0.0
        another = f"another is started in {wait:g} s" if wait else "another is started"
        self._report(ERROR, f"{worker} {how}; {another}")

    def _could_not_start(self, failure: Message, otherwise: str, seat: Seat | None) -> None:
        """A worker, or a zygote (then there is no ``seat``), did not get ready."""
        if self._ending >= _STOPPING:
            return
        text, trace = str(failure.get("text", otherwise)), str(failure.get("traceback", ""))
        told = f"{text}\n{trace}" if trace else text
        if not self._served:
            # It cannot even start: say why, once for all workers, and end.
            reports.say(f"{trace}\nkirsch: {text}" if trace else f"kirsch: {text}")
            status = failure.get("status")
            self._exit_status = status if isinstance(status, int) and status else assembly.EXIT_NOT_LOADED
            self._stop_all(_STOPPING, 0.0)
        elif self._reload is not None:
            self._roll_back(self._reload, told)
        else:
            wait = self._nursery.died() if seat is None else seat.died_young(at_least=0.5)
            self._report(ERROR, f"no worker could be started, the next try is in {wait:g} s: {told}")

    # Reloading

    def _begin_reload(self, why: str) -> None:
        """Read the settings again, and replace every worker; the old ones serve until then."""
        if self._ending:
            return
        old = self._chosen
        try:
            new = configuration.again(old)
            chosen = configuration.reloaded(old, new)
            self._go_where_it_is(chosen)
            self._holdings.give_logs(chosen)
            if chosen.preload:
                zygote.adopt_orphans()
        except (UsageError, OSError) as error:
            text = assembly.reason(error) if isinstance(error, OSError) else str(error)
            self._report(ERROR, f"{why}: nothing is reloaded: {text}")
            return
        _, fixed = configuration.changes(old, new)
        if fixed:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
            stays = "stays as it is" if len(fixed) == 1 else "stay as they are"
            self._report(WARNING, f"{why}: {names} {stays}; only a restart or SIGUSR2 changes that")
        self._report(INFO, f"{why}: reloading")
        self._chosen = chosen
        self._holdings.errors.set_level(reports.LEVELS[chosen.log_level])
        if (chosen.workers, chosen.max_workers) != (old.workers, old.max_workers) or self._withdrawn:
            self._wanted = chosen.workers
        self._withdrawn = False
        self._plan_look()
        self._begin_replacing(why, "reload", old)

    def _go_where_it_is(self, chosen: Settings) -> None:
        """Follow the links on the way to the application anew. Raises UsageError or OSError."""
        if chosen.directory:
            os.chdir(chosen.directory)
        assembly.change_directory(chosen)

    def _begin_replacing(self, why: str, reason: str, old: Settings) -> None:
        """Replace every worker; with ``--preload`` as soon as there is a zygote that has imported the application."""
        if self._reload is None:
            self._reload = _Reload(why, reason, old, self._nursery.current)
        else:
            # What is to be gone back to is what served when the first of several reloads began.
            self._reload.why, self._reload.rolling = why, False
        self._notifier.reloading(f"{why}: reloading")
        if not self._chosen.preload:
            self._nursery.retire()
            self._begin_rolling(self._reload)
        elif self._asleep:
            self._begin_rolling(self._reload)  # the next connection makes a zygote
        else:
            self._make_zygote(why, reason)

    def _begin_rolling(self, reload: _Reload) -> None:
        reload.rolling = True
        self._generation += 1
        self._board.generation = self._generation
        now = time.monotonic()
        for worker in self._workers:
            worker.mark_stale(reload.reason, now)
        for seat in self._seats.values():
            seat.forgive()  # what they died of may well be mended

    def _check_reload(self, reload: _Reload) -> None:
        """Whether all workers that are to stay are new and ready, and the others accept no more."""
        if not reload.rolling:
            return
        wanted = 0 if self._asleep or self._withdrawn else self._wanted
        fresh = [worker for worker in self._workers if worker.state is READY and not worker.stale]
        old = [worker for worker in self._workers if worker.stale == reload.reason and not worker.left]
        if old or len(fresh) < wanted:
            return
        self._reload = None
        self._announced = True
        self._nursery.let_go()
        number = f"{len(fresh)} workers" if len(fresh) > 1 else "a new worker" if fresh else "workers will come"
        self._report(INFO, f"{reload.why}: done, {number} for {self._name}")
        self._notifier.ready(f"serving {self._name}")
        self._start_metrics()

    def _roll_back(self, reload: _Reload, told: str) -> None:
        """New workers do not get ready: those of before serve on, and what they were made from stays in use."""
        self._reload = None
        self._chosen = reload.chosen
        self._holdings.errors.set_level(reports.LEVELS[self._chosen.log_level])
        self._nursery.go_back(reload.nest)
        for worker in self._workers:
            if worker.stale == reload.reason and worker.state is READY:
                worker.stale = ""
        try:
            self._go_where_it_is(self._chosen)
        except (UsageError, OSError):
            pass  # that directory has gone; the next reload will say so
        self._report(ERROR, f"{reload.why}: given up, and the workers of before serve on: {told}")
        self._announced = True
        self._notifier.ready(f"serving {self._name}; {reload.why} was given up: {told.partition(chr(10))[0]}")
        self._start_metrics()

    # Zygotes

    def _make_zygote(self, why: str, reason: str) -> None:
        try:
            self._nursery.make(self._outfit(), why, reason)
        except OSError as error:
            self._could_not_start({"text": f"no zygote could be forked: {assembly.reason(error)}"}, "", None)

    def zygote_ready(self, nest: Nest) -> None:
        self._is_called(nest.name)
        if nest.threads:
            self._report(
                WARNING,
                "--preload: importing the application has started threads, which will be in no worker: "
                f"{', '.join(nest.threads)}; start them in the first request, or leave --preload away",
            )
        self._nursery.promote()
        if self._reload is not None and not self._reload.rolling:
            self._begin_rolling(self._reload)
        elif self._reload is None:
            self._nursery.let_go()

    def zygote_failed(self, nest: Nest, code: int) -> None:
        how = f"the zygote (pid {nest.pid}) {how_ended(code)}"
        if not nest.name:
            self._could_not_start(nest.failure or {}, f"{how} before it had imported the application", None)
        elif self._ending < _STOPPING:
            self._report(ERROR, f"{how}; another one is made when a worker is missing")

    # Signals

    def _on_signals(self) -> None:
        for number in self._wakeup.read():
            name = signal.Signals(number).name
            getattr(self, f"_on_{name.lower()}")(name)

    def _on_sigchld(self, _name: str) -> None:
        self._reap()

    def _on_sigterm(self, name: str) -> None:
        if self._ending >= _STOPPING:
            self._stop_all(_STOPPING_AT_ONCE, 0.0)
        elif self._chosen.drain_delay and not self._ending:
            self._drain(name)
        else:
            self._end(name, _STOPPING, self._chosen.graceful_timeout)

    def _on_sigint(self, name: str) -> None:
        if self._ending >= _STOPPING_FAST:
            self._stop_all(_STOPPING_AT_ONCE, 0.0)
        else:
            self._end(name, _STOPPING_FAST, FAST_TIMEOUT)

    _on_sigquit = _on_sigint

    def _on_sighup(self, name: str) -> None:
        self._begin_reload(name)

    def _on_sigusr1(self, name: str) -> None:
        try:
            self._holdings.give_logs(self._chosen)
            self._holdings.errors.reopen()
        except OSError as error:
            self._report(ERROR, f"{name}: a log cannot be opened again, and the old file stays: {error}")
        self._signal_workers(signal.SIGUSR1)

    def _on_sigpwr(self, name: str) -> None:
        states = ", ".join(f"{worker} {worker.state}" for worker in self._workers) or "no worker"
        reports.say_dump(f"kirsch supervisor, pid {os.getpid()}, generation {self._generation}: {states}\n")
        self._signal_workers(int(signal.Signals[name]))

    _on_siginfo = _on_sigpwr

    def _signal_workers(self, number: int) -> None:
        for worker in self._workers:
            # One that is not ready yet has no handler, and opens its logs anew anyway.
            if worker.state is not STARTING:
                kill(worker.pid, number)

    def _on_sigttin(self, name: str) -> None:
        self._change_wanted(name, +1)

    def _on_sigttou(self, name: str) -> None:
        self._change_wanted(name, -1)

    def _change_wanted(self, name: str, by: int) -> None:
        wanted = self._wanted + by
        if self._ending:
            return
        if wanted < max(self._holdings.sets, 1):
            least = "one worker is the least; SIGWINCH ends that too"
            sockets = f"with --reuse-port each of the {self._holdings.sets} sets of sockets needs a worker"
            self._report(WARNING, f"{name}: {sockets if self._holdings.sets else least}")
        elif 2 * wanted > self._board.slots:
            self._report(WARNING, f"{name}: no room for more than {self._wanted} workers; restart with --workers")
        else:
            self._wanted = wanted
            self._report(INFO, f"{name}: {wanted} {'worker' if wanted == 1 else 'workers'} from now on")

    def _on_sigwinch(self, name: str) -> None:
        if self._ending or has_terminal():
            return  # somebody has resized a window
        self._withdrawn = True
        self._report(INFO, f"{name}: the workers end; SIGHUP brings them back")

    def _on_sigusr2(self, name: str) -> None:
        if self._ending:
            return
        if self._check is not None:
            self._report(WARNING, f"{name}: an upgrade is under way already")
            return
        self._report(INFO, f"{name}: checking the new installation")
        timeout = self._chosen.startup_timeout
        try:
            self._check = upgrade.Check(self._chosen, time.monotonic() + timeout if timeout else NEVER)
        except OSError as error:
            self._report(ERROR, f"{name}: the new installation cannot be run: {assembly.reason(error)}")
        else:
            self.attend(self._check.fileno(), self._hear_check)

    # The end

    def _end(self, name: str, ending: int, timeout: float) -> None:
        self._notifier.stopping(name, timeout + self._chosen.shutdown_timeout)
        how = f"up to {timeout:g} s for the requests in flight" if timeout else "at once"
        self._explanation = f"{name}: stopping, {how}"
        self._explained_at = time.monotonic() + _SILENCE_SECONDS
        self._stop_all(ending, timeout)

    def _drain(self, name: str) -> None:
        seconds = self._chosen.drain_delay
        self._ending = _DRAINING
        self._drained_at = time.monotonic() + seconds
        self._report(INFO, f"{name}: serving on for {seconds:g} s while load balancers look elsewhere")
        patience = seconds + self._chosen.graceful_timeout + self._chosen.shutdown_timeout
        self._notifier.stopping(f"{name}: draining", patience)
        for worker in self._workers:
            worker.channel.send("drain")
            if worker.slot is not None and worker.state is READY:
                worker.slot.state = DRAINING

    def _stop_all(self, ending: int, timeout: float) -> None:
        """End all workers within ``timeout``, from now on without anybody who listens. May be called again."""
        self._ending = ending
        self._drained_at = self._look_at = NEVER
        self._reload = None
        self._leavers.clear()
        self._stop_knocks()
        # Else newcomers would queue for nobody; what has queued already the workers still take.
        self._holdings.close_sockets()
        self._nursery.dismiss_all()
        if self._check is not None:
            self._check.give_up()
        for worker in self._workers:
            self._tell_to_stop(worker, "the end", timeout, None)
            if ending == _STOPPING_AT_ONCE:
                worker.deadline = min(worker.deadline, time.monotonic() + _AT_ONCE_SECONDS)

    def _finish(self) -> int:
        self._wakeup.end()
        kill(self._metrics_pid, signal.SIGTERM)
        if self._watch is not None:
            self._watch.close()
        self._holdings.discard()
        return self._exit_status

    # Looking around: inactivity, scaling, files that change

    def _start_watching(self) -> None:
        """Raises AssemblyError."""
        chosen = self._chosen
        if not (chosen.reload or chosen.touch_reload):
            return
        from kirsch.supervisor import watching

        self._touches = watching.Touches(chosen.touch_reload) if chosen.touch_reload else None
        if not chosen.reload:
            return
        # It watches where the application's modules are. Those of the same name as one that the supervisor has yet to
        # import must not stay in its way.
        path = sys.path.copy()
        assembly.extend_path(chosen)
        try:
            self._watch = watching.Watch(chosen.reload_extra_files)
        except watching.WatchError as error:
            raise assembly.AssemblyError(assembly.EXIT_FAILED, str(error)) from None
        finally:
            sys.path[:] = path
        self.attend(self._watch.fileno(), self._on_change)

    def _on_change(self) -> None:
        from kirsch.supervisor import watching

        assert self._watch is not None
        try:
            changed = self._watch.read()
        except watching.WatchError as error:
            self._report(ERROR, str(error))
            self._selector.unregister(self._watch.fileno())
            self._watch.close()
            self._watch = None
        else:
            if changed:
                self._begin_reload(f"{os.path.relpath(changed[0])} has changed")

    def _plan_look(self) -> None:
        chosen = self._chosen
        interval = NEVER
        if chosen.max_workers or self._touches is not None:
            interval = LOOK_SECONDS
        if chosen.inactivity_timeout and not self._asleep:
            interval = min(interval, LOOK_SECONDS, chosen.inactivity_timeout / 4)
        self._look_at = time.monotonic() + interval

    def _look(self, now: float) -> None:
        if self._touches is not None and (touched := self._touches.look()):
            self._begin_reload(f"{touched[0]} was touched")
        if self._ending or self._asleep or self._withdrawn:
            return
        chosen, activity = self._chosen, self._activity
        serving = [worker for worker in self._workers if worker.state is READY]
        activity.look(now, serving)
        if chosen.max_workers:
            load = activity.load(now, serving, chosen.threads if chosen.driver == "threads" else 0)
            least = max(chosen.min_workers, self._holdings.sets)
            wanted = self._scaler.wanted(now, self._wanted, least, max(chosen.max_workers, least), load)
            if wanted != self._wanted:
                counted = f"{activity.busy} requests run, {activity.queued} wait"
                self._report(INFO, f"{wanted} workers from now on, and not {self._wanted}: {counted}")
                self._wanted = wanted
        is_inactive = chosen.inactivity_timeout and now - activity.idle_since >= chosen.inactivity_timeout
        if is_inactive and serving and self._reload is None:
            self._fall_asleep()

    def _fall_asleep(self) -> None:
        """End all workers, and the zygote; from now on this process watches the sockets, though it never accepts."""
        self._asleep = True
        seconds = f"{self._chosen.inactivity_timeout:g} s"
        self._report(INFO, f"no request for {seconds}: the workers end, and the next connection starts them again")
        self._notifier.status(f"asleep: no request for {seconds}")
        self._nursery.dismiss_all()
        for worker in self._workers:
            worker.mark_stale("inactivity", time.monotonic())
        if not self._sees_knocks:
            self._sees_knocks = True
            for listener in self._holdings.listeners:
                self.attend(listener.socket.fileno(), self._on_knock)

    def _on_knock(self) -> None:
        self._stop_knocks()
        self._asleep = False
        self._activity.idle_since = time.monotonic()
        self._notifier.status(f"serving {self._name}")
        for number in range(self._wanted):
            self._seat(number).reason = "knock"
        self._plan_look()

    def _stop_knocks(self) -> None:
        if self._sees_knocks:
            self._sees_knocks = False
            for listener in self._holdings.listeners:
                self._selector.unregister(listener.socket.fileno())

    # The child behind --metrics-bind

    def _start_metrics(self) -> None:
        """Once there is something to tell; after an upgrade this is another one."""
        held, board = self._holdings, self._board
        if not held.metrics or self._metrics_pid:
            return
        from kirsch.supervisor import metrics_child

        def main() -> int:
            held.close_sockets()
            if held.identity is not None:
                privileges.drop(held.identity)
            titles.other("metrics", board.application)
            return metrics_child.run(board, held.metrics, held.errors)

        try:
            self._metrics_pid = self.fork(main)
            self._metrics_at = time.monotonic()
        except OSError as error:
            self._report(ERROR, f"metrics are not served: {assembly.reason(error)}")

    # Upgrading

    def _hear_check(self) -> None:
        assert self._check is not None
        if not self._check.read():
            self._selector.unregister(self._check.fileno())

    def _checked(self, check: upgrade.Check, code: int) -> None:
        """The new installation has looked at itself."""
        self._check = None
        if check.fileno() in self._selector.get_map():
            self._selector.unregister(check.fileno())
        output = check.finish()
        if self._ending:
            return
        if code == 0:
            self._upgrade()
        else:
            output = output or f"it {how_ended(code)}"
            self._report(ERROR, f"SIGUSR2: the new installation does not start, and this one serves on:\n{output}")

    def _upgrade(self) -> None:
        """Become the new installation, with the same sockets and workers. Returns only where that fails."""
        self._nursery.dismiss_all()
        for worker in self._workers:
            if worker.state is STARTING:
                self._tell_to_stop(worker, "upgrade", self._chosen.graceful_timeout, None)
        kill(self._metrics_pid, signal.SIGTERM)
        self._metrics_pid = 0
        if self._watch is not None:
            self._selector.unregister(self._watch.fileno())
            self._watch.close()
            self._watch = None
        os.set_inheritable(self._board.fd, True)
        state = {
            **self._holdings.export(),
            "board": self._board.fd,
            "generation": self._generation,
            "served": self._served,
            "wanted": self._wanted if self._wanted != self._chosen.workers else 0,
            "workers": [worker.export() for worker in self._workers],
        }
        try:
            upgrade.become(self._chosen, state, [worker.channel for worker in self._workers])
        except OSError as error:
            os.set_inheritable(self._board.fd, False)
            self._holdings.stay()
            self._report(ERROR, f"SIGUSR2: the new installation cannot be run: {assembly.reason(error)}; serving on")
            self._start_metrics()
            self._start_watching()


def _scoreboard(chosen: Settings, state: upgrade.State | None) -> Scoreboard:
    """That of the image before, or a new one. Raises OSError."""
    if state is not None:
        os.set_inheritable(state["board"], False)
        try:
            return Scoreboard.adopt(state["board"])
        except (OSError, ValueError):
            # Of another version. Counters begin anew, and what the workers of before do nobody sees.
            os.close(state["board"])
            state["board"] = None
    return Scoreboard.create(2 * max(chosen.workers, chosen.max_workers) + _SLOTS_SPARE)
