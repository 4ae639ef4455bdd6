"""``kirsch adopt``: configurations of other servers become kirsch.toml, both servers are compared, and it is undone.

``adopted`` holds configurations in the shapes that public repositories have. Each is a file: the files of the
configuration, the first of which is adopted, then the settings, the start command and the notes for the reader.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kirsch.adopt import command, readers, replay, shell, writing
from kirsch.adopt.adoption import AdoptError
from kirsch.adopt.compare import Answer, differences
from kirsch.config import sources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kirsch.adopt.adoption import Adoption

CASES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parent / "adopted").iterdir())}

# Configurations that need a decision, and the sentence that says so.
NEED_A_HAND = {
    "dockerfile-base-image": "it has neither CMD nor ENTRYPOINT; its base image starts the server",
    "gunicorn-conf-computed": "its value is computed when the file runs; write it yourself",
    "procfile-daphne": "no command of gunicorn",
    "uwsgi-mules": "use a task queue such as Celery or RQ",
}


def write_case(text: str, folder: Path) -> tuple[Path, str]:
    """Write the files of a case; return the one to adopt, and what is expected."""
    parts = re.split(r"^== (.+)\n", text, flags=re.M)[1:]
    files = list(zip(parts[::2], parts[1::2], strict=True))
    for name, content in files[:-1]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    assert files[-1][0] == "expected"
    return folder / files[0][0], files[-1][1]


def shown(plan: Adoption) -> str:
    """Return a plan as the cases have it."""
    lines = writing.toml_text(plan).splitlines()[2:]
    where = f" in {plan.directory}" if plan.directory else ""
    lines += ["", f"# start: {plan.start_command()}{where}"]
    lines += [f"# module: {name}" for name in plan.shims]
    for origin, note in plan.notes:
        if note.needs_reader:
            lines.append(f"# {note.result}: {note.option}: {note.say} ({origin})")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_a_configuration_becomes_settings_with_their_origins(name: str, tmp_path: Path) -> None:
    path, expected = write_case(CASES[name], tmp_path)
    if not expected.startswith(("app", "chdir")):
        with pytest.raises(AdoptError) as raised:
            readers.read(str(path))
        assert f"# {raised.value}\n" == expected
        assert NEED_A_HAND[name] in expected
        return
    plan = readers.read(str(path))
    assert shown(plan) == expected
    if name in NEED_A_HAND:
        assert any(NEED_A_HAND[name] in note.say for _, note in plan.by_hand)
    else:
        assert plan.by_hand == []
        assert plan.files[0] == str(path)
    [written, *_] = writing.write(plan, str(tmp_path), force=False)
    assert command.problems(written) == []


def test_35_of_40_configurations_are_adopted_without_an_edit() -> None:
    assert len(CASES) >= 40
    assert len(CASES) - len(NEED_A_HAND) >= 35


def test_the_file_is_what_the_server_reads(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("web: gunicorn -w 3 --threads 2 -t 20 -b 127.0.0.1:9001 shop:app\n")
    assert command.main([str(tmp_path)]) == 0
    chosen = sources.read([], {}, str(tmp_path))
    assert (chosen.target, chosen.workers, chosen.threads, chosen.timeout) == ("shop:app", 3, 2, 20.0)
    assert chosen.bind == ("127.0.0.1:9001",)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("absent", "there is no file absent"),
        ("python -m http.server 8000", "no command of gunicorn"),
        ("gunicorn --bind", "--bind has no value."),
        ("gunicorn -w 2", "it names no application"),
    ],
)
def test_a_target_that_is_none_is_explained(
    target: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main([target, "-o", str(tmp_path)]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "kirsch.toml").exists()


def test_a_directory_without_a_configuration_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path)]) == 2
    assert "no configuration of a server was found" in capsys.readouterr().err


def test_a_command_in_quotes_is_adopted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["A=1 poetry run gunicorn -w 4 shop:app --log-level WARN", "-o", str(tmp_path)]
    assert command.main(words) == 0
    text = (tmp_path / "kirsch.toml").read_text()
    assert 'app = "shop:app"  # command' in text
    assert 'log-level = "warning"  # command: --log-level WARN' in text
    assert "Start the server with `A=1 poetry run kirsch`" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------- undo


def test_undo_removes_what_was_written_and_gives_back_what_was_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = write_case(CASES["gunicorn-conf-hooks"], tmp_path)
    settings = tmp_path / "kirsch.toml"
    settings.write_text("workers = 9\n")
    assert command.main([str(path)]) == 2
    assert "--force keeps it as kirsch.toml.before-adopt" in capsys.readouterr().err
    assert command.main([str(path), "--force"]) == 0
    assert (tmp_path / "kirsch_hooks.py").exists()
    assert command.main([str(path)]) == 0  # its own file is written anew
    assert command.main([str(path), "--undo"]) == 0
    assert settings.read_text() == "workers = 9\n"
    assert not (tmp_path / "kirsch_hooks.py").exists()
    assert command.main([str(path), "--undo"]) == 2
    assert "kirsch adopt has written nothing in" in capsys.readouterr().err


def test_undo_keeps_a_file_that_was_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = write_case(CASES["procfile-gthread"], tmp_path)
    assert command.main([str(path)]) == 0
    settings = tmp_path / "kirsch.toml"
    settings.write_text(settings.read_text().replace("workers = 2", "workers = 3"))
    assert command.main([str(path), "--undo"]) == 2
    assert "has been changed since it was written" in capsys.readouterr().err
    assert settings.exists()


# ------------------------------------------------------------------------------------------------------------ hooks


def test_hooks_of_gunicorn_run_in_the_workers(tmp_path: Path, serve: Any) -> None:
    path, _ = write_case(CASES["gunicorn-conf-hooks"], tmp_path)
    (tmp_path / "pool.py").write_text(
        "from pathlib import Path\n"
        f"def connect(): Path({str(tmp_path / 'connected')!r}).touch()\n"
        f"def close(): Path({str(tmp_path / 'closed')!r}).touch()\n"
    )
    (tmp_path / "wsgi.py").write_text("def app(e, s):\n    s('200 OK', [])\n    return [b'served']\n")
    assert command.main([str(path)]) == 0
    running = serve("wsgi:app", "--workers", "1", cwd=tmp_path)
    assert running.page() == "served"
    assert (tmp_path / "connected").exists()
    running.stop()
    assert (tmp_path / "closed").exists()


# ---------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("exec gunicorn a:b", ["gunicorn", "a:b"]),
        ("cd x && python -m gunicorn -w 1 a:b 2>&1 | tee log", ["gunicorn", "-w", "1", "a:b"]),
        ("sh -c 'cd /srv; exec uvicorn a:b --port $((8000 + 1))'", ["uvicorn", "a:b", "--port", "$((8000 + 1))"]),
        ("dumb-init -- gosu web:web gunicorn a:b > /dev/null", ["gunicorn", "a:b"]),
        ("env A='b c' uv run granian a:b", ["granian", "a:b"]),
        ("tini -- bash -lc \"gunicorn -b :${PORT:-80} a:b\"", ["gunicorn", "-b", ":${PORT:-80}", "a:b"]),
        ("/opt/venv/bin/gunicorn 'a:make(\"x\")'  # comment", ["gunicorn", 'a:make("x")']),
    ],
)  # fmt: skip
def test_the_servers_command_is_found_in_a_line(line: str, words: list[str]) -> None:
    found = shell.find(line)
    assert found is not None
    assert [found.program, *found.words] == words


# ------------------------------------------------------------------------------------------------------- comparison

OLD = """
    import os, sys
    from wsgiref.simple_server import WSGIServer, WSGIRequestHandler, make_server

    sys.path.insert(0, os.getcwd())
    from shop import app

    class Quiet(WSGIRequestHandler):
        def log_message(self, *arguments):
            pass

    def old(environ, start_response):
        environ["shop.old"] = True
        return app(environ, start_response)

    make_server("127.0.0.1", int(sys.argv[1]), old, WSGIServer, Quiet).serve_forever()
