"""What pages need for a vote: the description of the published model, and its ONNX graph."""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple

from tacit.apps.service import device
from tacit.apps.service.problems import Problem
from tacit.apps.service.store import Store
from tacit.local.inference.votes import Ballot
from tacit.privacy import artifact

_MOST = 16


class Ballots:
    """Descriptions and graphs of published models, each made once: anyone may ask for them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = Lock()
        self._made: dict[str, _Made] = {}

    def describe(self, name: str) -> dict[str, Any]:
        """Return what a page needs besides the graph."""
        return self._of(name).described

    def graph(self, name: str) -> bytes:
        """Return the model as an ONNX graph, from rows to the index of the answer."""
        graph = self._of(name).graph
        if graph is None:
            raise Problem("no-graph")
        return graph

    def _of(self, name: str) -> _Made:
        ballot = self.store.campaign(name).ballot
        if ballot is None:
            raise Problem("no-vote")
        published = self.store.status(name).model_sha256
        made = self._made.get(name)
        if made is not None and made.described["model"] == published:
            return made
        with self._lock:
            made = self._made.get(name)
            if made is None or made.described["model"] != published:
                # Under its own hash: another model may have been published in the meantime.
                made = _make(artifact.unpack(self.store.model(name)), ballot)
                self._made.pop(name, None)
                while len(self._made) >= _MOST:
                    del self._made[next(iter(self._made))]
                self._made[name] = made
            return made


class _Made(NamedTuple):
    described: dict[str, Any]
    graph: bytes | None


def _make(model: Any, ballot: Ballot) -> _Made:
    graph = model.onnx() if hasattr(model, "onnx") else None
    return _Made(device.ballot(model, ballot, graph), graph)
