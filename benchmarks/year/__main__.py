"""``python -m benchmarks.year``: as ``python -m benchmarks year``."""

import sys

from . import main

sys.exit(main(sys.argv[1:]))
