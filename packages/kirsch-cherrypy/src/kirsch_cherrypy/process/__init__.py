"""The engine's bus and plugins, under the names of ``cherrypy.process``."""

from __future__ import annotations

from kirsch_cherrypy.process import plugins as plugins
from kirsch_cherrypy.process import wspbus as wspbus
from kirsch_cherrypy.process.wspbus import bus as bus
