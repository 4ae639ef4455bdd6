"""What is served: by whom, how it is meant to be, and how far it has got. All rooms of the supervisor share it."""

from __future__ import annotations

from kirsch import reports
from kirsch.supervisor import titles
from kirsch.supervisor.crew import Seat, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.scoreboard import Scoreboard
    from kirsch.settings import Settings
    from kirsch.supervisor.holdings import Holdings
    from kirsch.supervisor.notify import Notifier

SERVING, DRAINING, STOPPING, STOPPING_FAST, STOPPING_AT_ONCE = range(5)
"""How the end goes on; each may be followed by those after it."""


class Service:
    """``held``, ``board`` and ``notifier`` stay; the rest changes with events.

    What is there: ``workers``, and what is remembered of their seats. ``served``: a worker has been ready;
    ``announced``: all first ones have been. ``name`` is the application's.

    What is wanted: ``wanted`` workers of ``generation``, made by the settings ``chosen``; but none while everybody is
    ``asleep`` (nobody has asked for long) or ``withdrawn`` (WINCH). ``ending`` is one of the words above, and
    ``exit_status`` what has come to be known of it.
    """

    def __init__(self, chosen: Settings, held: Holdings, board: Scoreboard, notifier: Notifier) -> None:
        self.chosen = chosen
        self.held = held
        self.board = board
        self.notifier = notifier
        self.name = chosen.target or ""
        self.workers: list[Worker] = []
        self.served = False
        self.announced = False
        self.wanted = chosen.workers
        self.generation = 1
        self.asleep = False
        self.withdrawn = False
        self.ending = SERVING
        self.exit_status = 0
        self._seats: dict[int, Seat] = {}

    @property
    def needed(self) -> int:
        """How many workers there should be just now."""
        return 0 if self.asleep or self.withdrawn else self.wanted

    @property
    def is_stopping(self) -> bool:
        return self.ending >= STOPPING

    def seat(self, number: int) -> Seat:
        return self._seats.setdefault(number, Seat())

    def seats(self) -> list[Seat]:
        return list(self._seats.values())

    def report(self, level: int, message: str) -> None:
        self.held.errors(level, message)

    def use(self, chosen: Settings) -> None:
        """Go by these settings from now on."""
        self.chosen = chosen
        self.held.errors.set_level(reports.LEVELS[chosen.log_level])

    def begin_generation(self, number: int) -> None:
        self.generation = self.board.generation = number

    def show_title(self) -> None:
        titles.supervisor(self.chosen.process_name or self.name)

    def is_called(self, name: str) -> None:
        """The application's full name is known."""
        if name != self.name:
            self.name = name
            self.show_title()
        self.board.application = name
