"""Interpreters to survey: found by path, by version (on PATH, in pyenv) or by name."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

from kirsch_bench.errors import UsageError

_PROBE = """
import json, platform, sys
found = sys.implementation
version = platform.python_version()
if found.name == "pypy":
    version = "%d.%d.%d (%d.%d)" % (sys.pypy_version_info[:3] + sys.version_info[:2])
label = platform.python_implementation() + " " + version
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    label += " free-threaded"
print(json.dumps({"implementation": found.name, "prefix": sys.base_prefix, "label": label}))
"""

_PROBE_SECONDS = 30.0


@dataclass(frozen=True)
class Interpreter:
    """A working interpreter."""

    executable: str
    implementation: str
    """``cpython``, ``pypy``."""
    label: str
    """``CPython 3.13.0``, ``PyPy 7.3.11 (3.9)``."""
    prefix: str
    """The folder of the installation: two virtual environments of one interpreter have this in common."""

    @property
    def is_ours(self) -> bool:
        """Return whether this interpreter runs the survey, and so has the Kirsch that runs it."""
        return os.path.realpath(self.prefix) == os.path.realpath(sys.base_prefix) and (
            self.label == probe(sys.executable).label
        )

    @property
    def slug(self) -> str:
        """The label in a form for folder names."""
        return re.sub(r"[^a-z0-9.]+", "-", self.label.lower()).strip("-")


_probed: dict[str, Interpreter] = {}


def probe(path: str) -> Interpreter:
    """Run an interpreter to get its properties. Raises UsageError if it does not work."""
    if path not in _probed:
        try:
            done = subprocess.run(  # noqa: S603 - whatever the survey names
                [path, "-c", _PROBE],
                capture_output=True,
                text=True,
                timeout=_PROBE_SECONDS,
                check=True,
                stdin=subprocess.DEVNULL,
            )
            found = json.loads(done.stdout)
        except OSError as error:
            raise UsageError(f"--python {path}: {error.strerror}") from None
        except subprocess.SubprocessError as error:
            output = (getattr(error, "stderr", "") or "").strip().splitlines()
            why = f": {output[-1]}" if output else ""
            raise UsageError(f"--python {path}: it does not run{why}") from None
        except ValueError:
            raise UsageError(f"--python {path}: this is no Python") from None
        _probed[path] = Interpreter(path, found["implementation"], found["label"], found["prefix"])
    return _probed[path]


def find(name: str) -> Interpreter:
    """Find an interpreter by ``3.13``, ``python3.13``, ``pypy3`` or a path. Raises UsageError if there is none."""
    if os.sep in name:
        return probe(os.path.abspath(os.path.expanduser(name)))
    version = re.fullmatch(r"(?:python|cpython)?-?(\d+(?:\.\d+){0,2}t?)", name, re.IGNORECASE)
    wanted = version[1] if version else name
    for candidate in _candidates(wanted, bool(version)):
        try:
            found = probe(candidate)
        except UsageError:
            # pyenv's shims are on PATH even for versions that are not activated.
            continue
        if not version or _has_version(found, wanted):
            return found
    raise UsageError(
        f"--python {name}: there is none on PATH{' and none in pyenv' if version else ''}; name one by its path"
    )


def ours() -> Interpreter:
    """Return the interpreter that runs this process."""
    return probe(sys.executable)


def _candidates(wanted: str, is_version: bool) -> list[str]:
    if not is_version:
        found = [shutil.which(wanted), *_pyenv(f"{wanted}*")]
    else:
        minor = ".".join(wanted.split(".")[:2])
        found = [
            sys.executable,
            shutil.which(f"python{minor}"),
            *_pyenv(f"{wanted.rstrip('t')}*"),
            shutil.which("python3"),
        ]
    return [path for path in found if path]


def _pyenv(pattern: str) -> list[str]:
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    return sorted(glob.glob(os.path.join(root, "versions", pattern, "bin", "python3")), reverse=True)


def _has_version(found: Interpreter, wanted: str) -> bool:
    free_threaded = found.label.endswith("free-threaded")
    version = found.label.split()[1]
    number = wanted.rstrip("t")
    is_version = version == number or version.startswith(f"{number}.")
    return found.implementation == "cpython" and is_version and free_threaded == wanted.endswith("t")
