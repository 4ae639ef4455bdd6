"""``kirsch adopt --compare``: start the old and the new server side by side, send both the same requests, and show each
difference: status, header fields, body, time and memory."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection, HTTPException

from kirsch.adopt import replay, writing
from kirsch.adopt.adoption import AdoptError
from kirsch.commands.output import print_output, table
from kirsch.config.compat.rules import programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from kirsch.adopt.adoption import Adoption
    from kirsch.adopt.recording import Recorded

_START_SECONDS = 60.0

# Header fields that vary with time or server, or describe the framing of the body. The body itself is compared.
_VARYING = {"date", "server", "connection", "keep-alive", "transfer-encoding", "content-length", "via"}

# Options of old servers about address, process or background, with the number of words of their values.
_ADDRESS = {
    "gunicorn": {"-b": 1, "--bind": 1, "-D": 0, "--daemon": 0, "-p": 1, "--pid": 1, "-u": 1, "--user": 1, "-g": 1,
                 "--group": 1},
    "uvicorn": {"--host": 1, "--port": 1, "--uds": 1, "--fd": 1},
    "granian": {"--host": 1, "--port": 1, "--uds": 1},
    "hypercorn": {"-b": 1, "--bind": 1, "-D": 0, "--daemon": 0, "-p": 1, "--pid": 1},
    "waitress": {"--listen": 1, "--host": 1, "--port": 1, "--unix-socket": 1},
    "uWSGI": {"--http": 1, "--http-socket": 1, "--socket": 1, "-s": 1, "--uid": 1, "--gid": 1, "--daemonize": 1,
              "--pidfile": 1},
}  # fmt: skip

_GIVEN = {
    "gunicorn": "--bind=127.0.0.1:{port}",
    "uvicorn": "--port={port}",
    "granian": "--port={port}",
    "hypercorn": "--bind=127.0.0.1:{port}",
    "waitress": "--listen=127.0.0.1:{port}",
    "uWSGI": "--http-socket=127.0.0.1:{port}",
}


def main(plan: Adoption, chosen: argparse.Namespace, directory: str) -> int:
    """Compare both servers; return 0 if they respond alike. Raises AdoptError."""
    requests = replay.read(chosen.requests) if chosen.requests else [replay.request("GET", "/")]
    if not chosen.all_methods:
        left = [each for each in requests if each.method not in replay.SAFE]
        requests = [each for each in requests if each.method in replay.SAFE]
        if left:
            print_output(f"{len(left)} requests with other methods than GET and HEAD are not sent; --all-methods does")
    if not requests:
        raise AdoptError("there is no request to send")
    with tempfile.TemporaryDirectory(prefix="kirsch-adopt-") as folder:
        old = _Process("old", _old_command(plan, chosen.old, folder), directory, folder)
        with old, _Process("new", _new_command(plan, folder), directory, folder) as new:
            for each in (old, new):
                each.wait()
            return _compare(old, new, requests, max(chosen.repeat, 1))


def _old_command(plan: Adoption, given: str | None, folder: str) -> list[str]:
    """Return the command of the old server, in which ``{port}`` stands for the port."""
    if given:
        return shlex.split(given)
    if not plan.command or plan.command[0] not in programs():
        raise AdoptError(
            f"write the old server's command, with {{port}} for its port: --old '{plan.server} ... {{port}}'"
        )
    server = programs()[plan.command[0]]
    if server not in _GIVEN:
        raise AdoptError(f"{server} cannot be started here; write --old 'COMMAND with {{port}}'")
    program = shutil.which(plan.command[0], path=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    if program is None:
        raise AdoptError(f"{plan.command[0]} is not installed here: compare where the application runs, or write --old")
    words = _without_address(plan.command[1:], _ADDRESS[server])
    if server == "uWSGI":
        words = _without_addresses_in_files(words, plan, folder)
    return [program, _GIVEN[server], *(os.path.expandvars(word) for word in words)]


def _without_address(words: Sequence[str], options: dict[str, int]) -> list[str]:
    kept = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name = word.partition("=")[0]
        if name in options or (word[:2] in options and not word.startswith("--")):
            if options.get(word):
                rest[:1] = []
        else:
            kept.append(word)
    return kept


def _without_addresses_in_files(words: list[str], plan: Adoption, folder: str) -> list[str]:
    """Make uWSGI read copies of its ini files that set no socket, user or pid file."""
    made = []
    for path in plan.files:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        lines = (
            r"^\s*(?:http|http-socket|socket|uid|gid|chown-socket|chmod-socket|pidfile|daemonize|stats|logto)\s*=.*$"
        )
        copy = os.path.join(folder, os.path.basename(path))
        with open(copy, "w", encoding="utf-8") as file:
            file.write(re.sub(lines, "", text, flags=re.M).replace("%d", os.path.join(os.path.dirname(path), "")))
        made.append(copy)
    return [*(f"--ini={path}" for path in made if path.endswith(".ini")),
            *(word for word in words if ".ini" not in word and word != "--ini")]  # fmt: skip


def _new_command(plan: Adoption, folder: str) -> list[str]:
    path = os.path.join(folder, "kirsch.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(writing.toml_text(plan))
    for name, text in plan.shims.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    arguments = [os.path.expandvars(word) for word in plan.arguments if not word.startswith(("--bind", "-b"))]
    path_of_shims = [f"--pythonpath={folder}"] if plan.shims else []
    own = ["--config", path, "--bind=127.0.0.1:{port}", "--pid-file=", "--user=", "--group=", *path_of_shims]
    return [sys.executable, "-m", "kirsch", *own, *arguments]


class _Process:
    """A server process on a free port, which runs during a ``with`` block."""

    def __init__(self, name: str, command: list[str], directory: str, folder: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port: int = taken.getsockname()[1]
        self.name = name
        self.command = [word.replace("{port}", str(self.port)) for word in command]
        self._directory = directory
        self._log = os.path.join(folder, f"{name}.log")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Process:
        environment = {**os.environ, "PORT": str(self.port)}
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the command of the user's own configuration
                self.command, cwd=self._directory, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            # uWSGI reloads at SIGTERM, so stop it with SIGINT.
            process.send_signal(2 if "uwsgi" in self.command[0] else 15)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait(self) -> None:
        """Wait until the server accepts connections. Raises AdoptError with its output if it does not."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    with open(self._log, encoding="utf-8", errors="replace") as log:
                        said = log.read().strip()[-2000:]
                    raise AdoptError(
                        f"the {self.name} server did not start: {shlex.join(self.command)}\n{said}"
                    ) from None
                time.sleep(0.05)

    def memory(self) -> int:
        """Return the proportional memory (PSS) of the server's processes, in bytes."""
        total = 0
        for pid in self._pids():
            try:
                with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                    total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
            except OSError:
                continue
        return total * 1024

    def _pids(self) -> Iterator[int]:
        waiting = [self._process.pid] if self._process is not None else []
        while waiting:
            pid = waiting.pop()
            yield pid
            try:
                with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                    waiting += map(int, file.read().split())
            except OSError:
                continue


