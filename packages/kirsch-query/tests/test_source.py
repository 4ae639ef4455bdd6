"""Which source belongs to a function, however it was written, and what is said where it cannot be known."""

from __future__ import annotations

import dataclasses
import decimal
import importlib
import linecache
import os.path
import subprocess
import sys
import zipfile
from decimal import Decimal as aliased
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kirsch_query import QueryError, SourceError, comparison, filter, where  # noqa: A004

LIMIT = 3


def row(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**values)


def kept(query: Any, *prices: int) -> list[int]:
    return [each.price for each in query.filter([row(price=price) for price in prices])]


def test_two_lambdas_on_one_line_are_told_apart() -> None:
    low, high = where(lambda b: b.price < 3), where(lambda b: b.price > 3)
    assert (kept(low, 1, 5), kept(high, 1, 5)) == ([1], [5])
    one, two, three = [where(f) for f in (lambda b: b.price == 1, lambda b: b.price == 1.0, lambda b: b.price == True)]  # noqa: E712
    assert [repr(each).count("1.0") for each in (one, two, three)] == [0, 1, 0]
    assert "True" in repr(three)


def test_functions_that_differ_in_their_defaults_alone_are_told_apart() -> None:
    one, two = where(lambda a, b: a.price < b), where(lambda a, b=3: a.price < b)
    assert (one.arity, two.arity) == (2, 1)
    assert kept(two, 2, 3) == [2]
    low, high = (where(f) for f in (lambda a, b=3: a.price < b, lambda a, b=5: a.price < b))
    assert (kept(low, 2, 4), kept(high, 2, 4)) == ([2], [2, 4])


def named(query: Any) -> Any:
    return query


@dataclasses.dataclass
class Rules:
    cheap: Any = dataclasses.field(default_factory=lambda: where(lambda b: b.price < 3))
    dear: Any = where(lambda b: b.price > 3)  # noqa: RUF009
    table: dict[str, Any] = dataclasses.field(default_factory=lambda: {"one": where(lambda b: b.price == 1)})


LIMITS = [where(lambda b: b.price < limit) for limit in (2, 4)]  # noqa: B023
BY_DEFAULT = [where(lambda b, limit=limit: b.price < limit) for limit in (2, 4)]


def test_lambdas_in_odd_places(default: Any = where(lambda b: b.price < 3)) -> None:  # noqa: B008, PT028
    assert kept(default, 2, 3) == [2]
    assert kept(Rules().cheap, 2, 3) == [2]
    assert kept(Rules.dear, 3, 4) == [4]
    assert kept(Rules().table["one"], 1, 2) == [1]
    assert [kept(each, 1, 3, 5) for each in LIMITS] == [[1, 3], [1, 3]], (
        "Python too reads the last value of a loop's name"
    )
    assert [kept(each, 1, 3, 5) for each in BY_DEFAULT] == [[1], [1, 3]]
    assert kept((query := where(lambda b: b.price < 3)), 2, 3) == kept(query, 2) == [2]
    assert f"{kept((where(lambda b: b.price in (2, 5) and b.price != {'a': 5}['a'])), 2, 5)}" == "[2]"
    assert kept(named(query=named(where(lambda b: named(query=b.price) < 3))), 2, 3) == [2]
    assert kept(where(lambda b: (lambda c: c < 3)(b.price)), 2, 3) == [2]
    assert kept(where(lambda b: b.price < 3 \
                      or b.price == len("""
                      lambda b: b.price > 3""")), 2, 3, 44) == [2, 44]  # fmt: skip
    assert kept(
        {"a": [where(lambda b: b.price < 3)]}["a"][0] if default is not None else where(lambda b: b.price > 3), 2, 4
    ) == [2]
    try:
        raise ValueError(where(lambda b: b.price < 3))
    except ValueError as error:
        raised = error.args[0]
    assert kept(raised, 2, 3) == [2]


def test_a_class_with_a_query_of_its_own_names() -> None:
    class Prices:
        limit = 3
        below = staticmethod(lambda b, limit=limit: b.price < limit)

        @staticmethod
        @where
        def small(b: Any) -> Any:
            return b.price < __class__.limit  # type: ignore[name-defined]

    assert kept(where(Prices.below), 2, 3) == [2]
    assert kept(Prices.small, 2, 3) == [2]


