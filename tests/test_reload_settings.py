"""Every setting that a reload may change, changed together with an application that does not import: nothing happens.

The list comes from the declarations of the settings, so a new one is in it at once. What is seen from outside is
compared before and after. A worker that is replaced then tells with which settings it was made, and so do the workers
of the reload that follows, when all is as it should be again.
"""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from kirsch.config import kinds
from kirsch.config.schema import SETTINGS
from kirsch.config.sections import SECTIONS
from proc import descriptors, wait_until
from running import children, title

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kirsch.config.setting import Setting
    from running import Running, Serve

FAILED = "SIGHUP: reload failed, keeping the current workers: .*LookupError"

APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"good"]
"""

HOOKS = """
import json, os

def start(worker):
    texts = {name: text for name, text, _origin in worker.settings.rows()}
    path = os.path.join(os.environ["NOTES"], str(os.getpid()))
    with open(path + ".new", "w") as file:
        json.dump(texts, file)
    os.rename(path + ".new", path)

def other(worker): pass
"""

ACME = {"acme": ["one.example"], "acme_agree_tos": True}

# What is not for every setting of the same kind. The second part of a pair is what it needs beside it.
VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "workers": (1, {}),
    "max_workers": (5, {}),
    "min_workers": (2, {"max_workers": 5}),
    "max_requests_jitter": (7, {"max_requests": 1000000}),
    "max_lifetime_jitter": ("3h", {"max_lifetime": "3h"}),
    "before_fork": ("site_hooks:other", {"preload": True}),
    "after_fork": ("site_hooks:other", {"preload": True}),
    "driver": ("gevent", {}),
    "http": ("1", {}),
    "interface": ("wsgi", {}),
    "lifespan": ("on", {}),
    "loop": ("asyncio", {}),
    "groups": ("nats://127.0.0.1:9", {}),
    "chdir": ("other", {}),
    "mount": ([{"path": "/other", "app": "site_app:app"}], {}),
    "pythonpath": (["other"], {}),
    "access_logfile": ("other.log", {}),
    "log_config": ({"root": {"level": "INFO"}}, {}),
    "forwarded": ("rfc7239", {"trusted_proxies": "192.0.2.1"}),
    "static": ({"/other": "other"}, {}),
    "static_missing": ("app", {}),
    "static_symlinks": ("anywhere", {}),
    "compress": ("br", {}),
    "rate_limit": ("1000/s", {}),
    "compress_types": ("text/plain", {}),
    # Nothing is encrypted here; test_certificates.py changes certificates in force.
    "certfile": ("other.pem", {}),
    "keyfile": ("other.key", {}),
    "keyfile_password": ("file:other", {}),
    "tls": (["other.pem"], {}),
    "tls_min": ("1.3", {}),
    "ciphers": ("TLS_AES_128_GCM_SHA256", {}),
    "ca_certs": (["other.pem"], {}),
    "cert_reqs": ("optional", {}),
    "crlfile": (["other.crl"], {"ca_certs": ["other.pem"]}),
    "redirect_http": (True, ACME),
    "https_port": (8443, {"redirect_http": True, **ACME}),
    "hsts": ("3h", ACME),
    "hsts_subdomains": (True, {"hsts": "3h", **ACME}),
    "acme": (["one.example"], {"acme_agree_tos": True}),
    "acme_agree_tos": (True, {"acme": ["one.example"]}),
    "acme_contact": ("one@one.example", ACME),
    "acme_directory": ("https://one.example/directory", ACME),
    "acme_staging": (True, ACME),
    "acme_profile": ("other", ACME),
    "acme_challenge": ("http-01", ACME),
    "acme_state": ("other", ACME),
    "acme_eab_kid": ("other", {"acme_eab_key": "env:NOTES", **ACME}),
    "acme_eab_key": ("env:NOTES", {"acme_eab_kid": "other", **ACME}),
    "acme_ca_certs": ("other.pem", ACME),
}

# Of each kind; durations are long, so that nothing comes of them in a test.
VALUES_OF_KIND: dict[object, Callable[[str], Any]] = {
    kinds.COUNT: lambda default: int(default) + 1,
    kinds.DURATION: lambda _default: "3h",
    kinds.SIZE: lambda _default: 123456789,
    kinds.SWITCH: lambda default: default == "no",
    kinds.SWITCH_OR_CALLABLE: lambda default: default == "no",
    kinds.ON_OFF: lambda default: default != "on",
    kinds.URL_PATH: lambda _default: "/other",
    kinds.NAME: lambda _default: "other",
    kinds.FIELD_VALUE: lambda _default: "other",
    kinds.LOG_FORMAT: lambda _default: "json",
    kinds.FUNCTION: lambda _default: "site_hooks:other",
    kinds.ENVIRONMENT: lambda _default: {"OTHER": "value"},
    kinds.PATH_LIMITS: lambda _default: {"/other": "3h"},
    kinds.PROXIES: lambda _default: "192.0.2.1",
    kinds.SCRIPT_NAME: lambda _default: "/other",
    kinds.PATTERNS: lambda _default: ["other/*"],
    kinds.FILE_NAME: lambda _default: "other.html",
}

RELOADABLE = [each for each in SETTINGS if not each.fixed and each.section != "Instead of serving"]


def another_value(each: Setting) -> tuple[Any, dict[str, Any]]:
    if each.name in VALUES:
        return VALUES[each.name]
    assert each.kind in VALUES_OF_KIND, f"{each.name} is new: say in VALUES or for its kind to what a reload changes it"
    return VALUES_OF_KIND[each.kind](each.default), {}


def toml(settings: dict[str, Any]) -> str:
    """JSON's scalars and arrays are TOML's, too."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{json.dumps(key)} = {written(each)}" for key, each in value.items()) + " }"
        if isinstance(value, list):
            return f"[{', '.join(map(written, value))}]"
        return json.dumps(value)

    return "".join(f"{name.replace('_', '-')} = {written(each)}\n" for name, each in settings.items())


