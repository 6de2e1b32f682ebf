"""Ray's head: whether it is still there.

In: an address. Out: nothing while it answers, one sentence when it is gone for good.
"""

import socket
import time
from typing import Final

from adadecay.lab.engines import EngineError

__all__ = ["AGAIN", "HeadWatch", "greet"]

GLANCE: Final = 5.0  # seconds between looks at Ray's head
PATIENCE: Final = 30.0  # seconds that it may be away; Ray itself gives up after 60
AGAIN: Final = "Nothing that was finished is lost: give the same command again to go on"


def greet(host: str, port: int) -> None:
    """Raise OSError if nobody listens there."""
    with socket.create_connection((host, port), timeout=5):
        pass


class HeadWatch:
    """Notices that Ray's head is gone before Ray ends this process over it.

    Args:
        address: of the head.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._place = host, int(port)
        self._looked = self._seen = time.monotonic()

    def answers(self) -> bool:
        """Whether the head can be reached now."""
        try:
            greet(*self._place)
        except OSError:
            return False
        return True

    def check(self) -> None:
        """Raise EngineError when the head has not answered for a while."""
        now = time.monotonic()
        if now - self._looked < GLANCE:
            return
        self._looked = now
        if self.answers():
            self._seen = now
        if now - self._seen > PATIENCE:
            raise EngineError(
                f"Ray's head at {self.address} has not answered for "
                f"{now - self._seen:.0f} s. {AGAIN}.",
                status=1,
            )
