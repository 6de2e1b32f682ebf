"""The install: one wheel for every Python from 3.11, and no compiler needed."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PARTS = ["setup.py", "pyproject.toml", "README.md", "LICENSE", "src"]


def wheel(tmp_path, tag=None, **environment):
    """Build a wheel from a copy of the sources, with the packages that are here."""
    copy = tmp_path / "copy"
    copy.mkdir()
    ignore = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copy / part, ignore=ignore)
        else:
            shutil.copy(ROOT / part, copy / part)
    if tag is not None:
        author = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
        for words in ("init -q", "add .", f"commit -qm {tag}", f"tag {tag}"):
            subprocess.run(["git", *author, *words.split()], cwd=copy, check=True)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path)]
    done = subprocess.run(
        [*command, "--no-build-isolation", "--disable-pip-version-check", str(copy)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = tmp_path.glob("*.whl")
    return built


def test_without_a_compiler_the_install_works_and_has_no_kernel(tmp_path):
    built = wheel(tmp_path, tag="v9.8.7", CC="false", CXX="false")
    assert built.name.startswith("adadecay-9.8.7-")
    names = zipfile.ZipFile(built).namelist()
    assert not [name for name in names if name.endswith((".so", ".pyd"))]
    assert "adadecay/csrc/loops.hpp" in names
    assert "adadecay/native.py" in names


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_one_wheel_serves_every_later_python(tmp_path):
    quick = tmp_path / "quick"  # the last -O counts, and the code does not matter here
    quick.write_text('#!/bin/sh\nexec g++ "$@" -O0\n')
    quick.chmod(0o755)
    built = wheel(tmp_path, CC=str(quick), CXX=str(quick))
    assert "-cp311-abi3-" in built.name
    names = zipfile.ZipFile(built).namelist()
    assert "adadecay/kernels/_native.abi3.so" in names
