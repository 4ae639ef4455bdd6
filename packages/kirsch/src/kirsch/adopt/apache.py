"""A reader of the mod_wsgi directives in an Apache configuration."""

from __future__ import annotations

import os
import re
import shlex

from kirsch.adopt.adoption import AdoptError, Adoption, place
from kirsch.adopt.shell import script_lines
from kirsch.config.compat.conversion import BY_HAND, LEFT_OUT, LOOK, Conversion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SHIM = "kirsch_app.py"

# Options of WSGIDaemonProcess with their different names in mod_wsgi-express.
_NAMES = {
    "home": "working-directory",
    "display-name": "process-name",
    "listen-backlog": "daemon-backlog",
    "python-eggs": "python-eggs",
}

# Directives that need no equivalent, because Kirsch does so by itself, or Apache still does in front of it.
_OMITTED = {
    "WSGIProcessGroup",
    "WSGIApplicationGroup",
    "WSGIPassAuthorization",
    "WSGIScriptReloading",
    "WSGISocketPrefix",
    "WSGIRestrictStdout",
    "WSGIRestrictSignal",
    "WSGIRestrictEmbedded",
    "WSGILazyInitialization",
    "WSGIPythonOptimize",
    "WSGIChunkedRequest",
    "WSGIRestrictProcess",
}


def read(path: str, text: str) -> Adoption:
    """Return the adoption of the first daemon process with its scripts and aliases. Raises AdoptError."""
    plan = Adoption("mod_wsgi-express")
    conversion = Conversion("mod_wsgi-express")
    daemons = 0
    scripts: list[tuple[str, str, str]] = []
    aliases: list[tuple[str, str, str]] = []
    for number, name, words in _directives(text):
        origin = place(path, number)
        if name == "WSGIDaemonProcess":
            daemons += 1
            if daemons == 1:
                _take_daemon(words[1:], origin, plan, conversion)
            else:
                plan.note(origin, " ".join(words[:1]), BY_HAND, "a second daemon process is a server of its own")
        elif name == "WSGIScriptAlias" and len(words) >= 2:
            scripts.append((words[0], words[1], origin))
        elif name == "WSGIPythonPath":
            conversion.option("--python-path", words[0], origin)
        elif name == "WSGICallableObject":
            conversion.option("--callable-object", words[0], origin)
        elif name == "WSGIPythonHome":
            plan.note(origin, f"WSGIPythonHome {words[0]}", LOOK, "use the kirsch of that environment")
        elif name in ("Alias", "SetEnv") and len(words) >= 2:
            aliases.append((name, " ".join(words), origin))
        elif name in _OMITTED:
            plan.note(origin, name, LEFT_OUT, "Kirsch needs no such directive")
    if not scripts:
        raise AdoptError("it has no WSGIScriptAlias")
    conversion.finish()
    # Apache keeps listening on its ports, and forwards requests.
    conversion.settings = [each for each in conversion.settings if each.flag != "--bind"]
    plan.take(conversion, place(path))
    _take_scripts(scripts, conversion, plan)
    for name, words_, origin in aliases:
        if name == "Alias":
            prefix, directory = shlex.split(words_)[:2]
            _take_alias(prefix, directory, origin, plan)
        else:
            variable, value = shlex.split(words_)[:2]
            say = "it was in the environ of requests; here it is in the environment"
            plan.add("env", f"{variable}={value}", f"{origin}; {say}")
    if not daemons:
        plan.note(
            place(path), "no WSGIDaemonProcess", LOOK, "it ran in Apache's own processes; one worker is the default"
        )
    plan.note(
        place(path), "ProxyPass / http://127.0.0.1:8000/", LOOK, "goes into Apache's file in place of the directives"
    )
    plan.add("trusted_proxies", "127.0.0.1,::1", "Apache in front, which sends X-Forwarded-*")
    plan.finish(conversion.given)
    return plan


def _directives(text: str) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in script_lines(text):
        name, _, rest = line.strip().partition(" ")
        if re.fullmatch(r"WSGI\w+|Alias|SetEnv", name):
            try:
                words = shlex.split(rest)
            except ValueError:
                continue
            if words:
                yield number, name, words


def _take_daemon(words: list[str], origin: str, plan: Adoption, conversion: Conversion) -> None:
    for word in words:
        name, equals, value = word.partition("=")
        name = _NAMES.get(name, name)
        if name == "python-home":
            plan.note(origin, word, LOOK, "use the kirsch of that environment")
        elif name in ("lang", "locale"):
            plan.add("env", f"{'LANG' if name == 'lang' else 'LC_ALL'}={value}", f"{origin}: {name}")
        elif name == "process-name" and "%{" in value:
            plan.note(origin, word, LEFT_OUT, "ps shows the application's name")
        elif name == "python-path":
            for path in value.split(":"):
                conversion.option("--python-path", path, f"{origin}: python-path")
        elif equals:
            conversion.option(f"--{name}", value, f"{origin}: {word.partition('=')[0]}")


def _take_scripts(scripts: list[tuple[str, str, str]], conversion: Conversion, plan: Adoption) -> None:
    object_name = conversion._object or "application"
    for prefix, script, origin in scripts:
        app = f"{script}:{object_name}" if script.endswith(".py") else script
        if not script.endswith(".py"):
            app = script_shim(plan, script, object_name, add=len(plan.shims))
        if prefix == "/":
            plan.app, plan.app_origin = app, f"{origin}: WSGIScriptAlias"
        else:
            plan.mounts.append((prefix.rstrip("/"), app, f"{origin}: WSGIScriptAlias"))


def script_shim(plan: Adoption, script: str, object_name: str = "application", add: int = 0) -> str:
    """Add a module that loads a script whose name does not end in .py; return the name of the application in it."""
    name = SHIM if not add else SHIM.replace(".py", f"_{add}.py")
    plan.shims[name] = (
        f'"""Loads {os.path.basename(script)}, whose name is not that of a module. Written by kirsch adopt."""\n\n'
        "from importlib.machinery import SourceFileLoader\n"
        "from types import ModuleType\n\n"
        f"_module = ModuleType({os.path.basename(script).partition('.')[0]!r})\n"
        f"_module.__file__ = {script!r}\n"
        "SourceFileLoader(_module.__name__, _module.__file__).exec_module(_module)\n"
        f"{object_name} = _module.{object_name}\n"
    )
    app = f"{name.removesuffix('.py')}:{object_name}"
    if plan.app == script:
        plan.app = app
    return app


def _take_alias(prefix: str, directory: str, origin: str, plan: Adoption) -> None:
    if re.search(r"\.\w+$", prefix):
        plan.note(origin, f"Alias {prefix}", LOOK, "a single file; leave it to Apache, or put it into a directory")
        return
    plan.add("static", f"{prefix.rstrip('/')}={directory.rstrip('/')}", f"{origin}: Alias")
