"""Conversion of the command line of another server to settings of Kirsch. The form of the documentation site does the
same in a browser (docs/site/convert.js), by the same rules; tests/converted_commands.py tests both with the same cases.
"""

from __future__ import annotations

import re
import shlex

from kirsch.config.compat import SERVERS, rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kirsch.config.compat.rules import Rule

LEFT_OUT, BY_HAND, LOOK = "left out", "by hand", "look"
"""Results of an option that becomes no setting: none is needed; a person has to decide; a person should read it."""


class ConversionError(Exception):
    """Raised for a command that starts no known server, or cannot be split into words. The text is a sentence."""


class Note:
    """The result of converting one option: words for Kirsch, or LEFT_OUT, BY_HAND or LOOK; and a sentence about it."""

    __slots__ = ("option", "result", "say")

    def __init__(self, option: str, result: str, say: str) -> None:
        self.option = option
        self.result = result
        self.say = say

    @property
    def needs_reader(self) -> bool:
        """True if the note requires an action or attention of a person."""
        return self.result in (BY_HAND, LOOK)


class Converted:
    """One flag of Kirsch with its value (None for a switch), and the option from which it was converted."""

    __slots__ = ("flag", "origin", "value")

    def __init__(self, flag: str, value: str | None, origin: str) -> None:
        self.flag = flag
        self.value = value
        self.origin = origin


