"""Hooks: functions of the application that the server calls when a worker starts or stops.

A hook is named in the settings as ``module:function``. It is loaded after the application, in the process that imports
the application: the worker, or with ``--preload`` the zygote. Each hook is called with a :class:`WorkerInfo`.

    before-fork   in the zygote, before it forks a worker
    after-fork    in the new worker, before anything else
    worker-start  in the worker, after the application is imported and before the worker is ready
    worker-stop   in the worker, after its requests have ended, if it stops gracefully
"""

from __future__ import annotations

import os

from kirsch.apps import loading
from kirsch.bootstrap import EXIT_NOT_LOADED, StartupError
from kirsch.config.kinds import FUNCTION
from kirsch.config.schema import SETTINGS
from kirsch.reports import ERROR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.config.schema import Settings
    from kirsch.reports import Report

NAMES = tuple(each.name for each in SETTINGS if each.kind is FUNCTION)


class WorkerInfo:
    """The argument of a hook.

    ``number`` is unique among the running workers, from 0; ``ps``, ``kirsch top``, the status page and the metrics show
    it. ``index`` is the worker's place, from 0: a worker that replaces another has the same index, and both run for a
    while. ``pid`` is the id of the process in which the hook runs. ``settings`` has an attribute for each setting:
    ``settings.threads``.
    """

    __slots__ = ("index", "number", "pid", "settings")

    def __init__(self, index: int, number: int, settings: Settings) -> None:
        self.index = index
        self.number = number
        self.pid = os.getpid()
        self.settings = settings

    def __repr__(self) -> str:
        return f"<WorkerInfo number={self.number} index={self.index} pid={self.pid}>"


class Hooks:
    """The hooks of the settings, imported. Raises StartupError if one does not exist or is not callable."""

    def __init__(self, chosen: Settings) -> None:
        self._chosen = chosen
        self._functions: dict[str, Callable[[WorkerInfo], Any]] = {}
        for name in NAMES:
            if target := getattr(chosen, name):
                try:
                    self._functions[name] = loading.load_function(target)
                except loading.LoadError as error:
                    text = f"{chosen.label(name)}: {error}"
                    raise StartupError(EXIT_NOT_LOADED, text, error.cause) from None

    def call(self, name: str, index: int, number: int) -> None:
        """Call the hook ``name``, if it is set. Raises StartupError if it raises: the worker cannot serve then."""
        if name not in self._functions:
            return
        try:
            self._functions[name](WorkerInfo(index, number, self._chosen))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception of the hook is reported
            text = f"{self._chosen.label(name)}: {getattr(self._chosen, name)} raised {type(error).__name__}"
            raise StartupError(EXIT_NOT_LOADED, text, error) from None

    def stop(self, index: int, number: int, report: Report) -> None:
        """Call the hook worker-stop. If it fails, report the error; the worker stops anyway."""
        try:
            self.call("worker_stop", index, number)
        except StartupError as error:
            report(ERROR, str(error), error.cause)
