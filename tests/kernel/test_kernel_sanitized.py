"""The kernel's Python tests once more, with the kernel built under sanitizers.

Takes minutes, so it belongs to `make soak`; the fuzz without Python, under the same
sanitizers, runs in every test run (``test_kernel_native.py``).
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import adadecay

HERE = Path(__file__).parent
FLAGS = ["-std=c++17", "-O1", "-g1", "-ffp-contract=off", "-fPIC", "-shared"]
FLAGS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread"]
FLAGS += ["-Wno-ignored-attributes", "-Wno-psabi"]
TESTED = ("theta", "rates", "steps", "shortcut", "threads", "memory")


def runtime(name):
    """Where the compiler keeps a library that must be loaded before Python."""
    done = subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path):
    """A copy of the package whose kernel is watched by the sanitizers."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    copy = tmp_path / "src" / "adadecay"
    shutil.copytree(
        Path(adadecay.__file__).parent,
        copy,
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    folder = copy / "kernels"
    include = sysconfig.get_paths()["include"]
    words = ["g++", *FLAGS, "-DPy_LIMITED_API=0x030B0000", f"-I{include}"]
    words += [
        *map(str, (copy / "csrc").glob("*.cpp")),
        "-o",
        str(folder / "_native.abi3.so"),
    ]
    subprocess.run(words, check=True)
    return copy


@pytest.mark.soak
def test_the_kernels_tests_are_clean_under_sanitizers(package):
    """In all forms: the tests take each in turn."""
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libstdc++.so')}",
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself leaks at exit
        "PYTHONPATH": str(package.parent),
        "OMP_NUM_THREADS": "2",
    }
    probe = "from adadecay import native; print(native.kernel.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", probe],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).parent == package / "kernels"
    files = [str(HERE / f"test_kernel_{name}.py") for name in TESTED]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
