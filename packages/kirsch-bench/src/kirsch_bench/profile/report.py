"""A profile as text, as JSON and as a page of HTML."""

from __future__ import annotations

import http
from html import escape
from typing import TYPE_CHECKING, Any

from kirsch import _native
from kirsch.profile import tree
from kirsch_bench.show import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kirsch_bench.profile.results import Answer, Profile, Stage

_BEFORE, _AFTER = ("read", "parse", "environ", "queue"), ("write", "other", "peer")


def text(profile: Profile) -> str:
    """Return the profile as text for a terminal."""
    parts = ["\n".join(_answered(profile))]
    if profile.times:
        parts += ["\n".join(_stages(profile)), "\n".join(_shares(profile))]
    parts.append("\n".join(_calls(profile)))
    return "\n\n".join(parts)


def _answered(profile: Profile) -> Iterator[str]:
    threads = f", {plural(profile.threads, 'thread')}" if profile.driver == "threads" else ""
    served = f"{profile.application}, driver {profile.driver}{threads}"
    yield f"{profile.method} {profile.path} of {served}: {_said(profile.answer)}"
    if profile.raised:
        yield f"The application raised {profile.raised}."
    if profile.other_answers:
        others = ", ".join(f"{count:,} with {status}" for status, count in profile.other_answers.items())
        yield f"Not all were answered like the first: {others}."
    if profile.result is not None and profile.result.failed:
        example = profile.result.errors[0]["example"] if profile.result.errors else ""
        yield f"{plural(profile.result.failed, 'request')} failed: {example}"
    if profile.reports_repeated:
        yield f"{plural(profile.reports_repeated, 'report')} like those above were not repeated."


def _said(answer: Answer) -> str:
    if answer.trouble:
        return answer.trouble
    try:
        phrase = f" {http.HTTPStatus(answer.status).phrase}"
    except ValueError:
        phrase = ""
    where = f", to {answer.location}, which was not followed" if answer.location else ""
    return f"{answer.status}{phrase}, {plural(answer.length, 'byte')}{where}"


def _stages(profile: Profile) -> Iterator[str]:
    yield f"Stages of {plural(len(profile.times), 'request')}, microseconds, without a tracer"
    rows = list(_rows(profile))
    width = max(8, *(len(name) for name, _ in rows))
    yield f"  {'':{width}} {'mean':>10} {'p50':>10} {'p99':>10} {'share':>7}"
    for name, stage in rows:
        spread = (stage.p50, stage.p99) if name.strip() != "rest" else ()
        figures = f"{stage.mean / 1e3:10,.2f}" + "".join(f" {value / 1e3:10,.2f}" for value in spread).ljust(22)
        yield f"  {name:{width}} {figures} {stage.share:7.1%}"
    if profile.driver == "asyncio":
        yield "  (app is from the call to the end of the response, with all that the request's task waits for)"


def _rows(profile: Profile) -> Iterator[tuple[str, Stage]]:
    """Yield each stage of the table, with the application's stages indented below ``app``."""
    for name, stage in profile.stages.items():
        if name == "peer" and not stage.mean:
            continue
        yield name, stage
        if name == "app":
            yield from ((f"  {inner}", each) for inner, each in profile.application_stages.items())


def _shares(profile: Profile) -> Iterator[str]:
    stages = profile.stages
    server, app = profile.server / 1e3, stages["app"].mean / 1e3
    if profile.worked is not None:
        yield (
            f"Processor time of a request: {profile.worked / 1e3:,.1f} us, of which the application "
            f"{profile.worked_in_application / 1e3:,.1f} and the server {server:,.1f}, its waiting for sockets "
            "included."
        )
    else:
        yield f"The server takes {server:,.1f} us of a request: the time of its stages, for its client has its thread."
    yield f"Of a request's time the server is {profile.server_share:.1%}; the rest is the application ({app:,.1f} us)."
    share, each = profile.server_share_at_rate, 1e6 / profile.rate
    yield (
        f"At {profile.rate:,g} requests a second for each worker the server is {share:.1%} of a worker's time "
        f"({server:,.1f} of {each:,.0f} us for each request)."
    )


