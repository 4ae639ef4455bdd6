"""The content of each distribution of this repository, and the command ``kirsch`` without the others."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kirsch
import kirsch_bench
from kirsch import commands

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from types import ModuleType

PROJECT = Path(__file__).resolve().parent.parent
PATIENCE = 60.0
BENCH = {"bench", "survey", "profile"}
HINT = "kirsch: kirsch {} is not installed for this Python: pip install 'kirsch[bench]'\n"

PLUGIN = """\
from kirsch.commands import Command
from kirsch.config.setting import UsageError

GREET = Command("Greet those who are named.", "greeting")


def main(argv):
    if not argv:
        raise UsageError("whom?")
    print(*argv)
    return 7
"""


class Site:
    """A folder as ``site-packages``, on the path of an interpreter that sees no other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def link(self, distribution: str) -> None:
        """Put an installed distribution there."""
        found = importlib.metadata.distribution(distribution)
        tops = {file.parts[0] for file in found.files or () if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            (self.folder / top).symlink_to(str(found.locate_file(top)))

    def plugin(self, name: str, entry_points: str, source: str = "") -> None:
        """Put a distribution there that adds commands."""
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[kirsch.commands]\n{entry_points}\n")
        if source:
            (self.folder / f"{name}.py").write_text(source)

    def python(self, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", *args],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd=cwd or self.folder.parent,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
        )

    def kirsch(self, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "kirsch", *args, cwd=cwd)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """With the server alone."""
    site = Site(tmp_path / "site")
    site.link("kirsch")
    if sys.version_info < (3, 11):
        site.link("tomli")
    return site


@pytest.mark.parametrize("name", sorted(BENCH))
def test_command_of_a_missing_distribution_says_what_to_install(name: str, site: Site) -> None:
    for args in ([name], [name, "--help"], ["help", name], [name, "hello:app", "/"]):
        done = site.kirsch(*args)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", HINT.format(name))


def test_server_alone_says_in_its_help_what_can_be_added(site: Site) -> None:
    short, long, page = (site.kirsch(*args) for args in (["--help"], ["--help-all"], ["man"]))
    usage = " ".join(short.stdout.partition("\n\n")[0].split())
    assert usage.endswith("kirsch check|certificates|dev-cert|top|quarantine|adopt|static| completion|man|help ..."), (
        usage
    )
    for done in (long, page):
        assert (done.returncode, done.stderr) == (0, "")
        shown = " ".join(done.stdout.replace(r"\(aq", "'").split())
        assert "More commands, bench, survey, profile, come with: pip install 'kirsch[bench]'" in shown


def test_server_alone_completes_its_own_commands(site: Site) -> None:
    for shell in ("bash", "zsh", "fish"):
        done = site.kirsch("completion", shell)
        assert (done.returncode, done.stderr) == (0, "")
        assert "completion" in done.stdout
        assert "survey" not in done.stdout


def test_server_alone_checks_an_application(site: Site, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("def app(environ, start_response): ...\n")
    assert site.kirsch("--check-config", "hello:app").stdout == "hello:app is ok\n"


def test_package_runs_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kirsch_bench", "--help"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: kirsch bench")


@pytest.mark.slow
def test_commands_appear_with_their_distribution(site: Site) -> None:
    site.link("kirsch-bench")
    for name in sorted(BENCH):
        done = site.kirsch("help", name)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"usage: kirsch {name}")
        assert f".B kirsch {name}" in site.kirsch("man").stdout
    assert "--connections" in site.kirsch("completion", "bash").stdout
    usage = site.kirsch("help").stdout.split("\n\n", 1)[0].splitlines()
    assert (
        "".join(line.strip() for line in usage[1:])
        == "kirsch check|certificates|dev-cert|top|quarantine|adopt|static|completion|man|bench|profile|survey|help ..."
    )
    assert all(len(line) <= 80 for line in usage)
    assert "More commands" not in site.kirsch("help", "all").stdout


# ------------------------------------------------------------------------------------------------------------- plug-ins


def test_any_distribution_can_add_a_command(site: Site) -> None:
    site.plugin("greeting", "greet = greeting:GREET", PLUGIN)
    done = site.kirsch("greet", "you", "all")
    assert (done.returncode, done.stdout, done.stderr) == (7, "you all\n", "")
    done = site.kirsch("greet")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "kirsch: whom?\n")
    assert "Greet those who are named." in site.kirsch("help", "all").stdout
    assert "did you mean `kirsch greet`?" in site.kirsch("gret", "you").stderr


