"""The page that shows the files of the folder examples."""

from __future__ import annotations

import ast

from docs_site.sources import ROOT

HEAD = """\
# Examples

Each of these is one file that runs as it is; the commands are to be given in the folder `examples` of a clone. The
tests of the project run them all.
"""


def page() -> str:
    """Return the page: each example with its docstring as prose, and its code."""
    lines = [HEAD]
    for path in sorted((ROOT / "examples").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        code = "\n".join(source.splitlines()[tree.body[0].end_lineno :]).strip()
        prose = (ast.get_docstring(tree) or "").replace("``", "`")
        lines += [f"## {path.stem}", "", prose, "", f'```python title="{path.name}"', code, "```", ""]
    return "\n".join(lines)
