r"""Translation of regular expressions to each database, as far as they have the same meaning there. Whether a pattern
matches a text is a question about a regular language, which all engines answer alike if their characters and classes
are the same. So a pattern is parsed and written again: each character by its number, each class by the numbers of its
members, and anchors that do not match at lines. With IGNORECASE a letter becomes the class of the letters that Python
considers equal. Constructs that are not regular are refused: back references, lookaround assertions, word boundaries,
atomic groups.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from kirsch_query.texts import Text

try:
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # 3.10
    import sre_parse as parser

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_REPEATED = 255
"""The greatest number of a repetition that is written out: PostgreSQL's limit."""
_LAST = 0x10FFFF


class NotPlain(Exception):
    """Raised for a pattern that databases match differently. Internal to this package."""

    def __init__(
        self, problem: str, hint: str = 'Read the rows and use filter(), or let recall() do so: finish="python".'
    ) -> None:
        super().__init__(problem)
        self.hint = hint


@functools.lru_cache(maxsize=256)
def plain(pattern: re.Pattern[Any], name: str) -> str:
    """Return the pattern for ``search``, ``match`` or ``fullmatch``, in the form that :class:`Written` takes. Raises
    NotPlain.
    """
    if not isinstance(pattern.pattern, str):
        raise NotPlain("bytes")
    parsed = parser.parse(pattern.pattern, pattern.flags)
    text = _Writer(pattern.flags).sequence(parsed)
    if name == "search":
        return text
    return rf"\A(?:{text})" + (r"\u{end}" if name == "fullmatch" else "")


class _Writer:
    """Writes a parsed pattern in the common form."""

    def __init__(self, flags: int) -> None:
        self.flags = flags

    def sequence(self, parsed: Any) -> str:
        return "".join(self.one(str(op), given) for op, given in parsed)

    def one(self, op: str, given: Any) -> str:
        """Return one element of a sequence."""
        if op == "LITERAL" and not self.flags & re.IGNORECASE:
            return _character(given)
        if op in ("LITERAL", "NOT_LITERAL"):
            return self.members([("NEGATE", None)] * (op == "NOT_LITERAL") + [("LITERAL", given)])
        if op == "ANY":
            return r"\u{any}" if self.flags & re.DOTALL else r"[^\u{a}]"
        if op == "IN":
            return self.members(given)
        if op == "BRANCH":
            return f"(?:{'|'.join(map(self.sequence, given[1]))})"
        if op == "SUBPATTERN" and not given[1] and not given[2]:
            return f"(?:{self.sequence(given[3])})"
        if op in ("MAX_REPEAT", "MIN_REPEAT"):
            return self.repeated(*given)
        if op == "AT":
            return self.anchor(str(given))
        raise NotPlain(_WORDS.get(op, f"a {op.lower()}"))

    def repeated(self, least: int, most: Any, item: Any) -> str:
        least, most = int(least), None if str(most) == "MAXREPEAT" else int(most)
        if max(least, most or 0) > MOST_REPEATED:
            raise NotPlain(f"a repetition of more than {MOST_REPEATED}")
        return f"(?:{self.sequence(item)}){{{least},{'' if most is None else most}}}"

    def anchor(self, name: str) -> str:
        lines = self.flags & re.MULTILINE
        if name == "AT_BEGINNING_STRING" or (name == "AT_BEGINNING" and not lines):
            return r"\A"
        if name == "AT_END_STRING":
            return r"\u{end}"
        if name == "AT_END" and not lines:
            return r"(?=\u{a}?\u{end})"
        raise NotPlain("MULTILINE" if lines else "a boundary of words", "Name the characters around: (^|[^a-z])word.")

    def members(self, given: Any) -> str:
        """Return a character class."""
        ranges: list[tuple[int, int]] = []
        negated = False
        for op, each in given:
            if str(op) == "NEGATE":
                negated = True
            elif str(op) == "LITERAL":
                ranges.append((each, each))
            elif str(op) == "RANGE":
                ranges.append(each)
            else:
                ranges += _category(str(each), bool(self.flags & re.ASCII))
                continue
            if self.flags & re.IGNORECASE and str(op) != "NEGATE":
                ranges += _ranges(_alike(*ranges[-1], bool(self.flags & re.ASCII)))
        written = "".join(
            _character(low) if low == high else f"{_character(low)}-{_character(high)}" for low, high in ranges
        )
        return f"[{'^' if negated else ''}{written}]"


_WORDS = {
    "SUBPATTERN": "flags of a group", "GROUPREF": "a back reference", "GROUPREF_EXISTS": "a condition",
    "ASSERT": "an assertion", "ASSERT_NOT": "an assertion", "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repetition",
}  # fmt: skip


