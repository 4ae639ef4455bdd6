"""A reader of uWSGI's ini files: sections, placeholders, variables, and options as on the command line."""

from __future__ import annotations

import os
import re

from kirsch.adopt.adoption import AdoptError, Adoption, line_of, place
from kirsch.adopt.ini_file import pairs, parse
from kirsch.config.compat import rules
from kirsch.config.compat.conversion import LEFT_OUT, LOOK, Conversion, ConversionError

_TRUE = ("true", "1", "on", "yes", "")

# The hook that makes uWSGI stop gracefully at SIGTERM. Kirsch does so without it.
_GRACEFUL = re.compile(r"unix_signal:15 ")


def read(path: str, text: str, section: str = "uwsgi") -> Adoption:
    """Return the adoption of a file. Raises AdoptError."""
    return read_named(path, path, [], place(path), section, text)


def read_named(
    name: str, path: str, words: list[str], origin: str, section: str = "uwsgi", text: str | None = None
) -> Adoption:
    """Return the adoption of the file that a command names, with the other words of the command. Raises AdoptError."""
    base, colon, chosen = name.partition(".ini:")
    if colon:
        section, path = chosen, path.partition(".ini:")[0] + ".ini"
    if text is None:
        if not os.path.isfile(path):
            raise AdoptError(f"{origin} names {base}{'.ini' if colon else ''}, which is not there")
        with open(path, encoding="utf-8") as file:
            text = file.read()
    plan = Adoption("uWSGI")
    plan.files.append(path)
    conversion = Conversion("uWSGI")
    values = _section(text, section, path)
    cheaper = [value for key, value in values if key in ("cheaper", "cheaper-algo", "cheaper-initial")]
    is_http = ("protocol", "http") in values
    lines: dict[str, int] = {}
    for key, value in values:
        lines[key] = line_of(text, rf"^\s*{re.escape(key)}\s*(=|$)", lines.get(key, 0)) or lines.get(key, 0)
        where = f"{place(path, lines[key])}: {key}"
        _take(key, value, where, plan, conversion, is_http=is_http)
    try:
        conversion.words(
            [word for word in words if not word.endswith(".ini") and word != "--ini" and ".ini:" not in word]
        )
    except ConversionError as error:
        raise AdoptError(str(error)) from None
    conversion.finish()
    conversion.notes = [note for note in conversion.notes if note.option]
    named = next((key for key in ("module", "wsgi", "wsgi-file", "file") if key in lines), "")
    plan.take(conversion, place(path, lines.get(named, 0)))
    if plan.app is not None and plan.app.endswith(".wsgi"):
        from kirsch.adopt.apache import script_shim

        script_shim(plan, plan.app)
    if cheaper and plan.has("min_workers") and plan.has("workers"):
        most, where = plan.values["workers"][0]
        plan.add("max_workers", most, f"{where}, with cheaper")
        plan.values["workers"] = plan.values["min_workers"]
    plan.finish(conversion.given | {"--gevent" for key, _ in values if key == "gevent"})
    return plan


def _take(key: str, value: str, where: str, plan: Adoption, conversion: Conversion, *, is_http: bool) -> None:
    """Convert one line of the file."""
    option = f"--{key.replace('_', '-')}" if len(key) > 1 else f"-{key}"
    if option in ("--protocol", "--if-env", "--endif", "--ini", "--logdate", "--cheaper-algo"):
        return
    if option in ("--socket", "--uwsgi-socket", "-s") and is_http:
        option = "--http-socket"
    if option in ("--processes", "--workers", "-p") and not value.isdigit():
        plan.note(where, value, LOOK, "the number of processes is computed; one for each processor is written")
        value = str(os.cpu_count() or 1)
    if option == "--cheaper":
        plan.add("min_workers", value, where)
        return
    if option == "--hook-master-start" and _GRACEFUL.match(value):
        plan.note(where, value, LEFT_OUT, "SIGTERM always stops gracefully")
        return
    if option in ("--py-autoreload", "--python-autoreload", "--vacuum") and value.lower() in ("0", "false"):
        return
    if option == "--listen" and value.isdigit():
        conversion.option("--listen", value, where)
        return
    rule = rules.of("uWSGI").find(option)
    if rule is None or rule.takes:
        conversion.option(option, value, where)
    elif value.lower() in _TRUE:
        conversion.option(option, None, where)


def _section(text: str, section: str, path: str) -> list[tuple[str, str]]:
    """Return each (key, value) of a section and of the sections that it includes, with placeholders replaced."""
    parser = parse(text)
    if not parser.has_section(section):
        raise AdoptError(f"{place(path)} has no section [{section}]")
    found: list[tuple[str, str]] = []
    for key, value in pairs(parser, section):
        if key == "ini" and value.startswith(":") and parser.has_section(value[1:]):
            found += list(pairs(parser, value[1:]))
        else:
            found.append((key, value))
    known = {key: value for key, value in found if "%(" not in value}
    return [(key, _expanded(value.strip(), known, path)) for key, value in found]


def _expanded(value: str, known: dict[str, str], path: str) -> str:
    """Replace placeholders such as ``%d`` and ``%(name)``, and variables ``$(NAME)``."""
    folder = os.path.join(os.path.dirname(os.path.abspath(path)), "")
    letters = {
        "d": folder,
        "n": place(path).rpartition(".")[0],
        "p": os.path.abspath(path),
        "k": str(os.cpu_count() or 1),
    }
    value = re.sub(r"%\((\w[\w-]*)\)", lambda match: known.get(match[1], match[0]), value)
    value = re.sub(r"%([dnpk])(?![\w(])|%(d)(?=\w)", lambda match: letters[match[1] or match[2]], value)
    return re.sub(r"\$\((\w+)\)", r"${\1}", value)
