"""Configuration files whose values are Python, and the namespaces that their keys belong to."""

from __future__ import annotations

import ast
import builtins
import configparser
import contextlib
import importlib
import operator
from typing import Any


def attributes(full_attribute_name: str) -> Any:
    """The object that a dotted name stands for; its module is imported."""
    module_name, _, name = full_attribute_name.rpartition(".")
    module = importlib.import_module(module_name)
    try:
        return getattr(module, name)
    except AttributeError:
        raise AttributeError(f"'{module_name}' object has no attribute '{name}'") from None


def modules(name: str) -> Any:
    """The module of a dotted name, imported."""
    return importlib.import_module(name)


class NamespaceSet(dict[str, Any]):
    """Handlers of configuration keys by the part before the first dot.

    A handler is called with the rest of the key and the value, or, where it is a context manager, what it enters is.
    """

    generation = 0
    """Counts changes of any set, so that what was compiled from one can be made again."""

    def __setitem__(self, key: str, value: Any) -> None:
        if self.get(key) is not value:
            NamespaceSet.generation += 1
        super().__setitem__(key, value)

    def __call__(self, config: dict[str, Any]) -> None:
        by_namespace: dict[str, dict[str, Any]] = {}
        for key, value in config.items():
            namespace, dot, name = key.partition(".")
            if dot:
                by_namespace.setdefault(namespace, {})[name] = value
        for namespace, handler in list(self.items()):
            if namespace in by_namespace or hasattr(handler, "__exit__"):
                apply(handler, by_namespace.get(namespace, {}))

    def copy(self) -> NamespaceSet:
        return NamespaceSet(self)


def apply(handler: Any, values: dict[str, Any]) -> None:
    """Give a namespace's handler its keys."""
    if hasattr(handler, "__exit__"):
        with handler as entered:
            for name, value in values.items():
                entered(name, value)
    else:
        for name, value in values.items():
            handler(name, value)


class Config(dict[str, Any]):
    """Configuration from a dictionary, a file or the name of one."""

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
        """Go back to the defaults."""
        self.clear()
        dict.update(self, self.defaults)

    def update(self, config: Any) -> None:  # type: ignore[override]
        """Add what ``config`` sets: a dictionary, a file's name, or an open file."""
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
    """A configuration file. Keys keep their case; values are Python expressions."""

    def __init__(self) -> None:
        super().__init__(strict=False)

    def optionxform(self, optionstr: str) -> str:
        return optionstr

    def read(self, filenames: Any, encoding: str | None = "utf-8") -> Any:
        """Read files; OSError where one is missing."""
        names = [filenames] if isinstance(filenames, str) else list(filenames)
        for name in names:
            with open(name, encoding=encoding) as file:
                self.read_file(file, name)
        return names

    def as_dict(self, raw: bool = False, vars: Any = None) -> dict[str, dict[str, Any]]:
        """The sections with their values. Raises ValueError that names section and option of a bad value."""
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
        """The values of a file or of the file of a name."""
        if hasattr(file, "read"):
            self.read_file(file)
        else:
            self.read(str(file))
        return self.as_dict()

    @staticmethod
    def load(given: Any) -> dict[str, Any]:
        """The values of a file, or the dictionary itself."""
        if isinstance(given, str) or hasattr(given, "read") or hasattr(given, "__fspath__"):
            return Parser().dict_from_file(given)
        return dict(given)


_BINARY: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_UNARY: dict[type, Any] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}


def unrepr(text: str) -> Any:
    """The value of a Python expression: literals, modules, builtins, attributes, items, calls, arithmetic."""
    if not text:
        return text
    return _value(ast.parse(text.strip(), mode="eval").body)


def _value(node: ast.AST) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.List() | ast.Tuple() | ast.Set():
            kind: Any = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
            return kind(_value(each) for each in node.elts)
        case ast.Dict():
            made: dict[Any, Any] = {}
            for key, each in zip(node.keys, node.values, strict=True):
                if key is None:
                    made.update(_value(each))
                else:
                    made[_value(key)] = _value(each)
            return made
        case ast.Name():
            return _name(node.id)
        case ast.Attribute():
            return _attribute(node)
        case ast.Subscript():
            return _value(node.value)[_value(node.slice)]
        case ast.Slice():
            return slice(*(None if each is None else _value(each) for each in (node.lower, node.upper, node.step)))
        case ast.BinOp() if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](_value(node.left), _value(node.right))
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_value(node.operand))
        case ast.Call():
            named: dict[str, Any] = {}
            # What is written out wins over what ** brings.
            for keyword in sorted(node.keywords, key=lambda each: each.arg is not None):
                named.update(_value(keyword.value) if keyword.arg is None else {keyword.arg: _value(keyword.value)})
            return _value(node.func)(*(_value(each) for each in node.args), **named)
    raise TypeError(f"an expression may not contain {type(node).__name__}")


def _attribute(node: ast.Attribute) -> Any:
    value = _value(node.value)
    try:
        return getattr(value, node.attr)
    except AttributeError:
        if hasattr(value, "__path__"):  # a package whose module is not imported yet
            return importlib.import_module(f"{value.__name__}.{node.attr}")
        raise


def _name(name: str) -> Any:
    if name in ("globals", "locals"):
        return dict  # such as in __import__("module", globals(), locals(), [""])
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    if hasattr(builtins, name):
        return getattr(builtins, name)
    raise NameError(f"name {name!r} is neither a module nor a builtin")
