"""Is the user's code that this process runs the code that a trial is named after?

In: what defines a trial. Out: nothing, or an error. A trial's id holds a digest of the
source on disk when the study was planned. A long-lived process (a notebook, a shell)
may hold an older module in memory, and a worker that starts late may import a newer
one: either would store one code's numbers under another's name.
"""

import sys
from pathlib import Path

from adadecay.lab.definition import TrialDefinition
from adadecay.lab.registry import load_object
from adadecay.lab.sources import LIVE, source_digest, source_modules

__all__ = ["check_code"]

# By module: the modules that were in memory when it was first looked at (each import or
# reload gives a module a new spec), and the digest of what lay on disk then.
_seen: dict[str, tuple[dict[str, object], str]] = {}


def check_code(definition: TrialDefinition) -> None:
    """Import the user's functions of a trial, and refuse them if they are not its own.

    Args:
        definition: what defines the trial.
    """
    for part in definition.components:
        if part.source is not None:
            _check(part.name, part.source)


def _check(name: str, planned: str) -> None:
    module = name.partition(":")[0]
    if module == LIVE:  # a notebook's: its source is what was typed last
        _compare(name, source_digest(name), planned)
        return
    load_object(name)
    loaded: dict[str, object] = {}
    for each, file in source_modules(name).items():
        spec = sys.modules[each].__spec__ if each in sys.modules else None
        if spec is None or spec.origin is None:
            continue
        if Path(spec.origin).resolve() != file.resolve():
            raise RuntimeError(
                f"{name!r} needs {file}, and Python found {spec.origin} first: both "
                f"are called {each!r}, so rename one."
            )
        loaded[each] = spec
    known = _seen.get(module)
    if known is None or not _same(known[0], loaded):
        known = _seen[module] = loaded, source_digest(name)
    _compare(name, known[1], planned)


def _compare(name: str, found: str, planned: str) -> None:
    if found != planned:
        raise RuntimeError(
            f"the code of {name!r} has changed since this process imported it, or "
            f"since the study was planned: start Python anew, and give the study again."
        )


def _same(one: dict[str, object], other: dict[str, object]) -> bool:
    # By identity: a reloaded module has a new spec that equals the old one.
    return one.keys() == other.keys() and all(one[k] is other[k] for k in one)
