"""The virtual users of a load test: each is a thread of this process. Their actions are returned as samples.

A cycle's time, the same for all processes of it (FunkLoad's stages)::

    start      users start one after another   settle        measured                     users leave
    ├──────────┴──┴──┴──┴──┴──┴────────────────┼─────────────┼────────────────────────────┼──▶ ...
               startup_delay each                            window_from                  window_to

Only what *ends* within the window counts. A user whose time is up finishes the test that it is in.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import random
import signal
import sys
import threading
import time
import traceback
import unittest
from typing import TYPE_CHECKING, Any

from kirsch_bench.errors import Failure, UsageError
from kirsch_bench.http_client import RequestFailure
from kirsch_bench.loadtest import LoadTest, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from kirsch_bench.http_client import Sample

_PROGRESS_SECONDS = 0.25

_LEAVE_SECONDS = 2.0
"""The seconds that a user gets, beyond its page's timeout, to finish its last test."""

_EXAMPLES_MAX = 20


def load(spec: str) -> tuple[type[LoadTest], str]:
    """Return the class and the name of the test that ``FILE.py:Class[.test]`` or ``module:Class[.test]`` names.

    If the class has a single test, its name can be omitted. Raises UsageError, which lists the available names, and
    Failure with the traceback of a module that cannot be imported.
    """
    module_name, _, rest = spec.partition(":")
    class_name, _, test_name = rest.partition(".")
    module = _import(module_name)
    found = {
        name: each
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, LoadTest) and each is not LoadTest
    }
    if not class_name and len(found) == 1:
        class_name = next(iter(found))
    test = found.get(class_name)
    if test is None:
        there = f"there is {', '.join(found)}" if found else "it has no subclass of kirsch_bench.LoadTest"
        raise UsageError(f"{spec!r}: which load test of {module_name}? {there}")
    names = unittest.TestLoader().getTestCaseNames(test)
    if not test_name and len(names) == 1:
        test_name = names[0]
    if test_name not in names:
        raise UsageError(f"{spec!r}: which test of {class_name}? There is {', '.join(names) or 'none'}")
    return test, test_name


def _import(name: str) -> Any:
    try:
        if not name.endswith(".py"):
            sys.path.insert(0, os.getcwd())
            return importlib.import_module(name)
        path = os.path.abspath(name)
        if not os.path.isfile(path):
            raise UsageError(f"{name}: there is no such file")
        # As for `python FILE.py`, modules in the directory of the file can be imported.
        sys.path.insert(0, os.path.dirname(path))
        spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except Failure:
        raise
    except Exception as error:  # noqa: BLE001  # a module may raise anything while it is imported
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            raise UsageError(
                f"there is no module {name!r} here; write the path of its file, or its dotted name"
            ) from None
        trace = "".join(traceback.format_exception(type(error), error, _from_test(error.__traceback__))).rstrip()
        raise Failure(f"{name} cannot be imported:\n{trace}") from None
    return module


