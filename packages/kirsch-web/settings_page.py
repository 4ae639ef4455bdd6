"""Write docs/settings.md from the declarations: the keys of the configuration, and the tools with their options.

    python settings_page.py [--check]

``--check`` writes nothing; it ends with status 1 where the page is not what the declarations say.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from written_page import write

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "src"))

from kirsch_web import configuration  # noqa: E402
from kirsch_web.builtin import MODULES, BuiltinTools  # noqa: E402
from kirsch_web.hooks import POINTS  # noqa: E402

PAGE = HERE / "docs" / "settings.md"

HEAD = """\
# Settings

Every key that an application's configuration takes. `settings_page.py` writes the page from the declarations; a test
compares them. A key is set for all paths, or for a path and all below it:

```python
app = web.App(Root(), {"body.limit": "2MiB", "/admin": {"hosts": ["admin.example"], "tools.expires.on": True}})
```

or in a TOML file, `web.App(Root(), "shop.toml")`:

```toml
body.limit = "2MiB"

["/admin"]
hosts = ["admin.example"]
tools.expires.on = true
```

or at a handler or a class, `@web.config({"body.limit": "2MiB"})` and `@web.post(body__limit="2MiB")`. A deeper path
counts more than the one above it, and a section more than a decorator at the same path. A key, an option or a value
that is wrong stops the application when it is mounted. `kirsch explain shop:app 'GET /admin'` shows what holds for a
path, and where it comes from. Sizes are numbers of bytes, or texts such as `"2MiB"` and `"500kB"`.
"""


def about(tool: Any) -> tuple[str, dict[str, str]]:
    """The summary of a tool, and the text of each option, from its docstring."""
    text = inspect.getdoc(tool.callback or type(tool)) or ""
    for role in (":func:", ":class:", ":meth:", ":mod:", ":data:"):
        text = text.replace(role, "")
    summary, _, options = text.replace("``", "`").partition("Options:\n")
    found = {
        name: " ".join(words.split())
        for name, words in re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", options, re.MULTILINE | re.DOTALL)
    }
    return summary.strip(), found


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Keys\n\n| key | default | |\n|---|---|---|"]
    parts += [f"| `{name}` | {each.default} | {each.about} |" for name, each in configuration.KEYS.items()]
    parts += ["\n## Keys with a part of your choice\n\n| key | value | |\n|---|---|---|"]
    parts += [f"| `{name}` | {value} | {words} |" for name, (value, words) in configuration.FAMILIES.items()]
    parts += ["\nThe points are " + ", ".join(f"`{each}`" for each in POINTS) + ".\n"]
    parts += [("`App(namespaces=[\"shop\"])` adds keys of your own, such as `shop.currency`; handlers read them in "
              "`request.config`.\n")]  # fmt: skip
    parts += [
        "## Tools\n\nEach is switched on by `tools.NAME.on`, or given to `App(tools=[...])` if it has a function."
    ]
    tools = BuiltinTools()
    for name in MODULES:
        tool = tools[name]
        summary, described = about(tool)
        parts.append(f"\n### {name}\n\n{summary}")
        options = tool.option_types()
        if missing := set(options) ^ set(described):
            raise SystemExit(f"the docstring of the tool {name} and its options differ: {', '.join(sorted(missing))}")
        if options:
            parts.append("\n| option | |\n|---|---|")
            parts += [f"| `tools.{name}.{option}` | {described[option]} |" for option in options]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(write(PAGE, page(), "declarations"))
