"""The state that all parts of the supervisor share: its workers, the wanted state, and the phase of a stop."""

from __future__ import annotations

import os

from kirsch import reports
from kirsch.config.setting import UsageError
from kirsch.supervisor import titles
from kirsch.supervisor.worker_plan import IndexState, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from kirsch.config.schema import Settings
    from kirsch.groups.connector import Connector
    from kirsch.monitor.scoreboard import Scoreboard
    from kirsch.supervisor.certificates import CertificateManager
    from kirsch.supervisor.engine_group import EngineGroup
    from kirsch.supervisor.notify import Notifier
    from kirsch.supervisor.resources import Resources

SERVING, DRAINING, STOPPING, STOPPING_FAST, STOPPING_AT_ONCE = range(5)
"""The phases of a stop. A phase may be followed by any of those after it."""


class Generation:
    """The settings and the directory for the workers of one start or reload. A generation is immutable: a reload
    prepares the next generation, and :meth:`Service.activate` replaces the current one.

    ``workers`` is the wanted number when the generation becomes current; None keeps the number. ``directory`` is a
    descriptor of the directory in which the workers start; not a path, because a symbolic link in a path may point to
    another release when a worker is replaced later.

    Raises UsageError if the directory does not exist.
    """

    __slots__ = ("chosen", "directory", "number", "workers")

    number: int
    chosen: Settings
    workers: int | None
    directory: int

    def __init__(self, number: int, chosen: Settings, workers: int | None = None, path: str | None = None) -> None:
        """``path`` is the directory; None means the directory of the settings."""
        put = object.__setattr__
        put(self, "number", number)
        put(self, "chosen", chosen)
        put(self, "workers", workers)
        put(self, "directory", _open_directory(chosen, path))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a generation never changes; {name} cannot be set")

    def enter_directory(self) -> None:
        """Change to the directory of the generation. Raises OSError."""
        os.fchdir(self.directory)

    def close(self) -> None:
        """Close the directory. Afterwards no worker of this generation can be started."""
        os.close(self.directory)


class Service:
    """The state of the service. ``resources``, ``certificates``, ``board``, ``group``, ``connector`` and ``notifier``
    are constant; the rest changes with events.

    The actual state: ``workers``, and the states of their indexes. ``served``: at least one worker has been ready.
    ``announced``: all first workers have been ready. ``name`` is the name of the application.

    The wanted state: ``wanted`` workers of the ``current`` generation, but none while ``asleep`` (no request for a long
    time) or ``withdrawn`` (WINCH). ``trial`` is the generation that a reload tries; nothing else depends on it until
    its first worker is ready. ``ending`` is the phase of the stop, and ``exit_status`` the exit status so far.
    """

    def __init__(
        self,
        current: Generation,
        resources: Resources,
        certificates: CertificateManager,
        board: Scoreboard,
        group: EngineGroup,
        connector: Connector,
        notifier: Notifier,
    ) -> None:
        self.current = current
        self.trial: Generation | None = None
        self.resources = resources
        self.certificates = certificates
        self.board = board
        self.group = group
        self.connector = connector
        self.notifier = notifier
        self.name = current.chosen.target or ""
        self.workers: list[Worker] = []
        self.served = False
        self.announced = False
        self.wanted = current.chosen.workers
        self.asleep = False
        self.withdrawn = False
        self.ending = SERVING
        self.exit_status = 0
        self._index_states: dict[int, IndexState] = {}
        board.generation = current.number

    @property
    def chosen(self) -> Settings:
        """The settings of the current generation."""
        return self.current.chosen

    @property
    def needed(self) -> int:
        """The number of workers that should run now."""
        return 0 if self.asleep or self.withdrawn else self.wanted

    @property
    def is_stopping(self) -> bool:
        return self.ending >= STOPPING

    def is_trial(self, worker: Worker) -> bool:
        """Return whether a reload has started this worker to try the next generation."""
        return worker.generation > self.current.number

    def generation_of(self, worker: Worker) -> Generation:
        """Return the generation whose settings apply to a worker: the trial for the worker of a trial, else the
        current one."""
        return self.trial if self.trial is not None and self.is_trial(worker) else self.current

    def index_state(self, number: int) -> IndexState:
        return self._index_states.setdefault(number, IndexState())

    def index_states(self) -> list[IndexState]:
        return list(self._index_states.values())

    def report(self, level: int, message: str) -> None:
        self.resources.errors(level, message)

    def activate(self, trial: Generation, name: str) -> None:
        """Make ``trial`` the current generation. A reload takes effect only here. ``name`` is the name of the
        application. This cannot fail.
        """
        before, self.current, self.trial = self.current, trial, None
        before.close()
        if trial.workers is not None:
            self.wanted = trial.workers
        for state in self.index_states():
            state.backoff.reset()  # the cause of earlier failures may have been removed
        self.board.generation = trial.number
        self.resources.errors.set_level(reports.LEVELS[trial.chosen.log_level])
        try:
            trial.enter_directory()  # otherwise the previous directory could never be unmounted
        except OSError:
            pass  # each worker changes to the directory by itself
        self.set_application(name)
        self.show_title()

    def drop_trial(self) -> None:
        if self.trial is not None:
            self.trial.close()
            self.trial = None

    def become_helper(self, role: str, *, keeps: Iterable[object] = ()) -> None:
        """Close the resources of the supervisor and the workers, in a child that is no worker, such as the metrics
        process, except those that it ``keeps``; set its title to ``role``."""
        kept = set(map(id, keeps))
        self.close_directories()
        self.resources.close_sockets()
        self.group.close()
        self.connector.close_worker_end()
        if id(self.connector) not in kept:
            self.connector.close_relay_end()
        for each in (*self.resources.metrics, self.certificates.shared, self.certificates.ends):
            if each is not None and id(each) not in kept:
                each.close()
        titles.other(role, self.board.application)

    def close_directories(self) -> None:
        """Close the directories of the generations, in a forked child that does not need them."""
        self.current.close()
        if self.trial is not None:
            self.trial.close()

    def show_title(self) -> None:
        titles.supervisor(self.chosen.process_name or self.name)

    def set_application(self, name: str) -> None:
        """Set the full name of the application, when a worker has reported it."""
        if name != self.name:
            self.name = name
            self.show_title()
        self.board.application = name


def _open_directory(chosen: Settings, path: str | None) -> int:
    if path is None:
        path = os.path.join(chosen.directory, chosen.chdir) or os.curdir
    try:
        return os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        label = chosen.label("chdir") if chosen.chdir else "the current directory"
        raise UsageError(f"{label}: cannot change to {path!r}: {error.strerror}") from None
