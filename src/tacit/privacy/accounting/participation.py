r"""The sensitivity of sums under correlated noise, where every record has its turns.

Step t of T has a sum :math:`x_t`, to which a record contributes only when it is its turn. A banded
lower triangular Toeplitz matrix C with coefficients :math:`1 = c_0 \ge c_1 \ge \dots \ge 0`, of
which the first :math:`\hat b` are not zero, mixes the sums of recent steps. Noise is added to

.. math:: (Cx)_t = \sum_{j < \hat b} c_j\, x_{t-j},

and :math:`C^{-1}` undoes the mixing, so that the noise of x is :math:`C^{-1} Z`: what is added to
one step is partly taken back in later ones [CCGMST23]_.

Theorem 1. Let :math:`y_t = (Cx)_t + \sigma Z_t`, where :math:`x_t` may depend on earlier y. If
:math:`d_t`, the difference of :math:`(Cx)_t` between neighbours at the same earlier y, satisfies
:math:`\sum_t \|d_t\|^2 \le \Delta^2` whatever the y are, then all y together are as private as one
Gaussian of sensitivity Δ and standard deviation σ.

Proof. Append an answer with the missing shift, so that the sum is Δ² always; this reveals more. The
log-ratio of the densities is :math:`L = \sum_t \langle d_t, Z_t\rangle/\sigma +
\|d_t\|^2/2\sigma^2`, and :math:`d_t` is a function of earlier Z. So
:math:`M_t = \exp(\sum_{s \le t} i\lambda\langle d_s, Z_s\rangle/\sigma
+ \lambda^2\|d_s\|^2/2\sigma^2)` is a martingale with mean 1, and its second sum ends at a constant:
:math:`\sum_t \langle d_t, Z_t\rangle/\sigma` is normal with variance Δ²/σ². So L has the law that
it has for one Gaussian, and the law of L decides the profile. (Also [DMRST22]_, Theorem 2.1.)

Theorem 2. If a record has at most k turns, at least b steps apart, and moves :math:`x_t` by at most
1 (Euclidean norm) at each, then for zero-out neighbours

.. math:: \Delta^2 = \sum_{s < T} \Big( \sum_{m < k} c_{s - mb} \Big)^2 .

For :math:`b \ge \hat b` no two terms of the inner sum overlap: Δ² is the sum of the squared norms
of columns 0, b, 2b, … of C, hence at most k times that of one column.

Proof. :math:`\sum_t \|d_t\|^2 = \sum_{m,n} \langle C_{t_m}, C_{t_n}\rangle \langle u_m, u_n\rangle`
for the turns :math:`t_0 < t_1 < \dots`, columns :math:`C_t` and moves :math:`u_m`. No entry of C is
negative, so it is largest for equal moves of norm 1. For m ≤ n,
:math:`\langle C_{t_m}, C_{t_n}\rangle = \sum_{i < T - t_n} c_i\, c_{i + t_n - t_m}` does not grow
with :math:`t_n`, nor with :math:`t_n - t_m`, as c does not increase; and
:math:`t_n \ge nb`, :math:`t_n - t_m \ge (n - m) b`. So turns 0, b, 2b, … are the worst.

References
----------
.. [CCGMST23] Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu. (Amplified) banded
   matrix factorization: a unified approach to private training. NeurIPS 2023.
.. [DMRST22] Denisov, McMahan, Rush, Smith, Thakurta. Improved differential privacy for SGD via
   optimal private linear operators on adaptive streams. NeurIPS 2022.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import flint

from tacit.privacy import errors, rounding

_ONE = 2**20
"""Coefficients are multiples of 1/_ONE: exact as floats, and their squares add up in integers."""


@dataclass(frozen=True)
class Banded:
    """A banded lower triangular Toeplitz matrix, by its first column.

    Parameters
    ----------
    coefficients : tuple of Fraction
        The entries that are not zero: 1 first, none negative or larger than the one before it,
        multiples of 2^-20.

    Examples
    --------
    >>> strategy = Banded.nearest([1.0, 0.5, 0.375])
    >>> strategy.squared_sensitivity(steps=100, period=10)
    Fraction(445, 32)
    """

    coefficients: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        exact = tuple(Fraction(one) for one in self.coefficients)
        object.__setattr__(self, "coefficients", exact)
        steps = itertools.pairwise(exact)
        falling = (
            bool(exact) and exact[0] == 1 and all(0 <= after <= before for before, after in steps)
        )
        if not falling or any((one * _ONE).denominator != 1 for one in exact):
            shown = [float(one) for one in exact[:4]]
            condition = "1 first, then multiples of 2^-20 that do not grow and are not negative"
            errors.refuse("Banded", "coefficients", condition, shown)

    @classmethod
    def nearest(cls, values: Sequence[float]) -> Banded:
        """Round coefficients to multiples of 2^-20, none above the one before it."""
        whole, most = [], _ONE
        for value in values:
            most = min(max(round(value * _ONE), 0), most)
            whole.append(Fraction(most, _ONE))
        return cls(tuple(whole))

    @property
    def bands(self) -> int:
        """Return b̂: how many steps are mixed."""
        return len(self.coefficients)

    def squared_sensitivity(self, steps: int, period: int, turns: int | None = None) -> Fraction:
        """Compute Δ² of Theorem 2 exactly.

        Parameters
        ----------
        steps : int
            T, the number of steps.
        period : int
            b: a record's turns are at least so many steps apart.
        turns : int, optional
            k: a record has at most so many; by default as many as fit.
        """
        where = "Banded.squared_sensitivity"
        steps = errors.whole(where, "steps", steps, least=1)
        period = errors.whole(where, "period", period, least=1)
        fitting = -(-steps // period)
        if turns is not None:
            fitting = min(fitting, errors.whole(where, "turns", turns, least=1))
        whole = [int(one * _ONE) for one in self.coefficients]
        mixed: dict[int, int] = {}
        for start in range(0, fitting * period, period):
            for at, one in enumerate(whole[: steps - start], start):
                mixed[at] = mixed.get(at, 0) + one
        return Fraction(sum(one**2 for one in mixed.values()), _ONE**2)

    def sensitivity(self, steps: int, period: int, turns: int | None = None) -> Fraction:
        """Return Δ, rounded up."""
        square = self.squared_sensitivity(steps, period, turns)
        with rounding.precision():
            root = flint.arb(flint.fmpq(square.numerator, square.denominator)).sqrt()
            return Fraction(repr(rounding.above(root)))