"""

SHOP = """
    import itertools

    counter = itertools.count()

    def app(environ, start_response):
        path, is_old = environ["PATH_INFO"], "shop.old" in environ
        fields = [("Content-Type", "text/plain"), ("Set-Cookie", f"session={next(counter)}; Path=/")]
        status, body = "200 OK", b"the same\\n"
        if path == "/status":
            status = "200 OK" if is_old else "404 Not Found"
        elif path == "/field":
            fields.append(("X-Server", "old" if is_old else "new"))
        elif path == "/body":
            body = b"one\\nold\\n" if is_old else b"one\\nnew\\n"
        elif path == "/varies":
            body = str(next(counter)).encode()
        elif environ["REQUEST_METHOD"] == "POST":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        start_response(status, fields)
        return [body]
"""


def compare(folder: Path, requests: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Compare a server of the standard library with Kirsch, both with the application SHOP."""
    for name, text in (("shop.py", SHOP), ("old.py", OLD)):
        (folder / name).write_text(textwrap.dedent(text))
    (folder / "Procfile").write_text("web: gunicorn --threads 4 --bind 127.0.0.1:8000 --access-logfile - shop:app\n")
    (folder / "requests.txt").write_text(requests)
    words = ["--compare", "--old", f"{sys.executable} old.py {{port}}", "--requests", str(folder / "requests.txt")]
    return subprocess.run(
        [sys.executable, "-m", "kirsch", "adopt", str(folder), *words, "--repeat", "2", *more],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip


def test_servers_that_answer_the_same_have_no_difference(tmp_path: Path) -> None:
    done = compare(tmp_path, "GET /\n/varies\nHEAD /\nPOST /form a=1\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 requests with other methods than GET and HEAD are not sent" in done.stdout
    assert "0 of 3 requests are answered differently" in done.stdout
    assert re.search(r"^memory: \d+ MiB before, \d+ MiB now; time of a request", done.stdout, re.M)
    assert not (tmp_path / "kirsch.toml").exists()


def test_each_difference_is_shown(tmp_path: Path) -> None:
    done = compare(tmp_path, "GET /status\nGET /field\nGET /body\nGET /\nPOST /form a=1\n", "--all-methods")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "GET /status: status 200 before, 404 now" in done.stdout
    assert "GET /field: x-server: old before, new now" in done.stdout
    assert re.search(r"GET /body: body of 8 bytes before, 8 now\n.*\n *-old\n *\+new", done.stdout)
    assert "3 of 5 requests are answered differently" in done.stdout


def test_an_old_server_that_does_not_start_is_shown_with_its_words(tmp_path: Path) -> None:
    done = compare(tmp_path, "/\n", "--old", f"{sys.executable} -c 'raise SystemExit(\"no database\")'")
    assert done.returncode == 2
    assert "the old server did not start" in done.stderr
    assert "no database" in done.stderr


def test_requests_are_read_from_an_archive_a_log_and_a_list(tmp_path: Path) -> None:
    archive = {
        "log": {
            "entries": [
                {
                    "startedDateTime": "2026-11-27T10:00:00Z",
                    "request": {
                        "method": "POST",
                        "url": "https://example.org/a?b=1",
                        "headers": [{"name": "Host", "value": "example.org"}, {"name": "Cookie", "value": "c=1"}],
                        "postData": {"text": "x=1"},
                    },
                }
            ]
        }
    }
    har = tmp_path / "recorded.har"
    har.write_text(json.dumps(archive))
    [request] = replay.read(str(har))
    assert request[1:5] == ("POST", "/a?b=1", (("Cookie", "c=1"),), b"x=1")
    log = tmp_path / "access.log"
    log.write_text('1.2.3.4 - - [27/Nov/2026:10:00:00 +0000] "GET /a?b HTTP/1.1" 200 5 "-" "x"\n' * 3 + "rubbish\n")
    assert [(each.method, each.target) for each in replay.read(str(log))] == [("GET", "/a?b")]
    log.write_text('INFO:     127.0.0.1:5000 - "GET /c HTTP/1.1" 200 OK\nPOST /d x=1\n')
    assert [(each.target, each.body) for each in replay.read(str(log))] == [("/c", b""), ("/d", b"x=1")]
    for wrong in ("", "{}", '{"log": {"entries": [{}]}}'):
        har.write_text(wrong)
        with pytest.raises(AdoptError):
            replay.read(str(har))


def _answers(*bodies: bytes, fields: Iterable[tuple[str, str]] = ()) -> list[Answer]:
    return [Answer(200, list(fields), body, 0.1) for body in bodies]


def test_a_part_that_varies_by_itself_is_no_difference() -> None:
    assert differences(_answers(b"1", b"2"), _answers(b"3", b"4")) == ([], [])
    assert differences(_answers(b"1", b"1"), _answers(b"2", b"2"))[0] == ["body"]
    one, other = [("Set-Cookie", "a=1; Path=/")], [("Set-Cookie", "a=2; Path=/"), ("Date", "now")]
    assert differences(_answers(b"", fields=one), _answers(b"", fields=other)) == ([], [])
