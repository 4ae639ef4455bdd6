"""Behaviours of applications, and the tables in which they register themselves. Imported by the served application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Behaviour:
    """One thing that an application does wrong.

    ``cause`` is a regular expression for the words of the log that name what happened; without it, the log need not
    say anything. ``alone`` gives it a server of its own, because it changes or ends the process. ``ends`` means that
    it ends the whole server, as it may; ``blocks`` that it keeps its own thread, loop or interpreter for more than a
    second; ``keeps`` that its own children outlive the server, as the application asked for;
    ``lasts`` that it goes on until the server's time limit; ``late`` that there is nothing to name before the stop;
    ``calls`` that a function of the server's refuses the arguments of a call, and is in the traceback.
    """

    name: str
    group: str
    act: Callable[..., Any]
    cause: str | None = None
    alone: bool = False
    ends: bool = False
    blocks: bool = False
    keeps: bool = False
    lasts: bool = False
    late: bool = False
    calls: bool = False


class Table(dict[str, Behaviour]):
    """Behaviours by name, in the order of their definition."""

    def add(self, behaviour: Behaviour) -> None:
        assert behaviour.name not in self, behaviour.name
        self[behaviour.name] = behaviour

    def group(self, group: str, **common: Any) -> Callable[..., Any]:
        """Return a decorator that registers a function in ``group``; ``@it`` alone, or ``@it(cause=...)``."""

        def decorate(act: Callable[..., Any] | None = None, **own: Any) -> Any:
            def register(act: Callable[..., Any]) -> Callable[..., Any]:
                self.add(Behaviour(f"{group}-{act.__name__.strip('_')}", group, act, **{**common, **own}))
                return act

            return register if act is None else register(act)

        return decorate


DEEDS = Table()
"""Behaviours of any call, whatever its interface: functions without arguments."""
