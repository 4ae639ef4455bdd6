"""The rules by which an option of another server becomes a setting of Kirsch, as data.

They are generated from the tables of this package. :mod:`kirsch.config.compat.conversion` applies them, and so does the
form of the documentation site, in JavaScript (scripts/docs_site/migration.py).
"""

from __future__ import annotations

import functools
import re

from kirsch.config import compat
from kirsch.config.compat import command_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASYNCIO = "an ASGI application is always served by asyncio"
"""The reason why a worker class of an ASGI server is left out."""

BESIDE_APPLICATION = "the application is named at the end"


class Rule:
    """One option of another server.

    ``name`` is its spelling; a star in it matches any text. ``takes`` is True if a value follows. ``kind`` is the kind
    of the conversion:

    * ``set``: the flag of Kirsch ``flag``, with the same value
    * ``fixed``: ``flag`` with ``value``
    * ``bind``, ``mode``, ``host``, ``port``: an address of ``--bind``, or a part of one
    * ``name``, ``object``: the application, or the object in its module
    * ``omit``: nothing is needed
    * ``hand``: a person has to decide

    ``unit`` is appended to a bare number, ``values`` maps values to the flags of Kirsch for them, and ``say`` is a note
    for the reader.
    """

    __slots__ = ("flag", "kind", "name", "say", "takes", "unit", "value", "values")

    def __init__(self, name: str, takes: bool, kind: str, say: str = "", *, flag: str = "", value: str = "") -> None:
        self.name = name
        self.takes = takes
        self.kind = kind
        self.say = say
        self.flag = flag
        self.value = value
        self.unit = ""
        self.values: dict[str, str] = {}

    def data(self) -> dict[str, object]:
        """Return the non-empty attributes, for a script."""
        always = ("name", "takes", "kind", "say")
        return {name: getattr(self, name) for name in self.__slots__ if name in always or getattr(self, name)}


class ServerRules:
    """The options of one server, and data about its command line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules = [rule_of(name, *each) for each in compat.patterns(name)]
        self.subcommand = command_lines.SUBCOMMANDS.get(name, "")
        self.address = command_lines.ADDRESS.get(name, ("127.0.0.1", "8000"))
        self.listens_elsewhere = name in command_lines.ADDRESS
        self.switches = command_lines.SWITCHES[name].split()
        self.takes_files = name in command_lines.SUBCOMMANDS
        self.remark: dict[str, Any] | None = command_lines.REMARKS.get(name)
        self._by_name = {rule.name: rule for rule in self.rules}

    def find(self, name: str) -> Rule | None:
        """Return the rule for an option: the rule of its name, or else the matching one with the longest name; None
        if unknown."""
        if name in self._by_name:
            return self._by_name[name]
        best: Rule | None = None
        for rule in self.rules:
            start, star, end = rule.name.partition("*")
            fits = star and name.startswith(start) and name.endswith(end.rstrip("*"))
            if fits and (best is None or len(rule.name) > len(best.name)):
                best = rule
        if best is None:
            return None
        takes = name not in self.switches
        found = Rule(name, takes, best.kind, best.say, flag=best.flag, value=best.value)
        found.unit, found.values = best.unit, best.values
        return found

    def data(self) -> dict[str, object]:
        """Return all attributes, for a script."""
        names = ("subcommand", "address", "listens_elsewhere", "switches", "takes_files", "remark")
        return {"options": [rule.data() for rule in self.rules], **{name: getattr(self, name) for name in names}}


@functools.cache
def of(server: str) -> ServerRules:
    """Return the rules of a server, by its name in SERVERS."""
    return ServerRules(server)


@functools.cache
def flags() -> dict[str, bool]:
    """Return the flags of Kirsch, and whether each takes a value."""
    from kirsch.config.schema import SETTINGS

    found = {flag: bool(each.metavar) for each in SETTINGS for flag in each.flags}
    return found | {flag: False for each in SETTINGS for flag in each.negations}


@functools.cache
def programs() -> dict[str, str]:
    """Return the names of the commands that start servers, and the server of each."""
    return {**{server: server for server in compat.SERVERS}, **command_lines.PROGRAMS}


def rule_of(server: str, spelling: str, text: str) -> Rule:
    """Return the rule for an option, or for a name in a settings file, with the equivalent ``text``."""
    takes = spelling not in command_lines.SWITCHES[server].split()
    rule = _equivalent(spelling, takes, text)
    application = command_lines.APPLICATION.get(server, {}).get(spelling)
    if application:
        rule.kind, rule.say = application, BESIDE_APPLICATION
    if spelling in ("--host", "--port"):
        rule.kind, rule.say = spelling.removeprefix("--"), "one address, HOST:PORT"
    rule.unit = command_lines.UNITS.get(server, {}).get(spelling, "")
    if rule.kind == "set":
        # A name in a settings file takes the same values as the flag.
        rule.values = command_lines.VALUES.get(spelling if spelling.startswith("-") else rule.flag, {})
    return rule


def _equivalent(spelling: str, takes: bool, text: str) -> Rule:
    """Return the rule for an option with the equivalent ``text``."""
    say = text.replace("{systemd}", "write a systemd unit")
    ours = flags()
    if text.startswith("="):
        say = text[1:].lstrip(",;: ")
        if spelling not in ours:
            return Rule(spelling, takes, "omit", say or "Kirsch does so by itself")
        return Rule(spelling, takes, "set" if ours[spelling] == takes else "hand", say, flag=spelling)
    if text.startswith("omit"):
        return Rule(spelling, takes, "omit", say.removeprefix("omit it; "))
    match = re.match(rf"(--[a-z][a-z-]*)(?: ({compat.VALUE}))?(?=$|[;,:])(.*)", text)
    if not match or match[1] not in ours or re.match(r", (?:and|or) (?:--|a table)", match[3]):
        return Rule(spelling, takes, "hand", say)
    flag, value = match[1], match[2] or ""
    kind = _kind(flag, value, takes)
    return Rule(spelling, takes, kind, say if kind == "hand" else match[3].lstrip(",;: "), flag=flag, value=value)


def _kind(flag: str, value: str, takes: bool) -> str:
    """Return the kind of the conversion to ``flag``, for which the tables have ``value``."""
    if flag == "--bind" and value.endswith("?mode=660"):
        return "mode"
    if flag == "--bind" and ("HOST:PORT" in value or "PATH" in value or value == "fd://N"):
        return "hand" if "proxy" in value or not takes else "bind"
    if not flags()[flag]:
        return "set"
    if not value:
        return "set" if takes else "hand"
    placeholder = re.search(r"[A-Z]{2}|module:app|/static", value)
    if not placeholder:
        return "fixed"
    return "set" if takes and re.fullmatch(r"[A-Z]+|NAME=VALUE|PATH=DIRECTORY", value) else "hand"
