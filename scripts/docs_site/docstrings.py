"""An extension of Griffe: docstrings as Markdown. They have the roles and literal blocks of reStructuredText."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension  # type: ignore[import-not-found,unused-ignore]  # in the environment of `make docs-site`


class MarkdownDocstrings(Extension):  # type: ignore[misc,unused-ignore]
    """Turns each docstring into Markdown once it is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """Return a docstring without roles, and with one colon before a block of code."""
    text = re.sub(r":(?:class|meth|func|attr|mod|data|exc):`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"::$", ":", text, flags=re.M)
