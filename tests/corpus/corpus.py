"""Run the frozen programs, and renew their digests on purpose.

``python tests/corpus/corpus.py KERNEL...`` renews the digests of the kernels named
(``none``, ``plain``, ``avx2``), in a commit that says why the bits have changed.

torch's square roots, which Adam and RMSprop take, come from MKL, whose last bit depends
on the maker of the CPU. Digests that depend on it are frozen for each kind of root
that was met, under ``KERNEL RANKS, roots KIND``; "other" is an AMD CPU with AVX2.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch

HERE = pathlib.Path(__file__).parent
DIGESTS = HERE / "digests.json"
# Kernel and number of ranks of each collection of digests.
WORLDS = [("none", 1), ("none", 2), ("none", 4)]
WORLDS += [("avx2", 1), ("avx2", 2), ("avx2", 4), ("plain", 1)]


def roots():
    """Return which square roots this machine's torch computes, as a digest."""
    numbers = torch.rand(10_000, generator=torch.Generator().manual_seed(0))
    return hashlib.sha256(numbers.sqrt().numpy().tobytes()).hexdigest()[:8]


def frozen(kernel, size):
    """Return the digests that were frozen for this machine's square roots."""
    known, name = json.loads(DIGESTS.read_text()), f"{kernel} {size}"
    other = known[f"{name}, roots other"]
    return known[name] | known.get(f"{name}, roots {roots()}", other)


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
    """Renew the digests, and of those that depend on roots the ones of this machine."""
    known, kind = json.loads(DIGESTS.read_text()), roots()
    for kernel, size in WORLDS:
        name = f"{kernel} {size}"
        if kernel in kernels:
            found, rooted = digests(kernel, size), known[f"{name}, roots other"]
            known[name] = {k: v for k, v in found.items() if k not in rooted}
            known[f"{name}, roots {kind}"] = {k: found[k] for k in rooted}
    DIGESTS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    renew(sys.argv[1:])
