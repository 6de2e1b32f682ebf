"""The tools that write pages, importable as a maintainer's command finds them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))
