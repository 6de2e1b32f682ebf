"""``adadecay info``: versions, the kernel in use, where data and results are."""

from typing import Any

import typer

from adadecay.commands.options import JSON, print_json, stop

__all__ = ["info"]


def info(json: JSON = False) -> None:
    """Show versions, kernel, data and results folder."""
    import torch

    from adadecay.lab.datasets.cache import cache_folder
    from adadecay.lab.engines.local import default_workers
    from adadecay.lab.provenance import describe, environment, kernel
    from adadecay.lab.study import default_results

    try:
        kernel()
    except ValueError as error:
        stop(f"{error}.", 2)
    origin = describe()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    here = environment(device=device, threads=1)
    rows: dict[str, Any] = {
        **origin["versions"],
        "commit": origin["commit"] or "not a checkout",
        "system": origin["system"],
        "processor": f"{origin['processor']}, {origin['cores']} cores",
        "instructions": here["instructions"],
        "device": here["device"],
        "kernel": here["kernel"],
        "workers": default_workers(device="auto", threads=1),
        "data": cache_folder(),
        "results": default_results().resolve(),
    }
    if json:
        print_json(rows)
        return
    for key, value in rows.items():
        typer.echo(f"{key:<13} {value}")