def _calls(profile: Profile) -> Iterator[str]:
    if profile.calls_trouble:
        yield f"No calls: {profile.calls_trouble}."
        return
    total = sum(call["total"] for call in profile.calls)
    which = f"that took {_duration(profile.threshold)} or longer" if profile.threshold else "all of them"
    yield f"Calls of one more request, under the tracer, {which}"
    if profile.driver == "asyncio":
        yield (
            "(of the request's own task, without its waits; for other tasks and threads use py-spy record, and to see "
            "what is waited for, --slow-request)"
        )
    yield f"{tree.HEAD[0]}"
    if profile.followed_times is None:
        yield from tree.lines(profile.calls, profile.threshold, profile.sort)
    else:
        spent = dict(zip(_native.STAGES, profile.followed_times[0], strict=True))
        whole = sum(spent[name] for name in (*_BEFORE, *_AFTER)) + total
        yield tree.line(whole, None, None, 0, f"{profile.method} {profile.path}")
        for name in _BEFORE:
            yield tree.line(spent[name], None, None, 1, f"kirsch: {name}")
        yield tree.line(total, None, None, 1, "application")
        yield from tree.lines(profile.calls, profile.threshold, profile.sort, 2)
        for name in _AFTER:
            if spent[name] or name != "peer":
                yield tree.line(spent[name], None, None, 1, f"kirsch: {name}")
    longest = tree.longest(profile.calls)
    if longest is None:
        yield "The application is no function of Python's, and called none."
    elif longest["total"] < profile.threshold:
        yield (
            f"No call took so long; the longest, {tree.named(longest)}, took {_duration(longest['total'])}. "
            "--threshold 0 shows all."
        )


def _duration(nanoseconds: int) -> str:
    if nanoseconds and nanoseconds < 1_000_000:
        return f"{nanoseconds / 1e3:g} us"
    return f"{nanoseconds / 1e6:g} ms" if nanoseconds else "0"


def document(profile: Profile) -> dict[str, Any]:
    """Return the document that ``--json`` writes; docs/profiling.md describes it. Times in µs, except in ``calls``."""
    stages = {
        name: {"mean": each.mean / 1e3, "p50": each.p50 / 1e3, "p99": each.p99 / 1e3, "share": each.share}
        for name, each in profile.stages.items()
    }
    found: dict[str, Any] = {
        "schema": "kirsch-profile-1",
        "application": profile.application,
        "request": {"method": profile.method, "path": profile.path},
        "driver": profile.driver,
        "threads": profile.threads,
        "answer": {
            "status": profile.answer.status or None,
            "bytes": profile.answer.length,
            "location": profile.answer.location or None,
            "trouble": profile.answer.trouble or None,
        },
        "raised": profile.raised or None,
        "environment": profile.environment,
        "requests": len(profile.times),
        "stages": stages,
    }
    if profile.spent:
        found["application_stages"] = {
            name: {"mean": each.mean / 1e3, "p50": each.p50 / 1e3, "p99": each.p99 / 1e3, "share": each.share}
            for name, each in profile.application_stages.items()
        }
    if profile.times:
        found["clock_readings"] = sum(times[2] for times in profile.times) / len(profile.times)
        found["processor"] = {
            "all": None if profile.worked is None else profile.worked / 1e3,
            "application": profile.worked_in_application / 1e3,
        }
        found["server"] = {
            "time": profile.server / 1e3,
            "share": profile.server_share,
            "rate": profile.rate,
            "share_at_rate": profile.server_share_at_rate,
        }
        found["statuses"] = {} if profile.result is None else profile.result.statuses
    found["calls"] = profile.calls
    return found


def page(profile: Profile) -> str:
    """Return the page that ``--html`` writes."""
    from kirsch_bench import page as pages

    what, *remarks = _answered(profile)
    parts = [f"<p class='warning'>{escape(remark)}</p>" for remark in remarks]
    if profile.times:
        rows = [["stage", "mean us", "p50", "p99", "share"]]
        rows += [
            [name, *(f"{value / 1e3:,.2f}" for value in (each.mean, each.p50, each.p99)), f"{each.share:.1%}"]
            for name, each in _rows(profile)
        ]
        parts += [f"<h2>Stages of {plural(len(profile.times), 'request')}</h2>", pages.table(rows)]
        parts += [f"<p>{escape(line)}</p>" for line in _shares(profile)]
    title, *lines = _calls(profile)
    parts += [f"<h2>{escape(title)}</h2>", f"<pre>{escape(chr(10).join(lines))}</pre>"]
    return pages.document_page(f"{profile.method} {profile.path}", what, parts, document(profile))
