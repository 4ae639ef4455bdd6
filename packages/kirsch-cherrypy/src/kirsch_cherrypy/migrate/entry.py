"""The command that this distribution adds to ``kirsch`` with an entry point in the group ``kirsch.commands``."""

from __future__ import annotations

from kirsch.commands import Command

MIGRATE = Command("Rewrite handlers for CherryPy into typed ones.", "kirsch_cherrypy.migrate.command")
