"""scripts/links.py finds the links that lead nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import links

if TYPE_CHECKING:
    from pathlib import Path


def test_a_link_is_broken_when_its_file_or_its_heading_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One `--flag`, [two](other.md)\n## Same\n## Same\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md) [b](other.md#one---flag-two) [c](#here) [d `x`](other.md#same-1) [e](https://x.y/z)\n"
        "[![f](other.md)](gone.md) [g](other.md#no-heading) [h](#gone) `[i](gone.md)`\n"
        "```\n[j](gone.md)\n```\n[k]: gone/\n"
    )
    assert links.broken(page) == ["gone.md", "other.md#no-heading", "#gone", "gone/"]
