"""Finding the syntax tree of a function, with a proof that it is the right one.

The lines come from ``linecache`` (files, zip archives, the REPL from 3.13 on, IPython, doctest). Of the functions that
start on the line of the code object, only those that compile to the same code object are candidates. So two lambdas on
one line are distinguished without column numbers, which ``-X no_debug_ranges`` removes, and a file that was edited
after its import is detected. The bytecode is compared as a whole and never interpreted.
"""

from __future__ import annotations
import __future__

import ast
import functools
import warnings
from types import CodeType, FunctionType

from kirsch_query.errors import Place, SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeAlias, TypeGuard, TypeVar

    _Node = TypeVar("_Node", bound=ast.AST)

_FUTURE = functools.reduce(int.__or__, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names))
_AS_TEXT = 'Give the same text as a string instead: where("b.price < limit", limit=limit).'


class Source:
    """The expression of a query, the names of its rows, and its place."""

    __slots__ = ("__weakref__", "body", "filename", "judged", "lines", "private", "rows")

    def __init__(
        self, body: ast.expr, rows: tuple[str, ...], filename: str, lines: list[str], private: str = ""
    ) -> None:
        self.body = body
        self.rows = rows
        self.filename = filename
        self.lines = lines
        self.private = private
        """The class whose name goes before names such as ``__x`` in this source; empty outside of a class."""
        self.judged = 0
        """How many rows its tree has judged in memory."""

    def place(self, node: ast.AST) -> Place:
        return Place.of(node, self.filename, self.lines)

    def segment(self, node: ast.AST) -> str:
        """Return the source text of a node, on one line."""
        text = ast.get_source_segment("".join(self.lines), node) if hasattr(node, "lineno") else None
        return " ".join((text or ast.unparse(node)).split())


def is_python(function: object) -> TypeGuard[FunctionType]:
    """Return whether ``function`` is written in Python: PyPy uses the same type for functions of the interpreter."""
    return isinstance(function, FunctionType) and isinstance(function.__code__, CodeType)


def from_function(function: FunctionType) -> Source:
    """Return the source of a function; the same object for the same code. Raises SourceError."""
    return _from_code(function.__code__, function)


MOST_KNOWN = 4096
"""How many functions are known; the oldest one is forgotten first, and found again when it is used."""
_MOST_ALIKE = 16
"""How many functions with equal code are known."""
_known: dict[CodeType, tuple[tuple[CodeType, Source], ...]] = {}


def _from_code(code: CodeType, function: FunctionType) -> Source:
    # Equal code objects may be from different files: the key finds candidates, and identity decides. Two functions on
    # one line that differ only in their defaults share the code object, because CPython 3.10 merges equal constants.
    defaults = len(function.__defaults__ or ())
    for known, source in _known.get(code, ()):
        if known is code and len(source.rows) == code.co_argcount - defaults:
            return source
    source = _find(code, function)
    _known[code] = ((code, source), *_known.pop(code, ())[: _MOST_ALIKE - 1])
    if len(_known) > MOST_KNOWN:
        for old in list(_known)[: len(_known) - MOST_KNOWN]:
            _known.pop(old, None)
    return source


def _find(code: CodeType, function: FunctionType) -> Source:
    import inspect  # imported here, because it takes as long to import as this package

    name = f"the function {code.co_name}" if code.co_name != "<lambda>" else "the lambda"
    where = f"{code.co_filename}, line {code.co_firstlineno}"
    try:
        lines, _ = inspect.findsource(function)
    except (OSError, TypeError, IndexError):
        raise SourceError(f"the source of {name} at {where} cannot be read", hint=_AS_TEXT) from None
    try:
        functions, imported = _parsed(code.co_filename, tuple(lines))
    except (SyntaxError, ValueError):
        raise SourceError(
            f"the source of {name} at {where} has changed since it was imported: it does not parse",
            hint="Import the module again, or restart.",
        ) from None
    candidates = functions.get(code.co_firstlineno, [])
    defaults = len(function.__defaults__ or ())
    for node, private in candidates:
        if _compiles_to(node, private, imported, code):
            return _checked(node, private, code.co_filename, lines, defaults)
    for node, private in candidates:
        if not isinstance(node, ast.Lambda) and node.name == code.co_name:
            _checked(
                node, private, code.co_filename, lines, 0
            )  # more than one statement, which gives a clearer message
    raise SourceError(
        f"the source of {name} at {where} is not that of the function which runs: the file has changed since it was "
        "imported, or something has rewritten the function's code",
        hint=f"Import the module again, or restart. {_AS_TEXT}",
    )


