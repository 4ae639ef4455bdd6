"""The log of HdrHistogram, version 1.3: one histogram for each interval, which its tools plot and merge.

Values in the histograms are nanoseconds; the column of the maximum is milliseconds, as the tools have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kirsch_bench._native import __version__
from kirsch_bench.native import Histogram

if TYPE_CHECKING:
    from kirsch_bench.results import Result


def write(result: Result) -> str:
    """Return the latencies of the measured intervals."""
    return Histogram.log_head(result.started, [f"Logged with kirsch bench {__version__}"]) + "".join(
        each.latency.log_line(each.at, each.seconds)
        for each in result.series
        if each.latency is not None and not each.warmup
    )
