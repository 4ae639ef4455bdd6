"""``kirsch profile``: serve the application, send the requests, print the report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kirsch import bootstrap
from kirsch.config import sources
from kirsch.config.setting import UsageError
from kirsch_bench.profile import flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch.config.schema import Settings
    from kirsch_bench.files import Files
    from kirsch_bench.profile.results import Profile

REQUESTS = 1000
WARMUP = 100
PATIENCE_SECONDS = 30.0
THRESHOLD_NANOSECONDS = 1_000_000

RATE = 500.0
"""CherryPy's authors had it so: below 500 requests a second look at the application, not at the server."""


def main(argv: Sequence[str]) -> int:
    """Run the subcommand with the words after its name; return its exit status.

    Raises UsageError and StartupError, which :func:`kirsch.commands.cli.main` reports.
    """
    from kirsch.commands.output import print_output
    from kirsch_bench import errors

    given, servers = flags.parse(argv)
    if "help" in given:
        print_output(flags.HELP)
        return 0
    chosen = _settings(servers)
    try:
        return _run(given, chosen)
    except errors.UsageError as error:
        raise UsageError(str(error)) from None
    except errors.Failure as failure:
        raise bootstrap.StartupError(failure.status, str(failure)) from None


def _settings(servers: Sequence[str]) -> Settings:
    """Return the settings for serving the application. Those of the supervisor, such as ``--workers``, have no
    effect."""
    chosen = sources.read(servers)
    sources.require_application(chosen)
    if chosen.access_logfile:
        # Writing the access log is part of the profile, but its lines are not needed.
        chosen = sources.read(["--access-logfile", os.devnull, *_without(servers, "--access-logfile")])
    return chosen


def _without(words: Sequence[str], flag: str) -> list[str]:
    kept = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == flag:
            del waiting[:1]
        elif not word.startswith(f"{flag}="):
            kept.append(word)
    return kept


def _run(given: dict[str, Any], chosen: Settings) -> int:
    from kirsch import reports as kirsch_reports
    from kirsch_bench.environment import capture
    from kirsch_bench.files import Files
    from kirsch_bench.profile import requests, results, serving

    paths = {name: given[name] for name in ("json", "html", "prof") if name in given}
    if paths.get("prof") == "-":
        raise UsageError("--prof: a profile is no text; name a file")
    # Relative to the directory in which the command was run, regardless of --chdir.
    files = Files({name: path if path == "-" else os.path.abspath(path) for name, path in paths.items()})
    request = requests.Request(
        given["path"],
        given.get("method"),
        given.get("data"),
        given.get("header", []),
        given.get("patience", PATIENCE_SECONDS),
    )
    bootstrap.change_directory(chosen)
    for warning in chosen.warnings:
        kirsch_reports.write_stderr(f"kirsch: {warning}")
    os.environ.update(chosen.env)
    app, name = bootstrap.load_application(chosen)
    interface = bootstrap.interface(app, chosen)
    reports = serving.Reports(bootstrap.open_logs(chosen))
    profile = results.Profile(
        application=name,
        method=request.method,
        path=request.path,
        driver="asyncio" if interface == "asgi" else chosen.driver,
        threads=chosen.threads,
        threshold=given.get("threshold", THRESHOLD_NANOSECONDS),
        sort=given.get("sort", "order"),
        rate=given.get("rate", RATE),
        environment=capture(),
    )
    measurement = requests.Measurement(
        request,
        requests=given.get("requests", REQUESTS),
        warmup=given.get("warmup", WARMUP),
        connections=given.get("connections", 1),
        quiet="quiet" in given,
    )
    room = measurement.requests + measurement.warmup + 64
    serving.serve(app, chosen, reports, request.path, 64, lambda *server: requests.ask(request, profile, *server))
    if measurement.requests and not profile.answer.trouble:
        staged = None
        if interface == "wsgi":
            # If the application reports no stages, measure it without the wrapper for them.
            asked = serving.Staged(app)
            serving.serve(
                asked.application, chosen, serving.no_report, request.path, 64, lambda _, target: request.ask(target)
            )
            staged = serving.Staged(app) if asked.spent else None
        measured = staged.application if staged else app
        serving.serve(
            measured, chosen, reports, request.path, room, lambda *server: measurement.run(profile, staged, *server)
        )
    followed = serving.Followed(app, interface)
    serving.serve(
        followed.application,
        chosen,
        reports,
        request.path,
        64,
        lambda *server: requests.follow(request, profile, followed, *server),
    )
    profile.reports_repeated = reports.repeated
    return _report(profile, files)


def _report(profile: Profile, files: Files) -> int:
    from kirsch_bench.profile import report

    files.answer(report.text(profile))
    files.write_json(report.document(profile))
    files.write("html", lambda: report.page(profile))
    if profile.stats is not None:
        files.write_bytes("prof", profile.marshalled)
    return 0 if profile.went_well and not files.failed else 1
