"""A reload, from the signal to the last new worker. A reload that fails changes nothing.

It has two phases. The first is a *trial*: the next generation (settings, directory, number of workers) has one worker
that shows whether it works, and its own zygote under ``--preload``. Nothing else depends on the trial. When that worker
is ready, the generation becomes the current one in one step (:meth:`Service.activate`), and the second phase begins,
the *rollout*: the previous workers are stale, and are replaced one by one. If the worker does not become ready, the
worker and the trial are dropped, and the previous state continues.

A rollout cannot be undone, and need not be: its generation is known to work. If a new worker cannot be started, the old
one continues to serve until a later attempt succeeds.

An upgrade ends like a reload: the new image replaces the workers of the previous one.

A reload that is requested during another one begins after that one has ended, and several requests are combined: if
each request started over, no reload would succeed while requests arrive faster than the application is imported. A
reload without progress, for example because an import hangs, is abandoned for the next one (:meth:`ReloadManager.due`).
"""

from __future__ import annotations

import time

from kirsch import bootstrap
from kirsch.config import sources
from kirsch.config.setting import UsageError
from kirsch.reports import ERROR, INFO, WARNING
from kirsch.supervisor import zygote_process
from kirsch.supervisor.service import Generation
from kirsch.supervisor.worker_plan import NEVER, READY, STOPPING, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.config.schema import Settings
    from kirsch.supervisor.service import Service
    from kirsch.supervisor.worker_manager import WorkerManager
    from kirsch.supervisor.zygote_pool import ZygotePool


# A waiting reload replaces one that makes no progress after this many seconds, or after this many times the longest
# start of a worker, if that is longer. The time doubles with each abandoned reload, so that a reload can succeed after
# the import has become slow.
_PATIENCE_SECONDS = 5.0
_PATIENCE_STARTS = 3


class _Next:
    """The step after the reload in progress: ``become`` for an upgrade, otherwise another reload.
    ``keeps_withdrawn``: a later WINCH has stopped the workers, and the reload does not undo that."""

    def __init__(self, why: str, become: Callable[[], None] | None = None) -> None:
        self.why = why
        self.become = become
        self.keeps_withdrawn = False


class _Trial:
    """The trial of a generation. ``why`` is the text for people, ``reason`` the word with which workers become
    stale. ``brings_back``: the reload undoes an earlier WINCH. ``worker`` is the first worker, once it has been
    started."""

    def __init__(self, why: str, reason: str, *, brings_back: bool = False) -> None:
        self.why = why
        self.reason = reason
        self.brings_back = brings_back
        self.worker: Worker | None = None
        self.began = time.monotonic()


class _Rollout:
    """A rollout in progress. ``announced``: a worker could not be started, and the service manager has been told
    that the reload has ended although workers are missing. ``fresh`` is the largest number of new workers so far."""

    def __init__(self, why: str, reason: str) -> None:
        self.why = why
        self.reason = reason
        self.announced = False
        self.fresh = 0


