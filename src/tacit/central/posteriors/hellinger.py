r"""The Hellinger mechanism: draws posteriors by their distance from the true one, certified.

With f_x(r) = H(BI(x), r) / S(x), a posterior r of the same n is drawn with probability proportional
to :math:`e^{-c f_x(r)}` [seed]_. Three theorems apply:

T1 (any positive weight S). With D = max |f_x(r) − f_x'(r)| over neighbours and all r, c = ε/(2D)
gives ε-DP: the exponential mechanism with score −f [MT07]_.

T2 (smooth S, repaired). If LS ≤ S and S(x) ≤ e^γ S(x') for neighbours, the mechanism is
(2c + Λ(e^γ − 1) − ln(1 − δ), δ)-DP with Λ = ln(|R|/δ). Let S(y) ≤ S(x). H(x, y) ≤ S(y) gives
f_y ≥ f_x − 1 and f_y ≤ e^γ f_x + 1. The set B = {f_x > Λ/c} weighs at most |R| e^{−Λ} = δ ≤ δ N_x,
since N_x ≥ 1. Off B, c(f_y − f_x) ≤ c + τ with τ = Λ(e^γ − 1). From x to y: p_x/p_y ≤
e^{c+τ} N_y/N_x off B and N_y ≤ e^c N_x. From y to x: p_y/p_x ≤ e^c N_x/N_y and
N_x(1 − δ) ≤ e^{c+τ} N_y.

T3 (per instance). The range is finite: every pair of neighbours is compared on the integers that
are drawn from. This is done for all tables, so T1 and T2 only choose c, and no guarantee rests on
them.

The paper's own proof does not hold (its sliding and dilation lemmas fail on a finite range, and
the normaliser is not accounted for), and the exponent ε/S of its accuracy section violates the
claim.

References
----------
.. [seed] Full proof on the differential privacy property of M_H (seed paper 001).
.. [MT07] McSherry, Talwar. Mechanism design via differential privacy. FOCS 2007.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tacit.central.posteriors.hellinger_calibration import CALIBRATIONS, exponent, repaired_epsilon
from tacit.central.posteriors.hellinger_distance import counts, places
from tacit.central.posteriors.hellinger_scores import SENSITIVITIES, Scores, gamma, score
from tacit.privacy import errors
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.mechanisms.exact_pairs import NeighbourPairs
from tacit.privacy.mechanisms.integer_rows import ScaledRows
from tacit.privacy.mechanisms.integer_table import IntegerTable

__all__ = [
    "CALIBRATIONS",
    "SENSITIVITIES",
    "Scores",
    "build",
    "counts",
    "exact_epsilon",
    "exponent",
    "gamma",
    "places",
    "repaired_epsilon",
    "score",
]


def build(
    prior: Sequence[float],
    total: int,
    *,
    epsilon: float | Fraction,
    delta: float = 0.0,
    sensitivity: str = "smooth",
    calibration: str = "instance",
    unit: Unit = Unit.RECORD,
) -> IntegerTable:
    """Build the mechanism as a certified table; rows and columns are `counts(k, total)`.

    Parameters
    ----------
    prior : sequence of float
        Beta or Dirichlet parameters, k of them.
    total : int
        n, the number of records. It is public; neighbours differ in one record's category.
    epsilon, delta : float
        Upper limit on the cost of the table. With calibration "paper" they are the paper's
        parameters, and the guarantee is the ε that the table actually has at δ.
    sensitivity : str
        "smooth", "local" or "global": see `score`.
    calibration : str
        "instance", "theorem" or "paper": see `exponent`.
    unit : Unit
        What each of the n records is.

    Examples
    --------
    >>> table = build((1, 1), 20, epsilon=1.0, delta=1e-6)
    >>> print(table.guarantee)
    (1, 1e-06)-DP (central, replace-one, unit: record)
    """
    delta = errors.probability("hellinger", "delta", delta)
    scores = score(prior, total, epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    chosen = exponent(scores, epsilon=epsilon, delta=delta, calibration=calibration)
    whom: dict[str, Any] = {"adjacency": Adjacency.REPLACE_ONE, "unit": unit}
    if calibration == "paper":
        rows = ScaledRows(-chosen * scores.scaled(), scores.symmetry)
        actual = NeighbourPairs(rows, scores.pairs).smallest_epsilon(delta)
        return IntegerTable(rows, scores.pairs, epsilon=max(actual, 1e-9), delta=delta, **whom)
    for slack in (1e-12, 1e-9, 1e-6, 1e-3):
        # The exponent was chosen in floats; the guarantee is decided in integers.
        rows = ScaledRows(-chosen * (1 - slack) * scores.scaled(), scores.symmetry)
        try:
            return IntegerTable(rows, scores.pairs, epsilon=epsilon, delta=delta, **whom)
        except errors.InvalidParameter as refused:
            reason = refused
    raise reason


def exact_epsilon(scores: Scores, exponent: float, delta: float) -> float:
    """Return the smallest ε at δ of any exponent, computed from its integer table, for studies."""
    rows = ScaledRows(-exponent * scores.scaled(), scores.symmetry)
    return NeighbourPairs(rows, scores.pairs).smallest_epsilon(delta)
