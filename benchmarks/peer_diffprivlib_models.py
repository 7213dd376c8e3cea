"""diffprivlib's estimators on the rows of `estimators.py`: accuracy, or R², on the test rows."""

import json
import sys
import warnings

from diffprivlib import models

from estimator_cases import DEPTH, EPSILON, LOWER, TREES, UPPER, Cases

warnings.simplefilter("ignore")
cases = Cases()
bounds = (LOWER, UPPER)


def forest():
    model = models.RandomForestClassifier(
        TREES, epsilon=EPSILON, bounds=bounds, classes=[0, 1], max_depth=DEPTH
    )
    return model.fit(cases.rows, cases.grown).score(cases.test, cases.test_grown)


def linear():
    model = models.LinearRegression(epsilon=EPSILON, bounds_X=bounds, bounds_y=cases.target_bounds)
    return model.fit(cases.rows, cases.answers).score(cases.test, cases.test_answers)


def logistic():
    norm = float((max(abs(LOWER), UPPER) ** 2 * cases.rows.shape[1]) ** 0.5)
    model = models.LogisticRegression(epsilon=EPSILON, data_norm=norm)
    return model.fit(cases.rows, cases.labels).score(cases.test, cases.test_labels)


tasks = {"forest": forest, "linear": linear, "logistic": logistic}
print(json.dumps(sorted(tasks)), flush=True)
for line in sys.stdin:
    print(json.dumps(float(tasks[line.strip()]())), flush=True)
