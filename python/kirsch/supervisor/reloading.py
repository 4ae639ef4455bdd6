"""A reload, from the signal to the moment at which all workers are new, or to the way back.

An upgrade ends like one: the image that goes on replaces the workers of before.
"""

from __future__ import annotations

import os
import time

from kirsch import assembly, configuration
from kirsch.reports import ERROR, INFO, WARNING
from kirsch.settings import UsageError
from kirsch.supervisor import zygote
from kirsch.supervisor.crew import READY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.settings import Settings
    from kirsch.supervisor.nursery import Nest, Nursery
    from kirsch.supervisor.service import Service


class _Replacement:
    """``why`` is for people, ``reason`` the word for which workers are stale; ``chosen`` and ``nest`` are what to go
    back to. It is ``rolling`` when there is something to make new workers of."""

    def __init__(self, why: str, reason: str, chosen: Settings, nest: Nest | None) -> None:
        self.why = why
        self.reason = reason
        self.chosen = chosen
        self.nest = nest
        self.rolling = False


class Reloading:
    """``make_zygote(why, reason)`` begins to make one; ``when_over`` is called when it is done or given up."""

    def __init__(
        self,
        service: Service,
        nursery: Nursery,
        make_zygote: Callable[[str, str], None],
        when_over: Callable[[], None],
    ) -> None:
        self._service = service
        self._nursery = nursery
        self._make_zygote = make_zygote
        self._when_over = when_over
        self._now: _Replacement | None = None

    def __bool__(self) -> bool:
        """Whether one is under way."""
        return self._now is not None

    def begin(self, why: str) -> None:
        """Read the settings again, and replace every worker; the old ones serve until then."""
        service = self._service
        if service.ending:
            return
        old = service.chosen
        try:
            new = configuration.again(old)
            chosen = configuration.reloaded(old, new)
            _go_where_it_is(chosen)
            service.held.give_logs(chosen)
            if chosen.preload:
                zygote.adopt_orphans()
        except (UsageError, OSError) as error:
            text = assembly.reason(error) if isinstance(error, OSError) else str(error)
            service.report(ERROR, f"{why}: nothing is reloaded: {text}")
            return
        _, fixed = configuration.changes(old, new)
        if fixed:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
            stays = "stays as it is" if len(fixed) == 1 else "stay as they are"
            service.report(WARNING, f"{why}: {names} {stays}; only a restart or SIGUSR2 changes that")
        service.report(INFO, f"{why}: reloading")
        service.use(chosen)
        if (chosen.workers, chosen.max_workers) != (old.workers, old.max_workers) or service.withdrawn:
            service.wanted = chosen.workers
        service.withdrawn = False
        self.replace_all(why, "reload", old)

    def replace_all(self, why: str, reason: str, old: Settings) -> None:
        """Replace every worker; with ``--preload`` as soon as there is a zygote that has imported the application.
        ``old`` are the settings to go back to."""
        if self._now is None:
            self._now = _Replacement(why, reason, old, self._nursery.current)
        else:
            # What is to be gone back to is what served when the first of several reloads began.
            self._now.why, self._now.rolling = why, False
        self._service.notifier.reloading(f"{why}: reloading")
        if not self._service.chosen.preload:
            self._nursery.retire()
            self._roll(self._now)
        elif self._service.asleep:
            self._roll(self._now)  # the next connection makes a zygote
        else:
            self._make_zygote(why, reason)

    def zygote_ready(self) -> None:
        """One that has just imported the application makes workers from now on."""
        if self._now is None:
            self._nursery.let_go()
        elif not self._now.rolling:
            self._roll(self._now)

    def _roll(self, now: _Replacement) -> None:
        now.rolling = True
        self._service.begin_generation(self._service.generation + 1)
        moment = time.monotonic()
        for worker in self._service.workers:
            worker.mark_stale(now.reason, moment)
        for seat in self._service.seats():
            seat.forgive()  # what they died of may well be mended

    def check(self) -> None:
        """See whether all workers that are to stay are new and ready, and the others accept no more."""
        now, service = self._now, self._service
        if now is None or not now.rolling:
            return
        fresh = [worker for worker in service.workers if worker.state is READY and not worker.stale]
        old = [worker for worker in service.workers if worker.stale == now.reason and not worker.left]
        if old or len(fresh) < service.needed:
            return
        self._now = None
        self._nursery.let_go()
        number = f"{len(fresh)} workers" if len(fresh) > 1 else "a new worker" if fresh else "workers will come"
        service.report(INFO, f"{now.why}: done, {number} for {service.name}")
        self._is_over(f"serving {service.name}")

    def roll_back(self, told: str) -> bool:
        """New workers do not get ready (``told`` why): those of before serve on, and what they were made from stays in
        use. False where no reload was under way."""
        now, service = self._now, self._service
        if now is None:
            return False
        self._now = None
        service.use(now.chosen)
        self._nursery.go_back(now.nest)
        for worker in service.workers:
            if worker.stale == now.reason and worker.state is READY:
                worker.stale = ""
        try:
            _go_where_it_is(service.chosen)
        except (UsageError, OSError):
            pass  # that directory has gone; the next reload will say so
        service.report(ERROR, f"{now.why}: given up, and the workers of before serve on: {told}")
        self._is_over(f"serving {service.name}; {now.why} was given up: {told.partition(chr(10))[0]}")
        return True

    def abandon(self) -> None:
        """Everything ends: there is nothing to be finished or gone back to."""
        self._now = None

    def _is_over(self, status: str) -> None:
        self._service.announced = True
        self._service.notifier.ready(status)
        self._when_over()


def _go_where_it_is(chosen: Settings) -> None:
    """Follow the links on the way to the application anew. Raises UsageError or OSError."""
    if chosen.directory:
        os.chdir(chosen.directory)
    assembly.change_directory(chosen)
