"""The autoscaler: it adjusts the number of workers to their load, and stops all after ``--inactivity-timeout``."""

from __future__ import annotations

import time

from kirsch.reports import INFO
from kirsch.supervisor.activity import Activity
from kirsch.supervisor.scaling_policy import CHECK_SECONDS, ScalingPolicy
from kirsch.supervisor.worker_plan import NEVER, READY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.supervisor.event_loop import EventLoop
    from kirsch.supervisor.reload_manager import ReloadManager
    from kirsch.supervisor.service import Service
    from kirsch.supervisor.worker_plan import Worker
    from kirsch.supervisor.zygote_pool import ZygotePool


class Autoscaler:
    """Sets ``wanted`` and ``asleep`` of the service. While ``asleep`` it watches the listening sockets, but never
    accepts."""

    def __init__(self, service: Service, loop: EventLoop, zygotes: ZygotePool, reloading: ReloadManager) -> None:
        self._service = service
        self._loop = loop
        self._zygotes = zygotes
        self._reload_manager = reloading
        self._checked_at = time.monotonic()
        self._activity = Activity(self._checked_at)
        self._policy = ScalingPolicy()
        self._watches_listeners = False

    def due(self) -> float:
        """Return the time at which :meth:`run_due` must be called."""
        chosen = self._service.chosen
        interval = NEVER
        if not (self._service.is_stopping or self._service.asleep):
            if chosen.max_workers:
                interval = CHECK_SECONDS
            if chosen.inactivity_timeout:
                interval = min(interval, CHECK_SECONDS, chosen.inactivity_timeout / 4)
        return self._checked_at + interval

    def run_due(self, now: float) -> None:
        if now < self.due():
            return
        self._checked_at = now
        service, chosen, activity = self._service, self._service.chosen, self._activity
        if service.ending or service.withdrawn:
            return
        serving = [worker for worker in service.workers if worker.state is READY]
        activity.sample(now, serving)
        if chosen.max_workers:
            self._scale(now, serving)
        is_inactive = chosen.inactivity_timeout and now - activity.idle_since >= chosen.inactivity_timeout
        if is_inactive and serving and not self._reload_manager:
            self._fall_asleep(now)

    def _scale(self, now: float, serving: list[Worker]) -> None:
        service, chosen, activity = self._service, self._service.chosen, self._activity
        load = activity.load(now, serving, chosen.threads if chosen.driver == "threads" else 0)
        least = max(chosen.min_workers, service.resources.sets)
        wanted = self._policy.wanted(now, service.wanted, least, max(chosen.max_workers, least), load)
        if wanted != service.wanted:
            counted = f"{activity.busy} requests run, {activity.queued} wait"
            service.report(INFO, f"changing the number of workers from {service.wanted} to {wanted}: {counted}")
            service.wanted = wanted

    def _fall_asleep(self, now: float) -> None:
        """Stop all workers and the zygote."""
        service = self._service
        service.asleep = True
        seconds = f"{service.chosen.inactivity_timeout:g} s"
        service.report(INFO, f"no request for {seconds}: stopping the workers; the next connection starts them again")
        service.notifier.status(f"asleep: no request for {seconds}")
        self._zygotes.dismiss_all()
        for worker in service.workers:
            worker.mark_stale("inactivity", now)
        if not self._watches_listeners:
            self._watches_listeners = True
            for listener in service.resources.listeners:
                self._loop.add_reader(listener.socket.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        self.stop()
        service = self._service
        service.asleep = False
        self._checked_at = self._activity.idle_since = time.monotonic()
        service.notifier.status(f"serving {service.name}")
        for number in range(service.wanted):
            service.index_state(number).reason = "knock"

    def stop(self) -> None:
        """Stop watching the listening sockets. Must be called before they are closed."""
        if self._watches_listeners:
            self._watches_listeners = False
            for listener in self._service.resources.listeners:
                self._loop.remove_reader(listener.socket.fileno())
