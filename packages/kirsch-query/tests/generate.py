"""Random queries, typed so that Python can evaluate nearly all of them, and random rows for them."""

from __future__ import annotations

import datetime
import decimal
import itertools
import re
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from kirsch_query import Where, where
from models import Chief, Clerk, Colour, Deputy, Item, Owner, Thing

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

TEXTS = [
    "", "a", "A", "ab", "Ab", "aB", "b", " ", "a ", " a", "a  ", "%", "_", "a_b", "a%b", "\\", "a\\b", "é", "É", "e", "e\u0301", "ß", "SS",
    "😀", "a😀b", "ａ", "\ufb03", "İ", "ı", "K", "'", "a'b", '"', "\t", "abc", "abcd", "abcabc", "\u00a0", "\U0010ffff", "z", "zz", "10", "10x", "Z",
    "\ud7ff", "\ue000", "\r\n", "--", "/*", ":x", "%s", "%(a)s", "?", "{}",
]  # fmt: skip
LOWER = ["", "a", "ab", "k", "i", "ss", "abc", "A", "z", "10", "'", " ", "é"]
INTS = [0, 1, -1, 2, 3, -2, -3, 5, 7, -7, 10, 12, 100, 2**31 - 1, -(2**31)]
BIGS = [*INTS, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.5,
    0.1,
    0.2,
    0.30000000000000004,
    0.3,
    1e300,
    -1e300,
    1e-300,
    7.0,
    -7.5,
    3.0,
    2.0**53,
]
DECIMALS = [
    decimal.Decimal(each) for each in ("0.00", "0.10", "0.30", "1.00", "-1.50", "99999999.99", "-0.01", "7.00", "2.50")
]
DAYS = [
    datetime.date(2024, 2, 29),
    datetime.date(2024, 3, 31),
    datetime.date(1999, 12, 31),
    datetime.date(2000, 1, 1),
    datetime.date(2026, 11, 22),
]
TIMES = [
    datetime.datetime(2024, 3, 31, 2, 30), datetime.datetime(2024, 3, 31, 2, 30, 0, 1), datetime.datetime(1999, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(2000, 1, 1), datetime.datetime(2024, 10, 27, 2, 30, 15, 500000), datetime.datetime(2026, 11, 22, 12, 0),
]  # fmt: skip
CLOCKS = [datetime.time(0, 0), datetime.time(2, 30), datetime.time(23, 59, 59, 999999), datetime.time(12, 0, 0, 1)]
PLACES = [
    "[:1]",
    "[1:]",
    "[-1:]",
    "[:-1]",
    "[0]",
    "[-1]",
    "[1:2]",
    "[2:1]",
    "[-3:-1]",
    "[1:-1]",
    "[5]",
    "[-4]",
    "[:]",
    "[:0]",
]
PATTERNS: list[tuple[str, int]] = [
    ("a", 0), ("^a", 0), ("a$", 0), ("^$", 0), ("", 0), ("a.b", 0), ("a.b", re.DOTALL), ("[ab]+c?", 0), ("[^a]", 0), (r"\d", 0), (r"\D", 0),
    (r"^\s|\s$", 0), (r"\w\W", 0), (r"\w", re.ASCII), (r"\W", re.ASCII), ("(a|b)b", 0), ("(?:ab){2}", 0), ("a{0,1}b*?$", 0),
    ("[\u00e0-\u00ff]", 0), ("\U0001f600", 0), (r"\Aa\Z", 0), (r"[%_\\'\"-]", 0), (r".\r?$", 0), ("a b # a or b", re.VERBOSE),
    ("a", re.IGNORECASE), ("[^a-e]k?", re.IGNORECASE), ("\u00e9|ss", re.IGNORECASE), ("i.", re.IGNORECASE | re.ASCII), ("[B-b]", re.IGNORECASE),
    (r"[^\w\s]", 0), ("|a", 0), (r"[\]\[^-]", 0), (r"^\S+$", 0),
]  # fmt: skip
UUIDS = [uuid.UUID(int=each) for each in (0, 1, 2**128 - 1)]
BYTES = [b"", b"a", b"A", b"\x00", b"a\x00b", b"\xff", b"a "]


def document(chance: random.Random) -> dict[str, Any]:
    """A JSON document, of whose keys each has values of one type or None."""
    found: dict[str, Any] = {
        "n": chance.choice([None, *BIGS, True]), "w": chance.choice([None, *TEXTS]), "l": [chance.choice(INTS) for _ in range(chance.randrange(3))],
        "d": chance.choice([None, {}, {"n": chance.choice(FLOATS)}]),
    }  # fmt: skip
    return {name: each for name, each in found.items() if chance.random() < 0.8}


def rows(chance: random.Random, count: int) -> list[Any]:
    """Objects with every kind of value, None among them."""

    def maybe(values: list[Any]) -> Any:
        return None if chance.random() < 0.2 else chance.choice(values)

    owners = [Owner(id=at + 1, name=maybe(TEXTS), rank=chance.choice(INTS)) for at in range(3)]
    owners += [Chief(id=4, name=maybe(TEXTS), rank=chance.choice(INTS), bonus=maybe(INTS))]
    owners += [Clerk(id=5, name=maybe(TEXTS), rank=chance.choice(INTS), desk=maybe(TEXTS))]
    owners += [Deputy(id=6, name=maybe(TEXTS), rank=chance.choice(INTS), bonus=maybe(INTS))]
    for owner in owners[1:]:
        owner.boss = chance.choice([None, owners[0], owners[1]]) if owner is not owners[1] else owners[0]
    things, numbers = [], itertools.count(1)
    for at in range(count):
        items = [
            Item(id=next(numbers), n=maybe(INTS), word=maybe(TEXTS)) for _ in range(chance.choice([0, 0, 1, 2, 3]))
        ]
        things.append(Thing(
            id=at + 1,
            i=maybe(INTS), j=chance.choice(INTS), big=maybe(BIGS), f=maybe(FLOATS), g=chance.choice(FLOATS), d=maybe(DECIMALS),
            s=maybe(TEXTS), t=chance.choice(TEXTS), flag=maybe([True, False]), sure=chance.choice([True, False]), day=maybe(DAYS),
            at=maybe(TIMES), clock=maybe(CLOCKS), colour=maybe(list(Colour)), uid=maybe(UUIDS), data=maybe(BYTES), owner=maybe(owners),
            items=items, doc=maybe([document(chance)]),
        ))  # fmt: skip
    return [*owners, *things]


def asked(text: str, names: dict[str, Any], row: str = "x") -> Where[Any]:
    """The query of a row, given those of the names that it reads."""
    read = re.findall(r"(?<![.\w])[A-Za-z_]\w*", re.sub(r"'[^']*'", "''", text) if row != "x" else text)
    return where(f"lambda {row}: {text}", **{name: names[name] for name in read if name in names})


class Predicates:
    """A source of random queries over a row ``x``, as text; the names in ``names`` have values of their own."""

    names: dict[str, Any] = {
        "limit": 3, "ratio": 0.5, "nothing": None, "word": "a_b", "datetime": datetime, "Decimal": decimal.Decimal, "Colour": Colour,
        "UUID": uuid.UUID, "some": [1, 2, None], "texts": {"a", "A", "é"}, "helper": lambda n: n > 3,
        "prefixed": lambda s: s.startswith("a"), "both": lambda n: n and n > 0, "re": re, "white": "a \t", "Owner": Owner,
        "Chief": Chief, "Clerk": Clerk, "Deputy": Deputy,
        **{f"pattern{at}": re.compile(each, flags) for at, (each, flags) in enumerate(PATTERNS)},
    }  # fmt: skip

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def predicate(self, depth: int = 3, row: str = "x") -> str:
        c = self.chance
        if depth <= 0 or c.random() < 0.25:
            return self.atom(depth, row)
        kind = c.randrange(6)
        if kind < 2:
            return f"({self.predicate(depth - 1, row)} {c.choice(['and', 'or'])} {self.predicate(depth - 1, row)})"
        if kind == 2:
            return f"(not {self.predicate(depth - 1, row)})"
        if kind == 3:
            parts = [self.predicate(depth - 1, row) for _ in range(3)]
            return f"({parts[0]} if {parts[1]} else {parts[2]})"
        return self.atom(depth, row)

    def atom(self, depth: int, row: str) -> str:
        """A condition without ``and``, ``or`` and ``not``. Longer than other functions: it is the list of all kinds."""
        c = self.chance
        kinds = [
            "int",
            "int",
            "int",
            "float",
            "number",
            "str",
            "str",
            "str",
            "decimal",
            "day",
            "at",
            "clock",
            "enum",
            "uuid",
            "bytes",
            "bool",
            "several",
            "boolean",
            "boolean",
            "matched",
        ]
        if row == "x":
            kinds += ["many", "many", "one", "property", "class", "document"]
        kind = c.choice(kinds)
        if kind == "bool":
            return c.choice([f"{row}.flag", f"{row}.sure", f"{row}.flag == True", f"{row}.flag is False", f"{row}.flag != {row}.sure",
                             f"{row}.i", f"{row}.s", f"{row}.f", f"({row}.i + 1)", f"({row}.flag < {row}.sure)", f"{row}.flag in (1, 0)",
                             f"bool({row}.s)", "limit", f"({row}.i or {row}.j)", f"({row}.s and {row}.t) == {self.text(1, row)}",
                             f"{row}.flag == {row}.i", f"{row}.sure >= {row}.j", f"{row}.i == {row}.s", f"{row}.s != {row}.flag",
                             f"{row}.uid not in ({row}.data, {row}.day)",
                             ]) if row == "x" else f"{row}.n"  # fmt: skip
        if (
            kind in ("enum", "uuid", "bytes", "decimal", "day", "at", "clock", "float", "number", "property")
            and row != "x"
        ):
            kind = c.choice(["int", "str"])
        if kind == "boolean":
            return self.with_boolean(depth, row)
        if kind == "matched":
            return self.matched(row)
        if kind == "document":
            return self.of_document()
        if kind == "class":
            return self.of_class()
        if kind == "property":
            return c.choice(["x.is_sure", "helper(x.j)", "helper(x.i)", "not helper(x.i + 1)"])
        if kind == "many":
            return self.quantifier(depth)
        if kind == "several":
            return self.several(row)
        if kind == "one":
            name = c.choice(
                ["x.owner.name", "x.owner.boss.name", "x.owner.rank", "x.owner.boss.rank", "x.owner", "x.owner.boss"]
            )
            if name.endswith("name"):
                return c.choice(
                    [
                        self.compared(name, self.text(depth - 1, row)),
                        f"{name} is None",
                        f"{name} is not None",
                        f"{name} == {row}.s",
                        f"{name} != {row}.s",
                        f"{name} < x.owner.boss.name",
                        f"{name}.startswith({self.text(0, row)})",
                        f"{self.text(0, row)} {c.choice(['in', 'not in'])} {name}",
                        f"{name} {c.choice(['in', 'not in'])} {c.choice(['texts', f'({self.literal(TEXTS)}, None)'])}",
                        f"any(o.s {c.choice(['==', '!=', '<'])} {name} for o in x.owner.things)",
                    ]
                )
            if name.endswith("rank"):
                return c.choice(
                    [
                        self.compared(name, self.integer(depth - 1, row)),
                        f"{name} {c.choice(['in', 'not in'])} some",
                        f"{name} % 2 == x.owner.rank % 3",
                        f"any(i.n {c.choice(['==', '>'])} {name} for i in x.items)",
                        f"({name}, x.j) {c.choice(['==', '<'])} (x.owner.rank, {self.literal(INTS)})",
                    ]
                )
            return c.choice([f"{name} is None", f"{name} is not None", name, f"{name} == None"])
        left = {
            "int": self.integer, "float": self.real, "number": self.integer, "str": self.text, "decimal": self.decimal, "day": self.day,
            "at": self.at, "clock": self.clock, "enum": self.colour, "uuid": self.uid, "bytes": self.data,
        }[kind]  # fmt: skip
        right = self.real if kind == "number" else left
        first, second = left(depth - 1, row), right(depth - 1, row)
        if kind in ("enum", "uuid", "bytes"):
            return c.choice(
                [
                    f"{first} == {second}",
                    f"{first} != {second}",
                    f"{first} in ({second}, {left(0, row)})",
                    f"{first} is None",
                ]
            )
        if kind == "str" and c.random() < 0.5:
            return c.choice([
                f"{first}.startswith({second})", f"{first}.endswith({second})", f"{second} in {first}", f"{second} not in {first}",
                f"{first}.startswith(({self.literal(TEXTS)}, {self.literal(TEXTS)}))", f"{first} in texts",
                f"{first}.lower() {c.choice(['==', '!='])} {self.literal(LOWER)}", f"{self.literal(LOWER)} in {first}.lower()",
                f"{first}.lower().{c.choice(['starts', 'ends'])}with({self.literal(LOWER)})", f"{first}.lower() not in ('a', 'k', 'AB')",
            ])  # fmt: skip
        how = c.randrange(10)
        if how == 0:
            return (
                f"{first} {c.choice(['in', 'not in'])} ({second}, {right(0, row)}, {c.choice(['None', right(0, row)])})"
            )
        if how == 1:
            return f"{first} {c.choice(['is', 'is not', '==', '!='])} None"
        if how == 2:
            return f"{first} {c.choice(['<', '<='])} {second} {c.choice(['<', '<=', '=='])} {right(0, row)}"
        if how == 3 and kind == "int":
            return c.choice(
                [
                    f"{first} in some",
                    f"{first} not in some",
                    f"{first} in range(-2, 7)",
                    f"{first} == nothing",
                    f"{first} < nothing",
                ]
            )
        return self.compared(first, second)

    def compared(self, left: str, right: str) -> str:
        return f"{left} {self.chance.choice(['==', '!=', '<', '<=', '>', '>='])} {right}"

    def with_boolean(self, depth: int, row: str) -> str:
        """A condition on booleans as values."""
        c, e = self.chance, partial(self.boolean, max(depth - 1, 1), row)
        kinds: list[Callable[[], str]] = [
            lambda: f"({e()}) {c.choice(['==', '!=', '<', '<=', '>', '>='])} ({e()})", lambda: f"({e()}) {c.choice(['==', '!='])} {c.choice(['True', 'False', 'None'])}",
            lambda: f"({e()}) {c.choice(['is', 'is not'])} {c.choice(['True', 'False', 'None'])}", lambda: f"({e()}) {c.choice(['in', 'not in'])} (({e()}), {c.choice(['None', e()])})",
            lambda: f"({e()}) in (False, {c.choice(['None', '1', '2'])})", lambda: self.compared(f"(({e()}) + ({e()}))", self.integer(0, row)),
            lambda: self.compared(f"({e()})", self.integer(depth - 1, row)), lambda: f"(({e()}), {self.integer(0, row)}) {c.choice(['==', '!=', '<'])} (({e()}), {self.integer(0, row)})",
            lambda: f"any(e == {c.choice(['False', 'True'])} for e in (({e()}), ({e()})))", lambda: f"all(e != {c.choice(['False', 'True'])} for e in (({e()}), ({e()})))",
            lambda: f"({self.choice(row)}) is None", lambda: e(),
        ]  # fmt: skip
        return c.choice(kinds)()

    def boolean(self, depth: int, row: str) -> str:
        """A boolean whose value is asked for. It may be None, and absent."""
        c, e = self.chance, partial(self.boolean, depth - 1, row)
        own = ["flag", "sure", "is_sure"] if row == "x" else []
        kinds: list[Callable[[], str]] = [
            lambda: c.choice([*(f"{row}.{name}" for name in own), "True", "False"]),
            lambda: self.predicate(0, row),
            lambda: f"{self.text(0, row)}.{c.choice(['startswith', 'endswith'])}({self.text(0, row)})",
            lambda: f"{self.text(1, row)}.startswith(({self.literal(TEXTS)}, {self.literal(TEXTS)}))",
            lambda: f"{self.text(0, row)} {c.choice(['in', 'not in'])} {self.text(0, row)}",
            lambda: f"{c.choice(['prefixed', 'both', 'helper', 'bool'])}({row}.{'i' if row == 'x' else 'n'})",
        ]
        if row == "x":
            kinds += [
                lambda: c.choice(
                    ["x.is_prefixed", "prefixed(x.s)", "prefixed(x.owner.name)", "x.owner.name.startswith('a')"]
                )
            ]
        if depth > 0:
            kinds += [
                lambda: f"(not {e()})", lambda: f"({e()} {c.choice(['and', 'or'])} {e()})", lambda: f"({e()} if {e()} else {e()})",
                lambda: f"bool({e()})", lambda: f"{c.choice(['min', 'max'])}({e()}, {e()})", lambda: f"both({e()})", lambda: f"(({e()}) == ({e()}))",
            ]  # fmt: skip
        return c.choice(kinds)()

    def choice(self, row: str) -> str:
        """A choice that may be None, absent, or neither."""
        return f"{self.boolean(0, row)} if {self.boolean(0, row)} else {'x.flag' if row == 'x' else 'False'}"

    def of_document(self) -> str:
        """A condition on a part of a JSON document."""
        c = self.chance
        number = c.choice(["x.doc['n']", "x.doc['d']['n']", "x.doc['l'][0]", "x.doc['l'][-1]", "x.doc.get('n')"])
        text = c.choice(["x.doc['w']", "x.doc.get('w')", "x.doc['w'][0]"])
        return c.choice([
            self.compared(number, c.choice([self.literal(BIGS), self.literal(FLOATS), "x.i", "limit", "ratio"])), self.compared(text, self.text(0, "x")),
            f"{number} {c.choice(['is', 'is not', '==', '!='])} None", f"{c.choice([number, text])} {c.choice(['in', 'not in'])} some", f"{text} in texts",
            c.choice([number, text, "x.doc", "x.doc['d']"]), f"{text}.startswith({self.text(0, 'x')})", f"{self.literal(TEXTS)} {c.choice(['in', 'not in'])} {text}",
            "len(x.doc['l']) > 1", f"{text}.lower() == {self.literal(LOWER)}",
        ])  # fmt: skip

    def matched(self, row: str) -> str:
        """A condition on a pattern."""
        c = self.chance
        at, text = c.randrange(len(PATTERNS)), self.text(1, row)
        how = c.choice(["search", "match", "fullmatch"])
        pattern, flags = PATTERNS[at]
        found = c.choice(
            [
                f"pattern{at}.{how}({text})",
                f"re.{how}(pattern{at}, {text})",
                f"re.{how}({pattern!r}, {text}, {int(flags)})",
            ]
        )
        return c.choice(
            [
                found,
                found,
                f"{found} is None",
                f"{found} is not None",
                f"bool({found})",
                f"not {found}",
                f"{found} == None",
            ]
        )

    def of_class(self) -> str:
        """A condition on the class of an object."""
        c = self.chance
        name = c.choice(["x.owner", "x.owner.boss"])
        cls = c.choice(["Owner", "Chief", "Clerk", "Deputy", "(Chief, Clerk)", "(Deputy, int)", "str"])
        found = f"isinstance({name}, {cls})"
        kinds = [found, f"not {found}", f"{found} == True", f"{found} != x.sure", f"({found}, x.sure) == (False, True)",
                 f"any(isinstance(o.owner, {cls}) and o.j > 0 for o in x.owner.things)", f"{name}.kind == 'chief'",
                 f"(isinstance({name}, Chief) and {self.compared(f'{name}.bonus', self.integer(0, 'x'))})",
                 f"(isinstance({name}, Clerk) and not {name}.desk == {self.text(0, 'x')})",
                 f"(isinstance({name}, Clerk) and {name}.desk is None)"]  # fmt: skip
        return c.choice(kinds)

    def several(self, row: str) -> str:
        """A condition on a tuple."""
        c = self.chance
        kinds = [c.choice([self.integer, self.text, self.text]) for _ in range(2)]
        first, second, third = (f"({', '.join(each(1 - at, row) for each in kinds)})" for at in range(3))
        return c.choice([
            f"{first} {c.choice(['==', '!=', '<', '<=', '>', '>='])} {second}", f"{first} in ({second}, {third})",
            f"{first} not in [{second}, (1, 'a'), (None, None)]", f"any(e {c.choice(['==', 'is not', '!='])} None for e in {first})",
            f"all(e != {self.literal(INTS)} for e in {first})", f"{first}", f"{self.literal(TEXTS)}.startswith({row}.{'t' if row == 'x' else 'word'})",
        ])  # fmt: skip

    def quantifier(self, depth: int) -> str:
        c = self.chance
        inner = self.predicate(min(depth - 1, 1), "o")
        some = f" if {self.predicate(0, 'o')}" if c.random() < 0.3 else ""
        source = c.choice(["x.items", "x.items", "x.items", "x.owner.things"])
        if source != "x.items":
            return c.choice([f"any(o.j > {self.literal(INTS)} for o in {source})", f"all(o.t != {self.literal(TEXTS)} for o in {source})",
                             f"any(o.t == x.t and o.j > {self.literal(INTS)} for o in {source})",
                             f"x.s in [o.s for o in {source} if o.sure]", f"len({source}) > 3", f"any(p.n == x.j for o in {source} for p in o.items)"])  # fmt: skip
        if c.random() < 0.3:
            return self.aggregate(depth, some)
        return c.choice([
            f"any({inner} for o in {source}{some})", f"all({inner} for o in {source}{some})", f"len({source}) {c.choice(['==', '>', '<'])} {c.choice([0, 1, 2])}",
            f"any(o.n == x.i for o in {source})", f"x.i in [o.n for o in {source}]", f"any(x.i == v for v in (1, 5, {self.literal(INTS)}))", source,
        ])  # fmt: skip

    def aggregate(self, depth: int, some: str) -> str:
        """A condition on an aggregate of related rows."""
        c = self.chance
        value = c.choice(["o.n", "o.n", "o.n + 1", "o.n * o.n", "1", "(o.word == 'a')"])
        found = c.choice([
            f"sum({value} for o in x.items{some})", f"{c.choice(['min', 'max'])}({c.choice(['o.n', 'o.n - 3'])} for o in x.items{some})",
            f"len([o for o in x.items{some}])", f"{c.choice(['sum', 'min', 'max'])}(o.{c.choice('ij')} for o in x.owner.things)",
            f"{c.choice(['min', 'max'])}(o.{c.choice(['day', 'at'])} for o in x.owner.things) == x.day and x.j",
            f"sum(o.{c.choice('ij')} for o in x.owner.things if {self.predicate(0, 'x').replace('x.', 'o.') if c.random() < 0.5 else 'o.sure'})",
        ])  # fmt: skip
        if " and " in found:
            return found.replace("x.day", c.choice(["x.day", "None"]))
        kinds = [
            f"{found} is None",
            f"{found} in (0, 1, {c.choice(['None', self.literal(INTS)])})",
            f"not {found} == x.i",
        ]
        return c.choice([*kinds, self.compared(found, self.integer(max(depth - 1, 0), "x"))])

    def literal(self, values: list[Any]) -> str:
        value = self.chance.choice(values)
        return f"UUID(int={value.int})" if isinstance(value, uuid.UUID) else repr(value)

    def pick(
        self, depth: int, row: str, columns: list[str], values: list[Any], more: list[str | Callable[[], str]]
    ) -> str:
        """A column, a constant, or one of ``more``; a function there makes its text when it is chosen."""
        c = self.chance
        if depth > 0 and more and c.random() < 0.5:
            made = c.choice(more)
            return made if isinstance(made, str) else made()
        if c.random() < 0.55:
            return f"{row}.{c.choice(columns)}"
        return self.literal(values)

    def key(self) -> str:
        """Return a random sort key."""
        kinds = [self.boolean, self.boolean, self.integer, self.text, self.real, self.decimal, self.day, self.at]
        return self.chance.choice(kinds)(2, "x")

    def integer(self, depth: int, row: str) -> str:
        c, e, signs = self.chance, partial(self.integer, depth - 1, row), ["+", "-", "*", "//", "%"]
        more: list[str | Callable[[], str]] = [
            lambda: f"({e()} {c.choice(signs)} {e()})",
            lambda: f"({e()} {c.choice(signs)} {self.literal(INTS)})",
            lambda: f"(-{e()})",
            lambda: f"abs({e()})",
            lambda: f"{c.choice(['min', 'max'])}({e()}, {e()})",
            lambda: f"{c.choice(['min', 'max'])}(({e()}, {e()}))",
            lambda: f"len({self.text(depth - 1, row)})",
            lambda: f"({e()} if {self.predicate(0, row)} else {e()})",
            lambda: f"({e()} or {e()})",
            lambda: f"({e()} + ({self.boolean(0, row)}))",
            lambda: f"abs({self.boolean(0, row)})",
            lambda: f"({self.day(depth - 1, row)} - {self.day(0, row)}).days",
            lambda: f"({e()} {c.choice('&|^')} {e()})",
            lambda: f"({e()} {c.choice(['& 3', '| 8', '^ -1', '** 2', '** 3', '<< 2', '>> 1', '>> 40'])})",
            lambda: f"(~{e()})",
            lambda: f"round({e()})",
            lambda: f"round({e()} / {c.choice(['2', '4', '-8', e()])})",
        ]
        if row == "x":
            parts = ["year", "month", "day", "hour", "minute", "second", "microsecond"]
            more += [
                lambda: f"x.at.{c.choice(parts)}", lambda: f"x.day.{c.choice(parts[:3])}", "x.day.weekday()", "x.at.isoweekday()",
                lambda: f"x.clock.{c.choice(parts[3:])}", "limit", "(x.flag + 1)", "(x.flag & x.sure)", "(x.flag ^ x.j)",
                "round(min(max(x.f, -99.5), 1e6))", "round(x.g * 0.0)", "round(x.d)", "round(x.d * 10)",
            ]  # fmt: skip
        columns = ["i", "j", "big", "i", "j"] if row == "x" else ["n", "id"]
        return self.pick(depth, row, columns, BIGS if c.random() < 0.1 else INTS, more)

    def real(self, depth: int, row: str) -> str:
        c, e = self.chance, partial(self.real, depth - 1, row)
        more: list[str | Callable[[], str]] = [
            lambda: f"({e()} {c.choice(['+', '-', '*', '/'])} {e()})",
            f"({row}.i / {row}.j)",
            lambda: f"({e()} * {self.integer(0, row)})",
            lambda: f"(-{e()})",
            lambda: f"abs({e()})",
            lambda: f"{c.choice(['min', 'max'])}({e()}, {e()})",
            lambda: f"({row}.j / {self.literal(INTS)})",
            lambda: f"({e()} if {self.predicate(0, row)} else {e()})",
            "ratio",
            lambda: f"({e()} % 2.0)",
            f"({row}.{'big' if row == 'x' else 'n'} * {c.choice(['0.5', '1.0', '3.0'])})",
            lambda: f"({self.integer(1, row)} / {self.integer(1, row)})",
        ]
        return self.pick(depth, row, ["f", "g"], FLOATS, more)

    def text(self, depth: int, row: str) -> str:
        c, e = self.chance, partial(self.text, depth - 1, row)
        more: list[str | Callable[[], str]] = [
            lambda: f"({e()} + {e()})",
            lambda: f"{e()}{c.choice(PLACES)}",
            lambda: f"{c.choice(['min', 'max'])}({e()}, {e()})",
            "word",
            lambda: f"({e()} if {self.predicate(0, row)} else {e()})",
            lambda: f"({e()} or {e()})",
            lambda: f"{e()}.lower()",
            lambda: (
                f"{e()}.{c.choice(['strip', 'lstrip', 'rstrip'])}({c.choice(['', '', 'white', repr('[]^-a'), repr(''), 'None'])})"
            ),
        ]
        return self.pick(depth, row, ["s", "t"] if row == "x" else ["word"], TEXTS, more)

    def decimal(self, depth: int, row: str) -> str:
        c, e = self.chance, partial(self.decimal, depth - 1, row)
        more: list[str | Callable[[], str]] = [
            lambda: f"({e()} {c.choice(['+', '-', '*'])} {e()})",
            lambda: f"abs({e()})",
            lambda: f"({e()} + x.j)",
            lambda: f"({e()} {c.choice(['//', '%'])} {c.choice([e(), '3', 'x.j', 'Decimal(7)'])})",
            lambda: f"round({e()}, {c.choice([0, 1, 2, 3])})",
            lambda: f"({e()} ** 2)",
            "x.j",
        ]
        return self.pick(depth, row, ["d"], DECIMALS, more)

    def day(self, depth: int, row: str) -> str:
        return self.pick(depth, row, ["day"], DAYS, ["x.at.date()", "max(x.day, x.at.date())"])

    def at(self, depth: int, row: str) -> str:
        return self.pick(depth, row, ["at"], TIMES, ["min(x.at, datetime.datetime(2020, 1, 1))"])

    def clock(self, depth: int, row: str) -> str:
        return self.pick(depth, row, ["clock"], CLOCKS, [])

    def colour(self, depth: int, row: str) -> str:
        return self.chance.choice(["x.colour", "x.colour", "Colour.RED", "Colour.BLUE"])

    def uid(self, depth: int, row: str) -> str:
        return self.pick(depth, row, ["uid"], UUIDS, [])

    def data(self, depth: int, row: str) -> str:
        return self.pick(depth, row, ["data"], BYTES, [])
