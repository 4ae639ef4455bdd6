"""Translation of parts of JSON documents: ``b.data["size"]["width"] > 3``. The type of a part is only known when a row
is read, so a comparison tests it too: a text is compared with text; a number is compared with booleans, with integers
(exactly), and with other numbers as floats.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from kirsch_query import emit_documents as emit_documents  # imported because it defines the operations
from kirsch_query.emit import op
from kirsch_query.kinds import DOUBLE, INT32, NUMBERS, TEXTS, Kind, constant_kind
from kirsch_query.terms import Base, Condition, Constant, Found, Value, both, either, negated, there
from kirsch_query.texts import SOUGHT

_DOCUMENT = Kind("json", sa.JSON())
_INTEGER = Kind("int", sa.BigInteger(), bound=10**55)
_FLOAT = Kind("float", DOUBLE)
_TEXT = Kind("str", sa.String())
_BOOLEAN = Kind("bool", sa.Boolean(), bound=1)
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE,
}  # fmt: skip


def is_document(found: Any) -> bool:
    """Return whether ``found`` is a JSON document or a part of one."""
    return isinstance(found, Value) and found.kind.name == "json"


def text_of(part: Value) -> Value:
    """Return a part as text; absent if it is no text."""
    return Value(op("json_text", part.sql), _TEXT)


def length_of(part: Value) -> Value:
    """Return the length of a part: characters of a text, items of a list, or keys of an object."""
    return Value(op("json_length", part.sql), Kind("int", sa.BigInteger(), bound=INT32))


def _numbers_of(part: Value) -> tuple[Value, Value]:
    """Return a part as an integer and as a float; each is absent if the part has another type."""
    return Value(op("json_int", part.sql), _INTEGER), Value(op("json_float", part.sql), _FLOAT)


def _is_none(part: Value) -> Condition:
    return both(op("json_none", part.sql), part.is_there())


def _has_none(items: Any) -> bool:
    return any(each is None for each in items)


class Documents(Base):
    """The part of a translation that reads JSON documents."""

    def part_of(self, owner: Value, node: ast.expr, *, get: bool = False) -> Value:
        """Return the part of a document with a key or at a position: if there is none, absent, or None for
        ``.get()``."""
        sql = op(*self._step(owner, node))
        part = Value(sql, _DOCUMENT, True, op("json_object", owner.sql) if get else sql.is_not(sa.null()))
        if owner.of_related is None:
            return part
        related, field = owner.of_related
        return replace(part, of_related=(related, self.part_of(field, node, get=get)))

    def _step(self, owner: Value, node: ast.expr) -> tuple[Any, ...]:
        try:
            key = ast.literal_eval(node)
        except ValueError:
            key = None
        if type(key) is str and key.isascii() and key.isprintable() and not {'"', "\\"} & set(key):
            return "json_key", owner.sql, self.literal(key, sa.String())
        if type(key) is int and abs(key) < INT32:
            return "json_last" if key < 0 else "json_item", owner.sql, self.literal(abs(key), sa.Integer())
        raise self.refuse(
            "a key of a JSON document is written out, as a number or as ASCII text without quotes",
            'Write b.data["size"][0], or read the rows and use filter().',
            node=node,
        )

    def compare_document(self, cmp: ast.cmpop, left: Found, right: Found) -> Condition:
        """Translate a comparison in which one side is a document."""
        if not is_document(left):
            left, right, cmp = right, left, _MIRRORED.get(type(cmp), type(cmp))()
        assert isinstance(left, Value)
        if not isinstance(right, Constant | Value) or is_document(right):
            raise self.refuse(*_OTHERS)
        if isinstance(cmp, ast.Is | ast.IsNot):
            found = self._is_same(left, right)
        else:
            found = self._holds(ast.Eq() if isinstance(cmp, ast.NotEq) else cmp, left, right)
        if not isinstance(cmp, ast.NotEq | ast.IsNot):
            return found
        self.note("IS NOT TRUE: None differs from every value")
        return both(negated(found), *there(left, right))

    def _is_same(self, part: Value, other: Constant | Value) -> Condition:
        if isinstance(other, Constant) and other.value is None:
            return _is_none(part)
        if isinstance(other, Constant) and isinstance(other.value, bool):
            return self.compare(ast.Eq(), Value(op("json_bool", part.sql), _BOOLEAN), other)
        raise self.refuse("`is` compares identity, which a database does not know", "Write ==.")

    def _holds(self, cmp: ast.cmpop, part: Value, other: Constant | Value) -> Condition:
        """Return the condition that ``==`` or an ordered comparison holds."""
        equal = isinstance(cmp, ast.Eq)
        if isinstance(other, Constant) and other.peek() is None:
            return equal and _is_none(part)
        name = other.kind.name if isinstance(other, Value) else constant_kind(other.peek())
        found: Condition = False
        if name in TEXTS:
            found = self.compare(cmp, text_of(part), other)
        elif name == "decimal":
            raise self.refuse("a part of a JSON document, which may be a float, is compared with a Decimal")
        elif name in NUMBERS:
            found = either(*(self.compare(cmp, each, other) for each in _numbers_of(part)))
        elif name is None or name == "enum" or not equal:
            raise self.refuse(*_OTHERS)
        if equal and isinstance(other, Value) and other.none:
            return either(found, both(_is_none(part), other.sql.is_(sa.null()), other.present))
        return found

    def document_among(self, part: Value, given: Constant) -> Condition:
        """Return the condition that a part equals an item of a constant container."""
        if type(given.peek()) not in (list, tuple, set, frozenset, dict):
            raise self.refuse("what `in` looks into is not translated", "Give a list.")
        has_none = _has_none(given.peek())
        self.claim(given, has_none, [], lambda _, value: (_has_none(value), []))
        among = (self._in_constant(False, each, given) for each in (text_of(part), *_numbers_of(part)))
        return either(has_none and _is_none(part), *among)

    def in_document(self, negate: bool, needle: Found, container: Value) -> Condition:
        """Return the condition that a text is (not) in a text, an item of a list, or a key of an object."""
        if container.of_related is not None:
            owner, field = container.of_related
            return owner.where(self.in_document(negate, needle, field))
        if not isinstance(needle, Constant) or type(needle.peek()) is not str:
            raise self.refuse("a constant text is looked for in a JSON document, and nothing else")
        bound = self.literal(needle.value, SOUGHT)
        found = op("json_has", container.sql, bound)
        return op("not", found) if negate else found


_OTHERS = (
    "a part of a JSON document is compared with text, numbers, booleans and None",
    "Compare its own parts, or read the rows and use filter().",
)
