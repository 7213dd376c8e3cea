"""Random forest classifier on noisy counts: see `RandomForestClassifier`."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin

from tacit.central.estimators.base import DELTA, Bounds, Box, PrivateEstimator, Reals, warn_of_noise
from tacit.central.estimators.classifier import READ_CLASSES, coded
from tacit.central.estimators.forest.growing import (
    DPRF,
    Growing,
    Histograms,
    RandomSplits,
    public_size,
)
from tacit.central.estimators.forest.noise import WHERE
from tacit.central.estimators.forest.tree import Tree
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import LedgerLike
from tacit.privacy.events import Event
from tacit.privacy.randomness import Randomness

Integers = npt.NDArray[np.int64]

ALGORITHMS: dict[str, type[Growing]] = {
    "histograms": Histograms,
    "random-splits": RandomSplits,
    "dprf": DPRF,
}

_REMEDY = "Give more records, fewer columns, a smaller max_depth or a larger epsilon."


class RandomForestClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    r"""Random forest of complete binary trees, fitted to noisy counts.

    .. math:: p(c \mid x) = \frac{1}{T} \sum_t \hat p_{t,\,\mathrm{leaf}_t(x)}(c)

    Parameters
    ----------
    epsilon : float
        Privacy parameter of the whole fit.
    bounds : pair
        Public bounds (lower, upper) of the columns: two numbers, or two arrays with one number per
        column. Values outside are clipped to them; `clipped_` counts the rows concerned.
    delta : float
        The δ of (ε, δ)-DP. 0 gives ε-DP, with Laplace noise. "dprf" is ε-DP and does not use it.
    n_estimators : int
        T, the number of trees. Each additional tree increases the noise of all: with "histograms"
        few trees are better, and 10 is a compromise; with "random-splits" and "dprf" use 100.
    max_depth : int
        Number of levels of splits. Every tree has all of them.
    algorithm : "histograms", "random-splits" or "dprf"
        See Notes. "histograms" finds the few columns and cuts that matter; "random-splits" is
        better where every column contributes a little; "dprf" was never the best of the three and
        is there for comparison. Each was measured in one setting: ε = 1, 50,000 records, 20
        columns.
    max_features : int, optional
        m, the number of columns tried at a node: all by default; with "dprf" the square root of
        their number.
    bins : int
        b, the number of bins of a column's histogram at a node.
    blend : float
        λ of "dprf": 1 is information gain only, 0 is gain ratio only.
    classes : sequence, optional
        Public labels. If not given, they are read from y, and the certificate says that they are
        taken as public.
    unit : str
        What one row belongs to, and so what the guarantee protects.
    ledger, account
        Ledger and account that are charged before values are used; if they cannot pay, the fit is
        refused.
    rng : Randomness, optional
        By default the operating system's randomness; a seeded one is recorded in the certificate.

    Attributes
    ----------
    classes_ : array
        Labels, in the order of `predict_proba`.
    estimators_ : list of Tree
        The trees; all of their content was released.
    guarantee_, certificate_, event_
        The guarantee of the fit, its certificate, and the event that it follows from.
    clipped_ : int
        Number of rows outside the bounds. In-house: it has no noise.

    Notes
    -----
    Guarantee: (ε, δ)-DP, or ε-DP with δ = 0; neighbours differ by one record more or less. "dprf"
    uses the number of records: it is ε-DP, and neighbours are zero-out (one record is replaced by a
    blank).

    One record is at one node of each level of a tree. It therefore changes one count of a tree's
    leaves by one, and one count of each column's histograms of a level: sensitivity 1 in every
    norm, for each of these queries, wherever the splits above came from.

    - "histograms": at each level, noisy class counts in b bins of m columns at every node; every
      split is computed from them. Gini gain, thresholds and the predictions of leaves are functions
      of what was released, and cost nothing. A tree is m·D + 1 queries: its leaves have a tenth of
      the budget, and the m·D histograms share the rest equally. Cost: T·n·m·D.
    - "random-splits" [JPW12]_ [GEW06]_: a random column and a random cut of each node's box; one
      query, the counts of the leaves. Cost: T·n·D.
    - "dprf" [HLM19]_: at each level, each node chooses one of m·(b − 1) cuts by the exponential
      mechanism on a blend of information gain and gain ratio, and the leaves are counted. Half of ε
      is for the choices, shared equally by the levels: nodes of a level share no record. As
      published, the gain ratio's sensitivity is its whole range; here its divisor is at least half
      a bit, and the sensitivity is proved in `tacit.estimators.forest.splits`. Cost: n·m·D.

    Trees and budget. With Gaussian noise every tree has all n records and 1/T of the budget: the
    standard deviation of its noise grows by √T [DRS22]_. In T disjoint bags a tree would have the
    whole budget and n/T records, which is worse by √T. With Laplace noise both have n/T records to
    a unit of noise, so bags are used: they are T times quicker, and their errors are independent. A
    record's bag is drawn uniformly without looking at any record, so for any draw of the others'
    bags neighbours differ in one bag, and the forest costs what one tree costs [McS09]_.

    References
    ----------
    .. [JPW12] Jagannathan, Pillaipakkamnatt, Wright. A practical differentially private random
       decision tree classifier. Transactions on Data Privacy 2012.
    .. [GEW06] Geurts, Ernst, Wehenkel. Extremely randomized trees. Machine Learning 2006.
    .. [HLM19] Hou, Li, Meng, Ni, Chen, Liu. DPRF: a differential privacy protection random forest.
       IEEE Access 2019.
    .. [DRS22] Dong, Roth, Su. Gaussian differential privacy. JRSS B 2022 (Corollary 3.3).
    .. [McS09] McSherry. Privacy integrated queries. SIGMOD 2009 (Theorem 4).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (10_000, 3))
    >>> y = (X[:, 0] > 0.2) & (X[:, 1] < 0.5)
    >>> model = RandomForestClassifier(epsilon=1, bounds=(-1, 1), max_depth=4).fit(X, y)
    >>> print(model.guarantee_)
    (1, 1e-06)-DP (central, add-remove, unit: record)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    _stored = ("classes_", "estimators_")

    def __init__(
        self,
        *,
        epsilon: float,
        bounds: Bounds,
        delta: float = DELTA,
        n_estimators: int = 10,
        max_depth: int = 8,
        algorithm: str = "histograms",
        max_features: int | None = None,
        bins: int = 16,
        blend: float = 0.5,
        classes: Any = None,
        unit: str = "record",
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.delta = delta
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.algorithm = algorithm
        self.max_features = max_features
        self.bins = bins
        self.blend = blend
        self.classes = classes
        self.unit = unit
        self.ledger = ledger
        self.account = account
        self.rng = rng

    classes_: npt.NDArray[Any]
    estimators_: list[Tree]

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows X and labels y. The ledger, if any, is charged before values are used."""
        X, y = self._checked(X, y)
        self.classes_, codes = coded(WHERE, y, self.classes)
        charged = self._charge(*X.shape)
        growing = self._growing(*X.shape)
        inside, clipped = growing.box.clip(X)
        trees, ran = growing.grow(inside, codes, self.rng)
        records, noise = np.mean([(tree.records, tree.noise) for tree in trees], axis=0)
        # Two standard deviations: noise alone rarely looks like this many records.
        warn_of_noise(WHERE, records / 2, 2 * noise / math.sqrt(len(trees)), _REMEDY)
        self._keep(charged, ran)
        self.estimators_, self.clipped_ = trees, clipped
        return self

    def predict_proba(self, X: Any) -> Reals:
        """Return the probabilities of the classes: the mean over the trees."""
        rows = self._rows(X)
        total = sum(tree.predict(rows) for tree in self.estimators_)
        return np.asarray(total / len(self.estimators_))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _event(self, rows: int, columns: int) -> Event:
        return self._growing(rows, columns).event

    def _growing(self, rows: int, columns: int) -> Growing:
        name = errors.choice(WHERE, "algorithm", self.algorithm, list(ALGORITHMS))
        box = Box.of(WHERE, "bounds", self.bounds, columns)
        few = math.isqrt(columns) if name == "dprf" else columns
        tried = few if self.max_features is None else self.max_features
        delta = errors.probability(WHERE, "delta", self.delta)
        return ALGORITHMS[name](
            noise=(self.epsilon, 0.0 if name == "dprf" else delta, self.unit),
            box=box,
            classes=len(self.classes_),
            trees=errors.whole(WHERE, "n_estimators", self.n_estimators, least=1, most=10**4),
            depth=errors.whole(WHERE, "max_depth", self.max_depth, least=1, most=16),
            bins=errors.whole(WHERE, "bins", self.bins, least=2, most=256),
            columns=errors.whole(WHERE, "max_features", tried, least=1, most=columns),
            records=public_size(rows),
            blend=errors.share(WHERE, "blend", self.blend),
        )

    def _delta(self) -> float | None:
        return None if self.algorithm == "dprf" else super()._delta()

    def _assumptions(self) -> tuple[str, ...]:
        return (READ_CLASSES,) if self.classes is None else ()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags
