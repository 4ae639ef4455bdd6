"""Parsing of shell commands: words, wrappers before the server's program, and server commands in scripts."""

from __future__ import annotations

import os
import re
import shlex

from kirsch.config.compat import rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SEPARATORS = {"&&", "||", ";", "|", "&", "(", ")", ";;"}

# Programs that start another program.
_SHELLS = {"sh", "bash", "dash", "ash", "zsh"}
# These take one argument, a user or a duration, before it.
_TAKES_ONE = {"gosu", "su-exec", "timeout"}

_ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.S)

PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*")


class ServerCommand:
    """The command of a server: its program and words, and the directory in which it runs."""

    def __init__(self, program: str, words: list[str], directory: str = "", before: list[str] | None = None) -> None:
        self.program = program
        self.words = words
        self.directory = directory
        # The words before the program: variables, and programs that start another one.
        self.before = [word for word in before or [] if word != "exec"]


def split(text: str) -> list[list[str]]:
    """Split a shell command line into commands, and these into words. Variables are not expanded.

    Raises ValueError for an unclosed quotation mark.
    """
    # A command substitution is part of one word, whatever it contains.
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        hidden.append(match[0])
        return f"\0{len(hidden) - 1}\0"

    text = re.sub(r"\$\(\([^)]*\)\)|\$\([^)]*\)|\$\{[^}]*\}|`[^`]*`", hide, text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();|&<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if word in _SEPARATORS:
            commands.append([])
        elif set(word) <= set("<>&") and word:
            skip = True  # skip a redirection and its file
            if commands[-1] and commands[-1][-1] in ("1", "2"):
                commands[-1].pop()
        elif skip:
            skip = False
        elif word.startswith("#"):
            break
        else:
            commands[-1].append(re.sub("\0(\\d+)\0", lambda match: hidden[int(match[1])], word))
    return [command for command in commands if command]


def find(text: str) -> ServerCommand | None:
    """Return the server command in a shell command line; None if there is none."""
    return find_in(split(text))


def find_in(commands: Sequence[Sequence[str]]) -> ServerCommand | None:
    """Return the server command in a sequence of commands; None if there is none."""
    directory = ""
    for words in commands:
        if words[0] == "cd" and len(words) == 2:
            directory = os.path.join(directory, words[1])
            continue
        found = _server(list(words))
        if found is not None:
            found.directory = os.path.join(directory, found.directory)
            return found
    return None


def _server(words: list[str]) -> ServerCommand | None:
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        rest = words[at + 1 :]
        if name in _SHELLS:
            option = next((index for index, each in enumerate(rest) if re.fullmatch(r"-\w*c", each)), None)
            return find(rest[option + 1]) if option is not None and option + 1 < len(rest) else None
        if name in rules.programs():
            return ServerCommand(name, rest, before=_wrappers(words[:at]))
        if name == "fastapi" and rest[:1] in (["run"], ["dev"]):
            return ServerCommand("fastapi", rest)
        if name == "flask" and "run" in rest:
            return ServerCommand("flask", rest)
        if name == "manage.py" and rest[:1] == ["runserver"]:
            return ServerCommand("runserver", rest[1:], os.path.dirname(word))
        if PYTHON.fullmatch(word):
            scripts = [each for each in rest if not each.startswith("-")]
            if scripts and scripts[0].endswith(".py") and not scripts[0].endswith("manage.py") and "-m" not in rest:
                return ServerCommand("python", scripts)
    return None


def _wrappers(words: list[str]) -> list[str]:
    """Return the words before the program without ``python -m``, which kirsch does not need."""
    if words[-1:] == ["-m"]:
        while words and not PYTHON.fullmatch(words[-1]):
            words = words[:-1]
        words = words[:-1]
    return words


def scripts_in(commands: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the names of shell scripts that the commands run."""
    for words in commands:
        for word in words:
            if word.endswith(".sh") or (word.endswith("entrypoint") and "/" in word):
                yield word


def script_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for each line of a script, with continued lines joined, without comments."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first, line = number + 1, lines[number]
        while line.endswith("\\") and number + 1 < len(lines):
            number += 1
            following = lines[number].strip()
            line = line[:-1] if following.startswith("#") else f"{line[:-1]} {following}"
            if following.startswith("#"):
                line += "\\"
        number += 1
        if line.strip() and not line.lstrip().startswith("#"):
            yield first, line.rstrip("\\")


def assignment(line: str) -> tuple[str, str] | None:
    """Return the name and value of an assignment in a script; None for another line."""
    match = re.fullmatch(r"\s*(?:export\s+)?(\w+)=(\"[^\"]*\"|'[^']*'|\S*)\s*", line)
    return (match[1], match[2].strip("\"'")) if match else None


def substitute(words: list[str], assigned: dict[str, str]) -> list[str]:
    """Replace variables by the values that a script has assigned to them from the environment."""

    def value(match: re.Match[str]) -> str:
        text = assigned.get(match[1] or match[2], "")
        return text if re.fullmatch(r"[\w./:-]+|\$\{?\w+(?::?-[^}]*)?\}?", text) else match[0]

    return [re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, word) for word in words]


def environment_of(words: Sequence[str]) -> dict[str, str]:
    """Return the variables that are set before a command."""
    found = {}
    for word in words:
        match = _ASSIGNMENT.fullmatch(word)
        if match is None and word.rpartition("/")[2] not in ("env", "exec"):
            break
        if match is not None:
            found[match[1]] = match[2]
    return found
