"""A parser for ini files of systemd, supervisord and uWSGI."""

from __future__ import annotations

import configparser
import re

from kirsch.adopt.adoption import AdoptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class _Repeated(dict[str, "list[str] | str"]):
    """A dict that keeps all values of a repeated key."""

    def __setitem__(self, key: str, value: Any) -> None:
        before = self.get(key)
        if isinstance(value, list) and isinstance(before, list):
            before.extend(value)
        else:
            super().__setitem__(key, value)


def parse(text: str) -> configparser.RawConfigParser:
    """Return a parser that has read ``text``; the values of a repeated key become lines of one value. Raises
    AdoptError."""
    parser = configparser.RawConfigParser(
        dict_type=_Repeated,  # type: ignore[arg-type]
        strict=False,
        allow_no_value=True,
        delimiters=("=",),
        comment_prefixes=("#", ";"),
        empty_lines_in_values=False,
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    # In units and in uWSGI files a line is continued by a backslash, never by indentation.
    joined = "\n".join(line.strip() for line in re.sub(r"\\\n\s*", " ", text).splitlines())
    try:
        parser.read_string(joined)
    except configparser.Error as error:
        raise AdoptError(f"it cannot be read: {' '.join(str(error).split())}") from None
    return parser


def pairs(parser: configparser.RawConfigParser, section: str) -> Iterator[tuple[str, str]]:
    """Yield each (key, value) of a section, in the order of the file."""
    for key, value in parser.items(section):
        for each in str(value or "").split("\n"):
            yield key, each