class Users:
    """The virtual users of one process. ``job`` is made by :meth:`kirsch_bench.cycles.CyclePlan.jobs`."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._test, self._name = load(job["test"])
        self._target = resolve(self._test, job["url"], own=job["own"])
        self._done: list[list[Sample]] = []
        self._outcomes: list[list[tuple[float, float, str]]] = []
        self._examples: dict[tuple[str, str], dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, start: float, progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Run the cycle that begins at ``start`` (``time.monotonic()``); return the measurements in the window."""
        job = self._job
        window_from = start + job["window_from"]
        window_to = window_from + job["seconds"]
        interrupted = False
        processor_before = time.process_time()
        with _setup(self._test, job["all"]), _interrupt(self._stop):
            threads = [
                threading.Thread(target=self._be_user, args=(index, start, window_to), daemon=True)
                for index in job["users"]
            ]
            for thread in threads:
                thread.start()
            leave = window_to + self._test.timeout + _LEAVE_SECONDS
            while any(thread.is_alive() for thread in threads) and time.monotonic() < leave:
                if self._stop.is_set() and not interrupted:
                    interrupted = True
                    window_to = min(window_to, time.monotonic())
                    leave = min(leave, time.monotonic() + _LEAVE_SECONDS)
                _join(threads, _PROGRESS_SECONDS)
                progress(self._progress(start))
        return {
            "window": [window_from - start, max(0.0, window_to - window_from)],
            "samples": [
                [each.kind, each.name, each.start - start, each.seconds, each.error]
                for done in self._done
                for each in done
                if window_from <= each.start + each.seconds <= window_to
            ],
            "tests": [
                [began - start, seconds, outcome]
                for outcomes in self._outcomes
                for began, seconds, outcome in outcomes
                if window_from <= began + seconds <= window_to
            ],
            "examples": list(self._examples.values()),
            "unfinished": sum(thread.is_alive() for thread in threads),
            "interrupted": interrupted,
            "processor": time.process_time() - processor_before,
            "wall": time.monotonic() - start,
        }

    def _progress(self, start: float) -> dict[str, Any]:
        return {
            "elapsed": time.monotonic() - start,
            "users": len(self._done),
            "tests": sum(map(len, self._outcomes)),
            "samples": sum(map(len, self._done)),
            "failed": sum(example["count"] for example in list(self._examples.values())),
        }

    def _be_user(self, index: int, start: float, window_to: float) -> None:
        job = self._job
        if self._stop.wait(max(0.0, start + index * job["startup_delay"] - time.monotonic())):
            return
        dice = random.Random(f"{job['seed']}/{index}")  # noqa: S311  # think times, no secrets
        done: list[Sample] = []
        outcomes: list[tuple[float, float, str]] = []
        shortest, longest = job["sleep"]

        def record(sample: Sample) -> None:
            done.append(sample)
            if sample.kind == "page" and longest > 0:
                self._stop.wait(min(dice.uniform(shortest, longest), max(0.0, window_to - time.monotonic())))

        http = self._test.visitor(self._target, record=record)
        test = self._test(self._name, http=http)
        with self._lock:
            self._done.append(done)
            self._outcomes.append(outcomes)
        while time.monotonic() < window_to and not self._stop.is_set():
            if not self._test.returning:
                http.forget()
            outcome = _Outcome()
            began = time.monotonic()
            test.run(outcome)
            ended = time.monotonic()
            outcomes.append((began, ended - began, outcome.kind))
            if outcome.error is not None and start + job["window_from"] <= ended <= window_to:
                self._keep_example(outcome, ended - start)
            if outcome.kind == "skipped" or outcome.shouldStop:
                break
        http.close()

    def _keep_example(self, outcome: _Outcome, at: float) -> None:
        error = outcome.error
        assert error is not None
        kind = error.kind if isinstance(error, RequestFailure) else type(error).__name__
        place = traceback.extract_tb(error.__traceback__)
        lines = [f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in place if _is_test(frame.filename)]
        where = lines[-1] if lines else ""
        with self._lock:
            example = self._examples.get((kind, where))
            if example is None:
                if len(self._examples) >= _EXAMPLES_MAX:
                    kind, where = "others", ""
                example = self._examples.setdefault(
                    (kind, where), {"class": kind, "where": where, "count": 0, "at": at, "example": _words(error)}
                )
            example["count"] += 1


class _Outcome(unittest.TestResult):
    """The outcome of one run of a test."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = "success"
        self.error: BaseException | None = None

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: ARG002
        self._note("failure", err[1])

    def addError(self, test: Any, err: Any) -> None:  # noqa: ARG002
        self._note("error", err[1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: ARG002
        if err is not None:
            self._note("failure" if issubclass(err[0], AssertionError) else "error", err[1])

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: ARG002
        self.kind = "skipped"

    def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: ARG002
        self._note("failure", AssertionError("it was expected to fail, and did not"))

    def _note(self, kind: str, error: BaseException) -> None:
        # The first error is the cause; a later one in tearDown is not.
        if self.error is None:
            self.kind, self.error = kind, error


def _is_test(filename: str) -> bool:
    """Return whether a frame belongs to the test, or to code that the test calls."""
    own = os.path.dirname(__file__)
    return not filename.startswith((own, "<frozen ")) and f"{os.sep}unittest{os.sep}" not in filename


def _from_test(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame of the test on; earlier frames are not useful."""
    while trace is not None and not (
        _is_test(trace.tb_frame.f_code.co_filename) and "importlib" not in trace.tb_frame.f_code.co_filename
    ):
        trace = trace.tb_next
    return trace


def _words(error: BaseException) -> str:
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__


def _join(threads: list[threading.Thread], timeout: float) -> None:
    """Wait until all threads have ended, at most ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


@contextlib.contextmanager
def _setup(test: type[LoadTest], users: int) -> Iterator[None]:
    """A context manager that runs the fixtures of the class before and after the cycle."""
    if inspect.isabstract(test):
        raise UsageError(f"{test.__name__} is abstract")
    try:
        test.setUpClass()
        test.setUpCycle(users)
    except Exception as error:  # noqa: BLE001  # whatever the test's author wrote
        raise Failure(f"{test.__name__} could not be set up: {_words(error)}") from None
    try:
        yield
    finally:
        try:
            test.tearDownCycle(users)
            test.tearDownClass()
            test.doClassCleanups()
        except Exception:  # noqa: BLE001  # what was measured before is no worse for it
            traceback.print_exc()


@contextlib.contextmanager
def _interrupt(stop: threading.Event) -> Iterator[None]:
    """A context manager during which SIGINT sets ``stop``."""
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
