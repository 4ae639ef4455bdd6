"""Options of other servers and their equivalents, for hints about the command line, settings files and the environment,
and for the tables of docs/migrating.md. Imported only to explain a mistake. Each module in SERVERS describes one
server. Its ``OPTIONS`` map spellings, separated by spaces, to an equivalent: ``--flag VALUE; a note`` is an option of
Kirsch, ``=`` (with an optional note) means the same flag, and other text is an instruction. A star in a spelling
matches any text. If several spellings match, the one with the most letters is used.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SERVERS = {
    "gunicorn": "gunicorn",
    "uWSGI": "uwsgi",
    "mod_wsgi-express": "mod_wsgi",
    "waitress": "waitress",
    "uvicorn": "uvicorn",
    "hypercorn": "hypercorn",
    "granian": "granian",
}
"""The names of the servers, and of the modules here with their options."""

VALUE = (
    r"(?:[A-Z][A-Z:=]+(?:module:app|\?proxy)?|(?:\w+:)?unix:[\w?=/]+|fastcgi:ADDRESS|fd://N|/path=module:app"
    r"|/static=DIRECTORY|(?:\[::\]|[\d.]+):PORT|\d+(?:ms)?|(?:gevent|uvloop|debug|off|on(?! or))\b|-(?![\w-]))"
)
"""A pattern of what stands behind a flag of Kirsch in an equivalent, as its value."""

_OUR_FLAG = re.compile(rf"(?<![\w=-])--[a-z][a-z0-9-]*(?: {VALUE})?")


def hint(flag: str, value: str = "", argv: Sequence[str] = (), *, stars: bool = False) -> str:
    """Return advice on what to write instead of ``flag`` and its ``value``; empty if no other server has that option.
    With ``stars``, spellings with a star match too, even options that no server has. ``argv`` is the whole command
    line, which the hint for systemd repeats.
    """
    found: dict[str, list[str]] = {}
    for server in SERVERS:
        text = equivalent(server, flag, stars=stars)
        if text and not text.startswith("="):
            found.setdefault(text, []).append(server)
    if flag == "--listen" and value.isdigit() and len(found) > 1:
        found = {text: servers for text, servers in found.items() if "uWSGI" in servers}
    elif flag == "--listen" and value:
        found = {text: servers for text, servers in found.items() if "waitress" in servers}
    if not found:
        return ""
    text = _chosen(found)
    return text.replace("{systemd}", _systemd_line(argv)) if "{systemd}" in text else text


def _chosen(found: dict[str, list[str]]) -> str:
    # Equivalents with the same flags count as equal, even if their notes differ.
    if len({_flags(text) or text for text in found}) == 1:
        return imperative(next(iter(found)))
    return "; ".join(f"{_owners(servers)}: {imperative(text)}" for text, servers in list(found.items())[:2])


def _owners(servers: list[str]) -> str:
    return f"as in {servers[0]}" if len(servers) == 1 else f"as in {servers[0]} and {servers[1]}"


def _flags(text: str) -> str:
    return " ".join(sorted(match.partition(" ")[0] for match in _OUR_FLAG.findall(text)))


def equivalent(server: str, flag: str, *, stars: bool = True) -> str:
    """Return the equivalent of the option ``flag`` of ``server``; empty if the server has no such option."""
    best, best_length = "", -1
    for pattern, text in patterns(server):
        if pattern == flag:
            return text
        if not stars:
            continue
        if pattern.endswith("*") and flag.startswith(pattern[:-1]) and len(pattern) > best_length:
            best, best_length = text, len(pattern)
        elif "*" in pattern[:-1] and len(pattern) > best_length:
            start, _, end = pattern.partition("*")
            if flag.startswith(start) and flag.endswith(end.rstrip("*")):
                best, best_length = text, len(pattern)
    return best


def grouped(server: str) -> Iterator[tuple[str, str]]:
    """Yield (spellings, equivalent) for each group of options in the module of a server."""
    module = __import__(f"kirsch.config.compat.{SERVERS[server]}", fromlist=["OPTIONS"])
    yield from module.OPTIONS.items()


def patterns(server: str) -> Iterator[tuple[str, str]]:
    """Yield (spelling, equivalent) for each option of a server."""
    for spellings, text in grouped(server):
        for spelling in spellings.split():
            yield spelling, text


def imperative(text: str) -> str:
    """Return an equivalent in the form of an instruction."""
    return f"write {text}" if text.startswith("-") else text


def near(flag: str) -> str:
    """Return a hint for a misspelled option of another server: its name, and what to write instead."""
    from kirsch.suggest import nearest

    known = {
        spelling
        for server in SERVERS
        for spelling, text in patterns(server)
        if "*" not in spelling and "--" in spelling
    }
    found = nearest(flag, sorted(known), "--")
    text = hint(found) if found else ""
    return f"; for {found}, {text}" if text else ""


def key_hint(key: str) -> str:
    """Return the same as :func:`hint` for a key of a settings file, in which names have no dashes in front."""
    from kirsch.config.compat import gunicorn, hypercorn

    name = key.replace("-", "_")
    text = gunicorn.NAMES.get(name) or gunicorn.HOOKS.get(name) or hypercorn.NAMES.get(name)
    text = imperative(text) if text else hint(f"--{key.replace('_', '-')}") or hint(f"--{key}")
    return text if "`" in text else _OUR_FLAG.sub(lambda match: match[0].removeprefix("--"), text)


def variable_hint(name: str) -> str:
    """Return the same as :func:`hint` for an environment variable without its prefix, such as ``PROCESSES``."""
    return _with_variables(hint(f"--{name.lower().replace('_', '-')}"))


def _with_variables(text: str) -> str:
    """Return an instruction in which flags are replaced by environment variables."""
    if "`" in text:
        return text

    def variable(match: re.Match[str]) -> str:
        flag, _, value = match[0].partition(" ")
        each = _settings().get(flag)
        return f"KIRSCH_{each.upper()}{'=' if value else ''}{value}" if each else match[0]

    return _OUR_FLAG.sub(variable, text)


def variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each environment variable that another server would read."""
    if environ.get("FORWARDED_ALLOW_IPS"):
        yield (
            "FORWARDED_ALLOW_IPS in the environment is gunicorn's and uvicorn's and is not read; "
            "write KIRSCH_TRUSTED_PROXIES=ADDRESSES"
        )
    for server in ("uvicorn", "granian", "uWSGI"):
        prefix = f"{server.upper()}_"
        for name in environ:
            if name.startswith(prefix):
                flag = flag_of_variable(server, name.removeprefix(prefix))
                text = equivalent(server, flag)
                if text:
                    instead = (
                        _with_variables(imperative(text))
                        if text[0] != "="
                        else (f"write KIRSCH_{_settings()[flag].upper()}" if flag in _settings() else "")
                    )
                    yield f"{name} in the environment is {server}'s and is not read{instead and '; '}{instead}"


def flag_of_variable(server: str, name: str) -> str:
    """Return the flag of ``server`` that corresponds to its environment variable ``name``, given without its prefix."""
    from kirsch.config.compat import granian

    special = granian.VARIABLES.get(name) if server == "granian" else None
    return special or f"--{name.lower().replace('_', '-')}"


def _settings() -> dict[str, str]:
    from kirsch.config.schema import SETTINGS

    return {flag: each.name for each in SETTINGS for flag in each.flags}


def _systemd_line(argv: Sequence[str]) -> str:
    import os
    import shlex

    daemon = {"-D", "-d", "--daemon", "--daemonize", "--daemonize2"}
    words = [word for word in argv if word.partition("=")[0] not in daemon] or ["module:app"]
    user = [] if os.geteuid() == 0 else ["--user"]
    start = ["systemd-run", *user, "--unit=kirsch", "--same-dir", "--property=Type=notify", "kirsch"]
    return f"`{shlex.join([*start, *words])}`, or a unit file of your own"
