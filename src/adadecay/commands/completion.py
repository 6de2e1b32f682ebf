"""What the shell offers after Tab: studies, and the names that ``--only`` takes.

``adadecay --install-completion`` sets it up.
"""

from pathlib import Path

__all__ = ["complete_only", "complete_study"]


def complete_study(incomplete: str) -> list[str]:
    """Offer built-in studies, those that were run here, and TOML files."""
    from adadecay.lab.files import stored_studies
    from adadecay.lab.spec_file import built_in_names
    from adadecay.lab.study import default_results

    parent = Path(incomplete).parent if "/" in incomplete else Path()
    files = [str(path) for path in sorted(parent.glob("*.toml"))]
    names = [*files, *stored_studies(default_results()), *built_in_names()]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def complete_only(incomplete: str) -> list[str]:
    """Offer ``network=nn-2`` and its like, from the registries."""
    from adadecay.lab.datasets import DATASETS
    from adadecay.lab.networks import NETWORKS
    from adadecay.lab.optimizers import OPTIMIZERS

    kinds = {"dataset": DATASETS, "network": NETWORKS, "optimizer": OPTIMIZERS}
    kind, equals, rest = incomplete.partition("=")
    if not equals:
        return [f"{each}=" for each in kinds if each.startswith(kind)]
    before, comma, last = rest.rpartition(",")
    start = f"{kind}={before}{comma}"
    names = kinds[kind].names() if kind in kinds else ()
    return [start + name for name in names if name.startswith(last)]
