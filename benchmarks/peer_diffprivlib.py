"""diffprivlib's statistics. The number of rows is public, and a neighbour replaces one row.

Only its histogram adds noise for add-remove neighbours: one count moves by one.
"""

import numpy as np
from diffprivlib import tools

from query_cases import ABOVE, EDGES, EPSILON, LOW, LOWER, UPPER, VALUES, serve

array, low = np.array(VALUES), np.array(LOW)
bounds = (LOWER, UPPER)


def histogram():
    return tools.histogram(array, epsilon=EPSILON, bins=EDGES, range=bounds)


serve(
    {},
    {
        "count": lambda: [float(tools.count_nonzero(array > ABOVE, epsilon=EPSILON))],
        "sum": lambda: [tools.sum(array, epsilon=EPSILON, bounds=bounds)],
        "mean": lambda: [tools.mean(array, epsilon=EPSILON, bounds=bounds)],
        "mean_low": lambda: [tools.mean(low, epsilon=EPSILON, bounds=bounds)],
        "variance": lambda: [tools.var(array, epsilon=EPSILON, bounds=bounds)],
        "histogram": lambda: histogram()[0].tolist(),
    },
)
