"""The tutorial's steps and the README's example, run as a reader would type them; and the examples."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import kirsch_web as web
from kirsch_web import configuration
from kirsch_web.builtin import MODULES, BuiltinTools
from kirsch_web.forms import Limits
from kirsch_web.testing import Client

PACKAGE = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("page", "least"), [("docs/tutorial.md", 14), ("docs/cookbook.md", 18), ("README.md", 0)])
def test_the_blocks_of_a_page_give_what_it_says(page: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("page_of_" + re.sub(r"\W", "_", page))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = module.__dict__
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    ran = 0
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", (PACKAGE / page).read_text("utf-8"), re.DOTALL)):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, f"{page} {number}", page, 0)
            test.globs = names
            runner.run(test, clear_globs=False)
            ran += len(test.examples)
        else:
            exec(compile(block, f"<{page} {number}>", "exec", dont_inherit=True), names)
    assert runner.summarize().failed == 0
    assert ran >= least
    if "database" in names:
        names["database"].close()


def test_the_readme_example_answers_as_its_comments_say(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("readme_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    block = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text("utf-8"), re.DOTALL)[0]
    exec(compile(block, "<README.md>", "exec", dont_inherit=True), module.__dict__)
    client = Client(module.__dict__["app"])
    assert client.get("/books?page=2").json() == {"page": 2}
    assert client.get("/books/show/7").json() == {"id": 7}
    assert client.get("/books/show/x").status == 404
    assert client.post("/books/add", form={"title": "Emma", "price": "9.9"}).status == 201
    assert client.post("/books/add", json={"title": "Emma", "price": 9.9}).status == 201
    assert client.post("/books/add", json={"title": "Emma"}).status == 422


@pytest.mark.parametrize("script", ["api_page.py", "settings_page.py"])
def test_a_reference_is_what_the_source_says(script: str) -> None:
    done = subprocess.run([sys.executable, script, "--check"], cwd=PACKAGE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_page_of_settings_has_every_setting() -> None:
    text = (PACKAGE / "docs" / "settings.md").read_text("utf-8")
    keys = [*configuration.KEYS, *configuration.FAMILIES]
    tools = BuiltinTools()
    keys += [f"tools.{name}.{option}" for name in MODULES for option in tools[name].option_types()]
    assert len(keys) > 40
    assert [key for key in keys if f"`{key}`" not in text] == []
    for name, default in Limits()._asdict().items():
        assert configuration.size(configuration.KEYS[f"body.{name}"].default.replace(" ", "")) == default, name


def test_the_reference_has_every_exported_name() -> None:
    headings = set(re.findall(r"^## (\w+)$", (PACKAGE / "docs" / "api.md").read_text("utf-8"), re.MULTILINE))
    assert set(web.__all__) <= headings


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/tutorial.md", "docs/cookbook.md", "docs/left-out.md", "docs/settings.md", "docs/log-in.md"],
)
def test_links_of_a_page_lead_to_files(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", (PACKAGE / page).read_text("utf-8")):
        assert ((PACKAGE / page).parent / link).exists(), link
