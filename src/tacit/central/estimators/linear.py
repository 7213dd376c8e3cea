r"""Linear regression with a central guarantee for each record.

Three algorithms, all on whole numbers and on the same rows (see `tacit.estimators.frames`):

- "adassp": sums of products with Gaussian noise, from which the coefficients are solved;
- "functional": the same with Laplace noise, which gives ε-DP without a δ;
- "gradient": "adassp" with half of the budget, then gradient steps from that solution, whose noise
  scales with the residuals instead of the range of the target.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from tacit.central.estimators.base import DELTA, Bounds, Box, PrivateEstimator, Reals, warn_of_noise
from tacit.central.estimators.descent import Descent
from tacit.central.estimators.frames import Frame
from tacit.central.estimators.sufficient import REPAIRS, GaussianProducts, LaplaceProducts
from tacit.central.statistics.released import Spending
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import LedgerLike
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Unit
from tacit.privacy.randomness import Randomness, source

ALGORITHMS = ("adassp", "functional", "gradient")
_REMEDY = "Give more records, narrower bounds, fewer columns or a larger epsilon."


class _LinearModel(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Abstract base of both classes, which differ in their penalty."""

    bounds: Bounds
    target_bounds: Bounds
    algorithm: str
    fit_intercept: bool
    norm: float | None
    repair: str
    steps: int
    residual_clip: float | None

    _stored = ("coef_", "intercept_")
    coef_: Reals
    intercept_: float

    @abstractmethod
    def _alpha(self) -> float:
        """Return the penalty on squared coefficients."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to records. The ledger, if any, is charged before values are used."""
        X, y = self._checked(X, y, y_numeric=True)
        charged = self._charge(*X.shape)
        frame = self._frame(X.shape[1])
        clipped, outside = frame.box.clip(X)
        target, beside = frame.target.clip(y)
        solution, ran = self._solve(frame, clipped, target)
        self._keep(charged, ran)
        self.coef_, self.intercept_ = frame.coefficients(solution)
        self.clipped_ = outside + beside
        return self

    def predict(self, X: Any) -> Reals:
        """Predict the target of new rows."""
        return np.asarray(self._rows(X) @ self.coef_ + self.intercept_)

    def _event(self, rows: int, columns: int) -> Event:
        self._alpha()
        return self._algorithm(self._frame(columns)).event

    def _solve(self, frame: Frame, X: Reals, y: Reals) -> tuple[Reals, Event]:
        algorithm, penalty = self._algorithm(frame), frame.penalty(self._alpha())
        if isinstance(algorithm, Descent):
            solution, moments, ran = algorithm.run(X, y, self.repair, penalty)
        else:
            moments, ran = algorithm.release(frame.products(frame.blocks(X, y)))
            solution = moments.inverse(self.repair, penalty) @ moments.correlation
        warn_of_noise(type(self).__name__, moments.signal, moments.noise_level, _REMEDY)
        return solution, ran

    def _frame(self, columns: int) -> Frame:
        where = type(self).__name__
        algorithm = errors.choice(where, "algorithm", self.algorithm, ALGORITHMS)
        return Frame.of(
            where,
            Box.of(where, "bounds", self.bounds, columns),
            Box.of(where, "target_bounds", self.target_bounds, 1),
            self.norm,
            intercept=bool(self.fit_intercept),
            order=1 if algorithm == "functional" else 2,
        )

    def _algorithm(self, frame: Frame) -> GaussianProducts | LaplaceProducts | Descent:
        where = type(self).__name__
        errors.choice(where, "repair", self.repair, REPAIRS)
        if self.algorithm == "functional":
            unit = Unit.of(where, self.unit)
            return LaplaceProducts(frame, self.epsilon, unit, source(self.rng))
        if self.algorithm == "adassp":
            return GaussianProducts(frame, self._spending)
        steps = errors.whole(where, "steps", self.steps, least=1, most=10_000)
        clip = self.residual_clip
        if clip is not None:
            clip = float(errors.positive(where, "residual_clip", clip))
            if not 1e-3 <= clip <= 2:
                errors.refuse(where, "residual_clip", "from 0.001 to 2", clip)
        return Descent(frame, self._spending, steps, clip)

    def _spending(self) -> Spending:
        where = type(self).__name__
        if not self.delta:
            remedy = 'Of the algorithms only "functional" needs none.'
            errors.refuse(where, "delta", "above 0 for Gaussian noise", self.delta, remedy)
        return Spending(where, None, self.epsilon, self.delta, self.unit, self.rng)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


