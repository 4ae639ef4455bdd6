"""The results' folder: ``rounds.jsonl``, to which each round is added as soon as it is over.

The first line is the header. A survey that goes on finds what has been measured, and measures what is missing; what it
is about to measure has to be the same as what was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from typing import IO, TYPE_CHECKING, Any

from kirsch_bench.errors import Failure, UsageError
from kirsch_bench.survey import records

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "rounds.jsonl"


class Store:
    """One folder, held by one survey at a time."""

    def __init__(self, folder: str) -> None:
        """Open the folder. Raises UsageError if it is not writable, or another survey uses it."""
        self.folder = folder
        self.path = os.path.join(folder, NAME)
        self.remark = ""
        """The damage that was found in the file and repaired."""
        self._file: IO[bytes] | None = None
        try:
            os.makedirs(folder, exist_ok=True)
            self._lock = open(os.path.join(folder, ".lock"), "a", encoding="utf-8")  # noqa: SIM115 - held to the end
        except OSError as error:
            raise UsageError(f"--out: cannot write {folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise UsageError(f"--out: another survey writes to {folder} now") from None

    def close(self) -> None:
        """Release the folder."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._lock.close()

    def begin(self, header: records.Header, *, again: bool) -> tuple[records.Header, list[records.Round]]:
        """Return the header that holds and the rounds that are there. ``again`` throws these away.

        Raises UsageError where what is there is another survey's, Failure where it cannot be written.
        """
        rounds: list[records.Round] = []
        if not again and os.path.exists(self.path):
            before, rounds, self.remark = load(self.folder)
            header = _joined(before, header, self.folder)
        lines = [_line(header), *(_line(each) for each in rounds)]
        temporary = f"{self.path}.new"
        try:
            with open(temporary, "wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise Failure(f"cannot write {self.path}: {error.strerror}") from None
        return header, rounds

    def add(self, measured: records.Round) -> None:
        """Append a round. Raises Failure if it cannot be written; earlier rounds stay intact."""
        assert self._file is not None
        data = _line(measured)
        size = os.fstat(self._file.fileno()).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file.fileno(), data[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), size)
            raise Failure(f"cannot write {self.path}: {error.strerror}; what is there already is kept") from None


def load(folder: str) -> tuple[records.Header, list[records.Round], str]:
    """Return header, rounds, and a remark about damage. Raises UsageError if there is no survey."""
    path = os.path.join(folder, NAME)
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    found: list[records.Header | records.Round] = []
    remark = ""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(records.from_json(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            # Each line is written at once, with its end; what has none was never finished.
            if number == len(lines) and found:
                remark = f"{path}: its last line is torn and was dropped; that round is measured again"
                continue
            raise UsageError(f"{path}:{number}: this is no record of a survey; --again begins anew") from None
    rounds = {
        (each.server, each.python, each.scenario, each.round): each for each in found if isinstance(each, records.Round)
    }
    if not found or not isinstance(found[0], records.Header):
        raise UsageError(f"{path} does not begin as a survey does; --again begins anew")
    return found[0], list(rounds.values()), remark


def _line(record: records.Header | records.Round) -> bytes:
    return json.dumps(records.as_json(record), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _joined(before: records.Header, now: records.Header, folder: str) -> records.Header:
    """Return a header of both: the same conditions, and the servers and scenarios that either names."""
    for what, then, new in (
        *((name, getattr(before, name), getattr(now, name)) for name in ("seed", "seconds", "warmup")),
        *((name, _of(before, *path), _of(now, *path)) for name, path in _ENVIRONMENT.items()),
    ):
        if _plain(then) != _plain(new):
            raise _differs(folder, what, then, new)
    subjects = {(each.server, each.python): each for each in before.subjects}
    for each in now.subjects:
        old = subjects.get((each.server, each.python))
        if old is not None and not old.absent and not each.absent:
            name = f"{each.server}{f' under {each.python}' if each.python else ''}"
            for detail in ("adapter", "versions", "options"):
                then, new = getattr(old, detail), getattr(each, detail)
                if then != new:
                    raise _differs(folder, f"{detail} of {name}", then, new)
        if old is None or not each.absent:
            subjects[each.server, each.python] = each
    scenarios = {each.name: each for each in before.scenarios}
    for scenario in now.scenarios:
        was = scenarios.setdefault(scenario.name, scenario)
        for detail in ("load", "application", "path", "series", "x"):
            if getattr(was, detail) != getattr(scenario, detail):
                what = f"{detail} of scenario {scenario.name}"
                raise _differs(folder, what, getattr(was, detail), getattr(scenario, detail))
    return dataclasses.replace(
        now,
        rounds=max(before.rounds, now.rounds),
        subjects=tuple(subjects.values()),
        scenarios=tuple(dataclasses.replace(each) for each in scenarios.values()),
        environment=before.environment,
    )


_ENVIRONMENT = {
    "the processor": ("cpu", "model"),
    "the system": ("system",),
    "the processors": ("processors",),
    "Kirsch": ("kirsch",),
}
"""Of the machine and the generator: what figures of one survey have to have in common."""


def _of(header: records.Header, *path: str) -> Any:
    value: Any = header.environment
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _plain(value: Any) -> Any:
    """Return a value as it would be read from the file."""
    return json.loads(json.dumps(value))


def _differs(folder: str, what: str, then: Any, now: Any) -> UsageError:
    if isinstance(then, dict) and isinstance(now, dict):
        keys = [key for key in sorted({*then, *now}) if then.get(key) != now.get(key)]
        what = f"{what}, {keys[0]}" if keys else what
        then, now = (each.get(keys[0], "nothing") if keys else each for each in (then, now))
    return UsageError(
        f"{folder} holds a survey with other conditions: {what} was {_shown(then)} and is {_shown(now)}; "
        "name another --out, or say --again to begin anew"
    )


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value) or "empty"


def missing(
    planned: Sequence[tuple[str, str, str, int]], rounds: Sequence[records.Round]
) -> list[tuple[str, str, str, int]]:
    """Return the planned (server, python, scenario, round) that were not measured yet."""
    there = {(each.server, each.python, each.scenario, each.round) for each in rounds}
    return [each for each in planned if each not in there]
