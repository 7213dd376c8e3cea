"""Neural networks with a central guarantee, as scikit-learn estimators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin

from tacit.central.estimators.base import DELTA, Bounds, Box, PrivateEstimator, Reals, warn_of_noise
from tacit.central.estimators.classifier import READ_CLASSES, coded
from tacit.central.estimators.components import PrivateComponents, plain
from tacit.central.estimators.logistic import FLOAT_NOISE, PUBLIC_COUNT
from tacit.central.estimators.network import Layer, NetworkTraining, forward
from tacit.central.estimators.recipe import Recipe
from tacit.privacy import devices, errors
from tacit.privacy.accounting.ledger import LedgerLike
from tacit.privacy.events import Event
from tacit.privacy.guarantees import Unit
from tacit.privacy.randomness import Randomness

_WIDEST = 2**16
_REMEDY = "Raise epsilon, fit more records, or train fewer weights."


class _MLP(PrivateEstimator):
    """Abstract base of classifier and regressor, which differ in the meaning of the outputs."""

    bounds: Bounds
    hidden_layer_sizes: Sequence[int]
    components: int | None
    norm: float | None
    clip_norm: float
    batch_size: int | None
    epochs: float | None
    optimizer: str
    learning_rate: float | None
    momentum: float | None
    average: float
    device: str

    coefs_: list[Reals]
    intercepts_: list[Reals]

    @abstractmethod
    def _outputs(self) -> tuple[int, str]:
        """Return the number of outputs, and the name of their loss."""

    def _fit(self, X: Reals, targets: npt.NDArray[Any], charged: Event) -> list[Layer]:
        """Train, and return layers that take unscaled rows."""
        where, box = type(self).__name__, self._box(X.shape[1])
        network = self._network(*X.shape)
        # The number of records is public here, so this warning reveals nothing.
        warn_of_noise(where, len(X) / 2, network.noise, _REMEDY)
        held, self.clipped_ = box.clip(X)
        inputs = plain(box)
        if (components := self._components(box)) is not None:
            inputs, ran = components.fit(held, self.rng)
            network = replace(network, beside=ran)
        layers, ran = network.solve(inputs(held), targets, self.rng)
        self._keep(charged, ran)
        return [inputs.then(*layers[0]), *layers[1:]]

    def _store(self, layers: list[Layer]) -> Self:
        self.coefs_ = [weights for weights, _ in layers]
        self.intercepts_ = [bias for _, bias in layers]
        return self

    def _forward(self, X: Any) -> Reals:
        rows = self._rows(X)
        return forward(list(zip(self.coefs_, self.intercepts_, strict=True)), rows)

    def _event(self, rows: int, columns: int) -> Event:
        return self._network(rows, columns).event

    def _network(self, rows: int, columns: int) -> NetworkTraining:
        """Return the training plan, from parameters and shapes alone."""
        where = type(self).__name__
        components = self._components(self._box(columns))
        outputs, loss = self._outputs()
        inputs = columns if components is None else components.count
        epsilon, delta = self._budget()
        sizes = (inputs, *self._hidden(), outputs)
        unit = Unit.of(where, self.unit)
        devices.resolve(where, self.device)
        beside = None if components is None else components.event
        return NetworkTraining(
            where, rows, sizes, loss, self._recipe(), epsilon, delta, unit, self.device, beside
        )

    def _components(self, box: Box) -> PrivateComponents | None:
        where = type(self).__name__
        if self.components is None:
            if self.norm is not None:
                remedy = "It limits the rows from which components are computed."
                errors.refuse(where, "norm", "left out without components", self.norm, remedy)
            return None
        columns = len(box.lower)
        count = errors.whole(where, "components", self.components, least=1, most=columns)
        return PrivateComponents(where, box, count, self.norm, *self._budget(), self.unit)

    def _budget(self) -> tuple[float, float]:
        where = type(self).__name__
        epsilon = float(errors.epsilon_in_range(where, self.epsilon))
        return epsilon, errors.probability(where, "delta", self.delta, zero=False)

    def _hidden(self) -> tuple[int, ...]:
        where, stated = type(self).__name__, self.hidden_layer_sizes
        sizes = [stated] if np.ndim(stated) == 0 else list(stated)
        return tuple(
            errors.whole(where, "hidden_layer_sizes", one, least=1, most=_WIDEST) for one in sizes
        )

    def _recipe(self) -> Recipe:
        return Recipe(
            type(self).__name__,
            batch_size=self.batch_size,
            epochs=self.epochs,
            clip_norm=self.clip_norm,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            average=self.average,
        )

    def _box(self, columns: int) -> Box:
        return Box.of(type(self).__name__, "bounds", self.bounds, columns)

    def _assumptions(self) -> tuple[str, ...]:
        return (FLOAT_NOISE,)

    def _limits(self) -> tuple[str, ...]:
        return (PUBLIC_COUNT,)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


class MLPClassifier(ClassifierMixin, _MLP):  # type: ignore[misc]
    r"""Neural network classifier with ReLU units, trained by DP-SGD.

    .. math:: \min_W \sum_i -\ln p_W(y_i \mid x_i), \qquad
              p_W = \mathrm{softmax}\big(W_L\,\mathrm{relu}(\cdots) + b_L\big)

    Columns are measured in half-widths of their bounds. After `fit`: `coefs_` and `intercepts_` as
    in scikit-learn, for unscaled rows (the map of `tacit.estimators.components` is folded into the
    first layer; two classes have one output), `classes_`, `guarantee_`, `certificate_`, `event_`,
    `clipped_`.

    Parameters
    ----------
    epsilon, delta : float
        Privacy budget of the fit, components and training together.
    bounds : pair
        Public bounds (lower, upper) of the columns: two numbers, or two arrays with one number per
        column. Rows outside are clipped and counted in `clipped_`. Columns are measured from the
        middle of their bounds: give (−b, b) to measure from zero.
    hidden_layer_sizes : sequence of int
        Sizes of the hidden layers. An empty sequence gives softmax regression.
    components : int, optional
        Number of private principal components to use as inputs, as in Abadi et al., for a share of
        the budget. Useful with many columns of which few directions matter.
    classes : array, optional
        Public labels. If not given, they are read from y, and the certificate says so.
    norm : float, optional
        For `components`: limit, in half-widths from the middle, that rows are shortened to when
        components are computed. By default 0.6 times the norm of the corners. Noise grows with its
        square.
    clip_norm : float
        Limit on the norm of each record's gradient.
    batch_size : int, optional
        Expected batch size. By default a quarter of the records, or all of them up to 4,096.
    epochs : float, optional
        By default 25, or as many as 100 steps take, whichever is more.
    optimizer : {"sgd", "adam"}
    learning_rate : float, optional
        By default computed from public numbers by `tacit.estimators.recipe`.
    momentum : float, optional
        Momentum of "sgd"; 0.9 by default.
    average : float
        Share of the steps, counted from the end, whose weights are averaged. It costs no privacy.
    device : str
        "cpu", "cuda" or "auto".
    unit, ledger, account, rng
        What one row belongs to; the ledger and account charged before rows are read; a generator
        for tests.

    Notes
    -----
    Guarantee: (ε, δ)-DP; neighbours are zero-out (one record is replaced by a blank), and the
    number of records is public. Every step is a Gaussian on a Poisson sample of clipped gradients
    [ACG16]_: one record moves their sum by at most `clip_norm`. Proofs:
    `tacit.private_training.train`, and for components `tacit.estimators.components`. The two are
    one composition, and the noise is calibrated by its privacy loss distribution. Averaging is
    post-processing. Noise is floating-point, which the certificate states. Cost: a little more than
    a forward and a backward pass per epoch; with components, also d² per record and d³.

    References
    ----------
    .. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.privacy.randomness import Seeded
    >>> rows = np.random.default_rng(0).uniform(-1, 1, size=(4000, 2))
    >>> ring = (rows**2).sum(axis=1) > 0.6
    >>> model = MLPClassifier(epsilon=4, bounds=(-1, 1), classes=[False, True],
    ...                       rng=Seeded(0)).fit(rows, ring)
    >>> print(model.guarantee_)
    (4, 1e-06)-DP (central, zero-out, unit: record)
    >>> model.score(rows, ring) > 0.85
    True
    """

    classes: Any
    classes_: npt.NDArray[Any]

    _stored = ("classes_", "coefs_", "intercepts_")

    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        hidden_layer_sizes: Sequence[int] = (100,),
        components: int | None = None,
        delta: float = DELTA,
        classes: Any = None,
        norm: float | None = None,
        clip_norm: float = 0.3,
        batch_size: int | None = None,
        epochs: float | None = None,
        optimizer: str = "sgd",
        learning_rate: float | None = None,
        momentum: float | None = None,
        average: float = 0.3,
        device: str = "cpu",
        unit: str = "record",
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.hidden_layer_sizes = hidden_layer_sizes
        self.components = components
        self.delta = delta
        self.classes = classes
        self.norm = norm
        self.clip_norm = clip_norm
        self.batch_size = batch_size
        self.epochs = epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.average = average
        self.device = device
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows X and labels y. The ledger, if any, is charged before values are used."""
        X, y = self._checked(X, y)
        self.classes_, codes = coded(type(self).__name__, y, self.classes)
        return self._store(self._fit(X, codes, self._charge(*X.shape)))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class of each row."""
        scores = self._forward(X)
        if scores.shape[1] == 1:
            return np.asarray(self.classes_[(scores[:, 0] > 0).astype(int)])
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, X: Any) -> Reals:
        """Return the probabilities of the classes, in the order of `classes_`."""
        scores = self._forward(X)
        if scores.shape[1] == 1:
            return np.concatenate([expit(-scores), expit(scores)], axis=1)
        return np.asarray(softmax(scores, axis=1))

    def predict_log_proba(self, X: Any) -> Reals:
        """Return the logarithms of the probabilities of the classes."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _outputs(self) -> tuple[int, str]:
        two = len(self.classes_) == 2
        return (1, "logistic") if two else (len(self.classes_), "softmax")

    def _assumptions(self) -> tuple[str, ...]:
        read = (READ_CLASSES,) if self.classes is None else ()
        return (*super()._assumptions(), *read)


