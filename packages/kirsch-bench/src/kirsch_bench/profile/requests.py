"""The requests of a profile: one to see the response, many for the stages, and one whose calls are traced."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kirsch.profile import stats
from kirsch_bench import requests
from kirsch_bench.http_client import Http, RequestFailure
from kirsch_bench.profile import serving
from kirsch_bench.profile.results import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch.server import Server
    from kirsch_bench.profile.results import Profile
    from kirsch_bench.target import Target

_ANY_STATUS = range(100, 1000)


class Request:
    """The request that is profiled, always the same. Raises kirsch_bench's UsageError if its body cannot be read."""

    def __init__(
        self, path: str, method: str | None, data: str | None, headers: Sequence[tuple[str, str]], patience: float
    ) -> None:
        self.path = path
        self._headers = headers
        self._data = data
        self._patience = patience
        made = requests.single(_nowhere(path), profile="curl", headers=headers, method=method, data=data)[0]
        self.method: str = made["method"]
        self._body = None if made["body"] is None else base64.b64decode(made["body"])

    def plan(self, target: Target) -> tuple[dict[str, Any], ...]:
        """Return the request for the native generator."""
        return requests.single(target, profile="curl", headers=self._headers, method=self.method, data=self._data)

    def ask(self, target: Target) -> Answer:
        """Send the request once, on a new connection."""
        http = Http(target, timeout=self._patience, profile="curl")
        # An empty Host in the plan removes the field, but this client cannot send a request without it.
        headers = {name: value for name, value in self.plan(target)[0]["fields"] if name.lower() != "host" or value}
        try:
            response = http.request(
                self.method, self.path, data=self._body, headers=headers, ok=_ANY_STATUS, redirects=False
            )
        except RequestFailure as failure:
            return Answer(trouble=self._trouble(failure))
        finally:
            http.close()
        location = response.headers.get("Location", "") if 300 <= response.status < 400 else ""
        return Answer(response.status, len(response.body), location)

    def _trouble(self, failure: RequestFailure) -> str:
        if failure.kind == "timeout":
            return f"it had not been answered as a whole after {self._patience:g} s, and was given up"
        if failure.kind == "closed_early":
            return "its answer was cut short"
        if failure.kind == "malformed":
            return f"its answer was given up: {failure}"
        return str(failure)


def _nowhere(path: str) -> Target:
    from kirsch_bench.target import Target

    return Target("127.0.0.1", 0, path, "127.0.0.1")


@dataclass
class Measurement:
    """The requests whose stages are measured."""

    request: Request
    requests: int
    warmup: int
    connections: int
    quiet: bool

    def run(self, profile: Profile, staged: serving.Staged | None, server: Server, target: Target) -> None:
        """Send the request ``requests`` times, after :func:`ask`."""
        from kirsch_bench.measure import measure
        from kirsch_bench.plan import Load
        from kirsch_bench.progress import Display

        load = Load(
            target,
            self.request.plan(target),
            connections=self.connections,
            duration=None,
            count=self.requests,
            warmup_requests=self.warmup,
            timeout=self.request._patience,
            checks={"status": [[100, 599]], "length": None, "sha256": None},
        )
        serving.times(server, 0)
        worked, worked_here = time.process_time(), time.thread_time()
        result = measure(load, Display(quiet=self.quiet))
        worked = time.process_time() - worked
        worked_here = time.thread_time() - worked_here
        profile.times = serving.times(server, min(self.requests, result.requests))
        profile.result = result
        if staged is not None:
            profile.spent = staged.spent[-len(profile.times) :] if profile.times else []
        if profile.driver == "threads" and (answered := result.answered + result.discarded["requests"]):
            # Subtract the time of this thread, which communicates with the generator's process.
            profile.worked = (worked - worked_here) / answered * 1e9


def ask(request: Request, profile: Profile, _server: Server, target: Target) -> None:
    """Send the request once, to see the response."""
    profile.answer = request.ask(target)


def follow(request: Request, profile: Profile, followed: serving.Followed, server: Server, target: Target) -> None:
    """Send the request once more, and trace its calls."""
    server.stage_times()
    answer = request.ask(target)
    run = followed.last()
    if run is None:
        profile.calls_trouble = "the request whose calls were to be followed has not come to its end"
        return
    profile.raised = run.raised
    profile.followed = answer
    profile.calls = stats.plain(run.tracer.root)
    profile.stats = stats.of(run.tracer.root)
    profile.followed_started = run.started
    if not answer.trouble:
        profile.followed_times = next(iter(serving.times(server, 1)), None)
