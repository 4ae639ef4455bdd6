"""Finding the route that causes crashes of workers, from the calls that ran in each worker when it crashed. After a
crash, workers record the routes of their calls for some time. So the first crash of a series has no record. One crash
proves little: any number of calls may be running, and at most one of them is the cause. The kinds of evidence, the
strongest first:

* *Alone*: all calls that ran were for one route. No other route can be the cause.
* *Newest*: the route has one call, which began after calls of all other routes did, by a clear distance. A request
  that crashes a worker usually does so soon.

A route is convicted if it is blamed for three crashes within a minute, plus one for each hundred of its calls that have
ended normally. If it was not alone each time, then none of its calls may have ended normally, and it must not have been
running in a crash for which another route is blamed. So a slow page whose calls die with the worker each time is safe:
some of its calls are older than the request that crashes the worker. It would be wrong to ignore routes whose calls end
normally: a client whose requests crash only sometimes could then get other routes convicted.

A path that contains numbers belongs to a *family*, all paths that differ in numbers alone. The family is convicted if
three of its paths are blamed. This module reads no clock or shared memory: times are seconds of CLOCK_MONOTONIC, and
arguments.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WINDOW_SECONDS = 60.0
"""Crashes that are older count no more."""

CRASHES_MIN = 3
"""The number of crashes that a route is to blame for when it is convicted."""

_ENDED_PER_CRASH = 100
"""One more crash is needed for each of so many calls that have ended."""

_CLEAR_SECONDS = 0.01
"""If two calls began within this time, neither is the newest: which one ran first is chance. CPython lets a thread
keep the GIL for 5 ms while others wait."""


class RecordedRoute:
    """A route in the table of a worker. ``key`` identifies it, ``family`` its family (0: none). ``running`` is the
    number of running calls, ``ended`` of ended ones. Since the time ``since`` at least one call has always been
    running."""

    __slots__ = ("ended", "family", "is_family", "key", "name", "running", "since")

    def __init__(
        self, key: int, family: int, is_family: bool, running: int, ended: int, since: float, name: str
    ) -> None:
        self.key = key
        self.family = family
        self.is_family = is_family
        self.running = running
        self.ended = ended
        self.since = since
        self.name = name


class Crash:
    """A worker that ended unexpectedly. ``how`` is a text about the worker and its end. ``records`` is its table, or
    None if recording had not begun. ``unrecorded`` is the number of running calls that are not in the table."""

    __slots__ = ("alone", "at", "blamed", "blamed_family", "how", "innocent", "paths", "records", "unrecorded")

    def __init__(self, at: float, how: str, records: Iterable[RecordedRoute] | None, unrecorded: int = 0) -> None:
        self.at = at
        self.how = how
        self.records = None if records is None else list(records)
        self.unrecorded = unrecorded
        # The result for this crash: the keys of the blamed route and of its family; 0 means none.
        self.blamed = self.blamed_family = 0
        self.alone = False
        # The keys of the running paths, if one family is blamed; and the keys of the routes that are not to blame.
        self.paths: set[int] = set()
        self.innocent: set[int] = set()


class Conviction:
    """A convicted route or family of routes, and the crashes for which it is blamed."""

    def __init__(self, key: int, name: str, crashes: list[Crash]) -> None:
        self.key = key
        self.name = name
        self.crashes = crashes


class Evidence:
    """The crashes of the last minute."""

    def __init__(self) -> None:
        self._crashes: list[Crash] = []
        # The time at which each route was convicted. Earlier crashes do not count against it again.
        self._convicted: dict[int, float] = {}

    def add(self, crash: Crash, ended_elsewhere: Mapping[int, int]) -> Conviction | None:
        """Add a crash. ``ended_elsewhere`` is, by key, the number of calls that have ended in running workers. Return
        the route that is now convicted, or None.
        """
        self._forget(crash.at)
        self._crashes.append(crash)
        ended = dict(ended_elsewhere)
        for each in self._crashes:
            for record in each.records or ():
                ended[record.key] = ended.get(record.key, 0) + record.ended
        _judge(crash, ended)
        if not (crash.blamed or crash.blamed_family):
            return None
        return self._convict(crash, ended)

    def _forget(self, now: float) -> None:
        earliest = now - WINDOW_SECONDS
        self._crashes = [each for each in self._crashes if each.at >= earliest]
        self._convicted = {key: at for key, at in self._convicted.items() if at >= earliest}

    def _convict(self, crash: Crash, ended: Mapping[int, int]) -> Conviction | None:
        """Return the route, or else the family, that is convicted by this crash."""
        assert crash.records is not None
        for key in (crash.blamed, crash.blamed_family):
            if not key:
                continue
            since = self._convicted.get(key, float("-inf"))
            crashes = [each for each in self._crashes if each.at > since]
            blamed = [each for each in crashes if key in (each.blamed, each.blamed_family)]
            is_family = key != crash.blamed
            if is_family and len(set().union(*(each.paths for each in blamed))) < CRASHES_MIN:
                continue
            if _is_enough(key, blamed, crashes, ended.get(key, 0)):
                self._convicted[key] = crash.at
                name = next(record.name for record in crash.records if record.key == key)
                return Conviction(key, name, blamed)
        return None


def _is_enough(key: int, blamed: list[Crash], crashes: list[Crash], ended: int) -> bool:
    """Return whether ``blamed`` are enough of ``crashes`` to convict the route with ``key``."""
    alone = sum(each.alone for each in blamed)
    # The first crash of a series has no record. If the evidence of all others is certain, assume the same cause.
    unknown = int(alone >= CRASHES_MIN - 1 and any(each.records is None for each in crashes))
    if alone + unknown >= CRASHES_MIN + ended // _ENDED_PER_CRASH:
        return True
    return len(blamed) >= CRASHES_MIN and ended == 0 and not any(key in each.innocent for each in crashes)


def _judge(crash: Crash, ended: Mapping[int, int]) -> None:
    """Find the route to blame for a crash. ``ended`` is the number of calls that have ended in any worker, by key."""
    if crash.records is None or crash.unrecorded:
        return  # any call may be missing, including the cause
    running = [record for record in crash.records if record.running and not record.is_family]
    if not running:
        return
    if len(running) == 1 or (running[0].family and len({record.family for record in running}) == 1):
        crash.alone = True
        crash.blamed = running[0].key if len(running) == 1 else 0
        crash.blamed_family = running[0].family
        crash.paths = {record.key for record in running}
        return
    running.sort(key=lambda record: record.since)
    newest = running[-1]
    if newest.running > 1 or newest.since - running[-2].since < _CLEAR_SECONDS:
        return
    if ended.get(newest.key) or ended.get(newest.family):
        return  # coincidence: calls of this route end normally
    crash.innocent = {key for each in running[:-1] for key in (each.key, each.family) if key}
    crash.innocent -= {newest.key, newest.family}
    crash.blamed, crash.blamed_family, crash.paths = newest.key, newest.family, {newest.key}
