"""Private Bayesian posteriors of counts: Beta-binomial and Dirichlet-multinomial."""

from tacit.central.posteriors.models import BetaBinomial as BetaBinomial
from tacit.central.posteriors.models import DirichletMultinomial as DirichletMultinomial
from tacit.central.posteriors.released import Posterior as Posterior
