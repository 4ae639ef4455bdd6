"""``kirsch survey`` as a process, against servers with a chosen behaviour."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

STUB = Path(__file__).with_name("survey_stub.py")
HEAD = """\
[survey]
title = "Stubs"
seconds = 0.3
warmup = 0.1
cooldown = 0
idle = 0.1
patience = 1.5
"""
SCENARIO = '[[scenario]]\nname = "hello"\nload = "-c 4 --timeout 500ms"\n'

# The seconds that a survey of stubs may take on a loaded machine.
SECONDS = 100.0


@dataclass
class Folder:
    """A survey's file, where its results go, and the processes that it started."""

    path: Path

    def write(self, *hows: str, head: str = HEAD, scenario: str = SCENARIO) -> Folder:
        servers = (
            f'[[server]]\nadapter = "command"\nname = "{how}"\ncommand = {json.dumps(self._command(how))}\n'
            for how in hows
        )
        (self.path / "stubs.toml").write_text(head + scenario + "".join(servers))
        return self

    def _command(self, how: str) -> str:
        words = [sys.executable, str(STUB), how, "{host}", "{port}"]
        return shlex.join(words).replace("'{host}'", "{host}").replace("'{port}'", "{port}")

    def start(self, *args: str) -> subprocess.Popen[str]:
        """The survey as a running process, for a test to interrupt; its output comes through one pipe."""
        return subprocess.Popen(
            self.command(*args),
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "kirsch", "survey", "stubs.toml", "--venvs", str(self.path / "venvs"), *args]

    def run(self, *args: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*args),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def records(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The header and the rounds."""
        lines = (self.path / "stubs-results" / "rounds.jsonl").read_text().splitlines()
        header, *rounds = (json.loads(line) for line in lines)
        assert header["kind"] == "header"
        return header, rounds

    @property
    def environment(self) -> dict[str, str]:
        """All that the survey starts has a mark of this test in its environment."""
        return {**os.environ, "SURVEY_TEST": str(self.path)}

    def living(self) -> list[str]:
        """Return the processes that the survey has started and not ended."""
        mark = f"SURVEY_TEST={self.path}\0".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes() + b"\0":
                    found.append((process / "cmdline").read_text().replace("\0", " "))
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.slow
def test_two_servers_take_turns_and_all_of_it_is_recorded(folder: Folder) -> None:
    folder.write("ok", "forks")
    done = folder.run("--rounds", "2")
    header, rounds = folder.records()
    assert [each["server"] for each in header["subjects"]] == ["null", "ok", "forks"]
    assert sorted((each["server"], each["round"]) for each in rounds) == sorted(
        (server, number) for server in ("null", "ok", "forks") for number in (0, 1)
    )
    for each in rounds:
        assert not each["failure"]
        assert each["rate"] > 0
        assert each["requests"] > 0
        assert each["latency"]["99"] >= each["latency"]["50"] > 0
        assert each["histogram"]
        assert each["user"] + each["system"] > 0
        assert each["rss"] > 1 << 20
        assert each["threads"] >= 1
        assert each["startup"] >= each["first_request"] > 0
        assert each["switches"]["voluntary"] >= 0
        assert each["generator"]["used"] > 0
    # Idle once for each; a sample of what was answered, of all that was sent.
    assert sorted(each["server"] for each in rounds if each["idle"] is not None) == ["forks", "null", "ok"]
    sample = next(each["response"] for each in rounds if each["server"] == "ok")
    assert (sample["status"], sample["body"]) == (200, 12)
    fields = dict(sample["fields"])
    # The server ran where the header says.
    assert fields["X-Processors"] == ",".join(map(str, header["environment"]["processors"]["server"]))
    assert sample["head"] == len(
        f"HTTP/1.1 200 OK\r\nX-Processors: {fields['X-Processors']}\r\nContent-Length: 12\r\n\r\n"
    )
    # By the null server's rate of the same round the generator is judged.
    ceilings = {each["round"]: each["rate"] for each in rounds if each["server"] == "null"}
    assert all(each["generator"]["ceiling"] == ceilings[each["round"]] for each in rounds if each["server"] == "ok")
    assert "ok" in done.stdout
    assert (folder.path / "stubs-results" / "survey.html").exists()
    assert not folder.living()


@pytest.mark.slow
def test_servers_and_generator_have_processors_of_their_own(folder: Folder) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one processor")
    folder.write("ok")
    folder.run("--rounds", "1")
    processors = folder.records()[0]["environment"]["processors"]
    assert processors["server"]
    assert processors["generator"]
    assert not set(processors["server"]) & set(processors["generator"])


@pytest.mark.slow
def test_a_survey_that_was_interrupted_goes_on_where_it_was(folder: Folder) -> None:
    folder.write("ok", "stubborn")
    process = folder.start("--rounds", "3")
    try:
        path = folder.path / "stubs-results" / "rounds.jsonl"
        deadline = time.monotonic() + SECONDS
        while not path.exists() or path.read_bytes().count(b"\n") < 4:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, output
    assert "interrupted" in output
    assert "Traceback" not in output
    assert not folder.living()
    before = folder.records()[1]
    assert 3 <= len(before) < 9
    assert (folder.path / "stubs-results" / "survey.html").exists()

    done = folder.run("--rounds", "3")
    _, after = folder.records()
    assert f"{len(before)} of 9 rounds are there already" in done.stderr
    assert after[: len(before)] == before
    assert len({(each["server"], each["round"]) for each in after}) == len(after) == 9
    # Nothing is left, so nothing is measured.
    folder.run("--rounds", "3")
    assert folder.records()[1] == after
    assert not folder.living()


@pytest.mark.parametrize(
    ("how", "told", "classes"),
    [
        ("dies", "it ended with exit status 3 under the load", {"reset", "refused", "unanswered", "closed_early"}),
        ("stalls", "", {"timeout"}),
        ("turns", "", {"malformed"}),
        ("garbage", "it did not answer rightly within 1.5 s: what it answers is no HTTP: b'220 mail", None),
        ("error", "it did not answer rightly within 1.5 s: it answers 500", None),
        ("deaf", "it did not answer rightly within 1.5 s: nothing listens", None),
        (
            "breaks",
            "it ended with exit status 7 before it answered; its last words: survey_stub: cannot find the moon",
            None,
        ),
    ],
)
@pytest.mark.slow
def test_a_server_that_goes_wrong_is_told_as_what_it_is(
    folder: Folder, how: str, told: str, classes: set[str] | None
) -> None:
    scenario = SCENARIO.replace("500ms", "500ms --warmup 0s")
    folder.write(how, "ok", scenario=scenario).run("--rounds", "1", status=1)
    _, rounds = folder.records()
    (wrong,) = [each for each in rounds if each["server"] == how]
    (right,) = [each for each in rounds if each["server"] == "ok"]
    assert right["rate"] > 0
    assert not right["failure"]
    if told:
        assert wrong["failure"].startswith(told)
    if classes is None:
        assert wrong["requests"] == 0
    else:
        assert set(wrong["errors"]) & classes
    assert "\n" not in wrong["failure"]
    assert not folder.living()


@pytest.mark.slow
def test_however_early_it_is_interrupted_nothing_is_left_behind(folder: Folder) -> None:
    """A signal that comes while a server is being started must not lose sight of it."""
    folder.write("ok")
    for number in range(6):
        process = folder.start("--rounds", "3", "--again")
        try:
            path = folder.path / "stubs-results" / "rounds.jsonl"
            path.unlink(missing_ok=True)
            deadline = time.monotonic() + SECONDS
            while process.poll() is None and not path.exists():
                assert time.monotonic() < deadline
            # From here on servers are started; where in it the signal comes is left to chance.
            time.sleep(number / 400)
            process.send_signal([signal.SIGINT, signal.SIGTERM][number % 2])
            output, _ = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 130, output
        assert not folder.living()


@pytest.mark.slow
def test_a_server_that_never_comes_up_is_not_waited_for_again_and_again(folder: Folder) -> None:
    folder.write("breaks", "ok").run("--rounds", "4", status=1)
    wrong = [each for each in folder.records()[1] if each["server"] == "breaks"]
    wrong.sort(key=lambda each: each["round"])
    assert [each["failure"].startswith("not tried again: it ended") for each in wrong] == [False, False, True, True]


@pytest.mark.slow
def test_other_conditions_are_another_survey(folder: Folder) -> None:
    folder.write("ok").run("--rounds", "1")
    told = folder.run("--rounds", "1", "--seconds", "200ms", status=2).stderr
    assert told.count("\n") == 1
    assert "seconds was 0.3 and is 0.2; name another --out, or say --again to begin anew" in told
    folder.run("--rounds", "1", "--seconds", "200ms", "--again")
    assert folder.records()[0]["seconds"] == 0.2
    # More rounds and more servers go on.
    folder.write("ok", "forks").run("--rounds", "2", "--seconds", "200ms")
    assert len(folder.records()[1]) == 6


@pytest.mark.slow
def test_a_torn_line_is_measured_again_and_a_broken_one_is_told(folder: Folder) -> None:
    folder.write("ok").run("--rounds", "1")
    path = folder.path / "stubs-results" / "rounds.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert "its last line is torn" in folder.run("--rounds", "1").stderr
    assert len(folder.records()[1]) == 2
    path.write_bytes(whole.replace(b'{"kind":"round"', b'{"kind":"rund"', 1))
    assert "rounds.jsonl:2: this is no record of a survey; --again begins anew" in folder.run(status=2).stderr


@pytest.mark.slow
def test_only_some_servers_and_scenarios(folder: Folder) -> None:
    folder.write("ok", "forks", scenario=SCENARIO + SCENARIO.replace("hello", "again"))
    folder.run("--rounds", "1", "--only", "forks", "--scenario", "again")
    assert {(each["server"], each["scenario"]) for each in folder.records()[1]} == {
        ("null", "again"),
        ("forks", "again"),
    }
    told = folder.run("--only", "fork", status=2).stderr
    assert told == "kirsch survey: stubs.toml has no server fork; did you mean forks?\n"


@pytest.mark.slow
def test_an_aa_survey(folder: Folder) -> None:
    folder.write("ok").run("--rounds", "1", "--aa", "3")
    header, rounds = folder.records()
    assert [each["same_as"] for each in header["subjects"]] == ["", "ok", "ok", "ok"]
    assert {each["server"] for each in rounds} == {"null", "ok.1", "ok.2", "ok.3"}


def test_what_can_run_is_listed_without_installing_anything(folder: Folder) -> None:
    (folder.path / "stubs.toml").write_text(
        SCENARIO + '[[server]]\nadapter = "cyclone"\n[[server]]\nadapter = "gunicorn"\n[[server]]\nadapter = "kirsch"\n'
    )
    lines = folder.run("--list").stdout.splitlines()
    assert lines[0].split() == ["SERVER", "PYTHON", "ADAPTER", "CAN", "RUN"]
    assert "no: its last release" in lines[1]
    assert lines[2].endswith("yes, once pip has installed gunicorn")
    assert lines[3].endswith("yes")
    assert not (folder.path / "venvs").exists()
    assert not (folder.path / "stubs-results").exists()


@pytest.mark.slow
def test_the_report_is_written_anew_from_what_is_there(folder: Folder) -> None:
    folder.write("ok").run("--rounds", "1")
    page = folder.path / "stubs-results" / "survey.html"
    page.unlink()
    folder.run("--report")
    assert page.exists()
    assert "cannot read" in folder.run("--report", "--out", "nowhere", status=2).stderr


def test_nothing_that_can_run_is_a_failure_of_one_line(folder: Folder) -> None:
    (folder.path / "stubs.toml").write_text(SCENARIO + '[[server]]\nadapter = "picows"\n')
    told = folder.run(status=1).stderr.splitlines()
    assert told[0].startswith("picows takes no part: ")
    assert told[-1] == "kirsch survey: none of the servers can run here"


def test_a_folder_that_cannot_be_written_to(folder: Folder) -> None:
    folder.write("ok")
    (folder.path / "file").write_text("")
    told = folder.run("--out", "file/results", status=2).stderr
    assert told == "kirsch survey: --out: cannot write file/results: Not a directory\n"


@pytest.mark.slow
def test_a_full_disc_keeps_what_was_there(folder: Folder) -> None:
    folder.write("ok")
    words = shlex.join(folder.command("--rounds", "9"))
    # Files of 8 KiB at most: the header and a few rounds.
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 8; exec {words}"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=folder.path,
        env={**folder.environment, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 1
    assert "rounds.jsonl: File too large; what is there already is kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert 1 <= len(folder.records()[1]) < 18


def test_one_survey_at_a_time_in_a_folder(folder: Folder) -> None:
    import fcntl

    folder.write("ok")
    (folder.path / "stubs-results").mkdir()
    with open(folder.path / "stubs-results" / ".lock", "a", encoding="ascii") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another survey writes to stubs-results now" in folder.run(status=2).stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--rounds", "0"], "argument -r/--rounds: '0' is not a whole number from 1 to 1000"),
        (["--python", "9.99"], "--python 9.99: there is none on PATH and none in pyenv; name one by its path"),
        (["--python", "/bin/true"], "--python /bin/true: this is no Python"),
        (["--wat"], "unrecognized arguments: --wat; kirsch survey --help tells more"),
    ],
)
def test_a_wrong_command_line_is_one_line(folder: Folder, args: list[str], told: str) -> None:
    (folder.path / "stubs.toml").write_text(SCENARIO + '[[server]]\nadapter = "gunicorn"\n')
    lines = folder.run(*args, status=2).stderr.splitlines()
    assert len(lines) == 1
    assert told in lines[0]


@pytest.mark.slow
def test_help_and_the_example_are_answers(folder: Folder) -> None:
    (folder.path / "stubs.toml").write_text(folder.run("--example").stdout)
    assert "kirsch" in folder.run("--list").stdout
    assert "--venvs FOLDER" in folder.run("--help").stdout
