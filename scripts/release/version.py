"""Sets the version of all distributions, or dates the changelog's section of it.

    python -m release.version             prints the version, after a check that every file names it
    python -m release.version 0.2.0       writes it into every file, and begins its section of CHANGELOG.md
    python -m release.version --cut       replaces "(unreleased)" with the date of today
    python -m release.version --notes     prints that section, without its heading

The version is in ``Cargo.toml``; other files repeat it where their formats know no reference.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from release import matrix

if TYPE_CHECKING:
    from pathlib import Path

VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
HEADING = re.compile(rf"(?m)^## (?P<version>{VERSION.pattern}) \((?P<date>[^)]+)\)$")
UNRELEASED = "unreleased"


class VersionError(Exception):
    """A file that disagrees, or a step out of turn: one line that says what to do."""


@dataclass(frozen=True)
class Place:
    """A place that repeats the version: everything between the two patterns."""

    path: str
    before: str
    after: str = '"'

    def pattern(self) -> re.Pattern[str]:
        return re.compile(rf"(?m)({self.before})({VERSION.pattern})(?={self.after})")


PLACES = (
    Place("Cargo.toml", r'^\[workspace\.package\]\nversion = "'),
    *(Place(f"packages/{name}/pyproject.toml", r'^version = "') for name in matrix.PURE),
    Place("packages/kirsch-web/src/kirsch_web/__init__.py", r'^__version__ = "'),
    Place("packages/kirsch/pyproject.toml", r'"kirsch-bench=='),
    Place("packages/kirsch-bench/pyproject.toml", r'"kirsch=='),
    Place("packages/kirsch-cherrypy/pyproject.toml", r'"kirsch-web=='),
    Place("README.md", r"^kirsch ", r" \(CPython"),
)


def check(project: Path) -> str:
    """Return the version of ``project``; raise ``VersionError`` if a file names another."""
    found: dict[str, str] = {}
    for place in PLACES:
        match = place.pattern().search((project / place.path).read_text(encoding="utf-8"))
        if match is None:
            raise VersionError(f"{place.path} names no version after {place.before!r}: mend scripts/release/version.py")
        found[place.path] = match[2]
    version = found["Cargo.toml"]
    for path, other in found.items():
        if other != version:
            raise VersionError(f"{path} has {other}, Cargo.toml has {version}: make version VERSION={version}")
    newest = _newest(project)
    if newest["version"] != version:
        raise VersionError(
            f"CHANGELOG.md begins with {newest['version']}, not with {version}: make version VERSION=..."
        )
    return version


def write(project: Path, version: str) -> None:
    """Write ``version`` into every file, and begin its section of the changelog."""
    if not VERSION.fullmatch(version):
        raise VersionError(f"{version!r} is no version: write three numbers, such as 0.2.0 or 1.0.0rc1")
    for place in PLACES:
        path = project / place.path
        text, count = place.pattern().subn(rf"\g<1>{version}", path.read_text(encoding="utf-8"))
        if not count:
            raise VersionError(f"{place.path} names no version after {place.before!r}: mend scripts/release/version.py")
        path.write_text(text, encoding="utf-8")
    newest, changelog = _newest(project), project / "CHANGELOG.md"
    if newest["version"] == version:
        return
    text, heading = changelog.read_text(encoding="utf-8"), f"## {version} ({UNRELEASED})"
    end = newest.end() if newest["date"] == UNRELEASED else newest.start()
    between = "" if newest["date"] == UNRELEASED else "\n\n"
    changelog.write_text(text[: newest.start()] + heading + between + text[end:], encoding="utf-8")


def lock(project: Path) -> None:
    """Write the new version into the lock files too."""
    for folder in (project, project / "fuzz"):
        subprocess.run(["cargo", "update", "--quiet", "--workspace", "--offline"], cwd=folder, check=True)


def cut(project: Path, today: datetime.date) -> None:
    """Date the newest section of the changelog."""
    newest, changelog = _newest(project), project / "CHANGELOG.md"
    if newest["date"] != UNRELEASED:
        raise VersionError(f"CHANGELOG.md: {newest['version']} is released already: make version VERSION=...")
    text = changelog.read_text(encoding="utf-8")
    heading = f"## {newest['version']} ({today.isoformat()})"
    changelog.write_text(text[: newest.start()] + heading + text[newest.end() :], encoding="utf-8")


def notes(project: Path) -> str:
    """Return the newest section of the changelog, for the page of the release."""
    text, newest = (project / "CHANGELOG.md").read_text(encoding="utf-8"), _newest(project)
    following = HEADING.search(text, newest.end())
    return text[newest.end() : following.start() if following else len(text)].strip() + "\n"


def is_cut(project: Path) -> bool:
    """Return whether the newest section of the changelog has a date."""
    return _newest(project)["date"] != UNRELEASED


def _newest(project: Path) -> re.Match[str]:
    newest = HEADING.search((project / "CHANGELOG.md").read_text(encoding="utf-8"))
    if newest is None:
        raise VersionError("CHANGELOG.md has no heading such as: ## 0.2.0 (unreleased)")
    return newest


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description="Set the version of all distributions.")
    parser.add_argument("version", nargs="?")
    parser.add_argument(
        "--cut", action="store_true", help='replace "(unreleased)" in CHANGELOG.md with the date of today'
    )
    parser.add_argument("--notes", action="store_true", help="print the newest section of CHANGELOG.md")
    chosen = parser.parse_args()
    try:
        if chosen.version:
            write(matrix.PROJECT, chosen.version)
            lock(matrix.PROJECT)
        version = check(matrix.PROJECT)
        if chosen.cut:
            cut(matrix.PROJECT, datetime.datetime.now(datetime.timezone.utc).date())
        print(notes(matrix.PROJECT) if chosen.notes else version)
    except VersionError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
