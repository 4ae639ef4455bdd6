"""Calls the hooks of a gunicorn.conf.py as gunicorn did, with stand-ins for its arbiter and its worker.

``kirsch adopt`` writes a module kirsch_hooks.py that uses this. A hook sees ``server.log`` and ``server.pid``, and
``worker.log``, ``worker.pid`` and ``worker.age``; other attributes of gunicorn's objects are not there.
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
    """The hooks of the file at ``path``, which is run once, when the first of them is called."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: dict[str, Any] | None = None

    def before_fork(self, info: WorkerInfo) -> None:
        """Call ``pre_fork``."""
        self._call("pre_fork", info)

    def worker_start(self, info: WorkerInfo) -> None:
        """Call ``post_fork`` and ``post_worker_init``, which takes the worker alone."""
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
