"""``kirsch.bench``: the former name of the package ``kirsch_bench``, for programs that still import it."""

from __future__ import annotations

import sys

try:
    import kirsch_bench
except ModuleNotFoundError as error:
    if error.name != "kirsch_bench":
        raise
    message = "kirsch.bench is the package kirsch_bench, which is not installed: pip install 'kirsch[bench]'"
    raise ModuleNotFoundError(message, name="kirsch_bench") from None

if __name__ == "__main__":
    sys.exit(kirsch_bench.main())

sys.modules[__name__] = kirsch_bench
