"""Sources of randomness, and exact samplers.

`source` turns the `rng` argument of a release into a stream of random words (the operating
system's, unless a test passes its own); `keystream` expands 32 bytes of them;
`samplers` draws from laws on the integers without any rounding.
"""

from tacit.privacy.randomness.keystream import Keystream
from tacit.privacy.randomness.samplers import (
    Inversion,
    bernoulli,
    bernoulli_exp,
    bernoulli_exp_each,
    discrete_gaussian,
    discrete_laplace,
    geometric,
    rounded_gaussian,
    subsets,
    uniform_below,
)
from tacit.privacy.randomness.source import Randomness, Seeded, SystemEntropy, source

__all__ = [
    "Inversion",
    "Keystream",
    "Randomness",
    "Seeded",
    "SystemEntropy",
    "bernoulli",
    "bernoulli_exp",
    "bernoulli_exp_each",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "rounded_gaussian",
    "source",
    "subsets",
    "uniform_below",
]
