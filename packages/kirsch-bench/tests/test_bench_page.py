"""The pages of ``kirsch bench`` in windows of different widths."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from benching import bench, ok, scripted

if TYPE_CHECKING:
    from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "headless_shell")

# Says which tables that are shown are wider than their place, and what stands in the last cell of each.
LOOK = """
<script>
const shown = [...document.querySelectorAll(".scroll")].filter((each) => each.offsetParent !== null);
const seen = {
  wide: shown.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.innerText.slice(0, 60)),
  body: document.documentElement.scrollWidth > document.documentElement.clientWidth,
  tables: shown.map((each) => [...each.querySelectorAll("tr")].map((row) => row.children[0].innerText)),
  heads: shown.map((each) => [...each.querySelectorAll("th")].map((cell) => cell.innerText)),
};
document.body.innerHTML = "";
document.body.append(Object.assign(document.createElement("pre"), { id: "seen", innerText: JSON.stringify(seen) }));
</script>
"""

LOAD_TEST = """
from kirsch_bench import LoadTest


class Shop(LoadTest):
    def test_shop(self, http):
        http.get("/", name="front page")
        http.get("/cart", name="cart")
"""


@pytest.fixture(scope="module")
def browser() -> str:
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    pytest.skip(f"none of {', '.join(BROWSERS)} is installed: apt-get install chromium")


def looked_at(browser: str, page: Path, width: int) -> dict[str, Any]:
    """Return the layout of the page in a window of that width."""
    page.write_text(page.read_text().replace(LOOK, "").replace("</body>", f"{LOOK}</body>"))
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent}/profile",
         f"--window-size={width},2000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=300, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen


@pytest.mark.slow
def test_a_load_test_shows_all_its_columns_at_every_width(browser: str, tmp_path: Path) -> None:
    script, page = tmp_path / "shop.py", tmp_path / "shop.html"
    script.write_text(LOAD_TEST)
    with scripted(lambda _: ok()) as server:
        done = bench(
            f"{script}:Shop.test_shop", "--url", server.url, "--cycles", "1:2:4", "-z", "0.5s", "--warmup", "0.1s",
            "--html", str(page), "-q",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for width in (1200, 800, 400):
        seen = looked_at(browser, page, width)
        assert seen["wide"] == [], f"cut off at {width} px"
        assert not seen["body"], f"the page itself scrolls sideways at {width} px"
        is_turned = width < 1000
        pages = next(each for each in (seen["tables"] if is_turned else seen["heads"]) if "maxSPPS" in each)
        assert pages[-1] == "P95"


@pytest.mark.slow
def test_a_measurement_shows_all_its_percentiles_at_every_width(browser: str, tmp_path: Path) -> None:
    page = tmp_path / "load.html"
    with scripted(lambda _: ok()) as server:
        done = bench("-q", "-c", "2", "-z", "0.5s", "--warmup", "0.1s", "--html", str(page), server.url)
    assert done.returncode == 0, done.stderr
    for width in (1200, 800, 400):
        seen = looked_at(browser, page, width)
        assert seen["wide"] == [], f"cut off at {width} px"
        assert not seen["body"], f"the page itself scrolls sideways at {width} px"
        assert any("p99.99" in each for each in (seen["tables"] if width < 1000 else seen["heads"]))
