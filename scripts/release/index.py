"""Writes a folder of wheels as a package index of files, for ``pip install --index-url file://FOLDER/simple``."""

from __future__ import annotations

import email.parser
import hashlib
import html
import re
import tarfile
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path) -> Path:
    """Write ``folder/simple`` for the distributions in ``folder``, and return it."""
    projects: dict[str, list[str]] = {}
    for file in sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")]):
        metadata = metadata_of(file)
        name = re.sub(r"[-_.]+", "-", metadata["Name"]).lower()
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        requires = html.escape(metadata.get("Requires-Python", ""), quote=True)
        link = f'<a href="../../{file.name}#sha256={digest}" data-requires-python="{requires}">{file.name}</a>'
        projects.setdefault(name, []).append(link)
    simple = folder / "simple"
    for name, links in projects.items():
        _write_page(simple / name / "index.html", links)
    _write_page(simple / "index.html", [f'<a href="{name}/">{name}</a>' for name in projects])
    return simple


def metadata_of(file: Path) -> dict[str, str]:
    """Return the fields of a distribution's metadata that have one value."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            text = archive.read(name)
    else:
        with tarfile.open(file) as archive:
            name = next(name for name in archive.getnames() if re.fullmatch(r"[^/]+/PKG-INFO", name))
            content = archive.extractfile(name)
            assert content is not None
            text = content.read()
    return dict(email.parser.BytesParser().parsebytes(text).items())


def _write_page(path: Path, links: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["<!DOCTYPE html>", "<html><body>", *(f"{link}<br>" for link in links), "</body></html>", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
