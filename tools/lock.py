"""Resolve the dependency groups of pyproject.toml into exact pins.

In: ``[dependency-groups]`` and ``[project]``. Out: one ``requirements-GROUP.lock``
for each group. pip resolves, so whatever indexes pip is configured with are used and
none is written down; local version labels such as ``+cpu`` are dropped so that a lock
made on one machine installs on another.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("demo", "docs", "test")


def expand(project: dict, group: str) -> list[str]:
    """List a group's requirements, our own extras replaced by what they stand for."""
    listed = list(project["dependency-groups"][group])
    for item in listed:  # which grows
        if item.startswith("adadecay["):
            listed += project["project"]["dependencies"]
            for extra in item.removeprefix("adadecay[").rstrip("]").split(","):
                listed += project["project"]["optional-dependencies"][extra.strip()]
    return [item for item in listed if not item.startswith("adadecay[")]


def resolve(requirements: list[str]) -> list[str]:
    """Ask pip which versions it would install into an empty environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
    command += ["--ignore-installed", "--report", "-", *requirements]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    pins = (item["metadata"] for item in json.loads(report)["install"])
    # Whatever is asked for on some systems only stays so.
    limited = {r.partition("==")[0]: r for r in requirements if ";" in r}
    return sorted(
        limited.get(pin["name"].lower())
        or f"{pin['name'].lower()}=={pin['version'].partition('+')[0]}"
        for pin in pins
    )


def main() -> None:
    """Write every lock file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for group in GROUPS:
        pins = resolve(expand(project, group))
        text = f"# Made by `make lock` from the group '{group}' of pyproject.toml.\n"
        text += "\n".join(pins) + "\n"
        (ROOT / f"requirements-{group}.lock").write_text(text)
        print(f"requirements-{group}.lock: {len(pins)} packages")


if __name__ == "__main__":
    main()
