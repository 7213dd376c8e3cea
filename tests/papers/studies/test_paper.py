"""Tables 2 to 4, spot-checked against the paper, and the closest line."""

from __future__ import annotations

import math

import pytest

from tacit_papers.parts import paper


def test_lines_of_the_tables() -> None:
    assert paper.TABLE_2[paper.IMAGES, 5.0] == paper.DPAdam(5e-4, 64, 0.7)
    assert paper.TABLE_2[paper.TABLES, 1.0] == paper.DPAdam(1e-4, 128, 1.1)
    assert paper.TABLE_3[10.0] == paper.TableLine(None, 5, 10, 8)
    assert paper.TABLE_3[1.0] == paper.TableLine(None, 5, 10, 5)
    clean = paper.TABLE_4["clean", "latent", paper.IMAGES]
    assert clean[10.0] == paper.TableLine(0.7, 10, 27)
    assert clean[4.0] == paper.TableLine(0.7, 7.5, 5)
    assert clean[math.inf] == paper.TableLine(None, 10, "learned")
    assert paper.TABLE_4["private", "feature", paper.IMAGES][1.0] == paper.TableLine(0.95, 5, 15)
    tables = paper.TABLE_4["private", "latent", paper.TABLES]
    assert tables[2.0] == paper.TableLine(0.95, 5, 29)
    assert tables[1.0] == paper.TableLine(0.95, 10, 21)


def test_every_table_is_whole() -> None:
    assert len(paper.TABLE_4) == 8
    for table in (*paper.TABLE_4.values(), paper.TABLE_3):
        assert set(table) == set(paper.EPSILONS)
    for table in paper.TABLE_4.values():
        for epsilon, line in table.items():
            assert line.radius in paper.GRID["radius"]
            assert line.pretraining_epsilon in paper.GRID["pretraining_epsilon"]
            assert (line.row_share is None) == (epsilon == math.inf)


@pytest.mark.parametrize(
    ("epsilon", "line"), [(0.3, 1.0), (1.3, 1.0), (3.0, 4.0), (7.0, 8.0), (50, 10.0)]
)
def test_nearest(epsilon: float, line: float) -> None:
    assert paper.nearest(paper.TABLE_3, epsilon) is paper.TABLE_3[line]
