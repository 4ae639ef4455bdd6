"""``python -m kirsch_cherrypy.migrate cherrypy MODULE``: the command ``kirsch migrate`` without the server."""

from __future__ import annotations

import sys

from kirsch_cherrypy.migrate.command import main

raise SystemExit(main(sys.argv[1:]))
