"""``python -m kirsch.bench``: the same as ``kirsch bench``."""

import sys

from kirsch.bench import main

if __name__ == "__main__":
    sys.exit(main())
