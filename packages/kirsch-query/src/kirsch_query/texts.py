"""Text constants that a database cannot store, and letters for comparisons with ``.lower()``. No database stores half
of a surrogate pair, and only MariaDB stores NUL. A comparison with such text has a known result, because no row equals
it. So the parameter is replaced when it is bound: by NULL, which equals nothing, or by text that has the same order
relative to all rows. That is decided at binding, because only then the database is known.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_HALF = re.compile("[\ud800-\udfff]")
_HALF_OR_NUL = re.compile("[\0\ud800-\udfff]")


def _before(text: str, bad: re.Pattern[str]) -> str:
    return bad.split(text, maxsplit=1)[0]


def bridge(text: str) -> str:
    """Return the character that BRIDGED inserts into a text: the first one, by code points, that the text does not
    contain and every database stores. Parts of the result without it are parts of the text."""
    return next(each for each in map(chr, range(1, len(text) + 2)) if each not in text)


_REPLACED: dict[str, Callable[[str, re.Pattern[str]], str | None]] = {
    "sought": lambda _, __: None,
    "next": lambda text, bad: _before(text, bad) + ("\1" if text[len(_before(text, bad))] == "\0" else "\ue000"),
    "before": _before,
    "after": lambda text, bad: bad.split(text)[-1],
    "bridged": lambda text, bad: bad.sub(bridge(text), text),
}


class Text(sa.types.TypeDecorator[str]):
    """The type of a text parameter. ``role`` selects the replacement for text that the database cannot store."""

    impl = sa.String
    cache_ok = True

    def __init__(self, role: str) -> None:
        super().__init__()
        self.role = role

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        """Return the text, or its replacement."""
        if value is None or value.isprintable():
            return value
        bad = _HALF if dialect.name in ("mysql", "mariadb") else _HALF_OR_NUL
        return _REPLACED[self.role](value, bad) if bad.search(value) else value


SOUGHT = Text("sought")
"""Of text that a row's text is to equal, contain, start with or end with: NULL."""
NEXT = Text("next")
"""The least text that can be stored and is greater."""
BEFORE = Text("before")
"""The part before the first character that cannot be stored: the greatest text that is less, if that is NUL."""
AFTER = Text("after")
"""The part after the last character that cannot be stored."""
BRIDGED = Text("bridged")
"""The text with another character for those that cannot be stored, see :func:`bridge`."""


def has_half(text: str) -> bool:
    """Return whether a text contains half of a surrogate pair."""
    return _HALF.search(text) is not None


def bad_text(text: str) -> str:
    """Return the reason why ``text`` cannot be stored in a database unchanged; empty if it can."""
    if "\0" in text:
        return "a NUL character ends text in some databases and is refused by others"
    return "half of a surrogate pair is no text that a database can store" if has_half(text) else ""


def next_prefix(prefix: str) -> str | None:
    """Return the least text, by code points, that is greater than all text with ``prefix``; None if there is none."""
    for position in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[position])
        if code < 0x10FFFF:
            code = 0xE000 if code == 0xD7FF else code + 1
            return prefix[:position] + chr(code)
    return None


_ALIKE = "~0123456789abcdefghijklmnopqrstuvwxyz\u03b1"
"""Digits and letters by their weight in the Unicode Collation Algorithm, between two that weigh less and more."""
_HEAVY = "\U0010ffff" * 4


def around(prefix: str) -> list[str]:
    """Return two texts that enclose all text with ``prefix`` in a language-independent Unicode collation. Their last
    letters are the ones before and after the last letter of the prefix, so that the weights of following characters,
    which may be low or ignored, do not matter. The list is empty if the last character is neither an ASCII letter nor a
    digit, because a following character could change its weight.
    """
    last = prefix[-1]
    at = _ALIKE.find(last.lower(), 1, -1) if last.isascii() else -1
    return [] if at < 0 else [prefix[:-1] + _ALIKE[at - 1] + _HEAVY, prefix[:-1] + _ALIKE[at + 1]]


# Lower case

_DONE = "\u0130\u212a"
"""Letters that the operation ``lower`` replaces anyway: their lower case has an ASCII letter."""
SIGMAS = "\u03c3\u03c2"
"""The lower case of the capital sigma is one or the other of these: the letters around it decide."""


@functools.cache
def _capitals() -> dict[str, list[str]]:
    """Return the other letters whose lower case is a given letter. Both are not ASCII."""
    found: dict[str, list[str]] = {}
    for each in map(chr, range(0x80, 0x20000)):
        low = each.lower()
        if low != each and each not in _DONE:
            found.setdefault(low, []).append(each)
    return found


def is_lower(text: str) -> bool:
    """Return whether a result of ``.lower()`` can contain this text."""
    return all(each.lower() == each for each in text)


def capitals(texts: Iterable[str]) -> Sequence[tuple[str, str]]:
    """Return pairs (capital, letter) for each non-ASCII letter of the texts that is the lower case of a capital. Their
    number is padded to a power of two by repeating the last pair, so that few numbers of parameters occur.
    """
    letters = sorted({each for text in texts if not text.isascii() for each in text if not each.isascii()})
    found = [(capital, letter) for letter in letters for capital in _capitals().get(letter, ())]
    missing = (1 << (len(found) - 1).bit_length()) - len(found) if found else 0
    return found + found[-1:] * missing
