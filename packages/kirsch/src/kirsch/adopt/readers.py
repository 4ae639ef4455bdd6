"""Readers that find the command of a server in a Procfile, Dockerfile, compose file, systemd unit or script."""

from __future__ import annotations

import os
import re
import shlex

from kirsch.adopt import apache, shell, uwsgi_file
from kirsch.adopt.adoption import AdoptError, place
from kirsch.adopt.ini_file import pairs, parse
from kirsch.adopt.servers import plan_of
from kirsch.config.compat import rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.adopt.adoption import Adoption
    from kirsch.adopt.shell import ServerCommand

# The files of a directory that may contain the command, in the order of the search.
_NAMES = (
    r"Procfile",
    r"(?:docker-)?compose.*\.ya?ml",
    r"Dockerfile(?:\..+)?|.+\.Dockerfile",
    r".+\.service",
    r"supervisord?\.conf|.+supervisor.*\.conf",
    r".*uwsgi.*\.ini",
    r"gunicorn[\w.-]*\.py",
    r"(?:start|run|entrypoint|docker-entrypoint|boot)[\w-]*\.sh",
    r".+\.conf",
)

INSTALL = "pip install 'kirsch[adopt]'"


def read(target: str) -> Adoption:
    """Return the adoption of a file, a directory, or a command. Raises AdoptError."""
    if os.path.isdir(target):
        return _read_directory(target)
    if not os.path.exists(target):
        if any(character.isspace() for character in target):
            return _plan(shell.find(target), "command", ".")
        raise AdoptError(f"there is no file {target}")
    return _read_file(target)


def _read_directory(directory: str) -> Adoption:
    names = sorted(os.listdir(directory))
    problems = []
    for pattern in _NAMES:
        for name in names:
            path = os.path.join(directory, name)
            if re.fullmatch(pattern, name) and os.path.isfile(path):
                try:
                    return _read_file(path)
                except AdoptError as error:
                    problems.append(f"{name}: {error}")
    if problems:
        raise AdoptError("; ".join(problems))
    raise AdoptError(f"no configuration of a server was found in {directory}; name the file")