class ReloadManager:
    """Performs reloads. Calls ``when_over`` when a reload has completed or failed."""

    def __init__(
        self, service: Service, zygotes: ZygotePool, worker_manager: WorkerManager, when_over: Callable[[], None]
    ) -> None:
        self._service = service
        self._zygotes = zygotes
        self._worker_manager = worker_manager
        self._when_over = when_over
        self._trial: _Trial | None = None
        self._rollout: _Rollout | None = None
        self._next: _Next | None = None
        self._progress_at = 0.0
        self._given_up = 0  # the number of abandoned trials in a row
        self._trial_seconds = 0.0  # the duration of the last successful trial
        self._upgraded_workers: int | None = None  # the number of workers that a failed upgrade wanted

    def __bool__(self) -> bool:
        """Return whether a reload is in progress."""
        return self._trial is not None or self._rollout is not None

    @property
    def is_trying(self) -> bool:
        """Return whether the trial is still in progress."""
        return self._trial is not None

    def begin(self, why: str) -> None:
        """Begin a reload at once, or after the reload in progress."""
        if not self._service.ending:
            self._request(_Next(why), "another reload follows")

    def begin_upgrade(self, why: str, become: Callable[[], None]) -> None:
        """Call ``become`` at once, or after the reload in progress."""
        self._request(_Next(why, become), "the upgrade follows")

    def _request(self, requested: _Next, what_follows: str) -> None:
        waiting = self._next
        if waiting is not None and waiting.become is not None:
            return  # the upgrade rereads the settings and replaces the workers too
        self._next = requested
        if not self._begin_next(time.monotonic()) and (waiting is None or requested.become is not None):
            self._service.report(INFO, f"{requested.why}: a reload is in progress; {what_follows}")

    def due(self) -> float:
        """Return the time at which the waiting step replaces the reload in progress; NEVER if no step is waiting."""
        if self._next is None:
            return NEVER
        if self._trial is None and (self._rollout is None or self._rollout.announced):
            return 0.0
        starts = [each.ready_at - each.started for each in self._service.workers if each.ready_at != NEVER]
        patience = max(_PATIENCE_SECONDS, _PATIENCE_STARTS * max(self._trial_seconds, *starts, 0.0))
        return self._progress_at + patience * 2.0**self._given_up

    def _begin_next(self, now: float) -> bool:
        """Begin the waiting step, if no reload is in progress or it is abandoned. Return whether the step has begun."""
        following = self._next
        if following is None or now < self.due():
            return False
        self._next = None
        if self._trial is not None:
            self._given_up += 1
            text = f"the new worker is not ready after {now - self._trial.began:.0f} s, and is given up"
            self._service.report(WARNING, f"{self._trial.why}: {text}: {following.why} follows")
            self._drop_trial()
        if following.become is not None:
            following.become()
        else:
            self._reload(following)
        return True

    def _reload(self, requested: _Next) -> None:
        """Reread the settings, and start a trial. The current workers serve until it succeeds, and also if it fails."""
        service, why = self._service, requested.why
        old = service.chosen
        try:
            new = sources.read_again(old)
            chosen = sources.reloaded(old, new)
            self._check_room(chosen)
            if chosen.preload:
                zygote_process.adopt_orphans()
            service.resources.give_logs(chosen)
            service.certificates.reload(chosen, why)
            changed = (chosen.workers, chosen.max_workers) != (old.workers, old.max_workers)
            workers = chosen.workers if changed or service.withdrawn else self._upgraded_workers
            trial = Generation(service.current.number + 1, chosen, workers)
        except (UsageError, OSError) as error:
            text = bootstrap.reason(error) if isinstance(error, OSError) else str(error)
            service.notifier.reloading(f"{why}: reloading")
            self._failed(why, "reload", text)
            return
        _, fixed = sources.changes(old, new)
        if fixed:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
            stays = "stays as it is" if len(fixed) == 1 else "stay as they are"
            service.report(WARNING, f"{why}: {names} {stays}; only a restart or SIGUSR2 changes that")
        service.report(INFO, f"{why}: reloading")
        brings_back = service.withdrawn and not requested.keeps_withdrawn
        self._try(trial, _Trial(why, "reload", brings_back=brings_back))

    def replace_all(self, why: str, reason: str, workers: int | None) -> None:
        """Replace all workers by ``workers`` new ones with the current settings; None keeps their number."""
        current = self._service.current
        self._upgraded_workers = workers
        self._try(Generation(current.number + 1, current.chosen, workers), _Trial(why, reason))

    def _try(self, generation: Generation, trial: _Trial) -> None:
        self._service.trial, self._trial = generation, trial
        self._progress_at = trial.began
        self._service.notifier.reloading(f"{trial.why}: reloading")

    def step(self, now: float) -> None:
        """Advance the reload as far as possible now."""
        goes_on = True
        while goes_on:
            if self._trial is not None and not self._service.is_stopping:
                self._step_trial(self._trial, now)
            if self._rollout is not None:
                self._check_rollout(self._rollout)
            goes_on = self._begin_next(now)

    def _step_trial(self, trial: _Trial, now: float) -> None:
        service, zygotes = self._service, self._zygotes
        generation, worker = service.trial, trial.worker
        assert generation is not None
        if worker is not None and worker.state is not STOPPING:
            if worker not in service.workers:
                self.fail("the first new worker ended as soon as it was ready")
            elif worker.state is READY:
                self._begin_rollout(trial, generation, worker)
            return
        if generation.chosen.preload and zygotes.trial is None:
            try:
                zygotes.start(self._worker_manager.spawn_context(generation), is_trial=True)
            except OSError as error:
                self.fail(f"no zygote could be forked: {bootstrap.reason(error)}")
        elif not generation.chosen.preload or (zygotes.trial is not None and zygotes.trial.name):
            try:
                trial.worker = self._worker_manager.start_trial(generation, now, trial.reason)
            except OSError as error:
                self.fail(f"no worker can be started: {bootstrap.reason(error)}")

    def _begin_rollout(self, trial: _Trial, generation: Generation, first: Worker) -> None:
        service = self._service
        self._trial = self._upgraded_workers = None
        service.activate(generation, first.name)
        if trial.brings_back:
            service.withdrawn = False
        self._zygotes.begin_trial()
        if service.asleep:
            self._zygotes.dismiss_all()  # the next connection starts a zygote
        self._progress_at = now = time.monotonic()
        self._trial_seconds, self._given_up = now - trial.began, 0
        for worker in service.workers:
            if worker is not first:
                worker.mark_stale(trial.reason, now)
        self._rollout = _Rollout(trial.why, trial.reason)

    def _check_rollout(self, rollout: _Rollout) -> None:
        """Complete the rollout if all workers are new and ready, and the old ones accept no more connections."""
        service = self._service
        fresh = [worker for worker in service.workers if worker.state is READY and not worker.stale]
        if len(fresh) > rollout.fresh:
            rollout.fresh = len(fresh)
            self._progress_at = time.monotonic()
        old = [worker for worker in service.workers if worker.stale == rollout.reason and not worker.left]
        if self._trial is not None or old or len(fresh) < service.needed:
            return
        self._rollout = None
        number = (
            f"{len(fresh)} workers" if len(fresh) > 1 else "a new worker" if service.needed else "workers will come"
        )
        service.report(INFO, f"{rollout.why}: done, {number} for {service.name}")
        service.notifier.ready(f"serving {service.name}")
        self._when_over()

    def worker_failed(self, text: str) -> None:
        """Report that a worker of the current generation could not start because of ``text``. It will be tried
        again."""
        rollout = self._rollout
        if rollout is not None and not rollout.announced:
            # Do not let the service manager wait until the cause is removed.
            rollout.announced = True
            self._service.notifier.ready(
                f"serving {self._service.name}; {rollout.why}: not every worker is replaced yet: {_first_line(text)}"
            )

    def fail(self, text: str) -> None:
        """End a failed trial, because of ``text``. The current generation continues."""
        trial = self._trial
        if trial is not None:
            self._given_up = 0
            self._drop_trial()
            self._failed(trial.why, trial.reason, text)

    def _failed(self, why: str, reason: str, text: str) -> None:
        service = self._service
        service.report(ERROR, f"{why}: {reason} failed, keeping the current workers: {text}")
        if service.served:  # otherwise the service manager still waits for the first workers
            service.notifier.ready(f"serving {service.name}; {why}: {reason} failed: {_first_line(text)}")
            self._when_over()

    def keep_withdrawn(self) -> None:
        """Handle a WINCH that arrived after the signal for the reload: the reload must not undo it."""
        if self._trial is not None:
            self._trial.brings_back = False
        if self._next is not None:
            self._next.keeps_withdrawn = True

    def abandon(self) -> None:
        """Drop the trial, the rollout and the waiting step, because the service stops."""
        self._rollout = self._next = None
        self._drop_trial()

    def _drop_trial(self) -> None:
        trial, self._trial = self._trial, None
        if trial is None:
            return
        worker = trial.worker
        if worker is not None and worker in self._service.workers and worker.is_serving:
            self._worker_manager.stop(worker, "not needed", self._service.chosen.graceful_timeout, None)
        self._zygotes.drop_trial()
        self._service.drop_trial()

    def _check_room(self, chosen: Settings) -> None:
        """Raise UsageError if the scoreboard has too few slots for the workers of ``chosen``."""
        most, name = max((chosen.workers, "workers"), (chosen.max_workers, "max_workers"))
        room = self._service.board.slots // 2
        if most > room:
            raise UsageError(f"{chosen.label(name)}: there is room for {room} workers; a restart makes room for {most}")


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
