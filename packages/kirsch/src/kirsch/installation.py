"""Explains in one line why the native module of Kirsch cannot be imported, and what to do.

pip chooses the wheel for the system. A copied folder may not match it: for example a virtual environment of Debian in
an Alpine image, or one of CPython 3.12 used with 3.13.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig

# As in `_native.cpython-313-x86_64-linux-gnu.so` or `_native.pypy311-pp73-x86_64-linux-gnu.so`.
_SUFFIX = re.compile(r"_native\.(cpython|pypy)-?(\d)(\d+)(t?)(?:-pp\d+)?-(\w+)-linux-(gnu|musl)\.so")
_IMPLEMENTATIONS = {"cpython": "CPython", "pypy": "PyPy"}
_LIBRARIES = {"gnu": "glibc", "musl": "musl"}
_ADVICE = "install it again with this Python: pip install --force-reinstall kirsch"


def problem_of(error: ImportError) -> str | None:
    """Return an explanation of ``error`` in one line; None if the native module is not its cause."""
    folder = os.path.dirname(__file__)
    is_missing = error.name == "kirsch._native" or (error.name == "kirsch" and "'_native'" in str(error))
    is_broken = error.name == "_native" and os.path.dirname(error.path or "") == folder
    if not is_missing and not is_broken:
        return None
    names = sorted(name for name in os.listdir(folder) if name.startswith("_native."))
    libraries = [name for name in names if name.endswith(".so")]
    if not libraries:
        return f"the compiled part of Kirsch is missing; {_ADVICE}"
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    if f"_native{suffix}" in libraries:
        return f"the compiled part of Kirsch cannot be loaded ({error}); {_ADVICE}"
    there = " and ".join(filter(None, map(_describe, libraries))) or ", ".join(libraries)
    here = _describe(f"_native{suffix}") or f"{sys.implementation.name} with {suffix}"
    return f"Kirsch is installed for {there}, but this is {here}; {_ADVICE}"


def _describe(library: str) -> str | None:
    """Return the platform of ``library``, such as ``CPython 3.13 on x86_64 with glibc``; None if unknown."""
    match = _SUFFIX.fullmatch(library)
    if match is None:
        return None
    implementation, major, minor, threaded, machine, libc = match.groups()
    return f"{_IMPLEMENTATIONS[implementation]} {major}.{minor}{threaded} on {machine} with {_LIBRARIES[libc]}"
