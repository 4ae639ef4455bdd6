"""Rewriting of handlers in the source of a module to typed ones, or the reasons why that is not possible."""

from __future__ import annotations

import ast
from typing import Any

CONVERSIONS = {"int": "int", "float": "float"}
"""Calls at the start of a handler that are replaced by the type of a parameter."""
RAISED = {"HTTPError", "HTTPRedirect", "NotFound"}
"""Exceptions that have the same name in CherryPy and kirsch-web."""


class Handler:
    """A method with ``@cherrypy.expose``.

    ``reason`` is why the handler cannot be rewritten, or an empty string if it can.
    """

    def __init__(self, cls: ast.ClassDef, function: Any, names: frozenset[str]) -> None:
        self.cls = cls
        self.function = function
        self.name = f"{cls.name}.{function.name}"
        self.is_json = False
        self.types: dict[str, str] = {}
        self.dropped: list[ast.stmt] = []
        self._names = names
        self.reason = self._reason()

    def _reason(self) -> str:
        function = self.function
        if isinstance(function, ast.AsyncFunctionDef):
            return "it is a coroutine function"
        for decorator in function.decorator_list:
            text = ast.unparse(decorator)
            if text.endswith(".tools.json_out()"):
                self.is_json = True
            elif text.partition(".")[0] not in self._names or not text.endswith((".expose", ".expose()")):
                return f"it is decorated with @{text}"
        arguments = function.args
        if arguments.kwarg is not None:
            return f"it takes **{arguments.kwarg.arg}: every field of the query and the body"
        if arguments.posonlyargs or arguments.kwonlyargs:
            return "it has parameters that are positional or keyword only"
        for each in arguments.args[1:]:
            if each.annotation is not None:
                return f"{each.arg} is annotated already"
        for default in arguments.defaults:
            if not (isinstance(default, ast.Constant) and isinstance(default.value, (str, type(None)))):
                return f"a default is {ast.unparse(default)}, and not a text or None"
        self._find_types()
        used = [
            node
            for statement in function.body
            if statement not in self.dropped
            for node in ast.walk(statement)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self._names
        ]
        for node in used:
            if node.attr not in RAISED:
                return f"it uses {ast.unparse(node)}"
        return ""

    def _find_types(self) -> None:
        """Find statements such as ``name = int(name)`` at the start of the body."""
        parameters = [each.arg for each in self.function.args.args[1:]]
        defaults = dict(zip(parameters[::-1], self.function.args.defaults[::-1], strict=False))
        body = self.function.body
        for statement in body[1:] if ast.get_docstring(self.function) else body:
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Name(id=kind), args=[ast.Name(id=source)], keywords=[]),
                ) if name == source and name in parameters and kind in CONVERSIONS:
                    default = defaults.get(name)
                    if isinstance(default, ast.Constant) and default.value is None:
                        return  # int(None) raises, and a typed handler would not
                    self.types[name] = CONVERSIONS[kind]
                    self.dropped.append(statement)
                case _:
                    return

    def edits(self, source: Source, methods: list[str]) -> list[tuple[int, int, str]]:
        """Return the edits (start, end, text) that make the handler typed, for the methods in the recording."""
        function = self.function
        indent = " " * function.col_offset
        edits = []
        first = function.decorator_list[0]
        lines = ["@web.get" if methods == ["GET"] else f"@web.publish(methods={methods!r})"]
        if self.is_json:
            lines.append('@web.config({"tools.json_out.on": True})')
        start, end = source.at(first.lineno, first.col_offset) - 1, source.at(function.lineno, function.col_offset)
        edits.append((start, end, "".join(f"{line}\n{indent}" for line in lines)))
        edits += [
            (*source.span(each), f"{each.arg}: {self.types.get(each.arg, 'str')}") for each in function.args.args[1:]
        ]
        defaults = function.args.defaults
        for each, default in zip(function.args.args[-len(defaults) :] if defaults else [], defaults, strict=True):
            start, end = source.span(each)
            kind = self.types.get(each.arg, "str")
            text = ast.unparse(default)
            if default.value is None:
                kind += " | None"
            elif kind != "str":
                text = repr({"int": int, "float": float}[kind](default.value))
            edits = [edit for edit in edits if edit[0] != start]
            edits.append((start, source.span(default)[1], f"{each.arg}: {kind} = {text}"))
        for statement in self.dropped:
            begin = source.at(statement.lineno, 0)
            edits.append((begin, source.at((statement.end_lineno or 0) + 1, 0), ""))
        for node in ast.walk(function):
            match node:
                case ast.Attribute(value=ast.Name(id=name) as value, attr=attribute) if attribute in RAISED:
                    if name in self._names:
                        edits.append((*source.span(value), "web"))
        return edits


class Source:
    """The source of a module, and its handlers."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self.names = self._cherrypy_names()
        self.handlers = [
            Handler(cls, function, self.names)
            for cls in ast.walk(self.tree)
            if isinstance(cls, ast.ClassDef)
            for function in cls.body
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and self._is_exposed(function)
        ]

    def _cherrypy_names(self) -> frozenset[str]:
        """Return the names under which CherryPy, or the layer, is imported."""
        found = {"cherrypy"}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update(
                    each.asname or each.name for each in node.names if each.name in ("cherrypy", "kirsch_cherrypy")
                )
        return frozenset(found)

    def _is_exposed(self, function: Any) -> bool:
        return any(
            ast.unparse(each).partition("(")[0] in {f"{name}.expose" for name in self.names}
            for each in function.decorator_list
        )

    def at(self, line: int, column: int) -> int:
        """Return the offset in the text of a line and a column, which ``ast`` counts in bytes."""
        if line > len(self._lines):
            return len(self.text)
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        """Return the offsets of the start and end of a node."""
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def rewritten(self, handlers: dict[str, list[str]]) -> str:
        """Return the source in which the named handlers are typed, each for its HTTP methods."""
        chosen = [each for each in self.handlers if each.name in handlers]
        if not chosen:
            return self.text
        edits: list[tuple[int, int, str]] = []
        for handler in chosen:
            edits += handler.edits(self, handlers[handler.name])
        # Mark the classes of typed handlers as published, which CherryPy does not require.
        for cls in {handler.cls.name: handler.cls for handler in chosen}.values():
            first = cls.decorator_list[0] if cls.decorator_list else cls
            start = self.at(first.lineno, first.col_offset) - (1 if cls.decorator_list else 0)
            edits.append((start, start, f"@web.publish\n{' ' * cls.col_offset}"))
        imports = [node for node in self.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        if not any("kirsch_web as web" in ast.unparse(node) for node in imports):
            end = self.at((imports[-1].end_lineno or 0) + 1, 0) if imports else 0
            edits.append((end, end, "import kirsch_web as web\n"))
        edits += self._application()
        text = self.text
        for start, end, new in sorted(edits, key=lambda edit: edit[:2], reverse=True):
            text = text[:start] + new + text[end:]
        ast.parse(text)
        return text

    def _application(self) -> list[tuple[int, int, str]]:
        """Return the edits of ``application = cherrypy.tree``, if the module has that."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.value) in {f"{name}.tree" for name in self.names}:
                start, end = self.span(node.value)
                whole = self.at(node.lineno, 0)
                return [
                    (whole, whole, "from kirsch_cherrypy.migrate import typed\n\n"),
                    (start, end, f"typed({self.text[start:end]})"),
                ]
        return []
