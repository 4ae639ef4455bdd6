"""Write docs/api.md from the docstrings of what ``kirsch_web`` exports.

    python api_page.py [--check]

It reads the source and imports nothing, so every Python writes the same page. ``--check`` writes nothing; it ends with
status 1 where the page is not what the docstrings say.
"""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

from written_page import write

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "src" / "kirsch_web"
PAGE = HERE / "docs" / "api.md"

HEAD = """\
# Reference

Every name that `import kirsch_web as web` gives. `api_page.py` writes this page from the docstrings; a test compares
them. The [tutorial](tutorial.md) shows how the names work together.
"""
MODULES = ("testing", "stages")
"""Modules that are imported by their own names."""


def exported() -> dict[str, str]:
    """The module of each exported name, in the order of the names."""
    tree = ast.parse((SOURCE / "__init__.py").read_text("utf-8"))
    modules: dict[str, str] = {}
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kirsch_web."):
            modules.update({each.name: node.module.partition(".")[2] for each in node.names})
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
    return {name: modules[name] for name in names}


def definition(module: str, name: str) -> ast.stmt | None:
    """The last definition of ``name`` in a module: overloads come before it."""
    found = None
    for node in ast.parse((SOURCE / f"{module}.py").read_text("utf-8")).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            found = node
    return found


def signature(node: ast.FunctionDef, name: str, *, method: bool) -> str:
    """``name(parameters) -> result``, without ``self``."""
    arguments = ast.unparse(node.args)
    if method and not any(getattr(each, "id", "") == "staticmethod" for each in node.decorator_list):
        first, _, arguments = arguments.partition(", ")
        arguments = arguments.removeprefix("/, ") if first in ("self", "cls") else f"{first}, {arguments}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    return f"{name}({arguments}){returns}"


def text(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The docstring in Markdown: names of code in single back-quotes."""
    found = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
    for role in (":func:", ":class:", ":meth:", ":mod:", ":data:", ":attr:"):
        found = found.replace(role, "")
    found = found.replace("``", "`")
    lines, indented = [], False
    for line in found.splitlines():
        if line.rstrip() in ("Args:", "Options:", "Raises:", "Returns:"):
            line, indented = f"{line.strip()[:-1]}:\n", True
        elif indented and line.startswith("    ") and not line.startswith("        "):
            line = f"- {line.strip()}"
        elif indented and line.startswith("        "):
            line = f"  {line.strip()}"
        elif line.strip():
            indented = False
        lines.append(line)
    return "\n".join(lines).strip()


def section(module: str, name: str, level: str = "##") -> str:
    """One name of a module."""
    node = definition(module, name)
    if node is None:  # a decorator that another function made
        return f"{level} {name}\n\nDecorates a method: it answers {name.upper()}. See `publish`.\n"
    if isinstance(node, ast.FunctionDef):
        return f"{level} {name}\n\n```python\n{signature(node, name, method=False)}\n```\n\n{text(node)}\n"
    assert isinstance(node, ast.ClassDef)
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    made = next((each for each in methods if each.name == "__init__"), None)
    bases = ", ".join(ast.unparse(each) for each in node.bases)
    head = signature(made, name, method=True) if made is not None else f"class {name}({bases})" if bases else name
    parts = [f"{level} {name}\n\n```python\n{head}\n```\n\n{text(node)}\n"]
    for each in methods:
        if each.name.startswith("_") or not ast.get_docstring(each):
            continue
        kinds = {getattr(decorator, "id", getattr(decorator, "attr", "")) for decorator in each.decorator_list}
        if "setter" in kinds:
            continue
        shown = each.name if "property" in kinds else signature(each, each.name, method=True)
        parts.append(f"- **`{shown}`**  \n  " + text(each).replace("\n", "\n  ") + "\n")
    return "\n".join(parts)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    parts += [section(module, name) for name, module in exported().items()]
    for module in MODULES:
        tree = ast.parse((SOURCE / f"{module}.py").read_text("utf-8"))
        names = [
            node.name
            for node in tree.body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
        ]
        about = inspect.cleandoc(ast.get_docstring(tree) or "").replace("``", "`")
        parts.append(f"## kirsch_web.{module}\n\n{about}\n")
        parts += [section(module, name, "###") for name in names]
    return "\n".join("\n".join(line.rstrip(" ") if not line.endswith("**  ") and not line.endswith("`**  ") else line
                               for line in part.splitlines()) + "\n" for part in parts)  # fmt: skip


if __name__ == "__main__":
    sys.exit(write(PAGE, page(), "docstrings"))