_Definition: TypeAlias = "ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef"
_Candidate: TypeAlias = "tuple[_Definition, str]"


# Only a few files are cached: a tree is large, and the queries of a file are usually read together.
@functools.lru_cache(maxsize=16)
def _parsed(filename: str, lines: tuple[str, ...]) -> tuple[dict[int, list[_Candidate]], frozenset[str]]:
    """Return the functions of a file by the line of their code objects, each with its enclosing class. Also return the
    names that the module imports, because the compiler of Python 3.12 and later calls their attributes differently.
    """
    found: dict[int, list[_Candidate]] = {}
    imported: set[str] = set()
    todo: list[tuple[ast.AST, str, bool]] = [(ast.parse("".join(lines), filename), "", True)]
    while todo:
        node, private, outside = todo.pop()
        if outside and isinstance(node, ast.Import | ast.ImportFrom):
            imported.update(each.asname or each.name.partition(".")[0] for each in node.names)
        if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.lineno
            if not isinstance(node, ast.Lambda):
                first = min([first, *(each.lineno for each in node.decorator_list)])
            found.setdefault(first, []).append((node, private))
            outside = False
        if isinstance(node, ast.ClassDef):
            private, outside = node.name, False
        todo += [(child, private, outside) for child in ast.iter_child_nodes(node)]
    return found, frozenset(imported)


