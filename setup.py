"""Builds the native kernel beside the Python code, where there is a compiler.

Everything else about the distribution stands in pyproject.toml. The extension is
optional: without a compiler the install still succeeds, and steps go by foreach.
"""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup

KERNEL = Path("src/adadecay/csrc")
SOURCES = sorted(str(path) for path in KERNEL.glob("*.cpp"))
HEADERS = sorted(str(path) for path in KERNEL.glob("*.hpp"))

# No contraction: where two roundings or one matter, the code says which. The vectors
# are those of GCC and clang: no other compiler builds the kernel.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-g0",
    "-pthread",
    "-Wno-ignored-attributes",  # of vector types as template arguments
    "-Wno-psabi",  # of vectors in functions that are inlined
]

# One wheel for every Python from 3.11 on, but for those without a GIL.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "adadecay.kernels._native",
            sources=SOURCES,
            depends=HEADERS,
            language="c++",
            extra_compile_args=FLAGS,
            extra_link_args=["-pthread"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
            py_limited_api=LIMITED,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
