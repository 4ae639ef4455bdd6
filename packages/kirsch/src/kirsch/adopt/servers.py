"""Adoption of a server's command: by the rules for its options, and with the files that it names."""

from __future__ import annotations

import os
import re

from kirsch.adopt import gunicorn_file, shell, uwsgi_file
from kirsch.adopt.adoption import AdoptError, Adoption
from kirsch.config.compat.conversion import BY_HAND, LOOK, Conversion, ConversionError
from kirsch.config.compat.rules import programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch.adopt.shell import ServerCommand


def plan_of(command: ServerCommand, origin: str, directory: str, environment: dict[str, str]) -> Adoption:
    """Return the adoption of ``command``, whose files are searched in ``directory``. Raises AdoptError."""
    reader = _OTHERS.get(command.program)
    if reader is not None:
        plan = reader(command, origin, directory, environment)
    else:
        plan = _plan_of_server(command, origin, directory, environment)
    plan.command = plan.command or [command.program, *command.words]
    plan.directory = command.directory
    plan.before = command.before
    return plan


def _plan_of_server(command: ServerCommand, origin: str, directory: str, environment: dict[str, str]) -> Adoption:
    server = programs()[command.program]
    words = [word for word in command.words if word not in ("$@", "${@}", "$*")]
    if server == "uWSGI" and (ini := _ini_file(words)):
        return uwsgi_file.read_named(ini, os.path.join(directory, os.path.basename(ini)), words, origin)
    plan = Adoption(server)
    conversion = Conversion(server)
    try:
        if server == "gunicorn":
            _read_gunicorns_file(words, plan, conversion, os.path.join(directory, command.directory), environment)
        conversion.words(words)
    except ConversionError as error:
        raise AdoptError(str(error)) from None
    conversion.finish()
    conversion.notes = [note for note in conversion.notes if note.option]
    plan.take(conversion, origin)
    if plan.gunicorn_file and plan.app_origin == origin and plan.app not in words:
        plan.app_origin = os.path.basename(plan.gunicorn_file)
    if plan.server == "gunicorn" and environment.get("GUNICORN_CMD_ARGS"):
        plan.note(origin, "GUNICORN_CMD_ARGS", LOOK, "Kirsch reads it too, and the file takes precedence")
    plan.finish(conversion.given)
    return plan


def _ini_file(words: list[str]) -> str:
    """Return the name of the ini file in a uwsgi command; empty if there is none."""
    for at, word in enumerate(words):
        if word in ("--ini", "-i") and at + 1 < len(words):
            return words[at + 1]
        if word.endswith((".ini", ".ini:uwsgi")) or re.search(r"\.ini:\w+$", word):
            return word.removeprefix("--ini=")
    return ""


def _read_gunicorns_file(
    words: list[str], plan: Adoption, conversion: Conversion, directory: str, environment: dict[str, str]
) -> None:
    """Read the gunicorn.conf.py that the command names or that is in the directory; remove ``-c`` from ``words``."""
    name = ""
    for at, word in enumerate(list(words)):
        if word in ("-c", "--config") and at + 1 < len(words):
            name = words[at + 1]
            del words[at : at + 2]
            break
        if word.startswith(("--config=", "-c=")):
            name = word.partition("=")[2]
            words.remove(word)
            break
    name = name.removeprefix("file:")
    if name.startswith("python:"):
        name = name.removeprefix("python:").replace(".", "/") + ".py"
    if not name and "--config" not in environment.get("GUNICORN_CMD_ARGS", ""):
        name = "gunicorn.conf.py"
        if not os.path.exists(os.path.join(directory, name)):
            return
    for candidate in (name, name.lstrip("/"), os.path.basename(name)):
        path = os.path.join(directory, candidate)
        if os.path.isfile(path):
            gunicorn_file.read(path, plan, conversion)
            return
    plan.note("command", f"-c {name}", BY_HAND, "the file is not there; name its directory, or adopt the file itself")


