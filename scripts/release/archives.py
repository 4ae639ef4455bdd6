"""Writes archives whose bytes depend on the sources alone, so that everyone can build the same."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def normalise(wheel: Path, result: Path, project: Path, seconds: int) -> None:
    """Copy ``wheel`` to ``result`` without what differs between two builds: times, order, and paths in its SBOM."""
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    for name, content in files.items():
        if "/sboms/" in name and name.endswith(".json"):
            files[name] = normalise_sbom(content, wheel.name, project, seconds)
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    files[record] = _record_of(files, record)
    # As wheels want it, with RECORD last.
    names = sorted(files, key=lambda name: (".dist-info/" in name, name == record, name))
    moment = max(time.gmtime(seconds)[:6], (1980, 1, 1, 0, 0, 0))
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in names:
            entry = zipfile.ZipInfo(name, moment)
            entry.external_attr = (0o100755 if modes[name] & 0o111 else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whose modes these are
            archive.writestr(entry, files[name])


def normalise_sbom(content: bytes, name: str, project: Path, seconds: int) -> bytes:
    """Return a CycloneDX document without the folder of the build, and with an identity that ``name`` determines."""
    text = content.decode().replace(f"file://{project}/", "file:///")
    document = json.loads(text)
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, f"https://kirsch.invalid/{name}").urn
    document["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    return json.dumps(document, indent=2).encode()


def _record_of(files: dict[str, bytes], record: str) -> bytes:
    lines = []
    for name, content in sorted(files.items()):
        if name != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{record},,\n"]).encode()
