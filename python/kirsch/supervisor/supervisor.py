"""The loop of the parent process, and what each event leads to.

It waits in one place (``waiting.py``), for signals, for messages and ends of children, for listening sockets while
nobody serves, and for moments. Each event changes what is *wanted* (how many workers, which of them are stale) or what
*is*, both of which stand in :class:`service.Service`; what has to be done about the difference is decided in one place
too (:meth:`Supervisor._reconcile`, with :func:`crew.plan`).

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
import signal
import time
from functools import partial

from kirsch import assembly, reports
from kirsch.reports import CRITICAL, ERROR, INFO, WARNING
from kirsch.scoreboard import Scoreboard
from kirsch.server import FAST_TIMEOUT
from kirsch.supervisor import forking, upgrade, zygote
from kirsch.supervisor import worker as workers
from kirsch.supervisor.changes import Changes
from kirsch.supervisor.crew import NEVER, READY, plan
from kirsch.supervisor.crew import STOPPING as STOPPING_WORKER
from kirsch.supervisor.engine_group import EngineGroup
from kirsch.supervisor.exhibition import Exhibition
from kirsch.supervisor.holdings import Holdings
from kirsch.supervisor.lookout import Lookout
from kirsch.supervisor.notify import Notifier
from kirsch.supervisor.nursery import Nest, Nursery
from kirsch.supervisor.reloading import Reloading
from kirsch.supervisor.service import DRAINING, STOPPING, STOPPING_AT_ONCE, STOPPING_FAST, Generation, Service
from kirsch.supervisor.system import has_terminal, how_ended
from kirsch.supervisor.upgrading import Upgrading
from kirsch.supervisor.waiting import Waiting
from kirsch.supervisor.wakeup import Wakeup
from kirsch.supervisor.workforce import Workforce

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.settings import Settings
    from kirsch.supervisor.control import Channel, Message

# A second INT or QUIT ends workers at once; one that does not even manage that is killed after this.
_AT_ONCE_SECONDS = 1.0

# An end that comes sooner needs no explanation.
_SILENCE_SECONDS = 1.0

# On the scoreboard each seat has two workers for the time of a replacement, and some more linger.
_SLOTS_SPARE = 64


def supervise(chosen: Settings, version: str) -> int:
    """Serve under a supervisor until a signal ends it; returns the exit status. To be called by :func:`forking.run`.

    Raises AssemblyError and UsageError for what can be refused before there is a worker.
    """
    return Supervisor(chosen, version).run()


class Supervisor:
    def __init__(self, chosen: Settings, version: str) -> None:
        """Have all that can be refused. Raises AssemblyError or UsageError."""
        state = upgrade.receive()
        self._version = version
        self._service = service = _open(chosen, state)
        self._waiting = waiting = Waiting()
        self._wakeup = Wakeup()
        waiting.attend(self._wakeup.fileno(), self._on_signals)
        self._nursery = nursery = Nursery(waiting, self)
        self._workforce = workforce = Workforce(service, waiting, nursery, self)
        self._exhibition = exhibition = Exhibition(service, self)
        self._reloading = Reloading(service, nursery, workforce, exhibition.start)
        self._lookout = Lookout(service, waiting, nursery, self._reloading)
        self._changes = changes = Changes(service, waiting, self._reloading.begin)
        self._upgrading = Upgrading(service, waiting, workforce, nursery, changes, exhibition, self._wakeup)
        self._watchdog_at = 0.0 if service.notifier.watchdog_interval else NEVER
        self._drained_at = NEVER
        self._explained_at = NEVER
        self._explanation = ""
        self._is_upgrade = state is not None
        self._adopted_workers = False
        self._upgraded_workers: int | None = None
        try:
            changes.start()
        except BaseException:
            service.held.discard()
            raise
        if state is not None:
            self._adopt(state)

    def _adopt(self, state: upgrade.State) -> None:
        """Go on where the image before this one has left off."""
        service = self._service
        service.served = state["served"]
        handed_over = [each for each in state["workers"] if each["state"] != STOPPING_WORKER]
        wanted, room = state["wanted"] or service.chosen.workers, service.board.slots // 2
        if wanted > room:
            service.report(ERROR, f"SIGUSR2: there is room for {room} workers; a restart makes room for {wanted}")
            wanted = room
        # Until a worker of this image is ready, there are as many as there were.
        service.wanted = 1 + max((each["seat"] for each in handed_over), default=wanted - 1)
        self._upgraded_workers = wanted
        self._workforce.adopt(state["workers"], None if state["board"] is None else service.board)

    def run(self) -> int:
        service = self._service
        reports.say(self._version)
        service.show_title()
        self._import_what_workers_need()
        self._adopted_workers = bool(service.workers)
        if self._adopted_workers:
            self._reloading.replace_all("SIGUSR2", "upgrade", self._upgraded_workers)
        while True:
            self._do_what_is_due(time.monotonic())
            self._reconcile(time.monotonic())
            if service.is_stopping and not service.workers:
                return self._finish()
            self._waiting.wait(self._next_due(time.monotonic()), self._wakeup.fileno())

    def _import_what_workers_need(self) -> None:
        """Here, once, instead of in each of them; and so that a reload after the package has been replaced does not
        mix two versions of it."""
        if self._service.chosen.driver == "threads":
            from kirsch.drivers import threads  # noqa: F401

    # Moments

    def _next_due(self, now: float) -> float:
        due = [self._watchdog_at, self._drained_at, self._explained_at]
        due += [self._workforce.due(), self._nursery.check_time(now)[0]]
        due += [self._lookout.due(), self._changes.due(), self._upgrading.due()]
        not_before = [seat.backoff.not_before for seat in self._service.seats()]
        due += [moment for moment in not_before if moment > now]
        return min(due)

    def _do_what_is_due(self, now: float) -> None:
        service = self._service
        if now >= self._watchdog_at:
            service.notifier.watchdog()
            self._watchdog_at = now + service.notifier.watchdog_interval
        if now >= self._drained_at:
            self._end("SIGTERM", STOPPING, service.chosen.graceful_timeout)
        self._changes.look(now)
        self._lookout.look(now)
        if now >= self._explained_at:
            self._explained_at = NEVER
            service.report(INFO, self._explanation)
        self._workforce.look(now)
        for nest in self._nursery.check_time(now)[1]:
            nest.failure = {"text": f"the application was not imported within {nest.timeout:g} s (--startup-timeout)"}
            service.report(
                CRITICAL, f"the zygote (pid {nest.pid}) was not ready within {nest.timeout:g} s; it is killed"
            )
        self._upgrading.look(now)

    # What is wanted, and what is

    def _reconcile(self, now: float) -> None:
        """Start, replace and stop workers until what is there is what is wanted; one step of it."""
        service, workforce = self._service, self._workforce
        if service.is_stopping:
            return
        self._reloading.step(now)
        steps = plan((worker for worker in service.workers if not service.is_trial(worker)), service.needed)
        for worker in steps.stop:
            workforce.retire(worker)
        # What a reload tries may replace those that are stale too.
        replace = None if self._reloading.is_trying else steps.replace
        if (steps.start or replace is not None) and workforce.can_start(now):
            for number in steps.start:
                workforce.start(number, now, service.seat(number).reason)
            if replace is not None:
                old = next(each for each in service.workers if each.seat == replace and each.stale)
                workforce.start(replace, now, old.stale)
        if not service.announced and not self._reloading:
            self._announce()

    def _announce(self) -> None:
        """Say what is served, once all first workers are ready."""
        service = self._service
        if sum(worker.state is READY for worker in service.workers) < service.wanted:
            return
        service.announced = True
        several = f", {service.wanted} workers" if service.wanted > 1 else ""
        if self._is_upgrade:
            if not self._adopted_workers:  # else the end of their replacement has been reported
                number = f"{service.wanted} workers" if service.wanted > 1 else "a new worker"
                service.report(INFO, f"SIGUSR2: done, {number} for {service.name}")
        else:
            urls = dict.fromkeys(listener.url for listener in service.held.listeners)
            reports.say(f"serving {service.name}{several}\non {', '.join(urls)}")
            if service.held.metrics:
                reports.say(f"metrics on {', '.join(listener.url for listener in service.held.metrics)}")
            if watched := self._changes.describe():
                reports.say(watched)
        service.notifier.ready(f"serving {service.name}{several}")
        self._exhibition.start()

    # Children

    def fork(self, main: Callable[[], int], *channels: Channel) -> int:
        """Fork a child that closes ``channels`` and does ``main``; returns its pid. Raises OSError."""
        return forking.fork(main, partial(self._leave, channels))

    def _leave(self, channels: tuple[Channel, ...]) -> None:
        """In a new child: close what is the supervisor's alone. The rest is freed with the stack."""
        workers.set_signals()
        self._waiting.close()
        self._wakeup.close()
        for worker in self._service.workers:
            worker.channel.close()
        for nest in self._nursery.all():
            nest.channel.close()
        for channel in channels:
            channel.close()
        self._service.board.close_fd()
        self._changes.close()
        self._upgrading.close()

    def _on_sigchld(self, _name: str) -> None:
        """Wait for every child that has ended; those that we do not know were orphans, or are of an image before."""
        knowers = (self._workforce.ended, self._upgrading.ended, self._exhibition.ended, self._nursery.ended)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            for ended in knowers:
                if ended(pid, code):
                    break

    def could_not_start(self, failure: Message, otherwise: str, seat: int | None, *, is_trial: bool) -> None:
        """A worker, or a zygote (then there is no ``seat``), did not get ready; ``is_trial``: it was a reload's."""
        service = self._service
        if service.is_stopping:
            return
        text, trace = str(failure.get("text", otherwise)), str(failure.get("traceback", ""))
        told = f"{text}\n{trace}" if trace else text
        if is_trial:
            summary = failure.get("summary")
            self._reloading.fail(f"{summary}\n{told}" if summary else told)
        elif not service.served:
            # It cannot even start: say why, once for all workers, and end.
            reports.say_failure(text, trace)
            status = failure.get("status")
            service.exit_status = status if isinstance(status, int) and status else assembly.EXIT_NOT_LOADED
            self._stop_all(STOPPING, 0.0)
        else:
            wait = self._nursery.failed() if seat is None else self._workforce.failed(seat)
            service.report(ERROR, f"no worker could be started, the next try is in {wait:g} s: {told}")
            self._reloading.could_not_start(told)

    def zygote_ready(self, nest: Nest) -> None:
        if nest.threads:
            self._service.report(
                WARNING,
                "--preload: importing the application has started threads, which will be in no worker: "
                f"{', '.join(nest.threads)}; start them in the first request, or omit --preload",
            )
        if nest is self._nursery.current:
            self._service.is_called(nest.name)

    def zygote_failed(self, nest: Nest, code: int, *, is_trial: bool) -> None:
        how = f"the zygote (pid {nest.pid}) {how_ended(code)}"
        if not nest.name or is_trial:
            otherwise = how if nest.name else f"{how} before it had imported the application"
            self.could_not_start(nest.failure or {}, otherwise, None, is_trial=is_trial)
        elif not self._service.is_stopping:
            self._service.report(ERROR, f"{how}; another one is made when a worker is missing")

    # Signals

    def _on_signals(self) -> None:
        for number in self._wakeup.signals():
            name = signal.Signals(number).name
            getattr(self, f"_on_{name.lower()}")(name)

    def _on_sigterm(self, name: str) -> None:
        service = self._service
        if service.is_stopping:
            self._stop_all(STOPPING_AT_ONCE, 0.0)
        elif service.chosen.drain_delay and not service.ending:
            self._drain(name)
        else:
            self._end(name, STOPPING, service.chosen.graceful_timeout)

    def _on_sigint(self, name: str) -> None:
        if self._service.ending >= STOPPING_FAST:
            self._stop_all(STOPPING_AT_ONCE, 0.0)
        else:
            self._end(name, STOPPING_FAST, FAST_TIMEOUT)

    _on_sigquit = _on_sigint

    def _on_sighup(self, name: str) -> None:
        self._reloading.begin(name)

    def _on_sigusr1(self, name: str) -> None:
        service = self._service
        try:
            service.held.give_logs(service.chosen)
            service.held.errors.reopen()
        except OSError as error:
            service.report(ERROR, f"{name}: a log cannot be opened again, and the old file stays: {error}")
        self._workforce.signal(signal.SIGUSR1)

    def _on_sigusr2(self, name: str) -> None:
        self._upgrading.begin(name)

    def _on_sigpwr(self, name: str) -> None:
        service = self._service
        states = ", ".join(f"{worker} {worker.state}" for worker in service.workers) or "no worker"
        reports.say_dump(f"kirsch supervisor, pid {os.getpid()}, generation {service.current.number}: {states}\n")
        self._workforce.signal(int(signal.Signals[name]))

    _on_siginfo = _on_sigpwr

    def _on_sigttin(self, name: str) -> None:
        self._change_wanted(name, +1)

    def _on_sigttou(self, name: str) -> None:
        self._change_wanted(name, -1)

    def _change_wanted(self, name: str, by: int) -> None:
        service = self._service
        wanted, sets = service.wanted + by, service.held.sets
        if service.ending:
            return
        if wanted < max(sets, 1):
            least = "one worker is the least; SIGWINCH ends that too"
            sockets = f"with --reuse-port each of the {sets} sets of sockets needs a worker"
            service.report(WARNING, f"{name}: {sockets if sets else least}")
        elif 2 * wanted > service.board.slots:
            service.report(WARNING, f"{name}: no room for more than {service.wanted} workers; restart with --workers")
        else:
            service.wanted = wanted
            service.report(INFO, f"{name}: {wanted} {'worker' if wanted == 1 else 'workers'} from now on")

    def _on_sigwinch(self, name: str) -> None:
        if self._service.ending or has_terminal():
            return  # somebody has resized a window
        self._service.withdrawn = True
        self._reloading.stay_withdrawn()
        self._service.report(INFO, f"{name}: the workers end; SIGHUP brings them back")

    # The end

    def _drain(self, name: str) -> None:
        service, chosen = self._service, self._service.chosen
        seconds = chosen.drain_delay
        service.ending = DRAINING
        self._drained_at = time.monotonic() + seconds
        service.report(INFO, f"{name}: serving on for {seconds:g} s while load balancers look elsewhere")
        patience = seconds + chosen.graceful_timeout + chosen.shutdown_timeout
        service.notifier.stopping(f"{name}: draining", patience)
        self._reloading.abandon()
        self._workforce.drain()

    def _end(self, name: str, ending: int, timeout: float) -> None:
        service = self._service
        service.notifier.stopping(name, timeout + service.chosen.shutdown_timeout)
        how = f"up to {timeout:g} s for the requests in flight" if timeout else "at once"
        self._explanation = f"{name}: stopping, {how}"
        self._explained_at = time.monotonic() + _SILENCE_SECONDS
        self._stop_all(ending, timeout)

    def _stop_all(self, ending: int, timeout: float) -> None:
        """End all workers within ``timeout``, from now on without anybody who listens. May be called again."""
        service = self._service
        service.ending = ending
        self._drained_at = NEVER
        self._reloading.abandon()
        self._workforce.stop_explaining()
        self._lookout.stop()
        # Else newcomers would queue for nobody; what has queued already the workers still take.
        service.held.close_sockets()
        self._nursery.dismiss_all()
        self._upgrading.give_up()
        for worker in service.workers:
            self._workforce.tell_to_stop(worker, "the end", timeout, None)
            if ending == STOPPING_AT_ONCE:
                worker.deadline = min(worker.deadline, time.monotonic() + _AT_ONCE_SECONDS)

    def _finish(self) -> int:
        self._wakeup.end()
        self._exhibition.stop()
        self._changes.close()
        self._service.held.discard()
        return self._service.exit_status


def _open(chosen: Settings, state: upgrade.State | None) -> Service:
    """What the service needs before there is a worker: opened, or taken over. Raises AssemblyError or UsageError."""
    try:
        if chosen.preload:
            zygote.adopt_orphans()
        held = Holdings(chosen, state)
        try:
            board = _scoreboard(chosen, state)
        except BaseException:
            held.discard()
            raise
        number = 1 if state is None else int(state["generation"])
        current = Generation(number, chosen, path=os.curdir)
    except OSError as error:
        raise assembly.AssemblyError(assembly.EXIT_FAILED, assembly.reason(error)) from None
    return Service(current, held, board, _group(board, state), Notifier())


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


def _group(board: Scoreboard, state: upgrade.State | None) -> EngineGroup:
    """That of the image before, whose workers go on in it, or a new one."""
    fds = [] if state is None else state.get("group", [])
    if state is not None and state["board"] is None:
        for fd in fds:
            os.close(fd)  # its records are on another board
        fds = []
    return EngineGroup(board, fds)
