"""``scripts/free_threaded_python.sh``: which sources it takes where an archive lacks those that its index names.

apt, its helper and make are stand-ins here: nothing is downloaded and nothing is compiled.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "free_threaded_python.sh"

STAND_INS = {
    # Has the sources of the versions in HAD, and names those in LISTED.
    "apt-get": """\
case "$*" in
*" source "*) version="${*##*=}"
    case " $HAD " in *" $version "*) cp "$TARBALL" "./python_$version.orig.tar.xz";;
    *) echo "E: Failed to fetch $version  404  Not Found" >&2; exit 100;; esac;;
esac
""",
    "apt-cache": """\
case "$*" in *python3.14) for version in $LISTED; do echo "Version: $version"; done;; esac
""",
    "apt-helper": """\
echo "$*" >>"$ASKED"
[ -n "$KNOWN_IS_THERE" ] || { echo "E: 404 $5" >&2; exit 100; }
while [ "$1" != download-file ]; do shift; done
cp "$TARBALL" "$3"
""",
    "make": """\
case "$*" in *install*) . ./asked
    mkdir -p "$prefix/bin"
    printf '#!/bin/sh\\necho installed\\n' >"$prefix/bin/python3"
    chmod +x "$prefix/bin/python3";;
esac
""",
    "cc": "",
}

CONFIGURE = """\
#!/bin/sh
for word in "$@"; do case "$word" in --prefix=*) echo "prefix=${word#--prefix=}" >asked;; esac; done
case "$*" in *--disable-gil*) ;; *) exit 1;; esac
"""


def run(folder: Path, *args: str, listed: str = "", had: str = "", known: str = "") -> subprocess.CompletedProcess[str]:
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}")
        (programs / name).chmod(0o755)
    with tarfile.open(folder / "sources.tar.xz", "w:xz") as tar:
        member = tarfile.TarInfo("Python/configure")
        member.mode, member.size = 0o755, len(CONFIGURE)
        tar.addfile(member, io.BytesIO(CONFIGURE.encode()))
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LISTED": listed,
        "HAD": had,
        "KNOWN_IS_THERE": known,
        "TARBALL": str(folder / "sources.tar.xz"),
        "ASKED": str(folder / "asked"),
        "APT_HELPER": str(programs / "apt-helper"),
        "KEYRING": str(SCRIPT),
        "SUITES": "sid",
    }
    return subprocess.run(
        ["bash", str(SCRIPT), *args],
        capture_output=True, text=True, timeout=110, check=False, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_the_newest_version_that_the_archive_still_has_is_built(tmp_path: Path) -> None:
    prefix = tmp_path / "python"
    done = run(tmp_path, str(prefix), listed="3.14.8-1 3.14.10-1 3.14.9-1", had="3.14.8-1 3.14.9-1")
    assert done.returncode == 0, done.stderr
    assert "python3.14 3.14.10-1 cannot be downloaded: E: Failed to fetch 3.14.10-1  404  Not Found" in done.stderr
    assert "building CPython python3.14 3.14.9-1 without the GIL" in done.stdout
    assert "3.14.8-1" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == ["installed", f"For the tests: PATH={prefix}/bin:$PATH make test-free"]


def test_a_release_that_is_known_by_its_checksum_is_built_where_the_archive_has_none(tmp_path: Path) -> None:
    done = run(tmp_path, str(tmp_path / "python"), listed="3.14.10-1", known="yes")
    assert done.returncode == 0, done.stderr
    assert "building CPython 3.14.4 from https://www.python.org/" in done.stdout
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert "SHA256:d923c51303e38e249136fc1bdf3568d56ecb03214efdef48516176d3d7faaef8" in asked


def test_without_any_sources_it_says_what_was_tried_and_installs_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, str(tmp_path / "python"), listed="3.14.10-1")
    assert done.returncode == 1
    assert "python3.14 3.14.10-1 cannot be downloaded" in done.stderr
    assert "http://archive.ubuntu.com/" in done.stderr
    assert "no sources of CPython 3.15 3.14 or 3.14.4 can be downloaded; see above" in done.stderr
    assert not (tmp_path / "python" / "bin").exists()


@pytest.mark.parametrize("args", [[], ["--help"], ["a", "b"]])
def test_a_wrong_command_line_shows_how_it_is_used(args: list[str], tmp_path: Path) -> None:
    done = run(tmp_path, *args)
    assert done.returncode == 2
    assert "scripts/free_threaded_python.sh PREFIX" in done.stderr


def test_a_python_that_is_there_is_left_alone(tmp_path: Path) -> None:
    prefix = tmp_path / "python"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python3").write_text("mine")
    done = run(tmp_path, str(prefix), listed="3.14.9-1", had="3.14.9-1")
    assert done.returncode == 1
    assert "there is a Python in" in done.stderr
    assert (prefix / "bin" / "python3").read_text() == "mine"
