"""The parser of the command line: it separates settings, the application, and mistakes. argparse is not used: it stops
at the first mistake, and takes 7 ms of every start to import.
"""

from __future__ import annotations

from kirsch.config.schema import SETTINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch.config.setting import Setting

HELP, HELP_ALL, VERSION = "help", "help-all", "version"

REQUESTS = {"-h": HELP, "--help": HELP, "--help-all": HELP_ALL, "-v": VERSION, "--version": VERSION}
"""Flags that ask for something in place of serving, and need nothing of the rest."""

HOST, PORT = "--host", "--port"
"""The two flags by which uvicorn, granian and hypercorn name the address. Together they are one ``--bind``."""

_SETTINGS: dict[str, Setting] = {flag: each for each in SETTINGS for flag in (*each.flags, *each.negations)}


class Arguments:
    """A parsed command line.

    ``given`` maps names of settings to (text, flag). ``unknown`` are the (flag, value) pairs of unknown flags; the
    value may be the next word, which is then also one of the ``words`` that may name the application.
    """

    def __init__(self, argv: Sequence[str], also: Sequence[str] = ()) -> None:
        """``also`` are flags of a subcommand that are not in ``argv``; they are suggested for misspelled flags."""
        self.given: dict[str, tuple[str, str]] = {}
        self.request = ""
        self.words: list[tuple[int, str]] = []
        self.unknown: list[tuple[str, str]] = []
        self.mistakes: list[str] = []
        self._doubtful: set[int] = set()
        self._address: dict[str, str] = {}
        self.argv = list(argv)
        self.also = also
        self._scan()
        if self._address:
            self._bind_to_address()

    @property
    def targets(self) -> list[str]:
        """The words that name an application. A word that may be the value of an unknown flag counts only if there
        is no other."""
        return self.certain_targets or [word for _, word in self.words][-1:]

    @property
    def certain_targets(self) -> list[str]:
        """The words that cannot be the value of an unknown flag."""
        return [word for index, word in self.words if index not in self._doubtful]

    def _scan(self) -> None:
        index = 0
        while index < len(self.argv):
            word = self.argv[index]
            if word == "--":
                self.words += enumerate(self.argv[index + 1 :], index + 1)
                return
            if not word.startswith("-") or word == "-":
                self.words.append((index, word))
                index += 1
            else:
                index += self._flag(index, word)

    def _flag(self, index: int, word: str) -> int:
        """Parse the flag at ``index``; return the number of words that it takes, including its value."""
        flag, equals, text = word.partition("=")
        value: str | None = text if equals else None
        if flag not in _SETTINGS and not flag.startswith("--") and word[:2] in _SETTINGS:
            flag, value = word[:2], word[2:]  # -w4
        if flag in REQUESTS:
            if value is not None:
                self.mistakes.append(f"{flag}: it takes no value, and {value!r} was given; write {flag} alone")
            else:
                self.request = self.request or REQUESTS[flag]
            return 1
        each = _SETTINGS.get(flag)
        follower = self.argv[index + 1] if index + 1 < len(self.argv) else None
        if flag in (HOST, PORT):
            if value is None and (follower is None or _is_flag(follower)):
                self.mistakes.append(
                    f"{flag}: a value is missing; write {flag}={'127.0.0.1' if flag == HOST else 8000}"
                )
                return 1
            self._address[flag] = follower or "" if value is None else value
            return 1 if value is not None else 2
        if each is None:
            if value is None and follower is not None and not _is_flag(follower):
                self._doubtful.add(index + 1)
                value = follower
            self.unknown.append((flag, value or ""))
            return 1
        if each.is_switch:
            if value is not None:
                self.mistakes.append(f"{flag}: it takes no value, and {value!r} was given; write {flag} alone")
            self.given[each.name] = ("no" if flag in each.negations else "yes", flag)
            return 1
        if value is not None:
            self._take(each, value, flag)
            return 1
        if follower is None or _is_flag(follower):
            example = f"{flag}={each.metavar}" if flag.startswith("--") else f"{flag} {each.metavar}"
            self.mistakes.append(f"{flag}: a value is missing; write {example}")
            return 1
        self._take(each, follower, flag)
        return 2

    def _bind_to_address(self) -> None:
        """Combine ``--host`` and ``--port`` into one ``--bind``, with the defaults of other servers."""
        flags = " and ".join(sorted(self._address))
        host, port = self._address.get(HOST, "127.0.0.1"), self._address.get(PORT, "8000")
        if "bind" in self.given:
            self.mistakes.append(f"{flags}: {self.given['bind'][1]} names the address too; give one of them")
        else:
            self.given["bind"] = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}", flags)

    def _take(self, each: Setting, text: str, flag: str) -> None:
        before = self.given.get(each.name)
        if before is not None and each.is_repeatable:
            text = before[0] + each.kind.separator + text
        self.given[each.name] = (text, flag)


def _is_flag(word: str) -> bool:
    """Return whether a word is a flag, not the value of the flag before it: ``-`` and ``-1`` are values."""
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit()
