r"""Upper bounds on the accuracy of classifying a point of which only a report is seen.

For K balanced classes, or (`of_shares`) for classes of any shares. A classifier learned from
reports may do better on clean points: these ceilings are about points that are known only by their
report.

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Equation 8 and appendix D.
.. [KOV14] Kairouz, Oh, Viswanath. Extremal mechanisms for local differential privacy. NIPS 2014.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.integrate import quad

from tacit.privacy import errors


def laplace(classes: int, epsilon: float) -> float:
    r"""Compute the ceiling of additive Laplace noise on the ℓ1 ball: equation 8 of [000]_.

    .. math:: A = \int_0^\infty \frac{1}{2b}\, e^{-|c - 1|/b} \bigl(1 - e^{-c/b}\bigr)^{K/2 - 1} dc,
              \qquad b = 2/\varepsilon

    The integral is used, as its closed form loses digits by cancellation for many classes. An odd K
    is taken as K − 1, which can only raise the ceiling; it is never above the universal one.

    Examples
    --------
    >>> round(laplace(10, 4.0), 3)
    0.513
    """
    classes = errors.whole("ceilings.laplace", "classes", classes, least=2)
    rate = float(errors.epsilon_in_range("ceilings.laplace", epsilon)) / 2
    others = classes // 2 - 1

    def density(c: float) -> float:
        return math.exp(-abs(c - rate)) / 2 * (-math.expm1(-c)) ** others

    # In units of the noise, c/b: the vertex is then at 1/b = ε/2.
    below = quad(density, 0.0, rate, limit=200)[0]
    above = quad(density, rate, rate + 60.0, limit=200)[0]
    return min(float(below + above), universal(classes, 2 * rate))


def of_shares(shares: Sequence[float] | npt.NDArray[np.float64], epsilon: float) -> float:
    r"""Compute the ceiling of all ε-local channels for shares :math:`p_1 \ge p_2 \ge \ldots`

    .. math:: \max_k \; \frac{e^\varepsilon}{e^\varepsilon + k - 1} \sum_{y \le k} p_y

    Notes
    -----
    With :math:`a_{xy}` as in `universal` and :math:`m_y = \min_x a_{xy}`, ε gives
    :math:`a_{yy} \le e^\varepsilon m_y`, and rows that sum to 1 give
    :math:`a_{yy} \le 1 - \sum_{x \ne y} m_x`. The accuracy :math:`\sum_y p_y a_{yy}` is then at
    most a linear programme in m, whose vertices are randomized response over the k largest classes;
    k = 1 always names the largest.

    Examples
    --------
    >>> round(of_shares([0.76, 0.24], 1.0), 3), round(of_shares([0.5, 0.5], 1.0), 3)
    (0.76, 0.731)
    """
    where = "ceilings.of_shares"
    epsilon = float(errors.epsilon_in_range(where, epsilon))
    largest = np.sort(errors.reals(where, shares))[::-1]
    if largest.ndim != 1 or not largest.size or largest[-1] < 0 or abs(largest.sum() - 1) > 1e-6:
        errors.refuse(where, "shares", "a list of shares that sum to 1", list(largest))
    others = np.arange(largest.size) * math.exp(-epsilon)
    return float(min((np.cumsum(largest) / (1 + others)).max(), 1.0))


def universal(classes: int, epsilon: float, delta: float = 0.0) -> float:
    r"""Compute the ceiling of all (ε, δ)-local channels; randomized response reaches it for δ = 0.

    .. math:: \frac{e^\varepsilon + (K - 1)\,\delta}{e^\varepsilon + K - 1}

    Notes
    -----
    For a decision rule with probability :math:`a_{xy}` of answering y on class x, (ε, δ) gives
    :math:`a_{xx} \le e^\varepsilon a_{yx} + \delta`. Summed over all pairs x ≠ y, with rows that
    sum to 1: :math:`(K-1) A \le e^\varepsilon (1 - A) + (K-1)\delta`.

    Examples
    --------
    >>> round(universal(10, 4.0), 3)
    0.858
    """
    classes = errors.whole("ceilings.universal", "classes", classes, least=2)
    epsilon = float(errors.epsilon_in_range("ceilings.universal", epsilon))
    delta = errors.probability("ceilings.universal", "delta", delta)
    others = (classes - 1) * math.exp(-epsilon)
    return min((1 + others * delta) / (1 + others), 1.0)
