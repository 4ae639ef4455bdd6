"""Tests of a survey's file: the values that it accepts, and the messages for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kirsch_bench.errors import UsageError
from kirsch_bench.survey import example, spec
from kirsch_bench.survey.adapters import ADAPTERS

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = '[[scenario]]\nname = "hello"\n'
SERVER = '[[server]]\nadapter = "gunicorn"\n'


def read(tmp_path: Path, text: str) -> spec.Survey:
    path = tmp_path / "survey.toml"
    path.write_text(text)
    return spec.read(str(path))


def refusal(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)
    return [line.removeprefix(f"{tmp_path}/") for line in str(raised.value).splitlines()]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[survey]\nsecnds = 3\n" + SCENARIO + SERVER, "survey.toml:2: a survey has no secnds; did you mean seconds?"),
        ("rounds = 3\n" + SCENARIO + SERVER, "survey.toml:1: there is no rounds; write rounds in the table [survey]"),
        ("[servers]\n" + SCENARIO + SERVER, "survey.toml:1: there is no servers; did you mean server?"),
        (SCENARIO, "survey.toml:1: there is no [[server]]; `kirsch survey --example` shows a whole file"),
        (SERVER, "survey.toml:1: there is no [[scenario]]; `kirsch survey --example` shows a whole file"),
        (
            SCENARIO + '[[server]]\nadapter = "gunicrn"\n',
            'survey.toml:4: adapter is the string "gunicrn", and an adapter (did you mean gunicorn?) is wanted',
        ),
        (
            SCENARIO + '[[server]]\nname = "x"\n',
            'survey.toml:3: a server has an adapter, such as adapter = "gunicorn", or "command" for any other',
        ),
        (SCENARIO + SERVER + "thread = 3\n", "survey.toml:5: a server has no thread; did you mean threads?"),
        (SCENARIO + SERVER + "threads = true\n", "survey.toml:5: threads is true, and a whole number from 1 to 1000"),
        (SCENARIO + SERVER + 'name = "null"\n', "survey.toml:5: null is the bare loop that the generator is judged by"),
        (SCENARIO + SERVER + SERVER, 'survey.toml:3: there are two servers gunicorn; give one of them a name = "..."'),
        (SCENARIO + SCENARIO + SERVER, "survey.toml:1: there are two scenarios hello; give each a name of its own"),
        (
            SCENARIO + SERVER + 'only = ["helo"]\n',
            "survey.toml:5: only: there is no scenario helo; did you mean hello?",
        ),
        (SCENARIO + SERVER + 'wheel = "a.whl"\n', "survey.toml:5: wheel is for kirsch"),
        (
            SCENARIO + '[[server]]\nadapter = "command"\n',
            'survey.toml:3: adapter = "command" and command = "..." belong',
        ),
        (
            SCENARIO + '[[server]]\nadapter = "command"\ncommand = "serve {prot}"\n',
            "survey.toml:5: command: {prot} is none of {host}, {port}, {app}",
        ),
        (
            SCENARIO + 'load = "--headers crome"\n' + SERVER,
            "survey.toml:3: load: argument --headers: 'crome' is not one",
        ),
        (SCENARIO + 'load = "--html x.html"\n' + SERVER, "survey.toml:3: load: --html means nothing with a survey"),
        (SCENARIO + 'load = "http://a/"\n' + SERVER, "survey.toml:3: load: a URL has no place here"),
        (SCENARIO + 'load = "-c"\n' + SERVER, "survey.toml:3: load: argument -c/--connections: expected one argument"),
        (SCENARIO + 'load = "-H \'a"\n' + SERVER, 'survey.toml:3: load: "-H \'a" is no command line'),
        (
            SCENARIO + 'load = "-z 3s -n 10"\n' + SERVER,
            "survey.toml:3: load: --duration and --requests do not go together",
        ),
        (
            SCENARIO + 'application = "helo"\n' + SERVER,
            "survey.toml:3: there is no application helo; did you mean hello?",
        ),
        (SCENARIO + 'directory = "nowhere"\n' + SERVER, "survey.toml:3: directory: there is no folder"),
        (SCENARIO + 'path = "page"\n' + SERVER, 'survey.toml:3: path is the string "page", and a path such as /page'),
        (
            SCENARIO + "fields = [0]\nkib = [1]\n" + SERVER,
            "survey.toml:4: a scenario is one series, and fields and kib are",
        ),
        (
            SCENARIO + "fields = [1, 1]\n" + SERVER,
            "survey.toml:3: fields is an array, and an array without a number twice",
        ),
        (
            "[survey]\nrounds = 0\n" + SCENARIO + SERVER,
            "survey.toml:2: rounds is the number 0, and a whole number from 1",
        ),
        (
            '[survey]\nprocessors = "0"\n' + SCENARIO + SERVER,
            'survey.toml:2: processors is the string "0", and "auto" or',
        ),
        ("[survey\n", "survey.toml:1: this is not TOML"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_write(tmp_path: Path, text: str, told: str) -> None:
    lines = refusal(tmp_path, text)
    assert len(lines) == 1
    assert lines[0].startswith(told)


def test_all_mistakes_are_told_in_their_order(tmp_path: Path) -> None:
    lines = refusal(tmp_path, "[survey]\nround = 1\n" + SCENARIO + 'load = "-c x"\n' + SERVER + "fast = 1\n")
    assert [line.split(":")[1] for line in lines] == ["2", "5", "8"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        spec.read(str(tmp_path / "nothing.toml"))


def test_the_example_is_a_file_and_names_every_key(tmp_path: Path) -> None:
    survey = read(tmp_path, example.TEXT)
    assert [each.name for each in survey.servers] == ["kirsch", "kirsch-1", "gunicorn", "wsgiref"]
    for keys in (spec._SURVEY, spec._SCENARIO, spec._SERVER):
        for key in keys.keys() - {"about", "series", "x", "wheel"}:
            assert f"{key} = " in example.TEXT, key
    for adapter in ADAPTERS:
        # A pair is named by its two parts.
        named = set(adapter.split("+")) <= set(example.TEXT.split())
        assert ADAPTERS[adapter].absent or named or adapter == "command"


def test_short_forms_are_series(tmp_path: Path) -> None:
    survey = read(
        tmp_path,
        SERVER
        + '[[scenario]]\nname = "fields"\nload = "-c 4"\nfields = [0, 2]\n'
        + '[[scenario]]\nname = "size"\nkib = [1, 10]\n'
        + '[[scenario]]\nname = "small"\npath = "/sizer"\nbytes = [10, 1000]\n'
        + '[[scenario]]\nname = "many"\nload = "--headers ab"\nconnections = [10, 50]\n',
    )
    by_name = {each.record.name: each for each in survey.scenarios}
    assert list(by_name) == [
        "fields-0",
        "fields-2",
        "size-1",
        "size-10",
        *("small-10", "small-1000"),
        "many-10",
        "many-50",
    ]
    assert [name for name, _ in by_name["fields-2"].given["header"]] == ["X-Field-00", "X-Field-01"]
    assert "header" not in by_name["fields-0"].given
    assert by_name["fields-2"].given["connections"] == 4
    assert (by_name["fields-2"].record.series, by_name["fields-2"].record.x) == ("headers", 2.0)
    size = by_name["size-10"].record
    assert (size.path, size.application, size.series, size.x) == ("/10", "sizer", "size", 10.0)
    small = by_name["small-10"].record
    assert (small.path, small.application, small.series, small.x) == ("/sizer/10B", "sizer", "bytes", 10.0)
    assert by_name["many-50"].given["connections"] == 50
    assert by_name["many-50"].record.load == "--headers ab -c 50"


def test_servers_choose_scenarios_by_the_name_of_a_series_too(tmp_path: Path) -> None:
    survey = read(
        tmp_path,
        SCENARIO + '[[scenario]]\nname = "size"\nkib = [1, 10]\n' + SERVER + 'only = ["size"]\nskip = ["size-10"]\n',
    )
    server = survey.servers[0]
    assert [each.record.name for each in survey.scenarios if server.takes_part(each)] == ["size-1"]


def test_an_aa_survey_has_each_server_several_times(tmp_path: Path) -> None:
    survey = read(tmp_path, SCENARIO + SERVER + "copies = 2\n")
    assert [(each.name, each.same_as) for each in survey.servers] == [
        ("gunicorn.1", "gunicorn"),
        ("gunicorn.2", "gunicorn"),
    ]
    doubled = read(tmp_path, SCENARIO + SERVER).doubled(3)
    assert [each.name for each in doubled.servers] == ["gunicorn.1", "gunicorn.2", "gunicorn.3"]
    assert len(doubled.limited(frozenset({"gunicorn"}), frozenset()).servers) == 3