def _character(number: int) -> str:
    """Return a character by its number; ASCII letters and digits unchanged."""
    if number == 0 or 0xD800 <= number < 0xE000:
        raise NotPlain("a character that no database stores")
    text = chr(number)
    return text if text.isascii() and text.isalnum() else rf"\u{{{number:x}}}"


@functools.cache
def _cased() -> dict[str, set[str]]:
    """Return the letters that have a case, by their forms. Letters that IGNORECASE considers equal share a form."""
    found: dict[str, set[str]] = {}
    for each in map(chr, range(0x20000)):
        if each.lower() != each or each.upper() != each:
            for form in _forms(each):
                found.setdefault(form, set()).add(each)
    return found


def _forms(letter: str) -> set[str]:
    low, high = letter.lower(), letter.upper()
    return {letter, low, low[0], high, low.upper(), high.lower(), letter.casefold()}


def _alike(first: int, last: int, ascii_only: bool) -> list[int]:
    """Return the letters that IGNORECASE considers equal to one in a range, in order."""
    if last > 0xFFFF and last != first:
        raise NotPlain("IGNORECASE with a range of characters beyond U+FFFF", "Name the characters.")
    cased, found = _cased(), set()
    flags = re.IGNORECASE | (re.ASCII if ascii_only else re.UNICODE)
    for letter in map(chr, range(first, last + 1)):
        if letter in cased:
            same = re.compile(re.escape(letter), flags)
            found |= {ord(each) for form in _forms(letter) for each in cased.get(form, ()) if same.match(each)}
    return sorted(found)


_TESTS: dict[str, Any] = {
    "DIGIT": str.isdecimal, "SPACE": str.isspace, "WORD": lambda each: each.isalnum() or each == "_"
}  # fmt: skip
_ASCII = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}


@functools.cache
def _category(name: str, ascii_only: bool) -> list[tuple[int, int]]:
    r"""Return the characters of ``\d``, ``\s``, ``\w`` or of the opposite, as ranges of characters that all
    databases can store."""
    opposite, kind = "_NOT_" in name, name.rpartition("_")[2]
    test = _TESTS[kind]
    if ascii_only:  # re.ASCII has fewer spaces than str.isspace() finds in ASCII
        found = {chr(each) for each in range(128) if re.match(_ASCII[kind], chr(each), re.ASCII)}
        test = found.__contains__
    members = [
        each for each in range(1, _LAST + 1) if not 0xD800 <= each < 0xE000 and bool(test(chr(each))) is not opposite
    ]
    return list(_ranges(members))


def _ranges(members: Iterable[int]) -> Iterable[tuple[int, int]]:
    start = last = -2
    for each in members:
        if each != last + 1:
            if start >= 0:
                yield start, last
            start = each
        last = each
    if start >= 0:
        yield start, last


# Per database


_NUMBER = re.compile(r"\\u\{(\w+)\}")
_PYTHON = {"end": r"\Z", "any": "(?s:.)"}
_PCRE = {"end": r"\z", "any": "(?s:.)"}
_POSTGRESQL = {"end": r"\Z", "any": "."}


def around(name: str, characters: str, dialect: str) -> str:
    """Return the parameter to strip characters from a text: the characters, or for MariaDB a pattern."""
    kept = "".join(each for each in characters if not 0xD800 <= ord(each) < 0xE000)
    if dialect not in ("mysql", "mariadb"):
        return kept.replace("\0", "")
    if not kept:
        return "(?!)"
    members = "[" + "".join(rf"\x{{{ord(each):x}}}" for each in kept) + "]+"
    return {"strip": rf"\A{members}|{members}\z", "lstrip": rf"\A{members}", "rstrip": rf"{members}\z"}[name]


def _written(text: str, dialect: str) -> str:
    """Return a pattern in the syntax of a database; SQLite calls Python's engine."""
    if dialect in ("mysql", "mariadb"):
        return _NUMBER.sub(lambda found: _PCRE.get(found[1], rf"\x{{{found[1]}}}"), text)
    words = _POSTGRESQL if dialect == "postgresql" else _PYTHON
    found = _NUMBER.sub(lambda found: words[found[1]] if found[1] in words else rf"\U{int(found[1], 16):08x}", text)
    return f"***:{found}" if dialect == "postgresql" else found


class Written(Text):
    """The type of a text parameter that differs by database: a pattern, or characters to strip."""

    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        """Return the text for the database of the dialect."""
        if value is None:
            return None
        return _written(value, dialect.name) if self.role == "found" else around(self.role, value, dialect.name)


FOUND = Written("found")
SURROUNDED = {name: Written(name) for name in ("strip", "lstrip", "rstrip")}

__all__ = ["FOUND", "SURROUNDED", "NotPlain", "plain"]
