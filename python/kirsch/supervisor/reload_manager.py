"""A reload, from the signal to the moment at which all workers are new; and what fails on the way changes nothing.

It has two parts. At first there is a *trial*: a generation (settings, directory, number of workers) made aside,
with a zygote of its own under ``--preload``, and one worker that shows whether it works. Nothing else depends on it.
When that worker is ready, the generation becomes the current one in one step (:meth:`Service.activate`), and the *rollout*
begins: the workers of before are stale, and are replaced one by one. If it does not get ready, it and the trial are
dropped, and all is as it was.

A rollout has no way back, and needs none: its generation is known to work. If a worker cannot be started now, the one
that it was to replace serves on until a later try succeeds.

An upgrade ends like a reload: the image that goes on replaces the workers of before.
"""

from __future__ import annotations

import time

from kirsch import bootstrap, configuration
from kirsch.reports import ERROR, INFO, WARNING
from kirsch.settings import UsageError
from kirsch.supervisor import zygote_process
from kirsch.supervisor.service import Generation
from kirsch.supervisor.worker_plan import READY, STOPPING, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.settings import Settings
    from kirsch.supervisor.service import Service
    from kirsch.supervisor.worker_manager import WorkerManager
    from kirsch.supervisor.zygote_pool import ZygotePool


class _Trial:
    """``why`` is for people, ``reason`` the word for which workers become stale. With ``brings_back`` it also ends what
    WINCH began. ``worker`` is the first one, once it has been started."""

    def __init__(self, why: str, reason: str, *, brings_back: bool = False) -> None:
        self.why = why
        self.reason = reason
        self.brings_back = brings_back
        self.worker: Worker | None = None


class _Rollout:
    """``announced``: the service manager was told that the reload is over, although workers are still missing."""

    def __init__(self, why: str, reason: str) -> None:
        self.why = why
        self.reason = reason
        self.announced = False


class ReloadManager:
    """``when_over`` is called when a reload is done or has failed."""

    def __init__(
        self, service: Service, zygotes: ZygotePool, worker_manager: WorkerManager, when_over: Callable[[], None]
    ) -> None:
        self._service = service
        self._zygotes = zygotes
        self._worker_manager = worker_manager
        self._when_over = when_over
        self._trial: _Trial | None = None
        self._rollout: _Rollout | None = None
        self._upgraded_workers: int | None = None  # what an upgrade wanted that has failed

    def __bool__(self) -> bool:
        """Whether one is under way."""
        return self._trial is not None or self._rollout is not None

    @property
    def is_trying(self) -> bool:
        """Whether it is not known yet if the next generation works."""
        return self._trial is not None

    def begin(self, why: str) -> None:
        """Read the settings again, and try them; the current workers serve until then, and go on if it fails."""
        service = self._service
        if service.ending:
            return
        self._drop_trial()  # what an earlier signal has begun to try is out of date
        old = service.chosen
        try:
            new = configuration.again(old)
            chosen = configuration.reloaded(old, new)
            self._check_room(chosen)
            if chosen.preload:
                zygote_process.adopt_orphans()
            service.resources.give_logs(chosen)
            changed = (chosen.workers, chosen.max_workers) != (old.workers, old.max_workers)
            workers = chosen.workers if changed or service.withdrawn else self._upgraded_workers
            trial = Generation(service.current.number + 1, chosen, workers)
        except (UsageError, OSError) as error:
            text = bootstrap.reason(error) if isinstance(error, OSError) else str(error)
            service.notifier.reloading(f"{why}: reloading")
            self._failed(why, "reload", text)
            return
        _, fixed = configuration.changes(old, new)
        if fixed:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
            stays = "stays as it is" if len(fixed) == 1 else "stay as they are"
            service.report(WARNING, f"{why}: {names} {stays}; only a restart or SIGUSR2 changes that")
        service.report(INFO, f"{why}: reloading")
        self._try(trial, _Trial(why, "reload", brings_back=service.withdrawn))

    def replace_all(self, why: str, reason: str, workers: int | None) -> None:
        """Replace every worker by one that is made of the current settings; ``workers`` of them, or as many as there
        are."""
        current = self._service.current
        self._upgraded_workers = workers
        self._try(Generation(current.number + 1, current.chosen, workers), _Trial(why, reason))

    def _try(self, generation: Generation, trial: _Trial) -> None:
        self._service.trial, self._trial = generation, trial
        self._service.notifier.reloading(f"{trial.why}: reloading")

    def step(self, now: float) -> None:
        """Go on as far as that is possible now."""
        if self._trial is not None and not self._service.is_stopping:
            self._step_trial(self._trial, now)
        if self._rollout is not None:
            self._check_rollout(self._rollout)

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
            self._zygotes.dismiss_all()  # the next connection makes a zygote
        now = time.monotonic()
        for worker in service.workers:
            if worker is not first:
                worker.mark_stale(trial.reason, now)
        self._rollout = _Rollout(trial.why, trial.reason)

    def _check_rollout(self, rollout: _Rollout) -> None:
        """See whether all workers that are to stay are new and ready, and the others accept no more."""
        service = self._service
        fresh = [worker for worker in service.workers if worker.state is READY and not worker.stale]
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
        """A worker of the current generation could not be started (``told`` why); another try follows."""
        rollout = self._rollout
        if rollout is not None and not rollout.announced:
            # Whoever waits for the reload must not wait until that is mended.
            rollout.announced = True
            self._service.notifier.ready(
                f"serving {self._service.name}; {rollout.why}: not every worker is replaced yet: {_first_line(text)}"
            )

    def fail(self, text: str) -> None:
        """The generation that is tried does not get ready (``told`` why): the current one serves on."""
        trial = self._trial
        if trial is not None:
            self._drop_trial()
            self._failed(trial.why, trial.reason, text)

    def _failed(self, why: str, reason: str, text: str) -> None:
        service = self._service
        service.report(ERROR, f"{why}: {reason} failed, keeping the current workers: {text}")
        if service.served:  # else the first workers are still awaited, of whom the manager is told
            service.notifier.ready(f"serving {service.name}; {why}: {reason} failed: {_first_line(text)}")
            self._when_over()

    def keep_withdrawn(self) -> None:
        """WINCH has come after the signal for the reload."""
        if self._trial is not None:
            self._trial.brings_back = False

    def abandon(self) -> None:
        """Everything ends: there is nothing to be finished."""
        self._rollout = None
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
        """Raise UsageError where there are more workers than the scoreboard has room for."""
        most, name = max((chosen.workers, "workers"), (chosen.max_workers, "max_workers"))
        room = self._service.board.slots // 2
        if most > room:
            raise UsageError(f"{chosen.label(name)}: there is room for {room} workers; a restart makes room for {most}")


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
