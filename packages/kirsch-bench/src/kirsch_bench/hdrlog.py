"""The log format of HdrHistogram, version 1.3: one histogram for each interval, for its tools to plot and merge. Values
in the histograms are nanoseconds; the maximum column is in milliseconds, as the tools expect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kirsch_bench._native import __version__
from kirsch_bench.native import Histogram

if TYPE_CHECKING:
    from kirsch_bench.results import Result


def write(result: Result) -> str:
    """Return the log of the measured intervals' latencies."""
    return Histogram.log_head(result.started, [f"Logged with kirsch bench {__version__}"]) + "".join(
        each.latency.log_line(each.at, each.seconds)
        for each in result.series
        if each.latency is not None and not each.warmup
    )