def _fastapi(command: ServerCommand, origin: str, directory: str, environment: dict[str, str]) -> Adoption:
    """Adopt ``fastapi run PATH``: uvicorn on 0.0.0.0:8000, with the application in a file."""
    words = command.words[1:]
    paths = [word for word in words if not word.startswith("-") and word.endswith(".py")]
    app = "app"
    if "--app" in words:
        at = words.index("--app")
        app = words[at + 1]
        del words[at : at + 2]
    words = [word for word in words if word not in paths]
    host = [] if any(word.startswith("--host") for word in words) else ["--host", "0.0.0.0"]  # noqa: S104
    path = paths[0] if paths else _default_file(directory)
    made = shell.ServerCommand("uvicorn", [*host, *words, f"{_module(path)}:{app}"], command.directory)
    plan = _plan_of_server(made, origin, directory, environment)
    plan.command = ["uvicorn", *made.words]
    return plan


def _default_file(directory: str) -> str:
    names = ("main.py", "app.py", "api.py", "app/main.py", "app/app.py", "app/api.py")
    return next((name for name in names if os.path.exists(os.path.join(directory, name))), "main.py")


def _module(path: str) -> str:
    """Return the module name of a Python file."""
    return re.sub(r"\.py$", "", path.lstrip("./")).replace("/", ".")


def _flask(command: ServerCommand, origin: str, directory: str, environment: dict[str, str]) -> Adoption:
    """Adopt ``flask --app NAME run``: the application that Flask would find, on 127.0.0.1:5000."""
    words = command.words
    plan = Adoption("flask")
    values = {"--app": environment.get("FLASK_APP", ""), "--host": "127.0.0.1", "--port": "5000"}
    short = {"-A": "--app", "-h": "--host", "-p": "--port"}
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        name = short.get(name, name)
        if name in values:
            values[name] = value if equals else words[at + 1] if at + 1 < len(words) else ""
    app = values["--app"] or ("wsgi" if os.path.exists(os.path.join(directory, "wsgi.py")) else "app")
    plan.app, plan.app_origin = _module(app) if app.endswith(".py") else app, origin
    plan.add("bind", f"{values['--host']}:{values['--port']}", f"{origin}: --host, --port")
    if {"--debug", "--reload"} & set(words):
        plan.values["reload"] = [("yes", f"{origin}: --debug")]
    plan.finish(set())
    return plan


def _runserver(command: ServerCommand, origin: str, directory: str, environment: dict[str, str]) -> Adoption:
    """Adopt ``manage.py runserver``: the WSGI application of the settings that manage.py names."""
    plan = Adoption("runserver")
    manage = os.path.join(directory, command.directory, "manage.py")
    settings = environment.get("DJANGO_SETTINGS_MODULE", "")
    if not settings and os.path.exists(manage):
        with open(manage, encoding="utf-8") as file:
            found = re.search(r"DJANGO_SETTINGS_MODULE[\"'],\s*[\"']([\w.]+)", file.read())
        settings = found[1] if found else ""
    if not settings:
        raise AdoptError("manage.py runserver names no application, and the project's manage.py is not there")
    plan.app, plan.app_origin = f"{settings.partition('.')[0]}.wsgi:application", f"{origin}, {settings}"
    address = next((word for word in command.words if not word.startswith("-")), "127.0.0.1:8000")
    bind = address if ":" in address else f"127.0.0.1:{address}"
    plan.add("bind", re.sub(r"^0:", "0.0.0.0:", bind), origin)
    if "--noreload" not in command.words:
        plan.note(
            origin, "auto-reload", LOOK, "for development write kirsch --reload, or put kirsch.django into the apps"
        )
    plan.finish(set())
    return plan


def _python(command: ServerCommand, _origin: str, directory: str, _environment: dict[str, str]) -> Adoption:
    """Adopt ``python main.py``, if the program calls ``uvicorn.run``."""
    from kirsch.adopt import uvicorn_call

    name = command.words[0]
    for candidate in (name, name.lstrip("/"), os.path.basename(name)):
        path = os.path.join(directory, command.directory, candidate)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return uvicorn_call.read(path, file.read())
    raise AdoptError(f"python {name} starts it, and that program is not there")


_OTHERS: dict[str, Callable[[ServerCommand, str, str, dict[str, str]], Adoption]] = {
    "fastapi": _fastapi,
    "flask": _flask,
    "runserver": _runserver,
    "python": _python,
}
