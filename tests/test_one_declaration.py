"""One declaration makes a setting: a made-up one is added to a copy of the package, and found wherever settings are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kirsch
from kirsch.config.native import NativeConfig

PROJECT = Path(__file__).resolve().parent.parent
SCHEMA = Path("config", "schema.py")

DECLARATION = """
    brew_time = setting(
        "Time", "-B --brew-time", DURATION, "4m",
        "How long tea is brewed. Longer is stronger.",
        least=60, most=600, scope=PROGRAM,
    )  # fmt: skip
"""

APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"tea"]
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package ``kirsch`` that has the setting ``brew_time`` too, and with the application ``tea``."""
    folder = tmp_path_factory.mktemp("tea")
    installed = Path(kirsch.__file__).parent
    shutil.copytree(installed, folder / "kirsch", ignore=shutil.ignore_patterns("__pycache__", "_native*"))
    for library in installed.glob("_native*"):
        (folder / "kirsch" / library.name).symlink_to(library)
    declare(folder / "kirsch", DECLARATION)
    (folder / "tea.py").write_text(APP, encoding="utf-8")
    return folder


def declare(package: Path, declaration: str) -> None:
    """Add a declaration in front of the first one of its section."""
    text = (package / SCHEMA).read_text(encoding="utf-8")
    before, first, after = text.partition("\n    keep_alive = setting(")
    assert first
    (package / SCHEMA).write_text(before + declaration + first + after, encoding="utf-8")


def run(copy: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in the folder of the copy."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KIRSCH_")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env={**environment, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def shown(copy: Path, *words: str, **variables: str) -> list[str]:
    """Value and origin of the setting, as `kirsch check` shows them."""
    done = run(copy, "-m", "kirsch", "check", "--only", "settings", *words, "tea", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("brew_time")]
    return row[1:]


def test_a_declared_setting_has_flags_a_variable_a_key_and_a_default(copy: Path) -> None:
    assert shown(copy) == ["4m", "default"]
    assert shown(copy, "--brew-time", "90") == ["90", "--brew-time"]
    assert shown(copy, "-B5m") == ["5m", "-B"]
    assert shown(copy, KIRSCH_BREW_TIME="2m") == ["2m", "KIRSCH_BREW_TIME"]
    file = copy / "tea.toml"
    for text in ("brew-time = 120", 'brew_time = "2m"'):
        file.write_text(f"app = 'tea'\n{text}\n", encoding="utf-8")
        assert shown(copy, "-c", str(file))[1] == f"{file}:2"


@pytest.mark.parametrize(
    ("words", "variables", "message"),
    [
        (["--brew-time", "soon"], {}, "--brew-time: 'soon' is not a duration; write 90, 90s, 5m, 1h30m, 30d or 500ms"),
        (["-B", "1s"], {}, "-B: '1s' is too little; 60 is the least"),
        ([], {"KIRSCH_BREW_TIME": "1h"}, "KIRSCH_BREW_TIME: '1h' is too much; 600 is the most"),
        (["--brw-time", "1s"], {}, "there is no flag --brw-time; did you mean --brew-time?"),
    ],
)
def test_a_value_of_a_declared_setting_is_checked(
    words: list[str], variables: dict[str, str], message: str, copy: Path
) -> None:
    done = run(copy, "-m", "kirsch", "--check-config", *words, "tea", **variables)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"kirsch: {message}")


def test_a_key_of_a_declared_setting_is_checked_for_its_type(copy: Path) -> None:
    (copy / "wrong.toml").write_text("app = 'tea'\nbrew-time = true\n", encoding="utf-8")
    done = run(copy, "-m", "kirsch", "check", "-c", "wrong.toml")
    assert done.returncode == 2
    assert 'wrong.toml:2: brew-time is true, and a number of seconds or a string such as "30s"' in done.stderr


def test_a_declared_setting_is_an_argument_of_a_program_and_can_be_used(copy: Path) -> None:
    program = """
import json, kirsch, tea
from kirsch.config import sources

used = [kirsch.Server(tea.app)._options["brew_time"], kirsch.Server(tea.app, brew_time="5m")._options["brew_time"]]
used.append(sources.read(["tea", "--brew-time", "3m"], {}).brew_time)
for value in (30, "soon", None):
    try:
        kirsch.Server(tea.app, brew_time=value)
    except (TypeError, ValueError) as error:
        used.append(str(error))
print(json.dumps(used))
"""
    done = run(copy, "-c", program)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [
        240.0,
        300.0,
        180.0,
        "brew_time must be at least 60, and is 30",
        "brew_time: 'soon' is not a duration; write 90, 90s, 5m, 1h30m, 30d or 500ms",
        "brew_time must be float, and is None",
    ]


@pytest.mark.slow
def test_a_declared_setting_is_in_help_completion_and_the_manual(copy: Path) -> None:
    help_all = run(copy, "-m", "kirsch", "--help-all").stdout
    manual = run(copy, "-m", "kirsch", "man").stdout
    assert "  -B, --brew-time DURATION\n" in help_all
    assert "How long tea is brewed. Longer is stronger. [default 4m, 60 to 600;" in " ".join(help_all.split())
    assert "KIRSCH_BREW_TIME" in help_all
    assert r"\fB\-B\fR, \fB\-\-brew\-time\fR \fIDURATION\fR" in manual
    for shell, line in (
        ("bash", "-B|--brew-time) :; return ;;"),
        ("zsh", "'--brew-time=[How long tea is brewed]:DURATION:'"),
        ("fish", "-l brew-time -x -d 'How long tea is brewed'"),
    ):
        assert line in run(copy, "-m", "kirsch", "completion", shell).stdout


def test_a_declared_setting_is_in_the_reference_page_and_in_the_static_types(copy: Path, tmp_path: Path) -> None:
    """The script that writes both is run in a copy of its surroundings."""
    shutil.copytree(copy / "kirsch", tmp_path / "packages" / "kirsch" / "src" / "kirsch", symlinks=True)
    for name in ("scripts/settings_page.py", "docs/migrating.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    stale = run(tmp_path, "scripts/settings_page.py", "--check")
    assert stale.returncode == 1
    assert "packages/kirsch/src/kirsch/config/options.py is not fresh" in stale.stderr
    assert run(tmp_path, "scripts/settings_page.py").returncode == 0
    assert run(tmp_path, "scripts/settings_page.py", "--check").returncode == 0
    page = (tmp_path / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert (
        "### brew_time\n\n`-B DURATION`, `--brew-time DURATION`; `KIRSCH_BREW_TIME`; default `4m`; 60 to 600; "
        "also in programs (seconds)\n\nHow long tea is brewed. Longer is stronger.\n"
    ) in page
    types = (tmp_path / "packages" / "kirsch" / "src" / "kirsch" / "config" / "options.py").read_text(encoding="utf-8")
    assert "\n    brew_time: float | str\n" in types


def test_a_setting_of_the_engine_that_the_engine_does_not_read_is_refused(copy: Path, tmp_path: Path) -> None:
    """A declaration with the scope ENGINE asks for its use in Rust; without it no server starts."""
    shutil.copytree(copy / "kirsch", tmp_path / "kirsch", symlinks=True)
    path = tmp_path / "kirsch" / SCHEMA
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("most=600, scope=PROGRAM", "most=600, scope=ENGINE"), encoding="utf-8")
    shutil.copy(copy / "tea.py", tmp_path)
    assert not hasattr(NativeConfig(), "brew_time")
    done = run(tmp_path, "-m", "kirsch", "--check-config", "tea")
    assert done.returncode != 0
    assert "the native server does not read brew_time of its configuration" in done.stderr
