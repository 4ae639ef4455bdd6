"""Run the commands of kirsch_web: ``python -m kirsch_web routes shop:app``."""

from __future__ import annotations

import sys

from kirsch_web.explain import main

if __name__ == "__main__":
    sys.exit(main())
