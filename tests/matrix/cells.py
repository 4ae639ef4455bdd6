"""Which behaviours each server is tried with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matrix.asgi
import matrix.wsgi
from matrix.at_import import IMPORTS

if TYPE_CHECKING:
    from matrix.servers import Server
    from matrix.table import Behaviour


def all_of(server: Server) -> list[Behaviour]:
    """Return the behaviours that ``server`` is tried with."""
    if server.interface == "wsgi":
        return [*matrix.wsgi.TABLE.values(), *IMPORTS.values()]
    return [*matrix.asgi.TABLE.values(), *matrix.asgi.LIFESPANS.values()]


def groups_of(server: Server) -> list[str]:
    """Return the names of their groups."""
    return list(dict.fromkeys(behaviour.group for behaviour in all_of(server)))


def behaviours_of(server: Server, group: str) -> list[Behaviour]:
    """Return those of one group."""
    return [behaviour for behaviour in all_of(server) if behaviour.group == group]
