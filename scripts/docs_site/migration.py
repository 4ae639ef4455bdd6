"""The page with the form that turns another server's command line into Kirsch's, and the rules that it applies.

The rules are those of kirsch.config.compat.rules, which the command `kirsch adopt` applies too. They are made from the
tables of which the server's own hints and docs/migrating.md are made.
"""

from __future__ import annotations

import json
import sys

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
    from kirsch.config.compat import rules

    return {
        "flags": rules.flags(),
        "asyncio": rules.ASYNCIO,
        "programs": rules.programs(),
        "servers": {server: rules.of(server).data() for server in compat.SERVERS},
    }


def script() -> str:
    """Return the rules as a script, which a page that is opened as a file can load."""
    return f"window.CONVERT_RULES = {json.dumps(rules(), indent=0, ensure_ascii=False)};\n"
