"""The short way to the kernel, for steps like the last one.

In: parameter groups whose tensors a step has sent down the fused path before. Out: the
same step again, without collecting and examining everything anew: whatever could have
changed meanwhile is compared with what was seen, and anything unusual is left to the
ordinary way. A small network's step is mostly Python: this halves it.
"""

from operator import is_
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay import kernels
from adadecay.paths import Options, foreach, fused, suitability
from adadecay.settings import shrinks_past_zero

OPTION_NAMES = tuple(Options.__annotations__)
NO_STATE: dict[str, Any] = {}


class Seen:
    """A group's tensors as the last ordinary step saw them."""

    def __init__(
        self, listed: list[Tensor], state: list[Tensor], layers: list[int]
    ) -> None:
        self.listed = listed
        self.params, self.state, self.layers = [*listed], state, layers
        self.sizes = list(map(suitability.size_of, listed))
        self.types = list(map(suitability.type_of, listed))
        self.codes = [suitability.TYPES[type_] for type_ in self.types]
        self.addresses = list(map(suitability.address_of, listed))
        self.state_addresses = list(map(suitability.address_of, state))
        self.changing = self.params + state

    def gradients(
        self, group: dict[str, Any], state: dict[Tensor, Any]
    ) -> list[Tensor] | None:
        """Give the gradients, if parameters and buffers are the same as before."""
        params = self.listed
        if group["params"] is not params or len(params) != len(self.params):
            return None
        buffers = []
        if group["momentum"] != 0:
            buffers = [state.get(p, NO_STATE).get("momentum_buffer") for p in params]
        grads = cast(list[Tensor], [param.grad for param in params])
        same = (
            len(buffers) == len(self.state)
            and all(map(is_, params, self.params))
            and all(map(is_, buffers, self.state))
            and list(map(suitability.address_of, params)) == self.addresses
            and list(map(suitability.address_of, buffers)) == self.state_addresses
            and list(map(suitability.size_of, params)) == self.sizes
            and all(map(suitability.is_dense, params))
            and self._fit(grads)
        )
        return grads if same else None

    def _fit(self, grads: list[Tensor]) -> bool:
        """Tell whether gradients lie in memory as the parameters do."""
        return (
            suitability.PLAIN_TYPES.issuperset(map(type, grads))
            and all(map(suitability.is_dense, grads))
            and list(map(suitability.size_of, grads)) == self.sizes
            and list(map(suitability.type_of, grads)) == self.types
            and all(map(suitability.is_on_cpu, grads))
            and not any(map(suitability.is_negated, grads))
        )

    def step(self, group: dict[str, Any], grads: list[Tensor]) -> None:
        """Call the kernel, for which everything but the gradients is known."""
        assert kernels.native is not None
        done = kernels.native.step(
            self.addresses,
            list(map(suitability.address_of, grads)),
            self.state_addresses,
            self.sizes,
            self.codes,
            self.layers,
            [],
            float(group["lr"]),
            group["momentum"],
            group["dampening"],
            float(group["weight_decay"]),
            group["alpha"],
            fused.switches(group),
            torch.get_num_threads(),
            None,
            None,
        )
        if done:
            increment_version(self.changing)
            return
        # A gradient has come to overlap something: torch's own operations, one by one.
        options = cast(Options, {name: group[name] for name in OPTION_NAMES})
        buffers = cast(list[Tensor | None], self.state or [None] * len(grads))
        foreach.step(self.params, grads, buffers, self.layers, **options)


class Shortcut:
    """What an optimizer remembers of its last step, group by group."""

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}

    def learn(
        self,
        number: int,
        group: dict[str, Any],
        tensors: tuple[list[Tensor], list[Tensor], list[Tensor | None], list[int]],
    ) -> None:
        """Remember a group whose tensors have just gone to the kernel, if all did."""
        params, grads, buffers, layers = tensors
        self._seen.pop(number, None)
        listed = group["params"]
        state = cast(list[Tensor], buffers) if group["momentum"] != 0 else []
        if len(params) == len(listed) and suitability.suit(params, grads, state):
            self._seen[number] = Seen(listed, state, layers)

    def step(self, groups: list[dict[str, Any]], state: dict[Tensor, Any]) -> bool:
        """Take the step; False, with nothing changed, if it is not like the last."""
        seen = self._seen
        if len(groups) != len(seen) or torch.compiler.is_compiling():
            return False
        found = []
        try:
            for number, group in enumerate(groups):
                grads = seen[number].gradients(group, state)
                if grads is None or not _ordinary(group):
                    return False
                found.append(grads)
        except RuntimeError:  # a sparse gradient has no address: not for here
            return False
        for number, group in enumerate(groups):
            seen[number].step(group, found[number])
        return True


def _ordinary(group: dict[str, Any]) -> bool:
    """Tell whether a group's settings still lead to the kernel, without a warning."""
    return not (
        group["foreach"] is not None
        or group["differentiable"]
        or group["fused"] is False
        or shrinks_past_zero(group)
    )
