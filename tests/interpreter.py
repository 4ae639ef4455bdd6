"""The tests' interpreter, which is also that of the servers that they start."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig

import pytest

# A flag of the interpreter's own, because what a test imports may turn the lock of its own process on.
HAS_LOCK = not sysconfig.get_config_var("Py_GIL_DISABLED") or getattr(sys.flags, "gil", None) == 1
"""True if it runs one thread at a time: all do but free-threaded ones, and those too if told to (``PYTHON_GIL=1``)."""

ENGINES = 1 if HAS_LOCK else len(os.sched_getaffinity(0))
"""How many engines a process with threads has. Each keeps its log short by itself."""

FREES_AT_ONCE = sys.implementation.name == "cpython"
"""True if an object ends with the last reference to it, and not when a collector finds it."""

READS_DICTS_DIRECTLY = sys.implementation.name == "cpython"
"""True if C code that reads a dict calls no method of a class derived from ``dict``."""

HAS_UVLOOP = importlib.util.find_spec("uvloop") is not None

needs_freeing_at_once = pytest.mark.skipif(not FREES_AT_ONCE, reason="this interpreter does not count references")
needs_uvloop = pytest.mark.skipif(not HAS_UVLOOP, reason="uvloop is not installed (pyproject.toml names it)")
needs_lock = pytest.mark.skipif(not HAS_LOCK, reason="this interpreter has no lock that a call could keep from others")
needs_no_lock = pytest.mark.skipif(HAS_LOCK, reason="this interpreter has a lock; make test-free finds one without")


def parametrize_drivers(first: str, *others: str) -> pytest.MarkDecorator:
    """Parametrise a test by ``driver``. `make test` runs it with the first one, and the slow tests with the others."""
    return pytest.mark.parametrize("driver", [first, *(pytest.param(each, marks=pytest.mark.slow) for each in others)])


def needs_gevent() -> None:
    """Skip the test, or the module, where there is no gevent. It is not imported: that would turn the lock on here."""
    if importlib.util.find_spec("gevent") is None:
        pytest.skip("gevent is not installed (pyproject.toml names it)", allow_module_level=True)
