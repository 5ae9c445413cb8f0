"""Stop boxes that tests have kept: python -m tests.provisioning FOLDER.

FOLDER is the one that NEREUS_TEST_BOXES named.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.provisioning import boxes
from tests.provisioning.cluster import SUITES, Cluster

kept = Cluster(boxes.Site(Path(sys.argv[1])))
kept.site.find(SUITES)
kept.stop()