def _compiles_to(node: _Definition, private: str, imported: frozenset[str], code: CodeType) -> bool:
    """Return whether the node of a function compiles to ``code``, apart from line and column numbers."""
    function: Any = shallow(node)
    function.args = shallow(node.args)
    # Remove defaults, annotations, decorators and type parameters, which are evaluated outside of the function's code.
    for name in ("posonlyargs", "args", "kwonlyargs"):
        setattr(function.args, name, [ast.arg(each.arg) for each in getattr(node.args, name)])
    function.args.defaults = []
    function.args.kw_defaults = [None for _ in node.args.kwonlyargs]
    if isinstance(node, ast.Lambda):
        function = ast.copy_location(ast.Expr(function), node)
    else:
        function.decorator_list, function.returns, function.type_params = [], None, []
    # Add an enclosing scope with the free variables, and a class for the prefix of private names.
    names = imported.intersection(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
    imports = [f"import {name}" for name in sorted(names)]
    free = [f"  {name} = None" for name in code.co_freevars]
    module: Any = ast.parse(
        "\n".join([*imports, f"class {private}:" if private else "if 1:", " def outer():", "  pass", *free])
    )
    module.body[-1].body[0].body.append(function)
    try:
        compiled = compiled_quietly(
            ast.fix_missing_locations(module), code.co_filename, "exec", code.co_flags & _FUTURE
        )
    except (SyntaxError, ValueError):
        return False
    within = next(each for each in compiled.co_consts if isinstance(each, CodeType))
    if private:
        within = next(each for each in within.co_consts if isinstance(each, CodeType))
    inner = [each for each in within.co_consts if isinstance(each, CodeType) and each.co_name == code.co_name]
    return any(_same(each, code) for each in inner)


def compiled_quietly(tree: ast.Module | ast.Expression, filename: str, mode: str, flags: int = 0) -> CodeType:
    """Compile code without warnings, because it was compiled before with them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        code = compile(tree, filename, mode, flags, dont_inherit=True)
    assert isinstance(code, CodeType)
    return code


def function_of(names: Iterable[str], body: ast.expr) -> ast.Lambda:
    """Return the syntax tree of a lambda with arguments ``names`` that returns ``body``."""
    function: Any = ast.parse(f"lambda {', '.join(names)}: 0", mode="eval").body
    function.body = body
    for each in (function, *function.args.args):
        ast.copy_location(each, body)
    found: ast.Lambda = function
    return found


def shallow(node: _Node) -> _Node:
    """Return a copy of a node with the same children, in new lists."""
    fields = {name: list(each) if isinstance(each, list) else each for name, each in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def code_of(function: ast.expr, filename: str) -> CodeType:
    """Return the code object of a lambda."""
    compiled = compiled_quietly(ast.Expression(function), filename, "eval")
    return next(each for each in compiled.co_consts if isinstance(each, CodeType))


def _same(left: CodeType, right: CodeType) -> bool:
    return (
        left.co_code == right.co_code
        and left.co_names == right.co_names
        and left.co_varnames == right.co_varnames
        and left.co_freevars == right.co_freevars
        and left.co_cellvars == right.co_cellvars
        and left.co_argcount == right.co_argcount
        and left.co_kwonlyargcount == right.co_kwonlyargcount
        and left.co_posonlyargcount == right.co_posonlyargcount
        and _same_constants(left.co_consts, right.co_consts)
    )


def _same_constants(left: Any, right: Any) -> bool:
    if isinstance(left, CodeType) and isinstance(right, CodeType):
        return left.co_name == right.co_name and _same(left, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, tuple):
        return len(left) == len(right) and all(
            _same_constants(one, other) or (number > 0 and _are_names_of(left[number - 1], one, other))
            for number, (one, other) in enumerate(zip(left, right, strict=True))
        )
    if isinstance(left, frozenset):
        return sorted(map(repr, left)) == sorted(map(repr, right))
    return bool(repr(left) == repr(right))  # distinguishes 0.0 from -0.0, and matches NaN


def _are_names_of(code: Any, left: Any, right: Any) -> bool:
    """Return whether two constants are qualified names of the preceding code (up to Python 3.10), which depend on
    its place."""
    if not isinstance(code, CodeType) or not isinstance(left, str) or not isinstance(right, str):
        return False
    return left.endswith(f".{code.co_name}") and right.endswith(f".{code.co_name}")


def _checked(node: ast.AST, private: str, filename: str, lines: list[str], defaults: int) -> Source:
    """Return the source of a function that is a single expression. Raises SourceError if it is not. The last
    ``defaults`` arguments have a default, and are no rows.
    """
    if isinstance(node, ast.AsyncFunctionDef):
        raise SourceError(
            f"the function {node.name} is asynchronous", Place.of(node, filename, lines), "A query is a plain function."
        )
    assert isinstance(node, ast.Lambda | ast.FunctionDef)
    arguments = node.args
    if arguments.vararg or arguments.kwarg or (arguments.kwonlyargs and None in arguments.kw_defaults):
        raise SourceError(
            "a query takes its rows by position: no *args, no **kwargs, no keyword without a default",
            Place.of(node, filename, lines),
        )
    positional = [*arguments.posonlyargs, *arguments.args]
    rows = tuple(each.arg for each in positional[: len(positional) - defaults])
    if isinstance(node, ast.Lambda):
        return Source(_expression(node.body, filename, lines), rows, filename, lines, private)
    statements = node.body
    if statements and isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
        statements = statements[1:]
    if len(statements) != 1 or not isinstance(statements[0], ast.Return) or statements[0].value is None:
        odd = next((each for each in statements if not isinstance(each, ast.Return)), node)
        raise SourceError(
            f"the function {node.name} is more than one return statement",
            Place.of(odd, filename, lines),
            "Write a query as one expression; call other such functions from it where it grows long.",
        )
    return Source(_expression(statements[0].value, filename, lines), rows, filename, lines, private)


DEEPEST = 200
"""How many expressions within each other a query may be; the functions that read its tree call themselves."""
_TOO_DEEP = ("the expression is nested too deeply", "Write a part of it as a function, and call that.")
_NOT_PLAIN: dict[type[ast.AST], tuple[str, str]] = {
    ast.NamedExpr: ("a query binds no names with :=", "Write the expression again in place of the name."),
    ast.Await: ("a query does not wait", "Await the value before, and let the query read a name."),
    ast.Yield: ("a query yields nothing", "Write the condition alone."),
    ast.YieldFrom: ("a query yields nothing", "Write the condition alone."),
}


def _expression(body: ast.expr, filename: str, lines: list[str]) -> ast.expr:
    """Return ``body``, if each part has the same meaning wherever it is evaluated. Raises SourceError."""
    todo: list[tuple[ast.AST, int]] = [(body, 0)]
    while todo:
        node, depth = todo.pop()
        if type(node) in _NOT_PLAIN or depth > DEEPEST:
            problem, hint = _NOT_PLAIN.get(type(node), _TOO_DEEP)
            raise SourceError(problem, Place.of(node, filename, lines), hint)
        todo += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    return body


@functools.lru_cache(maxsize=65536)
def free_names(node: ast.AST) -> frozenset[str]:
    """Return the names that an expression reads but does not bind."""
    if isinstance(node, ast.Name):
        return frozenset([node.id])
    if isinstance(node, ast.Lambda):
        arguments = node.args
        bound = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        bound |= {each.arg for each in (arguments.vararg, arguments.kwarg) if each}
        defaults = [each for each in (*arguments.defaults, *arguments.kw_defaults) if each]
        return (free_names(node.body) - bound).union(*map(free_names, defaults))
    found: frozenset[str] = frozenset().union(*map(free_names, ast.iter_child_nodes(node)))
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
        targets = {name.id for each in node.generators for name in ast.walk(each.target) if isinstance(name, ast.Name)}
        # The first iterable is evaluated in the outer scope, where the same name may be another variable.
        return (found - targets) | free_names(node.generators[0].iter)
    return found


@functools.lru_cache(maxsize=4096)
def has_loops(node: ast.expr) -> bool:
    """Return whether an expression contains a comprehension or lambda, whose parts may be evaluated repeatedly."""
    loops = (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.Lambda)
    return any(isinstance(each, loops) for each in ast.walk(node))


@functools.lru_cache(maxsize=4096)
def bound_source(source: Source, names: frozenset[str]) -> Source:
    """Return the source without the rows in ``names``, which have values. Cached: equal arguments give the same
    object."""
    rows = tuple(each for each in source.rows if each not in names)
    return Source(source.body, rows, source.filename, source.lines, source.private)


# A bounded cache, because a program may generate many texts. The same text gives the same object, for the clause cache.
@functools.lru_cache(maxsize=1024)
def from_text(text: str, given: frozenset[str]) -> Source:
    """Return the source of a query given as text; ``given`` are the names that have a value. Raises SourceError."""
    filename = "<query>"
    lines = text.strip().splitlines(keepends=True)
    # In parentheses an expression can span lines; they shift the caret's column only on the first line.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            body = ast.parse(text.strip(), filename, mode="eval").body
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL before Python 3.12, or too many parentheses
        raise SourceError(f"a query given as text does not parse: {str(error) or type(error).__name__}") from None
    except SyntaxError as error:
        place = Place(filename, error.lineno or 1, (error.offset or 1) - 1, error.end_offset or 1, error.text or text)
        raise SourceError(f"a query given as text does not parse: {error.msg}", place) from None
    if isinstance(body, ast.Lambda):
        return _checked(body, "", filename, lines, len(body.args.defaults))
    import builtins

    names = free_names(_expression(body, filename, lines)) - given
    rows = sorted(each for each in names if not hasattr(builtins, each))
    if len(rows) != 1:
        found = f"the names {', '.join(rows)} have no value" if rows else "no name is left for the row"
        raise SourceError(
            f"which name is the row? In {text.strip()!r} {found}",
            hint="Give each other name its value, where(text, limit=3), or name the rows: 'lambda b: b.price < limit'.",
        )
    return Source(body, tuple(rows), filename, lines)
