"""Processors, turns and accounts of a survey, each for itself."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kirsch_bench.errors import UsageError
from kirsch_bench.processes import Server, Usage, Watch
from kirsch_bench.survey import interpreters, processors, rounds, runner, spec, subjects
from kirsch_bench.survey.venvs import Venvs

if TYPE_CHECKING:
    from pathlib import Path

MANY = """\
[survey]
rounds = 6
[[scenario]]
name = "a"
[[scenario]]
name = "b"
[[scenario]]
name = "c"
application = "stream"
[[server]]
adapter = "kirsch"
[[server]]
adapter = "kirsch"
name = "other"
skip = ["a"]
[[server]]
adapter = "nginx-static"
[[server]]
adapter = "picows"
"""

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not pin")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Processors as a test says: ``cores(monkeypatch, [[0, 2], [1, 3]])``."""
    return monkeypatch


def cores(monkeypatch: pytest.MonkeyPatch, of: list[list[int]]) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {number for core in of for number in core})
    monkeypatch.setattr(processors, "_cores", lambda _: of)


@needs_affinity
@pytest.mark.parametrize(
    ("of", "workers", "server", "generator"),
    [
        ([[0]], 1, (0,), (0,)),
        ([[0], [1]], 1, (0,), (1,)),
        ([[0], [1]], 8, (0,), (1,)),
        # One thread of each core.
        ([[0, 4], [1, 5], [2, 6], [3, 7]], 1, (0,), (1, 2)),
        ([[0, 4], [1, 5], [2, 6], [3, 7]], 3, (0, 1, 2), (3,)),
        # One core: its threads.
        ([[0, 1]], 1, (0,), (1,)),
    ],
)
def test_servers_and_generator_share_as_little_as_there_is(
    of: list[list[int]],
    workers: int,
    server: tuple[int, ...],
    generator: tuple[int, ...],
    machine: pytest.MonkeyPatch,
) -> None:
    cores(machine, of)
    chosen = processors.choose(None, workers)
    assert (chosen.server, chosen.generator) == (server, generator)
    assert bool(chosen.remark) == (len(of) == 1)


@needs_affinity
def test_processors_that_were_named(machine: pytest.MonkeyPatch) -> None:
    cores(machine, [[0], [1]])
    assert processors.choose({"server": (1,), "generator": (0,)}, 1).server == (1,)
    assert "share" in processors.choose({"server": (1,), "generator": (0, 1)}, 1).remark
    with pytest.raises(UsageError, match="7 is none of those usable here: 0, 1"):
        processors.choose({"server": (7,), "generator": (0,)}, 1)


@needs_affinity
def test_what_is_started_stays_where_it_was_put() -> None:
    usable = sorted(os.sched_getaffinity(0))
    pinned = processors.Processors((usable[-1],), (usable[0],))
    code = "import os; print(*os.sched_getaffinity(0))"
    with pinned.for_server():
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(usable[-1])]
    assert sorted(os.sched_getaffinity(0)) == usable


def ready(tmp_path: Path) -> tuple[spec.Survey, list[subjects.Ready]]:
    path = tmp_path / "survey.toml"
    path.write_text(MANY)
    survey = spec.read(str(path))
    venvs = Venvs(str(tmp_path / "venvs"))
    found = [subjects.prepare(each, venvs, lambda _: None) for each in subjects.candidates(survey, [])]
    return survey, [subjects.null(), *(each for each in found if each.subject.adapter != "nginx-static")]


def test_turns_are_shuffled_by_the_seed_and_all_there(tmp_path: Path) -> None:
    survey, subjects_ready = ready(tmp_path)
    keys = [turn.key for turn in rounds.turns(survey, subjects_ready)]
    assert keys == [turn.key for turn in rounds.turns(survey, subjects_ready)]
    assert len(set(keys)) == len(keys) == survey.rounds * (3 + 3 + 2)
    by_round = [[key[:3] for key in keys if key[3] == number] for number in range(survey.rounds)]
    assert len({tuple(each) for each in by_round}) > 1
    # Servers that cannot run or are skipped take no part; the null server begins each scenario.
    assert not any(key[0] == "picows" or (key[0] == "other" and key[2] == "a") for key in keys)
    for before, after in itertools.pairwise(keys):
        assert before[2:] == after[2:] or after[0] == spec.NULL


