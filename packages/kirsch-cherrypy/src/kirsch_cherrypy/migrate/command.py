"""``kirsch migrate cherrypy MODULE``: rewrite handlers into typed ones where a recording proves that nothing changes.

The module runs three times against the recording: twice as it is, to see what differs by itself, and with the handlers
rewritten that can be. A handler whose responses differ in status, media type, location, cookies or content stays as it
is, and so does one that no request of the recording reaches, or that has a tool: a tool may protect the page.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from kirsch_cherrypy.migrate.replay import requests_of
from kirsch_cherrypy.migrate.rewrite import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Failure(Exception):
    """The module cannot be run."""


def run(module: str, recording: str, kind: str, folder: str) -> dict[str, Any]:
    """Send the recording to a version of the module. Return the responses, and the handlers that were called.

    ``folder`` is the folder of the original module, from which the module imports others.
    """
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(  # noqa: S603 - runs this Python with files of the caller
        [sys.executable, "-m", "kirsch_cherrypy.migrate.replay", os.path.abspath(module), recording, kind],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    if done.returncode:
        raise Failure(f"{module} fails:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # the last line; the module may print others
    return found


def migrated(path: str, recording: str) -> tuple[str, list[str], dict[str, str]]:
    """Return the rewritten source of a module, its typed handlers, and for each other handler, the reason."""
    with open(path, encoding="utf-8") as file:
        source = Source(file.read())
    requests = requests_of(recording)
    folder = os.path.dirname(os.path.abspath(path))
    first, second = (run(path, recording, "cherrypy", folder) for _ in range(2))
    methods: dict[str, list[str]] = {}
    reasons = {handler.name: handler.reason for handler in source.handlers if handler.reason}
    for request, (name, tools), one, two in zip(
        requests, first["handlers"], first["responses"], second["responses"], strict=True
    ):
        methods.setdefault(name, [])
        if request["method"] not in ("HEAD", *methods[name]):
            methods[name].append(request["method"])
        if one != two:
            reasons.setdefault(name, f"{_words(request)} differs from run to run")
        if tools:
            reasons.setdefault(name, f"{', '.join(tools)} is on for its path")
    for handler in source.handlers:
        if not methods.get(handler.name):
            reasons.setdefault(handler.name, "no request of the recording reaches it")
    chosen = {each.name: sorted(methods[each.name]) for each in source.handlers if each.name not in reasons}
    while chosen:
        text = source.rewritten(chosen)
        found = _differences(path, text, recording, requests, first, second)
        if not found:
            return text, sorted(chosen), reasons
        for name, reason in found.items():
            guilty = [name] if name in chosen else list(chosen)  # another handler changed the state that it uses
            for each in guilty:
                reasons[each] = reason
                del chosen[each]
    return source.text, [], reasons


def _differences(
    path: str, text: str, recording: str, requests: list[dict[str, Any]], first: dict[str, Any], second: dict[str, Any]
) -> dict[str, str]:
    """Return the first difference of each handler with the new source, where two runs of the old one agree."""
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.TemporaryDirectory() as temporary:
        copy = os.path.join(temporary, os.path.basename(path))
        with open(copy, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            found = run(copy, recording, "typed", folder)
        except Failure as failure:
            lines = str(failure).strip().splitlines()
            return {"": f"with typed handlers the module fails: {lines[-1]}"}
    differences: dict[str, str] = {}
    for request, (name, _), one, again, two in zip(
        requests, first["handlers"], first["responses"], second["responses"], found["responses"], strict=True
    ):
        part = next((part for part in one if one[part] == again[part] != two[part]), "")
        if part:
            differences.setdefault(name, f"{_words(request)}: {part} {one[part]!r:.60} becomes {two[part]!r:.60}")
    return differences


def _words(request: dict[str, Any]) -> str:
    return f"{request['method']} {request['path']}" + (f"?{request['query']}" if request["query"] else "")


def _tell(message: str) -> None:
    sys.stderr.write(message + "\n")


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="kirsch migrate", description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("framework", choices=["cherrypy"])
    parser.add_argument("module", help="the file of the module, such as shop.py")
    parser.add_argument(
        "--recording", required=True,
        help="requests: a line each, such as 'GET /books?page=2', or what kirsch_cherrypy.migrate.recorded has written",
    )  # fmt: skip
    parser.add_argument("--write", action="store_true", help="change the file, and do not only show the change")
    arguments = parser.parse_args(argv)
    try:
        text, typed_ones, reasons = migrated(arguments.module, arguments.recording)
        with open(arguments.module, encoding="utf-8") as file:
            old = file.read()
    except (OSError, SyntaxError, Failure) as error:
        _tell(f"kirsch migrate cherrypy: {error}")
        return 1
    if arguments.write and text != old:
        with open(arguments.module, "w", encoding="utf-8") as file:
            file.write(text)
    elif not arguments.write:
        sys.stdout.writelines(
            difflib.unified_diff(
                old.splitlines(keepends=True), text.splitlines(keepends=True), arguments.module, arguments.module
            )
        )
    for name in typed_ones:
        _tell(f"{name}: typed; the recording has the same responses, and methods that are not in it get 405")
    for name, reason in reasons.items():
        if name:
            _tell(f"{name}: stays: {reason}")
    if typed_ones and "typed(" not in text:
        _tell("serve kirsch_cherrypy.migrate.typed(cherrypy.tree) in place of cherrypy.tree: it calls both kinds")
    return 0
