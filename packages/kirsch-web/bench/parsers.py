"""Microseconds for each body or field: kirsch_web's parsers beside those of the libraries that are installed.

    python bench/parsers.py

Processor time, the best of many repetitions. Each is measured in three processes of its own, in turns: in one process
the memory that one parser gives back would decide what the next one pays for pages.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from kirsch_web import fields, multipart, percent
from kirsch_web.forms import CHUNK, Limits

BOUNDARY = "----WebKitFormBoundary7MA4YWxkTrZu0gW"
QUERY = "&".join(f"name{number}=value+{number}%20x" for number in range(10))
COOKIES = "; ".join(f"cookie{number}=value{number}" for number in range(6))


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


TWENTY = b"".join(part(f"field{number}", b"some value") for number in range(20)) + f"--{BOUNDARY}--\r\n".encode()
MEBIBYTE = part("file", os.urandom(1 << 20), '; filename="a.bin"') + f"--{BOUNDARY}--\r\n".encode()


def ours(body: bytes) -> Callable[[], object]:
    limits = Limits(spool=4 << 20)

    def run() -> object:
        source = io.BytesIO(body)
        return multipart.parse(iter(lambda: source.read(CHUNK), b""), BOUNDARY, limits)

    return run


def of_multipart(body: bytes) -> Callable[[], object]:
    from multipart import MultipartParser

    return lambda: list(MultipartParser(io.BytesIO(body), BOUNDARY, len(body), memfile_limit=4 << 20))


def of_werkzeug(body: bytes) -> Callable[[], object]:
    from werkzeug.formparser import MultiPartParser

    factory: Any = lambda **_: io.BytesIO()  # noqa: E731
    return lambda: MultiPartParser(stream_factory=factory).parse(io.BytesIO(body), BOUNDARY.encode(), len(body))


def of_parse_qsl() -> Callable[[], object]:
    from urllib.parse import parse_qsl

    return lambda: parse_qsl(QUERY, keep_blank_values=True)


def of_simple_cookie() -> Callable[[], object]:
    from http.cookies import SimpleCookie

    return lambda: SimpleCookie(COOKIES)


JOBS: dict[tuple[str, str], Callable[[], Callable[[], object]]] = {
    ("20 fields", "kirsch_web"): lambda: ours(TWENTY),
    ("20 fields", "multipart"): lambda: of_multipart(TWENTY),
    ("20 fields", "werkzeug"): lambda: of_werkzeug(TWENTY),
    ("1 MiB file", "kirsch_web"): lambda: ours(MEBIBYTE),
    ("1 MiB file", "multipart"): lambda: of_multipart(MEBIBYTE),
    ("1 MiB file", "werkzeug"): lambda: of_werkzeug(MEBIBYTE),
    ("10 pairs", "kirsch_web"): lambda: lambda: percent.pairs(QUERY, 1000),
    ("10 pairs", "parse_qsl"): of_parse_qsl,
    ("6 cookies", "kirsch_web"): lambda: lambda: fields.cookies(COOKIES),
    ("6 cookies", "SimpleCookie"): of_simple_cookie,
}


def measure(job: str, name: str) -> float:
    """The best of the repetitions in this process."""
    run = JOBS[job, name]()
    calls = 4 if "MiB" in job else 100
    best = 1e9
    for _ in range(60):
        start = time.process_time()
        for _ in range(calls):
            run()
        best = min(best, (time.process_time() - start) / calls * 1e6)
    return best


def main() -> None:
    if len(sys.argv) == 3:
        print(measure(sys.argv[1], sys.argv[2]))
        return
    best: dict[tuple[str, str], float] = {}
    for _ in range(3):
        for job, name in JOBS:
            done = subprocess.run([sys.executable, __file__, job, name], capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{job}, {name}: {done.stderr.strip().splitlines()[-1]}")
            else:
                best[job, name] = min(best.get((job, name), 1e9), float(done.stdout))
    print(f"Python {sys.version.split()[0]}, microseconds")
    for (job, name), figure in best.items():
        print(f"  {job:10}  {name:12} {figure:8.1f}")


if __name__ == "__main__":
    main()
