"""Tables on the device, kept between steps, and the launches over them.

In: tensors of one device and one type, and which of them form a layer. Out: launches of
the kernels in :mod:`adadecay.gpu.sums` and :mod:`adadecay.gpu.update`, in the order of
the stream and without waiting for it.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from adadecay.gpu import sums, update

if TYPE_CHECKING:
    from adadecay.gpu.engine import Update

THREADS = 256
BLOCK = 2048  # elements of a tile of `update`, without a mask
GROUP = 32  # numbers of a thread in a tile of `sum_chunks`
SHORT_GROUP = 8  # and of the tiles with masks, and those of `sum_rates`
MERGE_BLOCK = 128
CHUNK = int(sums.CHUNK)
TYPES = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


class Plan:
    """The tables of some layers, which depend on sizes alone but for the addresses.

    Args:
        device: where all of the tensors are.
        dtype: the type of all of them.
        sizes: how many elements each tensor has.
        members: for each layer, the indices of its tensors.
        places: for stochastic rounding, what :func:`adadecay.rounding.rows` says of
            each tensor.
    """

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        sizes: Sequence[int],
        members: Sequence[Sequence[int]],
        places: Sequence[tuple[int, Sequence[int]]] | None = None,
    ) -> None:
        self.device, self.sizes = device, list(sizes)
        self.layers = [0] * len(sizes)
        chunks: list[tuple[int, int]] = []
        spans = [0]
        for number, layer in enumerate(members):
            for i in layer:
                self.layers[i] = number
                chunks += [(i, k) for k in range(-(-sizes[i] // CHUNK))]
            spans.append(len(chunks))
        self.n_chunks, self.n_layers = len(chunks), len(members)
        with self.on_device():
            self.chunks = torch.tensor(chunks, dtype=torch.int32, device=device)
            self.spans = torch.tensor(spans, dtype=torch.int32, device=device)
            rows = [(number, *runs) for number, runs in places or ()]
            self.places = torch.tensor(rows, device=device) if rows else None
            self.parts = torch.empty(
                3, self.n_chunks, dtype=torch.float64, device=device
            )
            self.coefs = torch.empty(
                self.n_layers, int(sums.COEFS), dtype=torch.float32, device=device
            )
            target = triton.runtime.driver.active.get_current_target()
        self.table = torch.empty(
            len(sizes), int(sums.COLUMNS), dtype=torch.int64, device=device
        )
        self.overlapping = False  # whether a tensor that is written has two names
        self._rows: list[Any] | None = None  # what the table holds
        self._reserve: tuple[Tensor, Tensor] | None = None
        self._captured: list[tuple[Tensor, Tensor]] = []
        self.type = TYPES[dtype]
        self.width = 16 // dtype.itemsize
        self.options = {
            "num_warps": THREADS // target.warp_size,
            "enable_fp_fusion": False,
        }

    def on_device(self) -> AbstractContextManager[Any]:
        """Make the plan's device the current one, for Triton launches there."""
        cuda = self.device.type == "cuda"
        return torch.cuda.device(self.device) if cuda else nullcontext()

    def point_to(
        self,
        grads: Sequence[Tensor],
        weights: Sequence[Tensor] = (),
        buffers: Sequence[Tensor] = (),
        fresh: Sequence[bool] = (),
    ) -> tuple[Tensor, bool]:
        """Return the table of these tensors, and whether it is another than before."""
        none = [0] * len(grads)
        places = [
            [tensor.data_ptr() for tensor in tensors] or none
            for tensors in (grads, weights, buffers)
        ]
        rows: list[Any] = [*places, [*fresh] or none]
        capturing = (
            self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        )
        if rows == self._rows and not capturing:
            return self.table, False
        flags = [
            int(sums.ALIGNED) * all(address % 16 == 0 for address in addresses)
            + int(sums.FRESH) * is_fresh
            for *addresses, is_fresh in zip(*rows, strict=True)
        ]
        host = torch.tensor([*places, self.sizes, self.layers, flags]).T.contiguous()
        if capturing:
            return self._table_for_graph(host), True
        if self.device.type == "cuda":
            host = host.pin_memory()
            if self._reserve is None:
                self._reserve = host.clone().pin_memory(), torch.empty_like(self.table)
        self.table.copy_(host, non_blocking=True)
        self._rows = rows
        return self.table, True

    def _table_for_graph(self, host: Tensor) -> Tensor:
        """Return a table that a CUDA graph copies from pinned memory at each replay.

        Both were allocated before the capture, which allows no pinned allocations, and
        belong to the graph from now on.
        """
        if self._reserve is None:
            raise RuntimeError(
                "this step is being captured in a CUDA graph, but no step ran outside "
                "the capture first: run one step outside before each capture"
            )
        pinned, table = self._reserve
        self._captured.append(self._reserve)
        self._reserve = None
        pinned.copy_(host)
        return table.copy_(pinned, non_blocking=True)

    def sum(self, table: Tensor) -> None:
        """Sum the chunks of the gradients."""
        sums.sum_chunks[(self.n_chunks,)](
            table,
            self.chunks,
            self.parts,
            self.n_chunks,
            DTYPE=self.type,
            ROWS=GROUP // self.width,
            SHORT_ROWS=SHORT_GROUP // self.width,
            GROUPS=THREADS,
            WIDTH=self.width,
            **self.options,
        )

    def merge(
        self, table: Tensor, coefs: Tensor | None, moments: Tensor | None, alpha: float
    ) -> None:
        """Merge the sums of chunks to coefficients or moments of layers."""
        sums.merge_chunks[(self.n_layers,)](
            table,
            self.chunks,
            self.spans,
            self.parts,
            coefs,
            moments,
            self.n_chunks,
            float(alpha),
            BLOCK=MERGE_BLOCK,
            **self.options,
        )

    def find_coefs(self, table: Tensor, alpha: float, *, unit_mean: bool) -> None:
        """Find the coefficients of θ."""
        self.sum(table)
        self.merge(table, self.coefs, None, alpha)
        if unit_mean:
            self.sum_rates(table, self.coefs, alpha, None)

    def sum_rates(
        self, table: Tensor, coefs: Tensor, alpha: float, into: Tensor | None
    ) -> None:
        """Divide the coefficients by the mean θ, or store Σθ and sizes of parts."""
        update.sum_rates[(self.n_chunks,)](
            table,
            self.chunks,
            coefs,
            self.parts,
            float(alpha),
            DTYPE=self.type,
            ROWS=SHORT_GROUP // self.width,
            GROUPS=THREADS,
            WIDTH=self.width,
            **self.options,
        )
        update.merge_rates[(self.n_layers,)](
            table,
            self.chunks,
            self.spans,
            self.parts,
            coefs if into is None else None,
            into,
            BLOCK=MERGE_BLOCK,
            **self.options,
        )

    def store_rates(self, table: Tensor, coefs: Tensor, alpha: float) -> None:
        """Store θ at the addresses that stand for weights in the table."""
        update.store_rates[(self.n_chunks,)](
            table,
            self.chunks,
            coefs,
            float(alpha),
            DTYPE=self.type,
            BLOCK=BLOCK,
            **self.options,
        )

    def update(self, table: Tensor, given: "Update", coefs: Tensor | None) -> None:
        """Take the step; there is no decay without coefficients or moments."""
        update.update[(self.n_chunks,)](
            table,
            self.chunks,
            coefs,
            self.n_chunks,
            given.alpha,
            given.lr,
            given.decay,
            given.momentum,
            given.gain,
            given.grad_scale,
            given.found_inf,
            self.places,
            given.seed,
            given.step,
            DTYPE=self.type,
            BLOCK=BLOCK,
            SHORT_BLOCK=BLOCK // 4,
            MOMENTUM=given.momentum != 0,
            NESTEROV=given.nesterov,
            MAXIMIZE=given.maximize,
            DECOUPLED=given.decoupled,
            **self.options,
        )
