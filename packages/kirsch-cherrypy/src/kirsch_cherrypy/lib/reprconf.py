"""Configuration files with Python expressions as values, and the namespaces of their keys."""

from __future__ import annotations

import ast
import builtins
import configparser
import contextlib
import importlib
from typing import Any


def attributes(full_attribute_name: str) -> Any:
    """Import the module of a dotted name, and return the object with that name."""
    module_name, _, name = full_attribute_name.rpartition(".")
    return getattr(importlib.import_module(module_name), name)


def modules(name: str) -> Any:
    """Import and return the module with a dotted name."""
    return importlib.import_module(name)


class NamespaceSet(dict[str, Any]):
    """Handlers of configuration keys, by namespace: the part of the key before the first dot.

    A handler is called with the rest of the key and the value. A context manager's ``__enter__`` returns the handler.
    """

    generation = 0
    """The number of changes of all sets, which invalidates objects compiled from them."""

    def __setitem__(self, key: str, value: Any) -> None:
        if self.get(key) is not value:
            NamespaceSet.generation += 1
        super().__setitem__(key, value)

    def __call__(self, config: dict[str, Any]) -> None:
        found = by_namespace(config)
        for namespace, handler in list(self.items()):
            if namespace in found or hasattr(handler, "__exit__"):
                apply(handler, found.get(namespace, {}))

    def copy(self) -> NamespaceSet:
        return NamespaceSet(self)


def by_namespace(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the keys that have a dot, by namespace, with their values."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in config.items():
        namespace, dot, name = key.partition(".")
        if dot:
            found.setdefault(namespace, {})[name] = value
    return found


def apply(handler: Any, values: dict[str, Any]) -> None:
    """Call the handler of a namespace for each of its keys."""
    with handler if hasattr(handler, "__exit__") else contextlib.nullcontext(handler) as entered:
        for name, value in values.items():
            entered(name, value)


class Config(dict[str, Any]):
    """A configuration, read from a dictionary, a file or the name of a file."""

    namespaces = NamespaceSet()
    environments: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - subclasses have their own
    defaults: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, file: Any = None, **kwargs: Any) -> None:
        super().__init__()
        self.reset()
        for given in (file, kwargs):
            if given:
                self.update(given)

    def reset(self) -> None:
        """Reset the configuration to the defaults."""
        self.clear()
        dict.update(self, self.defaults)

    def update(self, config: Any) -> None:  # type: ignore[override]
        """Update with ``config``: a dictionary, the name of a file, or an open file."""
        self._apply(Parser.load(config))

    def _apply(self, config: dict[str, Any]) -> None:
        chosen = config.get("environment")
        if chosen:
            if chosen not in self.environments:
                raise ValueError(f"environment: there is no {chosen!r}; there are {', '.join(self.environments)}")
            config = {**self.environments[chosen], **config}
        dict.update(self, config)
        self.namespaces(config)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.namespaces({key: value})


class Parser(configparser.ConfigParser):
    """A parser of configuration files. Keys are case-sensitive; values are Python expressions."""

    def __init__(self) -> None:
        super().__init__(strict=False)

    def optionxform(self, optionstr: str) -> str:
        return optionstr

    def read(self, filenames: Any, encoding: str | None = "utf-8") -> Any:
        """Read files. Raises OSError if one is missing."""
        names = [filenames] if isinstance(filenames, str) else list(filenames)
        for name in names:
            with open(name, encoding=encoding) as file:
                self.read_file(file, name)
        return names

    def as_dict(self, raw: bool = False, vars: Any = None) -> dict[str, dict[str, Any]]:
        """Return the evaluated values by section. Raises ValueError that names section and option of a wrong value."""
        result: dict[str, dict[str, Any]] = {}
        for section in self.sections():
            result[section] = values = {}
            for option in self.options(section):
                text = self.get(section, option, raw=raw, vars=vars)
                try:
                    values[option] = unrepr(text)
                except Exception as error:
                    raise ValueError(
                        f"Config error in section: {section!r}, option: {option!r}, value: {text!r}. "
                        f"A value is a Python expression. ({error})",
                        type(error).__name__, error.args,
                    ) from error  # fmt: skip
        return result

    def dict_from_file(self, file: Any) -> dict[str, dict[str, Any]]:
        """Return the sections of an open file, or of the file with a name."""
        if hasattr(file, "read"):
            self.read_file(file)
        else:
            self.read(str(file))
        return self.as_dict()

    @staticmethod
    def load(given: Any) -> dict[str, Any]:
        """Return the sections of a file, or ``given`` itself if it is a dictionary."""
        if isinstance(given, str) or hasattr(given, "read") or hasattr(given, "__fspath__"):
            return Parser().dict_from_file(given)
        return dict(given)


_ALLOWED = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Name, ast.Attribute, ast.Subscript,
    ast.Slice, ast.BinOp, ast.UnaryOp, ast.Call, ast.keyword, ast.Starred, ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip


def unrepr(text: str) -> Any:
    """Evaluate a Python expression of literals, modules, builtins, attributes, items, calls and arithmetic."""
    if not text:
        return text
    tree = ast.parse(text.strip(), mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise TypeError(f"an expression may not contain {type(node).__name__}")
        if isinstance(node, ast.Attribute):
            # Import each prefix of a dotted name that is a module: submodules need not be imported yet.
            with contextlib.suppress(ImportError):
                importlib.import_module(ast.unparse(node))
        if isinstance(node, ast.Call) and any(each.arg is None for each in node.keywords):
            # An explicit keyword overrides one of a ** mapping.
            given = sorted(node.keywords, key=lambda each: each.arg is not None)
            names: list[ast.expr | None] = [None if each.arg is None else ast.Constant(each.arg) for each in given]
            node.keywords = [ast.keyword(None, ast.Dict(names, [each.value for each in given]))]
    ast.fix_missing_locations(tree)
    return eval(compile(tree, "<configuration>", "eval"), {"__builtins__": {}}, _Names())  # noqa: S307 - checked above


class _Names(dict[str, Any]):
    """Resolves the names in an expression: modules and builtins."""

    def __missing__(self, name: str) -> Any:
        if name in ("globals", "locals"):
            return dict  # such as in __import__("module", globals(), locals(), [""])
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(f"name {name!r} is neither a module nor a builtin")
