r"""Noise that is correlated over steps: later sums take back a part of what earlier ones got.

With a matrix C (`accounting.participation`) of coefficients :math:`1 = c_0, c_1, \dots`, sums
:math:`x_t` and answers :math:`r_t`, the answer of step t is

.. math:: r_t = \mathrm{round}\Big(\underbrace{\sum_{j \ge 0} c_j\, x_{t-j}}_{(Cx)_t} + \sigma Z_t
          - \sum_{j \ge 1} c_j\, r_{t-j}\Big),

so that :math:`C(r - x)` is σZ with what rounding adds: r is x with noise :math:`C^{-1} \sigma Z`.

Notes
-----
Why the answer is computed from earlier *answers*, and not as :math:`x_t` with noise from a
recursion of its own. Noise is added to :math:`(Cx)_t`, whose movement Theorem 2 of
`accounting.participation` bounds; all else is a function of earlier answers, which are known, at
whatever precision it is computed. It follows that each answer is that of an ordinary Gaussian
mechanism, shifted by a known number and rounded to the grid of `Noise`, whose step is relative to
σ; so Theorem 1 covers the answers, with the same assumption about floating-point noise as for
independent noise. In a recursion of the noise alone, rounding errors would depend on the noise, and
so differ between neighbours at equal answers, in every coordinate of every step. Rounding to the
grid is part of what C undoes, so its errors do not add up either.

:math:`(Cx)_t` is computed in float64, of sums of at most B gradients of norm C′: its rounding error
is at most :math:`\gamma_{\hat b + 1} \|c\|_1 B C'` in norm (`Turns.rounding` has room for it).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from tacit.central.training.noise import Noise
from tacit.privacy import errors
from tacit.privacy.accounting.participation import Banded
from tacit.privacy.randomness import Randomness


class CorrelatedNoise:
    """Correlated Gaussian noise for the sums of a fixed number of steps, in their order.

    Parameters
    ----------
    strategy : Banded
        The matrix C.
    sigma : float
        Standard deviation of the fresh noise of a step.
    stream : Randomness
        The stream of random words.
    steps : int
        Number of sums; a further one is refused, because the sensitivity was stated for these.

    Notes
    -----
    The sums and answers of the last b̂ − 1 steps are kept: 2(b̂ − 1) times the memory of a sum.
    """

    def __init__(self, strategy: Banded, sigma: float, stream: Randomness, steps: int) -> None:
        self._fresh = Noise(sigma, stream)
        self._left = errors.whole("CorrelatedNoise", "steps", steps, least=1)
        self._earlier = [float(one) for one in strategy.coefficients[1:]]
        self._sums: deque[Tensor] = deque(maxlen=len(self._earlier))
        self._answers: deque[Tensor] = deque(maxlen=len(self._earlier))

    @property
    def fresh(self) -> Noise:
        """Return the noise that is new in every step."""
        return self._fresh

    def add_to(self, sums: Tensor, divisor: float = 1.0) -> None:
        """Add the noise of the next step to a flat tensor and divide it, in place."""
        if not self._left:
            raise errors.TacitError(
                "CorrelatedNoise: sums must be as many as stated, got one more. "
                "Start another training: it is accounted for by itself."
            )
        self._left -= 1
        answer = self._combined(sums.to(torch.float64, copy=True), self._sums)
        answer -= self._combined(torch.zeros_like(answer), self._answers)
        self._fresh.add_to(answer)
        self._sums.appendleft(sums.clone())
        self._answers.appendleft(answer.to(sums.dtype))
        sums.copy_(answer / divisor)  # the answer itself may be what is kept

    def _combined(self, start: Tensor, earlier: deque[Tensor]) -> Tensor:
        """Add what is kept of earlier steps, latest first, times its coefficient, in float64."""
        for coefficient, one in zip(self._earlier, earlier, strict=False):
            start.add_(one, alpha=coefficient)
        return start

    def __reduce__(self) -> Any:
        raise TypeError("CorrelatedNoise: a copy would answer for the same steps twice.")