@pytest.mark.parametrize("tool", ["settrace", "setprofile", "monitoring"])
def test_a_function_that_is_traced_is_found(tool: str) -> None:
    query: Any = lambda b: b.price < 3 and b.price in (1, 2)  # noqa: E731
    if tool == "monitoring":
        if not hasattr(sys, "monitoring"):
            pytest.skip("sys.monitoring is in Python from 3.12 on")
        sys.monitoring.use_tool_id(4, "test")
        sys.monitoring.set_local_events(
            4, query.__code__, sys.monitoring.events.LINE | sys.monitoring.events.INSTRUCTION
        )
        try:
            query(row(price=1))
            assert kept(where(query), 1, 3) == [1]
        finally:
            sys.monitoring.set_local_events(4, query.__code__, 0)
            sys.monitoring.free_tool_id(4)
        return
    get, put = getattr(sys, tool.replace("set", "get")), getattr(sys, tool)
    before = get()
    put(lambda *_: None)
    try:
        query(row(price=1))
        found = kept(where(query), 1, 3)
    finally:
        put(before)
    assert found == [1]


def test_code_that_is_compiled_with_its_lines_in_linecache_is_found() -> None:
    """As IPython and doctest do it."""
    text = "from kirsch_query import where\nq = where(lambda b: b.price < 3); r = where(lambda b: b.price > 3)\n"
    filename = "<a cell>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    names: dict[str, Any] = {}
    exec(compile(text, filename, "exec"), names)
    del linecache.cache[filename]
    assert (kept(names["q"], 2, 4), kept(names["r"], 2, 4)) == ([2], [4])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lambda b: (p := b.price) > 1 and p < 3", "binds no names with :="),
        ("any((p := n) > 1 and p < 3 for n in b.prices)", "binds no names with :="),
        ("lambda b: (yield b.price)", "yields nothing"),
    ],
)
def test_what_is_no_plain_expression_is_refused_with_a_caret(text: str, problem: str) -> None:
    with pytest.raises(SourceError, match=problem) as caught:
        where(text)
    assert "^" in str(caught.value)
    assert str(caught.value).splitlines()[-1].startswith("  Write ")


def test_an_asynchronous_function_is_refused() -> None:
    async def cheap(b: Any) -> bool:
        return b.price < 3  # type: ignore[no-any-return]

    with pytest.raises(SourceError, match="is asynchronous"):
        where(cheap)


def test_text_may_name_the_arguments_of_a_lambda_within() -> None:
    assert kept(where("sorted([b.price], key=lambda n: -n)[0] < 3"), 2, 3) == [2]


def test_a_lambda_in_a_lambda_and_in_an_argument() -> None:
    make: Any = lambda limit: where(lambda b: b.price < limit)  # noqa: E731
    assert kept(make(4), 3, 4) == [3]
    assert kept((lambda query: query)(where(lambda b: b.price in [4])), 3, 4) == [4]


def test_a_def_with_a_docstring_a_decorator_and_defaults() -> None:
    @where
    def cheap(b: Any, limit: int = 3) -> bool:
        """Costs little."""
        return b.price < limit  # type: ignore[no-any-return]

    assert kept(cheap, 2, 3) == [2]


def test_a_lambda_over_several_lines() -> None:
    query = where(
        lambda b: (
            b.price > 1
            # a comment with a ) in it
            and b.price < 4
        )
    )
    assert kept(query, 1, 2, 4) == [2]


def test_a_call_of_what_the_module_imports() -> None:
    """CPython 3.12 and later compile it in another way than a call of other names."""
    query = where(lambda b: b.price < decimal.Decimal("3.5") and os.path.basename("x") == "x")
    assert kept(query, 3, 4) == [3]
    assert kept(where(lambda b: b.price < aliased("3.5")), 3, 4) == [3]
    import decimal as local

    assert kept(where(lambda b: b.price < local.Decimal("3.5")), 3, 4) == [3]


def test_names_are_read_at_each_use() -> None:
    limit = 3
    query = where(lambda b: b.price < limit and b.price < LIMIT)
    assert kept(query, 2, 5) == [2]
    limit = 2
    assert kept(query, 1, 2) == [1]
    limit = 9
    assert kept(where(lambda b: b.price < limit, limit=2), 1, 2) == [1], "a name that is given goes first"


def test_a_part_without_a_row_is_evaluated_once() -> None:
    calls = []

    def now() -> int:
        calls.append(1)
        return 3

    query = where(lambda b: b.price < now())
    assert kept(query, 1, 2, 3) == [1, 2]
    assert len(calls) == 1


class Shop:
    __limit = 3

    def cheap(self) -> Any:
        return where(lambda b: b.price < self.__limit)


