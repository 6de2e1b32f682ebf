"""``adadecay data list|fetch|verify``: what there is, getting it, checking it.

Flows in: names and options. Flows out: lines on standard output; what goes on while
fetching is told on standard error. Exit status: 0 done, 1 a dataset could not be
obtained or is damaged, 2 the input is wrong. The datasets' modules, which bring NumPy,
are imported by the commands alone: `adadecay --help` does without.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from adadecay.commands.options import JSON, print_json, stop

__all__ = ["app"]

app = typer.Typer(help="List, fetch and verify datasets.", no_args_is_help=True)


def _known(names: list[str]) -> list[str]:
    from adadecay.lab.datasets import DATASETS
    from adadecay.lab.registry import offer

    for name in names:
        if ":" in name:
            stop(f"{name} is your own dataset: there is nothing to fetch or verify.", 2)
        if name not in DATASETS:
            stop(f"Unknown dataset {name!r}.{offer(name, DATASETS.names())}", 2)
    return list(dict.fromkeys(names))


@app.command("list")
def list_datasets(json: JSON = False) -> None:
    """List the datasets, their sizes, and whether they are cached."""
    from adadecay.lab.datasets import DATASETS
    from adadecay.lab.datasets.cache import VARIABLE, cache_folder, file_of

    folder = cache_folder()
    found = [
        {
            "name": entry.name,
            **{key: entry.facts[key] for key in ("train", "test", "bytes")},
            **_state(entry.name, file_of(entry.name, folder)),
        }
        for entry in DATASETS
    ]
    if json:
        print_json({"cache": folder, "datasets": found})
        return
    for each in found:
        rows = f"{each['train']:,} + {each['test']:,}"
        size = f"{each['bytes'] / 1e6:.1f} MB"
        state = f"{each['state']:<9} {each['place']}"
        typer.echo(f"{each['name']:<14} {rows:>16} {size:>9}  {state}")
    typer.echo(f"Cache: {folder} (set {VARIABLE} to change it)")


def _state(name: str, path: Path) -> dict[str, str]:
    from adadecay.lab.datasets import DatasetError
    from adadecay.lab.datasets.cache import open_arrays
    from adadecay.lab.datasets.catalog import CATALOG

    if name not in CATALOG:
        return {"state": "embedded", "place": "in scikit-learn"}
    try:
        open_arrays(path, CATALOG[name].parts)
    except FileNotFoundError:
        return {"state": "absent", "place": f"adadecay data fetch {name}"}
    except DatasetError as error:
        return {"state": "damaged", "place": str(error)}
    return {"state": "cached", "place": str(path)}


@app.command()
def fetch(
    names: Annotated[
        list[str], typer.Argument(metavar="NAMES", help="Which datasets.")
    ],
    folder: Annotated[
        Path | None,
        typer.Option(help="Read only from this folder of downloaded files."),
    ] = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Contact no server and no package manager."),
    ] = False,
) -> None:
    """Fetch datasets into the cache, and check their SHA-256."""
    from adadecay.lab.datasets import DatasetError
    from adadecay.lab.datasets.catalog import CATALOG
    from adadecay.lab.datasets.fetch import obtain

    missing = []
    for name in _known(names):
        try:
            place = "scikit-learn"
            if name in CATALOG:
                place = str(obtain(CATALOG[name], folder=folder, offline=offline))
            typer.echo(f"{name}: ready, in {place}")
        except DatasetError as error:
            typer.echo(error, err=True)
            missing.append(name)
    if missing:
        stop(f"could not fetch {', '.join(missing)}.", 1)


@app.command("verify")
def verify_datasets(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAMES",
            help="Datasets to verify. Default: all cached ones.",
        ),
    ] = None,
) -> None:
    """Read every byte of the cached datasets and compare their SHA-256."""
    from adadecay.lab.datasets.cache import cache_folder, file_of
    from adadecay.lab.datasets.catalog import CATALOG

    folder = cache_folder()
    cached = [name for name in CATALOG if os.path.lexists(file_of(name, folder))]
    wrong = [name for name in _known(names or [*cached, "digits"]) if not _sound(name)]
    if wrong:
        stop(f"fetch again: adadecay data fetch {' '.join(wrong)}", 1)


def _sound(name: str) -> bool:
    """Whether ``name`` is what it should be; a damaged file is set aside."""
    from adadecay.lab.datasets import DATASETS, BadDataError, DatasetError
    from adadecay.lab.datasets.cache import cache_folder, file_of, set_aside, verify
    from adadecay.lab.datasets.catalog import CATALOG
    from adadecay.lab.settings import shown

    path = file_of(name, cache_folder())
    try:
        if name in CATALOG:
            source = shown(verify(path, CATALOG[name].parts))
            typer.echo(f"{name}: OK, {path} (from {source})")
        else:
            DATASETS.get(name).load()()
            typer.echo(f"{name}: OK, in scikit-learn")
    except FileNotFoundError:
        typer.echo(f"{name}: not in the cache, {path}")
        return False
    except BadDataError as error:
        typer.echo(f"{name}: DAMAGED, moved to {set_aside(path)}: {error}")
        return False
    except DatasetError as error:
        typer.echo(f"{name}: {error}")
        return False
    return True
