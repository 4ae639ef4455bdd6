"""Access to the native module (generator and histogram). If it is missing, the error is one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kirsch_bench.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    from kirsch_bench import _native
    from kirsch_bench._native import Histogram
    from kirsch_bench._native import __version__ as VERSION
except ImportError as error:
    raise Failure(f"the compiled part of kirsch-bench is missing ({error}); install it again for this Python") from None


def load(plan: dict[str, Any], progress: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Run the plan of one process and return the measurements. SIGINT ends the run with a partial result, and so does
    ``progress`` if it returns False.

    Raises Failure for a plan that cannot be run as it is.
    """
    try:
        text = _native.load(json.dumps(plan), lambda word: progress(json.loads(word)))
    except (ValueError, OSError) as error:
        raise Failure(str(error)) from None
    result: dict[str, Any] = json.loads(text)
    return result


__all__ = ["VERSION", "Histogram", "load"]
