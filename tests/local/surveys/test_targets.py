"""Standard errors of functions of uncertain moments: those of their spread, on average."""

from __future__ import annotations

import numpy as np
import pytest

import tacit
from tacit.local.surveys import grammar
from tacit.local.surveys.moments import Found

SURVEY = tacit.Survey({"x": tacit.Number(-1, 1), "y": tacit.Number(-1, 1)}, epsilon=1)
FIRST, SECOND = (0.1, 0.1), (0.1, 0.02)
"""Means and variances of the estimates of first and second moments."""
MOMENTS = {"variance of x": (1, 1), "regression of y on x": (2, 3)}
DRAWN = 20_000


def drawn(question: str) -> tuple[Found, np.ndarray]:
    """Moments that are as uncertain as large, and estimates of them."""
    value, variance = np.repeat(np.array([FIRST, SECOND]), MOMENTS[question], axis=0).T
    rng = np.random.default_rng(0)
    estimates = rng.normal(value, np.sqrt(variance), (DRAWN, len(value)))
    return Found(value, np.diag(variance), 500), estimates


@pytest.mark.parametrize("question", MOMENTS)
def test_stated_variances_are_those_of_curved_functions(question: str) -> None:
    """Slopes at estimates are too steep: without the correction, variances are too large."""
    found, values = drawn(question)
    target = grammar.targets(SURVEY, question)[-1]
    true = np.var([target.parts(one, found.covariance)[0] for one in values])
    stated, uncorrected = (
        np.mean([target._spread(found._replace(value=v, degrees=d))[0, 0] for v in values[:500]])
        for d in (499, None)
    )
    assert stated == pytest.approx(true, rel=0.1)
    assert uncorrected > 1.25 * true