class MLPRegressor(RegressorMixin, _MLP):  # type: ignore[misc]
    r"""Neural network regressor with ReLU units, trained by DP-SGD.

    .. math:: \min_W \sum_i (f_W(x_i) - y_i')^2

    with targets y′ in half-widths of their bounds. After `fit`: `coefs_` and `intercepts_` as in
    scikit-learn, for unscaled rows and targets, `guarantee_`, `certificate_`, `event_`, and
    `clipped_` (the number of rows outside their bounds plus targets outside theirs).

    Parameters
    ----------
    target_bounds : pair of float
        Public bounds of the target.
    epsilon, bounds, hidden_layer_sizes, components, delta, norm, clip_norm, batch_size, epochs, \
optimizer, learning_rate, momentum, average, device, unit, ledger, account, rng
        As in `MLPClassifier`.

    Notes
    -----
    Guarantee and cost: those of `MLPClassifier`.

    References
    ----------
    See `MLPClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.privacy.randomness import Seeded
    >>> rows = np.random.default_rng(0).uniform(-1, 1, size=(4000, 2))
    >>> model = MLPRegressor(epsilon=4, bounds=(-1, 1), target_bounds=(0, 1),
    ...                      rng=Seeded(0)).fit(rows, np.abs(rows[:, 0]))
    >>> model.score(rows, np.abs(rows[:, 0])) > 0.7
    True
    """

    target_bounds: Bounds

    _stored = ("coefs_", "intercepts_")

    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        target_bounds: Bounds,
        hidden_layer_sizes: Sequence[int] = (100,),
        components: int | None = None,
        delta: float = DELTA,
        norm: float | None = None,
        clip_norm: float = 0.3,
        batch_size: int | None = None,
        epochs: float | None = None,
        optimizer: str = "sgd",
        learning_rate: float | None = None,
        momentum: float | None = None,
        average: float = 0.3,
        device: str = "cpu",
        unit: str = "record",
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.hidden_layer_sizes = hidden_layer_sizes
        self.components = components
        self.delta = delta
        self.norm = norm
        self.clip_norm = clip_norm
        self.batch_size = batch_size
        self.epochs = epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.average = average
        self.device = device
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows X and targets y. The ledger, if any, is charged before values are used."""
        X, y = self._checked(X, y, y_numeric=True)
        target = Box.of(type(self).__name__, "target_bounds", self.target_bounds, 1)
        charged = self._charge(*X.shape)
        clipped, outside = target.clip(y)
        layers = self._fit(X, (clipped - target.center) / target.radius, charged)
        self.clipped_ += outside
        weights, bias = layers[-1]
        layers[-1] = (weights * target.radius, bias * target.radius + target.center)
        return self._store(layers)

    def predict(self, X: Any) -> Reals:
        """Predict the target of new rows, in its own units."""
        return self._forward(X)[:, 0]

    def _outputs(self) -> tuple[int, str]:
        return 1, "squared"