def test_a_private_name_inside_of_a_class() -> None:
    assert kept(Shop().cheap(), 2, 3) == [2]


def test_text_says_the_same() -> None:
    assert kept(where("b.price < limit", limit=3), 2, 3) == [2]
    assert kept(where("lambda b: b.price < 3"), 2, 3) == [2]
    with pytest.raises(SourceError, match=r"limit, b|b, limit"):
        where("b.price < limit")
    with pytest.raises(SourceError, match="does not parse"):
        where("b.price <")


def test_comparisons_without_a_lambda() -> None:
    assert kept(comparison("price", "<", 3), 2, 3) == [2]
    assert kept(filter(price=3), 2, 3) == [3]
    assert kept(where(price=3) | comparison("price", "in", [7]), 2, 3, 7) == [3, 7]
    assert kept(~where(price=3) & comparison("price", ">=", 2), 1, 2, 3) == [2]
    assert comparison("owner.name", "startswith", "A")(row(owner=row(name="Ann")))
    for wrong in ("a b", "x.", "import", "x; y"):
        with pytest.raises(QueryError, match="not the name of an attribute"):
            comparison(wrong, "==", 1)
    with pytest.raises(QueryError, match="is no comparison"):
        comparison("price", "~", 1)
    with pytest.raises(QueryError, match="neither true nor false"):
        bool(where(price=3))


def test_more_than_one_expression_is_refused_with_its_line() -> None:
    def long(b: Any) -> bool:
        limit = 3
        return b.price < limit  # type: ignore[no-any-return]

    with pytest.raises(SourceError, match="more than one return") as caught:
        where(long)
    assert "limit = 3" in str(caught.value)
    assert "^" in str(caught.value)
    with pytest.raises(SourceError, match="not a Python function"):
        where(len)


def test_a_function_without_source_is_refused_and_text_is_offered() -> None:
    function = eval("lambda b: b.price < 3")
    with pytest.raises(SourceError, match=r"cannot be read|is not that of") as caught:
        where(function)
    assert 'where("b.price < limit", limit=limit)' in str(caught.value)


def test_a_file_that_was_edited_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "edited_shop.py"
    module.write_text("cheap = lambda b: b.price < 3\n")
    shop = importlib.import_module("edited_shop")
    module.write_text("cheap = lambda b: b.price < 4 + 0\n")
    with pytest.raises(SourceError, match="has changed since it was imported"):
        where(shop.cheap)


def test_a_module_in_a_zip_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "shop.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped_shop.py", "import kirsch_query\ncheap = kirsch_query.where(lambda b: b.price < 3)\n")
    monkeypatch.syspath_prepend(archive)
    assert kept(importlib.import_module("zipped_shop").cheap, 2, 3) == [2]


@pytest.mark.parametrize("options", [["-X", "no_debug_ranges"], ["-O"], ["-OO"], []])
def test_interpreter_options_change_nothing(tmp_path: Path, options: list[str]) -> None:
    program = tmp_path / "program é.py"
    program.write_text(
        "from types import SimpleNamespace as R\nfrom kirsch_query import where\n"
        "a, b = where(lambda x: x.é < 3), where(lambda x: x.é > 3)\nprint(a(R(é=1)), b(R(é=1)))\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, *options, str(program)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_the_interactive_interpreter(tmp_path: Path) -> None:
    typed = "from kirsch_query import where\nw = where(lambda b: b['p'] < 3)\nprint(w({'p': 1}), w({'p': 5}))\n"
    done = subprocess.run([sys.executable, "-i", "-q"], input=typed, capture_output=True, text=True, check=False)
    if sys.version_info < (3, 13):
        # Only from 3.13 on do interpreters keep what was typed.
        assert "Give the same text as a string" in done.stderr
    elif done.stdout.strip():
        assert done.stdout.strip() == "True False"
    else:
        assert "Give the same text as a string" in done.stderr  # a pipe is no terminal, and is not kept


def test_sqlalchemy_is_imported_only_where_sql_is_asked_for() -> None:
    program = "import sys, kirsch_query; kirsch_query.where('b.x < 3'); assert 'sqlalchemy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_number_of_known_functions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from kirsch_query import source

    monkeypatch.setattr(source, "MOST_KNOWN", 50)
    monkeypatch.setattr(source, "_known", {})
    for number in range(200):
        text = f"lambda x: x.j < {number}\n"
        linecache.cache["made.py"] = (len(text), None, [text], "made.py")
        assert where(eval(compile(text, "made.py", "eval")))({"j": number - 1})
    assert len(source._known) == 50
