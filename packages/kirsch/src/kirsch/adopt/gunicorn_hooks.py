"""Adapters that call the hooks of a gunicorn.conf.py like gunicorn, with substitutes for its arbiter and its worker.
``kirsch adopt`` writes a module kirsch_hooks.py that uses them. The substitutes have only ``server.log``,
``server.pid``, ``worker.log``, ``worker.pid`` and ``worker.age``.
"""

from __future__ import annotations

import logging
import os
import runpy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kirsch.hooks import WorkerInfo


class _Arbiter:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.log = logging.getLogger("gunicorn.error")
        self.pid = os.getppid()
        self.cfg = type("Settings", (), settings)()


class _GunicornWorker:
    def __init__(self, info: WorkerInfo, arbiter: _Arbiter) -> None:
        self.log = arbiter.log
        self.cfg = arbiter.cfg
        self.pid = info.pid
        self.ppid = arbiter.pid
        self.age = info.number + 1


class GunicornHooks:
    """The hooks of the file at ``path``, which is executed once, when the first hook is called."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: dict[str, Any] | None = None

    def before_fork(self, info: WorkerInfo) -> None:
        """Call ``pre_fork``."""
        self._call("pre_fork", info)

    def worker_start(self, info: WorkerInfo) -> None:
        """Call ``post_fork``, and ``post_worker_init``, which takes only the worker."""
        self._call("post_fork", info)
        self._call("post_worker_init", info, alone=True)

    def worker_stop(self, info: WorkerInfo) -> None:
        """Call ``worker_exit``."""
        self._call("worker_exit", info)

    def _call(self, name: str, info: WorkerInfo, *, alone: bool = False) -> None:
        if self._names is None:
            self._names = runpy.run_path(self._path)
        hook = self._names.get(name)
        if hook is not None:
            arbiter = _Arbiter(self._names)
            worker = _GunicornWorker(info, arbiter)
            hook(worker) if alone else hook(arbiter, worker)
