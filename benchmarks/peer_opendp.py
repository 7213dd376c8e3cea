"""OpenDP's exact discrete noise on a vector of integers, one call for the whole vector."""

import opendp.prelude as dp

from peers import serve

COUNT = 2_000  # as fast as at 100,000, and many calls fit into a turn

dp.enable_features("contrib")
vectors = dp.vector_domain(dp.atom_domain(T="i64"))
laplace = dp.m.make_laplace(vectors, dp.l1_distance(T="i64"), scale=10.0)
gaussian = dp.m.make_gaussian(vectors, dp.l2_distance(T="i64"), scale=10.0)
values = [i % 100 for i in range(COUNT)]

serve(
    {
        "discrete_laplace": (lambda: laplace(values), COUNT),
        "discrete_gaussian": (lambda: gaussian(values), COUNT),
    }
)
