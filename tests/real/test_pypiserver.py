"""A package index (pypiserver): uploads as twine sends them, downloads and installs by the real pip."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import random
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import requests

    from running import Running, Serve

APP = """
    import os

    import pypiserver

    app = pypiserver.app(roots=[os.environ["PACKAGES"]], disable_fallback=True, password_file=".", authenticate=[])
"""

NAME = "kirsch_sample"
DATA_BYTES = 1_500_000


def wheel(version: str) -> tuple[str, bytes]:
    """The file name and the bytes of a pure wheel with one module and some incompressible data."""
    info = f"{NAME}-{version}.dist-info"
    files = {
        f"{NAME}/__init__.py": f'__version__ = "{version}"\n'.encode(),
        f"{NAME}/data.bin": random.Random(version).randbytes(DATA_BYTES),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return f"{NAME}-{version}-py3-none-any.whl", packed.getvalue()


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    return folder


@pytest.fixture
def index(serve: Serve, write_app: Callable[[str], str], packages: Path) -> Running:
    return serve(f"{write_app(APP)}:app", env={"PACKAGES": str(packages)})


def pip(command: str, index: Running, *args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run pip against ``index`` alone, whatever the machine's settings say."""
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(("PIP_", "PYTHON"))}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--isolated", "--no-cache-dir", "--disable-pip-version-check"),
            *(command, "--no-deps", "--index-url", f"{index.url}/simple/", *args),
        ],
        env={**inherited, "PIP_CONFIG_FILE": os.devnull, "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_download_with_pip(index: Running, packages: Path, tmp_path: Path) -> None:
    wheels = {version: wheel(version) for version in ("1.0", "1.1", "2.0")}
    for name, content in wheels.values():
        (packages / name).write_bytes(content)
    name, content = wheels["1.1"]

    run = pip("download", index, "--dest", tmp_path / "fetched", "kirsch-sample<2")
    assert run.returncode == 0, run.stdout + run.stderr
    # The index names each file's SHA-256, which pip has compared too.
    assert [path.name for path in (tmp_path / "fetched").iterdir()] == [name]
    assert (tmp_path / "fetched" / name).read_bytes() == content

    run = pip("download", index, "--dest", tmp_path / "none", "kirsch-sample==3")
    assert run.returncode == 1
    assert "No matching distribution found for kirsch-sample==3" in run.stderr


def test_upload_then_install_with_pip(
    index: Running, packages: Path, tmp_path: Path, browser: requests.Session
) -> None:
    name, content = wheel("1.2")
    # The fields that twine sends with a wheel, as multipart/form-data.
    fields = {
        ":action": "file_upload",
        "protocol_version": "1",
        "name": NAME,
        "version": "1.2",
        "filetype": "bdist_wheel",
        "pyversion": "py3",
        "metadata_version": "2.1",
        "sha256_digest": hashlib.sha256(content).hexdigest(),
    }
    answer = browser.post(
        index.url, data=fields, files={"content": (name, content, "application/octet-stream")}, timeout=30
    )
    assert answer.status_code == 200
    assert (packages / name).read_bytes() == content
    again = browser.post(
        index.url, data=fields, files={"content": (name, content, "application/octet-stream")}, timeout=30
    )
    assert again.status_code == 409

    run = pip("install", index, "--target", tmp_path / "site", "kirsch-sample")
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "site" / NAME / "__init__.py").read_text() == '__version__ = "1.2"\n'
    data = random.Random("1.2").randbytes(DATA_BYTES)
    assert (tmp_path / "site" / NAME / "data.bin").read_bytes() == data


def test_part_of_a_package(index: Running, packages: Path, browser: requests.Session) -> None:
    """Reads a wheel's metadata without all of the wheel, as pip does."""
    name, content = wheel("1.0")
    (packages / name).write_bytes(content)
    url = f"{index.url}/packages/{name}"
    head = browser.head(url, timeout=10)
    assert (head.status_code, head.headers["Content-Length"]) == (200, str(len(content)))
    tail = browser.get(url, headers={"Range": f"bytes={len(content) - 1000}-"}, timeout=10)
    assert (tail.status_code, tail.content) == (206, content[-1000:])
