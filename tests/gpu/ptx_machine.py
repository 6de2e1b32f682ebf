"""Executes the PTX that Triton emits, on a CPU, and watches every global access.

In: the text of a kernel, and the tensors that it may touch. Out: those tensors changed,
and the bytes that were read and written of each. One program (block) runs at a time,
its threads in lockstep as lanes of NumPy arrays; a branch must be the same for all of
them. What this cannot see: a barrier that is missing, and how long anything takes.
"""

import bisect
import collections
import re
from dataclasses import dataclass

import numpy as np
from ptx_operations import APPROXIMATE, DTYPES, OPERATIONS, SIZES

LOWEST = 4096  # no tensor lies below
UNWRITTEN = 0x7FC0DEAD7FC0DEAD  # what a register holds that nothing was written to
INSTRUCTION = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.]*)\s*(.*)")
OPERANDS = re.compile(r"\[[^\]]*\]|\{[^}]*\}|[^,\s]+")
ADDRESS = re.compile(r"\[\s*(%?\w+)\s*(?:\+\s*(-?\d+))?\s*\]")
REGISTER_SIZES = {"%p": 1, "%rs": 2, "%r": 4, "%rd": 8}
IGNORED = ("bar.sync",)


class AddressSpace:
    """The whole memory of this process, as one array for each size of number."""

    def __init__(self, size):
        self.__array_interface__ = {
            "shape": ((1 << 47) // size - LOWEST,),
            "typestr": f"<u{size}",
            "data": (LOWEST, False),
            "version": 3,
        }


MEMORY = {size: np.asarray(AddressSpace(size)) for size in (2, 4, 8)}


@dataclass(frozen=True, order=True)
class Region:
    """Memory that a kernel may touch."""

    begin: int
    end: int
    name: str
    writable: bool


def region(name, tensor, *, writable):
    size = tensor.numel() * tensor.element_size()
    return Region(tensor.data_ptr(), tensor.data_ptr() + size, name, writable)


class Watch:
    """Checks global accesses against regions, and counts their bytes by name.

    A number that all threads of a program load is counted once per warp.
    """

    def __init__(self, regions):
        self.regions = sorted(r for r in set(regions) if r.end > r.begin)
        self.begins = [r.begin for r in self.regions]
        self.read, self.written = collections.Counter(), collections.Counter()

    def check(self, addresses, size, write):
        """Refuse what is outside of every region, not aligned, or not to be written."""
        low, high = int(addresses.min()), int(addresses.max())
        found = self._region_of(low, size)
        if high + size > found.end:
            for address in addresses:
                self._region_of(int(address), size)
            names = {self._region_of(int(a), size) for a in addresses}
            if len({(r.name, r.writable) for r in names}) > 1:
                raise MemoryError("one access touches tensors of different kinds")
        if (addresses % np.uint64(size)).any():
            raise MemoryError(f"{size} bytes at {low:#x} of {found.name}: not aligned")
        if write and not found.writable:
            raise MemoryError(f"a write to {found.name}")
        counter = self.written if write else self.read
        distinct = len(addresses) if low != high else -(-len(addresses) // 32)
        counter[found.name] += size * distinct

    def _region_of(self, address, size):
        at = bisect.bisect_right(self.begins, address) - 1
        if at < 0 or address + size > self.regions[at].end:
            raise MemoryError(f"{size} bytes at {address:#x}: outside of every tensor")
        return self.regions[at]


class Program:
    """A kernel's instructions, read once."""

    def __init__(self, text):
        self.threads = int(re.search(r"\.reqntid (\d+)", text).group(1))
        head, body = text.split(".reqntid", 1)
        listed = re.findall(r"\.param \.(\w+)[^,\n]* (\w+)(?=,|\n\))", head)
        self.params = {name: kind for kind, name in listed}
        self.code, self.labels = [], {}
        body = re.sub(r"//.*", "", body[body.index("{") + 1 : body.index("\n}")])
        for line in body.splitlines():
            for part in filter(None, map(str.strip, line.split(";"))):
                self._add(part)

    def _add(self, part):
        if part.startswith(".") or part in ("{", "}"):
            return
        if part.endswith(":"):
            self.labels[part[:-1]] = len(self.code)
            return
        negated, guard, name, rest = INSTRUCTION.fullmatch(part).groups()
        operands = OPERANDS.findall(rest)
        if not name.startswith(IGNORED):
            self.code.append((guard, negated == "!", name, operands))


class Machine:
    """Runs one kernel; instructions become functions before anything runs.

    Args:
        program: the kernel.
        shared: bytes of shared memory.
        watch: what may be touched.
        seed: of the errors of approximate instructions.
    """

    def __init__(self, program, shared, watch, seed=0):
        self.program, self.watch = program, watch
        self.lanes = np.arange(program.threads, dtype=np.uint32)
        self.shared = np.zeros(-(-shared // 8) * 8, np.uint8)
        self.rng = np.random.default_rng(seed)
        self.registers, self.values, self.block = {}, {}, 0
        self.functions = [self._decode(*each) for each in program.code]

    def run(self, blocks, arguments):
        """Run some programs, one after the other.

        Args:
            blocks: their numbers.
            arguments: numbers and addresses; Triton's own two at the end may be left.
        """
        given = [*arguments, 0, 0]
        self.values = {
            name: self._constant(value, DTYPES[kind])
            for (name, kind), value in zip(
                self.program.params.items(), given, strict=True
            )
        }
        with np.errstate(all="ignore"):
            for block in blocks:
                self.block, self.registers = block, {}
                self._run_block()

    def _constant(self, value, dtype):
        return np.full(self.program.threads, value, dtype)

    def _run_block(self):
        at, functions = 0, self.functions
        while at is not None:
            jump = functions[at]()
            at = at + 1 if jump is None else jump
            if at < 0:
                return

    def _decode(self, guard, negated, name, operands):
        """Return the function of an instruction: None, or where to go on."""

        def active():
            if guard is None:
                return None
            mask = self.registers[guard]
            return ~mask if negated else mask

        if name == "ret":
            assert guard is None
            return lambda: -1
        if name in ("bra", "bra.uni"):
            return lambda: self._branch(active(), operands[0])
        if name.startswith("ld.param"):
            source = operands[1][1:-1]
            return lambda: self._put(operands[0], self.values[source], active())
        if name.startswith(("ld.", "st.")):
            return self._decode_access(name, operands, active)
        if name.startswith("mov."):
            return self._decode_move(name, operands, active)
        if name == "shfl.sync.bfly.b32":
            target, source, mask, clamp, members = operands
            assert (clamp, members) == ("31", "-1")
            lanes = self.lanes ^ np.uint32(int(mask, 0))
            read = self._reader(source, "b32")
            return lambda: self._put(target, read()[lanes], active())
        return self._decode_arithmetic(name, operands, active)

    def _decode_arithmetic(self, name, operands, active):
        key = name, len(operands) - 1
        if key not in OPERATIONS and key not in APPROXIMATE:
            raise NotImplementedError(f"{name} of {key[1]} sources")
        kind, sources, work = APPROXIMATE.get(key) or OPERATIONS[key]
        readers = [
            self._reader(token, source)
            for token, source in zip(operands[1:], sources, strict=True)
        ]
        target, dtype = operands[0], DTYPES[kind]
        first = [self.rng] if key in APPROXIMATE else []

        def run():
            value = work(*first, *[read() for read in readers])
            assert value.dtype == dtype, (name, value.dtype)
            self._put(target, value, active())

        return run

    def _branch(self, mask, label):
        if mask is None or mask.all():
            return self.program.labels[label]
        if mask.any():
            raise NotImplementedError("the threads of a program take two ways")
        return None

    def _reader(self, token, kind):
        """Return a function that reads an operand as numbers of a kind."""
        dtype = DTYPES[kind]
        if token == "%tid.x":
            return lambda: self.lanes.view(dtype)
        if token == "%ctaid.x":
            return lambda: self._constant(self.block, np.uint32).view(dtype)
        if token.startswith("%"):
            unwritten = None
            if kind != "pred":
                bits = UNWRITTEN & ((1 << 8 * SIZES[kind]) - 1)
                unwritten = self._constant(bits, f"u{SIZES[kind]}").view(dtype)

            def read():
                value = self.registers.get(token)
                return unwritten if value is None else value.view(dtype)

            return read
        if token.startswith(("0f", "0d")):
            bits = int(token[2:], 16)
        elif token == "global_smem":
            bits = 0
        else:
            bits = int(token.rstrip("U"), 0) & ((1 << 8 * SIZES[kind]) - 1)
        constant = self._constant(bits, f"u{SIZES[kind]}").view(dtype)
        return lambda: constant

    def _put(self, token, value, mask):
        """Write a register, where the mask says so."""
        if value.dtype != np.bool_:
            size = REGISTER_SIZES[token.rstrip("0123456789")]
            assert value.itemsize == size, (token, value.dtype)
            value = value.view(f"u{size}")
        if mask is not None and not mask.all():
            before = self.registers.get(token)
            if before is None:
                assert value.dtype != np.bool_, token
                bits = UNWRITTEN & ((1 << 8 * value.itemsize) - 1)
                before = self._constant(bits, value.dtype)
            value = np.where(mask, value, before)
        self.registers[token] = value

    def _decode_move(self, name, operands, active):
        kind = name.partition(".")[2]
        target, source = operands
        if source.startswith("{"):  # several registers into one
            parts = re.findall(r"%\w+|-?\w+", source)
            small = f"b{8 * SIZES[kind] // len(parts)}"
            readers = [self._reader(part, small) for part in parts]

            def pack():
                columns = np.stack([read() for read in readers], axis=1)
                self._put(target, columns.view(DTYPES[kind])[:, 0], active())

            return pack
        read = self._reader(source, kind)
        if not target.startswith("{"):
            return lambda: self._put(target, read().copy(), active())
        parts = re.findall(r"%\w+|_", target)
        small = DTYPES[f"b{8 * SIZES[kind] // len(parts)}"]

        def unpack():
            columns = read()[:, None].view(small)
            for j, part in enumerate(parts):
                if part != "_":
                    self._put(part, columns[:, j].copy(), active())

        return unpack

    def _decode_access(self, name, operands, active):
        action, space, *vector, kind = name.split(".")
        assert space in ("global", "shared"), name
        assert vector in ([], ["v2"], ["v4"]), name
        size = SIZES[kind]
        place, numbers = operands if action == "st" else operands[::-1]
        base, offset = ADDRESS.fullmatch(place).groups()
        read_base = self._reader(base, "u64" if base.startswith("%rd") else "u32")
        tokens = re.findall(r"%\w+", numbers)
        assert len(tokens) == (int(vector[0][1]) if vector else 1), name
        readers = [self._reader(token, f"b{8 * size}") for token in tokens]

        def run():
            mask = active()
            if mask is not None and not mask.any():
                return
            at = read_base().astype(np.uint64) + np.uint64(int(offset or 0))
            chosen = slice(None) if mask is None or mask.all() else mask
            memory, index = self._locate(space, at[chosen], size * len(tokens), action)
            index = index // size
            for j, token in enumerate(tokens):
                if action == "st":
                    memory[size][index + j] = readers[j]()[chosen]
                else:
                    value = np.zeros(len(self.lanes), f"u{size}")
                    value[chosen] = memory[size][index + j]
                    self._put(token, value, mask)

        return run

    def _locate(self, space, addresses, size, action):
        """Return memory and the places in it, checked."""
        if space == "global":
            self.watch.check(addresses, size, action == "st")
            return MEMORY, addresses.astype(np.int64) - LOWEST
        at = addresses.astype(np.int64)
        if (at % size).any() or at.max() + size > len(self.shared):
            raise MemoryError(f"{size} bytes of shared memory at {at.max()}")
        return {n: self.shared.view(f"u{n}") for n in (2, 4, 8)}, at