class LinearRegression(_LinearModel):
    r"""Linear regression by least squares.

    .. math:: \min_{\beta}\; \sum_i t_i^2\,(y_i - x_i \cdot \beta - \beta_0)^2

    from noisy sums (see Notes). The weights :math:`t_i^2` are 1 except for rows longer than `norm`;
    "gradient" replaces the square by Huber's loss.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of the whole fit.
    bounds : pair
        Public bounds (lower, upper) of the columns: two numbers, or two arrays with one number per
        column. Values outside are clipped to them; `clipped_` counts the rows concerned.
    target_bounds : pair of float
        Public bounds of the target.
    delta : float
        The δ of (ε, δ)-DP, for "adassp" and "gradient"; "functional" does not use it.
    algorithm : "gradient", "adassp" or "functional"
        See Notes. "gradient" is the most accurate almost everywhere; "adassp" is for residuals so
        skewed that Huber's loss is inappropriate; "functional" is for δ = 0.
    fit_intercept : bool
        Without an intercept, rows and target are measured from zero, not from the middle of their
        bounds.
    norm : float, optional
        Public limit on the length of a row, with each column measured from the middle of its bounds
        in half-widths (at most √d; with "functional", which uses the ℓ1 norm, at most d). A longer
        row is shortened as a whole, target included, which only lowers its weight. By default
        0.6 √d; with "functional", 0.4 d.
    repair : "shrink", "ridge" or "trim"
        What to do with directions in which the noise is as large as the variation of the rows;
        without a repair the noisy loss may have no minimum. "shrink" (the default): a separate
        ridge for each direction, set by its eigenvalue. "ridge": one ridge for all, as in AdaSSP.
        "trim": directions below the noise level are dropped, as in the functional mechanism.
    steps : int
        Number of gradient steps of "gradient".
    residual_clip : float, optional
        For "gradient": residuals are clipped to this many half-widths of `target_bounds`. By
        default, to three standard deviations of the residuals, as estimated from the noisy sums.
    unit : str
        What one row belongs to, and so what the guarantee protects.
    ledger, account
        Ledger and account that are charged before values are used; if they cannot pay, the fit is
        refused.
    rng : Randomness, optional
        By default the operating system's randomness; a seeded one is recorded in the certificate.

    Attributes
    ----------
    coef_, intercept_
        Coefficients of the columns, and the intercept.
    guarantee_, certificate_, event_
        The guarantee of the fit, its certificate, and the event that it follows from.
    clipped_ : int
        Number of rows outside their bounds plus targets outside theirs. In-house: it has no noise.

    Notes
    -----
    Guarantee: (ε, δ)-DP, or ε-DP with "functional"; neighbours differ by one record more or less.

    - "adassp" [Wan18]_: one Gaussian on the sums of products of rows (x, 1, y), of ℓ2 sensitivity
      R², where R is the largest norm of a row: proof in `tacit.estimators.sufficient`. It pays for
      :math:`X^\top X`, :math:`X^\top y`, sums and count at once. The smallest eigenvalue, on which
      the paper spends a third of ε, is computed from the release. Cost: one pass, n d².
    - "functional" [ZZXYW12]_: one discrete Laplace on the same sums, of ℓ1 sensitivity R² in the ℓ1
      norm of rows. Cost: the same.
    - "gradient" [BST14]_: "adassp" with half of the budget, and with the rest `steps` Gaussians on
      sums of gradients, of ℓ2 sensitivity C R: proof in `tacit.estimators.descent`. Cost: another
      n d per step; the rows are kept in memory.

    References
    ----------
    .. [Wan18] Wang. Revisiting differentially private linear regression: optimal and adaptive
       prediction and estimation in unbounded domain. UAI 2018.
    .. [ZZXYW12] Zhang, Zhang, Xiao, Yang, Winslett. Functional mechanism: regression analysis
       under differential privacy. VLDB 2012.
    .. [BST14] Bassily, Smith, Thakurta. Private empirical risk minimization. FOCS 2014.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (20_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + generator.normal(0, 0.1, 20_000)
    >>> model = LinearRegression(epsilon=1, bounds=(-1, 1), target_bounds=(-4, 4)).fit(X, y)
    >>> print(model.guarantee_)
    (1, 1e-06)-DP (central, add-remove, unit: record)
    >>> bool(np.abs(model.coef_ - [1.0, -2.0, 0.5]).max() < 0.2)
    True
    """

    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        target_bounds: Bounds,
        delta: float = DELTA,
        algorithm: str = "gradient",
        fit_intercept: bool = True,
        norm: float | None = None,
        repair: str = "shrink",
        steps: int = 2,
        residual_clip: float | None = None,
        unit: str = "record",
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.delta = delta
        self.algorithm = algorithm
        self.fit_intercept = fit_intercept
        self.norm = norm
        self.repair = repair
        self.steps = steps
        self.residual_clip = residual_clip
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def _alpha(self) -> float:
        return 0.0


class Ridge(_LinearModel):
    r"""Linear regression by least squares with a penalty on squared coefficients.

    .. math:: \min_{\beta}\; \sum_i t_i^2\,(y_i - x_i \cdot \beta - \beta_0)^2
              + \alpha\,\lVert\beta\rVert^2

    Parameters
    ----------
    alpha : float
        Public penalty, in the units of the columns and the target, as in scikit-learn. The
        intercept is not penalised. Noise is regularised separately: see `repair`.
    epsilon, bounds, target_bounds, delta, algorithm, fit_intercept, norm, repair, steps, \
residual_clip, unit, ledger, account, rng
        As in `LinearRegression`.

    Notes
    -----
    Guarantee and algorithms: those of `LinearRegression`. The penalty is public and is added to
    what was released, or in each step to the released gradient: it is post-processing.

    References
    ----------
    See `LinearRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (20_000, 1))
    >>> y = 2 * X[:, 0] + generator.normal(0, 0.1, 20_000)
    >>> sizes = [
    ...     Ridge(alpha=alpha, epsilon=1, bounds=(-1, 1), target_bounds=(-3, 3)).fit(X, y).coef_[0]
    ...     for alpha in (0.0, 1e4, 1e6)
    ... ]
    >>> sizes == sorted(sizes, reverse=True)
    True
    """

    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        target_bounds: Bounds,
        alpha: float = 1.0,
        delta: float = DELTA,
        algorithm: str = "gradient",
        fit_intercept: bool = True,
        norm: float | None = None,
        repair: str = "shrink",
        steps: int = 2,
        residual_clip: float | None = None,
        unit: str = "record",
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.alpha = alpha
        self.delta = delta
        self.algorithm = algorithm
        self.fit_intercept = fit_intercept
        self.norm = norm
        self.repair = repair
        self.steps = steps
        self.residual_clip = residual_clip
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def _alpha(self) -> float:
        if not self.alpha:
            return 0.0
        return float(errors.positive("Ridge", "alpha", self.alpha))
