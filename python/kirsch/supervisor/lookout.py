"""How much the workers have to do, looked at now and then: more of them or fewer, or none while nobody asks."""

from __future__ import annotations

import time

from kirsch.reports import INFO
from kirsch.supervisor.activity import Activity
from kirsch.supervisor.crew import NEVER, READY
from kirsch.supervisor.scaling import LOOK_SECONDS, Scaler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.supervisor.crew import Worker
    from kirsch.supervisor.nursery import Nursery
    from kirsch.supervisor.reloading import Reloading
    from kirsch.supervisor.service import Service
    from kirsch.supervisor.waiting import Waiting


class Lookout:
    """It changes ``wanted`` and ``asleep``; and while they sleep it watches the sockets, though it never accepts."""

    def __init__(self, service: Service, waiting: Waiting, nursery: Nursery, reloading: Reloading) -> None:
        self._service = service
        self._waiting = waiting
        self._nursery = nursery
        self._reloading = reloading
        self._looked_at = time.monotonic()
        self._activity = Activity(self._looked_at)
        self._scaler = Scaler()
        self._hears_knocks = False

    def due(self) -> float:
        """When to :meth:`look` again."""
        chosen = self._service.chosen
        interval = NEVER
        if not (self._service.is_stopping or self._service.asleep):
            if chosen.max_workers:
                interval = LOOK_SECONDS
            if chosen.inactivity_timeout:
                interval = min(interval, LOOK_SECONDS, chosen.inactivity_timeout / 4)
        return self._looked_at + interval

    def look(self, now: float) -> None:
        if now < self.due():
            return
        self._looked_at = now
        service, chosen, activity = self._service, self._service.chosen, self._activity
        if service.ending or service.withdrawn:
            return
        serving = [worker for worker in service.workers if worker.state is READY]
        activity.look(now, serving)
        if chosen.max_workers:
            self._scale(now, serving)
        is_inactive = chosen.inactivity_timeout and now - activity.idle_since >= chosen.inactivity_timeout
        if is_inactive and serving and not self._reloading:
            self._fall_asleep(now)

    def _scale(self, now: float, serving: list[Worker]) -> None:
        service, chosen, activity = self._service, self._service.chosen, self._activity
        load = activity.load(now, serving, chosen.threads if chosen.driver == "threads" else 0)
        least = max(chosen.min_workers, service.held.sets)
        wanted = self._scaler.wanted(now, service.wanted, least, max(chosen.max_workers, least), load)
        if wanted != service.wanted:
            counted = f"{activity.busy} requests run, {activity.queued} wait"
            service.report(INFO, f"{wanted} workers from now on, and not {service.wanted}: {counted}")
            service.wanted = wanted

    def _fall_asleep(self, now: float) -> None:
        """End all workers, and the zygote."""
        service = self._service
        service.asleep = True
        seconds = f"{service.chosen.inactivity_timeout:g} s"
        service.report(INFO, f"no request for {seconds}: the workers end, and the next connection starts them again")
        service.notifier.status(f"asleep: no request for {seconds}")
        self._nursery.dismiss_all()
        for worker in service.workers:
            worker.mark_stale("inactivity", now)
        if not self._hears_knocks:
            self._hears_knocks = True
            for listener in service.held.listeners:
                self._waiting.attend(listener.socket.fileno(), self._on_knock)

    def _on_knock(self) -> None:
        self.stop()
        service = self._service
        service.asleep = False
        self._looked_at = self._activity.idle_since = time.monotonic()
        service.notifier.status(f"serving {service.name}")
        for number in range(service.wanted):
            service.seat(number).reason = "knock"

    def stop(self) -> None:
        """Listen for nobody any more; to be called before the sockets are closed."""
        if self._hears_knocks:
            self._hears_knocks = False
            for listener in self._service.held.listeners:
                self._waiting.ignore(listener.socket.fileno())
