"""What is served: by whom, how it is meant to be, and how far it has got. All parts of the supervisor share it."""

from __future__ import annotations

import os

from kirsch import reports
from kirsch.settings import UsageError
from kirsch.supervisor import titles
from kirsch.supervisor.worker_plan import IndexState, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from kirsch.scoreboard import Scoreboard
    from kirsch.settings import Settings
    from kirsch.supervisor.engine_group import EngineGroup
    from kirsch.supervisor.notify import Notifier
    from kirsch.supervisor.resources import Resources

SERVING, DRAINING, STOPPING, STOPPING_FAST, STOPPING_AT_ONCE = range(5)
"""How the end goes on; each may be followed by those after it."""


class Generation:
    """What the workers of one generation are made of. It never changes: a reload makes another one aside, and
    :meth:`Service.activate` exchanges them.

    ``workers`` is the number wanted from its beginning on; None leaves the number as it is then. ``directory`` is a
    descriptor of the directory that the workers start in. A descriptor and not a path: a link on the way to it may lead
    to another release by the time that a worker is replaced.

    Raises UsageError where there is no such directory.
    """

    __slots__ = ("chosen", "directory", "number", "workers")

    number: int
    chosen: Settings
    workers: int | None
    directory: int

    def __init__(self, number: int, chosen: Settings, workers: int | None = None, path: str | None = None) -> None:
        """``path`` is the directory; None finds it by the settings."""
        put = object.__setattr__
        put(self, "number", number)
        put(self, "chosen", chosen)
        put(self, "workers", workers)
        put(self, "directory", _open_directory(chosen, path))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a generation never changes; {name} cannot be set")

    def enter_directory(self) -> None:
        """Change to the directory. Raises OSError."""
        os.fchdir(self.directory)

    def close(self) -> None:
        """Close the directory: no worker is made of this any more."""
        os.close(self.directory)


class Service:
    """``held``, ``board`` and ``notifier`` stay; the rest changes with events.

    What is there: ``workers``, and what is remembered of their seats. ``served``: a worker has been ready;
    ``announced``: all first ones have been. ``name`` is the application's.

    What is wanted: ``wanted`` workers of the ``current`` generation; but none while everybody is ``asleep`` (no
    request for long) or ``withdrawn`` (WINCH). ``trial`` is the generation that a reload tries; until its first worker
    is ready, nothing else depends on it. ``ending`` is one of the words above, and ``exit_status`` what has come to be
    known of it.
    """

    def __init__(
        self, current: Generation, resources: Resources, board: Scoreboard, group: EngineGroup, notifier: Notifier
    ) -> None:
        self.current = current
        self.trial: Generation | None = None
        self.resources = resources
        self.board = board
        self.group = group
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
        """How many workers there should be just now."""
        return 0 if self.asleep or self.withdrawn else self.wanted

    @property
    def is_stopping(self) -> bool:
        return self.ending >= STOPPING

    def is_trial(self, worker: Worker) -> bool:
        """Whether a reload has made it to see whether the next generation works."""
        return worker.generation > self.current.number

    def generation_of(self, worker: Worker) -> Generation:
        """What holds for it: its own generation while that is tried, and the current one for all others."""
        return self.trial if self.trial is not None and self.is_trial(worker) else self.current

    def index_state(self, number: int) -> IndexState:
        return self._index_states.setdefault(number, IndexState())

    def index_states(self) -> list[IndexState]:
        return list(self._index_states.values())

    def report(self, level: int, message: str) -> None:
        self.resources.errors(level, message)

    def activate(self, trial: Generation, name: str) -> None:
        """Make ``trial`` the current generation: the one place at which what a reload wants comes into force.

        ``name`` is the application's. Nothing here can fail.
        """
        before, self.current, self.trial = self.current, trial, None
        before.close()
        if trial.workers is not None:
            self.wanted = trial.workers
        for state in self.index_states():
            state.backoff.reset()  # what the workers failed with may have been mended
        self.board.generation = trial.number
        self.resources.errors.set_level(reports.LEVELS[trial.chosen.log_level])
        try:
            trial.enter_directory()  # else a directory of before could never be unmounted
        except OSError:
            pass  # workers change to it by themselves
        self.set_application(name)
        self.show_title()

    def drop_trial(self) -> None:
        if self.trial is not None:
            self.trial.close()
            self.trial = None

    def close_directories(self) -> None:
        """In a forked child, which needs none of them any more."""
        self.current.close()
        if self.trial is not None:
            self.trial.close()

    def show_title(self) -> None:
        titles.supervisor(self.chosen.process_name or self.name)

    def set_application(self, name: str) -> None:
        """The application's full name is known."""
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
