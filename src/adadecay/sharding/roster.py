"""Wrappers that hide the layers, and how they are noticed.

In: an optimizer's parameter groups. Out: nothing, or an error that names the wrapper.
"""

from typing import Any

import torch
from torch import Tensor


class Roster:
    """The parameters that an optimizer was given, to notice what replaces them.

    Some wrappers put one flat tensor in the place of many parameters, and then nothing
    tells where a layer ends. Replacements of the same shapes are welcome.
    """

    def __init__(self) -> None:
        self._known: list[tuple[list[Tensor], list[torch.Size]]] = []

    def check(self, groups: list[dict[str, Any]]) -> None:
        """Refuse parameters whose layers are hidden."""
        for number, group in enumerate(groups):
            params = group["params"]
            if any(params is listed for listed, _ in self._known):
                continue
            shapes = [param.shape for param in params]
            is_new = len(self._known) < len(groups)
            if not is_new and all(shapes != known for _, known in self._known):
                raise ValueError(
                    f"the parameters of group {number} were replaced by others, of "
                    f"the shapes {[tuple(shape) for shape in shapes]}: DeepSpeed's "
                    "ZeRO and others flatten parameters so, which hides the layers "
                    "whose statistics the decay needs; use FSDP2 or DDP"
                )
            _refuse_flattened(number, params)
            if not is_new:
                self._known = [k for k in self._known if k[1] != shapes]
            self._known.append((params, shapes))


def _refuse_flattened(number: int, params: list[Tensor]) -> None:
    """Refuse what FSDP1 has marked as flattened, whole or in views."""
    for position, param in enumerate(params):
        if getattr(param, "_fsdp_flattened", False):
            raise ValueError(
                f"parameter {position} of group {number} was flattened by FSDP1 "
                "(FullyShardedDataParallel), which hides the layers whose statistics "
                "the decay needs: use FSDP2, torch.distributed.fsdp.fully_shard"
            )
