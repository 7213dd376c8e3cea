"""Above-threshold streams: paid once, answered until they have said above as often as agreed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tacit.central.queries.curator import Curator
from tacit.central.queries.model import Compare, Count
from tacit.privacy import errors, events
from tacit.privacy.guarantees import PureDP
from tacit.privacy.randomness import Seeded


def make(budget=100.0, **options):
    table = pa.table({"age": list(range(100)) * 10, "person": list(range(500)) * 2})
    return Curator(table, budget, rng=Seeded(1), threads=1, **options)


def test_a_stream_answers_until_it_is_used_up():
    with make() as curator:
        stream = curator.above_threshold(500, epsilon=50, positives=2)
        assert curator.remaining["epsilon"] == 50
        assert curator.statements == 0
        for _ in range(20):
            assert not stream.ask("age < 10")
        assert stream.ask(Compare("age", "<", 90))
        assert stream.remaining == 1
        assert stream.ask(Count(where=Compare("age", ">=", 5)))
        assert curator.remaining["epsilon"] == 50
        read = curator.statements
        with pytest.raises(errors.BudgetExceeded, match="Open another one"):
            stream.ask()
        assert curator.statements == read
        assert stream.guarantee.epsilon == pytest.approx(50)
        assert stream.certificate().seeded


def test_its_event_says_how_counts_move():
    with make() as curator:
        curator.above_threshold(5, epsilon=1)
        assert curator._charged[0].monotonic
    scope = {"adjacency": "replace-one", "unit": "record"}
    with make(PureDP(epsilon=1.0, **scope)) as curator:
        curator.above_threshold(5, epsilon=1)
        (event,) = curator._charged
        assert isinstance(event, events.SparseVector)
        assert not event.monotonic


def test_people_count_with_their_rows_at_most():
    """A thousand rows of five hundred people."""
    with make(unit="person") as curator:
        stream = curator.above_threshold(750, epsilon=50)
        assert not stream.ask()
    with make(unit="person", max_rows=2) as curator:
        assert curator.above_threshold(750, epsilon=50).ask()
        mechanism = curator.above_threshold(750, epsilon=10)._mechanism
        assert mechanism.sensitivity == 2


def test_refused_questions_leave_the_stream_as_it_was():
    with make() as curator:
        stream = curator.above_threshold(500, epsilon=50)
        for bad in ("weight > 3", Count(by="age"), Count("age"), "age > 'x'", 3):
            with pytest.raises(errors.TacitError):
                stream.ask(bad)
        assert curator.statements == 0
        assert stream.remaining == 1
        assert stream.ask("age < 90")
