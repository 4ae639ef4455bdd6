"""Fast evaluation of queries for objects in memory, by generated code. For one object, the query's own function runs
first, with the parts that depend on no row evaluated once. If it raises, and for mappings, a second function is used,
generated with the same tests for None as in :mod:`memory`. If that raises too, or cannot be generated, :mod:`memory`
evaluates the syntax tree. For many objects, the code of the second function is inlined in a loop, which is faster than
calling the first one.
"""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from kirsch_query import memory
from kirsch_query.scope import ABSENT, Item, Scope, constant, free_names, is_builtin
from kirsch_query.source import Source, code_of, function_of, shallow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class _Hoist(ast.NodeTransformer):
    """Replaces each largest subexpression that reads no bound name by a name, and collects these subexpressions."""

    def __init__(self, rows: frozenset[str], prefix: str) -> None:
        self.bound = rows
        self.prefix = prefix
        self.parts: list[ast.expr] = []

    def visit(self, node: ast.AST) -> Any:
        if not node._fields or isinstance(node, ast.Constant):
            return node
        if not isinstance(node, ast.expr) or isinstance(node, ast.Slice):
            return self.generic_visit(shallow(node))  # a copy, because the tree is shared
        if isinstance(node, ast.Name) and (node.id in self.bound or not isinstance(node.ctx, ast.Load)):
            return node
        if isinstance(node, ast.Starred) or not self.bound.isdisjoint(free_names(node)):
            return self._inside(node)
        self.parts.append(node)
        return ast.copy_location(ast.Name(f"{self.prefix}{len(self.parts) - 1}", ast.Load()), node)

    def _inside(self, node: ast.expr) -> ast.AST:
        before = self.bound
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            targets = (
                name.id for each in node.generators for name in ast.walk(each.target) if isinstance(name, ast.Name)
            )
            self.bound = before.union(targets)
        elif isinstance(node, ast.Lambda):
            self.bound = before.union(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
        result = self.generic_visit(shallow(node))
        self.bound = before
        return result


class _Hoisted(NamedTuple):
    """An expression with its hoisted parts, which are evaluated once: the names ``prefix0``, ``prefix1``, ..."""

    body: ast.expr
    parts: tuple[ast.expr, ...]
    prefix: str

    @property
    def names(self) -> list[str]:
        return [f"{self.prefix}{number}" for number in range(len(self.parts))]


@functools.lru_cache(maxsize=4096)
def _hoisted(source: Source) -> _Hoisted | None:
    """Return the expression of a query with its hoisted parts; None if Python's scopes do not allow that."""
    if source.private:
        return None
    prefix = "part_"
    while any(prefix in line for line in source.lines):
        prefix += "_"
    hoist = _Hoist(frozenset(source.rows), prefix)
    body = hoist.visit(source.body)
    return _Hoisted(body, tuple(hoist.parts), prefix)


@functools.lru_cache(maxsize=4096)
def _fast_code(source: Source) -> CodeType:
    """Return the code of a function that takes the hoisted parts and returns the query as a function of rows."""
    hoisted = _hoisted(source)
    assert hoisted is not None

    return code_of(function_of(hoisted.names, function_of(source.rows, hoisted.body)), source.filename)


_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.USub: "-", ast.UAdd: "+",
    ast.Invert: "~", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip


OBJECT, DICT, MAPPING = "object", "dict", "mapping"
"""The kinds of rows in memory: attributes of an object are read as such, of a dict as items, of others as there are."""


def kind_of(cls: type[Any]) -> str:
    """Return the kind of rows of a class."""
    return DICT if cls is dict else MAPPING if issubclass(cls, Mapping) else OBJECT


class _Unknown(Exception):
    """Raised for an expression for which no code is generated: the tree is evaluated instead."""


class _Rule:
    """Generates Python source for an expression with the tests for None of :mod:`memory`, in the same order."""

    def __init__(self, hoisted: _Hoisted, row: str = "", kind: str = MAPPING) -> None:
        self.prefix = hoisted.prefix
        self.row = row
        """The name whose attributes are read as those of an object, or as items of a dict, by ``kind``."""
        self.kind = kind
        self.parts = set(hoisted.names)
        self.strict: set[str] = set()
        """The names of the parts that are called. Each must be a builtin function that knows no None."""
        self.number = 0

    def truth(self, node: ast.expr) -> str:
        """Return source that is true if the expression holds. An absent value is false."""
        if isinstance(node, ast.BoolOp):
            return f"({(' and ' if isinstance(node.op, ast.And) else ' or ').join(map(self.truth, node.values))})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"(not {self.truth(node.operand)})"
        if isinstance(node, ast.IfExp):
            return f"({self.truth(node.body)} if {self.truth(node.test)} else {self.truth(node.orelse)})"
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            return f"({' and '.join(map(self.compared, node.ops, sides, sides[1:]))})"
        return self.value(node)

    def value(self, node: ast.expr) -> str:
        """Return source for the value of the expression, which is absent if a required part is None."""
        if isinstance(node, ast.Name | ast.Constant):
            return ast.unparse(node)
        if isinstance(node, ast.Attribute):
            if self.is_plain(node):
                return self.plain(node)
            test, owner = self.missing(node.value)
            read = f"{owner}.{node.attr}" if self.kind == OBJECT else f"{self.prefix}read({owner}, {node.attr!r})"
            return self.unless([test], read)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return self.trying(node.left, [node.right], lambda left, right: f"{left} % {right}")  # text may take None
        if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
            return self.strictly([node.left, node.right], lambda *given: f" {_SIGNS[type(node.op)]} ".join(given))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
            return self.strictly([node.operand], lambda given: f"{_SIGNS[type(node.op)]} {given}")
        if isinstance(node, ast.BoolOp):
            return f"({(' and ' if isinstance(node.op, ast.And) else ' or ').join(map(self.value, node.values))})"
        if isinstance(node, ast.IfExp):
            return f"({self.value(node.body)} if {self.truth(node.test)} else {self.value(node.orelse)})"
        if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return f"(True if {self.truth(node)} else False)"
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        if isinstance(node, ast.Call) and not node.keywords and not any(isinstance(e, ast.Starred) for e in node.args):
            return self.call(node)
        raise _Unknown

    def is_plain(self, node: ast.expr) -> bool:
        """Return whether an expression is an attribute of the row, which is never absent."""
        return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self.row

    def plain(self, node: ast.Attribute) -> str:
        """Return source for an attribute of the row. If it is missing, the error leads to evaluation by the rule."""
        return f"{self.row}[{node.attr!r}]" if self.kind == DICT else f"{self.row}.{node.attr}"

    def call(self, node: ast.Call) -> str:
        """Return source for a call of a method of plain values, or of a builtin function that does not accept None."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in memory.METHODS:
            name = node.func.attr
            return self.trying(node.func.value, node.args, lambda owner, *given: f"{owner}.{name}({', '.join(given)})")
        if isinstance(node.func, ast.Name) and node.func.id in self.parts:
            name = node.func.id
            self.strict.add(name)
            return self.strictly(node.args, lambda *given: f"{name}({', '.join(given)})")
        raise _Unknown

    def subscript(self, node: ast.Subscript) -> str:
        """Return source for an item or a slice. The bounds of a slice may be None."""
        if not isinstance(node.slice, ast.Slice):
            return self.trying(node.value, [node.slice], lambda owner, index: f"{owner}[{index}]")
        test, owner = self.missing(node.value)
        bounds = [("", "") if each is None else self.absent(each) for each in (node.slice.lower, node.slice.upper)]
        if node.slice.step is not None:
            bounds.append(self.absent(node.slice.step))
        return self.unless([test, *(each for each, _ in bounds)], f"{owner}[{':'.join(each for _, each in bounds)}]")

    def compared(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> str:
        """Return source for one comparison."""
        if isinstance(op, ast.In | ast.NotIn):
            return self.contained(isinstance(op, ast.NotIn), left, right)
        ordered = isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        (test, first), (other, second) = (
            self.missing(each) if ordered else ("", self.value(each)) if self.is_plain(each) else self.absent(each)
            for each in (left, right)
        )
        return self.unless([test, other], f"{first} {_SIGNS[type(op)]} {second}", "False")

    def contained(self, negated: bool, left: ast.expr, right: ast.expr) -> str:
        """Return source for a membership test."""
        test, needle = self.absent(left)
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            held = left if isinstance(left, ast.Constant) else ast.Name(needle)
            found = " or ".join(self.compared(ast.Eq(), held, each) for each in right.elts)
            return self.unless([test], f"{'not ' if negated else ''}({found})", "False")
        other, container = self.missing(right)
        found = f"{needle} {'not in' if negated else 'in'} {container}"
        if not isinstance(left, ast.Constant):
            found = self.unless([f"{needle} is None and isinstance({container}, (str, bytes))"], found, "False")
        return self.unless([test, other], found, "False")

    def strictly(self, nodes: list[ast.expr], write: Callable[..., str]) -> str:
        """Return source whose value is absent if one of the values is None or absent."""
        tests, values = self.missing_of(nodes)
        return self.unless(tests, write(*values))

    def trying(self, owner: ast.expr, nodes: list[ast.expr], write: Callable[..., str]) -> str:
        """Return source whose value is absent if the owner is absent. If another value is absent, the tree is
        evaluated."""
        test, first = self.missing(owner)
        tests, values = self.missing_of(nodes)
        return self.unless([test], self.unless(tests, write(first, *values), f"{self.prefix}give_up()"))

    def missing_of(self, nodes: list[ast.expr]) -> tuple[list[str], list[str]]:
        pairs = [self.missing(each) for each in nodes]
        return [test for test, _ in pairs], [text for _, text in pairs]

    def missing(self, node: ast.expr) -> tuple[str, str]:
        """Return source of a test that a value is None or absent, and source for the value after that test."""
        if isinstance(node, ast.Constant):
            return "True" if node.value is None else "", f"({ast.unparse(node)})"
        if isinstance(node, ast.Name):
            return f"{node.id} is None", node.id
        name, value = self.evaluated(node)
        if self.is_plain(node):
            return f"({name} := {value}) is None", name
        return f"({name} := {value}) is None or {name} is {self.prefix}absent", name

    def absent(self, node: ast.expr) -> tuple[str, str]:
        """Return source of a test that a value is absent, and source for the value after that test."""
        if isinstance(node, ast.Constant):
            return "", f"({ast.unparse(node)})"
        if isinstance(node, ast.Name):
            return "", node.id
        name, value = self.evaluated(node)
        return f"({name} := {value}) is {self.prefix}absent", name

    def evaluated(self, node: ast.expr) -> tuple[str, str]:
        """Return a new name for a value, and the source of the value."""
        self.number += 1
        return f"{self.prefix}value{self.number}", self.value(node)

    def unless(self, tests: Iterable[str], text: str, otherwise: str = "") -> str:
        """Return source for ``text`` if no test holds. All tests with side effects are evaluated, as in the tree."""
        evaluating = [f"({each})" for each in tests if ":=" in each]
        plain = [each for each in tests if each and ":=" not in each]
        every = " or ".join([*([" | ".join(evaluating)] if evaluating else []), *plain])
        return f"({otherwise or self.prefix + 'absent'} if {every} else {text})" if every else f"({text})"


@functools.lru_cache(maxsize=4096)
def _rule_code(source: Source) -> tuple[CodeType, frozenset[str]] | None:
    """Return the code of a function that takes the hoisted parts and helpers, and returns the query by the rule for
    None.

    Then the names of the parts that must be builtin functions. None if the tree has to be evaluated.
    """
    hoisted = _hoisted(source)
    assert hoisted is not None
    rule = _Rule(hoisted)
    try:
        text = rule.truth(hoisted.body)
        helpers = [f"{hoisted.prefix}{name}" for name in _HELPERS]
        text = f"lambda {', '.join([*helpers, *hoisted.names])}: lambda {', '.join(source.rows)}: {text}"
        return code_of(ast.parse(text, mode="eval").body, source.filename), frozenset(rule.strict)
    except (_Unknown, RecursionError, MemoryError):  # too deep for the compiler
        return None


def _give_up() -> Any:
    raise _Unknown


RARE = 32
"""How many rows the tree judges first: making the code takes as long as that."""

_HELPERS: dict[str, Any] = {"absent": ABSENT, "read": memory.attribute, "give_up": _give_up}


def _by_rule(source: Source, parts: list[Any]) -> Callable[..., Any] | None:
    """Return the query by the rule for None as a function; ``parts`` are the values of its hoisted parts."""
    made = _rule_code(source)
    hoisted = _hoisted(source)
    if made is None or hoisted is None:
        return None
    code, strict = made
    if not _are_strict(hoisted, parts, strict):
        return None
    function: Callable[..., Any] = FunctionType(code, {"__builtins__": builtins})(*_HELPERS.values(), *parts)
    return function


_LOOP = """
def make({arguments}):
    def loop({p}rows, {p}known, {p}guarded):
        for {row} in {p}rows:
            if {p}type({row}) is not {p}known:
                {p}known = {p}type({row})
                if {p}kind_of({p}known) != {kind!r}:
                    return {row}
            try:
                {p}holds = {holds}
            except {p}error:
                {p}holds = {p}guarded({row})
            if {p}holds:
                yield {row}
        return {p}end
    return loop
"""


@functools.lru_cache(maxsize=4096)
def _loop_code(source: Source, kind: str) -> tuple[CodeType, frozenset[str]] | None:
    """Return, as :func:`_rule_code` does, the code of a function that returns a generator over rows of a kind. It
    yields the rows for which the query holds, and returns the first row of another kind, or END.
    """
    hoisted = _hoisted(source)
    if hoisted is None or len(source.rows) != 1:
        return None
    (row,), prefix = source.rows, hoisted.prefix
    rule = _Rule(hoisted, row, kind)
    arguments = ", ".join([*(f"{prefix}{name}" for name in _LOOP_HELPERS), *hoisted.names])
    try:
        holds = rule.truth(hoisted.body)
        text = _LOOP.format(arguments=arguments, p=prefix, row=row, kind=kind, holds=holds)
        made = compile(text, "<kirsch_query>", "exec")
    except (_Unknown, SyntaxError, RecursionError, MemoryError):
        return None
    return next(each for each in made.co_consts if isinstance(each, CodeType)), frozenset(rule.strict)


END: Any = object()
"""The value that a loop returns after the last row."""
_LOOP_HELPERS: dict[str, Any] = {
    **_HELPERS, "type": type, "kind_of": kind_of, "error": Exception, "end": END
}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _one_code(source: Source, free: tuple[str, ...]) -> CodeType | None:
    """Return the code of the query by the rule for None, which reads outer names like the query itself. ``free`` are
    the names of its closure. The hoisted parts are evaluated first. None if the tree has to be evaluated.
    """
    hoisted = _hoisted(source)
    if hoisted is None:
        return None
    rule = _Rule(hoisted)
    helpers = ", ".join(f"{hoisted.prefix}{name}" for name in _ONE_HELPERS)
    try:
        truth = rule.truth(hoisted.body)
        for name in sorted(rule.strict):
            truth = f"({truth} if {name} in {hoisted.prefix}strict else {hoisted.prefix}give_up())"
        parts = ", ".join(map(ast.unparse, hoisted.parts))
        body = f"(lambda {', '.join(hoisted.names)}: {truth})({parts})" if hoisted.parts else truth
        text = f"lambda {', '.join([*free, helpers])}: lambda {', '.join(source.rows)}: {body}"
        outer = code_of(ast.parse(text, mode="eval").body, source.filename)
    except (_Unknown, SyntaxError, RecursionError, MemoryError):
        return None
    return next(each for each in outer.co_consts if isinstance(each, CodeType))


_STRICT = frozenset(getattr(builtins, name) for name in memory.FUNCTIONS)
_ONE_HELPERS: dict[str, Any] = {**_HELPERS, "strict": _STRICT}


def of_one(function: FunctionType, source: Source) -> Callable[..., Any] | None:
    """Return a query by the rule for None as a function of rows, which reads outer names at each call. None until the
    query has been used for some rows, and if the tree has to be evaluated. If the function raises, the caller evaluates
    the tree.
    """
    if source.judged < RARE or function.__defaults__ or function.__kwdefaults__:
        return None
    code, hoisted = _one_code(source, function.__code__.co_freevars), _hoisted(source)
    if code is None or hoisted is None:
        return None
    known = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells = []
    for name in code.co_freevars:
        helper = name.removeprefix(hoisted.prefix)
        if name in known:
            cells.append(known[name])
        elif helper != name:
            cells.append(CellType(_ONE_HELPERS[helper]))
        else:
            return None
    return FunctionType(code, function.__globals__, closure=tuple(cells))


class Judge(NamedTuple):
    """A query as functions of rows, with the parts that depend on no row evaluated once."""

    fast: Callable[..., Any] | None
    """Python's own function, if there is one; :attr:`guarded` is the one to ask where it raises."""
    guarded: Callable[..., bool]
    source: Source | None = None
    """The source of which :meth:`loop` makes its code."""
    parts: tuple[Any, ...] = ()

    def loop(self, kind: str) -> Callable[..., Iterator[Any]] | None:
        """Return a generator function over rows of a kind, see :func:`_loop_code`; None if rows are tested one by
        one."""
        source = self.source
        if source is None or source.judged < RARE or kind == MAPPING:
            return None
        made, hoisted = _loop_code(source, kind), _hoisted(source)
        if made is None or hoisted is None or not _are_strict(hoisted, self.parts, made[1]):
            return None
        function = FunctionType(made[0], {"__builtins__": {}})
        loop: Callable[..., Iterator[Any]] = function(*_LOOP_HELPERS.values(), *self.parts)
        return loop

    def one_by_one(self, rows: Iterator[Any], known: type[Any], guarded: Callable[..., bool]) -> Any:
        """Test rows of one kind one by one, until there are enough of them for a generated loop."""
        kind = kind_of(known)
        fast = self.fast if kind == OBJECT else None
        for judged, row in enumerate(rows):
            if type(row) is not known:
                known = type(row)
                if kind_of(known) != kind:
                    return row
            if judged == RARE and kind != MAPPING and self.source is not None:
                self.source.judged = max(self.source.judged, RARE)
                if self.loop(kind) is not None:
                    return row
            try:
                holds = guarded(row) if fast is None else fast(row)
            except Exception:  # noqa: BLE001 - the rule for None decides, and raises again what is another mistake
                holds = guarded(row)
            if holds:
                yield row
        return END


def filtered(make: Callable[[], Judge], rows: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows for which a query holds. ``make`` evaluates the parts that depend on no row, at the first row."""
    judge, rows = make(), iter(rows)
    row = next(rows, END)
    while row is not END:
        loop = judge.loop(kind_of(type(row))) or judge.one_by_one
        row = yield from loop(itertools.chain((row,), rows), type(row), judge.guarded)


def _are_strict(hoisted: _Hoisted, parts: Iterable[Any], strict: frozenset[str]) -> bool:
    """Return whether the hoisted parts with the names ``strict`` are builtin functions that do not accept None."""
    pairs = zip(hoisted.names, parts, strict=True)
    return all(is_builtin(part, *memory.FUNCTIONS) for name, part in pairs if name in strict)


def judge(scope: Scope) -> Judge:
    """Return the query as functions of rows. The parts that depend on no row are evaluated now."""
    source = scope.source

    def by_tree(*rows: Any) -> bool:
        names = dict(zip(source.rows, map(Item, rows), strict=True))
        return memory.truth(source.body, Scope(source, scope.space, names))

    hoisted = _hoisted(source)
    if hoisted is None:
        return Judge(None, by_tree)
    try:
        parts = [constant(each, scope) for each in hoisted.parts]
    except Exception:  # noqa: BLE001 - the rule for None decides, and raises again what is another mistake
        return Judge(None, by_tree)
    rule: Callable[..., Any] | None = None

    def guarded(*rows: Any) -> bool:
        nonlocal rule
        if rule is None:
            if source.judged < RARE:
                source.judged += 1
                return by_tree(*rows)
            rule = _by_rule(source, parts) or by_tree
        try:
            return bool(rule(*rows))
        except Exception:  # noqa: BLE001 - the tree decides, and raises again what is another mistake
            return by_tree(*rows)

    fast = FunctionType(_fast_code(source), scope.space.globals)(*parts)
    return Judge(fast, guarded, source, tuple(parts))