def open_descriptors(pid: int) -> int:
    """How many a process has open, without the eventfds of the engine group: room for more workers stays."""
    return sum(name != "anon_inode:[eventfd]" for name in descriptors(pid).values())


class Site:
    def __init__(self, serve: Serve, folder: Path, base: dict[str, Any]) -> None:
        self.folder = folder
        self.base = base
        self.notes = folder / "notes"
        self.notes.mkdir()
        (folder / "other").mkdir()
        (folder / "site_hooks.py").write_text(HOOKS)
        (folder / "other" / "site_hooks.py").write_text(HOOKS)
        self.settings(base)
        self.code(APP)
        environment = {"PYTHONDONTWRITEBYTECODE": "1", "NOTES": str(self.notes)}
        self.running: Running = serve("site_app:app", cwd=folder, env=environment)
        self.metrics = self.running.wait_for(r"^metrics on (\S+)$")[1]

    def settings(self, settings: dict[str, Any]) -> None:
        (self.folder / "kirsch.toml").write_text(toml(settings))

    def code(self, source: str) -> None:
        for place in (self.folder, self.folder / "other"):
            (place / "site_app.py").write_text(source)

    def made_with(self, pid: int) -> dict[str, str]:
        """The settings that a worker was made with."""
        settings: dict[str, str] = json.loads((self.notes / str(pid)).read_text())
        return settings

    def seen(self) -> dict[str, Any]:
        """All that can be seen from outside."""
        pid = self.running.pid
        with urllib.request.urlopen(self.metrics + "/metrics", timeout=20) as response:
            text = response.read().decode()
        with urllib.request.urlopen(self.running.url, timeout=20) as response:
            headers = sorted(name for name, _ in response.getheaders()), response.headers["Server"]
        families = "workers|generation|worker_restarts_total|worker_start_time_seconds"
        return {
            "metrics": re.findall(rf"^kirsch_(?:{families})(?:\{{.*)? .*$", text, re.MULTILINE),
            "titles": sorted((child, title(child)) for child in children(pid)),
            "supervisor": title(pid),
            "directory": os.readlink(f"/proc/{pid}/cwd"),
            "descriptors": open_descriptors(pid),
            "headers": headers,
        }

    def seen_at_rest(self) -> dict[str, Any]:
        """The same once all who were to end have ended, and the metrics are those of now."""
        processes = 4 if self.base["preload"] else 3
        found: list[dict[str, Any]] = [{}, {}]

        def is_at_rest() -> bool:
            found[:] = found[1], self.seen()
            if found[0] != found[1] or len(found[1]["titles"]) != processes:
                return False
            # The metrics may be older than the list of processes.
            return 'kirsch_workers{state="stopping"} 0' in found[1]["metrics"]

        wait_until(is_at_rest, "all who were to end have ended", timeout=30)
        return found[1]


@pytest.mark.parametrize("preload", [False, True], ids=["fork", "preload"])
@pytest.mark.parametrize("section", [name for name in SECTIONS if any(each.section == name for each in RELOADABLE)])
@pytest.mark.slow
def test_reload_with_a_changed_setting_changes_nothing_when_it_fails(
    serve: Serve, tmp_path: Path, section: str, preload: bool
) -> None:
    base: dict[str, Any] = {
        "workers": 2,
        "preload": preload,
        "worker_start": "site_hooks:start",
        "metrics_bind": "127.0.0.1:0",
    }
    site = Site(serve, tmp_path, base)
    running = site.running
    pids = running.wait_for_workers(2)
    expected = site.made_with(pids[0])
    for each in (each for each in RELOADABLE if each.section == section):
        value, beside = another_value(each)
        if each.name == "driver":
            pytest.importorskip("gevent")
        if each.name == "preload":
            value = not preload
        before = site.seen_at_rest()
        site.settings({**base, **beside, each.name: value})
        site.code("raise LookupError\n")
        running.said_at(signal.SIGHUP, FAILED)
        wait_until(lambda before=before: site.seen() == before, f"{each.name}: all is as it was", timeout=30)  # type: ignore[misc]

        # The next worker is made with the settings of before, though the file says something else.
        if not preload:
            site.code(APP)
        os.kill(pids[0], signal.SIGKILL)
        pids = running.wait_for_workers(2, without=pids[:1])
        made = site.made_with(pids[-1])
        assert made == expected, f"{each.name}: {made[each.name]}"

        site.code(APP)
        site.settings(base)
        running.said_at(signal.SIGHUP, "SIGHUP: done, 2 workers")
        pids = running.wait_for_workers(2, without=pids)
        assert [site.made_with(pid) for pid in pids] == [expected, expected], each.name
        assert running.page() == "good"
