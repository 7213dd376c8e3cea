"""Values in a console and in a notebook: short, escaped, and without data."""

import numpy as np
import pytest

from tacit.data.schema import ArraySchema
from tacit.local.inference.votes import Ballot
from tacit.local.learned.direct import Direct
from tacit.privacy import shown
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import PureDP, Unproven
from tacit.privacy.mechanisms import Gaussian, IntegerTable, RandomizedResponse
from tacit.privacy.randomness import Seeded

DATA = np.full((5, 2), 0.123456)


def test_a_mechanism_is_one_line():
    made = RandomizedResponse(categories=2, epsilon=1.0)
    assert repr(made) == (
        "RandomizedResponse(categories=2, epsilon=1; 1-DP (local, any-two-inputs, unit: record))"
    )
    noise = Gaussian(sensitivity=1, sigma=2.0, adjacency="replace-one")
    assert repr(noise).startswith("Gaussian(sensitivity=1, sigma=2; ")
    table = IntegerTable([[2, 1], [1, 2]], [(0, 1)], epsilon=0.7, adjacency="replace-one")
    assert repr(table).startswith("IntegerTable(epsilon=0.7, delta=0; 0.7-DP")


def test_long_parameters_are_counted():
    text = shown.line("Thing", {"names": ("a",) * 1000, "none": None, "word": "x"}, "end")
    assert text == "Thing(names=1000 values, word='x'; end)"


def test_notebooks_get_small_escaped_tables():
    reports = Direct(epsilon=1).fit(None, schema=ArraySchema(2, 0.0, 1.0)).release(DATA)
    votes = Ballot(epsilon=1).release(np.ones(5, bool), rng=Seeded(0))
    guarantee = PureDP(epsilon=1, adjacency="any-two-inputs", unit="record")
    for thing in (reports, votes, guarantee, reports.certificate):
        html = thing._repr_html_()
        assert html.startswith("<table><caption>")
        assert html.endswith("</table>")
        assert "1-DP (local, any-two-inputs" in html
        assert "0.123456" not in html
        assert len(html) < 4000


def test_texts_that_others_wrote_are_escaped():
    reason = "<script>alert(1)</script>"
    assert (
        "<script>"
        not in Unproven(reason=reason, adjacency="replace-one", unit="record")._repr_html_()
    )
    event = Ballot(epsilon=1).event
    certificate = Certificate.issue(event, not_protected=(reason,))
    assert "<script>" not in certificate._repr_html_()
    assert "&lt;script&gt;" in certificate._repr_html_()


@pytest.mark.parametrize("thing", ["reports", "rows"])
def test_no_data_is_shown(thing):
    schema = ArraySchema(2, 0.0, 1.0)
    if thing == "rows":
        assert repr(schema.rows(DATA)) == "Rows(5 rows, 2 numbers and 0 categories each)"
    else:
        assert "array" not in repr(Direct(epsilon=1).fit(None, schema=schema).release(DATA))


def test_answers_show_values_and_guarantee():
    pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    from tacit.central.queries.curator import Curator

    people = pandas.DataFrame({"sex": ["F", "M"] * 50, "age": np.linspace(0, 99, 100)})
    curator = Curator(people, 10.0, bounds={"age": (0, 100)}, keys={"sex": ["F", "M"]})
    for answer in (curator.count(epsilon=1), curator.mean("age", by="sex", epsilon=1)):
        html = answer._repr_html_()
        assert str(answer.guarantee) in html
        assert ("<th>F</th>" in html) == (answer.groups is not None)
