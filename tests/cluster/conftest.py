"""What the cluster's tests share: one Ray at a time, and nodes on loopback."""

import os
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
# Read when ray is imported. Without the second, Ray would replace 127.0.0.1 by an
# address that others can reach; without the third, it would leave a token in $HOME.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"
# Ray's workers give way to other processes: beside other tests they hardly run at all.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (as Ray spells it)


@pytest.fixture
def one_ray():
    """Wait until no other worker of pytest has a Ray running: memory and cores."""
    with FileLock(Path(tempfile.gettempdir()) / "adadecay-tests-ray.lock"):
        yield
        import ray

        ray.shutdown()
