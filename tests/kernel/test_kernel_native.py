"""The kernel without Python: random steps under sanitizers and valgrind.

``native/fuzz.cpp`` is compiled with the kernel's own sources and run in each form.
"""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

import adadecay

SOURCES = Path(adadecay.__file__).parent / "csrc"
FUZZ = Path(__file__).parent / "native" / "fuzz.cpp"
FORMS = ["avx512", "avx2", "plain"]
NOT_HERE = 3  # what fuzz.cpp returns for a form that the CPU does not have
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


# Undefined behaviour and races are looked for in the plain form alone, whose loops are
# those of the vector forms. Without optimization the compiler is done in a third of the
# time, and hides nothing from the sanitizers; GCC takes half of that again where it
# calls the check of an address instead of writing it out.
ADDRESSES = "-O0", "-fsanitize=address"
if "clang" not in str(COMPILER):
    ADDRESSES += "--param", "asan-instrumentation-with-call-threshold=0"
VECTOR_FLAGS = {"sanitized": ADDRESSES, "raced": ("-O1",), "bare": ("-O1",)}


def build(factory, name, *flags):
    """Compile the fuzz, once for all workers of this run."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # which the workers share
    with FileLock(folder / "fuzz.lock"):
        target = folder / name
        return target if target.exists() else compiled(folder, target, flags)


def compiled(folder, target, flags):
    common = [COMPILER, "-std=c++17", "-g1", "-ffp-contract=off", f"-I{SOURCES}"]
    common += ["-Wno-ignored-attributes", "-Wno-psabi"]
    common += ["-DADADECAY_THREAD_SHARE=4096"]  # or one thread would do it all
    empty = [*common, *flags, "-x", "c++", "-", "-o", folder / "empty"]
    tried = subprocess.run(empty, input="int main() {}", capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"the compiler cannot do {' '.join(flags)}: {tried.stderr[-300:]}")
    others = ("module", "threads")  # the fuzz has threads of its own
    sources = [p for p in sorted(SOURCES.glob("*.cpp")) if p.stem not in others]
    objects, running = [], []
    for source in [*sources, FUZZ]:
        own = VECTOR_FLAGS[target.name] if source.stem == "isa_x86" else flags
        kind = re.sub(r"\W", "", "".join(own))
        objects.append(folder / f"{source.stem}-{kind}.o")
        if not objects[-1].exists():
            command = [*common, *own, "-c", source, "-o", objects[-1]]
            running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    link = [*common, *flags, *objects, "-pthread", "-ldl", "-o", target]
    linked = subprocess.run(link, capture_output=True, text=True, timeout=120)
    assert linked.returncode == 0, linked.stderr
    return target


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    flags = *ADDRESSES, "-fsanitize=undefined", "-fno-sanitize-recover=all"
    return build(tmp_path_factory, "sanitized", *flags)


@pytest.fixture(scope="module")
def raced(tmp_path_factory):
    return build(tmp_path_factory, "raced", "-O1", "-fsanitize=thread")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return build(tmp_path_factory, "bare", "-O1")


def run(command, form):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == NOT_HERE:
        pytest.skip(f"this CPU has no {form}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"in form {form}\n")
    return done


@pytest.mark.parametrize("form", FORMS)
def test_addresses_and_undefined_behaviour(sanitized, form):
    done = run([sanitized, form, "150", "20190721"], form)
    assert done.stderr == ""


def test_races_between_threads(raced):
    done = run([raced, "plain", "60", "3"], "plain")
    assert done.stderr == ""


@pytest.mark.parametrize("form", FORMS)
def test_hundreds_of_random_steps(bare, form):
    run([bare, form, "300", "7"], form)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="written for x86-64")
@pytest.mark.parametrize("form", ["avx2", "plain"])  # it knows no AVX-512
def test_valgrind_has_nothing_to_say(bare, form):
    valgrind = ["valgrind", "--error-exitcode=9", "--leak-check=full", "--quiet"]
    # A long double is 64 bits to valgrind: the comparison is left to the other tests.
    done = run([*valgrind, bare, form, "12", "11"], form)
    assert done.stderr == ""
