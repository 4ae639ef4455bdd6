"""The examples of docs/queries.md, run as a reader would type them."""

from __future__ import annotations

import doctest
import linecache
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "queries.md"


def test_the_examples_of_the_page_give_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("page_of_queries")  # SQLAlchemy looks up the names of annotations in it
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names: dict[str, Any] = module.__dict__
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    ran = 0
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)):
        plain, _, typed = block.partition(">>>")
        filename = f"<queries.md {number}>"
        linecache.cache[filename] = (len(plain), None, plain.splitlines(keepends=True), filename)
        exec(compile(plain, filename, "exec", dont_inherit=True), names)
        if typed:
            test = doctest.DocTestParser().get_doctest(">>>" + typed, names, filename, filename, 0)
            test.globs = names  # not a copy: the queries of earlier blocks read them
            runner.run(test, clear_globs=False)
            ran += len(test.examples)
    assert runner.summarize().failed == 0
    assert ran > 10
    names["session"].close()
    names["engine"].dispose()
