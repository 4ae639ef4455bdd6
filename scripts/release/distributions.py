"""Makes all files of a release from the commit that is checked out: `make release`.

    python -m release.distributions [--rehearsal] [--profile NAME] [--platforms ...] [--pythons ...] [--out FOLDER]

The folder then holds the wheels and source distributions of all packages, `sbom/*.cdx.json` (CycloneDX: the crates and
the Python packages), `RELEASE_NOTES.md`, `SHA256SUMS`, and `simple`, an index for pip. Nothing is uploaded. A rehearsal
may be made with changes that are not committed, and before the changelog is cut.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from release import archives, index, matrix, version, wheels
from release.version import VersionError


def main() -> int:
    """Make the release that the command line asks for."""
    parser = argparse.ArgumentParser(description="Make all files of a release.")
    parser.add_argument("--rehearsal", action="store_true", help="allow changes and a changelog that is not cut")
    parser.add_argument("--platforms", default=" ".join(matrix.PLATFORMS), help="default: all")
    parser.add_argument("--pythons", default=" ".join(matrix.PYTHONS), help="default: all")
    parser.add_argument("--out", type=Path, default=matrix.PROJECT / "dist")
    parser.add_argument("--profile", default="release", help="cargo's; a rehearsal may take `testing`")
    chosen = parser.parse_args()
    try:
        number = version.check(matrix.PROJECT)
        if not chosen.rehearsal:
            require_final()
    except VersionError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(chosen.out, ignore_errors=True)
    whole = wheels.build(chosen.platforms.split(), tuple(chosen.pythons.split()), chosen.out, chosen.profile)
    make_sources(chosen.out)
    make_sboms(chosen.out, number)
    (chosen.out / "RELEASE_NOTES.md").write_text(version.notes(matrix.PROJECT), encoding="utf-8")
    write_checksums(chosen.out)
    index.write(chosen.out)
    run("twine", "check", "--strict", *files_of(chosen.out))
    print(f"Version {number}: {len(files_of(chosen.out))} distributions in {chosen.out}")
    return 0 if whole else 1


def require_final() -> None:
    """Raise ``VersionError`` unless the commit that is checked out is what users shall get."""
    command = ["git", "-C", str(matrix.PROJECT), "status", "--porcelain"]
    if subprocess.run(command, check=True, capture_output=True, text=True).stdout:
        raise VersionError("there are changes that are not committed: commit them, or make release REHEARSAL=1")
    if not version.is_cut(matrix.PROJECT):
        raise VersionError("CHANGELOG.md still says unreleased: make cut, and commit, or make release REHEARSAL=1")


def make_sources(out: Path) -> None:
    """Build the source distributions, and the wheels of the packages without a native part."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": matrix.time_of_commit()}
    for name in matrix.NATIVE:
        folder = matrix.PROJECT / "packages" / name
        run("maturin", "sdist", "--out", str(out), cwd=folder, environment=environment)
    for name in matrix.PURE:
        run("build", "--outdir", str(out), str(matrix.PROJECT / "packages" / name), environment=environment)


def make_sboms(out: Path, number: str) -> None:
    """Write what is in the compiled parts, and which Python packages an installation of all distributions has."""
    folder = out / "sbom"
    folder.mkdir(exist_ok=True)
    for name in matrix.NATIVE:
        wheel = min(out.glob(f"{name.replace('-', '_')}-{number}-*.whl"), default=None)
        if wheel is None:
            continue
        with zipfile.ZipFile(wheel) as archive:
            (inside,) = (path for path in archive.namelist() if "/sboms/" in path)
            (folder / f"{name}-{number}.crates.cdx.json").write_bytes(archive.read(inside))
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=False)
        python = f"{scratch}/bin/python"
        # Without what is compiled: whichever wheel there is, the packages are the same. By name, so no path is noted.
        options = ("--quiet", "--disable-pip-version-check", "--no-index", "--find-links", str(out))
        run("pip", "--python", python, "install", *options, *matrix.PURE)
        result = folder / f"kirsch-{number}.python.cdx.json"
        run("cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON", "-o", str(result), python)
        content = archives.normalise_sbom(
            result.read_bytes(), result.name, matrix.PROJECT, int(matrix.time_of_commit())
        )
        result.write_bytes(content.replace(scratch.encode(), b"."))


def write_checksums(out: Path) -> None:
    """Write the file that `sha256sum --check` reads."""
    paths = [Path(name) for name in files_of(out)] + sorted((out / "sbom").iterdir())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in paths]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def files_of(out: Path) -> list[str]:
    """Return the distributions in a folder."""
    return [str(path) for path in sorted([*out.glob("*.whl"), *out.glob("*.tar.gz")])]


def run(
    module: str,
    *args: str,
    cwd: Path = matrix.PROJECT,
    environment: dict[str, str] | None = None,
) -> None:
    """Run a tool of an environment; its failure ends this program."""
    done = subprocess.run(
        [sys.executable, "-m", module, *args],
        cwd=cwd,
        env=environment or dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"release: {module} {args[0]} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
