"""The objects that a process has once. The package makes them when it is imported; its files read them here."""

from __future__ import annotations

from typing import Any

version = "18.10.0"
"""The release of CherryPy whose behaviour this layer has."""

config: Any = None
log: Any = None
server: Any = None
servers: dict[str, Any] = {}
"""Further servers, by the names that ``server.NAME.OPTION`` has."""
tools: Any = None
tree: Any = None
cache: Any = None
"""The cache of the tool ``caching``, made for the first response that is kept."""
has_sessions = False
"""True if a session has begun: from then on there is ``cherrypy.session``."""
