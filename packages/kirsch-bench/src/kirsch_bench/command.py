"""``kirsch bench``: read the command line, measure, report."""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from kirsch import reports
from kirsch_bench import certificates, errors, flags, remote
from kirsch_bench import target as targets
from kirsch_bench.errors import Failure, UsageError
from kirsch_bench.files import Files
from kirsch_bench.measure import measure
from kirsch_bench.progress import Display

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_bench import ab
    from kirsch_bench.plan import Load
    from kirsch_bench.remote import Host
    from kirsch_bench.results import Result

_CLIENTS_OF_A_WORKER = 10
"""asynchammer's."""

_COOL_DOWN_SECONDS = 0.5
"""Between the steps of a search, for a server to be done with what it had queued."""

_SCRIPT = re.compile(r".+\.py(:.*)?|(?!unix:)[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""The form of a target that is a load test in Python. It does not fit a URL, whose port begins with a digit."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (default: the arguments of the process); return its exit status."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        if argv and argv[0] == "compare":
            from kirsch_bench import command_compare

            return command_compare.run(argv[1:])
        if argv and argv[0] == "worker":
            from kirsch_bench import _worker

            return _worker.main()
        given = flags.parse(argv)
        if "help" in given:
            Files({}).answer(flags.HELP)
            return errors.OK
        return _run(given)
    except Failure as failure:
        reports.write_stderr(f"kirsch bench: {failure}")
        return failure.status
    except KeyboardInterrupt:
        return errors.INTERRUPTED


def _run(given: dict[str, Any]) -> int:
    if "kubernetes" in given:
        flags.require_flags(given, flags.KUBERNETES, "--kubernetes")
        if "image" not in given:
            raise UsageError("--kubernetes needs --image: an image with kirsch-bench")
        Files({}).answer(remote.manifest(given["kubernetes"], given["image"]))
        return errors.OK
    if "cycles" in given or _SCRIPT.fullmatch(given.get("target", "")):
        flags.require_flags(given, flags.USERS, "a load test in Python")
        from kirsch_bench import command_users

        return command_users.run(given)
    if "thread_report" in given:
        flags.require_flags(given, flags.THREAD_REPORT, "--thread-report")
        return _thread_report(given)
    if "size_report" in given:
        flags.require_flags(given, flags.SIZE_REPORT, "--size-report")
        return _size_report(given)
    flags.require_flags(given, flags.LOAD, "a URL")
    given = _as_asynchammer(given)
    target = _target(given)
    load = build_load(given, target)
    files = Files({name: given[name] for name in ("json", "html", "hdr") if name in given})
    display = Display(quiet="quiet" in given)
    if "slo" in given:
        if "fail_if" in given:
            raise UsageError("--slo and --fail-if do not go together; --slo tries rates that break its objective")
        return _slo(given, load, files, display)
    for name in ("slo_precision", "max_rate"):
        if name in given:
            raise UsageError(f"--{name.replace('_', '-')} means nothing without --slo")
    return _single(given, load, files, display)


# ------------------------------------------------------------------------------------------------------ what to do


def _as_asynchammer(given: dict[str, Any]) -> dict[str, Any]:
    """Convert asynchammer's four flags to ours: workers of ten clients each, and --max requests, the first --warmup
    not counted."""
    if not given.keys() & {"workers", "max", "host"}:
        return given
    if "host" in given and "target" in given:
        raise UsageError("--host and a URL are two targets; give one")
    if clash := given.keys() & {"connections", "rate", "duration", "requests", "processes"}:
        raise UsageError(f"--{min(clash)} and asynchammer's flags say the same twice; give one of the two")
    kind, warmup = given.get("warmup", ("requests", 0))
    if kind != "requests":
        raise UsageError("--warmup is a number of requests where --max is")
    if "max" not in given:
        raise UsageError("--max is missing: the number of requests, with those of --warmup")
    if given["max"] <= warmup:
        raise UsageError(f"--max {given['max']} leaves nothing to measure after --warmup {warmup}")
    workers = given.get("workers", 1)
    translated = {name: value for name, value in given.items() if name not in ("workers", "max", "host")}
    if "host" in given:
        translated["target"] = given["host"]
    return {
        "headers": "chrome",
        "keep_alive": False,
        **translated,
        "processes": workers,
        "connections": workers * _CLIENTS_OF_A_WORKER,
        "requests": given["max"] - warmup,
        "warmup": ("requests", warmup),
    }


def _target(given: dict[str, Any]) -> targets.Target:
    if not given.get("target"):
        raise UsageError(
            "which server? Name it, as in `kirsch bench http://127.0.0.1:8000/`; kirsch bench --help tells more"
        )
    resolve = "on" not in given
    parsed = targets.parse(
        given["target"], unix=given.get("unix_socket", ""), own="i_own_this_host" in given, resolve=resolve
    )
    if resolve:
        return targets.require_answering(parsed)
    if parsed.unix:
        raise UsageError("--on and a Unix socket do not go together: another host does not have it")
    # The other hosts check the server themselves: this host may not reach it.
    return parsed


_OPEN = frozenset({"rate", "slo", "stages", "replay"})
"""The flags that say when requests are sent, whatever the server does."""

_EXCLUSIVE = (
    ("duration", "requests"),
    ("stages", "duration"),
    ("stages", "requests"),
    ("stages", "think"),
    ("stages", "slo"),
    ("rate", "think"),
    ("varying", "length"),
    ("varying", "sha256"),
    ("requests_file", "method"),
    ("requests_file", "data"),
    *(
        ("replay", name)
        for name in ("rate", "stages", "slo", "think", "arrivals", "warmup", "requests_file", "method", "data")
    ),
)


def _require_compatible(given: dict[str, Any]) -> None:
    """Refuse flags that contradict each other. Raises UsageError."""
    for first, second in _EXCLUSIVE:
        if first in given and second in given and not (first == "rate" and "slo" in given):
            raise UsageError(f"--{first.replace('_', '-')} and --{second.replace('_', '-')} do not go together")
    for name, needed in (
        ("arrivals", _OPEN),
        ("max_connections", _OPEN),
        ("speed", {"replay"}),
        ("replay_host", {"replay"}),
    ):
        if name in given and not given.keys() & needed:
            words = "--replay" if needed == {"replay"} else "--rate or --stages"
            raise UsageError(f"--{name.replace('_', '-')} means nothing without {words}")
    if "pipeline" in given and given.get("http") == "2":
        raise UsageError("--pipeline is of HTTP/1; the requests under way on a connection of HTTP/2 are --streams")
    if "streams" in given and given.get("http") != "2":
        raise UsageError("--streams means nothing without --http2")


def _roots(given: dict[str, Any], target: targets.Target) -> str | None:
    """Return the trusted certificate authorities in PEM; None to accept any certificate. Raises UsageError."""
    if not target.tls:
        for name in ("ca_certs", "insecure"):
            if name in given:
                raise UsageError(f"--{name.replace('_', '-')} means nothing without https://")
        return None
    if "insecure" in given:
        if "ca_certs" in given:
            raise UsageError("--ca-certs and --insecure do not go together")
        return None
    path = given.get("ca_certs") or certificates.system_bundle()
    try:
        with open(path, encoding="latin-1") as file:
            return file.read(1 << 24)
    except OSError as error:
        raise UsageError(f"--ca-certs: cannot read {path}: {error.strerror or error}") from None


def build_load(given: dict[str, Any], target: targets.Target) -> Load:
    """Return the load for the given flags. Raises UsageError for flags that contradict each other."""
    from kirsch_bench import stages
    from kirsch_bench.plan import Load

    _require_compatible(given)
    is_open = bool(given.keys() & _OPEN)
    count = given.get("requests")
    duration = None if count is not None else given.get("duration", 5.0 if "slo" in given else 10.0)
    kind, warmup = given.get("warmup", ("seconds", 1.0 if count is None and "stages" not in given else 0.0))
    rate_stages = stages.parse(given["stages"]) if "stages" in given else ()
    if rate_stages:
        duration = sum(stage.seconds for stage in rate_stages) - warmup
        if kind != "seconds" or duration <= 0:
            raise UsageError("--warmup with --stages is a time, shorter than all stages: the part that is not measured")
    # Recorded pages seldom have the same body each time.
    body = None if given.keys() & {"varying", "replay"} else "first"
    checks = {
        "status": given.get("status", [[200, 399]]),
        "length": given.get("length", body),
        "sha256": given.get("sha256", body),
    }
    rate = given.get("rate", 0.0 if rate_stages else 100.0) if is_open else None
    processes = given.get("processes", 1)
    max_connections = given.get("max_connections", 1000)
    if rate is not None and max_connections < processes:
        raise UsageError(f"--max-connections {max_connections} is less than one for each of {processes} processes")
    load = Load(
        target=target,
        requests=() if "replay" in given else _requests(given, target, checks),
        connections=given.get("connections", 0 if is_open else 10),
        rate=rate,
        stages=rate_stages,
        arrivals=given.get("arrivals", "constant"),
        max_connections=max_connections,
        pipeline=given.get("streams", given.get("pipeline", 1)),
        think=given.get("think", 0.0),
        thinking=given.get("thinking", "constant"),
        duration=duration,
        count=count,
        warmup_seconds=warmup if kind == "seconds" else 0.0,
        warmup_requests=int(warmup) if kind == "requests" else 0,
        version=given.get("http", "1.1"),
        roots=_roots(given, target),
        keep_alive=given.get("keep_alive", True),
        timeout=given.get("timeout", 30.0),
        seed=given.get("seed", 0),
        order="random" if "draw" in given else "turn",
        checks=checks,
        processes=processes,
        hosts=_hosts(given),
    )
    return _with_recording(load, given) if "replay" in given else load


def _with_recording(load: Load, given: dict[str, Any]) -> Load:
    """Return the load with the requests of ``--replay``, each at its time."""
    from kirsch_bench import recording, requests

    found = recording.read(given["replay"], load.target.authority, given.get("replay_host"))
    replay, different = recording.plan(
        found, given.get("speed", 1.0), seconds=given.get("duration"), count=given.get("requests")
    )
    # A HAR file contains all header fields.
    profile = given.get("headers", None if replay.kind == recording.HAR else "curl")
    return dataclasses.replace(
        load,
        replay=replay,
        requests=requests.from_recording(
            different,
            load.target,
            load.checks,
            profile=profile,
            headers=tuple(given.get("header", ())),
            status="status" in given,
        ),
        rate=len(replay.schedule) / max(replay.seconds, 1e-3),
        count=len(replay.schedule),
        duration=None,
        warmup_seconds=0.0,
    )


def _hosts(given: dict[str, Any]) -> tuple[Host, ...]:
    for name in ("ssh", "remote_kirsch"):
        if name in given and "on" not in given:
            raise UsageError(f"--{name.replace('_', '-')} means nothing without --on")
    if "on" not in given:
        return ()
    try:
        return remote.hosts(given["on"], shell=given.get("ssh", "ssh"), kirsch=given.get("remote_kirsch", "kirsch"))
    except ValueError as error:
        raise UsageError(f"--on: {given['on']!r} {error}") from None


def _requests(given: dict[str, Any], target: targets.Target, checks: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    from kirsch_bench import requests

    profile = given.get("headers", "curl")
    headers = given.get("header", [])
    if "requests_file" not in given:
        if "draw" in given:
            raise UsageError("--draw means nothing without --requests-file")
        method, data = given.get("method"), given.get("data")
        return requests.single(target, profile=profile, headers=headers, method=method, data=data)
    found = requests.from_file(given["requests_file"], target, profile=profile, headers=headers)
    for request in found:
        if "status" in request:
            request["checks"] = {**checks, "status": request.pop("status")}
    return found


# ------------------------------------------------------------------------------------------------------- measuring


def _single(given: dict[str, Any], load: Load, files: Files, display: Display) -> int:
    from kirsch_bench import ab, hdrlog, page, summary, thresholds
    from kirsch_bench.environment import Machine, capture

    conditions = [thresholds.parse(text) for text in given.get("fail_if", ())]
    environment, machine = capture(), Machine()
    result = measure(load, display, thresholds=conditions)
    environment["machine"] = machine.as_json()
    files.answer(ab.block(result) if "ab" in given else summary.text(result))
    files.write("hdr", lambda: hdrlog.write(result))
    document = _document(load, result, environment)
    files.write_json(document)
    files.write("html", lambda: page.write(result, document))
    return _status(result, files)


def _slo(given: dict[str, Any], load: Load, files: Files, display: Display) -> int:
    from kirsch_bench import hdrlog, page, slo, summary
    from kirsch_bench.environment import Machine, capture

    if load.count is not None:
        raise UsageError("--slo and --requests do not go together; each step takes a --duration")
    objective = slo.parse(given["slo"])
    start, highest = load.rate or 100.0, given.get("max_rate", 1e7)
    if highest < start:
        raise UsageError(f"--max-rate {highest:g} is below the first rate, {start:g}")
    environment, machine = capture(), Machine()

    def try_rate(rate: float) -> Result:
        time.sleep(_COOL_DOWN_SECONDS)
        return measure(load.at_rate(rate), display, prefix=f"{rate:,.0f} a second ")

    def tell(step: slo.Step) -> None:
        files.answer(slo.line(step))

    found = slo.search(
        try_rate, objective, start=start, highest=highest, precision=given.get("slo_precision", 0.05), tell=tell
    )
    environment["machine"] = machine.as_json()
    files.answer(f"\n{slo.verdict(found, given['slo'])}")
    last = found.best or found.steps[-1]
    files.answer(f"\n{summary.text(last.result)}")
    files.write("hdr", lambda: hdrlog.write(last.result))
    document = {**_document(last.result.load, last.result, environment), "slo": found.as_json(given["slo"])}
    files.write_json(document)
    files.write("html", lambda: page.write(last.result, document, search=found))
    if found.interrupted:
        return errors.INTERRUPTED
    return errors.OK if found.rate is not None and not files.failed else errors.ERRORS_SEEN


def _document(load: Load, result: Result, environment: dict[str, Any]) -> dict[str, Any]:
    """Return the document that ``--json`` writes; docs/bench.md describes it."""
    plain = dataclasses.asdict(dataclasses.replace(load, requests=(), replay=None))
    del plain["roots"]
    special = {
        "stages": plain["stages"],
        "hosts": [host.name for host in load.hosts],
        "replay": load.replay and load.replay.as_json(),
    }
    options = {name: value for name, value in plain.items() if name not in ("target", "requests", "checks", *special)}
    # Omit these keys for other loads, so that their reports can be compared with earlier ones.
    options |= {name: value for name, value in special.items() if value}
    return {
        "schema": "kirsch-bench-1",
        "target": load.target.url,
        "load": options,
        "checks": load.checks,
        "requests": list(load.requests[:100]),
        "environment": environment,
        "result": result.as_json(),
    }


def _status(result: Result, files: Files) -> int:
    if result.interrupted:
        return errors.INTERRUPTED
    if any(judged.is_crossed for judged in result.thresholds):
        return errors.THRESHOLD_CROSSED
    if files.failed or result.troubles or result.unreachable:
        return errors.ERRORS_SEEN
    # If a threshold is about errors, it decides how many are too many.
    tolerates = any(judged.threshold.judges_errors for judged in result.thresholds)
    return errors.OK if tolerates or result.went_well else errors.ERRORS_SEEN


def _thread_report(given: dict[str, Any]) -> int:
    from kirsch_bench import ab

    display = Display(quiet="quiet" in given)
    session = _ab_session(given, _target(given), display)
    rows = ab.thread_report(session, given["thread_report"] or ab.SAFE_THREADS, tell=display.say)
    return _ab_report(ab.thread_heading(session, given.get("server_threads")), rows)


def _size_report(given: dict[str, Any]) -> int:
    from kirsch_bench import ab

    url = given.get("target") or ""
    sizes = given["size_report"] or ab.SIZES

    def target_of(size: int) -> targets.Target:
        return _target({**given, "target": ab.with_size(url, size) if url else ""})

    display = Display(quiet="quiet" in given)
    session = _ab_session(given, target_of(sizes[0]), display)
    rows = ab.size_report(
        target_of, sizes, given.get("connections", ab.SIZE_CLIENTS), session=session, tell=display.say
    )
    status = _ab_report(ab.size_heading(session, given.get("server_threads")), rows)
    if [row[0] for row in rows[1:]] != list(sizes):
        reports.write_stderr(
            "kirsch bench: --size-report: some bodies have another length than asked for; put {size} in the URL"
        )
        return errors.ERRORS_SEEN
    return status


def _ab_session(given: dict[str, Any], target: targets.Target, display: Display) -> ab.ABSession:
    from kirsch_bench import ab

    if target.tls:
        raise UsageError(f"{target.url!r}: these tables are of plain http, as ab's were")
    generator = given.get("generator", "auto")
    session = ab.ABSession(
        target,
        given.get("requests", 3000),
        command="" if generator == "kirsch" else None,
        measure=lambda load: measure(load, display),
    )
    if generator == "ab" and not session.uses_ab:
        raise UsageError("--generator ab: it is not installed, or cannot reach a Unix socket")
    return session


def _ab_report(heading: str, rows: Sequence[Sequence[object]]) -> int:
    from kirsch_bench import ab

    Files({}).answer(f"{heading}\n{ab.report_text(rows)}")
    failed = any(row[1] is None or float(str(row[2])) > 0 for row in rows[1:])
    return errors.ERRORS_SEEN if failed else errors.OK
