"""A reader of programs that call ``uvicorn.run``: the keywords whose values are known without executing it."""

from __future__ import annotations

import ast

from kirsch.adopt.adoption import AdoptError, Adoption, place
from kirsch.adopt.gunicorn_file import Values
from kirsch.config.compat.conversion import BY_HAND, Conversion


def read(path: str, text: str) -> Adoption:
    """Return the adoption of the first call of ``uvicorn.run``. Raises AdoptError."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise AdoptError(f"{place(path, error.lineno or 0)}: this is not Python: {error.msg}") from None
    values = Values(path)
    for statement in tree.body:
        values.run(statement)
    call = next(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("uvicorn.run", "run", "server.run")
        ),
        None,
    )
    if call is None or not (call.args or call.keywords):
        raise AdoptError("it starts a server in a way that cannot be read; write the command in kirsch.toml by hand")
    plan = Adoption("uvicorn")
    plan.files.append(path)
    conversion = Conversion("uvicorn")
    arguments = {keyword.arg or "": keyword.value for keyword in call.keywords}
    app = call.args[0] if call.args else arguments.pop("app", None)
    conversion.application = _application(app, path)
    origin = place(path, call.lineno)
    for name, node in arguments.items():
        flag = f"--{name.replace('_', '-').replace('reload-dirs', 'reload-dir')}"
        try:
            value = values.value(node)
        except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError):
            plan.note(origin, name, BY_HAND, f"its value is computed: {ast.unparse(node)}; write it yourself")
            continue
        rule = conversion.server.find(flag)
        if value is None or value is False or rule is None:
            continue
        for each in value if isinstance(value, list) else [value]:
            conversion.option(flag, str(each) if rule.takes else None, f"{origin}: {name}")
    conversion.finish()
    plan.take(conversion, origin)
    plan.finish(conversion.given)
    return plan


def _application(node: ast.expr | None, path: str) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return f"{place(path).removesuffix('.py')}:{node.id}"
    return None
