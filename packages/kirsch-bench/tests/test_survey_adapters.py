"""How each server is started, or why it is not."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from kirsch_bench.errors import UsageError
from kirsch_bench.survey import interpreters, spec, subjects
from kirsch_bench.survey.adapters import ADAPTERS, Launch
from kirsch_bench.survey.adapters.base import RUNTIME, Program
from kirsch_bench.survey.interpreters import Interpreter
from kirsch_bench.survey.venvs import InstallError, Venvs

RUNNING = sorted(name for name, each in ADAPTERS.items() if not each.absent and name != "command")
PYPY = Interpreter("/usr/bin/pypy3", "pypy", "PyPy 7.3.11 (3.9)", "/usr/lib/pypy")
OTHER = Interpreter("/opt/python3.99", "cpython", "CPython 3.99.0", "/opt")

# The adapters that a survey of application servers has at least.
NAMED = [
    "kirsch",
    "kirsch-gevent",
    "gunicorn",
    "gunicorn-gthread",
    "gunicorn-gevent",
    "uwsgi",
    "mod_wsgi",
    "granian",
    "bjoern",
    "fastpysgi",
    "cheroot",
    "cherrypy",
    "waitress",
    "gevent",
    "eventlet",
    "twisted",
    "tornado",
    "wsgiref",
    "uvicorn",
    "hypercorn",
    "flup",
    "cyclone",
    "fapws3",
    "picows",
    "mod_python",
]


def launch(tmp_path: Path, **changes: object) -> Launch:
    values = {
        "python": "/venv/bin/python",
        "host": "127.0.0.1",
        "port": 4711,
        "target": "survey_apps:hello",
        "page": "hello",
        "path": "/",
        "directory": str(tmp_path),
        "threads": 3,
        "workers": 1,
        "home": str(tmp_path),
        **changes,
    }
    return Launch(**values)  # type: ignore[arg-type]


def of_file(tmp_path: Path, server: str) -> spec.Survey:
    path = tmp_path / "survey.toml"
    path.write_text(f'[[scenario]]\nname = "hello"\n[[server]]\n{server}\n')
    return spec.read(str(path))


@pytest.mark.parametrize("name", NAMED)
def test_every_server_of_the_survey_has_an_adapter(name: str) -> None:
    assert ADAPTERS[name].absent or ADAPTERS[name].about


@pytest.mark.parametrize("name", RUNNING)
def test_a_command_says_where_to_listen_and_what_to_serve(name: str, tmp_path: Path) -> None:
    words = ADAPTERS[name].command(launch(tmp_path, extra=("--extra",)))
    # Web servers read the arguments from a file.
    told = " ".join([*words, *(path.read_text() for path in tmp_path.rglob("*") if path.is_file())])
    assert "4711" in told
    assert "127.0.0.1" in told
    assert "survey_apps" in told or "hello" in told or "Hello World!" in told
    assert "--extra" in told


def test_a_pair_is_two_commands_and_a_socket(tmp_path: Path) -> None:
    """Threads and workers are the application's, children are Apache's."""
    words = ADAPTERS["kirsch-fastcgi+apache"].command(launch(tmp_path, threads=7, workers=2, children=30))
    pair = json.loads(Path(words[-1]).read_text())
    back = " ".join(pair["back"])
    assert f"fastcgi:unix:{tmp_path}/back.sock" in back
    assert "--workers 2 --threads 7" in back
    configuration = (tmp_path / "apache.conf").read_text()
    assert f"unix:{pair['socket']}|fcgi://" in configuration
    assert re.findall(r"^(?:MaxRequestWorkers|StartServers) (\d+)$", configuration, re.M) == ["30", "30"]


def test_children_are_for_those_that_have_some(tmp_path: Path) -> None:
    of_file(tmp_path, 'adapter = "mod_php"\nchildren = 30')
    with pytest.raises(UsageError, match=r"survey.toml:5: children: *kirsch has no children|kirsch has no children"):
        of_file(tmp_path, 'adapter = "kirsch"\nchildren = 30')


@pytest.mark.parametrize("name", sorted(name for name in ADAPTERS if "+" in name))
def test_a_pair_names_the_programs_of_its_front(name: str) -> None:
    """Their processor time is reported apart from the application's."""
    front = {"apache": "apache2"}.get(name.partition("+")[2], name.partition("+")[2])
    assert front in ADAPTERS[name].front


def test_threads_and_workers_reach_the_command(tmp_path: Path) -> None:
    asked = launch(tmp_path, threads=7, workers=2)
    for name in ("gunicorn-gthread", "granian", "uwsgi", "mod_wsgi"):
        words = ADAPTERS[name].command(asked)
        assert "7" in words, name
        assert "2" in words, name
    assert ADAPTERS["kirsch"].command(asked)[-4:] == ["--workers", "2", "--threads", "7"]


@pytest.mark.parametrize("name", sorted(name for name, each in ADAPTERS.items() if each.absent))
def test_what_cannot_run_anywhere_keeps_its_row_and_says_why(name: str, tmp_path: Path) -> None:
    (candidate,) = subjects.candidates(of_file(tmp_path, f'adapter = "{name}"'), [])
    ready = subjects.prepare(candidate, Venvs(str(tmp_path)), lambda _: None)
    assert len(ready.subject.absent) > 20


def test_kirsch_is_the_one_that_runs_the_survey(tmp_path: Path) -> None:
    (candidate,) = subjects.candidates(of_file(tmp_path, 'adapter = "kirsch"'), [])
    assert not candidate.absent
    assert not candidate.in_venv
    ready = subjects.prepare(candidate, Venvs(str(tmp_path)), lambda _: None)
    assert ready.python == interpreters.ours().executable
    assert "kirsch" in ready.subject.versions


