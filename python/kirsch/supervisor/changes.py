"""Files that call for a reload when they change: ``--reload`` and ``--touch-reload``, as the supervisor sees them."""

from __future__ import annotations

import os
import sys
import time

from kirsch import assembly
from kirsch.reports import ERROR
from kirsch.supervisor.crew import NEVER
from kirsch.supervisor.scaling import LOOK_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.supervisor.service import Service
    from kirsch.supervisor.waiting import Waiting
    from kirsch.supervisor.watching import Touches, Watch


class Changes:
    """``reload(why)`` is called when there is one."""

    def __init__(self, service: Service, waiting: Waiting, reload: Callable[[str], None]) -> None:
        self._service = service
        self._waiting = waiting
        self._reload = reload
        self._watch: Watch | None = None
        self._touches: Touches | None = None
        self._looked_at = time.monotonic()

    def start(self) -> None:
        """Watch, if that is wanted. Raises AssemblyError."""
        chosen = self._service.chosen
        if not (chosen.reload or chosen.touch_reload):
            return
        from kirsch.supervisor import watching

        self._touches = watching.Touches(chosen.touch_reload) if chosen.touch_reload else None
        if not chosen.reload:
            return
        # It watches where the application's modules are. Those of the same name as one that the supervisor has yet to
        # import must not stay in its way.
        path = sys.path.copy()
        assembly.extend_path(chosen)
        try:
            self._watch = watching.Watch(chosen.reload_extra_files)
        except watching.WatchError as error:
            raise assembly.AssemblyError(assembly.EXIT_FAILED, str(error)) from None
        finally:
            sys.path[:] = path
        self._waiting.attend(self._watch.fileno(), self._on_change)

    def due(self) -> float:
        """When to :meth:`look` again."""
        return NEVER if self._touches is None or self._service.is_stopping else self._looked_at + LOOK_SECONDS

    def look(self, now: float) -> None:
        if now >= self.due() and self._touches is not None:
            self._looked_at = now
            if touched := self._touches.look():
                self._reload(f"{touched[0]} was touched")

    def stop(self) -> None:
        """Watch no more; :meth:`start` may follow."""
        if self._watch is not None:
            self._waiting.ignore(self._watch.fileno())
            self.close()

    def close(self) -> None:
        """In a forked child too, which takes nothing away from its parent."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _on_change(self) -> None:
        from kirsch.supervisor import watching

        assert self._watch is not None
        try:
            changed = self._watch.read()
        except watching.WatchError as error:
            self._service.report(ERROR, str(error))
            self.stop()
        else:
            if changed:
                self._reload(f"{os.path.relpath(changed[0])} has changed")
