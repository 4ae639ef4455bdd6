"""The global objects. The package creates them when it is imported, and its modules read them here."""

from __future__ import annotations

from typing import Any

version = "18.10.0"
"""The CherryPy release that this layer is compatible with."""

config: Any = None
log: Any = None
server: Any = None
servers: dict[str, Any] = {}
"""Additional servers, by the name in ``server.NAME.OPTION``."""
tools: Any = None
tree: Any = None
cache: Any = None
"""The cache of the tool ``caching``, created by the first request that uses the tool."""
has_sessions = False
"""Whether a session has been created. ``cherrypy.session`` exists only then."""
