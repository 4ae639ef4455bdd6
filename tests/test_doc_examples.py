"""The examples on pages that have no test of their own: Python compiles, and the command takes each line for it.

tests/test_tutorials.py, test_deploy_docs.py, test_configuration.py, test_metrics.py and others run the rest.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kirsch import commands
from kirsch.config.sources import read

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))),
    *("README.md", "BENCHMARKING.md", "packages/kirsch/README.md", "packages/kirsch-bench/README.md"),
]


def blocks(page: str, *languages: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", text, re.M | re.S)
    return [re.sub(rf"^{indent}", "", code, flags=re.M) for indent, language, code in found if language in languages]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_each_python_example_compiles(page: str) -> None:
    for code in blocks(page, "python"):
        # Examples of a shop may await outside of a function, or return.
        source = code if not re.search(r"^(?:await|return|async (?:with|for)) ", code, re.M) else indented(code)
        compile(source, f"<{page}>", "exec")


def indented(code: str) -> str:
    return "async def example():\n" + "\n".join(f"    {line}" for line in code.splitlines())


def kirsch_lines(page: str) -> list[list[str]]:
    """Return the arguments of each call of kirsch in a page's blocks for a shell."""
    found = []
    for language, prompt in (("sh", ""), ("console", r"\$ ")):
        for code in blocks(page, language):
            for line in code.replace("\\\n", " ").splitlines():
                if match := re.match(rf"{prompt}(?:[A-Z_]+=\S+ )*kirsch +(.*)", line):
                    words = shlex.split(re.split(r" [|&](?: |$)", match[1])[0], comments=True)
                    found.append([word for word in words if word != "..."])
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if kirsch_lines(page)])
def test_each_command_is_one_that_kirsch_takes(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in kirsch_lines(page):
        if words[:1] == ["check"]:
            words = words[1:]
        elif words[0] in commands.names():
            continue
        words = [word for word in words if word not in ("--help", "--help-all", "--check-config")]
        if words:
            read(words, {})
