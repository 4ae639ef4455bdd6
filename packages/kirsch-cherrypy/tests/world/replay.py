"""Record programs on CherryPy, replay the requests on the layer over Kirsch, and compare the responses.

    python replay.py --environments FOLDER [--sources DIR] [--only NAME,...] [--write]

``programs.toml`` has the programs: distributions of PyPI, and programs in folders of DIR, such as clones of their
repositories. Each program starts three times with empty data: twice on CherryPy 18, where the first run makes the list
of requests by following links, and the second run shows which responses differ by themselves; and once on the layer
over Kirsch, with the name ``cherrypy`` given to the layer and no other change. ``NAME.json`` keeps for each program
what was recorded (requests with the digests of the responses, and no content) and an explanation of each difference. A
difference without an explanation fails. ``--write`` writes the file anew, with an empty explanation for each new
difference.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import gzip
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
PACKAGES = HERE.parents[2]

START = """
import os, sys
if os.environ["WORLD"] == "layer":
    import kirsch_cherrypy
    kirsch_cherrypy.install_as_cherrypy()
else:
    import cherrypy  # the distribution's, and not an older one that the program brings along
"""
"""The module ``sitecustomize`` of the programs."""

IGNORED = {
    "date",
    "server",
    "content-length",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "last-modified",
    "expires",
}
"""Fields of the server, or of the time. A length is compared by the content."""
VOLATILE = [
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "UUID"),
    (r"""(csrf[\w-]*["']?\s+(?:content|value)=["'])[\w.-]+""", r"\1TOKEN"),
    (r"[0-9a-fA-F]{10,}", "HEX"),
    (r"\d{4}-\d\d-\d\d", "DAY"),
    (r"\d\d?:\d\d(:\d\d)?(\.\d+)?( ?[AP]M)?", "TIME"),
    (r"\b(\d+|an?|a few) (second|minute|hour|day)s? ago", "AGO"),
    (r"\d{9,}(\.\d+)?", "NUMBER"),
    (r"(CherryPy[ /]|cherrypy\.org[^>]*>CherryPy )[\w.]+", "CherryPy VERSION"),
]
LATER = 2.0
"""How many seconds later the second recording begins: what a page says of the time differs between the recordings."""
LINK = re.compile(r"""(?:href|src|action)\s*=\s*["']([^"'#]+)""")


class Program:
    """One program of ``programs.toml``."""

    def __init__(self, name: str, values: dict[str, Any], sources: Path | None, environments: Path) -> None:
        self.name = name
        self.values = values
        self.source = (sources / values["source"] if sources is not None else None) if "source" in values else HERE
        self.environment = environments / name

    @property
    def missing(self) -> str:
        """The reason for which it cannot run here; empty if it can."""
        if self.source is None or not self.source.is_dir():
            return f"there is no folder {self.values['source']}: give --sources, with a clone of {self.values['home']}"
        return ""

    def install(self) -> None:
        """Make its environment, unless it is there."""
        python = self.environment / "bin" / "python"
        done = self.environment / "installed"
        wanted = json.dumps(self.values.get("requirements", []))
        if done.exists() and done.read_text() == wanted:
            return
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", self.environment], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", *self.values["requirements"]], check=True, cwd=self.source
        )
        done.write_text(wanted)

    @contextlib.contextmanager
    def running(self, world: str, kirsch: Path) -> Iterator[Client]:
        """The program on CherryPy or on the layer, with empty data."""
        with tempfile.TemporaryDirectory(prefix="world") as folder:
            data = Path(folder, "data")
            data.mkdir()
            Path(folder, "sitecustomize.py").write_text(START + self.values.get("before", ""))
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                port = listener.getsockname()[1]
            for name, text in self.values.get("files", {}).items():
                (data / name).parent.mkdir(parents=True, exist_ok=True)
                (data / name).write_text(text.replace("{port}", str(port)).replace("{data}", str(data)))
            paths = [folder]
            if world == "layer":
                paths += [str(PACKAGES / each / "src") for each in ("kirsch-web", "kirsch-cherrypy")] + [str(kirsch)]
            environment = {
                **os.environ, "WORLD": world, "PYTHONPATH": os.pathsep.join(paths), "HOME": str(data), "TZ": "UTC",
                **dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"), str(data)),
                "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
            }  # fmt: skip
            command = [
                each.format(bin=self.environment / "bin", port=port, data=data) for each in self.values["command"]
            ]
            log = Path(folder, "log")
            with log.open("wb") as output:
                process = subprocess.Popen(
                    command, cwd=self.source, env=environment, stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
                try:
                    yield Client(self, port, str(data), process, log)
                except BaseException:
                    sys.stderr.write(log.read_text("utf-8", "replace")[-6000:])
                    raise
                finally:
                    for number in (signal.SIGTERM, signal.SIGKILL):
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(process.pid, number)
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            process.wait(20)
                            break


class Client:
    """Sends requests to a running program, and keeps its cookies."""

    def __init__(self, program: Program, port: int, data: str, process: Any, log: Path) -> None:
        self.program, self.port, self.data = program, port, data
        self.cookies: dict[str, str] = {}
        deadline = time.monotonic() + 240
        while True:
            try:
                ready = program.values.get("ready", "/")
                status, _, content = self.ask(("GET", ready, {"Accept-Encoding": "identity"}, ""))
                if program.values.get("not_ready", "\0").encode() in content:
                    status = 500
                login = program.values.get("login")
                if status < 500 and login:  # the program may make the user after the server has started
                    status, _, _ = self.ask(("POST", login["path"], {}, urlencode(login["form"])))
                    status = 500 if status != login["status"] else status
                if status < 500:
                    return
            except (OSError, http.client.HTTPException):
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{program.name} does not answer:\n{log.read_text('utf-8', 'replace')[-6000:]}")
            time.sleep(0.5)

    def ask(self, request: Any) -> tuple[int, list[tuple[str, str]], bytes]:
        method, path, fields, body = request
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Accept-Encoding": "gzip", "User-Agent": "world", **fields}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, body.encode() or None, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        for name, value in response.getheaders():
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return response.status, response.getheaders(), content

    def normal(self, request: Any) -> dict[str, Any]:
        """The response without what differs from run to run."""
        status, headers, content = self.ask(request)
        if ("content-encoding", "gzip") in {(name.lower(), value) for name, value in headers}:
            with contextlib.suppress(OSError, EOFError, zlib.error):
                content = gzip.decompress(content)
        fields: dict[str, str] = {}
        for name, value in headers:
            key = name.lower()
            if key not in IGNORED:
                if key == "set-cookie":
                    value = value.partition("=")[0] + _attributes(value)
                shown = self._stable(value)
                fields[key] = f"{fields[key]}, {shown}" if key in fields else shown
        text = self._stable(content.decode("utf-8", "replace"))
        return {"status": status, "fields": dict(sorted(fields.items())), "body": text, "raw": content}

    def _stable(self, text: str) -> str:
        text = text.replace(self.data, "DATA").replace(str(self.port), "PORT")
        for pattern, name in [*self.program.values.get("volatile", []), *VOLATILE]:
            text = re.sub(pattern, name, text)
        return text


def _attributes(cookie: str) -> str:
    """The names of a cookie's attributes: their times differ."""
    names = sorted(each.partition("=")[0].strip().lower() for each in cookie.split(";")[1:])
    return "; " + "; ".join(names)


def digest(response: dict[str, Any]) -> str:
    text = json.dumps([response["status"], response["fields"], response["body"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def record(client: Client) -> tuple[list[Any], list[dict[str, Any]]]:
    """Follow the links of the program. Returns the requests, and their responses."""
    values = client.program.values
    requests: list[Any] = [("POST", each["path"], {}, urlencode(each["form"])) for each in values.get("posts", [])]
    requests += [("GET", path, {}, "") for path in values.get("start", ["/"])]
    seen = {request[1] for request in requests}
    responses: list[dict[str, Any]] = []
    files = 0
    at = 0
    while at < len(requests):
        response = client.normal(requests[at])
        responses.append(response)
        base = requests[at][1]
        kind = response["fields"].get("content-type", "")
        found = [response["fields"]["location"]] if "location" in response["fields"] else []
        if kind.startswith("text/html"):
            found += LINK.findall(response["raw"].decode("utf-8", "replace"))
        for link in found:
            parts = urlsplit(
                urljoin(f"http://127.0.0.1:{client.port}{base}", unescape(link).replace("PORT", str(client.port)))
            )
            if parts.netloc != f"127.0.0.1:{client.port}" or len(requests) >= values.get("most", 120):
                continue
            path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (
                f"?{quote(parts.query, safe='=&%+/:,')}" if parts.query else ""
            )
            is_file = re.search(r"\.\w{2,5}$", parts.path) is not None
            files += is_file
            if (
                path in seen
                or (is_file and files > 40)
                or any(fnmatch.fnmatch(path, each) for each in values.get("never", []))
            ):
                continue
            seen.add(path)
            requests.append(("GET", path, {}, ""))
        at += 1
    # How the server and the tools treat what no link asks for.
    first = values.get("start", ["/"])[0]
    extra: list[Any] = [
        ("HEAD", first, {}, ""), ("GET", "/no/such/page", {}, ""), ("POST", first, {}, "a=1&a=2"),
        ("PUT", first, {}, ""), ("OPTIONS", first, {}, ""), ("GET", f"{first}?unexpected=%FF", {}, ""),
        ("GET", first, {"Accept-Encoding": "identity"}, ""), ("GET", first, {"Accept-Charset": "iso-8859-1"}, ""),
    ]  # fmt: skip
    statics = [
        request[1]
        for request, response in zip(requests, responses, strict=True)
        if "?" not in request[1] and response["status"] == 200 and re.search(r"\.(css|js|png|ico)$", request[1])
    ]
    for path in statics[:2]:
        extra += [
            ("GET", path, {"Range": "bytes=0-9", "Accept-Encoding": "identity"}, ""), ("HEAD", path, {}, ""),
            ("GET", path, {"Range": "bytes=9999999-", "Accept-Encoding": "identity"}, ""),
            ("GET", path, {"If-None-Match": '"x"'}, ""),
            ("GET", path, {"If-Modified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"}, ""),
        ]  # fmt: skip
    responses += [client.normal(request) for request in extra]
    return requests + extra, responses


def general(one: dict[str, Any], other: dict[str, Any], part: str) -> str:
    """The explanation of a difference that every program has; empty for others."""
    if part != "body" or one["status"] != other["status"]:
        return ""
    if one["status"] in (301, 302, 303, 307):
        return "the words of a redirect are the layer's own"
    if one["status"] >= 400 and ("Powered by" in one["body"] or "Invalid Range" in one["body"]):
        return "the words of an error page are the layer's own"
    return ""


def compare(program: Program, kirsch: Path, *, write: bool) -> int:
    """Record and replay a program. Returns the number of failures."""
    with program.running("cherrypy", kirsch) as client:
        requests, first = record(client)
    with program.running("cherrypy", kirsch) as client:
        time.sleep(LATER)
        second = [client.normal(request) for request in requests]
    with program.running("layer", kirsch) as client:
        replayed = [client.normal(request) for request in requests]
    page = HERE / f"{program.name}.json"
    known: dict[str, str] = json.loads(page.read_text())["differences"] if page.exists() else {}
    found: dict[str, str] = {}
    recorded = []
    usual: dict[str, int] = {}
    for request, one, two, other in zip(requests, first, second, replayed, strict=True):
        words = " ".join([*request[:2], *(f"{name}: {value}" for name, value in request[2].items())])
        parts = [part for part in ("status", "fields", "body") if one[part] == two[part]]
        is_stable = len(parts) == 3
        recorded.append([words, one["status"], digest(one) if is_stable else "unstable"])
        differing = []
        for part in [part for part in parts if one[part] != other[part]]:
            explanation = general(one, other, part)
            if explanation:
                usual[explanation] = usual.get(explanation, 0) + 1
            else:
                differing.append(part)
        if differing:
            found[words] = _shown(one, other, differing)
    unexplained = {words: shown for words, shown in found.items() if not _explained(known, words)}
    gone = [words for words in known if not any(fnmatch.fnmatch(each, words) for each in found)]
    unstable = sum(each[2] == "unstable" for each in recorded)
    if os.environ.get("WORLD_UNSTABLE"):
        for request, one, two in zip(requests, first, second, strict=True):
            if digest(one) != digest(two):
                parts = [part for part in ("status", "fields", "body") if one[part] != two[part]]
                print(f"  unstable: {request[1]}\n{_shown(one, two, parts)}")
    print(
        f"{program.name}: {len(requests)} requests, {unstable} differ by themselves, {len(found)} differ on the layer"
    )
    for explanation, count in usual.items():
        print(f"  {count} more: {explanation}")
    for words, shown in unexplained.items():
        print(f"  {words}\n{shown}")
    for words in gone:  # one that depends on time, such as of a cache, may be so
        print(f"  explained, and not different in this run: {words}")
    if write:
        version = (
            program.values.get("version")
            or subprocess.run(
                ["git", "log", "-1", "--format=%H"], cwd=program.source, capture_output=True, text=True, check=False
            ).stdout.strip()
        )
        differences = {**known, **dict.fromkeys(unexplained, "")}
        content = {"version": version, "usual": usual, "differences": differences}
        head = json.dumps(content, indent=1, ensure_ascii=False).removesuffix("\n}")
        rows = ",\n".join(f"  {json.dumps(each, ensure_ascii=False)}" for each in recorded)
        page.write_text(f'{head},\n "recorded": [\n{rows}\n ]\n}}\n')
    return len(unexplained)


def _explained(known: dict[str, str], words: str) -> bool:
    """Whether a request is explained: by its name, or by a pattern such as ``GET /api*``."""
    return any(text and (words == each or fnmatch.fnmatch(words, each)) for each, text in known.items())


def _shown(one: dict[str, Any], other: dict[str, Any], differing: list[str]) -> str:
    lines = []
    for part in differing:
        if part == "body":
            at = next((i for i, (a, b) in enumerate(zip(one[part], other[part], strict=False)) if a != b), -1)
            at = min(len(one[part]), len(other[part])) if at < 0 else at
            lines += [
                f"    body at {at}:",
                *(f"      {each['body'][max(0, at - 40) : at + 80]!r}" for each in (one, other)),
            ]
        else:
            names = sorted(set(one[part]) | set(other[part])) if part == "fields" else [""]
            for name in names:
                pair = (one[part].get(name), other[part].get(name)) if part == "fields" else (one[part], other[part])
                if pair[0] != pair[1]:
                    lines.append(f"    {name or part}: {pair[0]!r} became {pair[1]!r}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    import kirsch

    programs = tomllib.loads((HERE / "programs.toml").read_text())
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        # The server alone, and nothing else of the environment that it is installed in.
        Path(folder, "kirsch").symlink_to(Path(kirsch.__file__).parent)
        for name, values in programs.items():
            if arguments.only and name not in arguments.only.split(","):
                continue
            program = Program(name, values, arguments.sources, arguments.environments.resolve())
            if program.missing:
                print(f"{name}: skipped: {program.missing}")
                continue
            program.install()
            failures += compare(program, Path(folder), write=arguments.write)
    raise SystemExit(min(failures, 1))


if __name__ == "__main__":
    main()
