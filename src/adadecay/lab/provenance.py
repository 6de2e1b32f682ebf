"""Where a result comes from: commit, versions, machine."""

import functools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("adadecay", "torch", "numpy")


def version(package: str) -> str | None:
    """Return the version of an installed package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def processor(field: str = "model name") -> str:
    """Return the name of the processor, or another field that Linux knows of it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(field):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@functools.cache
def commit() -> str | None:
    """Return the commit that this package runs from, ``+changed`` when it was edited.

    None when it is not run from a checkout of its own.
    """
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        run = functools.partial(
            subprocess.run, cwd=root, capture_output=True, text=True, timeout=10
        )
        head = run(["git", "rev-parse", "HEAD"], check=True).stdout.strip()
        changed = run(["git", "status", "--porcelain", "--", "src"], check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+changed" if changed.strip() else "")


def describe() -> dict[str, Any]:
    """Return commit, versions and machine, as they are noted with each trial."""
    return {
        "commit": commit(),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
        },
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
    }


def environment(*, device: str, threads: int, **others: bool) -> dict[str, Any]:
    """Return what the bits of a result depend on, besides the trial itself.

    ``others`` are ways to run that are usually off; those that are on are named.
    """
    import torch

    found = {
        "torch": str(torch.__version__),  # its own class would bring torch along
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "maker": processor("vendor_id"),  # of the CPU: MKL's last bits depend on it
        "threads": threads,
        "device": device,
        **kernel(),
        **{name: True for name, on in others.items() if on},
    }
    if device.startswith("cuda"):
        found["device"] = torch.cuda.get_device_name(device)
    return found


def kernel() -> dict[str, Any]:
    """Return which native kernel AdaDecay's fused path uses, and its revision.

    That number is raised whenever the bits of the kernel change.
    """
    from adadecay.kernels import kernel as native

    if native is None:
        return {"kernel": "none", "kernel_revision": None}
    return {"kernel": "native", "kernel_revision": int(native.revision())}