def test_application_is_served_although_a_command_has_its_name(site: Site, tmp_path: Path) -> None:
    site.plugin("greeting", "shop = greeting:GREET", PLUGIN)
    (tmp_path / "shop.py").write_text("def app(environ, start_response): ...\n")
    assert site.kirsch("shop", "--check-config").stdout == "shop:app is ok\n"
    (tmp_path / "elsewhere" / "shop").mkdir(parents=True)  # a folder is no application
    assert site.kirsch("shop", "you", cwd=tmp_path / "elsewhere").stdout == "you\n"


@pytest.mark.parametrize(
    ("entry_point", "source", "problem"),
    [
        ("greeting:GREET", "import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("greeting:main", PLUGIN, "greeting:main is not a kirsch.commands.Command"),
        ("greeting:NOTHING", PLUGIN, "AttributeError: module 'greeting' has no attribute 'NOTHING'"),
    ],
)
def test_command_that_cannot_be_loaded_breaks_no_other(entry_point: str, source: str, problem: str, site: Site) -> None:
    site.plugin("greeting", f"greet = {entry_point}", source)
    done = site.kirsch("greet")
    line = f"kirsch: the command greet of greeting cannot be loaded: {problem}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    shown = site.kirsch("--help-all")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert problem in " ".join(shown.stdout.split())
    for shell in ("bash", "fish"):
        assert site.kirsch("completion", shell).returncode == 0


def test_commands_of_the_server_cannot_be_replaced(site: Site) -> None:
    site.plugin("greeting", "check = greeting:GREET\nhelp = greeting:GREET", PLUGIN)
    assert site.kirsch("check", "--help").stdout.startswith("usage: kirsch check")
    assert site.kirsch("help").stdout.startswith("usage: kirsch ")


@pytest.mark.parametrize("target", ["hello:app", "hello", "hello.py"])
def test_serving_reads_no_entry_points(target: str, site: Site, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("def app(environ, start_response): ...\n")
    code = (
        "import sys; from kirsch.commands import cli; "
        f"status = cli.main([{target!r}, '--check-config']); "
        "print(status, 'importlib.metadata' in sys.modules)"
    )
    done = site.python("-c", code)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr


# -------------------------------------------------------------------------------------------------------- distributions


def test_versions_agree() -> None:
    version = tomllib.loads((PROJECT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    assert kirsch.__version__ == kirsch_bench.__version__ == version
    server = importlib.metadata.metadata("kirsch")
    assert f'kirsch-bench=={version} ; extra == "bench"' in _normalized(server.get_all("Requires-Dist") or [])
    bench = importlib.metadata.metadata("kirsch-bench")
    assert bench.get_all("Requires-Dist") == [f"kirsch=={version}"]


def _normalized(requirements: list[str]) -> set[str]:
    return {re.sub(r"\s*;\s*", " ; ", each).replace("'", '"') for each in requirements}


def test_each_distribution_has_readme_and_tests_of_its_own() -> None:
    for manifest in (PROJECT / "packages").glob("*/pyproject.toml"):
        folder = manifest.parent
        assert (folder / "README.md").is_file(), folder
        assert folder.name == "kirsch" or list((folder / "tests").glob("test_*.py")), folder


def _has_histograms(package: ModuleType) -> bool:
    """Return whether the load generator is in a package's native module, by what the head of its logs says."""
    (path,) = Path(str(package.__file__)).parent.glob("_native*.so")
    return b"Histogram log format" in path.read_bytes()


def test_wheel_of_the_server_holds_the_server_alone() -> None:
    files = {str(file) for file in importlib.metadata.files("kirsch") or ()}
    assert any(file.startswith("kirsch/_native.") for file in files)
    assert any(file.endswith("share/man/man1/kirsch.1") for file in files)
    assert not [file for file in files if re.match(r"kirsch/(?:bench|survey)/|kirsch/profile/report|kirsch_", file)]
    assert not _has_histograms(kirsch)
    assert _has_histograms(kirsch_bench)


def test_wheel_of_the_tools_holds_no_server() -> None:
    files = {str(file) for file in importlib.metadata.files("kirsch-bench") or ()}
    tops = {file.split("/")[0] for file in files}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kirsch_bench"}
    assert any(file.startswith("kirsch_bench/_native.") for file in files)
    assert {"kirsch_bench/survey/runtime/survey_apps.py", "kirsch_bench/py.typed"} <= files


def test_every_extra_command_is_one_of_the_tools() -> None:
    assert set(commands.EXTRAS) == BENCH
    assert commands.installed().keys() >= BENCH
    extras = importlib.metadata.metadata("kirsch").get_all("Provides-Extra") or []
    assert set(commands.EXTRAS.values()) <= set(extras)
