"""Layers that run code written for other frameworks.

`kirsch_web.compat.cherrypy` runs code written for CherryPy 18. A program imports it under CherryPy's name::

    import kirsch_web.compat.cherrypy as cherrypy

A program of many files, or one whose libraries import ``cherrypy`` themselves, calls :func:`install_as_cherrypy` first.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_LAYER = "kirsch_web.compat.cherrypy"


class _Alias(MetaPathFinder, Loader):
    """Finds ``cherrypy.x`` as ``kirsch_web.compat.cherrypy.x``: one module under two names, loaded once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "cherrypy" and not name.startswith("cherrypy."):
            return None
        try:
            found = find_spec(_LAYER + name[len("cherrypy") :])
        except ModuleNotFoundError:
            return None
        return (
            None if found is None else ModuleSpec(name, self, is_package=found.submodule_search_locations is not None)
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_LAYER + spec.name[len("cherrypy") :])
        # The import system writes the alias's name and spec into the module; exec_module restores them.
        self._own = module.__spec__, module.__loader__, module.__name__, module.__package__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__, module.__loader__, module.__name__, module.__package__ = self._own


def install_as_cherrypy() -> None:
    """Make ``import cherrypy`` mean this layer, everywhere in the process.

    Call it before anything imports CherryPy. Raises RuntimeError if CherryPy itself is imported already. CherryPy need
    not be installed.
    """
    layer = importlib.import_module(_LAYER)
    loaded = sys.modules.get("cherrypy")
    if loaded is layer:
        return
    if loaded is not None:
        raise RuntimeError(
            "CherryPy itself is imported already: call kirsch_web.compat.install_as_cherrypy() before the first "
            "`import cherrypy`, at the top of the program's main file"
        )
    sys.meta_path.insert(0, _Alias())
    sys.modules["cherrypy"] = layer
    for name in [name for name in sys.modules if name.startswith(_LAYER + ".")]:
        sys.modules["cherrypy" + name[len(_LAYER) :]] = sys.modules[name]
