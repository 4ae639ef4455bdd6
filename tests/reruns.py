"""A pytest plugin: shows why a test failed that passed when it ran again (``--reruns``, which CI sets)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.write_sep("_", f"failed and ran again: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
