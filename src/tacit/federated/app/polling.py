"""A grid that polls for replies more often than Flower's own, which waits three seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from tacit.federated.flower import Run


class Polling(Grid):
    """A wrapper of a grid that polls for replies four times a second.

    Parameters
    ----------
    grid : Grid
        The grid.
    pause : float
        Seconds between two polls.
    """

    def __init__(self, grid: Grid, pause: float = 0.25) -> None:
        self._grid, self._pause = grid, pause

    def set_run(self, run: Run) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        waiting = set(self.push_messages(sent)) if sent else set()
        end = math.inf if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while waiting:
            new = list(self.pull_messages(waiting))
            replies += new
            waiting -= {one.metadata.reply_to_message_id for one in new}
            if time.monotonic() >= end:
                break
            if waiting:
                time.sleep(self._pause)
        return replies
