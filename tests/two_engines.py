"""``kirsch`` with two engines in each process, as an interpreter without a lock has one for each processor.

Stands in for the command (``KIRSCH_TEST_SERVER_COMMAND``, see conftest.py). How many threads there are is still the
command line's affair.
"""

from __future__ import annotations

import os
import shlex
import sys

COMMAND = f"{{python}} {shlex.quote(os.path.abspath(__file__))} {{target}} --bind 127.0.0.1:0 {{args}}"

if __name__ == "__main__":
    from kirsch.commands import cli
    from kirsch.drivers import threads

    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    threads.engines = lambda threads: 2
    sys.exit(cli.main())
