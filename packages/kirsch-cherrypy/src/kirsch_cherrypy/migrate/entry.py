"""The command that this distribution adds to ``kirsch``, as its entry point names it (``kirsch.commands``)."""

from __future__ import annotations

from kirsch.commands import Command

MIGRATE = Command("Rewrite handlers for CherryPy into typed ones.", "kirsch_cherrypy.migrate.command")
