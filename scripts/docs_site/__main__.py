"""Build the documentation site: ``python -m docs_site OUT [--strict]``, with the folder scripts on ``PYTHONPATH``.

Collects the pages in OUT/pages and has MkDocs make OUT/html of them. Any warning, such as a link that leads nowhere or
a page that the navigation lacks, is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from docs_site import benchmarks, examples, migration, sources


def collect(folder: Path) -> None:
    """Write all pages and what they need into ``folder``, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    texts = {place: sources.page(path) for path, place in sources.places().items()}
    texts |= {sources.EXAMPLES: examples.page(), sources.CONVERT: migration.PAGE}
    texts |= {sources.BENCHMARKS: benchmarks.page(), "site/plots.css": benchmarks.style()}
    texts["site/convert-rules.js"] = migration.script()
    for place, text in texts.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for path, place in sources.attachments().items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / place)


def main() -> int:
    """Collect the pages and run MkDocs; return its exit status."""
    out = Path(sys.argv[1]).resolve()
    collect(out / "pages")
    environment = {**os.environ, "DOCS_PAGES": str(out / "pages"), "DOCS_HTML": str(out / "html")}
    # Material's announcement of MkDocs 2, which has no bearing on a pinned version.
    environment["NO_MKDOCS_2_WARNING"] = "1"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "mkdocs.yml"]
    return subprocess.run(command, cwd=sources.ROOT, env=environment, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
