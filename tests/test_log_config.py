"""``--log-config`` and the table ``[logging]``: Python's logging, configured before the application is imported."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from test_check import check

if TYPE_CHECKING:
    from pathlib import Path

    from running import Serve

APP = """
import logging

logging.getLogger("shop").info("imported")

def app(environ, start_response):
    logging.getLogger("shop").warning("asked for %s", environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"good"]
"""

TABLE = {
    "formatters": {"line": {"format": "%(levelname)s %(name)s %(message)s"}},
    "handlers": {"file": {"class": "logging.FileHandler", "filename": "shop.log", "formatter": "line"}},
    "root": {"level": "INFO", "handlers": ["file"]},
}

TOML = """
[formatters.line]
format = "%(levelname)s %(name)s %(message)s"
[handlers.file]
class = "logging.FileHandler"
filename = "shop.log"
formatter = "line"
[root]
level = "INFO"
handlers = ["file"]
"""

INI = """
[loggers]
keys=root
[handlers]
keys=file
[formatters]
keys=line
[logger_root]
level=INFO
handlers=file
[handler_file]
class=FileHandler
args=("shop.log",)
formatter=line
[formatter_line]
format=%(levelname)s %(name)s %(message)s
"""

EXPECTED = ["INFO shop imported", "WARNING shop asked for /"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site_app.py").write_text(APP)
    return tmp_path


@pytest.mark.parametrize("mode", [(), ("--preload",), ("-w0",)], ids=["fork", "preload", "single"])
def test_the_table_of_the_settings_file_is_applied_before_the_import(
    serve: Serve, site: Path, mode: tuple[str, ...]
) -> None:
    (site / "kirsch.toml").write_text(TOML.replace("[", "[logging.").replace('logging."', '"'))
    server = serve("site_app:app", *mode, cwd=site)
    server.page()
    assert (site / "shop.log").read_text().splitlines() == EXPECTED


@pytest.mark.parametrize(
    ("name", "text"),
    [("logging.json", json.dumps(TABLE)), ("logging.toml", TOML), ("logging.ini", INI), ("logging.conf", INI)],
)
def test_a_file_is_applied(serve: Serve, site: Path, name: str, text: str) -> None:
    (site / name).write_text(text)
    server = serve("site_app:app", "--log-config", name, cwd=site)
    server.page()
    assert (site / "shop.log").read_text().splitlines() == EXPECTED


def test_handlers_of_the_logger_kirsch_get_what_a_worker_reports(serve: Serve, site: Path) -> None:
    (site / "site_app.py").write_text("def app(environ, start_response):\n    raise LookupError('in here')\n")
    table = {**TABLE, "loggers": {"kirsch": {"handlers": ["file"], "level": "INFO", "propagate": False}}}
    (site / "logging.json").write_text(json.dumps(table))
    server = serve("site_app:app", "--log-config=logging.json", cwd=site)
    with pytest.raises(OSError, match="500"):
        server.page()
    assert "LookupError: in here" in (site / "shop.log").read_text()
    assert "LookupError" not in server.stderr


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("missing.json", None, "missing.json: No such file or directory"),
        ("logging.json", "{", "logging.json is not JSON: "),
        ("logging.toml", "version =", "logging.toml:1: this is not TOML"),
        ("logging.ini", "nothing", "logging cannot be configured: "),
        (
            "logging.json",
            json.dumps({**TABLE, "handlers": {"file": {"class": "logging.NoHandler"}}}),
            "logging cannot be configured: Unable to configure handler 'file': ",
        ),
        (
            "logging.json",
            json.dumps({**TABLE, "handlers": {"file": {"class": "logging.FileHandler", "filename": "no/such/log"}}}),
            "no/such/log",
        ),
    ],
)
def test_a_bad_configuration_ends_the_start_and_the_check(
    serve: Serve, site: Path, name: str, text: str | None, told: str
) -> None:
    if text is not None:
        (site / name).write_text(text)
    with pytest.raises(AssertionError, match=r"exit status 2") as failure:
        serve("site_app:app", "--log-config", name, cwd=site)
    assert told in str(failure.value)
    assert "kirsch: --log-config: " in str(failure.value)
    assert "Traceback" not in str(failure.value)
    done = check("site_app", "--log-config", name, cwd=site)
    assert done.returncode == 2
    assert told in done.stderr


def test_reload_keeps_the_workers_when_the_table_is_wrong(serve: Serve, site: Path) -> None:
    settings = site / "kirsch.toml"
    settings.write_text("workers = 2\n")
    server = serve("site_app:app", cwd=site)
    before = server.wait_for_workers(2)
    settings.write_text('workers = 1\n[logging.handlers.file]\nclass = "no.such.Handler"\n')
    server.said_at(
        signal.SIGHUP,
        r"SIGHUP: reload failed, keeping the current workers: kirsch\.toml:2: log-config: logging cannot be configured",
    )
    assert server.worker_pids() == before


def test_a_table_and_a_file_at_once_are_refused(site: Path) -> None:
    (site / "kirsch.toml").write_text('log-config = "logging.json"\n[logging.root]\nlevel = "INFO"\n')
    done = check("site_app", cwd=site)
    assert done.returncode == 2
    assert "logging is there already, kirsch.toml:1 has it" in done.stderr


def test_kirsch_check_shows_that_there_is_a_table(site: Path) -> None:
    (site / "kirsch.toml").write_text('[logging.root]\nlevel = "INFO"\n')
    done = check("site_app", cwd=site)
    assert done.returncode == 0, done.stderr
    assert "[logging]" in done.stdout
