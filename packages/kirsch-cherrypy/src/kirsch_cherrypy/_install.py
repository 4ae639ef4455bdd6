"""Installation of this package under the name ``cherrypy``."""

from __future__ import annotations

import importlib
import pkgutil
import sys

_LAYER = "kirsch_cherrypy"


def install_as_cherrypy() -> None:
    """Make ``import cherrypy`` mean this package, everywhere in the process.

    Call it before anything imports CherryPy. Raises RuntimeError if CherryPy itself is imported already. CherryPy need
    not be installed.
    """
    layer = sys.modules[_LAYER]
    loaded = sys.modules.get("cherrypy")
    if loaded is layer:
        return
    if loaded is not None:
        raise RuntimeError(
            "CherryPy itself is imported already: call kirsch_cherrypy.install_as_cherrypy() before the first "
            "`import cherrypy`, at the top of the program's main file"
        )
    # Alias all modules, so that each is the same object under both names, regardless of the order of imports.
    for found in pkgutil.walk_packages(layer.__path__, f"{_LAYER}."):
        if not found.name.startswith(f"{_LAYER}.migrate."):  # commands, which a program does not import
            importlib.import_module(found.name)
    for name in [name for name in sys.modules if name == _LAYER or name.startswith(f"{_LAYER}.")]:
        sys.modules["cherrypy" + name[len(_LAYER) :]] = sys.modules[name]
