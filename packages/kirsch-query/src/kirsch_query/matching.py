"""Translation of stripping text and of regular expressions."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from kirsch_query.containing import Containing
from kirsch_query.emit import op
from kirsch_query.kinds import Kind
from kirsch_query.patterns import FOUND, SURROUNDED, NotPlain, plain
from kirsch_query.terms import Answer, Constant, Value, as_sql, solid

if TYPE_CHECKING:
    from kirsch_query.scope import Scope

STRIPS = ("strip", "lstrip", "rstrip")


class Matching(Containing):
    """The part of a translation that strips text and matches patterns."""

    def _stripped(self, name: str, owner: Value, arguments: list[ast.expr], scope: Scope) -> Value | Constant:
        """Translate ``strip()``, ``lstrip()`` and ``rstrip()`` of white space or of constant characters."""
        found = self.value(arguments[0], scope) if arguments else Constant(None)
        if not isinstance(found, Constant) or not (found.peek() is None or type(found.peek()) is str):
            raise self.refuse(f"{name}() is of white space, or of the characters of a constant")
        role = SURROUNDED[name]
        bound = self.literal(found.peek() if found.peek() is not None else WHITE, role)
        again = None if found.peek() is None else found
        if again is not None:
            self.claim(again, None, [bound], lambda other, value: (None, [other.literal(value, role)]))
        self.note("Python's characters, whatever the database takes for white space")
        return Value(op(name, owner.sql, bound), Kind("str", sa.String()))

    def _searched(self, pattern: Any, name: str, node: ast.expr, scope: Scope, as_condition: bool) -> Answer | Value:
        """Translate ``search``, ``match`` or ``fullmatch`` of a compiled pattern: a condition, or a value that can
        only be tested for None."""
        found = self._found(pattern, name, node, scope)
        if as_condition:
            return found
        sql = sa.case((as_sql(found.condition), sa.true()))
        return Value(sql, Kind("match", sa.Boolean()), none=True, present=as_sql(found.present))

    def _found(self, pattern: Any, name: str, node: ast.expr, scope: Scope) -> Answer:
        try:
            bound = self.literal(plain(pattern, name), FOUND)
        except NotPlain as why:
            raise self.refuse(f"the pattern has {why}, which databases match in their own ways", why.hint) from None
        owner = self.value(node, scope)
        if not isinstance(owner, Value) or owner.kind.name != "str":
            raise self.refuse("a pattern is looked for in text")
        if owner.of_related is not None:
            related, field = owner.of_related
            return Answer(related.where(op("matches", field.sql, bound)), related.where(solid(field)))
        self.note("the pattern is written for each database, of characters by their numbers")
        return Answer(op("matches", owner.sql, bound), solid(owner))

    def _pattern(self, function: Any, arguments: list[ast.expr], scope: Scope) -> tuple[Any, str, ast.expr] | None:
        """Return the compiled pattern of a call such as ``PATTERN.search(b.title)``, the name of the method, and the
        text's node. ``re.search("...", b.title)`` is such a call if the pattern is a literal. None for other calls.
        """
        own, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if isinstance(own, re.Pattern) and name in ("search", "match", "fullmatch") and len(arguments) == 1:
            return own, name, arguments[0]
        if function in (re.search, re.match, re.fullmatch) and len(arguments) in (2, 3):
            flags = self.known(arguments[2], scope).value if len(arguments) == 3 else 0
            if isinstance(arguments[0], ast.Constant) and isinstance(arguments[0].value, str):
                return re.compile(arguments[0].value, flags), name, arguments[1]
            found = self.known(arguments[0], scope).value if not self._reads_rows(arguments[0], scope) else None
            if isinstance(found, re.Pattern):
                return found, name, arguments[1]
            raise self.refuse(
                "a pattern is written out, or compiled beforehand",
                "Write WORD = re.compile(...), and WORD.search(b.title).",
            )
        return None


WHITE = "".join(each for each in map(chr, range(0x3001)) if each.isspace())
"""The characters that ``str.strip()`` removes."""

__all__ = ["STRIPS", "Matching"]