@pytest.mark.parametrize(
    ("interpreter", "why"), [(PYPY, "not under PyPy 7.3.11 (3.9): Kirsch's engine"), (OTHER, "name one by wheel")]
)
def test_kirsch_says_why_another_interpreter_has_none(
    interpreter: Interpreter, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "find", lambda _: interpreter)
    (candidate,) = subjects.candidates(of_file(tmp_path, 'adapter = "kirsch"'), ["x"])
    assert why in candidate.absent


def test_a_missing_program_is_told_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "find", lambda _: None)
    (candidate,) = subjects.candidates(of_file(tmp_path, 'adapter = "flup"'), [])
    assert candidate.absent == "lighttpd is not installed: apt-get install lighttpd"


def test_a_missing_header_is_told_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glob.glob", lambda _: [])
    (candidate,) = subjects.candidates(of_file(tmp_path, 'adapter = "bjoern"'), [])
    assert candidate.absent == "ev.h is missing, without which it cannot be built: apt-get install libev-dev"


@pytest.fixture
def serves_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where root runs the survey; all that it takes is installed."""
    mod_wsgi = dataclasses.replace(ADAPTERS["mod_wsgi"], becomes=lambda: "www-data", programs=(), headers=())
    monkeypatch.setitem(ADAPTERS, "mod_wsgi", mod_wsgi)


@pytest.mark.usefixtures("serves_as_another")
def test_a_server_that_cannot_enter_the_interpreter_takes_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    private = Interpreter("/x", "cpython", "CPython 3.13.0", str(closed / "python"))
    system = Interpreter("/usr/bin/python3", "cpython", "CPython 3.11.2", "/usr")
    monkeypatch.setattr(interpreters, "find", lambda _: private)
    monkeypatch.setattr(interpreters, "probe", lambda _: system)
    monkeypatch.setattr(subjects, "RUNTIME", "/usr/lib")
    (candidate,) = subjects.candidates(of_file(tmp_path, 'adapter = "mod_wsgi"'), ["3.13"])
    assert candidate.interpreter == system
    assert not candidate.absent
    # An interpreter that this user can enter is kept; if the system has none, the reason is reported.
    monkeypatch.setattr(interpreters, "probe", lambda _: private)
    (candidate,) = subjects.candidates(of_file(tmp_path, 'adapter = "mod_wsgi"'), ["3.13"])
    assert f"www-data, the user that serves if root starts it, cannot enter {closed}" in candidate.absent


@pytest.mark.usefixtures("serves_as_another")
def test_a_server_that_cannot_enter_the_environments_gets_its_own_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "venvs"
    closed.mkdir(mode=0o700)
    elsewhere: list[str] = []
    told: list[str] = []

    def get(self: Venvs, *_: object) -> str:
        elsewhere.append(self.folder)
        return "python"

    monkeypatch.setattr(Venvs, "get", get)
    candidate = subjects.Candidate(
        of_file(tmp_path, 'adapter = "mod_wsgi"').servers[0], interpreters.ours(), in_venv=True
    )
    subjects.prepare(candidate, Venvs(str(closed)), told.append)
    assert elsewhere == [subjects.OPEN_VENVS]
    assert f"{closed} is closed to www-data" in told[0]


def test_versions_and_requirements_of_the_file_are_installed(tmp_path: Path) -> None:
    survey = of_file(tmp_path, 'adapter = "gunicorn"\nversion = "23.0.0"\nrequirements = ["setproctitle"]')
    (candidate,) = subjects.candidates(survey, [])
    assert candidate.requirements == ("gunicorn==23.0.0", "setproctitle")


@pytest.mark.slow
def test_an_install_that_fails_is_a_row_with_pips_word(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing-1.0-py3-none-any.whl"
    (candidate,) = subjects.candidates(of_file(tmp_path, f'adapter = "wsgiref"\nrequirements = ["{nothing}"]'), [])
    told: list[str] = []
    ready = subjects.prepare(candidate, Venvs(str(tmp_path / "venvs")), told.append)
    assert ready.subject.absent.startswith("pip could not install it: ")
    assert "nothing-1.0" in ready.subject.absent
    assert "\n" not in ready.subject.absent
    assert told == [f"installing {nothing} for {interpreters.ours().label}"]
    # Nothing half-made is left to be taken for a whole one.
    assert not [each for each in (tmp_path / "venvs").iterdir() if each.is_dir()]


@pytest.mark.slow
def test_an_environment_is_made_once_and_used_again(tmp_path: Path) -> None:
    venvs = Venvs(str(tmp_path / "venvs"))
    told: list[str] = []
    first = venvs.get(interpreters.ours(), (), told.append)
    assert os.access(first, os.X_OK)
    assert venvs.is_ready(interpreters.ours(), ())
    assert venvs.get(interpreters.ours(), (), told.append) == first
    assert len(told) == 1
    assert not venvs.is_ready(interpreters.ours(), ("gunicorn",))


def test_an_interpreter_that_makes_no_environment_is_told(tmp_path: Path) -> None:
    broken = Interpreter("/bin/false", "cpython", "CPython 3.0", "/")
    with pytest.raises(InstallError, match="exit status 1"):
        Venvs(str(tmp_path)).get(broken, (), lambda _: None)


def test_what_runs_within_other_interpreters_is_old_python() -> None:
    import ast

    for path in Path(RUNTIME).glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
        imported = {
            name.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        }
        assert "kirsch" not in imported
