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


def digests(kernel, size):
    """Return the digest of each program, of all ranks where there are several."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "ADADECAY_KERNEL": kernel,
            "ATEN_CPU_CAPABILITY": "avx2",  # torch's own sums depend on it
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        command = [sys.executable, str(HERE / "programs.py"), folder, str(size)]
        done = subprocess.run(command, env=environment, timeout=500)
        assert done.returncode == 0, f"kernel {kernel}, {size} ranks"
        texts = [pathlib.Path(folder, f"{n}.json").read_text() for n in range(size)]
    parts = list(map(json.loads, texts))
    return {name: "-".join(part[name] for part in parts) for name in parts[0]}


def renew(kernels):
    known = json.loads(DIGESTS.read_text())
    for kernel, size in WORLDS:
        if kernel in kernels:
            known[f"{kernel} {size}"] = digests(kernel, size)
    DIGESTS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    renew(sys.argv[1:])
