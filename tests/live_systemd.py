"""A systemd of our own: a user manager in a control group and with a /run of its own, which runs nothing but our units.

It needs root, to make those; a machine that systemd has not booted, where no process manages the control groups; and
systemd itself. Elsewhere :func:`missing` says what is not there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from proc import wait_until

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_MANAGER = Path("/usr/lib/systemd/systemd")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")

# The manager refuses to run where this directory is not.
_BEGIN = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec {manager} --user --unit=default.target"


def missing() -> str:
    """Why there can be none here; empty where there can."""
    if Path("/run/systemd/system").exists():
        return "systemd has booted this machine, and its control groups are not ours"
    for program in ("systemctl", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed (tests/system_packages.sh installs it where it may)"
    if not _MANAGER.exists():
        return "systemd is not installed (tests/system_packages.sh installs it where it may)"
    if os.geteuid() != 0:
        return "only root may give systemd a control group and a /run"
    name = f"kirsch-probe-{os.getpid()}"
    try:
        for root in _roots():
            (root / name).mkdir()
            (root / name).rmdir()
        subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/run"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no control group, or no /run, can be made here: {error}"
    return ""


def _roots() -> list[Path]:
    """The hierarchies that systemd looks at: one of its own beside those of version 1, or all in version 2."""
    found = [_CONTROL_GROUPS / name for name in ("systemd", "unified") if (_CONTROL_GROUPS / name).is_dir()]
    return found or [_CONTROL_GROUPS]


class Systemd:
    """For the time of a ``with`` block."""

    def __init__(self, folder: Path) -> None:
        self.units = folder / "units"
        self.units.mkdir()
        for target in ("basic", "default"):
            self.unit(f"{target}.target", f"[Unit]\nDescription={target}\n")
        # A socket's path has to be short.
        self._runtime = tempfile.mkdtemp(prefix="kirsch-")
        self._groups = [root / Path(self._runtime).name for root in _roots()]
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KIRSCH_")},
            "XDG_RUNTIME_DIR": self._runtime,
            "SYSTEMD_UNIT_PATH": str(self.units),
        }

    def unit(self, name: str, text: str) -> None:
        (self.units / name).write_text(text)

    def ctl(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["systemctl", "--user", *arguments],
            env=self._environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def property(self, unit: str, name: str) -> str:
        return self.ctl("show", unit, "--property", name, "--value").strip()

    def wait_for(self, unit: str, name: str, value: str) -> None:
        wait_until(lambda: self.property(unit, name) == value, f"{name} of {unit} is {value}", timeout=20)

    def __enter__(self) -> Self:
        for group in self._groups:
            group.mkdir()
        enter = " && ".join(f"echo $$ > {group}/cgroup.procs" for group in self._groups)
        self._process = subprocess.Popen(
            ["sh", "-c", f"{enter} && exec unshare --mount sh -c '{_BEGIN.format(manager=_MANAGER)}'"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
        )
        wait_until((Path(self._runtime) / "systemd" / "private").exists, "systemd listens", timeout=20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            self.ctl("stop", "*.socket", "*.service", check=False)
        # The manager's immediate exit (systemd(1)): of what it might ask units for, we have none.
        self._process.send_signal(signal.SIGRTMIN + 24)
        self._process.wait(20)
        for group in self._groups:
            for path in [*group.rglob("cgroup.procs"), group / "cgroup.procs"]:
                for pid in path.read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            folders = sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True)
            for folder in [*folders, group]:
                wait_until(lambda folder=folder: _is_removed(folder), f"{folder} is empty")  # type: ignore[misc]
        shutil.rmtree(self._runtime, ignore_errors=True)


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