class Conversion:
    """Collects the options of a server and the results of their conversion: ``settings``, ``application`` and
    ``notes``."""

    def __init__(self, server: str) -> None:
        self.server = rules.of(server)
        self.settings: list[Converted] = []
        self.notes: list[Note] = []
        self.given: set[str] = set()
        self.application: str | None = None
        self._object: str | None = None
        self._host: str | None = None
        self._port: str | None = None
        self._address_origin = ""
        self._mode: str | None = None
        self._unix: Converted | None = None
        self._listens = False
        self._origin = ""

    def option(self, name: str, value: str | None, origin: str = "") -> None:
        """Convert the option ``name``; ``value`` is None for a switch. ``origin`` is its place in the source."""
        self.given.add(name)
        rule = self.server.find(name)
        if rule is None:
            shown = name if value is None else f"{name} {shlex.quote(value)}"
            self.notes.append(Note(shown, LEFT_OUT, "no option of that server is called so"))
            return
        self.apply(rule, name, value, origin)

    def apply(self, rule: Rule, name: str, value: str | None, origin: str = "") -> None:
        """Convert an option by its ``rule``."""
        shown = name if value is None else f"{name} {shlex.quote(value)}"
        self._origin = origin or shown
        before = len(self.settings)
        take: Callable[[Rule, str | None], str] = getattr(self, f"_take_{rule.kind}")
        result = take(rule, value)
        words = " ".join(
            f"{each.flag} {shlex.quote(each.value)}" if each.value is not None else each.flag
            for each in self.settings[before:]
        )
        if result in (LEFT_OUT, BY_HAND):
            self.notes.append(Note(shown, result, rule.say))
        elif result == rules.ASYNCIO:
            say = rule.say if rule.flag == "--http" else result
            self.notes.append(Note(shown, words or LEFT_OUT, "" if words else say))
        else:
            self.notes.append(Note(shown, words or result, rule.say))

    def words(self, words: Sequence[str]) -> None:
        """Convert the words of a command line after the program's name. Raises ConversionError."""
        rest = list(words)
        if self.server.subcommand and rest[:1] == [self.server.subcommand]:
            del rest[0]
        while rest:
            word = rest.pop(0)
            if word == "--":
                continue
            if not word.startswith("-") or word == "-":
                if self.application is None:
                    self.application = self._file(word) if self.server.takes_files else word
                continue
            name, value = _split_option(word)
            rule = self.server.find(name)
            # Assume that an unknown option takes the next word, unless that is the last one, which probably is the
            # application.
            takes = rule.takes if rule is not None else len(rest) > 1 and not rest[0].startswith("-")
            if value is None and takes:
                if not rest:
                    raise ConversionError(f"{name} has no value.")
                value = rest.pop(0)
            self.option(name, value)

    def finish(self) -> None:
        """Combine the parts of an address, and complete the application and the notes. Called once, at the end."""
        host, port = self.server.address
        if self._host or self._port or (self.server.listens_elsewhere and not self._listens):
            name = self._host or host
            text = f"{f'[{name}]' if ':' in name else name}:{self._port or port}"
            origin = self._address_origin or f"{self.server.name} listens there unasked"
            self.settings.insert(0, Converted("--bind", text, origin))
        if self._mode is not None and self._unix is not None:
            self._unix.value = f"{self._unix.value}?mode={self._mode}"
        remark = self.server.remark
        if remark is not None and not self.given.intersection(remark["unless"]):
            self.notes.append(Note("", LOOK, remark["say"]))
        if self._object and self.application and ":" not in self.application:
            self.application += f":{self._object}"

    def _add(self, flag: str, value: str | None) -> Converted:
        made = Converted(flag, value, self._origin)
        self.settings.append(made)
        return made

    def _take_omit(self, _rule: Rule, _value: str | None) -> str:
        return LEFT_OUT

    def _take_hand(self, _rule: Rule, _value: str | None) -> str:
        return BY_HAND

    def _take_set(self, rule: Rule, value: str | None) -> str:
        if value and value.lower() in rule.values:
            words = rule.values[value.lower()].split()
            for flag, word in zip(words[::2], words[1::2], strict=True):
                self._add(flag, word)
            return rules.ASYNCIO
        if not rules.flags()[rule.flag]:
            self._add(rule.flag, None)
        elif not value:
            return BY_HAND
        else:
            self._add(rule.flag, f"{value}{rule.unit if value.isascii() and value.isdigit() else ''}")
        return ""

    def _take_fixed(self, rule: Rule, _value: str | None) -> str:
        self._add(rule.flag, rule.value)
        return ""

    def _take_bind(self, rule: Rule, value: str | None) -> str:
        text = value or ""
        path = re.match(r"(.*?)(unix:)?PATH", rule.value)
        if rule.value == "fd://N":
            text = f"fd://{text}"
        elif path and (re.search(r"/|^@", text) or not re.search(r":|^\d+$", text)):
            text = f"{path[1]}unix:{text.removeprefix('unix:')}"
        else:
            text = f"{path[1] if path else ''}{re.sub(r'^[*]?:', '0.0.0.0:', text)}"
        if text.isascii() and text.isdigit():
            text = f"0.0.0.0:{text}"
        self._listens = True
        made = self._add("--bind", text)
        if "unix:" in text:
            self._unix = made
        return ""

    def _take_mode(self, _rule: Rule, value: str | None) -> str:
        self._mode = value if value is not None else "666"
        return "?mode= of --bind"

    def _take_host(self, _rule: Rule, value: str | None) -> str:
        self._host = value
        return self._note_address()

    def _take_port(self, _rule: Rule, value: str | None) -> str:
        self._port = value
        return self._note_address()

    def _note_address(self) -> str:
        self._address_origin = f"{self._address_origin}, {self._origin}".lstrip(", ")
        return "--bind"

    def _take_name(self, _rule: Rule, value: str | None) -> str:
        self.application = value
        return value or BY_HAND

    def _take_object(self, _rule: Rule, value: str | None) -> str:
        self._object = value
        return f":{value}"

    def _file(self, word: str) -> str:
        """Return the name of a script in the form of Kirsch."""
        path = word if "/" in word else f"./{word}"
        if path.endswith(".py"):
            return path
        renamed = re.sub(r"(\.\w+)?$", ".py", path, count=1)
        say = f"Kirsch serves files whose names end in .py: rename it to {renamed}, or write module:object."
        self.notes.append(Note(word, LOOK, say))
        return renamed


def convert(words: Sequence[str]) -> Conversion:
    """Convert the words of a command, which may begin with variables and other programs. Raises ConversionError."""
    programs = rules.programs()
    for at, word in enumerate(words):
        server = programs.get(word.rpartition("/")[2])
        if server is not None:
            conversion = Conversion(server)
            conversion.words(words[at + 1 :])
            conversion.finish()
            return conversion
    raise ConversionError(f"The command names none of {', '.join(SERVERS)}.")


def _split_option(word: str) -> tuple[str, str | None]:
    """Split ``--name=VALUE`` or ``-nVALUE`` into name and value; the value is None if there is none."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    return word[:2], word[2:].removeprefix("=") or None
