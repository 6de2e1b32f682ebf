"""Starts worlds of ranks on this machine, each once however many tests ask for it."""

import json
import os
import pathlib
import subprocess
import sys

from filelock import FileLock

SCRIPT = pathlib.Path(__file__).with_name("ranks.py")
# Checkpoints go from the larger world to the smaller, so that is the order.
ORDER = {4: None, 2: 4, 1: 2}


def run(folder: pathlib.Path, size: int) -> list[dict[str, str]]:
    """Give what each rank of a world found; the first to ask runs it."""
    if ORDER[size] is not None:
        run(folder, ORDER[size])
    world = folder / f"world{size}"
    with FileLock(folder / f"world{size}.lock"):
        if not world.exists():
            world.mkdir()
            _start(world, folder, size)
    results = []
    for rank in range(size):
        found = world / f"rank{rank}.json"
        if not found.exists():
            raise AssertionError((world / "output").read_text())
        results.append(json.loads(found.read_text()))
    return results


def _start(world: pathlib.Path, folder: pathlib.Path, size: int) -> None:
    (folder / "checkpoints").mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "RANKS_CHECKPOINTS": str(folder / "checkpoints"),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    with (world / "output").open("w") as output:
        subprocess.run(
            [sys.executable, str(SCRIPT), str(world), str(size)],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=580,
            check=False,
        )
