"""OpenDP: exact discrete noise on a vector of integers, and statistics of bounded rows.

Neighbours of its count, sum and histogram are add-remove, at distance 1. Its mean takes the number
of rows as public, so its neighbours replace one row, at distance 2. If the number of rows is
hidden, a mean is a sum over a count, each with half of ε.
"""

import opendp.prelude as dp

from query_cases import ABOVE, EDGES, EPSILON, LOW, LOWER, UPPER, VALUES, serve

COUNT = 2_000  # as fast as with 100,000, and many calls fit into a turn

dp.enable_features("contrib")
vectors = dp.vector_domain(dp.atom_domain(T="i64"))
laplace = dp.m.make_laplace(vectors, dp.l1_distance(T="i64"), scale=10.0)
gaussian = dp.m.make_gaussian(vectors, dp.l2_distance(T="i64"), scale=10.0)
values = [i % 100 for i in range(COUNT)]

bounded = dp.atom_domain(bounds=(LOWER, UPPER))
rows = (dp.vector_domain(bounded), dp.symmetric_distance())
sized = (dp.vector_domain(bounded, size=len(VALUES)), dp.symmetric_distance())
bins = (
    rows
    >> dp.t.then_find_bin(edges=EDGES[1:-1])
    >> dp.t.then_count_by_categories(categories=list(range(len(EDGES) - 1)), null_category=False)
)


def noised(statistic, d_in, epsilon=EPSILON):
    """Return the statistic with the least Laplace noise that gives ε."""
    return dp.binary_search_chain(lambda s: statistic >> dp.m.then_laplace(s), d_in, epsilon)


count = noised(rows >> dp.t.then_count(), 1)
total = noised(rows >> dp.t.then_sum(), 1)
mean = noised(sized >> dp.t.then_mean(), 2)
histogram = noised(bins, 1)
half_count = noised(rows >> dp.t.then_count(), 1, EPSILON / 2)
half_total = noised(rows >> dp.t.then_sum(), 1, EPSILON / 2)

serve(
    {
        "discrete_laplace": (lambda: laplace(values), COUNT),
        "discrete_gaussian": (lambda: gaussian(values), COUNT),
    },
    {
        "count": lambda: [count([value for value in VALUES if value > ABOVE])],
        "sum": lambda: [total(VALUES)],
        "mean": lambda: [mean(VALUES)],
        "mean_low": lambda: [mean(LOW)],
        "mean_add_remove": lambda: [half_total(VALUES) / half_count(VALUES)],
        "histogram": lambda: histogram(VALUES),
    },
)
