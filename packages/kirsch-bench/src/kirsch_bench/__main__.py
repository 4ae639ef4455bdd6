"""``python -m kirsch_bench``: the same as ``kirsch bench``."""

import sys

from kirsch_bench import main

if __name__ == "__main__":
    sys.exit(main())
