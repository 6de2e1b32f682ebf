"""How to add an optional part to this installation, as a command that works."""

import json
import re
import shlex

LAB = re.compile(r"extra == .lab\b")  # in the requirements of this package
IMPORTED_AS = {
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "vl-convert-python": "vl_convert",
}


def install_command(extra: str) -> str:
    """Return the pip command that adds ``adadecay[extra]`` to this installation.

    A clone or a wheel is named by its path, since an index need not have it.

    Args:
        extra: ``lab``, ``jax`` or ``ray``.
    """
    from importlib.metadata import distribution  # late: commands start faster
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("adadecay").read_text("direct_url.json") or "")
    except (ModuleNotFoundError, ValueError):
        return f"pip install 'adadecay[{extra}]'"
    url = origin["url"]
    if "dir_info" not in origin:
        return f"pip install 'adadecay[{extra}] @ {url}'"
    flag = "-e " if origin["dir_info"].get("editable") else ""
    folder = url2pathname(url.removeprefix("file://"))
    return f"pip install {flag}{shlex.quote(f'{folder}[{extra}]')}"


def missing_lab(error: ModuleNotFoundError) -> str | None:
    """Return the sentence for a package of the lab that is missing, None for others."""
    from importlib.metadata import distribution

    name = (error.name or "").partition(".")[0]
    try:
        required = distribution("adadecay").requires or []
    except ModuleNotFoundError:
        return None
    lab = [re.split(r"[^\w-]", each)[0] for each in required if LAB.search(each)]
    if name not in [IMPORTED_AS.get(package, package) for package in lab]:
        return None
    command = install_command("lab")
    return f"this needs the lab, but {name} is not installed: run {command}"
