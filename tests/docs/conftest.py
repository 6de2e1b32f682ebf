"""The tools that write pages, and simulated studies, importable by their names."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tools"), str(ROOT / "tests" / "verdict")]