def _read_file(path: str) -> Adoption:
    name = os.path.basename(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    reader: Callable[[str, str], Adoption] = _read_script
    if re.fullmatch(r"Procfile.*", name):
        reader = _read_procfile
    elif "Dockerfile" in name or "Containerfile" in name:
        reader = _read_dockerfile
    elif name.endswith((".yml", ".yaml")):
        reader = _read_compose
    elif name.endswith((".service", ".socket")):
        reader = _read_unit
    elif name.endswith(".ini") or re.search(r"^\[uwsgi\]", text, re.M):
        reader = uwsgi_file.read
    elif re.search(r"^\[program:", text, re.M):
        reader = _read_supervisor
    elif re.search(r"^\s*WSGI(?:DaemonProcess|ScriptAlias)", text, re.M):
        reader = apache.read
    elif name.endswith(".py"):
        reader = _read_python
    plan = reader(path, text)
    if path not in plan.files:
        plan.files.insert(0, path)
    return plan


def _plan(
    command: ServerCommand | None, origin: str, directory: str, environment: dict[str, str] | None = None
) -> Adoption:
    """Return the adoption of ``command``. Raises AdoptError if it is None."""
    if command is None:
        raise AdoptError(f"no command of {', '.join(rules.programs())} was found")
    return plan_of(command, origin, directory, environment or {})


def _read_procfile(path: str, text: str) -> Adoption:
    for number, line in shell.script_lines(text):
        kind, colon, command = line.partition(":")
        if colon and kind.strip() in ("web", "server", "app"):
            return _follow(shell.split(command), place(path, number), os.path.dirname(path))
    raise AdoptError("it has no process of the type web")


def _read_script(path: str, text: str) -> Adoption:
    assigned: dict[str, str] = {}
    directory = ""
    for number, line in shell.script_lines(text):
        if pair := shell.assignment(line):
            assigned[pair[0]] = pair[1]
            continue
        try:
            commands = shell.split(line)
        except ValueError:
            continue  # a string that spans lines
        if commands and commands[0][0] == "cd" and len(commands[0]) > 1:
            directory = commands[0][1]
        found = shell.find_in([shell.substitute(words, assigned) for words in commands])
        if found is not None:
            found.directory = os.path.join(directory, found.directory)
            return plan_of(found, place(path, number), os.path.dirname(path), {})
    raise AdoptError("no command of a server was found in it")


def _read_python(path: str, text: str) -> Adoption:
    from kirsch.adopt import uvicorn_call

    if re.search(r"\buvicorn\.run\(|\bhypercorn\b|Granian\(", text):
        return uvicorn_call.read(path, text)
    return plan_of(
        shell.ServerCommand("gunicorn", ["-c", os.path.basename(path)]), place(path), os.path.dirname(path), {}
    )


def _follow(
    commands: list[list[str]], origin: str, directory: str, environment: dict[str, str] | None = None
) -> Adoption:
    """Return the adoption of the server command in ``commands``, or in a script that they run."""
    found = shell.find_in(commands)
    if found is None:
        for script in shell.scripts_in(commands):
            for name in (script, os.path.basename(script), os.path.join("scripts", os.path.basename(script))):
                path = os.path.join(directory, name.lstrip("/"))
                if os.path.isfile(path):
                    return _read_file(path)
    return _plan(found, origin, directory, environment)


# ------------------------------------------------------------------------------------------------------- containers


def _read_dockerfile(path: str, text: str) -> Adoption:
    try:
        from dockerfile_parse import DockerfileParser
    except ImportError:
        raise AdoptError(f"to read a Dockerfile: {INSTALL}") from None
    import io

    parser = DockerfileParser(fileobj=io.BytesIO(text.encode()), env_replace=False)
    command: tuple[str, int] | None = None
    entrypoint: tuple[str, int] | None = None
    environment: dict[str, str] = {}
    for item in parser.structure:
        instruction, value, line = item["instruction"], item["value"], item["startline"] + 1
        if instruction == "FROM":
            command = entrypoint = None
        elif instruction == "CMD":
            command = (value, line)
        elif instruction == "ENTRYPOINT":
            entrypoint, command = (value, line), None
        elif instruction == "ENV":
            environment |= _environment(value)
    if command is None and entrypoint is None:
        raise AdoptError("it has neither CMD nor ENTRYPOINT; its base image starts the server")
    words = [word for part in (entrypoint, command) if part is not None for word in _exec_form(part[0])]
    origin = place(path, (command or entrypoint or ("", 0))[1])
    directory = os.path.dirname(path)
    if command is not None and not _exec_form(command[0])[:-1] and entrypoint is None:
        return _follow(shell.split(command[0]), origin, directory, environment)
    return _follow(_commands(words), origin, directory, environment)


def _commands(words: list[str]) -> list[list[str]]:
    """Return the commands of an exec form. A single word is a shell command line."""
    return shell.split(words[0]) if len(words) == 1 else [words]


def _exec_form(value: str) -> list[str]:
    """Parse ``["gunicorn", "app:app"]`` into words; return a shell command line as one word."""
    import json

    try:
        words = json.loads(value)
    except ValueError:
        return [value]
    return [str(word) for word in words] if isinstance(words, list) else [value]


def _environment(value: str) -> dict[str, str]:
    """Parse the variables in ``NAME=value OTHER=value`` or ``NAME value``."""
    try:
        words = shlex.split(value)
    except ValueError:
        return {}
    if words and "=" not in words[0]:
        return {words[0]: " ".join(words[1:])}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _read_compose(path: str, text: str) -> Adoption:
    try:
        import yaml
    except ImportError:
        raise AdoptError(f"to read a compose file: {INSTALL}") from None
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise AdoptError(f"it is not YAML: {' '.join(str(error).split())}") from None
    services = tree.get("services", {}) if isinstance(tree, dict) else {}
    problems: list[str] = []
    for name, service in services.items():
        if isinstance(service, dict):
            try:
                return _read_service(path, text, str(name), service)
            except AdoptError as error:
                problems.append(f"{name}: {error}")
    raise AdoptError("; ".join(problems) or "it has no services")


def _read_service(path: str, text: str, name: str, service: dict[str, Any]) -> Adoption:
    from kirsch.adopt.adoption import line_of

    directory = os.path.dirname(path)
    words: list[str] = []
    for key in ("entrypoint", "command"):
        value = service.get(key)
        if isinstance(value, list):
            words += [str(word) for word in value]
        elif isinstance(value, str):
            words += [value] if not words else shlex.split(value)
    if words:
        origin = f"{place(path, line_of(text, rf'^ *{re.escape(name)}:'))} {name}"
        given = service.get("environment") or {}
        pairs = given.items() if isinstance(given, dict) else (str(each).partition("=")[::2] for each in given)
        environment = {str(key): str(value) for key, value in pairs}
        return _follow(_commands(words), origin, directory, environment)
    build = service.get("build")
    if build is None:
        raise AdoptError("it has no command")
    context = build.get("context", ".") if isinstance(build, dict) else str(build)
    dockerfile = build.get("dockerfile", "Dockerfile") if isinstance(build, dict) else "Dockerfile"
    built = os.path.join(directory, context, dockerfile)
    if not os.path.isfile(built):
        raise AdoptError(f"it is built by {os.path.normpath(os.path.join(context, dockerfile))}, which is not there")
    return _read_file(built)


# ------------------------------------------------------------------------------------------------------ ini-like files


def _read_unit(path: str, text: str) -> Adoption:
    from kirsch.adopt.adoption import line_of

    parser = parse(text)
    if not parser.has_section("Service"):
        raise AdoptError("it has no section [Service]; name the unit of the service")
    values = list(pairs(parser, "Service"))
    starts = [value.lstrip("@-:+!") for key, value in values if key == "ExecStart" and value]
    if not starts:
        raise AdoptError("it has no ExecStart=")
    environment: dict[str, str] = {}
    for key, value in values:
        if key == "Environment":
            environment |= _environment(value)
    origin = place(path, line_of(text, r"^ExecStart="))
    # systemd does not interpret shell operators.
    plan = _follow(_commands_of_unit(starts[-1]), origin, os.path.dirname(path), environment)
    single = dict(values)
    if directory := single.get("WorkingDirectory", "").strip().lstrip("-"):
        plan.directory = os.path.join(directory, plan.directory)
    for key in ("User", "Group", "UMask"):
        if key in single:
            plan.note(origin, f"{key}={single[key]}", "left out", "it stays in the unit, which starts kirsch as well")
    if "gunicorn.socket" in single.get("Requires", "") or re.search(r"^Requires=.*\.socket", text, re.M):
        plan.note(origin, "the unit's socket", "look", "without --bind Kirsch takes the sockets that systemd passes")
        plan.values.pop("bind", None)
    return plan


def _commands_of_unit(line: str) -> list[list[str]]:
    return [shlex.split(line.replace("%%", "%"))]


def _read_supervisor(path: str, text: str) -> Adoption:
    from kirsch.adopt.adoption import line_of

    parser = parse(text)
    for section in parser.sections():
        if section.startswith("program:"):
            values = dict(pairs(parser, section))
            commands = shell.split(values.get("command", ""))
            if commands and shell.find_in(commands) is not None:
                line = line_of(text, rf"^\[{re.escape(section)}\]")
                plan = _follow(commands, f"{place(path, line)} {section}", os.path.dirname(path))
                plan.directory = os.path.join(values.get("directory", ""), plan.directory)
                return plan
    raise AdoptError("none of its programs is a server that Kirsch knows")
