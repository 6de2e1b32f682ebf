"""The native CPU kernel behind the fused path."""


def available() -> bool:
    """Tell whether the kernel is present and usable on this machine."""
    return False


def absence() -> str:
    """Say in one sentence why the kernel is not available, and what would help."""
    return "this build of adadecay has no native kernel; leave fused=None"
