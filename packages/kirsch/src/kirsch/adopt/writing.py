"""Writing of kirsch.toml, with the origin of each line, and its removal."""

from __future__ import annotations

import hashlib
import json
import os
import re

from kirsch.adopt.adoption import VARIABLE, AdoptError
from kirsch.config.kinds import COUNT, ENVIRONMENT, STATIC
from kirsch.config.schema import BY_NAME, SETTINGS
from kirsch.config.sources import FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kirsch.adopt.adoption import Adoption

_HASH = re.compile(r"^# kirsch adopt wrote this; sha256 ([0-9a-f]{64})$", re.M)
BEFORE = ".before-adopt"


def toml_text(plan: Adoption) -> str:
    """Return the content of kirsch.toml."""
    lines = [f"# Adopted from {', '.join(os.path.basename(path) for path in plan.files) or 'a command'}.", ""]
    if plan.app is not None and not VARIABLE.search(plan.app):
        lines.append(f"app = {json.dumps(plan.app, ensure_ascii=False)}  # {plan.app_origin}")
    tables = []
    for each in SETTINGS:
        values = plan.values.get(each.name)
        if not values:
            continue
        if each.kind in (ENVIRONMENT, STATIC):
            tables.append(each.name)
        elif len(values) == 1:
            value, origin = values[0]
            lines.append(f"{each.key} = {_literal(each.name, value)}  # {origin}")
        else:
            items = [f"    {json.dumps(value, ensure_ascii=False)},  # {origin}" for value, origin in values]
            lines += [f"{each.key} = [", *items, "]"]
    for name in tables:
        lines += ["", f"[{BY_NAME[name].key}]"]
        for value, origin in plan.values[name]:
            key, _, text = value.partition("=")
            lines.append(f"{json.dumps(key)} = {json.dumps(text, ensure_ascii=False)}  # {origin}")
    for path, app, origin in plan.mounts:
        lines += ["", f"[[mounts]]  # {origin}", f"path = {json.dumps(path)}", f"app = {json.dumps(app)}"]
    return "\n".join(lines) + "\n"


def _literal(name: str, value: str) -> str:
    """Return a value as a TOML literal: a number, true or false, or a string."""
    each = BY_NAME[name]
    if each.is_switch:
        return "true" if value == "yes" else "false"
    if each.kind is COUNT or (int in each.kind.toml and value.isascii() and value.isdigit() and name != "umask"):
        return str(int(value)) if value.isdigit() else json.dumps(value)
    return json.dumps(value, ensure_ascii=False)


def write(plan: Adoption, directory: str, *, force: bool) -> list[str]:
    """Write kirsch.toml and the modules that it names; return their paths. Raises AdoptError.

    With ``force`` an existing file is renamed; :func:`undo` restores it.
    """
    written = []
    if plan.shims and "chdir" in plan.values:
        origin = "where kirsch adopt has written its modules"
        plan.values.setdefault("pythonpath", []).append((os.path.abspath(directory), origin))
    contents = {FILE: toml_text(plan), **plan.shims}
    for name in contents:
        path = os.path.join(directory, name)
        if os.path.exists(path) and not force and not _is_ours(path):
            raise AdoptError(f"{path} is there already; --force keeps it as {name}{BEFORE}")
    for name, text in contents.items():
        path = os.path.join(directory, name)
        if os.path.exists(path) and not _is_ours(path):
            os.replace(path, path + BEFORE)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{text}# kirsch adopt wrote this; sha256 {_sum(text)}\n")
        written.append(path)
    return written


def undo(directory: str) -> list[str]:
    """Remove the files that :func:`write` has written, and restore earlier ones; return a line for each. If a file has
    been changed since, raise AdoptError and remove nothing.
    """
    found = [path for path in _candidates(directory) if _hash_in(path)]
    if not found:
        raise AdoptError(f"kirsch adopt has written nothing in {directory}")
    for path in found:
        if not _is_ours(path):
            raise AdoptError(f"{path} has been changed since it was written; remove it yourself")
    lines = []
    for path in found:
        os.remove(path)
        lines.append(f"removed {path}")
        if os.path.exists(path + BEFORE):
            os.replace(path + BEFORE, path)
            lines.append(f"gave back {path}")
    return lines


def _candidates(directory: str) -> Iterator[str]:
    for name in sorted(os.listdir(directory)):
        if name == FILE or re.fullmatch(r"kirsch_(?:hooks|app\w*)\.py", name):
            yield os.path.join(directory, name)


def _hash_in(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        found = _HASH.search(file.read())
    return found[1] if found else ""


def _is_ours(path: str) -> bool:
    """Return whether a file is unchanged since :func:`write`."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    found = _HASH.search(text)
    return found is not None and _sum(text[: found.start()]) == found[1]


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
