"""The page with the form that turns another server's command line into Kirsch's, and the rules that it applies.

The rules are the tables of kirsch.config.compat, of which the server's own hints and docs/migrating.md are made.
"""

from __future__ import annotations

import json
import re
import sys

from docs_site import peer_commands
from docs_site.sources import ROOT

sys.path.insert(0, str(ROOT / "packages" / "kirsch" / "src"))

PAGE = """\
# Turn a command line into Kirsch's

Paste the command that starts another server. The page answers with the one that starts Kirsch, and says what became of
each option. Nothing leaves your browser. [Coming from another server](migrating.md) explains the differences.

<form class="convert" onsubmit="return false">
<label for="theirs">A command of gunicorn, uvicorn, granian, hypercorn, uWSGI, waitress or mod_wsgi-express</label>
<textarea id="theirs" rows="4" spellcheck="false" autocapitalize="off" autocomplete="off"
>gunicorn -w 4 -k gthread --threads 8 -b 0.0.0.0:8000 -t 30 shop.wsgi</textarea>
<label for="ours">For Kirsch</label>
<pre><code id="ours" aria-live="polite"></code></pre>
<div id="became"></div>
</form>
<noscript>The form needs JavaScript. The tables of the page about migrating say the same.</noscript>

<script src="site/convert-rules.js"></script>
<script src="site/convert.js"></script>

Before you serve with the new command, `kirsch check` followed by its options shows all settings, and tells what serving
would refuse.
"""


def rules() -> dict[str, object]:
    """Return all that the form has to know: the options of each server, and the flags of Kirsch."""
    from kirsch.config import compat
    from kirsch.config.schema import SETTINGS

    flags = {flag: bool(each.metavar) for each in SETTINGS for flag in each.flags}
    flags |= {flag: False for each in SETTINGS for flag in each.negations}
    return {
        "flags": flags,
        "asyncio": "an ASGI application is always served by asyncio",
        "programs": {**{server: server for server in compat.SERVERS}, **peer_commands.PROGRAMS},
        "servers": {
            server: {
                "options": [_option(server, *each, flags) for each in compat.patterns(server)],
                "subcommand": peer_commands.SUBCOMMANDS.get(server, ""),
                "address": peer_commands.ADDRESS.get(server, ("127.0.0.1", "8000")),
                "listens_elsewhere": server in peer_commands.ADDRESS,
                "switches": peer_commands.SWITCHES[server].split(),
                "takes_files": server in peer_commands.SUBCOMMANDS,
                "remark": peer_commands.REMARKS.get(server),
            }
            for server in compat.SERVERS
        },
    }


def script() -> str:
    """Return the rules as a script, which a page that is opened as a file can load."""
    return f"window.CONVERT_RULES = {json.dumps(rules(), indent=0, ensure_ascii=False)};\n"


def _option(server: str, spelling: str, text: str, flags: dict[str, bool]) -> dict[str, object]:
    """Return one option: whether it takes a value, which kind of equivalent it has, and what to say about it."""
    takes = spelling not in peer_commands.SWITCHES[server].split()
    found: dict[str, object] = {"name": spelling, "takes": takes, **_equivalent(spelling, takes, text, flags)}
    application = peer_commands.APPLICATION.get(server, {}).get(spelling)
    if application:
        found |= {"kind": application, "say": "the application is named at the end"}
    if spelling in ("--host", "--port"):
        found |= {"kind": spelling.removeprefix("--"), "say": "one address, HOST:PORT"}
    if unit := peer_commands.UNITS.get(server, {}).get(spelling):
        found |= {"unit": unit}
    if found["kind"] == "set" and spelling in peer_commands.VALUES:
        found |= {"values": peer_commands.VALUES[spelling]}
    return found


def _equivalent(spelling: str, takes: bool, text: str, flags: dict[str, bool]) -> dict[str, object]:
    from kirsch.config.compat import VALUE

    say = text.replace("{systemd}", "write a systemd unit")
    if text.startswith("="):
        say = text[1:].lstrip(",;: ")
        if spelling not in flags:
            return {"kind": "omit", "say": say or "Kirsch does so by itself"}
        return {"kind": "set" if flags[spelling] == takes else "hand", "flag": spelling, "say": say}
    if text.startswith("omit"):
        return {"kind": "omit", "say": say.removeprefix("omit it; ")}
    match = re.match(rf"(--[a-z][a-z-]*)(?: ({VALUE}))?(?=$|[;,:])(.*)", text)
    if not match or match[1] not in flags or re.match(r", (?:and|or) --", match[3]):
        return {"kind": "hand", "say": say}
    flag, value = match[1], match[2] or ""
    kind = _kind(flag, value, takes, flags)
    return {"kind": kind, "flag": flag, "value": value, "say": say if kind == "hand" else match[3].lstrip(",;: ")}


def _kind(flag: str, value: str, takes: bool, flags: dict[str, bool]) -> str:
    """Return how an option becomes ``flag``, whose value ``value`` stands for in the tables."""
    if flag == "--bind" and value.endswith("?mode=660"):
        return "mode"
    if flag == "--bind" and ("HOST:PORT" in value or "PATH" in value or value == "fd://N"):
        return "hand" if "proxy" in value or not takes else "bind"
    if not flags[flag]:
        return "set"
    if not value:
        return "set" if takes else "hand"
    placeholder = re.search(r"[A-Z]{2}|module:app|/static", value)
    if not placeholder:
        return "fixed"
    return "set" if takes and re.fullmatch(r"[A-Z]+|NAME=VALUE", value) else "hand"
