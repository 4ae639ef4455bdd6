"""The requests of a load in the form of the generator's plan: one from the command line, or those of a file."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from kirsch_bench import profiles
from kirsch_bench.errors import UsageError
from kirsch_bench.target import check_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch.adopt.recording import Recorded
    from kirsch_bench.profiles import Fields
    from kirsch_bench.target import Target

_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # a token, RFC 9110 section 9.1
_FORM = "application/x-www-form-urlencoded"

_REQUESTS_MAX = 100_000
"""Each is in memory once for each process."""

_KEYS = {"method": str, "path": str, "headers": dict, "body": str, "weight": int, "status": (int, str)}


def single(
    target: Target, *, profile: str, headers: Sequence[tuple[str, str]] = (), method: str | None, data: str | None
) -> tuple[dict[str, Any], ...]:
    """Return the request of the command line. As in curl, a request with a body is by default a POST of a form."""
    return (_request(target, profile, tuple(headers), method, target.path, _data(data), "-X"),)


def from_file(
    path: str, target: Target, *, profile: str, headers: Sequence[tuple[str, str]] = ()
) -> tuple[dict[str, Any], ...]:
    """Read the requests of a file, as ``kirsch bench --help`` describes it. Raises UsageError, which names the line."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(1 << 28).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--requests-file: cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            found.append(_from_line(text, f"{path}, line {number}", target, profile, tuple(headers)))
    if not found:
        raise UsageError(f"--requests-file: {path} has no request")
    if len(found) > _REQUESTS_MAX:
        raise UsageError(f"--requests-file: {path} has {len(found):,} requests, and {_REQUESTS_MAX:,} are the most")
    return tuple(found)


def from_recording(
    found: Sequence[Recorded],
    target: Target,
    checks: dict[str, Any],
    *,
    profile: str | None,
    headers: Fields = (),
    status: bool = False,
) -> tuple[dict[str, Any], ...]:
    """Return recorded requests. The response must have the recorded status, unless a status was given in ``checks``
    (``status``). The fields of ``profile`` complete those of a log; None if the record has all fields."""
    if len(found) > _REQUESTS_MAX:
        raise UsageError(f"--replay: there are {len(found):,} different requests, and {_REQUESTS_MAX:,} are the most")
    named = {name.lower() for name, _ in headers}
    requests = []
    for each in found:
        fields = (*(field for field in each.fields if field[0].lower() not in named), *headers)
        request: dict[str, Any] = {
            "method": each.method,
            "path": each.target,
            "fields": [field for field in fields if field[1]]
            if profile is None
            else profiles.fields(profile, target.authority, fields),
            "body": None if each.body is None else base64.b64encode(each.body).decode(),
        }
        if not status:
            # A conditional or range request may get the whole response if the record lacks its header fields.
            exact = each.status is not None and each.status not in (206, 304)
            request["checks"] = {**checks, "status": [[each.status, each.status]] if exact else [[200, 399]]}
        requests.append(request)
    return tuple(requests)


def parse_statuses(text: str) -> list[list[int]]:
    """Parse statuses such as ``200,4xx,500-504`` into inclusive ranges. Raises ValueError."""
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"([1-9])xx|([1-9]\d\d)(?:-([1-9]\d\d))?", part.strip(), re.ASCII | re.IGNORECASE)
        if match is None:
            raise ValueError("is no list of statuses; write 200, 2xx or 400-404, with commas between")
        first = int(match[1]) * 100 if match[1] else int(match[2])
        last = first + 99 if match[1] else int(match[3] or match[2])
        if last < first:
            raise ValueError(f"has {part.strip()}, which is none")
        ranges.append([first, last])
    return ranges


def _from_line(text: str, origin: str, target: Target, profile: str, headers: Fields) -> dict[str, Any]:
    if not text.startswith("{"):
        method, _, path = text.rpartition(" ")
        return _request(target, profile, headers, method.strip() or None, path, None, origin)
    try:
        given = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{origin}: no JSON: {error}") from None
    for key, value in given.items():
        if key not in _KEYS:
            raise UsageError(f"{origin}: {key!r} is none of {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):  # type: ignore[arg-type]
            raise UsageError(f"{origin}: {key!r} cannot be {value!r}")
    own = tuple((str(name), str(value)) for name, value in given.get("headers", {}).items())
    named = {name.lower() for name, _ in own}
    merged = (*(field for field in headers if field[0].lower() not in named), *own)
    request = _request(
        target, profile, merged, given.get("method"), given.get("path", "/"), _data(given.get("body")), origin
    )
    if "weight" in given:
        if given["weight"] < 1:
            raise UsageError(f"{origin}: a weight is 1 or more")
        request["weight"] = given["weight"]
    if "status" in given:
        try:
            request["status"] = parse_statuses(str(given["status"]))
        except ValueError as error:
            raise UsageError(f"{origin}: {given['status']!r} {error}") from None
    return request


def _request(
    target: Target, profile: str, headers: Fields, method: str | None, path: str, body: bytes | None, origin: str
) -> dict[str, Any]:
    fields = profiles.fields(profile, target.authority, headers)
    if body is not None and not any(name.lower() == "content-type" for name, _ in headers):
        fields.append(("Content-Type", _FORM))
    method = method or ("GET" if body is None else "POST")
    if not _METHOD.fullmatch(method):
        raise UsageError(f"{origin}: {method!r} is no method")
    return {
        "method": method,
        "path": check_path(path, origin),
        "fields": fields,
        "body": None if body is None else base64.b64encode(body).decode(),
    }


def _data(text: str | None) -> bytes | None:
    """Return a body, or the content of the file that ``@`` names. Raises UsageError."""
    if text is None or not text.startswith("@"):
        return None if text is None else text.encode()
    try:
        with open(text[1:], "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read {text[1:]}: {error.strerror}") from None
