"""Starts worlds of ranks on this machine, once however many tests ask for them."""

import json
import os
import pathlib
import subprocess
import sys

from filelock import FileLock

SCRIPT = pathlib.Path(__file__).with_name("ranks.py")


def run(folder: pathlib.Path, size: int) -> list[dict[str, str]]:
    """Give what each rank of a world found; the first to ask runs all worlds."""
    with FileLock(folder / "lock"):
        if not (folder / "output").exists():
            _start(folder)
    results = []
    for rank in range(size):
        found = folder / f"world{size}" / f"rank{rank}.json"
        if not found.exists():
            raise AssertionError((folder / "output").read_text())
        results.append(json.loads(found.read_text()))
    return results


def _start(folder: pathlib.Path) -> None:
    (folder / "checkpoints").mkdir()
    environment = {
        **os.environ,
        "RANKS_CHECKPOINTS": str(folder / "checkpoints"),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    with (folder / "output").open("w") as output:
        subprocess.run(
            [sys.executable, str(SCRIPT), str(folder)],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=580,
            check=False,
        )
