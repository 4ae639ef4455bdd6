"""A reader of ``gunicorn.conf.py`` that does not execute it: the values of its names, and its hooks."""

from __future__ import annotations

import ast
import os

from kirsch.adopt.adoption import VARIABLE, AdoptError, place
from kirsch.config.compat import gunicorn as tables
from kirsch.config.compat import rules
from kirsch.config.compat.conversion import BY_HAND, LEFT_OUT, LOOK, Conversion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kirsch.adopt.adoption import Adoption

# Hooks with an equivalent in Kirsch, and their adapters in the shim module.
_ADAPTERS = {
    "pre_fork": "before_fork",
    "post_fork": "worker_start",
    "post_worker_init": "worker_start",
    "worker_exit": "worker_stop",
}

SHIM = "kirsch_hooks.py"


def read(path: str, plan: Adoption, conversion: Conversion) -> None:
    """Add the settings of the file at ``path`` to ``conversion``, and its hooks to ``plan``. Raises AdoptError."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise AdoptError(f"{place(path, error.lineno or 0)}: this is not Python: {error.msg}") from None
    plan.files.append(path)
    plan.gunicorn_file = path
    values = Values(path)
    hooks: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in tables.HOOKS:
            _take_hook(node, path, plan, hooks)
        elif isinstance(node, (ast.If, ast.For, ast.While, ast.Try, ast.With)):
            names = {
                each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
            for name in sorted(name for name in names if _rule(name) is not None):
                plan.note(place(path, node.lineno), name, BY_HAND, "it is set under a condition; write its value")
        else:
            values.run(node)
    for name, (value, line) in values.names.items():
        _take(name, value, place(path, line), plan, conversion)
    for name, line in values.unknown.items():
        if _rule(name) is not None or name in ("wsgi_app", "raw_env"):
            plan.note(place(path, line), name, BY_HAND, "its value is computed when the file runs; write it yourself")
    if hooks:
        plan.shims[SHIM] = _shim(path, hooks)


def _take(name: str, value: Any, origin: str, plan: Adoption, conversion: Conversion) -> None:
    """Convert the value of one name in the file."""
    rule = _rule(name)
    if value is None or (rule is None and name not in ("wsgi_app", "raw_env")):
        return
    if name == "wsgi_app":
        conversion.application = str(value)
    elif name == "raw_env":
        for each in value:
            plan.add("env", str(each), f"{origin}: raw_env")
    elif isinstance(value, bool) or (rule is not None and not rule.takes):
        if value and rule is not None:
            conversion.apply(rule, name, None, f"{origin}: {name}")
    elif rule is not None:
        several = isinstance(value, (list, tuple)) and name != "logconfig_dict"
        for each in value if several else [value]:
            conversion.apply(rule, name, str(each), f"{origin}: {name}")
        conversion.given.add("--" + name.replace("_", "-"))


def _rule(name: str) -> rules.Rule | None:
    """Return the rule for a name in the file: the rule of its flag, or of a name that only the file has."""
    server = rules.of("gunicorn")
    for flag in (f"--{name.replace('_', '-')}", f"--{name.replace('_', '-').replace('field-size', 'field_size')}"):
        if any(rule.name == flag for rule in server.rules):
            return server.find(flag)
    text = tables.NAMES.get(name)
    return rules.rule_of("gunicorn", name, text) if text is not None else None


def _take_hook(node: ast.FunctionDef, path: str, plan: Adoption, hooks: list[str]) -> None:
    origin = place(path, node.lineno)
    if all(_only_logs(statement) for statement in node.body):
        plan.note(origin, node.name, LEFT_OUT, "it only writes a line to the log")
    elif node.name not in _ADAPTERS:
        result = LOOK if node.name in ("when_ready", "on_exit", "worker_int", "worker_abort") else BY_HAND
        plan.note(origin, node.name, result, tables.HOOKS[node.name])
    else:
        hooks.append(node.name)
        key = _ADAPTERS[node.name]
        plan.add(key, f"kirsch_hooks:{key}", f"{origin}: {node.name}")


def _only_logs(statement: ast.stmt) -> bool:
    """Return whether a statement has no effect, or only calls a method of a logger."""
    if isinstance(statement, ast.Pass):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    call = statement.value
    if isinstance(call, ast.Constant):
        return True
    if not isinstance(call, ast.Call):
        return False
    words = ast.unparse(call.func).split(".")
    return words == ["print"] or "log" in words[:-1] or "logger" in words[:-1]


def _shim(path: str, hooks: list[str]) -> str:
    adapters = sorted({_ADAPTERS[name] for name in hooks})
    lines = [f"{name} = _hooks.{name}" for name in adapters]
    return "\n".join(
        [
            f'"""Calls the hooks of {os.path.basename(path)}: {", ".join(hooks)}. Written by kirsch adopt."""',
            "",
            "import os",
            "",
            "from kirsch.adopt.gunicorn_hooks import GunicornHooks",
            "",
            f"_hooks = GunicornHooks(os.path.join(os.path.dirname(__file__), {os.path.basename(path)!r}))",
            *lines,
            "",
        ]
    )


class Values:
    """The names in a Python file whose values are known without executing it. An environment variable becomes
    ``${NAME:-default}``, which a shell expands when the server starts.
    """

    def __init__(self, path: str) -> None:
        self.names: dict[str, tuple[Any, int]] = {}
        self.unknown: dict[str, int] = {}
        self._path = path

    def run(self, node: ast.stmt) -> None:
        """Evaluate the assignments in a statement."""
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            return
        for target in targets:
            if isinstance(target, ast.Name):
                try:
                    self.names[target.id] = (self.value(value), node.lineno)
                    self.unknown.pop(target.id, None)
                except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError):
                    self.names.pop(target.id, None)
                    self.unknown[target.id] = node.lineno

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression. Raises ValueError and others if it cannot be determined."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return os.path.abspath(self._path)
            return self.names[node.id][0]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(each) for each in node.elts]
        if isinstance(node, ast.Dict):
            return {self.value(key): self.value(each) for key, each in zip(node.keys, node.values, strict=True) if key}
        if isinstance(node, ast.JoinedStr):
            return "".join(str(self.value(each)) for each in node.values)
        if isinstance(node, ast.FormattedValue):
            return self.value(node.value)
        if isinstance(node, ast.BinOp):
            return self._operation(node)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return next((value for each in node.values if (value := self.value(each))), None)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.value(node.operand)
        if isinstance(node, (ast.IfExp, ast.Compare)):
            raise ValueError("a condition")
        if isinstance(node, ast.Subscript) and _dotted(node.value).endswith("environ"):
            return f"${{{self.value(node.slice)}}}"
        if isinstance(node, ast.Call):
            return self._call(node)
        raise ValueError(ast.unparse(node))

    def _operation(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        is_variable = any(isinstance(each, str) and VARIABLE.search(each) for each in (left, right))
        if isinstance(node.op, ast.Add):
            if is_variable and not (isinstance(left, str) and isinstance(right, str)):
                raise ValueError("an operation on a variable")
            return left + right
        if isinstance(node.op, ast.Mod) and isinstance(left, str):
            return left % (tuple(right) if isinstance(right, list) else right)
        if is_variable:
            raise ValueError("an operation on a variable")
        operations = {
            ast.Mult: lambda: left * right,
            ast.Sub: lambda: left - right,
            ast.Div: lambda: left / right,
            ast.FloorDiv: lambda: left // right,
        }
        result: Any = operations[type(node.op)]()  # type: ignore[no-untyped-call]
        return result

    def _call(self, node: ast.Call) -> Any:
        name = _dotted(node.func)
        arguments = [self.value(each) for each in node.args]
        last = name.rpartition(".")[2]
        if name.endswith(("environ.get", "getenv")) or name in ("config", "env", "env.str", "env.int"):
            default = arguments[1] if len(arguments) > 1 else None
            default = next((self.value(each.value) for each in node.keywords if each.arg == "default"), default)
            return f"${{{arguments[0]}}}" if default is None else f"${{{arguments[0]}:-{default}}}"
        if last in ("cpu_count", "process_cpu_count"):
            return os.cpu_count() or 1
        if name in ("int", "float", "str") and len(arguments) == 1:
            value = arguments[0]
            is_text = name == "str" or (isinstance(value, str) and VARIABLE.search(value))
            return str(value) if is_text else {"int": int, "float": float}[name](value)
        if name in ("max", "min") and not any(isinstance(each, str) for each in arguments):
            return {"max": max, "min": min}[name](arguments)
        if last in ("join", "dirname", "abspath", "realpath", "normpath") and "path" in name:
            return getattr(os.path, last)(*arguments)
        if isinstance(node.func, ast.Attribute) and last in ("format", "strip", "lower", "split", "replace", "upper"):
            return getattr(self.value(node.func.value), last)(*arguments)
        raise ValueError(name)


def _dotted(node: ast.expr) -> str:
    """Return the text of a dotted name such as ``os.environ``; empty for another expression."""
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
