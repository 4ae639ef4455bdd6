"""``python -m kirsch``: the same as the ``kirsch`` command."""

import sys

from kirsch.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
