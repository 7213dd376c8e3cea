"""Private Bayesian posteriors of counts: Beta-binomial and Dirichlet-multinomial."""

from tacit.inference.posterior.models import BetaBinomial as BetaBinomial
from tacit.inference.posterior.models import DirichletMultinomial as DirichletMultinomial
from tacit.inference.posterior.released import Posterior as Posterior
