"""Run the frozen programs, and renew their digests on purpose.

``python tests/corpus/corpus.py KERNEL...`` renews the digests of the kernels named
(``none``, ``plain``, ``avx2``), in a commit that says why the bits have changed.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
DIGESTS = HERE / "digests.json"
# Kernel and number of ranks of each collection of digests.
WORLDS = [("none", 1), ("none", 2), ("none", 4)]
WORLDS += [("avx2", 1), ("avx2", 2), ("avx2", 4), ("plain", 1)]


def start(kernel, rank, size, store):
    """Start one rank and return it with the file that it will write."""
    target = pathlib.Path(tempfile.mkdtemp()) / "digests.json"
    environment = {
        **os.environ,
        "ADADECAY_KERNEL": kernel,
        "ATEN_CPU_CAPABILITY": "avx2",  # torch's own sums depend on it
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "CORPUS_STORE": store,
    }
    command = [sys.executable, str(HERE / "programs.py"), str(target)]
    return subprocess.Popen(command, env=environment), target


def digests(kernel, size):
    """Return the digest of each program, of all ranks where there are several."""
    store = str(pathlib.Path(tempfile.mkdtemp()) / "store")
    world = [start(kernel, rank, size, store) for rank in range(size)]
    try:
        failed = [process.wait(timeout=500) for process, _ in world]
    finally:
        for process, _ in world:
            process.kill()
    assert not any(failed), f"kernel {kernel}, {size} ranks: exit status {failed}"
    parts = [json.loads(target.read_text()) for _, target in world]
    return {name: "-".join(part[name] for part in parts) for name in parts[0]}


def renew(kernels):
    known = json.loads(DIGESTS.read_text())
    for kernel, size in WORLDS:
        if kernel in kernels:
            known[f"{kernel} {size}"] = digests(kernel, size)
    DIGESTS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    renew(sys.argv[1:])
