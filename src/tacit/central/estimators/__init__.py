"""scikit-learn estimators with a central guarantee for each record that they are fitted on.

`epsilon` and the public bounds of the data have no default, and neither is ever computed from the
data. After `fit`, an estimator has a `guarantee_` and a `certificate_`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy import lazy

if TYPE_CHECKING:
    from tacit.central.estimators.base import MostlyNoise as MostlyNoise
    from tacit.central.estimators.forest.classifier import (
        RandomForestClassifier as RandomForestClassifier,
    )
    from tacit.central.estimators.linear import LinearRegression as LinearRegression
    from tacit.central.estimators.linear import Ridge as Ridge
    from tacit.central.estimators.logistic import LogisticRegression as LogisticRegression
    from tacit.central.estimators.mlp import MLPClassifier as MLPClassifier
    from tacit.central.estimators.mlp import MLPRegressor as MLPRegressor
    from tacit.central.estimators.scalers import MinMaxScaler as MinMaxScaler
    from tacit.central.estimators.scalers import StandardScaler as StandardScaler
    from tacit.central.estimators.svm import SVC as SVC
    from tacit.central.estimators.svm import LinearSVC as LinearSVC
    from tacit.central.estimators.unsupervised import PCA as PCA
    from tacit.central.estimators.unsupervised import KMeans as KMeans

lazy.attach(__name__, public="tacit.estimators")
