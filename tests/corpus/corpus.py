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
# The numbers of ranks whose digests are frozen, for each kernel.
WORLDS = {"none": (1, 2, 4), "avx2": (1, 2, 4), "plain": (1,)}


def roots():
    """Return which square roots this machine's torch computes, as a digest."""
    numbers = torch.rand(10_000, generator=torch.Generator().manual_seed(0))
    return hashlib.sha256(numbers.sqrt().numpy().tobytes()).hexdigest()[:8]


def frozen(kernel, size):
    """Return the digests that were frozen for this machine's square roots."""
    known, name = json.loads(DIGESTS.read_text()), f"{kernel} {size}"
    other = known[f"{name}, roots other"]
    return known[name] | known.get(f"{name}, roots {roots()}", other)


def digests(kernel):
    """Return the digest of each program by number of ranks, of all ranks together."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "ADADECAY_KERNEL": kernel,
            "ATEN_CPU_CAPABILITY": "avx2",  # torch's own sums depend on it
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        sizes = WORLDS[kernel]
        command = [sys.executable, HERE / "programs.py", folder, *map(str, sizes)]
        done = subprocess.run(command, env=environment, timeout=500)
        assert done.returncode == 0, f"kernel {kernel}"
        return {size: _joined(pathlib.Path(folder, str(size)), size) for size in sizes}


def _joined(folder, size):
    parts = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    return {name: "-".join(part[name] for part in parts) for name in parts[0]}


def renew(kernels):
    """Renew the digests, and of those that depend on roots the ones of this machine."""
    known, kind = json.loads(DIGESTS.read_text()), roots()
    for kernel in kernels:
        for size, found in digests(kernel).items():
            name = f"{kernel} {size}"
            rooted = known[f"{name}, roots other"]
            known[name] = {k: v for k, v in found.items() if k not in rooted}
            known[f"{name}, roots {kind}"] = {k: found[k] for k in rooted}
    DIGESTS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    renew(sys.argv[1:])
