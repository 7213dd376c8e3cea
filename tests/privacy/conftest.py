from __future__ import annotations

from typing import get_type_hints

import pytest

from tacit.privacy import events, mechanisms


@pytest.fixture
def drawn_kinds() -> set[type[events.Event]]:
    """The events of mechanisms: `tests/conformance` tries the event of every case."""
    properties = [getattr(mechanisms, name).event for name in mechanisms.__all__]
    getters = [getattr(one, "fget", None) or one.func for one in properties]
    kinds = {get_type_hints(getter)["return"] for getter in getters}
    return {kind for kind in kinds if issubclass(kind, events.Leaf)}