class Answer:
    """The response of a server, and its time in seconds."""

    def __init__(self, status: int, fields: list[tuple[str, str]], body: bytes, seconds: float) -> None:
        self.status = status
        self.fields = {name.lower(): value for name, value in fields if name.lower() not in _VARYING}
        cookies = [value for name, value in fields if name.lower() == "set-cookie"]
        if cookies:
            # Ignore the values of cookies, which are often different for each client.
            self.fields["set-cookie"] = ", ".join(
                sorted(re.sub(r"=[^;]*", "=...", value, count=1) for value in cookies)
            )
        self.body = body
        self.seconds = seconds


def _ask(port: int, request: Recorded) -> Answer:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    # Send both servers the same host, which an application may write into pages. Ask for uncompressed bodies, which are
    # compared.
    fields = {name: value for name, value in request.fields if name.lower() != "accept-encoding"}
    begin = time.perf_counter()
    try:
        connection.request(request.method, request.target, request.body or None, {"Host": replay.HOST, **fields})
        response = connection.getresponse()
        body = response.read()
        return Answer(response.status, response.getheaders(), body, time.perf_counter() - begin)
    except (OSError, HTTPException) as error:
        return Answer(0, [], f"{type(error).__name__}: {error}".encode(), time.perf_counter() - begin)
    finally:
        connection.close()


def _compare(old: _Process, new: _Process, requests: list[Recorded], repeat: int) -> int:
    rows: list[tuple[str, ...]] = [("request", "status", "old ms", "new ms", "differences")]
    details: list[str] = []
    times: dict[str, list[float]] = {"old": [], "new": []}
    for request in requests:
        answers: dict[str, list[Answer]] = {"old": [], "new": []}
        for _ in range(repeat):
            answers["old"].append(_ask(old.port, request))
            answers["new"].append(_ask(new.port, request))
        for name, each in answers.items():
            times[name].append(min(answer.seconds for answer in each))
        found, lines = differences(answers["old"], answers["new"])
        what = f"{request.method} {request.target}"
        details += [f"{what}: {line}" for line in lines]
        status = str(answers["old"][0].status)
        rows.append((what, status, *(f"{1000 * times[name][-1]:.1f}" for name in times), ", ".join(found) or "none"))
    print_output(table(rows))
    for line in details:
        print_output(f"\n{line}")
    memory = {each.name: each.memory() / 2**20 for each in (old, new)}
    total = {name: 1000 * sum(values) / len(values) for name, values in times.items()}
    print_output(
        f"\nmemory: {memory['old']:.0f} MiB before, {memory['new']:.0f} MiB now; time of a request, best of {repeat}: "
        f"{total['old']:.2f} ms before, {total['new']:.2f} ms now"
    )
    differing = sum(row[4] != "none" for row in rows[1:])
    print_output(f"{differing} of {len(requests)} requests are answered differently")
    return 1 if differing else 0


def differences(old: Sequence[Answer], new: Sequence[Answer]) -> tuple[list[str], list[str]]:
    """Return the kinds of differences between the responses of both servers, and lines that show them. Parts that
    already vary between the responses of the old server are not compared.
    """
    before, now = old[0], new[0]
    found: list[str] = []
    lines: list[str] = []
    if before.status != now.status:
        found.append("status")
        lines.append(f"status {before.status or 'none'} before, {now.status or 'none'} now")
    for name in sorted(before.fields.keys() | now.fields.keys()):
        was, now_is = before.fields.get(name), now.fields.get(name)
        if was != now_is and all(each.fields.get(name) == was for each in old):
            found.append(name)
            lines.append(
                f"{name}: {'not there' if was is None else was} before, {'not there' if now_is is None else now_is} now"
            )
    if before.body != now.body and all(each.body == before.body for each in old):
        found.append("body")
        lines.append(_body_difference(before.body, now.body))
    return found, lines


def _body_difference(before: bytes, now: bytes) -> str:
    """Return the first lines in which two bodies differ."""
    one, other = (body.decode("utf-8", "backslashreplace").splitlines() for body in (before, now))
    changed = list(difflib.unified_diff(one, other, lineterm="", n=0))[2:12]
    return f"body of {len(before)} bytes before, {len(now)} now\n" + "\n".join(f"    {line[:200]}" for line in changed)
