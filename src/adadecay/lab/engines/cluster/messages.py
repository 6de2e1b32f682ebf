"""What a task sends to the driver: some events, and the bytes of a checkpoint.

In: events. Out: messages, and the same events again. Epochs that take less than a blink
travel together, so that the driver's work grows with time and not with epochs. The
bytes of a checkpoint travel as an array beside the events, which Ray hands over without
putting them through a pickle.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adadecay.lab.engines import EpochDone, Event
from adadecay.lab.files import Checkpoint

__all__ = ["Message", "pack"]

BLINK: Final = 0.2  # seconds that an epoch may wait for the next one


@dataclass(frozen=True)
class Message:
    """Some events in their order.

    Args:
        small: the events; the last one's checkpoint has no payload.
        payload: that payload.
    """

    small: tuple[Event, ...]
    payload: NDArray[Any] | None = None

    def events(self) -> list[Event]:
        """Return the events as they were."""
        *first, last = self.small
        if self.payload is None:
            return [*first, last]
        assert isinstance(last, EpochDone)
        assert last.checkpoint is not None
        checkpoint = replace(last.checkpoint, payload=self.payload.data)
        return [*first, replace(last, checkpoint=checkpoint)]


def pack(events: Iterable[Event], *, blink: float = BLINK) -> Iterator[Message]:
    """Turn events into messages.

    Args:
        events: of one trial, to its end.
        blink: epochs that end within so many seconds after a message wait for the next.
    """
    waiting: list[Event] = []
    sent = time.monotonic()
    for event in events:
        checkpoint = event.checkpoint if isinstance(event, EpochDone) else None
        soon = time.monotonic() - sent < blink
        if isinstance(event, EpochDone) and checkpoint is None and soon:
            waiting.append(event)
            continue
        if isinstance(event, EpochDone) and checkpoint is not None:
            yield _with_payload(waiting, event, checkpoint)
        else:
            yield Message((*waiting, event))
        waiting.clear()
        sent = time.monotonic()


def _with_payload(
    waiting: list[Event], event: EpochDone, checkpoint: Checkpoint
) -> Message:
    payload = np.frombuffer(checkpoint.payload, dtype=np.uint8)
    bare = replace(event, checkpoint=replace(checkpoint, payload=b""))
    return Message((*waiting, bare), payload)
