"""Fit one model of diffprivlib: a request on stdin, an answer on stdout.

    PYTHON classifier_peer.py

It is run as a script and does not import Tacit: diffprivlib needs its own versions of packages. A
request is JSON with `model`, `epsilon`, `seed`, `lower`, `upper`, `norm`, `classes`,
`target_bounds` and `rows`, a numpy file with X, y, test_X, test_y. Without a model only the version
is answered. It is an error if diffprivlib would read bounds off the rows.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any


def made(models: Any, request: dict[str, Any]) -> Any:
    """Make the estimator that was asked for, with its defaults and the public bounds."""
    shared = {"epsilon": request["epsilon"], "random_state": request["seed"]}
    bounds = request["lower"], request["upper"]
    match request["model"]:
        case "LogisticRegression":
            return models.LogisticRegression(data_norm=request["norm"], max_iter=1000, **shared)
        case "RandomForestClassifier":
            return models.RandomForestClassifier(
                bounds=bounds, classes=request["classes"], **shared
            )
        case "LinearRegression":
            target = tuple(request["target_bounds"])
            return models.LinearRegression(bounds_X=bounds, bounds_y=target, **shared)
    return models.GaussianNB(bounds=bounds, **shared)


def main() -> None:
    """Answer one request."""
    import diffprivlib  # type: ignore[import-not-found]
    import numpy as np
    from diffprivlib import models, utils

    request = json.load(sys.stdin)
    answer: dict[str, Any] = {"version": diffprivlib.__version__}
    if "model" in request:
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", utils.PrivacyLeakWarning)
        with np.load(request["rows"]) as rows:
            model = made(models, request).fit(rows["X"], rows["y"])
            answer["score"] = float(model.score(rows["test_X"], rows["test_y"]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
