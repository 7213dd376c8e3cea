"""scikit-learn estimators with a central guarantee towards each record that they are fitted on.

`epsilon` and the public bounds of the data have no default, nothing is read off the data to set
them, and after `fit` an estimator holds its `guarantee_` and a certificate.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.estimators.base import MostlyNoise as MostlyNoise
    from tacit.estimators.forest import RandomForestClassifier as RandomForestClassifier
    from tacit.estimators.linear import LinearRegression as LinearRegression
    from tacit.estimators.linear import Ridge as Ridge
    from tacit.estimators.logistic import LogisticRegression as LogisticRegression
    from tacit.estimators.mlp import MLPClassifier as MLPClassifier
    from tacit.estimators.mlp import MLPRegressor as MLPRegressor
    from tacit.estimators.scalers import MinMaxScaler as MinMaxScaler
    from tacit.estimators.scalers import StandardScaler as StandardScaler
    from tacit.estimators.shells import PCA as PCA
    from tacit.estimators.shells import KMeans as KMeans
    from tacit.estimators.svm import SVC as SVC
    from tacit.estimators.svm import LinearSVC as LinearSVC

_HOMES = {
    "base": ["MostlyNoise"],
    "forest": ["RandomForestClassifier"],
    "linear": ["LinearRegression", "Ridge"],
    "logistic": ["LogisticRegression"],
    "mlp": ["MLPClassifier", "MLPRegressor"],
    "scalers": ["MinMaxScaler", "StandardScaler"],
    "shells": ["KMeans", "PCA"],
    "svm": ["LinearSVC", "SVC"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(f"tacit.estimators.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'tacit.estimators' has no attribute {name!r}")
