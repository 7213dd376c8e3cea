"""scikit-learn estimators with a central guarantee towards each record that they are fitted on.

`epsilon` and the public bounds of the data have no default, nothing is read off the data to set
them, and after `fit` an estimator holds its `guarantee_` and a certificate.
"""

from __future__ import annotations
