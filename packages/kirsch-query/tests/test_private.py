"""The private names of SQLAlchemy that the package uses are in one list, and this SQLAlchemy has them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import kirsch_query
from kirsch_query.private import PRIVATE

FOLDER = Path(kirsch_query.__file__).parent
LISTED = {name for names in PRIVATE.values() for name in names}


def _is_private(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"_[a-z][a-z_]*", name) is not None


def _names(*wanted: type[ast.AST]) -> set[str]:
    """Return the private names in the package, of attributes, functions and text, or of some of them."""
    found = set()
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, wanted):
                found |= {each for each in vars(node).values() if _is_private(each)}
    return found


def _of_sqlalchemy(cls: type[Any]) -> list[type[Any]]:
    """Return a class and those above it, as far as they are SQLAlchemy's."""
    return [each for each in cls.__mro__ if each.__module__.startswith("sqlalchemy.")]


def _overridden() -> set[str]:
    """Return the private names that the package's classes have, and a class of SQLAlchemy above them too."""
    found = set()
    for module in pkgutil.iter_modules([str(FOLDER)]):
        for cls in vars(importlib.import_module(f"kirsch_query.{module.name}")).values():
            if inspect.isclass(cls) and cls.__module__.startswith("kirsch_query."):
                above = {
                    name for each in cls.__mro__ if each.__module__.startswith("sqlalchemy.") for name in vars(each)
                }
                found |= {name for name in vars(cls) if _is_private(name) and name in above}
    return found & (_names(ast.FunctionDef) | _names(ast.Attribute))


def test_the_list_has_the_private_names_that_the_package_uses() -> None:
    own = _names(ast.FunctionDef) - _overridden()
    assigned = {
        node.attr
        for path in FOLDER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_private(node.attr)
    }
    used = _names(ast.Attribute) - own - (assigned - LISTED) - set(dir(ast.AST)) | _overridden()
    assert used <= LISTED, "these are private names of SQLAlchemy, or of another package"
    assert used | _names(ast.Constant) >= LISTED, "these are not used any more"


def _assigns(name: str, cls: type[Any]) -> bool:
    try:
        return f"self.{name}" in inspect.getsource(cls)
    except OSError:  # a class that is compiled
        return False


@pytest.mark.parametrize("place", PRIVATE)
def test_this_sqlalchemy_has_the_private_names(place: str) -> None:
    module, name = place.split(":")
    cls: Any = getattr(importlib.import_module(module), name)
    for each in PRIVATE[place]:
        if each == "_anon_map_key" and sa.__version__ < "2.1":
            continue  # new in 2.1
        known = hasattr(cls, each) or any(map(partial(_assigns, each), _of_sqlalchemy(cls)))
        assert known, f"SQLAlchemy {sa.__version__} has no {cls.__name__}.{each}"
