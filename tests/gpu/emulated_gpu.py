"""A GPU that is emulated: Triton's own launch path, and PTX that runs on the CPU.

In: CPU tensors. Out: what a GPU would write into them, every access checked against
the tensors that the engine was given. The tables and results that a kernel takes as
arguments are known from its launch; the tensors behind the addresses in a table from
``Plan.point_to``, which is given them.
"""

import collections
import functools

import torch
from fake_gpu import FakeGPU
from ptx_machine import Machine, Program, Watch, region

from adadecay.gpu.plan import Plan

WRITTEN = {"parts", "coefs", "moments", "sums"}  # arguments that some kernel writes
program_of = functools.cache(Program)


class EmulatedGPU(FakeGPU):
    """Executes launches; `read` and `written` count bytes by kernel and tensor.

    Args:
        arch: an NVIDIA architecture, such as 80.
        seed: of the errors of approximate instructions.
        mutate: changes the PTX of a kernel before it runs.
        blocks: chooses programs; by default all of them run.
    """

    def __init__(self, arch=80, *, seed=0, mutate=None, blocks=range):
        super().__init__(arch)
        self.seed, self.mutate, self.blocks = seed, mutate, blocks
        self.tensors = {}  # by the address of their table
        self.read, self.written = collections.Counter(), collections.Counter()

    def execute(self, launch):
        text = launch.kernel.read("ptx")
        if self.mutate is not None:
            text = self.mutate(launch.kernel.name, text)
        given = {
            name: value
            for name, value in launch.arguments.items()
            if isinstance(value, torch.Tensor)
        }
        known = [
            region(name, value, writable=name in WRITTEN)
            for name, value in given.items()
        ]
        table = given.get("table")
        behind = [] if table is None else self.tensors[table.data_ptr()]
        watch = Watch([*known, *behind])
        machine = Machine(program_of(text), launch.kernel.shared, watch, self.seed)
        values = [
            value.data_ptr() if isinstance(value, torch.Tensor) else value
            for value in launch.arguments.values()
        ]
        machine.run(self.blocks(launch.programs), values)
        for total, found in (
            (self.read, watch.read),
            (self.written, watch.written),
        ):
            for name, count in found.items():
                total[launch.kernel.name, name] += count

    def __enter__(self):
        self.point_to = point_to = Plan.point_to

        def noted(plan, grads, weights=(), buffers=(), fresh=()):
            table, changed = point_to(plan, grads, weights, buffers, fresh)
            self.tensors[table.data_ptr()] = [
                *[region("gradient", t, writable=False) for t in grads],
                *[region("weight", t, writable=True) for t in weights],
                *[region("buffer", t, writable=True) for t in buffers],
            ]
            return table, changed

        Plan.point_to = noted
        return super().__enter__()

    def __exit__(self, *error):
        Plan.point_to = self.point_to
        super().__exit__(*error)
