"""A Triton driver without a GPU: the real compiler, cache and launch path.

In: an architecture. Out: the launches, as Triton hands them to a device, with the
compiled code; :mod:`emulated_gpu` executes it. Each architecture is a device of its
own to Triton, so that its caches keep them apart.
"""

from dataclasses import dataclass
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

NVIDIA = [75, 80, 86, 89, 90, 100, 120]
AMD = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}


def target_of(arch):
    if arch in AMD:
        return GPUTarget("hip", arch, AMD[arch])
    return GPUTarget("cuda", arch, 32)


@dataclass(frozen=True)
class Loaded:
    """A compiled kernel as it was loaded."""

    name: str
    files: dict  # by the last part of their names
    shared: int

    def read(self, kind):
        """Return the text of one stage of compilation, or the bytes of the last."""
        data = Path(self.files[kind]).read_bytes()
        return data if kind in ("cubin", "hsaco") else data.decode()


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel, how many programs, and its arguments by name."""

    kernel: Loaded
    programs: int
    arguments: dict  # those that are left at run time


class Utils:
    """What Triton asks of a device when it loads code."""

    def __init__(self):
        self.files = {}

    def note_files(self, _module, _function, _name, files, _hash):
        self.files = {name.rpartition(".")[2]: path for name, path in files.items()}

    def load_binary(self, name, _binary, shared, _device):
        return object(), Loaded(name, self.files, shared), 0, 0, 1024

    def get_device_properties(self, _device):
        return {"max_shared_mem": 48 << 10, "multiprocessor_count": 1, "warpSize": 32}


class Launcher:
    """What Triton calls to launch a kernel; it outlives the driver that made it."""

    def __init__(self, source, _metadata):
        self.signature = source.signature

    def __call__(self, x, y, z, _stream, kernel, _packed, _meta, _enter, _exit, *given):
        assert (y, z) == (1, 1)
        kinds = zip(self.signature.items(), given, strict=True)
        left = {name: value for (name, kind), value in kinds if kind != "constexpr"}
        gpu = triton.runtime.driver.active
        gpu.launches.append(Launch(kernel, x, left))
        gpu.execute(gpu.launches[-1])


class FakeGPU(DriverBase):
    """Active within its ``with`` block; `launches` is the list of what was launched."""

    launcher_cls = Launcher

    def __init__(self, arch=80):
        self.arch, self.utils, self.launches = arch, Utils(), []

    def execute(self, launch):
        """Do nothing: compiling and launching is what this is for."""

    @classmethod
    def is_active(cls):
        return True

    def get_current_target(self):
        return target_of(self.arch)

    def get_current_device(self):
        return self.arch

    def get_current_stream(self, _device):
        return 0

    def map_python_to_cpp_type(self, ty):
        raise NotImplementedError

    def get_active_torch_device(self):
        raise NotImplementedError

    def get_benchmarker(self):
        raise NotImplementedError

    def __enter__(self):
        triton.runtime.driver.set_active(self)
        triton.knobs.runtime.kernel_load_start_hook.add(self.utils.note_files)
        return self

    def __exit__(self, *_error):
        triton.knobs.runtime.kernel_load_start_hook.remove(self.utils.note_files)
        triton.runtime.driver._active = None
