"""A virtual environment for each server under each interpreter, kept for the next survey.

It is in a folder named by the interpreter and its requirements, so that servers with the same requirements share it,
and a changed list is another folder. What pip installed at first stays: to have newer versions, name them, or remove
the folder. One that was not finished, because pip failed or was interrupted, is made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

from kirsch_bench.errors import UsageError
from kirsch_bench.processes import held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kirsch_bench.survey.interpreters import Interpreter

_INSTALL_SECONDS = 1800.0
"""gevent takes minutes to compile for PyPy."""

_MARK = "kirsch-survey.json"
_PIP = ("install", "--quiet", "--disable-pip-version-check", "--no-input")

_VERSIONS = """
import json
from importlib import metadata
print(json.dumps({each.metadata["Name"]: each.version for each in metadata.distributions() if each.metadata["Name"]}))
"""


class InstallError(Exception):
    """Raised if packages cannot be installed; the text is one line."""


class Venvs:
    """The virtual environments in a folder."""

    def __init__(self, folder: str = "") -> None:
        self.folder = os.path.abspath(folder or _default_folder())

    def is_ready(self, interpreter: Interpreter, requirements: tuple[str, ...]) -> bool:
        """Return whether the environment has all requirements."""
        return os.path.exists(os.path.join(self._place(interpreter, requirements), _MARK))

    def get(self, interpreter: Interpreter, requirements: tuple[str, ...], tell: Callable[[str], None]) -> str:
        """Return the interpreter of an environment that has the requirements; ``tell`` is called if it has to be made.

        Raises InstallError with pip's last word, UsageError if the folder cannot be written to.
        """
        place = self._place(interpreter, requirements)
        python = os.path.join(place, "bin", "python")
        try:
            os.makedirs(self.folder, exist_ok=True)
            with _locked(f"{place}.lock"):
                if not os.path.exists(os.path.join(place, _MARK)):
                    tell(f"installing {' '.join(requirements) or 'nothing'} for {interpreter.label}")
                    self._make(place, python, interpreter, requirements)
        except OSError as error:
            raise UsageError(f"--venvs: cannot write {self.folder}: {error.strerror}") from None
        return python

    def _make(self, place: str, python: str, interpreter: Interpreter, requirements: tuple[str, ...]) -> None:
        shutil.rmtree(place, ignore_errors=True)
        try:
            _run([interpreter.executable, "-m", "venv", place])
            if requirements:
                _run([python, "-m", "pip", *_PIP, *requirements])
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        with open(os.path.join(place, _MARK), "w", encoding="utf-8") as file:
            json.dump({"interpreter": interpreter.label, "requirements": requirements}, file)

    def _place(self, interpreter: Interpreter, requirements: tuple[str, ...]) -> str:
        text = json.dumps([interpreter.label, os.path.realpath(interpreter.prefix), sorted(requirements)])
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        first = re.sub(r"[^A-Za-z0-9]+.*", "", os.path.basename(requirements[0])) if requirements else "bare"
        return os.path.join(self.folder, f"{interpreter.slug}-{first.lower() or 'venv'}-{digest}")


def versions(python: str) -> dict[str, str]:
    """Return the versions of the packages in an environment, without installers; empty if unknown."""
    try:
        done = subprocess.run(  # noqa: S603 - whatever the survey names
            [python, "-I", "-c", _VERSIONS],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return {name: version for name, version in sorted(found.items()) if name not in ("pip", "setuptools", "wheel")}


def _default_folder() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "kirsch", "survey")


def _run(command: list[str]) -> None:
    """Run a command. Raises InstallError with the last line of its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    process = None
    try:
        with held():
            # In a new session, so that all its children, such as a compiler, can be ended.
            process = subprocess.Popen(  # noqa: S603 - whatever the survey names
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        output, _ = process.communicate(timeout=_INSTALL_SECONDS)
    except OSError as error:
        raise InstallError(f"{command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise InstallError(f"it was not installed within {_INSTALL_SECONDS:g} s") from None
    finally:
        if process is not None:
            _end(process)
    if process.returncode:
        raise InstallError(_last_error(output.decode(errors="replace")) or f"exit status {process.returncode}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process with all its children."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_error(output: str) -> str:
    """Return the most useful line: the last one with an error that is not pip's summary of it, else the last one."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in output.splitlines()]
    lines = [line for line in lines if line]
    missing = [line for line in lines if re.search(r"fatal error: \S+: No such file", line)]
    errors = [line for line in lines if line.startswith("ERROR: ")]
    last = (missing or errors or lines or [""])[-1]
    return last.removeprefix("ERROR: ").removeprefix("ERROR: ")[:300]


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """A context manager that locks an environment: one survey creates it, and the next one finds it."""
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
