"""``adadecay selftest``: whether the kernel is right on this machine, and how fast."""

from typing import TYPE_CHECKING, Annotated

import typer

from adadecay.commands.options import one_sentence, progress, stop

if TYPE_CHECKING:
    import torch

__all__ = ["selftest"]


def selftest(
    device: Annotated[
        str, typer.Option(help="cpu, cuda, or cuda:1 and so on.")
    ] = "cpu",
    elements: Annotated[
        int, typer.Option(min=64, help="Parameters of the step that is timed.")
    ] = 1 << 26,
) -> None:
    """Compare a device's kernel with the reference, and time it."""
    import torch

    from adadecay.benchmark.selftest import run_selftest

    with one_sentence():
        try:
            place = torch.device(device)
        except RuntimeError:
            stop(f"--device {device} must be cpu, cuda, or cuda with a number.", 2)
        if place.type == "cuda" and not torch.cuda.is_available():
            stop("--device cuda needs a GPU, and torch finds none here.", 2)
        if place.type not in ("cpu", "cuda"):
            stop(f"--device {device}: there are kernels for cpu and cuda only.", 2)
        progress(f"the kernel on {place}, for about half a minute")
        try:
            found = run_selftest(place, elements=elements)
        except RuntimeError as error:
            stop(f"{error}.", 2)
    threads = ", on one thread" if place.type == "cpu" else ""
    captured = {True: "right", False: "WRONG", None: "not tried: no GPU"}
    rows = {
        **_describe(place),
        "θ, worst error": f"{found.theta_error:.1e}",
        "steps, worst error": f"{found.step_error:.1e}",
        "α = 0 is SGD": "bit for bit" if found.same_bits_as_sgd else "not bit for bit",
        "CUDA graph": captured[found.captured],
        "speed": f"{found.bytes_per_second / 1e9:.1f} GB/s of 24 bytes per parameter, "
        f"{found.ratio:.2f} × the time of fused SGD{threads}",
        "result": "passed" if found.passed else "FAILED",
    }
    for key, value in rows.items():
        typer.echo(f"{key:<19} {value}")
    raise typer.Exit(0 if found.passed else 1)


def _describe(device: "torch.device") -> dict[str, str]:
    """Name the device, its driver and the packages that matter."""
    import torch

    from adadecay import native
    from adadecay.lab.provenance import processor, version

    form = native.kernel.form() if native.kernel else "None"
    rows = {"device": processor(), "kernel": form}
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: "unknown")()
        rows = {
            "device": f"{found.name}, {found.total_memory >> 30} GiB",
            "driver": f"{driver} (CUDA {torch.version.cuda}, HIP {torch.version.hip})",
            "kernel": f"Triton {version('triton')}",
        }
    packages = ("adadecay", "torch")
    return rows | {name: str(version(name)) for name in packages}
