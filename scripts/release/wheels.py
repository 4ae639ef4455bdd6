"""Builds the wheels with a native part for every platform and interpreter, on one Linux machine.

    python -m release.wheels [--profile NAME] [--platforms 'NAME ...'] [--pythons 'VERSION ...'] [--out FOLDER]

zig is the linker and the C compiler: it knows the symbols of each version of glibc and musl, so that neither old
systems nor interpreters of the other platforms are needed. maturin knows the names and flags of each interpreter.
Prints a table of what was built, and fails if a wheel could not be built or needs more of its system than its name
says.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from release import archives, matrix
from release.inspection import Inspection, inspect

MISSING_TARGET = "rustc has no standard library for {target}: rustup target add {target}"


@dataclass
class Built:
    """A wheel, or the reason why there is none."""

    platform: str
    distribution: str
    python: str
    seconds: float
    wheel: Path | None
    inspection: Inspection | None
    error: str = ""


def main() -> int:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description="Build wheels for every platform and interpreter.")
    parser.add_argument("--platforms", default=" ".join(matrix.PLATFORMS), help="default: all")
    parser.add_argument("--pythons", default=" ".join(matrix.PYTHONS), help="default: all")
    parser.add_argument("--out", type=Path, default=matrix.PROJECT / "dist")
    parser.add_argument("--profile", default="release", help="cargo's; `testing` compiles faster")
    chosen = parser.parse_args()
    platforms, pythons = chosen.platforms.split(), tuple(chosen.pythons.split())
    if unknown := [name for name in platforms if name not in matrix.PLATFORMS]:
        parser.error(f"no platform {unknown[0]}: choose from {', '.join(matrix.PLATFORMS)}")
    return 0 if build(platforms, pythons, chosen.out, chosen.profile) else 1


def build(platforms: list[str], pythons: tuple[str, ...], out: Path, profile: str = "release") -> bool:
    """Build all wheels of ``platforms`` and ``pythons`` into ``out``, and return whether each could be built."""
    targets = [matrix.PLATFORMS[name].target for name in platforms]
    missing = [target for target in targets if not add_target(target)]
    for target in missing:
        print(f"Not built: {MISSING_TARGET.format(target=target)}")
    out.mkdir(parents=True, exist_ok=True)
    # The last step of each build, optimisation as a whole, has one thread.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        names = [name for name in platforms if matrix.PLATFORMS[name].target not in missing]
        done = [
            built
            for wheels in pool.map(lambda name: build_platform(name, pythons, out, profile), names)
            for built in wheels
        ]
    print_table(done)
    return not missing and all(built.wheel for built in done)


def add_target(target: str) -> bool:
    """Return whether rustc can compile for ``target``, after installing what it needs if rustup is there."""
    if shutil.which("rustup"):
        subprocess.run(["rustup", "--quiet", "target", "add", target], check=False, stderr=subprocess.DEVNULL)
    command = ["rustc", "--print", "target-libdir", "--target", target]
    folder = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return any(Path(folder).glob("libstd-*"))


def build_platform(name: str, pythons: tuple[str, ...], out: Path, profile: str) -> list[Built]:
    """Build the wheels of one platform, one after the other: they share most of what is compiled."""
    done = []
    for distribution in matrix.NATIVE:
        for python in matrix.builds_of(distribution, pythons):
            done.append(build_one(name, distribution, python, out, profile))
            print(line_of(done[-1]), flush=True)
    return done


def build_one(name: str, distribution: str, python: str, out: Path, profile: str) -> Built:
    """Build one wheel, and put it into ``out`` in a form that does not depend on this machine."""
    platform, begun = matrix.PLATFORMS[name], time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            *("maturin", "build", "--zig", "--profile", profile, "--locked", "--quiet"),
            *("--target", platform.target, "--compatibility", platform.tag, "--interpreter", python, "--out", scratch),
        ]
        if distribution in matrix.STABLE_ABI and not python.endswith("t"):
            command += ["--features", "abi3"]
        done = subprocess.run(
            command,
            cwd=matrix.PROJECT / "packages" / distribution,
            env=environment(name),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            lines = (done.stderr or done.stdout).strip().splitlines()
            return Built(name, distribution, python, time.monotonic() - begun, None, None, "\n".join(lines[-20:]))
        wheel = out / wheels[0].name
        archives.normalise(wheels[0], wheel, matrix.PROJECT, int(matrix.time_of_commit()))
    inspection = inspect(wheel)
    built = Built(name, distribution, python, time.monotonic() - begun, wheel, inspection)
    if inspection.problems:
        built.wheel, built.error = None, "; ".join(inspection.problems)
    return built


def environment(name: str) -> dict[str, str]:
    """Return the environment of a build: no path of this machine gets into the result."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    names = {str(matrix.PROJECT): ".", str(cargo): "cargo"}
    rust = " ".join(f"--remap-path-prefix={path}={short}" for path, short in names.items())
    c = " ".join(f"-ffile-prefix-map={path}={short}" for path, short in names.items())
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYO3_", "CARGO_BUILD_"))}
    return {
        **variables,
        # maturin looks for the module `ziglang` of the first Python on PATH.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "CARGO_TARGET_DIR": str(matrix.PROJECT / "target" / "wheels" / name),
        "SOURCE_DATE_EPOCH": matrix.time_of_commit(),
        "RUSTFLAGS": rust,
        "CFLAGS": c,
    }


def line_of(built: Built) -> str:
    """Return one line about a wheel."""
    where = f"{built.platform:18} {built.distribution:13} {built.python:6} {built.seconds:5.0f} s"
    if built.inspection is None or built.wheel is None:
        return f"{where}  NOT BUILT: {built.error}"
    seen = built.inspection
    return f"{where} {seen.bytes / 2**20:5.2f} MiB ({seen.library_bytes / 2**20:.1f} unpacked)  {seen.policy}"


def print_table(done: list[Built]) -> None:
    """Print what was built, and each symbol that the libraries export."""
    print()
    for built in done:
        print(line_of(built))
    exported = sorted({name for built in done if built.inspection for name in built.inspection.exported})
    print(f"Exported symbols of all libraries: {', '.join(exported) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
