"""Everything here needs Triton, which there is for Linux only."""

import pytest

pytest.importorskip("triton")
