"""Translation of ``in`` and ``not in``, for containers and text."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from kirsch_query.comparing import CONTAINERS, MOST_LOOPED, Comparing
from kirsch_query.documents import is_document
from kirsch_query.emit import op
from kirsch_query.kinds import BIG, INT64, TEXTS, Kind
from kirsch_query.terms import SQL, Condition, Constant, Found, Several, Value, both, either, negated, solid, there
from kirsch_query.texts import BRIDGED, SOUGHT, Text, bad_text, bridge, is_lower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_query.scope import Scope

_TEXT = Kind("str", SOUGHT)
_OF_ONE_TYPE: dict[str, tuple[type, Any]] = {"int": (int, BIG), "str": (str, SOUGHT)}


class Containing(Comparing):
    """The part of a translation that tests membership."""

    def _membership(self, negate: bool, left: ast.expr, right: ast.expr, scope: Scope) -> Condition:
        needle = self.value(left, scope)
        if isinstance(needle, Constant) and needle.is_absent():
            return False
        if isinstance(right, ast.Tuple | ast.List | ast.Set) and self._reads_rows(right, scope):
            parts = [self.compare(ast.Eq(), needle, each) for each in self.items(right, scope)]
            return self._negated_membership(negate, either(*parts), needle)
        if isinstance(right, ast.ListComp | ast.SetComp | ast.GeneratorExp) and self._reads_rows(right, scope):
            found = self._any(
                right,
                scope,
                lambda inner: self.compare(ast.Eq(), self.value(left, scope), self.value(right.elt, inner)),
            )
            if negate:
                raise self.refuse("`not in` of a comprehension is not translated", "Write not (x in ...).")
            return found
        container = self.value(right, scope)
        if isinstance(container, Constant):
            return self._in_constant(negate, needle, container)
        if isinstance(container, Value) and is_document(container):
            return self.in_document(negate, needle, container)
        if isinstance(container, Value) and container.kind.name in TEXTS:
            return self._in_text(negate, needle, container)
        raise self.refuse("what `in` looks into is not translated", "Look into a constant, or into text.")

    def _negated_membership(self, negate: bool, found: Condition, needle: Found) -> Condition:
        if not negate:
            return found
        return both(negated(found), *there(needle))

    def _in_constant(self, negate: bool, needle: Found, given: Constant) -> Condition:
        if given.is_nothing():
            return False
        if isinstance(needle, Constant):
            return (needle.value in given.value) is not negate
        container = given.peek()
        if isinstance(needle, Several):
            if type(container) not in (list, tuple, set, frozenset, dict) or len(given.value) > MOST_LOOPED:
                raise self.refuse(
                    "this container of tuples is not translated", f"Give a list of {MOST_LOOPED} at most."
                )
            parts = [self.compare(ast.Eq(), needle, Constant(each)) for each in given.value]
            return self._negated_membership(negate, either(*parts), needle)
        if not isinstance(needle, Value):
            raise self.refuse(
                "objects are compared by identity, which a database does not know",
                "Compare their keys: b.author.id in ids.",
            )
        if needle.of_related is not None:
            owner, field = needle.of_related
            return owner.where(self._in_constant(negate, field, given))
        if is_document(needle):
            return self._negated_membership(negate, self.document_among(needle, given), needle)
        if type(container) is str:
            return self._in_text(negate, needle, given)
        if type(container) is range and given.value.step == 1 and needle.kind.name == "int":
            found = both(
                self._ordered_number("ge", needle, Constant(container.start)),
                self._ordered_number("lt", needle, Constant(container.stop)),
            )
            return self._negated_membership(negate, found, needle)
        kind = needle.kind
        shape, bounds = self._item_bounds(kind, container)
        self.claim(given, shape, bounds, lambda again, value: again._item_bounds(kind, value))
        has_none, count = shape
        parts = [self._identity(False, needle, Constant(None))] if has_none else []
        lists, letters = bounds[:count], bounds[count:]
        parts += [self._among(needle, items, letters) for items in lists]
        return self._negated_membership(negate, either(*parts), needle)

    def _among(self, needle: Value, items: SQL, letters: Sequence[SQL]) -> SQL:
        """Return the condition that a value is one of a list, in a form that an index of the column serves."""
        if needle.kind.name == "lower":
            return op("among", op("text", self._lowered(needle, letters)), items)
        if needle.kind.name not in TEXTS:
            return op("among", needle.sql, items)
        if not needle.column:
            return op("among", op("text", needle.sql), items)
        return op("text_among_collated" if needle.kind.collated else "text_among", needle.sql, items)

    def _item_bounds(self, kind: Kind, items: Any) -> tuple[tuple[bool, int], list[SQL]]:
        """Return the parameters for the items of a container, each a list; whether None is an item, and how many lists.

        Then the parameters of the letters that :meth:`_lowered` replaces.
        """
        plain = any(isinstance(items, each) and type(items).__contains__ is each.__contains__ for each in CONTAINERS)
        if not plain or len(items) > 10000:
            raise self.refuse(
                f"`in` a {type(items).__name__} is not translated", "Give a list, tuple, set or dict of at most 10,000."
            )
        others = [each for each in items if each is not None]
        has_none = len(others) < len(items)
        if kind.name == "lower":
            texts = [each for each in others if type(each) is str and is_lower(each)]
            lists = self.literals([(each, SOUGHT) for each in texts])
            return (has_none, len(lists)), lists + self._letter_bounds(texts)
        # The usual list is of one type: looking at each item by itself takes ten times as long.
        python_type, type_ = _OF_ONE_TYPE.get(kind.name, (None, None))
        is_usual = set(map(type, others)) == {python_type}
        if is_usual and (kind.name == "str" or (min(others) >= -INT64 and max(others) < INT64)):
            return (has_none, 1), [self.literal(others, type_)]
        found = [bound for each in others if (bound := self._item_bound(kind, each)) is not None]
        lists = self.literals(found)
        return (has_none, len(lists)), lists

    def _item_bound(self, kind: Kind, item: Any) -> tuple[Any, Any] | None:
        """As :meth:`_bound`: the value and its type."""
        if kind.name == "str" and type(item) is str:
            return item, SOUGHT
        if kind.name == "int" and type(item) is int and -INT64 <= item < INT64:
            return item, BIG
        found: Any = self._bound(kind, item)
        if found is None:
            return None
        value, type_ = found if isinstance(found, tuple) else (found.value, found.type)
        if kind.digits is not None and type(type_) is sa.Numeric:
            type_ = sa.Numeric(sum(kind.digits), kind.digits[1])  # one type for all of them
        return value, type_

    def _in_text(self, negate: bool, needle: Found, text: Value | Constant) -> Condition:
        if isinstance(needle, Constant) and type(needle.peek()) is not str:
            if needle.peek() is None:
                return False
            raise self.refuse("`in` text asks for text")
        for one in (needle, text):
            if isinstance(one, Value) and one.of_related is not None:
                owner, field = one.of_related
                found = self._in_text(negate, field, text) if one is needle else self._in_text(negate, needle, field)
                return owner.where(found)
        kind = text.kind if isinstance(text, Value) else _TEXT
        if not isinstance(needle, Constant | Value) or (
            isinstance(needle, Value) and {needle.kind.name, kind.name} != {"str"}
        ):
            raise self.refuse("`in` text asks for text")
        if isinstance(text, Constant):
            assert isinstance(needle, Value)
            found = self._part_of(needle, text)
        elif kind.name == "lower":
            assert isinstance(needle, Constant)
            (count, _), bounds = self._lower_claimed(needle)
            found = op("contains", self._lowered(text, bounds[count:]), bounds[0]) if count else False
        else:
            found = op("contains", text.sql, self._text(needle))
        return both(negated(found), solid(text, needle)) if negate else found

    def _part_of(self, needle: Value, text: Constant) -> Condition:
        """Return the condition that the text of a row is a part of a constant."""
        bad, bounds = self._part_bounds(text.peek())
        self.claim(text, bad, bounds, lambda again, value: again._part_bounds(value))
        found = op("contains", bounds[0], needle.sql)
        return both(found, negated(op("contains", needle.sql, bounds[1]))) if bad else found

    def _part_bounds(self, text: str) -> tuple[bool, list[SQL]]:
        bad = bool(bad_text(text))
        bounds = [self.literal(text, BRIDGED)]
        return bad, [*bounds, self.literal(bridge(text), SOUGHT)] if bad else bounds

    def _text(self, value: Constant | Value, role: Text = SOUGHT) -> SQL:
        """Text, or a parameter that has the constant."""
        if isinstance(value, Value):
            return value.sql
        bound = self.literal(value.peek(), role)
        self.claim(value, None, [bound], lambda again, text: (None, [again.literal(text, role)]))
        return bound

    def _calculated(self, value: Constant | Value) -> SQL:
        """Text of which other text is made. Raises Refused for a constant that a database cannot have."""
        if isinstance(value, Value):
            return value.sql
        bound = self._bound_calculated(value.peek())
        self.claim(value, None, [bound], lambda again, text: (None, [again._bound_calculated(text)]))
        return bound

    def _bound_calculated(self, text: str) -> SQL:
        if problem := bad_text(text):
            raise self.refuse(problem, "Calculate with text without it.")
        return self.literal(text, SOUGHT)
