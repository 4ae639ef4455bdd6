"""The documentation site is complete: each page is in its navigation, and each link leads to a page of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from docs_site import benchmarks, examples, migration, sources
from kirsch.config import compat, driver_names
from kirsch.config.compat import command_lines


def test_each_page_is_in_the_navigation_and_nothing_else_is() -> None:
    navigation = (sources.ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w./-]+\.md)$", navigation, re.M)
    assert sorted(listed) == sorted({*sources.places().values(), *sources.GENERATED})


def test_a_link_leads_to_the_place_of_the_page_on_the_site() -> None:
    page = sources.DOCS / "deploy" / "nginx.md"
    text = sources.relink(
        "[a](../../README.md#install) [b](systemd.md) [c](../../packages/kirsch-web/docs/tutorial.md) [d](#here) "
        "[e](../../examples/chat.py) [f `x`](../../crates/wire) [g](https://example.org/README.md) [h](../survey)\n"
        "```\n[i](../../README.md)\n```\n",
        page,
    )
    assert text == (
        "[a](../index.md#install) [b](systemd.md) [c](../web/tutorial.md) [d](#here) "
        '[e](../examples.md#chat) <span title="crates/wire in the repository">f `x`</span> '
        "[g](https://example.org/README.md) [h](../survey/README.md)\n"
        "```\n[i](../../README.md)\n```\n"
    )


def test_lists_of_github_are_lists_of_python_markdown() -> None:
    text = "Text:\n* one\n  more\n  * inner\n* two\n\n```\na\n* b\n  * c\n```\n"
    assert sources.for_python_markdown(text) == (
        "Text:\n\n* one\n  more\n    * inner\n* two\n\n```\na\n* b\n  * c\n```\n"
    )


def test_each_example_is_on_the_page_of_examples_with_its_code() -> None:
    page = examples.page()
    for path in Path(sources.ROOT, "examples").glob("*.py"):
        assert f"## {path.stem}\n" in page
        assert f'```python title="{path.name}"\n' in page


@pytest.mark.parametrize("server", compat.SERVERS)
def test_the_form_knows_each_option_of_a_server_by_the_tables_of_the_hints(server: str) -> None:
    rules = cast("dict[str, Any]", migration.rules())
    options = {each["name"]: each for each in rules["servers"][server]["options"]}
    assert list(options) == [spelling for spelling, _ in compat.patterns(server)]
    for name, text in compat.patterns(server):
        kind = options[name]["kind"]
        assert text.startswith(("-", "=")) or kind not in ("set", "bind", "fixed", "mode"), name
        assert kind not in ("set", "fixed") or options[name]["flag"] in rules["flags"], name
    switches = command_lines.SWITCHES[server].split()
    assert [name for name in switches if not compat.equivalent(server, name)] == []


def test_the_form_knows_the_names_that_other_servers_have_for_drivers() -> None:
    known = command_lines.VALUES["-k"]
    for name in driver_names._INSTEAD:
        assert name in known
        for flag in known[name].split()[::2]:
            assert flag in ("--threads", "--driver", "--loop")


def test_the_plots_have_each_figure_of_the_reports_with_its_interval() -> None:
    page = benchmarks.page()
    for name, _, _, _ in benchmarks.CHOSEN:
        survey = benchmarks.read(name)
        report = (sources.DOCS / "survey" / name / "survey.txt").read_text(encoding="utf-8")
        assert survey.measured in report
        for title, costs in survey.scenarios.items():
            rows = report.partition(f"\n\n{title}\n")[2].partition("\n\n")[0].splitlines()[1:]
            assert len(costs) == len([row for row in rows if re.search(r"\d (?:us|ms|s) +[\d.]+ % ", row)]) > 4, title
    (cost,) = [each for each in benchmarks.read("picows").scenarios["ab -c 100"] if each.server == "kirsch-1"]
    assert (cost.micros, round(cost.low, 1), round(cost.high, 1)) == (27.0, 18.6, 35.4)
    assert page.count("<svg") == 8
    assert page.count(' class="whisker"') > 100


def test_the_page_of_the_api_has_every_public_name() -> None:
    import kirsch
    import kirsch.websocket

    page = (sources.DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    for module in (kirsch, kirsch.websocket):
        for name in module.__all__:
            assert re.search(rf"^::: kirsch\.[\w.]*\b{name}$|`{module.__name__}\.{name}`", page, re.M), name


def test_roles_and_literal_blocks_of_docstrings_become_markdown() -> None:
    source = (sources.ROOT / "scripts" / "docs_site" / "docstrings.py").read_text(encoding="utf-8")
    functions: dict[str, Any] = {}
    exec(source[source.index("def markdown") :], {"re": re}, functions)
    text = "Like :meth:`Server.listen` or :class:`~kirsch.Server`, as in::\n\n    a::b"
    assert functions["markdown"](text) == "Like `Server.listen` or `kirsch.Server`, as in:\n\n    a::b"
