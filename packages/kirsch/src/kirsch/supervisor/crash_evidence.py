"""Which route is to blame for crashes of workers: a judgement from what ran in each worker when it crashed.

A worker records the routes of its calls, from the first crash on and for some time. So the first crash of a series has
no record. A crash says little by itself: any number of calls may run, and one of them is the cause at most. What counts
as evidence, from the strongest on:

* *Alone*: all calls that ran were for one route. No other route can be the cause.
* *Newest*: the route has one call, which began after calls of all other routes did, by a clear distance. A request
  that crashes a worker usually does so soon.

A route is convicted when it is to blame for three crashes within a minute; more if its calls have ended as well: one
for each hundred. If it did not run alone each time, none of its calls may have ended at all, and it must not have run
in a crash that another route is to blame for. So a slow page whose calls die with the worker each time is safe: some of
them are older than the request that crashes it.

What would be wrong: to leave out routes whose calls end. Then a client whose requests end, and now and then crash,
could have the others convicted.

A path that contains numbers belongs to a *family*, all paths that differ in numbers alone. The family is convicted if
three of its paths are to blame: then the numbers do not matter.

Nothing here reads a clock or shared memory: times are seconds of CLOCK_MONOTONIC, and arguments.
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
    """A route in the table of a worker. ``key`` identifies it, ``family`` its family (0: none). ``running`` calls have
    not ended, ``ended`` ones have. Since ``since`` calls of it have run without a break."""

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
    """A worker that ended unexpectedly. ``how`` says for people which worker, and how. ``records`` is its table; None
    if recording had not begun. ``unrecorded`` calls ran that are not in the table."""

    __slots__ = ("alone", "at", "blamed", "blamed_family", "how", "innocent", "paths", "records", "unrecorded")

    def __init__(self, at: float, how: str, records: Iterable[RecordedRoute] | None, unrecorded: int = 0) -> None:
        self.at = at
        self.how = how
        self.records = None if records is None else list(records)
        self.unrecorded = unrecorded
        # The judgement of this crash: the key of the route to blame and that of its family, 0: none.
        self.blamed = self.blamed_family = 0
        self.alone = False
        # The keys of the paths that ran, where one family is to blame; and of the routes that are not.
        self.paths: set[int] = set()
        self.innocent: set[int] = set()


class Conviction:
    """A route, or a family of routes, and the crashes that it is to blame for."""

    def __init__(self, key: int, name: str, crashes: list[Crash]) -> None:
        self.key = key
        self.name = name
        self.crashes = crashes


class Evidence:
    """The crashes of the last minute."""

    def __init__(self) -> None:
        self._crashes: list[Crash] = []
        # The time at which each route was convicted: earlier crashes do not count against it again.
        self._convicted: dict[int, float] = {}

    def add(self, crash: Crash, ended_elsewhere: Mapping[int, int]) -> Conviction | None:
        """Judge a crash. ``ended_elsewhere``: for each key the calls that have ended in workers that still run.

        Returns the route that is convicted by it, if there is one.
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
        """Return the route, or else the family, that this crash convicts."""
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
    """Return whether the route is to blame for enough of ``crashes``."""
    alone = sum(each.alone for each in blamed)
    # The first crash of a series has no record. If all others are certain, it is taken to have the same cause.
    unknown = int(alone >= CRASHES_MIN - 1 and any(each.records is None for each in crashes))
    if alone + unknown >= CRASHES_MIN + ended // _ENDED_PER_CRASH:
        return True
    return len(blamed) >= CRASHES_MIN and ended == 0 and not any(key in each.innocent for each in crashes)


def _judge(crash: Crash, ended: Mapping[int, int]) -> None:
    """Find the route to blame for a crash. ``ended``: for each key the calls that have ended anywhere."""
    if crash.records is None or crash.unrecorded:
        return  # any call may be missing, the cause too
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
        return  # by chance: its calls do not end the worker
    crash.innocent = {key for each in running[:-1] for key in (each.key, each.family) if key}
    crash.innocent -= {newest.key, newest.family}
    crash.blamed, crash.blamed_family, crash.paths = newest.key, newest.family, {newest.key}
