"""Classes of characters in patterns have the members that Python gives them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy as sa

from generate import asked
from kirsch_query import Refused
from kirsch_query.patterns import _category, _written, plain
from models import Thing, stored

SAMPLES = [*range(1, 0x250), 0x0660, 0x1680, 0x2003, 0x2028, 0x3000, 0x4E00, 0xFF11, 0x1D7D8, 0x10FFFF]


@pytest.mark.parametrize("flags", [0, re.ASCII])
@pytest.mark.parametrize("kind", ["d", "s", "w", "D", "S", "W"])
def test_classes_have_the_members_that_python_gives_them(kind: str, flags: int) -> None:
    name = {"d": "DIGIT", "s": "SPACE", "w": "WORD"}[kind.lower()]
    ranges = _category(f"CATEGORY_{'NOT_' if kind.isupper() else ''}{name}", bool(flags))
    members = {each for low, high in ranges for each in range(low, high + 1)}
    expected = {each for each in SAMPLES if re.match(f"\\{kind}", chr(each), flags)}
    assert {each for each in SAMPLES if each in members} == expected


def test_patterns_agree_with_python_for_characters_at_the_ends_of_classes(engine: sa.Engine) -> None:
    texts = [chr(each) for each in SAMPLES if each != 0] + ["a\n", "\na", "a\r\n", "\x1c", "a\x85"]
    rows = [Thing(id=at, t=text, j=0, g=0.0, sure=True) for at, text in enumerate(texts, 1)]
    patterns = [
        (r"^\s$", re.ASCII),
        (r"^\s$", 0),
        (r"\d", 0),
        (r"^\W", 0),
        (r"^[^\d\s]\Z", 0),
        ("a$", 0),
        (r"^.$", 0),
        (r"a\Z", 0),
    ]
    with stored(engine, rows) as session:
        things = session.scalars(sa.select(Thing).order_by(Thing.id)).all()
        for pattern, flags in patterns:
            names: dict[str, Any] = {"pattern": re.compile(pattern, flags)}
            query = asked("pattern.search(x.t)", names)
            found = list(session.scalars(sa.select(Thing).where(query.clause(Thing)).order_by(Thing.id)))
            assert found == [*query.filter(things)], (pattern, flags)


@pytest.mark.parametrize(
    ("pattern", "flags", "why"),
    [
        (r"(a)\1", 0, "a back reference"), ("a(?=b)", 0, "an assertion"), (r"\bab", 0, "a boundary of words"),
        ("^a", re.MULTILINE, "MULTILINE"), ("[a-\U0001F600]", re.IGNORECASE, "IGNORECASE with a range"),
        ("(?i:a)", 0, "flags of a group"),
        ("a{300}", 0, "a repetition"), ("\0", 0, "no database stores"),
    ],
)  # fmt: skip
def test_a_pattern_that_is_not_regular_is_refused_with_words(pattern: str, flags: int, why: str) -> None:
    with pytest.raises(Refused, match=f"{why}.*in their own ways"):
        asked("pattern.search(x.t)", {"pattern": re.compile(pattern, flags)}).clause(Thing)


@pytest.mark.parametrize("flags", [re.IGNORECASE, re.IGNORECASE | re.ASCII])
@pytest.mark.parametrize(
    "pattern",
    [
        "i",
        "[^k]",
        "s",
        "[A-z]",
        "\u00e9",
        "[^\u0130-\u0132]",
        "[\u0370-\u03ff]",
        "\U00010400",
        "\u1e9e",
        "[\u0000-\uffff]",
    ],
)
def test_ignorecase_takes_the_letters_for_the_same_that_python_does(pattern: str, flags: int) -> None:
    if "\0" in pattern:
        pattern = pattern.replace("\0", "\1").replace("\uffff", "\ud7ff")
    compiled = re.compile(pattern, flags)
    again = re.compile(_written(plain(compiled, "fullmatch"), "sqlite"))
    for each in map(chr, [*range(1, 0xD800), *range(0xE000, 0x10800), *range(0x1E900, 0x1E944)]):
        assert bool(again.match(each)) is bool(compiled.fullmatch(each)), hex(ord(each))
