"""The supervisor's event loop, and the effect of each event.

The supervisor waits only in ``event_loop.py``: for signals, messages and exits of its children, timers, and, while it
has no worker, for connections on the listening sockets. An event changes the *wanted* state (how many workers, which of
them are stale) or the *actual* state. :class:`service.Service` has both. One method removes the difference between
them: :meth:`Supervisor._reconcile`, with :func:`worker_plan.plan`.

    signal or event               wanted state from then on
    TERM                          no worker, after a graceful stop; with --drain-delay, the workers drain first
    INT, QUIT                     no worker, within a second; the second such signal: at once
    HUP, --reload, --touch-reload every worker is stale; the settings are read again; a WINCH is undone
    USR1                          the logs are reopened, here and in the workers
    USR2                          the new version of this program takes over the sockets and the workers (upgrade.py)
    TTIN, TTOU                    one worker more, one less
    WINCH                         no worker, after a graceful stop; the supervisor stays (ignored in a terminal)
    PWR                           no change; every worker writes its running requests to stderr
    a worker asks for replacement it is stale
    a worker exits                its index needs another worker
    no request for a long time    no worker, until the next connection
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from kirsch import bootstrap, reports
from kirsch.groups.connector import Connector
from kirsch.monitor.scoreboard import Scoreboard
from kirsch.reports import CRITICAL, ERROR, INFO, WARNING
from kirsch.serving import FAST_TIMEOUT
from kirsch.supervisor import forking, upgrade, worker_process, zygote_process
from kirsch.supervisor.acme_manager import AcmeManager
from kirsch.supervisor.autoscaler import Autoscaler
from kirsch.supervisor.certificates import CertificateManager
from kirsch.supervisor.engine_group import EngineGroup
from kirsch.supervisor.event_loop import EventLoop
from kirsch.supervisor.metrics_manager import MetricsManager
from kirsch.supervisor.notify import Notifier
from kirsch.supervisor.quarantine import Quarantine
from kirsch.supervisor.relay_manager import RelayManager
from kirsch.supervisor.reload_manager import ReloadManager
from kirsch.supervisor.reload_triggers import ReloadTriggers
from kirsch.supervisor.resources import Resources
from kirsch.supervisor.service import DRAINING, STOPPING, STOPPING_AT_ONCE, STOPPING_FAST, Generation, Service
from kirsch.supervisor.signal_pipe import SignalPipe
from kirsch.supervisor.system import has_terminal, how_ended
from kirsch.supervisor.upgrade_manager import UpgradeManager
from kirsch.supervisor.worker_manager import WorkerManager
from kirsch.supervisor.worker_plan import NEVER, READY, SERVES_ITSELF, plan
from kirsch.supervisor.worker_plan import STOPPING as STOPPING_WORKER
from kirsch.supervisor.zygote_pool import Zygote, ZygotePool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.config.schema import Settings
    from kirsch.supervisor.control import Channel, Message

# After a second INT or QUIT, a worker that has not exited within this many seconds is killed.
_AT_ONCE_SECONDS = 1.0

# A stop that takes fewer seconds is not reported.
_SILENCE_SECONDS = 1.0

# The scoreboard has two slots for each worker index, for a worker and its successor, and this many for slowly stopping
# workers.
_SLOTS_SPARE = 64


def supervise(chosen: Settings, version: str) -> int:
    """Run a supervisor until a signal stops it; return the exit status. :func:`forking.run` calls this. Raises
    StartupError and UsageError for errors that are found before the first worker starts.
    """
    try:
        supervisor = Supervisor(chosen, version)
    except OSError as error:
        raise bootstrap.StartupError(bootstrap.EXIT_FAILED, bootstrap.reason(error)) from None
    return supervisor.run()


class Supervisor:
    def __init__(self, chosen: Settings, version: str) -> None:
        """Acquire all resources. Raises StartupError or UsageError."""
        state = upgrade.receive()
        self._version = version
        self._service = service = _open(chosen, state)
        self._loop = loop = EventLoop()
        self._signal_pipe = SignalPipe()
        loop.add_reader(self._signal_pipe.fileno(), self._on_signals)
        self._zygotes = zygotes = ZygotePool(loop, self)
        self._quarantine = quarantine = Quarantine(service)
        self._worker_manager = worker_manager = WorkerManager(service, loop, zygotes, quarantine, self)
        self._metrics_manager = metrics_manager = MetricsManager(service, self)
        self._acme_manager = AcmeManager(service, self)
        relay = {} if state is None else state.get("relay", {})
        self._relay_manager = relay_manager = RelayManager(service, loop, self, relay.get("pid", 0))
        self._reload_manager = ReloadManager(service, zygotes, worker_manager, metrics_manager.start)
        self._autoscaler = Autoscaler(service, loop, zygotes, self._reload_manager)
        self._reload_triggers = triggers = ReloadTriggers(service, loop, self._reload_manager.begin)
        self._upgrade_manager = UpgradeManager(
            service,
            loop,
            worker_manager,
            zygotes,
            self._reload_manager,
            triggers,
            (metrics_manager, self._acme_manager),
            relay_manager,
            self._signal_pipe,
        )
        self._watchdog_at = 0.0 if service.notifier.watchdog_interval else NEVER
        self._drain_until = NEVER
        self._explain_at = NEVER
        self._explanation = ""
        self._is_upgrade = state is not None
        self._adopted_workers = False
        self._upgraded_workers: int | None = None
        service.certificates.begin(worker_manager.announce_certificates)
        try:
            triggers.start()
        except BaseException:
            service.resources.discard()
            raise
        if state is not None:
            self._adopt(state)

    def _adopt(self, state: upgrade.State) -> None:
        """Continue from the state of the previous image of this program."""
        service = self._service
        service.served = state["served"]
        handed_over = [each for each in state["workers"] if each["state"] != STOPPING_WORKER]
        wanted, room = state["wanted"] or service.chosen.workers, service.board.slots // 2
        if wanted > room:
            service.report(ERROR, f"SIGUSR2: there is room for {room} workers; a restart makes room for {wanted}")
            wanted = room
        # Until the first worker of this image is ready, keep the previous number of workers.
        service.wanted = 1 + max((each["index"] for each in handed_over), default=wanted - 1)
        self._upgraded_workers = wanted
        self._worker_manager.adopt(state["workers"], None if state["board"] is None else service.board)

    def run(self) -> int:
        service = self._service
        reports.write_stderr(self._version)
        service.show_title()
        self._import_what_workers_need()
        self._adopted_workers = bool(service.workers)
        if self._adopted_workers:
            self._reload_manager.replace_all("SIGUSR2", "upgrade", self._upgraded_workers)
        while True:
            self._run_due(time.monotonic())
            self._reconcile(time.monotonic())
            if service.is_stopping and not service.workers:
                return self._finish()
            self._loop.run_once(self._next_due(time.monotonic()), self._signal_pipe.fileno())

    def _import_what_workers_need(self) -> None:
        """Import the driver in the supervisor, once for all workers. So a reload after the package was replaced does
        not mix two versions of it."""
        if self._service.chosen.driver == "threads":
            from kirsch.drivers import threads  # noqa: F401

    # Timers

    def _next_due(self, now: float) -> float:
        due = [self._watchdog_at, self._drain_until, self._explain_at]
        due += [self._worker_manager.due(), self._zygotes.check_time(now)[0]]
        due += [self._autoscaler.due(), self._reload_triggers.due(), self._quarantine.due()]
        due += [self._reload_manager.due(), self._upgrade_manager.due(), self._service.certificates.due()]
        due += [self._acme_manager.due(), self._relay_manager.due()]
        not_before = [state.backoff.not_before for state in self._service.index_states()]
        due += [moment for moment in not_before if moment > now]
        return min(due)

    def _run_due(self, now: float) -> None:
        service = self._service
        service.board.count_dropped_log_lines(reports.dropped_lines())
        if now >= self._watchdog_at:
            service.notifier.watchdog()
            self._watchdog_at = now + service.notifier.watchdog_interval
        if now >= self._drain_until:
            self._end("SIGTERM", STOPPING, service.chosen.graceful_timeout)
        self._reload_triggers.run_due(now)
        service.certificates.run_due(now)
        self._acme_manager.run_due(now)
        self._relay_manager.run_due(now)
        self._autoscaler.run_due(now)
        if now >= self._explain_at:
            self._explain_at = NEVER
            service.report(INFO, self._explanation)
        self._worker_manager.run_due(now)
        self._quarantine.run_due(now)
        for zygote in self._zygotes.check_time(now)[1]:
            text = f"the application was not imported within {zygote.timeout:g} s (--startup-timeout){SERVES_ITSELF}"
            zygote.failure = {"text": text}
            service.report(
                CRITICAL, f"the zygote (pid {zygote.pid}) was not ready within {zygote.timeout:g} s; it is killed"
            )
        self._upgrade_manager.run_due(now)

    # Methods that make the actual state the wanted state

    def _reconcile(self, now: float) -> None:
        """Advance from the actual state towards the wanted state: start, replace and stop workers."""
        service, worker_manager = self._service, self._worker_manager
        if service.is_stopping:
            return
        self._reload_manager.step(now)
        steps = plan((worker for worker in service.workers if not service.is_trial(worker)), service.needed)
        for worker in steps.stop:
            worker_manager.retire(worker)
        # During a trial replace no stale workers: the trial's worker may replace them too.
        replace = None if self._reload_manager.is_trying else steps.replace
        if (steps.start or replace is not None) and worker_manager.can_start(now):
            for number in steps.start:
                worker_manager.start(number, now, service.index_state(number).reason)
            if replace is not None:
                old = next(each for each in service.workers if each.index == replace and each.stale)
                worker_manager.start(replace, now, old.stale)
        if not service.announced and not self._reload_manager:
            self._announce()

    def _announce(self) -> None:
        """Report the application and the addresses, once all first workers are ready."""
        service = self._service
        if sum(worker.state is READY for worker in service.workers) < service.wanted:
            return
        service.announced = True
        several = f", {service.wanted} workers" if service.wanted > 1 else ""
        if self._is_upgrade:
            if not self._adopted_workers:  # otherwise the reload manager reports the end of the replacement
                number = f"{service.wanted} workers" if service.wanted > 1 else "a new worker"
                service.report(INFO, f"SIGUSR2: done, {number} for {service.name}")
        else:
            urls = dict.fromkeys(listener.url for listener in service.resources.listeners)
            reports.write_stderr(f"serving {service.name}{several}\non {', '.join(urls)}")
            if service.resources.metrics:
                reports.write_stderr(f"metrics on {', '.join(listener.url for listener in service.resources.metrics)}")
            if watched := self._reload_triggers.describe():
                reports.write_stderr(watched)
        service.notifier.ready(f"serving {service.name}{several}")
        self._metrics_manager.start()
        self._acme_manager.start()

    # Children

    def fork(self, main: Callable[[], int], *channels: Channel) -> int:
        """Fork a child that closes ``channels`` and runs ``main``; return its pid. Raises OSError."""
        return forking.fork(main, partial(self._leave, channels))

    def _leave(self, channels: tuple[Channel, ...]) -> None:
        """Close the resources that only the supervisor needs, in a new child."""
        worker_process.set_signals()
        self._loop.close()
        self._signal_pipe.close()
        for worker in self._service.workers:
            worker.channel.close()
        for zygote in self._zygotes.all():
            zygote.channel.close()
        if channels:  # a helper has no channel, and closes resources in Service.become_helper
            self._service.connector.close_relay_end()
            for listener in self._service.resources.metrics:
                listener.close()
        for channel in channels:
            channel.close()
        self._service.board.close_fd()
        self._service.certificates.keep_reading_only()
        self._acme_manager.close_in_child()
        self._reload_triggers.close()
        self._upgrade_manager.close()

    def _on_sigchld(self, _name: str) -> None:
        """Reap all children that have exited. Unknown ones were orphans or children of the previous image."""
        handlers = (
            self._worker_manager.on_exit,
            self._upgrade_manager.on_exit,
            self._metrics_manager.on_exit,
            self._acme_manager.on_exit,
            self._relay_manager.on_exit,
            self._zygotes.on_exit,
        )
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            for handler in handlers:
                if handler(pid, code):
                    break

    def start_failed(self, failure: Message, otherwise: str, index: int | None, *, is_trial: bool) -> None:
        """Handle a worker, or a zygote (``index`` is None), that has failed before it was ready; ``is_trial``: it
        belongs to the trial of a reload."""
        service = self._service
        if service.is_stopping:
            return
        text, trace = str(failure.get("text", otherwise)), str(failure.get("traceback", ""))
        details = f"{text}\n{trace}" if trace else text
        if is_trial:
            summary = failure.get("summary")
            self._reload_manager.fail(f"{summary}\n{details}" if summary else details)
        elif not service.served:
            # The first start has failed: report the reason once, not for each worker, and exit.
            reports.write_failure(text, trace)
            status = failure.get("status")
            service.exit_status = status if isinstance(status, int) and status else bootstrap.EXIT_NOT_LOADED
            self._stop_all(STOPPING, 0.0)
        else:
            wait = self._zygotes.start_failed() if index is None else self._worker_manager.start_failed(index)
            service.report(ERROR, f"no worker could be started, the next try is in {wait:g} s: {details}")
            self._reload_manager.worker_failed(details)

    def zygote_ready(self, zygote: Zygote) -> None:
        if zygote.threads:
            self._service.report(
                WARNING,
                "--preload: importing the application started threads, and the workers will not have them: "
                f"{', '.join(zygote.threads)}; start them in the first request, or omit --preload",
            )
        if zygote is self._zygotes.current:
            self._service.set_application(zygote.name)

    def zygote_failed(self, zygote: Zygote, code: int, *, is_trial: bool) -> None:
        how = f"the zygote (pid {zygote.pid}) {how_ended(code)}"
        if not zygote.name or is_trial:
            otherwise = how if zygote.name else f"{how} before it had imported the application"
            self.start_failed(zygote.failure or {}, otherwise, None, is_trial=is_trial)
        elif not self._service.is_stopping:
            self._service.report(ERROR, f"{how}; starting another when the next worker is needed")

    # Signal handlers

    def _on_signals(self) -> None:
        for number in self._signal_pipe.signals():
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
        self._reload_manager.begin(name)

    def _on_sigusr1(self, name: str) -> None:
        service = self._service
        try:
            service.resources.give_logs(service.chosen)
            service.resources.errors.reopen()
        except OSError as error:
            service.report(ERROR, f"{name}: a log cannot be opened again, and the old file stays: {error}")
        self._worker_manager.signal(signal.SIGUSR1)
        self._acme_manager.restart()

    def _on_sigusr2(self, name: str) -> None:
        self._upgrade_manager.begin(name)

    def _on_sigpwr(self, name: str) -> None:
        service = self._service
        states = ", ".join(f"{worker} {worker.state}" for worker in service.workers) or "no worker"
        reports.write_dump(f"kirsch supervisor, pid {os.getpid()}, generation {service.current.number}: {states}\n")
        self._worker_manager.signal(int(signal.Signals[name]))

    _on_siginfo = _on_sigpwr

    def _on_sigttin(self, name: str) -> None:
        self._change_wanted(name, +1)

    def _on_sigttou(self, name: str) -> None:
        self._change_wanted(name, -1)

    def _change_wanted(self, name: str, by: int) -> None:
        service = self._service
        wanted, sets = service.wanted + by, service.resources.sets
        if service.ending:
            return
        if wanted < max(sets, 1):
            least = "one worker is the minimum; SIGWINCH stops that one too"
            sockets = f"with --reuse-port each of the {sets} sets of sockets needs a worker"
            service.report(WARNING, f"{name}: {sockets if sets else least}")
        elif 2 * wanted > service.board.slots:
            service.report(
                WARNING, f"{name}: the scoreboard has room for {service.wanted} workers; restart with more --workers"
            )
        else:
            service.wanted = wanted
            service.report(INFO, f"{name}: {wanted} {'worker' if wanted == 1 else 'workers'} from now on")

    def _on_sigwinch(self, name: str) -> None:
        if self._service.ending or has_terminal():
            return  # a terminal sends this signal when it is resized
        self._service.withdrawn = True
        self._reload_manager.keep_withdrawn()
        self._service.report(INFO, f"{name}: stopping the workers; SIGHUP starts them again")

    # Stopping

    def _drain(self, name: str) -> None:
        service, chosen = self._service, self._service.chosen
        seconds = chosen.drain_delay
        service.ending = DRAINING
        self._drain_until = time.monotonic() + seconds
        service.report(INFO, f"{name}: draining for {seconds:g} s, for load balancers to send requests elsewhere")
        patience = seconds + chosen.graceful_timeout + chosen.shutdown_timeout
        service.notifier.stopping(f"{name}: draining", patience)
        self._reload_manager.abandon()
        self._worker_manager.drain()

    def _end(self, name: str, ending: int, timeout: float) -> None:
        service = self._service
        service.notifier.stopping(name, timeout + service.chosen.shutdown_timeout)
        how = f"up to {timeout:g} s for the requests in flight" if timeout else "at once"
        self._explanation = f"{name}: stopping, {how}"
        self._explain_at = time.monotonic() + _SILENCE_SECONDS
        self._stop_all(ending, timeout)

    def _stop_all(self, ending: int, timeout: float) -> None:
        """Stop all workers within ``timeout``, and close the listening sockets. May be called again."""
        service = self._service
        service.ending = ending
        self._drain_until = NEVER
        self._reload_manager.abandon()
        self._worker_manager.clear_exiting()
        self._autoscaler.stop()
        # Close the listening sockets: connections that arrive after the workers have stopped accepting would wait in
        # the backlog for ever. The workers still accept those that are already in the backlog.
        service.resources.close_sockets()
        self._zygotes.dismiss_all()
        self._upgrade_manager.give_up()
        for worker in service.workers:
            self._worker_manager.stop(worker, "the end", timeout, None)
            if ending == STOPPING_AT_ONCE:
                worker.deadline = min(worker.deadline, time.monotonic() + _AT_ONCE_SECONDS)

    def _finish(self) -> int:
        self._signal_pipe.end()
        self._metrics_manager.stop()
        self._acme_manager.stop()
        self._relay_manager.stop()
        self._reload_triggers.close()
        self._service.resources.discard()
        return self._service.exit_status


def _open(chosen: Settings, state: upgrade.State | None) -> Service:
    """Open, or take over, the resources for the first worker. Raises StartupError or UsageError."""
    try:
        if chosen.preload:
            zygote_process.adopt_orphans()
        resources = Resources(chosen, state)
        try:
            adopted = None if state is None else state.get("certificates")
            certificates = CertificateManager(chosen, resources.errors, adopted)
            board = _scoreboard(chosen, state)
            connector = Connector(() if state is None else state.get("relay", {}).get("fds", ()))
        except BaseException:
            resources.discard()
            raise
        number = 1 if state is None else int(state["generation"])
        current = Generation(number, chosen, path=os.curdir)
    except OSError as error:
        raise bootstrap.StartupError(bootstrap.EXIT_FAILED, bootstrap.reason(error)) from None
    return Service(current, resources, certificates, board, _group(board, state), connector, Notifier())


def _scoreboard(chosen: Settings, state: upgrade.State | None) -> Scoreboard:
    """Return the scoreboard of the previous image, or create one. Raises OSError."""
    if state is not None:
        os.set_inheritable(state["board"], False)
        try:
            return Scoreboard.adopt(state["board"])
        except (OSError, ValueError):
            # Another version has created it. Counters restart at 0, and the adopted workers have no slot on the new
            # board.
            os.close(state["board"])
            state["board"] = None
    return Scoreboard.create(2 * max(chosen.workers, chosen.max_workers) + _SLOTS_SPARE)


def _group(board: Scoreboard, state: upgrade.State | None) -> EngineGroup:
    """Return the engine group of the previous image, which its workers still use, or create one."""
    fds = [] if state is None else state.get("group", [])
    if state is not None and state["board"] is None:
        for fd in fds:
            os.close(fd)  # their records are on the previous scoreboard
        fds = []
    return EngineGroup(board, fds)