def test_a_server_is_asked_only_what_it_can_serve(tmp_path: Path) -> None:
    survey, _ = ready(tmp_path)
    static = next(each for each in subjects.candidates(survey, []) if each.server.adapter == "nginx-static")
    asked = subjects.Ready(subjects.null().subject, static)
    assert [each.record.name for each in survey.scenarios if asked.takes_part(each)] == ["a", "b"]


def test_usage_between_two_moments_is_told_from_samples_around_them() -> None:
    watch = Watch.__new__(Watch)
    watch.samples = [
        Usage(at=100.0, user=1.0, system=0.0),
        Usage(at=101.0, user=2.0, system=0.5, voluntary=100),
        Usage(at=102.0, user=3.0, system=1.0, voluntary=200),
        # It died: its account is gone with it.
        Usage(at=103.0, user=0.0, system=0.0),
    ]
    used = watch.between(100.5, 101.5)
    assert used.user == pytest.approx(1.0)
    assert used.system == pytest.approx(0.5)
    assert used.voluntary == 100
    assert watch.between(101.0, 103.0).user == pytest.approx(1.0)


def test_the_account_of_a_server_has_its_children_in_it(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    end = time.process_time() + 0.3\n"
        "    while time.process_time() < end:\n"
        "        pass\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print('done', flush=True)\n"
        "time.sleep(600)\n"
    )
    server = Server([sys.executable, str(program)], directory=str(tmp_path), environment=dict(os.environ))
    try:
        while "done" not in server.last_words:
            assert not server.ending
            assert server.age < 60
        used = server.usage()
        assert used.user + used.system >= 0.25
        memory = server.memory()
        assert memory.processes == 1
        assert memory.rss > 1 << 20
    finally:
        server.end()
    assert server.ending == "it died of SIGTERM"
    assert server.memory().processes == 0


@pytest.mark.parametrize(
    ("rate", "asked", "ceiling", "bound"),
    [(79.0, None, 100.0, False), (81.0, None, 100.0, True), (99.0, 99.0, 100.0, False), (81.0, None, None, False)],
)
def test_what_comes_near_the_null_servers_rate_is_the_generators(
    rate: float, asked: float | None, ceiling: float | None, bound: bool
) -> None:
    """Seed S3.6: from 80 % of the ceiling on. A rate that was asked for says nothing about a limit."""
    result: Any = SimpleNamespace(
        generator_troubles=[], generator_bound=False, processors=[{"used": 0.5}], rate=rate, rate_asked=asked
    )
    told = runner._generator(result, ceiling)
    assert told["bound"] == bound
    assert bool(told["troubles"]) == bound
    assert told["used"] == 0.5


def test_interpreters_are_found_by_version_name_and_path() -> None:
    version = "{}.{}".format(*sys.version_info[:2])
    free_threaded = "t" if interpreters.ours().label.endswith("free-threaded") else ""
    for name in (version + free_threaded, f"python{version}{free_threaded}", sys.executable):
        assert interpreters.find(name).label == interpreters.ours().label
    assert interpreters.find(sys.executable).is_ours
    with pytest.raises(UsageError, match="there is none on PATH"):
        interpreters.find("nopython")


MANY_PROCESSES = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        while time.process_time() < 0.006:
            pass
        print("burnt", flush=True)
        time.sleep(600)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="this system has no clock for another process")
def test_usage_counts_what_is_less_than_a_tick_in_each_of_many_processes(tmp_path: Path) -> None:
    """A hundred processes of a web server use little each; the ticks of /proc/pid/stat round it down to nothing."""
    command = [sys.executable, "-c", MANY_PROCESSES]
    server = Server(command, directory=str(tmp_path), environment=os.environ, front=("no-such-program",))
    try:
        deadline = time.monotonic() + 30
        while (used := server.usage()).user + used.system < 20 * 0.006:
            assert time.monotonic() < deadline, used
        assert used.front == 0
    finally:
        server.end()


@pytest.mark.skipif(sys.platform != "linux", reason="processes have names there")
def test_usage_tells_the_front_apart(tmp_path: Path) -> None:
    """The shell burns, and so does what it has started; only the program's name decides."""
    burn = "while time.process_time() < 0.1: pass"
    script = f"{sys.executable} -c 'import time\n{burn}\ntime.sleep(600)' & while :; do :; done"
    server = Server(["/bin/sh", "-c", script], directory=str(tmp_path), environment=os.environ, front=("sh", "dash"))
    try:
        deadline = time.monotonic() + 30
        while (used := server.usage()).front < 0.05 or used.user + used.system - used.front < 0.1:
            assert time.monotonic() < deadline, used
    finally:
        server.end()
