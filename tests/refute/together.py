"""Processes that train together, as threads that take turns: what they do is the same each time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch


class Together:
    """So many members; one runs at a time, and hands over where all of them meet."""

    def __init__(self, size: int) -> None:
        self.size, self._turn = size, 0
        self._left: list[Any] = [None] * size
        self._seen: list[Any] = []
        self._turns = threading.Condition()
        self._all = threading.Barrier(size, action=self._met)

    def run(self, task: Callable[[Member], Any]) -> list[Any]:
        """What each member's task gives; an error of one is raised."""
        found: list[Any] = [None] * self.size
        errors: list[BaseException] = []

        def one(rank: int) -> None:
            try:
                self._wait(rank)
                found[rank] = task(Member(self, rank))
            except threading.BrokenBarrierError:
                pass
            except BaseException as error:
                errors.append(error)
                self._all.abort()
            finally:
                self._pass_on(rank)

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return found

    def meet(self, rank: int, tensor: Any) -> list[Any]:
        """Leave a tensor, and get those of all."""
        self._left[rank] = tensor.clone()
        self._pass_on(rank)
        self._all.wait()
        self._wait(rank)
        return self._seen

    def _met(self) -> None:
        self._seen = list(self._left)
        with self._turns:
            self._turn = 0
            self._turns.notify_all()

    def _wait(self, rank: int) -> None:
        with self._turns:
            self._turns.wait_for(lambda: self._turn >= rank or self._all.broken)

    def _pass_on(self, rank: int) -> None:
        with self._turns:
            self._turn = rank + 1
            self._turns.notify_all()


class Member:
    """One of them, as `TrainingLoop` wants a group."""

    def __init__(self, together: Together, rank: int) -> None:
        self._together, self.rank, self.size = together, rank, together.size

    def add(self, tensor: Any) -> None:
        tensor.copy_(torch.stack(self._together.meet(self.rank, tensor)).sum(0))

    def send(self, tensor: Any, source: int) -> None:
        tensor.copy_(self._together.meet(self.rank, tensor)[source])
