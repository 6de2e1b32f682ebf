"""Parameter groups: which tensors decay, and which are spared.

In: a model. Out: two parameter groups with names, for any optimizer: weights, and the
biases and norms that are usually left without decay.
"""

from typing import Any

from torch import nn

NORMS = (
    nn.modules.batchnorm._NormBase,  # batch and instance norms
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def param_groups(
    model: nn.Module, weight_decay: float, *, spare: tuple[type[nn.Module], ...] = ()
) -> list[dict[str, Any]]:
    """Split a model's parameters into those that decay and those that do not.

    Biases, the parameters of norms (torch's own, and modules whose class name ends in
    ``Norm``, as in transformers) and of the modules in ``spare`` do not decay.
    Parameters that need no gradient are left out; shared ones appear once, and decay if
    one of their owners says so.

    Args:
        model: the model.
        weight_decay: λ of those that decay.
        spare: further kinds of modules whose own parameters do not decay.

    Returns:
        One or two groups of named parameters, empty ones left out.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
        >>> groups = param_groups(model, weight_decay=0.1)
        >>> [[name for name, _ in group["params"]] for group in groups]
        [['0.weight'], ['0.bias', '1.weight', '1.bias']]
    """
    decaying: dict[int, tuple[str, nn.Parameter]] = {}
    spared: dict[int, tuple[str, nn.Parameter]] = {}
    for path, module in model.named_modules():
        kind = type(module)
        is_spared = issubclass(kind, NORMS + spare) or kind.__name__.endswith("Norm")
        for name, param in module.named_parameters(recurse=False):
            if not param.requires_grad:
                continue
            entry = (f"{path}.{name}" if path else name, param)
            # Recurrent layers have bias_ih_l0 and its like, attention bias_k.
            is_bias = name.endswith("bias") or name.startswith("bias")
            chosen = spared if is_spared or is_bias else decaying
            chosen.setdefault(id(param), entry)
    for shared in decaying.keys() & spared.keys():
        del spared[shared]
    groups = (
        {"params": list(decaying.values()), "weight_decay": weight_decay},
        {"params": list(spared.values()), "weight_decay": 0.0},
    )
    return [group for group in groups if group["params"]]
