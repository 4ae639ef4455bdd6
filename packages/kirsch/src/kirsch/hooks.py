"""Hooks: functions of the application that the server calls when a worker starts and stops.

A hook is named in the settings as ``module:function``. It is loaded after the application, in the process that imports
the application: the worker, or with ``--preload`` the zygote. Each is called with a :class:`WorkerInfo`.

    before-fork   in the zygote, before it forks a worker
    after-fork    in the new worker, first
    worker-start  in the worker, when the application is imported and before the worker is ready
    worker-stop   in the worker, when its requests have ended and it stops gracefully
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

    ``number`` counts from 0, and no other worker that runs has it: ``ps``, ``kirsch top``, the status page and the
    metrics call the worker so. ``index`` counts from 0 too. A worker that replaces another one has the same index, and
    for a while both run. ``pid`` is that of the process in which the hook runs. ``settings`` has an attribute for each
    setting: ``settings.threads``.
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
    """The loaded hooks of the settings. Raises StartupError if one does not exist or cannot be called."""

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
        """Call a hook, if it is set. Raises StartupError for any exception of it: the worker cannot serve then."""
        if name not in self._functions:
            return
        try:
            self._functions[name](WorkerInfo(index, number, self._chosen))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception of the hook is reported
            text = f"{self._chosen.label(name)}: {getattr(self._chosen, name)} raised {type(error).__name__}"
            raise StartupError(EXIT_NOT_LOADED, text, error) from None

    def stop(self, index: int, number: int, report: Report) -> None:
        """Call worker-stop. The worker stops even if the hook fails."""
        try:
            self.call("worker_stop", index, number)
        except StartupError as error:
            report(ERROR, str(error), error.cause)
